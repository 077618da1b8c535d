//! Idle time that comes and goes, and whether a larger limit has used any of it.

use units::Nanos;

use super::{FEWER, GAIN, times};

/// By how much longer the server must be busy for a doubling to stay: where idle time goes by halves, the last is one from 4% of it to 2.
const WORTH: f64 = 1.02;
/// Idle time after so many periods without any is another spell: noise about the share that is too much is hardly ever on one side for so long.
const CALM: u32 = 8;

/// Idle time that makes the limit grow.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spell {
    /// Where it began, or where the limit was when it had doubled last.
    limit: f64,
    /// With less than twice that, and since then.
    before: Idle,
    after: Idle,
    /// Periods since the last that was idle.
    calm: u32,
}

impl Spell {
    /// Of one period with this limit, in which nobody waited for a share of the time.
    pub(crate) fn new(limit: f64, elapsed: Nanos, idle: f64) -> Self {
        let mut before = Idle::default();
        before.add(elapsed, idle);
        Self { limit, before, after: Idle::default(), calm: 0 }
    }

    /// With one more period, with this limit.
    pub(crate) fn with(mut self, limit: f64, elapsed: Nanos, idle: f64) -> Self {
        let part = if self.has_doubled(limit) { &mut self.after } else { &mut self.before };
        part.add(elapsed, idle);
        self
    }

    /// What is left of it after a period that was idle or was not.
    pub(crate) fn after_period(self, is_idle: bool) -> Option<Self> {
        let calm = if is_idle { 0 } else { self.calm + 1 };
        (calm < CALM).then_some(Self { calm, ..self })
    }

    /// Where it began.
    pub(crate) fn limit(&self) -> f64 {
        self.limit
    }

    /// The share of the time that was idle until the limit had doubled.
    pub(crate) fn idle_before(&self) -> f64 {
        self.before.share()
    }

    /// Whether this limit is twice the one where it began.
    pub(crate) fn has_doubled(&self, limit: f64) -> bool {
        limit >= 2.0 * self.limit
    }

    /// Whether twice the limit was there for as long as it took to come there, or for this long.
    pub(crate) fn can_be_judged(&self, at_most: Nanos) -> bool {
        self.after.elapsed >= self.before.elapsed.min(at_most)
    }

    /// Whether that it has doubled was worth everybody's waiting twice as long.
    pub(crate) fn was_worth_it(&self) -> bool {
        is_worth_it(self.after.share(), self.before.share())
    }
}

/// Whether a server that is idle for a share of the time is less so than it was, with half the limit, and busy for longer by as much as everybody's waiting twice as long is worth.
pub(crate) fn is_worth_it(idle: f64, before: f64) -> bool {
    let is_busier = |by| 1.0 - idle >= by * (1.0 - before);
    is_busier(GAIN) || (is_busier(WORTH) && idle <= FEWER * before)
}

/// Time, and what of it nobody waited.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Idle {
    elapsed: Nanos,
    idle: Nanos,
}

impl Idle {
    fn add(&mut self, elapsed: Nanos, share: f64) {
        self.elapsed += elapsed;
        self.idle += times(share, elapsed);
    }

    fn share(&self) -> f64 {
        self.idle.0 as f64 / self.elapsed.0.max(1) as f64
    }
}
