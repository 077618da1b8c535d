//! Burning CPU time, as an application does between request and reply.

use std::time::{Duration, Instant};

/// A look at the clock that took so many times as long as the shortest was interrupted, and so was
/// one of so long, whatever the shortest took.
const INTERRUPTED: u32 = 8;
const LONGEST_LOOK: Duration = Duration::from_micros(1);

/// Keeps the calling thread busy until it has had `amount` of CPU time for itself.
///
/// Not a calibrated loop, as a change of the CPU's frequency is not to stretch the work; and not
/// the thread's own clock, which counts as the thread's what softirq interrupts it for on kernels
/// built without `CONFIG_IRQ_TIME_ACCOUNTING`, so that the work would be the shorter the more the
/// kernel has to do. From one look at the wall clock to the next, some 30 ns, a thread that was not
/// interrupted is not away for long: what took longer is none of its time.
pub(crate) fn burn(amount: Duration) {
    let (mut work, mut next) = (Work::of(amount), looks());
    while !work.left.is_zero() {
        work.look(next());
    }
}

/// Share of its CPU that a thread which works for such a wall-clock time does not have for itself,
/// 0 to 1. Keeps the calling thread busy for so long.
pub fn taken(window: Duration) -> f64 {
    share_taken(window, looks())
}

fn share_taken(window: Duration, mut next: impl FnMut() -> Duration) -> f64 {
    let (mut work, mut passed) = (Work::of(window), Duration::ZERO);
    while passed < window {
        let took = next();
        work.look(took);
        passed += took;
    }
    1.0 - (window - work.left).as_secs_f64() / passed.as_secs_f64()
}

/// Time from each look at the clock to the next.
fn looks() -> impl FnMut() -> Duration {
    let mut last = Instant::now();
    move || {
        let now = Instant::now();
        let took = now - last;
        last = now;
        took
    }
}

struct Work {
    left: Duration,
    shortest: Duration,
}

impl Work {
    fn of(amount: Duration) -> Self {
        Self { left: amount, shortest: Duration::MAX }
    }

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
    fn share_that_is_taken_is_that_of_the_interruptions() {
        let looks = |interruption_ns: u64| {
            let mut all = [500, 500, 500, 500, interruption_ns].into_iter().cycle();
            move || Duration::from_nanos(all.next().expect("it has no end"))
        };
        // Of every 10 us 8 are an interruption.
        let share = share_taken(Duration::from_millis(1), looks(8_000));
        assert!((share - 0.8).abs() < 1e-9, "{share}");
        assert_eq!(share_taken(Duration::from_millis(1), looks(500)), 0.0);
    }

    #[test]
    fn time_of_others_is_none_of_the_work() {
        let mut work = Work::of(Duration::from_nanos(100));
        for (took, left) in [(30, 70), (1001, 70), (5_000_000, 70), (900, 0)] {
            work.look(Duration::from_nanos(took));
            assert_eq!(work.left, Duration::from_nanos(left), "after {took} ns");
        }
    }

    #[test]
    fn slow_clock_is_no_interruption() {
        let mut work = Work::of(Duration::from_micros(10));
        for (took, left) in [(4, 6), (3, 3), (30, 3), (4, 0)] {
            work.look(Duration::from_micros(took));
            assert_eq!(work.left, Duration::from_micros(left), "after {took} us");
        }
    }
}
