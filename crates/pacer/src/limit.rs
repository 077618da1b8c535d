//! How many connections may wait for a server: the smallest limit with which it answers as many as
//! it can.
//!
//! While nobody is refused the limit is only the length from which on a queue may stand, and the
//! agent learns how soon answers usually come. While SYNs are refused it searches, a period at a
//! time:
//!
//! - *Half.* For a period half of the limit holds. If the server answers as many, the half is the
//!   limit, and is halved again. If not, the limit is what the server has under its hands: below
//!   that it answers in proportion to how many wait (Little's law).
//! - *Idle.* If nobody waits while others are refused, the limit grows.
//! - *Ease.* If few are refused, it grows back to where it began.
//! - *More.* If the server answers fewer than before refusals began, refusals do not help it, and
//!   the limit is doubled.
//!
//! No clock, no socket, no thread: it is told what was counted. README.md has the whole.

use units::Nanos;

/// Bounds of the limit. Fewer leave a server idle between any two connections.
const SMALLEST: f64 = 4.0;
const LARGEST: f64 = 1e6;
/// While nobody is refused: what the server answers in a tenth of a second, within these bounds.
const CALM_SECONDS: f64 = 0.1;
const CALM: (f64, f64) = (32.0, 64.0);
/// Answers in a period, so that its rate means something; in *check* and *more*; while nobody is
/// refused. Fewer than the last say nothing.
const ENOUGH: u64 = 128;
const ENOUGH_TO_CHECK: u64 = 1024;
const ENOUGH_TO_LEARN: u64 = 32;
const FEWEST: u64 = 16;
/// A period is as long as this many stays of a connection, between these bounds: a server that
/// takes all who wait at once answers them at once, too. With half of the limit fewer are enough to
/// see that it answers as many.
const MANY_STAYS: f64 = 4.0;
const STAYS: f64 = 2.0;
const SHORTEST_PERIOD: Nanos = Nanos::from_millis(100);
const LONGEST_PERIOD: Nanos = Nanos::from_secs(10);
/// Half of the limit is tried while this share of the attempts is refused, or more.
const CROWD: f64 = 0.1;
/// Below this share of refused attempts the crowd is nearly over. The limit then doubles, up to
/// where it began, or to the second if that is more.
const NEARLY_OVER: f64 = 0.07;
const EASE_TO: f64 = 2.0 * CALM.1;
/// Share of the time in which nobody waits: above it the limit grows by that many times the idle
/// share, at most to twice itself.
const IDLE: f64 = 0.005;
const IDLE_STEP: f64 = 4.0;
/// Above this share for so long, nobody is refused for a while.
const MOST_IDLE: f64 = 0.5;
const IDLE_FOR: Nanos = Nanos::from_secs(1);
const STOPS_FOR: Nanos = Nanos::from_secs(10);
/// Answers with half of the limit over those with all of it: from here on as many.
const AS_MANY: f64 = 0.95;
/// A limit says how many wait if this share of it does.
const REACHED: f64 = 0.5;
/// Below this many times the smallest limit it is not halved; now and then it is doubled instead.
const HALVED: f64 = 1.5;
/// The limit is at least as large as this many standard deviations of those under way.
const UNDER_WAY: f64 = 2.0;
/// Periods that the rate of a limit is a mean of, at most.
const HELD: f64 = 8.0;
/// If the knee is beyond this share of the limit, twice the limit is tried.
const AT_THE_KNEE: f64 = 0.9;
/// What twice the limit must bring, or it was in vain.
const GAIN: f64 = 1.1;
/// Below this share of the answers before refusals began, refusals do not help the server.
const LESS: f64 = 0.8;
/// What is left of the most answers so far, when half of the limit is tried again.
const FADING: f64 = 0.99;
/// Where clients are far away, more may wait than the limit says, as those under way are a guess.
/// From this factor on the limit no longer says how many wait.
const NOT_BOUND: f64 = 1.5;
/// Share of those who waited that still waits with half of the limit: above it, something else says
/// how many wait.
const PINNED: f64 = 0.9;
/// Share of all answers that periods with half of the limit may cost; and the fewest periods
/// between two of them.
const COST: f64 = 0.01;
const REST: f64 = 4.0;
/// While nobody is refused: seconds after which a shorter usual answer is forgotten.
const MEMORY_S: f64 = 60.0;
/// What it answers while somebody waits, of this share of the time at least, and seconds after
/// which that is forgotten: while nobody is refused.
const LEAST_BUSY: f64 = 1.0 / 16.0;
const BUSY_MEMORY_S: f64 = 10.0;
/// While some of the connections are followed that is not learnt above this idle share: the server
/// may have been busy with others.
const SAMPLED_IDLE: f64 = 0.1;
/// An answer is quick up to this many times the usual one.
const QUICK: f64 = 4.0;

/// What was counted since the tick before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tick {
    /// How long that is.
    pub elapsed: Nanos,
    /// Responses that began.
    pub answered: u64,
    /// How long an answer usually takes: the median of the last moments; 0 if there was none.
    pub response: Nanos,
    /// How long those who count waited in it, together: by Little's law how many there are, times
    /// `elapsed`.
    pub waited: Nanos,
    /// Time in which nobody waited.
    pub idle: Nanos,
    /// Attempts that this limit or a full queue refused.
    pub refused: u64,
    /// How long a handshake takes.
    pub round_trip: Nanos,
    /// Connections that waited when the queue of the last crowd began to stand.
    pub waiting_at_onset: u64,
    /// The crowd is not over, even if nobody was refused just now.
    pub is_refusing: bool,
    /// Not all connections are followed, so that the server may be busy when it looks idle.
    pub is_sampled: bool,
}

impl Tick {
    /// With what was counted after it.
    fn with(self, later: Self) -> Self {
        Self {
            elapsed: self.elapsed + later.elapsed,
            answered: self.answered + later.answered,
            response: later.response,
            waited: self.waited + later.waited,
            idle: self.idle + later.idle,
            refused: self.refused + later.refused,
            round_trip: later.round_trip,
            waiting_at_onset: later.waiting_at_onset,
            is_refusing: later.is_refusing,
            is_sampled: self.is_sampled || later.is_sampled,
        }
    }

    fn shown(&self) -> Shown {
        let seconds = self.elapsed.as_secs_f64();
        Shown {
            per_s: self.answered as f64 / seconds,
            waiting: self.waited.as_secs_f64() / seconds,
            idle: self.idle.as_secs_f64() / seconds,
            refused: self.refused as f64 / (self.refused + self.answered).max(1) as f64,
            round_trip_s: self.round_trip.as_secs_f64(),
        }
    }
}

/// What a period has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shown {
    per_s: f64,
    /// How many, in the mean.
    waiting: f64,
    /// Shares: of the time, and of the attempts.
    idle: f64,
    refused: f64,
    round_trip_s: f64,
}

impl Shown {
    /// How long one waits, s.
    fn wait_s(&self) -> f64 {
        self.waiting / self.per_s
    }

    /// How long one waits and is under way.
    fn stay_s(&self) -> f64 {
        self.wait_s() + self.round_trip_s
    }
}

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Nobody is refused.
    Calm,
    /// All of the limit.
    Hold,
    /// Half of it. `full` is what all of it has shown, and `of` twice of now; `limit` was before,
    /// `most` at the beginning.
    Half { full: Shown, of: Shown, limit: f64, most: f64 },
    /// What half of it has shown, which must answer as many.
    Check { most: f64 },
    /// More than so many.
    More { before: Shown, limit: f64 },
}

/// What must come before the last change of the limit shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Settling {
    answers: u64,
    round_trips: Nanos,
    /// It ends then, whatever comes.
    left: Nanos,
}

/// The mean rate of the last periods with a limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Held {
    periods: f64,
    per_s: f64,
}

impl Held {
    fn add(&mut self, shown: &Shown) {
        self.periods = (self.periods + 1.0).min(HELD);
        self.per_s += (shown.per_s - self.per_s) / self.periods;
    }
}

/// The limit of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    limit: f64,
    phase: Phase,
    /// How soon answers come where nobody is in their way, s; and how many in a second, while
    /// nobody is refused.
    usual_s: Option<f64>,
    usual_per_s: f64,
    /// Answers in a second of the time in which somebody waits.
    busy_per_s: f64,
    held: Held,
    /// While few are refused it grows back to here.
    ease_to: f64,
    /// Answers in a second that the server could give in this crowd.
    best_per_s: f64,
    /// The server has stood idle, while others were refused, for so long.
    idle_for: Nanos,
    /// Nobody is refused for so much longer.
    stopped_for: Nanos,
    /// What is counted is not of this limit yet.
    settling: Option<Settling>,
    /// Half of it is not tried for so much longer.
    rest: Nanos,
    /// Nor is more of it.
    in_vain: Nanos,
    /// Of the period.
    sum: Tick,
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            limit: CALM.1,
            phase: Phase::Calm,
            usual_s: None,
            usual_per_s: 0.0,
            busy_per_s: 0.0,
            held: Held::default(),
            ease_to: 0.0,
            best_per_s: 0.0,
            idle_for: Nanos::ZERO,
            stopped_for: Nanos::ZERO,
            settling: None,
            rest: Nanos::ZERO,
            in_vain: Nanos::ZERO,
            sum: Tick::default(),
        }
    }
}

impl Limit {
    /// For a server whose usual answer and rate are known.
    pub fn knowing(usual: Nanos, per_s: f64) -> Self {
        let (usual_s, usual_per_s) = (Some(usual.as_secs_f64()), per_s);
        let limit = calm_limit(per_s);
        Self { limit, usual_s, usual_per_s, busy_per_s: per_s, ..Self::default() }
    }

    /// The usual answer, and how many come in a second while nobody is refused.
    pub fn known(&self) -> Option<(Nanos, f64)> {
        Some((Nanos::from_secs_f64(self.usual_s?), self.usual_per_s))
    }

    /// Connections that may wait until the next tick.
    pub fn now(&self) -> u32 {
        self.limit.round() as u32
    }

    /// Whether nobody is to be refused for a while, as the server stood idle while others were.
    pub fn has_stopped(&self) -> bool {
        self.stopped_for > Nanos::ZERO
    }

    /// An answer that comes sooner says that there is no queue; none before anything is known.
    pub fn quick(&self) -> Option<Nanos> {
        self.usual_s.map(|usual_s| Nanos::from_secs_f64(QUICK * usual_s))
    }

    /// Answers in a second that the server can give, as far as is known.
    pub fn per_s(&self) -> f64 {
        self.best_per_s.max(self.busy_per_s)
    }

    /// Goes on by what was counted.
    pub fn tick(&mut self, tick: Tick) {
        self.stopped_for = self.stopped_for.since(tick.elapsed);
        self.stop_if_idle(&tick);
        self.rest = self.rest.since(tick.elapsed);
        self.in_vain = self.in_vain.since(tick.elapsed);
        if self.phase == Phase::Calm && tick.refused > 0 {
            (self.phase, self.sum) = (Phase::Hold, Tick::default());
            (self.held, self.best_per_s) = (Held::default(), 0.0);
            self.set(self.limit.max(tick.waiting_at_onset as f64));
            self.ease_to = self.limit.max(EASE_TO);
            self.settle(1.0, tick.shown());
        }
        if self.is_settling(&tick) {
            return;
        }
        self.sum = self.sum.with(tick);
        if self.phase == Phase::Calm && self.sum.answered == 0 {
            self.sum = Tick::default();
            return;
        }
        let shown = self.sum.shown();
        let (stays, enough) = match self.phase {
            Phase::Calm => (0.0, ENOUGH_TO_LEARN),
            Phase::Half { full, .. } if shown.per_s > AS_MANY * full.per_s => (STAYS, ENOUGH),
            Phase::Check { .. } | Phase::More { .. } => (MANY_STAYS, ENOUGH_TO_CHECK),
            _ => (MANY_STAYS, ENOUGH),
        };
        let is_long = self.sum.elapsed
            >= SHORTEST_PERIOD
                .max(Nanos::from_secs_f64((stays * shown.stay_s()).min(LONGEST_PERIOD.as_secs_f64())));
        if !(is_long && self.sum.answered >= enough) && self.sum.elapsed < LONGEST_PERIOD {
            return;
        }
        let sum = std::mem::take(&mut self.sum);
        let says_something = sum.answered >= FEWEST;
        if sum.refused == 0 && (self.phase == Phase::Calm || !tick.is_refusing) {
            self.phase = Phase::Calm;
            if says_something {
                self.learn(&sum, shown);
            }
            self.set(calm_limit(self.usual_per_s));
            return;
        }
        if !says_something {
            return;
        }
        let before = self.limit;
        self.busy_per_s = shown.per_s;
        if self.phase == Phase::Hold {
            self.held.add(&shown);
        }
        self.phase = self.go_on(shown, sum.elapsed);
        if self.limit != before {
            self.held = Held::default();
            let stays = if self.limit < before { 1.0 } else { STAYS };
            self.settle(stays, shown);
        }
    }

    /// Refusals while the server stands idle make no sense: something is not as it was thought to
    /// be.
    fn stop_if_idle(&mut self, tick: &Tick) {
        let shown = tick.shown();
        let is_idle = shown.idle > MOST_IDLE && shown.refused > CROWD;
        self.idle_for = if is_idle { self.idle_for + tick.elapsed } else { Nanos::ZERO };
        if self.idle_for >= IDLE_FOR {
            (self.stopped_for, self.idle_for) = (STOPS_FOR, Nanos::ZERO);
        }
    }

    /// Until so many stays have gone by: by Little's law as many answers for each as wait.
    fn settle(&mut self, stays: f64, shown: Shown) {
        self.settling = Some(Settling {
            answers: (stays * shown.waiting) as u64,
            round_trips: Nanos::from_secs_f64(stays * shown.round_trip_s),
            left: LONGEST_PERIOD,
        });
    }

    fn is_settling(&mut self, tick: &Tick) -> bool {
        let Some(settling) = &mut self.settling else { return false };
        let is_over =
            settling.left == Nanos::ZERO || (settling.answers == 0 && settling.round_trips == Nanos::ZERO);
        settling.answers = settling.answers.saturating_sub(tick.answered);
        settling.round_trips = settling.round_trips.since(tick.elapsed);
        settling.left = settling.left.since(tick.elapsed);
        if is_over {
            self.settling = None;
        }
        !is_over
    }

    /// Nobody is refused: how soon answers come, and how many.
    fn learn(&mut self, sum: &Tick, shown: Shown) {
        let seconds = sum.elapsed.as_secs_f64();
        let response_s = sum.response.as_secs_f64();
        let known_s = self.usual_s.unwrap_or(response_s);
        let slowly = (seconds / MEMORY_S).min(1.0);
        self.usual_s = Some(response_s.min(known_s + slowly * (response_s - known_s)));
        let busy_s = (seconds * (1.0 - shown.idle)).max(LEAST_BUSY * seconds);
        if !sum.is_sampled || shown.idle < SAMPLED_IDLE {
            self.busy_per_s =
                (sum.answered as f64 / busy_s).max(self.busy_per_s * (-busy_s / BUSY_MEMORY_S).exp());
        }
        self.usual_per_s += seconds.min(1.0) * (shown.per_s - self.usual_per_s);
    }

    /// Somebody is.
    fn go_on(&mut self, shown: Shown, elapsed: Nanos) -> Phase {
        match self.phase {
            Phase::Calm | Phase::Hold => {
                let held = Shown { per_s: self.held.per_s, ..shown };
                // First: a small limit that a crowd has left refuses few, and each refusal prolongs
                // it.
                if shown.refused < NEARLY_OVER && self.limit < self.ease_to {
                    self.set((2.0 * self.limit).min(self.ease_to));
                } else if shown.idle > IDLE && (shown.refused < CROWD || self.is_reached(&shown)) {
                    self.set(self.limit * (1.0 + (IDLE_STEP * shown.idle).min(1.0)));
                } else if held.per_s < LESS * self.usual_per_s && self.may_want_more(&shown) {
                    return self.double(held);
                } else if shown.refused > CROWD
                    && self.rest == Nanos::ZERO
                    && self.limit > HALVED * smallest(&shown)
                {
                    self.best_per_s = held.per_s.max(FADING * self.best_per_s);
                    return self.halve(held, held, self.limit);
                } else if (held.per_s < AS_MANY * self.best_per_s || self.rest == Nanos::ZERO)
                    && self.may_want_more(&shown)
                {
                    return self.double(held);
                }
                Phase::Hold
            }
            Phase::Half { full, of, limit, most } => self.halved(full, of, [limit, most], shown, elapsed),
            Phase::Check { most } => {
                if shown.per_s < AS_MANY * self.best_per_s && self.limit < most {
                    self.set((2.0 * self.limit).min(most));
                    return Phase::Check { most };
                }
                Phase::Hold
            }
            Phase::More { before, limit } => {
                if shown.per_s < GAIN * before.per_s {
                    self.set(limit);
                    (self.best_per_s, self.usual_per_s) = (before.per_s, before.per_s);
                    self.in_vain = times(1.0 / COST, elapsed);
                    self.rest = times(REST, elapsed);
                }
                Phase::Hold
            }
        }
    }

    fn halve(&mut self, full: Shown, of: Shown, most: f64) -> Phase {
        let limit = self.limit;
        self.set((0.5 * limit).max(smallest(&of)));
        Phase::Half { full, of, limit, most }
    }

    /// After a period with half of the limit, which was so much.
    fn halved(
        &mut self,
        full: Shown,
        of: Shown,
        [limit, most]: [f64; 2],
        shown: Shown,
        elapsed: Nanos,
    ) -> Phase {
        let kept = shown.per_s / full.per_s;
        // Of clients who are far away more come than that.
        let is_bound = shown.waiting <= NOT_BOUND * self.limit.max(CALM.0 / 4.0);
        let is_short = shown.idle > IDLE && self.is_reached(&shown);
        if kept > AS_MANY && !is_short && is_bound {
            if self.limit > HALVED * smallest(&shown) {
                return self.halve(full, shown, most);
            }
        } else if kept > AS_MANY {
            self.set(limit);
        } else {
            // Below its knee a server answers in proportion to how many wait.
            let still = shown.waiting / of.waiting.max(1.0);
            let still = if still > PINNED { 0.5 } else { still.max(0.5) };
            let knee = limit * still / kept;
            if limit == most && knee > AT_THE_KNEE * limit && self.may_want_more(&shown) {
                self.set(limit);
                return self.double(full);
            }
            self.set(beyond(knee.min(limit)));
        }
        self.rest = times(REST.max((1.0 - kept) / COST), elapsed);
        Phase::Check { most }
    }

    fn double(&mut self, before: Shown) -> Phase {
        let limit = self.limit;
        self.set(2.0 * limit);
        Phase::More { before, limit }
    }

    /// Whether it is this limit that says how many wait, and more was not in vain just now.
    fn may_want_more(&self, shown: &Shown) -> bool {
        self.in_vain == Nanos::ZERO && self.is_reached(shown)
    }

    fn is_reached(&self, shown: &Shown) -> bool {
        shown.waiting > REACHED * self.limit
    }

    fn set(&mut self, limit: f64) {
        self.limit = limit.clamp(SMALLEST, LARGEST);
    }
}

fn times(periods: f64, one: Nanos) -> Nanos {
    Nanos((periods * one.0 as f64) as u64)
}

/// How many are under way is a matter of chance, and fewer than that varies mean nothing.
fn smallest(shown: &Shown) -> f64 {
    SMALLEST.max(UNDER_WAY * (shown.per_s * shown.round_trip_s).sqrt())
}

/// From which length on a queue may stand before a server that answers so many a second.
fn calm_limit(per_s: f64) -> f64 {
    (CALM_SECONDS * per_s).clamp(CALM.0, CALM.1)
}

/// What a server with such a knee should have.
fn beyond(knee: f64) -> f64 {
    knee + 2.0 * knee.sqrt()
}

#[cfg(test)]
mod tests;
