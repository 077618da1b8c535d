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
    use kernel::Service;
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
            let mut slow = service.begin(&pace, 0, 100, start);
            (0..5).for_each(|_| service.go_on(&pace, &mut slow, start));
            for other in 0..others {
                let mut wait = service.begin(&pace, 0, 100, at(other));
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
}
