//! What `kernel/unserved.h` counts, and the names that it has here.

use kernel::{Pace, Service};
use verdict::Trigger;

/// Of what a connection waits for: no byte of a request was seen, and one was.
pub const SILENT: usize = kernel::STAGE_SILENT as usize;
/// See [`SILENT`].
pub const WAITING: usize = kernel::STAGE_WAITING as usize;
/// Buckets of how many wait: 0, 1, 2 and 3, 4 to 7 and so on.
pub const BESIDE: usize = kernel::BESIDE as usize;

/// How many may wait under such a trigger; `None` where that is not what is limited, or not found yet.
pub fn limit_of(pace: &Pace, trigger: Trigger) -> Option<u32> {
    match trigger {
        Trigger::Unserved(Some(named)) => Some(named.get()),
        Trigger::Unserved(None) => Some(pace.limit).filter(|&limit| limit > 0),
        Trigger::Sojourn(_) | Trigger::Queue => None,
    }
}

/// Of all who wait for the server or for something else, those of one bucket of how many waited when they began to.
pub(crate) fn waiting_beside(service: &Service, bucket: usize, counts_silent: bool) -> u32 {
    let [silent, waiting] = service.waiting_beside.map(|row| row[bucket]);
    waiting + if counts_silent { silent } else { 0 }
}

#[cfg(test)]
mod tests {
    use kernel::{ListenerLoad, Wait};
    use units::Nanos;

    use super::*;
    use crate::FIRST_PACE;

    const STAGES: usize = 2;

    #[test]
    fn handshake_counts_with_a_quarter_of_a_second_at_most_in_the_mean_of_those_who_are_answered() {
        // And with no more than two slots, 33.55 ms of the second.
        for (slot_shift, answered_us) in [(30, 501_000), (24, 68_108)] {
            let (pace, now) = (Pace { slot_shift, ..FIRST_PACE }, Nanos::from_secs(100));
            let mut service = Service::of_generation(0);
            for handshake_us in [1_000, 250_000, 60_000_000] {
                let mut wait = service.begin(&pace, handshake_us, now);
                service.go_on(&pace, &mut wait, now);
                service.end(&pace, &wait, true, now);
            }
            assert_eq!((service.answered, service.answered_handshakes_us), (3, answered_us));
        }
    }

    /// Five pieces come at once, and one later, when it counts still, or no more as others came and went.
    #[test]
    fn time_that_a_client_takes_over_its_request_is_none_of_the_servers() {
        for (others, last_ms, piecemeal) in [(0, 150, 0), (100, 2_000, 1)] {
            let (pace, start) = (FIRST_PACE, Nanos::from_secs(100));
            let at = |ms: u64| start + Nanos::from_millis(ms);
            let mut service = Service::of_generation(0);
            let mut slow = service.begin(&pace, 100, start);
            (0..5).for_each(|_| service.go_on(&pace, &mut slow, start));
            for other in 0..others {
                let mut wait = service.begin(&pace, 100, at(other));
                service.go_on(&pace, &mut wait, at(other));
                service.end(&pace, &wait, true, at(other + 1));
            }
            service.go_on(&pace, &mut slow, at(last_ms));
            let before = service;
            service.end(&pace, &slow, true, at(last_ms + 3));
            let counted = 1 - piecemeal;
            assert_eq!((service.answered, service.answered_piecemeal), (others + 1, piecemeal));
            assert_eq!(service.response_ns - before.response_ns, counted * 3_000_000);
            assert_eq!(service.overtakes.iter().sum::<u64>(), others + counted);
        }
    }

    #[test]
    fn request_in_many_pieces_is_in_no_bucket_of_how_many_waited() {
        let (pace, now) = (FIRST_PACE, Nanos::from_secs(100));
        for (pieces, in_a_bucket) in [(4, 1), (5, 0), (9, 0)] {
            let mut service = Service::of_generation(0);
            let mut wait = service.begin(&pace, 100, now);
            (0..pieces).for_each(|_| service.go_on(&pace, &mut wait, now));
            assert_eq!(service.waiting_beside[WAITING][0], in_a_bucket, "{pieces} pieces");
            service.end(&pace, &wait, true, now);
            assert_eq!(service.waiting_beside, [[0; BESIDE]; STAGES], "{pieces} pieces");
            assert_eq!(service.answers_beside.iter().sum::<u64>(), u64::from(in_a_bucket), "{pieces} pieces");
        }
    }

    #[test]
    fn silent_connection_is_not_in_the_way_of_what_waits_beside_whom() {
        let (pace, start) = (FIRST_PACE, Nanos::from_secs(100));
        let mut service = Service::of_generation(0);
        let spare: Vec<Wait> = (0..5).map(|_| service.begin(&pace, 100, start)).collect();
        let mut asks: Vec<Wait> = (0..3).map(|_| service.begin(&pace, 100, start)).collect();
        asks.iter_mut().for_each(|wait| service.go_on(&pace, wait, start));
        // Before whom nobody waited, one did, and two did.
        let beside =
            |service: &Service, counts| [0, 1, 2].map(|bucket| waiting_beside(service, bucket, counts));
        assert_eq!(beside(&service, false), [1, 1, 1]);
        assert_eq!(beside(&service, true), [6, 1, 1]);
        let end = start + Nanos::from_millis(5);
        asks.iter().for_each(|wait| service.end(&pace, wait, true, end));
        assert_eq!(service.answers_beside[..4], [1, 1, 1, 0]);
        assert_eq!(service.responses_beside_ns[..4], [5_000_000, 5_000_000, 5_000_000, 0]);
        spare.iter().for_each(|wait| service.end(&pace, wait, false, end));
        assert_eq!(service.waiting_beside, [[0; BESIDE]; STAGES]);
    }

    /// Hours of idle time, and a queue that was paid for before a reload, are of no use to a burst.
    #[test]
    fn nobody_waits_for_the_sake_of_a_burst_that_may_take_less_than_an_answer() {
        for (kept_ns, is_spent) in [(0, false), (999_999, false), (6_000_000, true)] {
            let pace = Pace { answer_ns: 1_000_000, kept_ns, ..FIRST_PACE };
            let now = Nanos::from_secs(30_000);
            let mut service = Service {
                idle_ns: 20_000_000_000_000,
                answered_ns: now.0,
                trickled_ns: now.0,
                paid: 100,
                paid_ns: now.0,
                ..Service::of_generation(0)
            };
            let load = ListenerLoad { unserved: 8, unserved_limit: 4, ..ListenerLoad::default() };
            let is_queued = service.may_exceed(&pace, now, &load, true, false);
            assert_eq!((is_queued, service.may_defer(&pace, now)), (is_spent, is_spent), "{kept_ns} ns");
        }
    }

    #[test]
    fn far_clients_who_are_let_in_at_once_are_there_at_once_for_a_round_trip() {
        // 1,000/s, and 20 ms away.
        let pace = Pace {
            drain_ns: 1_000_000,
            handshake_ns: 20_000_000,
            served_meanwhile: 1_000,
            taken_meanwhile: 1_000,
            ..FIRST_PACE
        };
        let at = |ms: u64| Nanos::from_millis(10_000 + ms);
        let read = |service: &mut Service, pace: &Pace, ms| {
            let mut load = ListenerLoad { syn_qlen: 1_000, ..ListenerLoad::default() };
            service.read(pace, at(ms), &mut load);
            assert_eq!(load.unserved, load.promised);
            load.unserved
        };
        let let_in = |pace: &Pace, count| {
            let mut service = Service::of_generation(0);
            read(&mut service, pace, 0);
            (0..count).for_each(|_| service.expect(pace, at(0)));
            service
        };
        let mut service = let_in(&pace, 12);
        assert_eq!([0, 5, 12, 13].map(|ms| read(&mut service, &pace, ms)), [12, 7, 0, 0]);
        // Half of them never come, and in a round trip no more can be there than it drains.
        let half = Pace { completed_ppm: 500_000, ..pace };
        assert_eq!(read(&mut let_in(&half, 12), &half, 0), 6);
        assert_eq!(read(&mut let_in(&pace, 100), &pace, 0), 20);
        // It was thought to be a hundred times as slow.
        let slow = Pace { drain_ns: 100_000_000, ..pace };
        let mut service = let_in(&slow, 12);
        assert_eq!([0, 5, 20].map(|ms| read(&mut service, &pace, ms)), [20, 15, 0]);
        let near = Pace { drain_ns: 0, ..pace };
        assert_eq!(read(&mut let_in(&near, 12), &near, 0), 0);
    }

    #[test]
    fn idle_time_that_is_reserved_is_spent_on_nobody() {
        let idle_ns = 2_000_000_000;
        for (reserve_ns, is_spent) in [(0, true), (idle_ns / 2, true), (idle_ns, false)] {
            let pace = Pace { answer_ns: 1_000_000, reserve_ns, ..FIRST_PACE };
            let now = Nanos::from_secs(10);
            // An answer just now, so that nobody is let in because the server seems to hang.
            let mut service =
                Service { idle_ns, answered_ns: now.0, trickled_ns: now.0, ..Service::of_generation(0) };
            let load = ListenerLoad { unserved: 8, unserved_limit: 4, ..ListenerLoad::default() };
            assert_eq!(
                service.may_exceed(&pace, now, &load, true, false),
                is_spent,
                "in the queue, {reserve_ns} ns"
            );
            assert_eq!(service.may_defer(&pace, now), is_spent, "left unanswered, {reserve_ns} ns");
        }
    }

    #[test]
    fn idle_moments_of_a_crowd_pay_for_nobody_and_a_gap_does() {
        let pace = Pace { answer_ns: 1_000_000, trickle_ns: 0, ..FIRST_PACE };
        let load = ListenerLoad { unserved: 8, unserved_limit: 4, ..ListenerLoad::default() };
        let at = |ms: u64| Nanos::from_millis(10_000 + ms);
        let mut service = Service::of_generation(0);
        let ask = |service: &mut Service, ms| service.may_exceed(&pace, at(ms), &load, true, false);
        assert!(!ask(&mut service, 0), "nothing is saved up: it is a crowd");
        // Half of the time nobody waits, and somebody is refused every 20 ms.
        for turn in 0..50 {
            service.idle_since_ns = at(20 * turn).0;
            let mut wait = service.begin(&pace, 100, at(20 * turn + 10));
            service.go_on(&pace, &mut wait, at(20 * turn + 10));
            assert!(!ask(&mut service, 20 * turn + 19), "after {turn} moments");
            service.end(&pace, &wait, true, at(20 * turn + 20));
        }
        // From a sixteenth of a second after the last one on it is a gap.
        assert!(!ask(&mut service, 1_040) && !ask(&mut service, 1_100));
        assert!(!ask(&mut service, 1_160), "each time that somebody is refused it begins anew");
        assert!(ask(&mut service, 1_300));
    }

    #[test]
    fn who_is_refused_after_a_quiet_night_does_not_cost_the_night() {
        let pace = Pace { answer_ns: 1_000_000, trickle_ns: 0, ..FIRST_PACE };
        let hour = |hours: u64| Nanos::from_secs(3600 * hours);
        let past = |count: u32| ListenerLoad {
            unserved: 4 + count - 1,
            unserved_limit: 4,
            ..ListenerLoad::default()
        };
        let mut service = Service::idle(0, hour(1));
        assert!(service.may_exceed(&pace, hour(11), &past(1), true, false));
        assert!(!service.may_exceed(&pace, hour(11), &past(2000), true, false), "two seconds' work at once");
        // The night ends, and what is left of it is there for the next burst.
        let mut wait = service.begin(&pace, 100, hour(11));
        service.go_on(&pace, &mut wait, hour(11));
        service.end(&pace, &wait, true, hour(11) + Nanos::from_millis(1));
        assert!(service.may_exceed(&pace, hour(11) + Nanos::from_millis(200), &past(500), true, false));
    }

    #[test]
    fn queue_that_stays_is_paid_for_again_by_an_eighth_each_second_and_one_that_is_over_in_full() {
        let pace = Pace { answer_ns: 1_000_000, trickle_ns: 0, ..FIRST_PACE };
        let past = |count: u32| ListenerLoad {
            unserved: 4 + count - 1,
            unserved_limit: 4,
            ..ListenerLoad::default()
        };
        let at = |ms: u64| Nanos::from_millis(100_000 + ms);
        let mut service = Service { idle_ns: 4_000_000_000, ..Service::of_generation(0) };
        let mut cost = |ms, count| {
            let before = service.spent_ns;
            assert!(service.may_exceed(&pace, at(ms), &past(count), true, false));
            (service.spent_ns - before) / pace.answer_ns
        };
        assert_eq!(cost(0, 80), 80);
        assert_eq!((cost(500, 80), cost(600, 30)), (0, 0), "places of those who were answered");
        assert_eq!((cost(1_001, 80), cost(1_002, 80)), (10, 0));
        assert_eq!(cost(3_100, 80), 80, "two seconds later there is no queue that was paid for");
        assert_eq!(cost(3_099, 80), 0, "another CPU read its clock a moment before");
    }

    /// An eighth of seven is less than one.
    #[test]
    fn short_queue_that_stays_is_paid_for_again_too() {
        let pace = Pace { answer_ns: 1_000_000, trickle_ns: 0, ..FIRST_PACE };
        let load = ListenerLoad { unserved: 10, unserved_limit: 4, ..ListenerLoad::default() };
        let mut service = Service { idle_ns: 4_000_000_000, ..Service::of_generation(0) };
        let costs = [0, 500, 1_001, 2_002].map(|ms| {
            let before = service.spent_ns;
            assert!(service.may_exceed(&pace, Nanos::from_millis(100_000 + ms), &load, true, false));
            (service.spent_ns - before) / pace.answer_ns
        });
        assert_eq!(costs, [7, 0, 1, 1]);
    }

    #[test]
    fn four_times_as_many_as_are_answered_meanwhile_may_be_left_unanswered_and_one_who_gets_in_is_paid_back()
    {
        let pace = Pace { answer_ns: 1_000_000, ..FIRST_PACE };
        let saved = 1_000_000_000;
        let mut service = Service { idle_ns: saved, ..Service::of_generation(0) };
        let may_defer = |service: &mut Service, ms: u64| {
            let now = Nanos::from_millis(10_000 + ms);
            (0..1000).filter(|_| service.may_defer(&pace, now)).count()
        };
        // At one moment as many as a sixty-fourth of a second has turns for, and one; turns that nobody took are not kept.
        let most = 4 * 1000 / 64 + 1;
        assert_eq!([0, 10, 1_000].map(|ms| may_defer(&mut service, ms)), [most, 4 * 10, most]);
        let spent = service.spent_ns;
        assert_eq!(spent, (most + 40 + most) as u64 * pace.answer_ns, "the time of an answer for each");
        service.crowded_ns = Nanos::from_millis(11_000).0;
        for (ms, paid_back) in [(11_062, pace.answer_ns / 4), (11_063, pace.answer_ns)] {
            service.spent_ns = spent;
            service.repay(&pace, Nanos::from_millis(ms));
            assert_eq!(
                spent - service.spent_ns,
                paid_back,
                "a sixteenth of a second after one was refused it is no crowd"
            );
        }
        // What is left of what was saved.
        service.spent_ns = saved - 3 * pace.answer_ns;
        assert_eq!([2_000, 3_000].map(|ms| may_defer(&mut service, ms)), [3, 0]);
    }

    #[test]
    fn who_was_left_unanswered_goes_three_limits_past_the_limit_and_pays_for_no_place() {
        let pace = Pace { answer_ns: 100_000, limit: 8, trickle_ns: 0, ..FIRST_PACE };
        let ask = |idle_ns, past: u32, is_found, is_owed| {
            let unserved = pace.limit + past - 1;
            let load = ListenerLoad { unserved, unserved_limit: pace.limit, ..ListenerLoad::default() };
            let mut service = Service { idle_ns, ..Service::of_generation(0) };
            let is_in = service.may_exceed(&pace, Nanos::from_secs(10), &load, is_found, is_owed);
            (is_in, service.spent_ns > 0)
        };
        let second = 1_000_000_000;
        assert_eq!([1, 24, 25].map(|past| ask(0, past, true, true).0), [true, true, false]);
        assert_eq!(
            [1, 24, 25].map(|past| ask(second, past, true, true)),
            [(true, false), (true, false), (true, true)]
        );
        assert_eq!(
            [0, second].map(|idle_ns| ask(idle_ns, 1, true, false)),
            [(false, false), (true, true)],
            "one who is new"
        );
        assert_eq!(ask(second, 1, false, true), (false, false), "past a limit that an operator named");
    }
}
