//! Twice of the limit, tried where few are refused.

use units::Nanos;

use super::{FEWER, RETRY, Shown, Tick, times};

/// It lasts for so many times as it takes until those who were refused have filled what it adds, the first of which does not count: each doubling seems to help for so long. If that is too long,
/// also in responses, it is not tried.
const FILLED: f64 = 4.0;
pub(crate) const LONGEST: Nanos = Nanos::from_secs(120);
const LONGEST_IN_ECHOES: f64 = 200.0;
/// Of the answers that there were before, the share that there must be for it to have shown anything: those who asked have not gone.
const STILL_THERE: f64 = 0.5;
/// Until it is tried again, if it has not helped: so many times as long as it took.
const RESTS_FOR: f64 = 4.0;

/// What was there before, and what it has shown so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trial {
    /// Before it.
    limit: f64,
    before: Shown,
    /// Time in which what it adds was filled.
    filling: Nanos,
    /// What was counted after that.
    filled: Tick,
}

impl Trial {
    /// Of twice such a limit, after a period in which such shares were refused as are usual with it. `None` if it would take too long to show.
    pub(crate) fn new(limit: f64, before: Shown) -> Option<Self> {
        let trial = Self { limit, before, filling: Nanos::ZERO, filled: Tick::default() };
        (times(FILLED, trial.fills_in()) <= LONGEST.max(times(LONGEST_IN_ECHOES, before.echo)))
            .then_some(trial)
    }

    /// The limit before it.
    pub(crate) fn limit(&self) -> f64 {
        self.limit
    }

    /// Whether a period of it is over.
    pub(crate) fn has_begun(&self) -> bool {
        self.elapsed() > Nanos::ZERO
    }

    /// With one more period.
    pub(crate) fn with(self, sum: Tick) -> Self {
        if self.filling < self.fills_in() {
            Self { filling: self.filling + sum.elapsed, ..self }
        } else {
            Self { filled: self.filled.with(sum), ..self }
        }
    }

    /// Whether it has shown what it can.
    pub(crate) fn is_over(&self) -> bool {
        self.elapsed() >= times(FILLED, self.fills_in()) && self.filled.elapsed > Nanos::ZERO
    }

    /// Whether it refuses by so much fewer that it stays, and neither a queue so many more in its stead, nor have they gone.
    pub(crate) fn has_helped(&self) -> bool {
        let (before, filled) = (&self.before, &self.filled);
        let gone = (1.0 - FEWER) * before.bound;
        filled.share(filled.refused) <= before.bound - gone
            && filled.share(filled.refused_by_any()) <= before.refused - gone
            && filled.answered as f64 >= STILL_THERE * before.per_s * filled.elapsed.as_secs_f64()
    }

    /// Until the next, if not.
    pub(crate) fn rest(&self) -> Nanos {
        times(RETRY, self.before.elapsed).max(times(RESTS_FOR, self.elapsed()))
    }

    fn elapsed(&self) -> Nanos {
        self.filling + self.filled.elapsed
    }

    /// As many more wait as may, of those who were refused, after so long.
    fn fills_in(&self) -> Nanos {
        let refused_per_s = self.before.per_s * self.before.bound / (1.0 - self.before.refused);
        Nanos((1e9 * self.limit / refused_per_s) as u64)
    }
}
