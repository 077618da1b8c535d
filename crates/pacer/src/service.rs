//! `kernel/unserved.h`, called on the host: the very code that the BPF programs run, with one CPU and no lock.

use units::Nanos;
use verdict::{BUCKETS, ListenerLoad, Trigger};

const STAGES: usize = 2;
/// Of `enum stage` of `kernel/service.h`: no byte of a request was seen, and one was.
pub const SILENT: usize = 0;
/// See [`SILENT`].
pub const WAITING: usize = 1;
const EPOCHS: usize = 4;
const SLOTS: usize = 4;
/// Buckets of how many wait: 0, 1, 2 and 3, 4 to 7 and so on.
pub const BESIDE: usize = 16;

/// What the agent finds out about a server while it runs: `struct pace`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "each has its comment in kernel/service.h")]
pub struct Pace {
    pub epoch_ns: u64,
    pub overtaken_at: u32,
    pub limit: u32,
    pub slot_shift: u32,
    pub completed_ppm: u32,
    pub served_meanwhile: u32,
    pub counts_silent: u32,
    pub answers_per_s: u32,
    pub taken_meanwhile: u32,
    pub answer_ns: u64,
    pub patience_ns: u64,
    pub handshake_ns: u64,
    pub drain_ns: u64,
    pub trickle_ns: u64,
    pub kept_ns: u64,
    pub reserve_ns: u64,
}

/// Of one server, on all CPUs together: `struct service`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "each has its comment in kernel/service.h")]
pub struct Service {
    pub epoch: u64,
    pub epoch_ends_ns: u64,
    pub overtaken: [u64; EPOCHS],
    pub overtaken_before: u64,
    pub established: u64,
    pub answered: u64,
    pub answered_in_turn: u64,
    pub answered_silent: u64,
    pub answered_piecemeal: u64,
    pub ended: u64,
    pub idle_ns: u64,
    pub idle_since_ns: u64,
    pub busy_since_ns: u64,
    pub answered_ns: u64,
    pub sojourn_ns: u64,
    pub response_ns: u64,
    pub responses_us: [u64; BUCKETS],
    pub overtakes: [u64; BUCKETS],
    pub answers_beside: [u64; BESIDE],
    pub responses_beside_ns: [u64; BESIDE],
    pub handshakes_us: [u64; BUCKETS],
    pub handshakes_sum_us: [u64; BUCKETS],
    pub answered_handshakes_us: u64,
    pub trickled_ns: u64,
    pub spent_ns: u64,
    pub paid: u64,
    pub paid_ns: u64,
    pub crowd_began_ns: u64,
    pub crowded_ns: u64,
    pub deferred_ns: u64,
    pub drained_ns: u64,
    pub slots: [u64; SLOTS],
    pub expected: u64,
    pub never_came: u64,
    pub in_stage: [u32; STAGES],
    pub recent: [u32; STAGES],
    pub count: [[u32; EPOCHS]; STAGES],
    pub waiting_beside: [[u32; BESIDE]; STAGES],
    pub generation: u32,
    /// The kernel's; nobody has it here.
    pub lock: u32,
}

/// Of one connection, from the handshake's end to the beginning of the response: `struct wait`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
#[expect(missing_docs, reason = "each has its comment in kernel/service.h")]
pub struct Wait {
    pub since_ns: u64,
    pub epoch: u64,
    pub received: u64,
    pub index: u32,
    pub generation: u32,
    pub stage: u16,
    pub turns: u8,
    pub beside: u8,
    pub calls: u32,
    pub handshake_us: u32,
}

impl Pace {
    /// How many may wait under such a trigger; `None` where that is not what is limited, or not found yet.
    pub fn limit_of(&self, trigger: Trigger) -> Option<u32> {
        match trigger {
            Trigger::Unserved(Some(named)) => Some(named.get()),
            Trigger::Unserved(None) => Some(self.limit).filter(|&limit| limit > 0),
            Trigger::Sojourn(_) | Trigger::Queue => None,
        }
    }
}

impl Service {
    /// Of those that were accepted or are in the queue, how many wait for the server, and not for something else.
    pub fn counted(&self, pace: &Pace) -> u32 {
        self.recent[WAITING] + if pace.counts_silent != 0 { self.recent[SILENT] } else { 0 }
    }

    /// Of all who wait for the server or for something else, those of one bucket of how many waited when they began to.
    pub(crate) fn waiting_beside(&self, bucket: usize, counts_silent: bool) -> u32 {
        let [silent, waiting] = self.waiting_beside.map(|row| row[bucket]);
        waiting + if counts_silent { silent } else { 0 }
    }

    /// Nobody has come yet, of a server with this generation.
    pub fn of_generation(generation: u32) -> Self {
        Self { epoch: EPOCHS as u64, generation, ..Self::default() }
    }

    /// And it is idle from now on: who comes at once may be a burst.
    pub fn idle(generation: u32, now: Nanos) -> Self {
        Self { idle_since_ns: now.0, ..Self::of_generation(generation) }
    }

    /// Whether anybody waits, and the rest that a SYN is decided by, into the load of a listener of the server.
    pub fn read(&mut self, pace: &Pace, now: Nanos, load: &mut ListenerLoad) {
        let mut numbers = load.numbers();
        // SAFETY: the structs are as the header has them, the array has as many numbers as are written, and nothing is kept.
        unsafe { tidegate_read_service(self, pace, now.0, numbers.as_mut_ptr()) };
        *load = ListenerLoad::of(numbers);
    }

    /// Whether one that the limit keeps out gets in all the same; a burst, and who comes back after he was left unanswered, only past a limit that was found.
    pub fn may_exceed(
        &mut self,
        pace: &Pace,
        now: Nanos,
        load: &ListenerLoad,
        is_found: bool,
        is_owed: bool,
    ) -> bool {
        let load = load.numbers();
        // SAFETY: as above.
        unsafe { tidegate_may_exceed(self, pace, now.0, load.as_ptr(), is_found, is_owed) }
    }

    /// Whether one that finds no place in the accept queue is better left unanswered, as in a burst.
    pub fn may_defer(&mut self, pace: &Pace, now: Nanos) -> bool {
        // SAFETY: as above.
        unsafe { tidegate_may_defer(self, pace, now.0) }
    }

    /// One that was has come back, and gets in.
    pub fn repay(&mut self, pace: &Pace, now: Nanos) {
        // SAFETY: as above.
        unsafe { tidegate_repay(self, pace, now.0) }
    }

    /// A SYN was admitted.
    pub fn expect(&mut self, pace: &Pace, now: Nanos) {
        // SAFETY: as above.
        unsafe { tidegate_expect(self, pace, now.0) }
    }

    /// A handshake has ended, after so many microseconds; 0 if that is not known, as after a SYN cookie of the kernel's.
    pub fn begin(&mut self, pace: &Pace, handshake_us: u32, now: Nanos) -> Wait {
        let mut wait = Wait::default();
        // SAFETY: as above.
        unsafe { tidegate_begin(self, pace, &raw mut wait, handshake_us, now.0) };
        wait
    }

    /// More of a request has come.
    pub fn go_on(&mut self, pace: &Pace, wait: &mut Wait, now: Nanos) {
        // SAFETY: as above.
        unsafe { tidegate_go_on(self, pace, wait, now.0) }
    }

    /// The response begins, or never will.
    pub fn end(&mut self, pace: &Pace, wait: &Wait, is_answered: bool, now: Nanos) {
        // SAFETY: as above.
        unsafe { tidegate_end(self, pace, wait, is_answered, now.0) }
    }
}

unsafe extern "C" {
    fn tidegate_read_service(service: *mut Service, pace: *const Pace, now: u64, load: *mut u32);
    fn tidegate_may_exceed(
        service: *mut Service,
        pace: *const Pace,
        now: u64,
        load: *const u32,
        is_found: bool,
        is_owed: bool,
    ) -> bool;
    fn tidegate_may_defer(service: *mut Service, pace: *const Pace, now: u64) -> bool;
    fn tidegate_repay(service: *mut Service, pace: *const Pace, now: u64);
    fn tidegate_expect(service: *mut Service, pace: *const Pace, now: u64);
    fn tidegate_begin(service: *mut Service, pace: *const Pace, wait: *mut Wait, handshake_us: u32, now: u64);
    fn tidegate_go_on(service: *mut Service, pace: *const Pace, wait: *mut Wait, now: u64);
    fn tidegate_end(service: *mut Service, pace: *const Pace, wait: *const Wait, is_answered: bool, now: u64);
    #[cfg(test)]
    fn tidegate_size_of_service() -> usize;
    #[cfg(test)]
    fn tidegate_size_of_pace() -> usize;
    #[cfg(test)]
    fn tidegate_size_of_wait() -> usize;
    #[cfg(test)]
    fn tidegate_longest_handshake_us() -> u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIRST_PACE;

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

    #[test]
    fn longest_handshake_is_the_headers() {
        // SAFETY: no arguments.
        let longest_us = unsafe { tidegate_longest_handshake_us() };
        assert_eq!(crate::handshakes::LONGEST_HANDSHAKE_NS, 1000 * u64::from(longest_us));
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
            |service: &Service, counts| [0, 1, 2].map(|bucket| service.waiting_beside(bucket, counts));
        assert_eq!(beside(&service, false), [1, 1, 1]);
        assert_eq!(beside(&service, true), [6, 1, 1]);
        let end = start + Nanos::from_millis(5);
        asks.iter().for_each(|wait| service.end(&pace, wait, true, end));
        assert_eq!(service.answers_beside[..4], [1, 1, 1, 0]);
        assert_eq!(service.responses_beside_ns[..4], [5_000_000, 5_000_000, 5_000_000, 0]);
        spare.iter().for_each(|wait| service.end(&pace, wait, false, end));
        assert_eq!(service.waiting_beside, [[0; BESIDE]; STAGES]);
    }

    /// As on two CPUs at once: whoever is there a moment after the other one must not find nothing left.
    #[test]
    fn cpu_that_comes_second_may_spend_what_the_first_has_left() {
        const EACH: u64 = 4_000_000;
        let pace = Pace { answer_ns: 4, ..FIRST_PACE };
        let idle_ns = pace.kept_ns;
        let service = Box::into_raw(Box::new(Service { idle_ns, ..Service::of_generation(0) }));
        let address = service as usize;
        let defer = move || {
            // SAFETY: it lives until both threads have ended, and the header changes with atomic instructions what they share.
            let ask = |now| unsafe { tidegate_may_defer(address as *mut Service, &raw const pace, now) };
            (0..EACH).filter(|_| ask(10_000_000_000)).count() as u64
        };
        let other = std::thread::spawn(defer);
        let deferred = defer() + other.join().expect("no panic");
        // SAFETY: nobody else has it any more.
        let service = unsafe { Box::from_raw(service) };
        assert_eq!((deferred, service.spent_ns), (2 * EACH, 2 * EACH * pace.answer_ns));
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

    /// Of each field, crates/guard holds them against the kernel's own types.
    #[test]
    fn structs_are_as_long_as_the_headers() {
        // SAFETY: no arguments.
        let sizes = unsafe { [tidegate_size_of_service(), tidegate_size_of_pace(), tidegate_size_of_wait()] };
        assert_eq!(sizes, [size_of::<Service>(), size_of::<Pace>(), size_of::<Wait>()]);
    }
}
