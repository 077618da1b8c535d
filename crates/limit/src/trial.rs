//! Twice of the limit, tried where few are refused.

use units::Nanos;

use crate::{FEWER, REST, RETRY, Shown, Tick, times};

/// It lasts for so many times as it takes until those who were refused have filled what it adds, the first of which does not count: each doubling seems to help for so long. If that is too long,
/// also in responses, it is not tried.
const FILLED: f64 = 4.0;
const LONGEST: Nanos = Nanos::from_secs(120);
const LONGEST_IN_ECHOES: f64 = 200.0;

/// What was there before, and what it has shown so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trial {
    before: Shown,
    so_far: Tick,
}

impl Trial {
    /// After a period in which such a share was refused by the limit as is usual with it. `None` if it would take too long to show.
    pub(crate) fn new(period: Shown, bound: f64) -> Option<Self> {
        let trial = Self { before: Shown { bound, ..period }, so_far: Tick::default() };
        (times(FILLED, trial.fills_in()) <= LONGEST.max(times(LONGEST_IN_ECHOES, period.echo)))
            .then_some(trial)
    }

    /// The limit before it.
    pub(crate) fn limit(&self) -> f64 {
        self.before.limit
    }

    /// Whether a period of it is over.
    pub(crate) fn has_begun(&self) -> bool {
        self.so_far.elapsed > Nanos::ZERO
    }

    /// With one more period.
    pub(crate) fn with(self, sum: Tick) -> Self {
        let fills = Tick { elapsed: sum.elapsed, ..Tick::default() };
        let counted = if self.so_far.elapsed < self.fills_in() { fills } else { sum };
        Self { so_far: self.so_far.with(counted), ..self }
    }

    /// Whether it has shown what it can.
    pub(crate) fn is_over(&self) -> bool {
        self.so_far.elapsed >= times(FILLED, self.fills_in()) && self.so_far.answered > 0
    }

    /// Whether it refuses by so much fewer that it stays.
    pub(crate) fn has_helped(&self) -> bool {
        self.so_far.share(self.so_far.refused) <= FEWER * self.before.bound
    }

    /// Until the next, if not.
    pub(crate) fn rest(&self) -> Nanos {
        times(RETRY, self.before.elapsed).max(times(REST, self.so_far.elapsed))
    }

    /// As many more wait as may, of those who were refused, after so long.
    fn fills_in(&self) -> Nanos {
        let refused_per_s = self.before.per_s * self.before.bound / (1.0 - self.before.refused);
        Nanos((1e9 * self.before.limit / refused_per_s) as u64)
    }
}
