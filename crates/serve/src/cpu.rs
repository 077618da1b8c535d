//! Burning CPU time, as an application does between request and reply.

use std::time::{Duration, Instant};

/// A look at the clock that took so many times as long as the shortest was interrupted, and so was one of so long, whatever the shortest took.
const INTERRUPTED: u32 = 8;
const LONGEST_LOOK: Duration = Duration::from_micros(1);

/// Keeps the calling thread busy until it has had `amount` of CPU time for itself.
///
/// Not a calibrated loop, as a change of the CPU's frequency is not to stretch the work; and not the thread's own clock, which counts as the thread's what softirq
/// interrupts it for on kernels built without `CONFIG_IRQ_TIME_ACCOUNTING`, so that the work would be the shorter the more the kernel has to do. From one look at the wall clock to the next,
/// some 30 ns, a thread that was not interrupted is not away for long: what took longer is none of its time.
pub(crate) fn burn(amount: Duration) {
    let mut work = Work { left: amount, shortest: Duration::MAX };
    let mut last = Instant::now();
    while !work.left.is_zero() {
        let now = Instant::now();
        work.look(now - last);
        last = now;
    }
}

/// Which share of its CPU a thread that works for such a wall-clock time does not have for itself: by so much less than the time that passes is the work that it does. Keeps the
/// calling thread busy for `window`.
pub fn taken(window: Duration) -> f64 {
    let mut work = Work { left: window, shortest: Duration::MAX };
    let start = Instant::now();
    let mut last = start;
    while last - start < window {
        let now = Instant::now();
        work.look(now - last);
        last = now;
    }
    let had = window - work.left;
    1.0 - had.as_secs_f64() / (last - start).as_secs_f64()
}

struct Work {
    left: Duration,
    shortest: Duration,
}

impl Work {
    fn look(&mut self, took: Duration) {
        self.shortest = self.shortest.min(took);
        if took <= LONGEST_LOOK.max(INTERRUPTED * self.shortest) {
            self.left = self.left.saturating_sub(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burn_uses_at_least_the_amount() {
        let start = Instant::now();
        burn(Duration::from_millis(2));
        assert!(start.elapsed() >= Duration::from_millis(2));
    }

    #[test]
    fn share_that_is_taken_is_what_burning_takes_longer() {
        let share = taken(Duration::from_millis(20));
        assert!((0.0..1.0).contains(&share), "{share}");
    }

    #[test]
    fn time_of_others_is_none_of_the_work() {
        let mut work = Work { left: Duration::from_nanos(100), shortest: Duration::MAX };
        for (took, left) in [(30, 70), (1001, 70), (5_000_000, 70), (900, 0)] {
            work.look(Duration::from_nanos(took));
            assert_eq!(work.left, Duration::from_nanos(left), "after {took} ns");
        }
    }

    #[test]
    fn slow_clock_is_no_interruption() {
        let mut work = Work { left: Duration::from_micros(10), shortest: Duration::MAX };
        for (took, left) in [(4, 6), (3, 3), (30, 3), (4, 0)] {
            work.look(Duration::from_micros(took));
            assert_eq!(work.left, Duration::from_micros(left), "after {took} us");
        }
    }
}
