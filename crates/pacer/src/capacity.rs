//! How many a server answers beside all that comes to it now.

use units::Nanos;

use crate::fade::remembered;

/// How fast what the server could do is forgotten while it is busy and nobody is refused.
const BEST_MEMORY: Nanos = Nanos::from_secs(10);
/// So much of the time counts as busy at least: of less it says little how fast the server was.
const LEAST_BUSY: f64 = 1.0 / 16.0;

/// The answers in the time in which somebody waited, as in [`ServiceRate`](crate::service_rate::ServiceRate), but of the last moments alone, and while somebody is refused what they show and not the
/// best of them: beside what refusals cost. Of one look they would be noise: a server that accepts all that wait before it answers one of them answers nobody
/// in one and many times what it can in the next, and as many would then be let in from far away.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Capacity {
    answered: f64,
    busy_s: f64,
    per_s: f64,
}

impl Capacity {
    /// Answers/s; 0 while nothing is known.
    pub(crate) fn per_s(&self) -> f64 {
        self.per_s
    }

    /// Goes on by so many in so much time, for so much of which nobody waited; what is older than `memory` counts less than one over e. While nobody is refused they are what was asked for, and it may be able to do more.
    pub(crate) fn add(
        &mut self,
        elapsed: Nanos,
        idle: Nanos,
        answered: u64,
        is_anybody_refused: bool,
        memory: Nanos,
    ) {
        let seconds = elapsed.as_secs_f64();
        let left = remembered(elapsed, memory);
        self.answered = left * self.answered + answered as f64;
        self.busy_s = left * self.busy_s + (seconds - idle.as_secs_f64()).max(LEAST_BUSY * seconds);
        let shown = self.answered / self.busy_s.max(1e-9);
        let busy = elapsed.since(idle);
        let best = shown.max(self.per_s * remembered(busy, BEST_MEMORY));
        self.per_s = if is_anybody_refused { shown } else { best };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Nanos = Nanos::from_millis(50);

    /// After so many looks with so many answers each, in which nobody waits for so much of the time.
    fn add(capacity: &mut Capacity, looks: u32, idle: f64, answered: u64, is_refused: bool) -> f64 {
        let idle = Nanos((idle * LOOK.0 as f64) as u64);
        (0..looks).for_each(|_| capacity.add(LOOK, idle, answered, is_refused, Nanos::from_secs(1)));
        capacity.per_s().round()
    }

    #[test]
    fn answers_are_of_the_time_in_which_somebody_waited_and_of_a_sixteenth_of_it_at_least() {
        for (idle, per_s) in [(0.0, 10_000.0), (0.2, 12_500.0), (0.5, 20_000.0), (0.95, 160_000.0)] {
            assert_eq!(add(&mut Capacity::default(), 1, idle, 500, true), per_s, "{idle} of the time idle");
        }
    }

    #[test]
    fn server_that_answers_in_bouts_is_no_faster_in_them() {
        let mut capacity = Capacity::default();
        for turn in 0..100 {
            add(&mut capacity, 1, 0.0, 0, true);
            let per_s = add(&mut capacity, 1, 0.0, 1000, true);
            assert!(turn < 20 || (per_s - 10_000.0).abs() < 300.0, "{per_s}/s after {turn} bouts");
        }
    }

    #[test]
    fn less_is_what_it_can_do_only_while_somebody_is_refused() {
        let mut capacity = Capacity::default();
        add(&mut capacity, 100, 0.0, 1000, true);
        assert_eq!(add(&mut capacity, 20, 0.0, 100, false), 18_097.0, "a tenth is forgotten");
        assert_eq!(add(&mut capacity, 200, 0.0, 100, true), 2_000.0, "it has become slower");
    }
}
