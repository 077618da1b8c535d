//! How many connections may wait for a server: the smallest number with which it answers as many as it can, found while it runs.
//!
//! Counts come in ticks, and are judged by the period of some ticks. A period answers one of four questions (docs/admission.md says more of each, and what else was tried):
//!
//! - *Does twice as much bring more?* The limit begins small, and doubles while it does. What is too little shows within a few response times, and those are short as long as few
//!   wait; what is too much shows as late as it makes everybody wait.
//! - *Is the server idle?* If nobody waits for it while others are refused, it could have had more, and the limit grows. Unless a doubling does not help: before the lab's server on one CPU with its
//!   softirq nobody waits for a moment in fifty, however many may. Such time is not heard for a while then (`spell.rs`).
//! - *What would half the limit do?* A pool of processes that sleep is never idle so, nor are eight cores at half their load. Below its knee a server answers in proportion to
//!   those who wait, above it as fast as it can; so a period with half the limit, between two with all of it, says where the knee is. The limit goes there, and its square root further.
//! - *Are only a few refused?* Then it is no crowd, the rate shows what was asked for, and the question is whether twice the limit refuses fewer (`trial.rs`).
//!
//! What it is not: a controller of delay. The delay follows: it is the limit over the rate (Little's law). It knows no service
//! time, and a server that becomes ten times as slow wants the same limit. It learns only while somebody is refused; otherwise nothing
//! binds, and there is nothing to be learnt. Nor is there from a server that answers nothing.
//!
//! No clock, no socket, no thread: it is told what was counted.

mod spell;
#[cfg(test)]
mod tests;
mod trial;

use units::Nanos;

use spell::{Spell, is_worth_it};
use trial::{LONGEST as LONGEST_TRIAL, Trial};

/// Limits that are found: less than two leaves a server idle between any two connections; more is no limit.
const SMALLEST: f64 = 2.0;
const LARGEST: f64 = 1e6;
/// Before anything is known.
const FIRST: f64 = 4.0;
/// A period lasts for so many answers, or so long if that takes too long, so that its rate means something.
const ENOUGH: u64 = 64;
const LONG_ENOUGH: Nanos = Nanos::from_millis(500);
/// With fewer answers nothing is learnt, however long it lasts.
const FEWEST: u64 = 8;
const SHORTEST_PERIOD: Nanos = Nanos::from_millis(100);
const LONGEST_PERIOD: Nanos = Nanos::from_secs(10);
/// And for so many times as it takes until what is admitted is answered.
const ECHOES: u64 = 2;
/// Answers to those who were admitted in the period before are waited for if they last for longer: 10 ms of 100 would make half of the limit seem a tenth better than it is, and all of it after that
/// a twentieth worse.
const LEFT_OVER: Nanos = Nanos::from_millis(3);
/// What twice the limit must bring for it to be doubled again: answers, or time in which the server is busy.
const GAIN: f64 = 1.25;
/// Shares of the time in which nobody waited: from the first on the server loses too much, up to the second as good as nothing.
const IDLE: f64 = 0.005;
const NOT_IDLE: f64 = 0.001;
/// By how much more the limit grows than the server was idle; at most it doubles.
const IDLE_STEP: f64 = 4.0;
/// Share of the attempts that are refused: from this on it is a crowd. Below, all could be answered but for bursts, and each that is refused is one too many,
/// down to the second.
const CROWD: f64 = 0.1;
const FEW: f64 = 0.005;
/// What twice the limit must leave of that share to be kept, and of the time in which nobody waits.
const FEWER: f64 = 0.6;
/// Periods until that is tried again.
const RETRY: f64 = 20.0;
/// Periods that say better than one what is usually refused.
const ENOUGH_HELD: f64 = 10.0;
/// This share of the limit waits, all in all, where it is no burst that fills it.
const FULL: f64 = 0.8;
/// Shares of those who waited with all of the limit that still wait with half of it: above the first it was none if they are far away, and from the second on something else says how many wait, whoever they are.
const STILL_WAITING: f64 = 0.75;
const PINNED: f64 = 0.9;
/// This share of the limit must wait, or something else keeps the others out.
const BOUND_BY_LIMIT: f64 = 0.4;
/// How long each waits with half of the limit, over that with all: from here on as long, so that more would be answered if more waited.
const AS_LONG: f64 = 0.9;
/// Of the limit, where the knee is: from here on it may as well be beyond it.
const AT_THE_KNEE: f64 = 0.9;
/// Share of the answers that periods with half the limit may cost.
const COST: f64 = 0.01;
/// Without a crowd, where that would be as many as are refused.
const COST_OF_FEW: f64 = 0.0025;
/// Periods between two of them, at least, once it comes down by less than to this share.
const REST: f64 = 4.0;
const SETTLED: f64 = 0.8;
/// By so many standard deviations, of exponential times, each must wait less with half of the limit, so that those who wait are said to do so for one another.
const SURE: f64 = 3.0;
/// That holds for so many periods; with a full queue half of it is tried again within them.
const QUEUED: f64 = 8.0;

/// What was counted since the tick before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tick {
    /// How long that is.
    pub elapsed: Nanos,
    /// Responses that began.
    pub answered: u64,
    /// Of `answered`, before they were overtaken.
    pub in_turn: u64,
    /// What those in turn waited, together.
    pub waited: Nanos,
    /// Time in which nobody waited.
    pub idle: Nanos,
    /// Attempts that this limit refused.
    pub refused: u64,
    /// Attempts that a full queue refused before this limit would have.
    pub refused_by_queue: u64,
    /// From the SYN to the response, as it usually takes now.
    pub echo: Nanos,
}

impl Tick {
    /// Of those that were answered or refused.
    fn share(&self, count: u64) -> f64 {
        count as f64 / (self.answered + self.refused_by_any()).max(1) as f64
    }

    /// Refused by this limit or by a queue.
    fn refused_by_any(&self) -> u64 {
        self.refused + self.refused_by_queue
    }

    /// Half of all that was counted.
    fn halved(self) -> Self {
        Self {
            elapsed: Nanos(self.elapsed.0 / 2),
            answered: self.answered / 2,
            in_turn: self.in_turn / 2,
            waited: Nanos(self.waited.0 / 2),
            idle: Nanos(self.idle.0 / 2),
            refused: self.refused / 2,
            refused_by_queue: self.refused_by_queue / 2,
            echo: self.echo,
        }
    }

    /// With what was counted after it.
    fn with(self, later: Self) -> Self {
        Self {
            elapsed: self.elapsed + later.elapsed,
            answered: self.answered + later.answered,
            in_turn: self.in_turn + later.in_turn,
            waited: self.waited + later.waited,
            idle: self.idle + later.idle,
            refused: self.refused + later.refused,
            refused_by_queue: self.refused_by_queue + later.refused_by_queue,
            echo: later.echo,
        }
    }
}

/// What a period has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shown {
    limit: f64,
    /// Answers before they were overtaken, of which it is known how long they waited.
    in_turn: u64,
    per_s: f64,
    /// How many waited in the mean, by Little's law.
    waiting: f64,
    /// Share of the time.
    idle: f64,
    /// Shares of those that were answered or refused: refused, and by this limit.
    refused: f64,
    bound: f64,
    /// Since the period before ended, with what did not count.
    elapsed: Nanos,
    echo: Nanos,
}

impl Shown {
    /// Whether more clients are on their way than wait: a round trip is longer than the mean wait.
    fn has_more_under_way(&self) -> bool {
        self.echo.as_secs_f64() * self.per_s > 2.0 * self.waiting
    }

    /// Whether many are refused, or some, and as many wait as may, all in all: that is no burst.
    fn is_pressed(&self) -> bool {
        self.refused >= CROWD || (self.bound >= FEW && self.waiting > FULL * self.limit)
    }

    /// Answers/s of this one over another's.
    fn over(&self, other: &Self) -> f64 {
        self.per_s / other.per_s
    }
}

/// What goes on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Twice the limit of the period before, if there was one.
    Double { before: Option<Shown> },
    /// As it is, for so much longer.
    Hold { left: Nanos },
    /// Twice of it, as a few are refused.
    More(Trial),
    /// Half of it.
    Half { before: Shown },
    /// As it is, again.
    Again { before: Shown, half: Shown },
}

/// The limit of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// But for a period with half of it.
    limit: f64,
    /// Before it was raised.
    unraised: Option<f64>,
    phase: Phase,
    spell: Option<Spell>,
    /// Idle time says nothing for so much longer.
    deaf: Nanos,
    /// The share of the time that was idle when it turned deaf. More is heard, if to have it back at that is worth a doubling.
    idle_when_deaf: f64,
    /// Where few are refused, twice of it and half of it are not tried for so much longer.
    untried: Nanos,
    unhalved: Nanos,
    /// Half of it has shown a queue, so that more would be one, for so much longer.
    queued: Nanos,
    /// Of the period, since it began.
    age: Nanos,
    /// And of it what counts by now.
    sum: Tick,
    /// Of the last minutes in which the limit was what it is, but for periods with a crowd: what it usually refuses.
    held: Tick,
    /// Whether this limit has refused somebody in each of its ticks: not a burst of handshakes alone.
    is_steady: bool,
    /// Whether the period before had no burst, but a crowd, or a limit that is full.
    was_pressed: bool,
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            limit: FIRST,
            unraised: None,
            phase: Phase::Double { before: None },
            spell: None,
            deaf: Nanos::ZERO,
            idle_when_deaf: 0.0,
            untried: Nanos::ZERO,
            unhalved: Nanos::ZERO,
            queued: Nanos::ZERO,
            age: Nanos::ZERO,
            sum: Tick::default(),
            held: Tick::default(),
            is_steady: true,
            was_pressed: false,
        }
    }
}

impl Limit {
    /// Connections that may wait until the next tick.
    pub fn now(&self) -> u32 {
        match self.phase {
            Phase::Half { .. } => half(self.limit).round() as u32,
            _ => self.whole(),
        }
    }

    /// The limit itself, also in a period with half of it.
    pub fn whole(&self) -> u32 {
        self.limit.round() as u32
    }

    /// Whether half of the limit has shown lately that those who wait do so for one another.
    pub fn has_shown_queue(&self) -> bool {
        self.queued > Nanos::ZERO
    }

    /// So many may wait, as is known otherwise than by how many are answered; nothing if that is no more than now.
    pub fn raise(&mut self, to: u32) {
        let to = f64::from(to).min(LARGEST);
        if to > self.limit {
            let unraised = self.unraised.or(Some(self.found()));
            *self = Self { limit: to, unraised, phase: Phase::Hold { left: Nanos::ZERO }, ..Self::default() };
        }
    }

    /// That is known no more: as many may wait as before it was raised, if these are fewer, and whether twice as many bring more is the first question again.
    pub fn take_back(&mut self) {
        if let Some(unraised) = self.unraised.take()
            && unraised < self.limit
        {
            *self = Self { limit: unraised, ..Self::default() };
        }
    }

    /// The limit without a trial of more that goes on.
    fn found(&self) -> f64 {
        match self.phase {
            Phase::More(trial) => trial.limit(),
            _ => self.limit,
        }
    }

    /// Goes on by what was counted. Ten ticks a second or more; fewer make it slower, and not wrong.
    pub fn tick(&mut self, tick: Tick) {
        let before = self.age;
        self.age += tick.elapsed;
        // While it doubles half a tick may be left over: that hides no more than a quarter of a gain, and to wait for it costs a tick each time.
        let is_doubling = matches!(self.phase, Phase::Double { .. });
        let left_over = if is_doubling { Nanos(tick.elapsed.0 / 2) } else { LEFT_OVER };
        let is_tried = matches!(self.phase, Phase::More(trial) if trial.has_begun());
        if before + left_over < tick.echo && !is_tried {
            return;
        }
        self.sum = self.sum.with(tick);
        self.is_steady &= tick.refused > 0;
        let Tick { elapsed, answered, .. } = self.sum;
        let is_long = elapsed >= SHORTEST_PERIOD.max(Nanos(ECHOES * tick.echo.0));
        let is_enough = answered >= ENOUGH || (answered >= FEWEST && elapsed >= LONG_ENOUGH);
        if !(is_long && is_enough) && elapsed < LONGEST_PERIOD {
            return;
        }
        let age = std::mem::take(&mut self.age);
        let (sum, is_steady) = (std::mem::take(&mut self.sum), std::mem::replace(&mut self.is_steady, true));
        for left in [&mut self.deaf, &mut self.untried, &mut self.unhalved, &mut self.queued] {
            *left = left.since(age);
        }
        match self.phase {
            Phase::More(trial) => self.phase = self.tried(trial, Tick { elapsed: age, ..sum }),
            _ => self.end_period(age, sum, is_steady),
        }
    }

    /// What was counted in a period of such an age, but for a trial's.
    fn end_period(&mut self, age: Nanos, sum: Tick, is_steady: bool) {
        let refused = sum.refused_by_any();
        if matches!(self.phase, Phase::Hold { .. }) && sum.share(refused) < CROWD {
            self.hold(age, sum);
        }
        // After half of the limit a queue that was full may not be so again yet.
        let has_shown = refused > 0 || matches!(self.phase, Phase::Again { .. });
        if !has_shown || sum.answered < FEWEST {
            self.was_pressed = false;
            self.spell = self.spell.and_then(|spell| spell.after_period(false));
            // Only who has never refused anybody, or begins anew, has never learnt anything.
            self.phase = match self.phase {
                Phase::Double { before: None } => self.phase,
                _ => Phase::Hold { left: Nanos::ZERO },
            };
            return;
        }
        let seconds = sum.elapsed.as_secs_f64();
        self.go_on(
            Shown {
                limit: f64::from(self.now()),
                in_turn: sum.in_turn,
                per_s: sum.answered as f64 / seconds,
                waiting: sum.waited.as_secs_f64() / seconds,
                idle: sum.idle.as_secs_f64() / seconds,
                refused: sum.share(refused),
                bound: sum.share(sum.refused),
                elapsed: age,
                echo: sum.echo,
            },
            is_steady,
        );
    }

    /// What was usual a day ago is so no more.
    fn hold(&mut self, age: Nanos, sum: Tick) {
        self.held = self.held.with(sum);
        if self.held.elapsed > times(2.0, LONGEST_TRIAL.max(times(ENOUGH_HELD, age))) {
            self.held = self.held.halved();
        }
    }

    /// After a period.
    fn go_on(&mut self, shown: Shown, is_steady: bool) {
        let is_heard = self.deaf == Nanos::ZERO || is_worth_it(self.idle_when_deaf, shown.idle);
        let is_pressed = shown.is_pressed();
        let was_pressed = std::mem::replace(&mut self.was_pressed, is_pressed);
        let may_halve =
            half(self.limit) < self.limit && (shown.refused >= CROWD || self.unhalved == Nanos::ZERO);
        // With half the limit a server may be idle that is not with all of it.
        if !matches!(self.phase, Phase::Half { .. }) {
            let spell = self.spell.map(|spell| spell.with(self.limit, shown.elapsed, shown.idle));
            self.spell = spell.and_then(|spell| spell.after_period(shown.idle > IDLE));
        }
        self.phase = match self.phase {
            Phase::Double { before } => self.doubled(before, shown, is_steady),
            Phase::Hold { left } => {
                if is_heard && is_steady && shown.idle > IDLE {
                    self.grow(shown);
                    Phase::Hold { left }
                } else if left > shown.elapsed || (is_heard && shown.idle > NOT_IDLE) {
                    Phase::Hold { left: left.since(shown.elapsed) }
                } else if shown.refused < CROWD && shown.bound < FEW {
                    Phase::Hold { left: Nanos::ZERO }
                } else if is_pressed && was_pressed && may_halve {
                    Phase::Half { before: shown }
                } else if !is_pressed {
                    self.try_more(shown)
                } else {
                    Phase::Hold { left: Nanos::ZERO }
                }
            }
            Phase::More(_) => unreachable!("tried() has its periods"),
            Phase::Half { before } => Phase::Again { before, half: shown },
            Phase::Again { before, half } => self.halved(before, half, shown),
        };
    }

    /// Twice of it, unless that was tried just now, or would take too long to show.
    fn try_more(&mut self, shown: Shown) -> Phase {
        let trial = Trial::new(self.limit, self.usual(shown)).filter(|_| self.untried == Nanos::ZERO);
        let Some(trial) = trial else { return Phase::Hold { left: Nanos::ZERO } };
        self.set(2.0 * self.limit);
        Phase::More(trial)
    }

    /// As a period has shown, but for what is refused: what a period alone refuses is not the usual, and it is tried in one that does.
    fn usual(&self, shown: Shown) -> Shown {
        let (bound, refused) =
            (self.held.share(self.held.refused), self.held.share(self.held.refused_by_any()));
        if self.held.elapsed >= times(ENOUGH_HELD, shown.elapsed) {
            Shown { bound, refused, ..shown }
        } else {
            Shown { bound: bound.max(shown.bound), refused: refused.max(shown.refused), ..shown }
        }
    }

    /// With twice the limit, so far and in one more period. What it adds is filled by those whom it does not refuse any more, and only then it shows whether they are answered.
    fn tried(&mut self, trial: Trial, sum: Tick) -> Phase {
        self.was_pressed = false;
        if sum.share(sum.refused_by_any()) >= CROWD {
            self.set(trial.limit());
            return Phase::Hold { left: Nanos::ZERO };
        }
        let trial = trial.with(sum);
        if !trial.is_over() {
            return Phase::More(trial);
        }
        if trial.has_helped() {
            self.spell = None;
        } else {
            self.set(trial.limit());
            self.untried = trial.rest();
        }
        Phase::Hold { left: Nanos::ZERO }
    }

    /// The server is idle. If a spell of that shows that twice the limit is not worth it, back to where it began. Where the limit has come below that by
    /// other means, the spell is taken to begin there.
    fn grow(&mut self, shown: Shown) {
        match self.spell.filter(|spell| self.limit >= spell.limit()) {
            Some(spell) if !spell.has_doubled(self.limit) => self.grow_by(shown),
            Some(spell) if !spell.can_be_judged(times(RETRY, shown.elapsed)) => {}
            Some(spell) if !spell.was_worth_it() => {
                self.set(spell.limit());
                self.turn_deaf(shown, spell.idle_before());
            }
            _ => {
                self.spell = Some(Spell::new(self.limit, shown.elapsed, shown.idle));
                self.grow_by(shown);
            }
        }
    }

    fn grow_by(&mut self, shown: Shown) {
        self.set(self.limit + (self.limit * IDLE_STEP * shown.idle).clamp(1.0, self.limit));
    }

    fn turn_deaf(&mut self, shown: Shown, idle: f64) {
        self.spell = None;
        self.idle_when_deaf = idle;
        self.deaf = times(RETRY, shown.elapsed);
    }

    fn doubled(&mut self, before: Option<Shown>, shown: Shown, is_steady: bool) -> Phase {
        let gain = before.map(|before| shown.over(&before));
        let is_idle = is_steady && shown.idle > IDLE;
        let was_worth_it = before.is_none_or(|before| is_worth_it(shown.idle, before.idle));
        if gain.is_none_or(|gain| gain >= GAIN) || (is_idle && was_worth_it) {
            self.double();
            return Phase::Double { before: Some(shown) };
        }
        if is_idle {
            self.turn_deaf(shown, shown.idle);
        }
        // With few refused the rate shows how many asked, and not what the server can do: twice the limit stays.
        if let (Some(before), Some(gain)) = (before, gain)
            && shown.refused >= CROWD
        {
            self.set(beyond(before.limit * gain.max(1.0)));
        }
        Phase::Hold { left: Nanos::ZERO }
    }

    /// Between two periods with all of it, so that a server that becomes faster or slower meanwhile does not mislead.
    fn halved(&mut self, before: Shown, half: Shown, after: Shown) -> Phase {
        // The crowd has gone meanwhile: what was answered is what was asked for. But a queue that was full, of a load that is a little too much, takes its time until it is full again.
        let is_still_pressed = after.is_pressed();
        let after = if is_still_pressed { after } else { before };
        let gain = 0.5 * (before.per_s + after.per_s) / half.per_s;
        if !is_still_pressed && (before.refused >= CROWD || !half.is_pressed()) {
            return Phase::Hold { left: Nanos::ZERO };
        }
        let pays_off_in = times((1.0 - 1.0 / gain).max(0.0) / COST, half.elapsed);
        self.unhalved = times(COST / COST_OF_FEW, pays_off_in);
        let waited = 0.5 * (before.waiting + after.waiting);
        let still_waiting = if waited > 0.0 { half.waiting / waited } else { 0.0 };
        // By Little's law, with half over with all.
        let as_long = gain * still_waiting;
        // Clients who are far away were let in before, and how many is a guess: what half of it would do is not known.
        let is_no_half = half.has_more_under_way()
            && still_waiting > STILL_WAITING
            && as_long > AS_LONG
            && before.waiting.min(after.waiting) > BOUND_BY_LIMIT * before.limit;
        // Those who still wait stand for half the limit; but if nearly all do, something else says how many wait, as a full queue does.
        let named = half.limit / before.limit;
        let halved_to = if still_waiting < PINNED { still_waiting.max(named) } else { named };
        let knee = before.limit * (gain * halved_to).clamp(named, 1.0);
        if is_no_half || (gain >= GAIN && knee > AT_THE_KNEE * before.limit) {
            self.queued = Nanos::ZERO;
            // The rate shows how many asked then, and not what twice of it does.
            if before.refused < CROWD {
                // It asks for what may have been tried just now, and would again.
                self.unhalved = self.unhalved.max(self.untried);
                return self.try_more(before);
            }
            self.double();
            return Phase::Double { before: Some(after) };
        }
        // Infinite if nobody was answered in turn: nothing is known then.
        let noise = (1.0 / half.in_turn as f64 + 1.0 / (before.in_turn + after.in_turn) as f64).sqrt();
        if as_long + SURE * noise < 1.0 {
            self.queued = times(QUEUED, half.elapsed);
        }
        // Half of the way: one answer to the question is a noisy one.
        let limit = (self.limit * beyond(knee)).sqrt();
        let is_settled = limit > SETTLED * self.limit;
        self.set(limit);
        let rest = if is_settled { times(REST, half.elapsed) } else { Nanos::ZERO };
        Phase::Hold { left: pays_off_in.max(rest) }
    }

    /// For another reason than idle time, so that what that grew from is no measure any more.
    fn double(&mut self) {
        self.spell = None;
        self.set(2.0 * self.limit);
    }

    fn set(&mut self, limit: f64) {
        self.held = Tick::default();
        self.limit = limit.clamp(SMALLEST, LARGEST);
    }
}

fn times(periods: f64, one: Nanos) -> Nanos {
    Nanos((periods * one.0 as f64) as u64)
}

fn half(limit: f64) -> f64 {
    (0.5 * limit).max(SMALLEST)
}

/// What a server with such a knee should have.
fn beyond(knee: f64) -> f64 {
    knee + knee.sqrt()
}
