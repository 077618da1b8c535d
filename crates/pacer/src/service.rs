//! What `kernel/unserved.h` counts, and the names that it has here.

use kernel::Pace;
use verdict::Trigger;

/// Of what a connection waits for: no byte of a request was seen, and one was.
pub const SILENT: usize = kernel::STAGE_SILENT as usize;
/// See [`SILENT`].
pub const WAITING: usize = kernel::STAGE_WAITING as usize;

/// How many may wait under such a trigger; `None` where that is not what is limited, or not found
/// yet.
pub fn limit_of(pace: &Pace, trigger: Trigger) -> Option<u32> {
    match trigger {
        Trigger::Unserved(Some(named)) => Some(named.get()),
        Trigger::Unserved(None) => Some(pace.limit).filter(|&limit| limit > 0 && pace.quick_ns > 0),
        Trigger::Sojourn(_) | Trigger::Queue => None,
    }
}

#[cfg(test)]
mod tests {
    use kernel::{Pace, Service};
    use units::Nanos;

    use crate::FIRST_PACE;

    /// Five pieces come at once, and one later, when it counts still, or no more as others came and
    /// went.
    #[test]
    fn time_that_a_client_takes_over_its_request_is_none_of_the_servers() {
        for (others, last_ms, piecemeal) in [(0, 150, 0), (100, 2_000, 1)] {
            let (pace, start) = (FIRST_PACE, Nanos::from_secs(100));
            let at = |ms: u64| start + Nanos::from_millis(ms);
            let mut service = Service::of_generation(0);
            let mut slow = service.begin(&pace, 0, 100, start).expect("all are followed");
            (0..5).for_each(|_| service.go_on(&pace, &mut slow, start));
            for other in 0..others {
                let mut wait = service.begin(&pace, 0, 100, at(other)).expect("all are followed");
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

    /// Of a fast server that is known.
    fn sampling() -> Pace {
        Pace { limit: 64, quick_ns: 1_000_000, follow_one_in: 4, ..FIRST_PACE }
    }

    #[test]
    fn while_few_wait_one_connection_in_four_counts_for_all() {
        let (pace, now) = (sampling(), Nanos::from_secs(1));
        let mut service = Service::of_generation(0);
        let mut waits: Vec<_> = (0..12).filter_map(|random| service.begin(&pace, random, 100, now)).collect();
        assert_eq!(waits.len(), 3);
        waits.iter_mut().for_each(|wait| service.go_on(&pace, wait, now));
        assert_eq!((service.counted(&pace), service.established), (12, 12));
        waits.push(service.begin(&pace, 0, 100, now).expect("one of four"));
        service.go_on(&pace, &mut waits[3], now);
        let fifth =
            service.begin(&pace, 3, 100, now).expect("a quarter of the limit waits: all are followed");
        assert_eq!([waits[3].weight, fifth.weight], [4, 1]);
        waits.push(fifth);
        // What counts for four leaves nothing behind, whatever is followed by then.
        let later = Pace { follow_one_in: 1, ..pace };
        let ends = [(true, later), (false, pace), (true, pace), (false, later), (true, later)];
        for (wait, (is_answered, pace)) in waits.iter().zip(ends) {
            service.end(&pace, wait, is_answered, now + Nanos::from_millis(1));
        }
        let Service { established, answered, ended, in_stage, recent, .. } = service;
        assert_eq!((established, answered, ended), (17, 9, 8));
        assert_eq!((in_stage, recent), ([0; 2], [0; 2]));
        assert_eq!(service.responses_us.iter().sum::<u64>(), 8, "the last one's client was silent");
    }
}
