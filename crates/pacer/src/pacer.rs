//! What the agent finds out about a server while it runs, several times a second.

use units::Nanos;
use verdict::{Policy, WaitsFrom};

use crate::capacity::Capacity;
use crate::curve::{Curve, SLOW_NS};
use crate::fade::remembered;
use crate::filling::Filling;
use crate::handshakes::{Due, FIRST_SLOT_SHIFT, Handshakes, LONGEST_HANDSHAKE_NS};
use crate::histogram::{FadingHistogram, median_ns, since};
use crate::limit::{Limit, Tick};
use crate::newcomers::Newcomers;
use crate::round_trips::Timed;
use crate::service_rate::ServiceRate;
use crate::{Demand, Pace, Service as Counts};

/// How often the agent is to look at what is counted, and [`Pacer::tick`].
pub const LOOK_EVERY: Nanos = Nanos::from_millis(50);

/// Until it is known, ns: a hundred may come at once.
const UNKNOWN_ANSWER_NS: u64 = PATIENCE_NS / 100;
/// What a burst may take to be answered, ns: as long as a client that was not answered waits until it tries again (RFC 6298, section 2).
const PATIENCE_NS: u64 = 1_000_000_000;
/// Of so many new SYNs one must be refused: if fewer are, what is answered may be all that was asked for.
const BOUND_ONE_IN: u64 = 100;
/// If more find the accept queue full, there is no place for more.
const FULL_ONE_IN: u64 = 100;
/// If fewer are refused, few may wait only because few came.
const CROWD_ONE_IN: u64 = 10;
/// What a server can do is of so many round trips of those who are answered, or looks, as what was let in at once is answered at once in each; and so is how many more are let in than that.
const ROUND_TRIPS: u64 = 4;
/// What a burst may bring beyond what is answered meanwhile, times that, to have all of it: as much again, and a tenth, as rates are not known better.
const EXCESS: f64 = 1.1;

/// Of a server of which nothing is known yet: every SYN becomes a connection, within two milliseconds, and an answer may take seconds.
pub const FIRST_PACE: Pace = Pace {
    epoch_ns: 100_000_000,
    overtaken_at: 4,
    limit: 0,
    slot_shift: FIRST_SLOT_SHIFT,
    completed_ppm: 1_000_000,
    served_meanwhile: 0,
    counts_silent: 0,
    answers_per_s: 0,
    taken_meanwhile: 0,
    answer_ns: UNKNOWN_ANSWER_NS,
    patience_ns: PATIENCE_NS,
    handshake_ns: 0,
    drain_ns: 0,
    trickle_ns: 20_000_000,
    kept_ns: 1000 * Policy::USUAL_BURST_US as u64,
    reserve_ns: 0,
};

/// Counts that a share is taken of; of fewer only after so long.
const ENOUGH: u64 = 32;
const LONGEST_SHARE: Nanos = Nanos::from_secs(1);
/// A server that answers nobody for longer does not stall: its answers are not seen, or it hangs, and then a limit keeps nobody from anything.
const LONGEST_STALL: Nanos = Nanos::from_secs(5);
/// For so long a server that works takes nobody from its accept queue, as another process or its kernel has the CPU: two of the shortest epochs.
const LONGEST_OFF_CPU_NS: u64 = 2 * SHORTEST_EPOCH_NS;
/// By time, an epoch lasts for so many usual responses.
const RESPONSES_PER_EPOCH: u64 = 8;
/// Three of these are longer than the kernel lets a process run while another one waits (docs/kernel.md): a server that waits for the CPU beside one has not stalled.
const SHORTEST_EPOCH_NS: u64 = 2_000_000;
const LONGEST_EPOCH_NS: u64 = 8_000_000_000;
/// Time without an answer after which one more is admitted, whoever waits: so many usual responses.
const RESPONSES_PER_TRICKLE: u64 = 2;
const SHORTEST_TRICKLE_NS: u64 = 20_000_000;
const LONGEST_TRICKLE_NS: u64 = 2_000_000_000;
/// A connection is overtaken by so many times as many as the usual one, and by so many at least.
const OVERTAKES: u64 = 4;
const FEWEST_OVERTAKES: u64 = 4;
const MOST_OVERTAKES: u64 = 1_000_000;
/// To so many times as many as count now the limit is raised at once.
const RAISED_AT_ONCE: u32 = 4;
/// Once refusals have gone on for so many usual responses, while the limit did not rise, whoever will be answered is: in a queue that becomes longer the usual response does, too. A pause as long, of a second at least, ends that.
const RESPONSES_UNTIL_STEADY: u64 = 3;
/// Answers are slow no more if they seldom were for a minute.
const SLOW_MEMORY: Nanos = Nanos::from_secs(25);
const SELDOM: f64 = 0.1;
/// Shares of the answers that came before we saw a byte of a request: silent connections count from the first on, until it is below the second.
const SILENT_FROM: f64 = 0.5;
const SILENT_UNTIL: f64 = 0.25;

/// Follows one server.
#[derive(Debug)]
pub struct Pacer {
    limit: Limit,
    pace: Pace,
    last: Look,
    /// When shares were taken last.
    shared: Look,
    /// When a SYN came last.
    asked_at: Nanos,
    /// When round trips were looked at last.
    timed: Look,
    handshakes: Handshakes,
    /// What it can answer beside all that comes to it now.
    capacity: Capacity,
    /// And of those who wait already.
    service_rate: ServiceRate,
    /// By how many times more than its capacity are let in.
    filling: Filling,
    newcomers: Newcomers,
    response_ns: u64,
    /// By how many who came later those that were answered were overtaken. One look would be noise: where its median doubles by chance, connections count for longer.
    overtakes: FadingHistogram,
    /// A mean handshake of those that are answered: whoever asks for nothing may take as long as he likes.
    away_ns: u64,
    /// Since when so many connections have come as would tell, and no answer was seen.
    unanswered_since: Option<Nanos>,
    /// Whether that is so for long: it hangs, or we cannot see its answers.
    is_blind: bool,
    /// Whether most are answered before we see a byte of a request.
    is_silent: bool,
    curve: Curve,
    /// When somebody was refused last.
    refused_at: Nanos,
    /// Since when somebody is refused again and again, and the limit has not risen.
    refusing_since: Nanos,
    /// Of the last moments, the share in which an answer usually took half of what is slow, or more; all since the limit was raised.
    slow: f64,
}

/// When what is let in now has shown, of clients whose round trip takes so long.
fn settles_in(round_trip_ns: u64) -> Nanos {
    Nanos(ROUND_TRIPS * round_trip_ns.max(LOOK_EVERY.0))
}

/// Of the idle time that is kept, the share that may be spent on those who are let in beyond the limit or left unanswered, while so many new ones come for each answer. The more, the sooner a burst must be over to be answered at
/// all, and the more of the CPU goes to SYNs that are sent again: of a crowd many times too large few are left waiting, and a queue that was let in for it is not kept up.
fn savable(newcomers_per_answer: f64) -> f64 {
    EXCESS / (newcomers_per_answer - 1.0).max(EXCESS)
}

/// What was there at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// By the clock that the counts have their times of.
    pub at: Nanos,
    /// Who waits, and sums.
    pub counts: Counts,
    /// What the listeners ask for.
    pub demand: Demand,
}

impl Look {
    /// With what goes on at that moment.
    fn idle_ns(&self) -> u64 {
        match self.counts.idle_since_ns {
            0 => self.counts.idle_ns,
            since => self.counts.idle_ns + self.at.0.saturating_sub(since),
        }
    }

    /// What was counted since an earlier one.
    fn since(&self, earlier: &Self, of: fn(&Counts) -> u64) -> u64 {
        of(&self.counts).saturating_sub(of(&earlier.counts))
    }

    /// And what was asked for.
    fn asked_since(&self, earlier: &Self, of: fn(&Demand) -> u64) -> u64 {
        of(&self.demand).saturating_sub(of(&earlier.demand))
    }

    /// Whether so many are one in so many new SYNs since then, or more of them.
    fn is_one_in(&self, parts: u64, count: u64, earlier: &Self) -> bool {
        count > 0 && parts * count >= self.asked_since(earlier, |demand| demand.new)
    }
}

impl Pacer {
    /// From now on.
    pub fn new(look: Look) -> Self {
        let limit = Limit::default();
        let mut pacer = Self {
            pace: FIRST_PACE,
            limit,
            last: look,
            shared: look,
            asked_at: look.at,
            timed: look,
            handshakes: Handshakes::default(),
            capacity: Capacity::default(),
            service_rate: ServiceRate::default(),
            filling: Filling::default(),
            newcomers: Newcomers::default(),
            response_ns: 0,
            overtakes: FadingHistogram::default(),
            away_ns: 0,
            unanswered_since: None,
            is_blind: false,
            is_silent: false,
            curve: Curve::new(look),
            refused_at: look.at,
            refusing_since: look.at,
            slow: 0.0,
        };
        pacer.set_pace();
        pacer
    }

    /// What the kernel should have.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Goes on from here: what was counted since the last time is not what the same listeners asked for. What was learnt stays.
    pub fn look_anew(&mut self, look: Look) {
        if look.counts.generation != self.last.counts.generation {
            *self = Self::new(look);
            return;
        }
        (self.last, self.shared, self.timed) = (look, look, look);
        (self.unanswered_since, self.is_blind) = (None, false);
        self.set_pace();
    }

    /// Goes on by what is there now.
    pub fn tick(&mut self, look: Look) {
        // The index is another server's.
        if look.counts.generation != self.last.counts.generation {
            *self = Self::new(look);
            return;
        }
        let elapsed = look.at.since(self.last.at);
        let answered = look.since(&self.last, |counts| counts.answered);
        let idle = Nanos(look.idle_ns().saturating_sub(self.last.idle_ns()));
        self.service_rate.add(elapsed, idle, answered);
        let new = look.asked_since(&self.last, |demand| demand.new);
        self.newcomers.add(elapsed, new);
        if new > 0 {
            self.asked_at = look.at;
        }
        let tick = Tick {
            elapsed,
            // What the limit is now says nothing of those who came long before.
            answered: look.since(&self.last, |counts| counts.answered - counts.answered_piecemeal),
            in_turn: look.since(&self.last, |counts| counts.answered_in_turn),
            idle,
            waited: Nanos(look.since(&self.last, |counts| counts.response_ns)),
            refused: look.asked_since(&self.last, |demand| demand.refused),
            refused_by_queue: look.asked_since(&self.last, |demand| demand.refused_by_queue),
            echo: Nanos(self.response_ns + self.handshakes.usual_ns()),
        };
        if tick.refused + tick.refused_by_queue > 0 {
            let pause = LONGEST_SHARE.max(Nanos(RESPONSES_UNTIL_STEADY * self.response_ns));
            if look.at.since(self.refused_at) >= pause {
                self.refusing_since = look.at;
            }
            self.refused_at = look.at;
        }
        let limit = self.limit.whole();
        self.limit.tick(tick);
        self.curve.add(&look, &self.last, self.response_ns, self.pace.counts_silent != 0);
        let before = std::mem::replace(&mut self.last, look);
        self.share();
        self.raise(elapsed);
        if self.limit.whole() > limit {
            self.refusing_since = look.at;
        }
        // First what slots have said until now: how long handshakes take may say that it is nothing.
        self.complete(&before);
        self.time_handshakes();
        self.set_pace();
    }

    /// Raises the limit where answers are slow, as it is not found soon there, and takes that back once they seldom are.
    fn raise(&mut self, elapsed: Nanos) {
        let is_slow = self.response_ns >= SLOW_NS / 2;
        let remembered = remembered(elapsed, SLOW_MEMORY);
        self.slow = self.slow * remembered + if is_slow { 1.0 - remembered } else { 0.0 };
        if self.slow < SELDOM {
            self.limit.take_back();
        }
        // A larger limit is for who is refused; and what half of it has shown lately goes before how long few waited a while ago.
        let is_asked_for = self.last.at.since(self.refused_at) < LONGEST_SHARE;
        if self.response_ns >= SLOW_NS && is_asked_for && !self.limit.has_shown_queue() {
            let refusing_for = self.last.at.since(self.refusing_since);
            let is_steady = refusing_for >= Nanos(RESPONSES_UNTIL_STEADY * self.response_ns);
            let unhindered = self.curve.unhindered(is_steady);
            // Of those who do not count many may have waited, too.
            self.raise_to(unhindered.min(RAISED_AT_ONCE * self.last.counts.counted(&self.pace)));
        }
    }

    fn raise_to(&mut self, limit: u32) {
        let before = self.limit.now();
        self.limit.raise(limit);
        if self.limit.now() > before {
            self.slow = 1.0;
        }
    }

    /// From now on those count, too, who had been overtaken. If they are most of those who were answered, and nobody was refused lately, they are no reason to refuse anybody.
    fn count_anew(&mut self, before: &Look) {
        let counted = |of| self.last.since(before, of);
        let answers = counted(|counts| counts.answers_beside.iter().sum());
        let is_calm = self.last.at.since(self.refused_at) >= LONGEST_SHARE;
        if is_calm && 2 * counted(|counts| counts.answered_in_turn) < answers {
            let waited_ns = counted(|counts| counts.responses_beside_ns.iter().sum());
            // By Little's law, but no more than were there: one event may answer at once all who waited for it for long.
            let waiting = waited_ns / self.last.at.since(before.at).0.max(1);
            let were_there = before.counts.in_stage.iter().sum::<u32>();
            let most = u64::from(were_there) + counted(|counts| counts.established);
            self.raise_to(waiting.min(most).min(u64::from(u32::MAX)) as u32);
        }
    }

    fn set_pace(&mut self) {
        let demand = &self.last.demand;
        self.pace.limit = if self.is_blind { 0 } else { self.limit.now() };
        self.pace.counts_silent = u32::from(match demand.waits_from {
            WaitsFrom::Found => self.is_silent,
            WaitsFrom::Request => false,
            WaitsFrom::Handshake => true,
        });
        let trickle_ns =
            (RESPONSES_PER_TRICKLE * self.response_ns).clamp(SHORTEST_TRICKLE_NS, LONGEST_TRICKLE_NS);
        // A server that may take so long has not stalled before.
        self.pace.trickle_ns = trickle_ns.max(RESPONSES_PER_TRICKLE * demand.target_ns);
        self.pace.answers_per_s = self.capacity.per_s() as u32;
        self.set_far();
        self.set_burst();
    }

    /// What those are held against who are under way for long.
    fn set_far(&mut self) {
        let per_s = self.capacity.per_s();
        // As many as it answers, or more, if fewer wait than may.
        let let_in_per_s = per_s * self.filling.factor();
        // By Little's law so many of those who are let in are under way. Where too few were let in the server was idle, which is no part of it.
        self.pace.served_meanwhile = (let_in_per_s * self.away_ns as f64 / 1e9) as u32;
        // Those who ask for nothing are taken, too. A server that is kept from its CPU takes none for as long.
        let taken_ns = self.handshakes.mean_ns().saturating_sub(LONGEST_OFF_CPU_NS);
        self.pace.taken_meanwhile = (per_s * taken_ns as f64 / 1e9) as u32;
        let is_far = taken_ns > 0 && let_in_per_s > 0.0;
        // Faster than it answers, by as many in each round trip as may wait: who has come by now is counted where he waits.
        let more_per_s = f64::from(self.pace.limit) * 1e9 / self.handshakes.usual_ns().max(1) as f64;
        self.pace.drain_ns = if is_far { (1e9 / (let_in_per_s + more_per_s)) as u64 } else { 0 };
    }

    /// What one more costs, and what may be spent on those who are past the limit.
    fn set_burst(&mut self) {
        // Fewer than it can give may be all that were asked for; one alone takes no longer than its response.
        let longest = if self.response_ns > 0 { self.response_ns } else { FIRST_PACE.answer_ns };
        self.pace.answer_ns = ((1e9 / self.service_rate.per_s().max(1.0)) as u64).clamp(1, longest);
        // Of a server that has not shown what it can nothing is known; and of forged SYNs few become anything.
        let is_known = self.service_rate.per_s() > 0.0;
        let newcomers_per_s = if is_known { self.newcomers.per_s() * self.handshakes.share() } else { 0.0 };
        let share = savable(newcomers_per_s * self.pace.answer_ns as f64 / 1e9);
        self.pace.kept_ns = self.last.demand.burst_ns();
        self.pace.reserve_ns = ((1.0 - share) * self.pace.kept_ns as f64) as u64;
    }

    /// Whether nobody has come or was answered since the last share, and nobody waits, or not even a SYN has come for long: the time says nothing of what the server can do, and one who waits then
    /// may wait for an event.
    fn is_quiet(&self) -> bool {
        let of = |counts: &Counts| counts.established + counts.answered;
        let is_left_alone = self.last.at.since(self.asked_at) >= LONGEST_SHARE;
        (self.last.counts.in_stage == [0, 0] || is_left_alone) && self.last.since(&self.shared, of) == 0
    }

    fn share(&mut self) {
        if self.is_quiet() {
            self.shared = self.last;
        }
        let elapsed = self.last.at.since(self.shared.at);
        let counted = |of| self.last.since(&self.shared, of);
        let answered = counted(|counts| counts.answered);
        let is_unanswered = answered == 0 && counted(|counts| counts.established) >= ENOUGH;
        self.unanswered_since = is_unanswered.then(|| self.unanswered_since.unwrap_or(self.last.at));
        self.is_blind = self.unanswered_since.is_some_and(|since| self.last.at.since(since) >= LONGEST_STALL);
        if answered == 0 || (answered < ENOUGH && elapsed < LONGEST_SHARE) {
            return;
        }
        let silent = counted(|counts| counts.answered_silent) as f64 / answered as f64;
        let away_us = counted(|counts| counts.answered_handshakes_us) / answered;
        self.away_ns = away_us.saturating_mul(1000).min(LONGEST_HANDSHAKE_NS);
        let before = std::mem::replace(&mut self.shared, self.last);
        let now = &self.last;
        if let Some(response_ns) = median_ns(&now.counts.responses_us, &before.counts.responses_us) {
            self.response_ns = response_ns;
        }
        self.pace.epoch_ns =
            (RESPONSES_PER_EPOCH * self.response_ns).clamp(SHORTEST_EPOCH_NS, LONGEST_EPOCH_NS);
        if silent >= SILENT_FROM {
            self.is_silent = true;
        } else if silent < SILENT_UNTIL {
            self.is_silent = false;
        }
        let idle = Nanos(now.idle_ns().saturating_sub(before.idle_ns()));
        // One who is refused by chance does not say that what was asked for is all that it can.
        let is_bound = now.is_one_in(BOUND_ONE_IN, now.asked_since(&before, |demand| demand.bound), &before);
        self.capacity.add(elapsed, idle, answered, is_bound, settles_in(self.away_ns));
        self.fill(&before);
        self.count_overtakes(&before);
    }

    /// After how many others a connection counts no more.
    fn count_overtakes(&mut self, before: &Look) {
        let now = &self.last;
        self.overtakes.add(now.at.since(before.at), &since(&now.counts.overtakes, &before.counts.overtakes));
        let Some(overtakes) = self.overtakes.below(0.5) else { return };
        let overtaken_at = (OVERTAKES * overtakes).clamp(FEWEST_OVERTAKES, MOST_OVERTAKES);
        let overtaken_at = u32::try_from(overtaken_at).expect("it is at most a million");
        let counted_before = std::mem::replace(&mut self.pace.overtaken_at, overtaken_at);
        if overtaken_at > counted_before {
            self.count_anew(before);
        }
    }

    /// How many more are let in than are answered: more, if fewer wait than may and it is not for want of those who ask, nor of a place.
    fn fill(&mut self, before: &Look) {
        let now = &self.last;
        let elapsed = now.at.since(before.at);
        let asked = |of| now.asked_since(before, of);
        // Not by what a limit of the operator's refused, which may be smaller.
        let refused = asked(|demand| demand.refused) + asked(|demand| demand.refused_by_queue);
        let is_crowd = now.is_one_in(CROWD_ONE_IN, refused, before);
        let found_full = asked(|demand| demand.accept_full) + asked(|demand| demand.found_full);
        let has_places = !now.is_one_in(FULL_ONE_IN, found_full, before);
        let waiting = now.since(before, |counts| counts.response_ns) as f64 / elapsed.0.max(1) as f64;
        let share = waiting / f64::from(self.pace.limit).max(1.0);
        let share = (is_crowd && has_places).then_some(share);
        self.filling.add(elapsed, share, settles_in(self.away_ns + self.response_ns));
    }

    fn time_handshakes(&mut self) {
        let established = self.last.since(&self.timed, |counts| counts.established);
        let elapsed = self.last.at.since(self.timed.at);
        if established == 0 || (established < ENOUGH && elapsed < LONGEST_SHARE) {
            return;
        }
        let before = std::mem::replace(&mut self.timed, self.last);
        self.handshakes.time(elapsed, established, Timed::since(&self.last.counts, &before.counts));
        if let Some(slot_shift) = self.handshakes.slot_shift() {
            self.pace.slot_shift = slot_shift;
            self.pace.handshake_ns = self.handshakes.usual_ns();
        }
    }

    /// How many of those that were admitted come back.
    fn complete(&mut self, before: &Look) {
        let since = |of| self.last.since(before, of);
        let (expected, never_came) = (since(|counts| counts.expected), since(|counts| counts.never_came));
        let asked = |of| self.last.asked_since(before, of);
        let was_full = asked(|demand| demand.accept_full) > 0;
        let found_full = asked(|demand| demand.found_full);
        self.handshakes.count(
            self.last.at.since(before.at),
            Due { expected, never_came, found_full },
            was_full,
        );
        self.pace.completed_ppm = (1e6 * self.handshakes.share()) as u32;
    }
}

#[cfg(test)]
mod tests {
    use verdict::BUCKETS;

    use super::*;
    use crate::round_trips::tests::timed;
    use kernel::ListenerStats;

    use crate::WAITING;

    fn count_handshakes(counts: &mut Counts, count: u64, us: u64) {
        let timed = timed(&[(count, us)]);
        for bucket in 0..BUCKETS {
            counts.handshakes_us[bucket] += timed.counts[bucket];
            counts.handshakes_sum_us[bucket] += timed.sums_us[bucket];
        }
    }

    /// 50 ms each: so many answers of 5 ms, twice as many handshakes of 40 ms, and four times as many SYNs that were admitted.
    fn look(start: Nanos, number: u64, answered: u64) -> Look {
        let mut counts = Counts {
            answered,
            answered_silent: answered / 8,
            established: 2 * answered,
            expected: 4 * answered,
            never_came: 2 * answered,
            ..Counts::default()
        };
        counts.responses_us[13] = answered;
        count_handshakes(&mut counts, 2 * answered, 49_152);
        counts.answered_handshakes_us = 40_000 * answered;
        Look { at: start + Nanos::from_millis(50 * number), counts, demand: Demand::default() }
    }

    #[test]
    fn shares_are_of_what_came_since_the_last() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 1000));
        pacer.tick(look(start, 1, 1016));
        assert_eq!(pacer.pace().epoch_ns, FIRST_PACE.epoch_ns, "sixteen answers are not enough");
        pacer.tick(look(start, 2, 1100));
        let pace = *pacer.pace();
        assert_eq!(
            pace.trickle_ns, SHORTEST_TRICKLE_NS,
            "twice 6.144 ms, three quarters of the bucket's end, is less"
        );
        assert_eq!(pace.epoch_ns, 8 * 6_144_000, "eight of them");
        let mut fast = look(start, 3, 1200);
        fast.counts.responses_us[7] = 1100;
        pacer.tick(fast);
        assert_eq!(pacer.pace().epoch_ns, SHORTEST_EPOCH_NS, "eight of 96 us are less");
        assert_eq!(
            pace.completed_ppm, 501_411,
            "168 of 336, and all of one before: shorter slots say nothing"
        );
        assert_eq!(pace.counts_silent, 0);
        assert_eq!(
            pace.slot_shift, 27,
            "134 ms: the next power of two above twice 65.536 ms, the bucket's end"
        );
        assert_eq!(pace.served_meanwhile, 40, "100 in 100 ms, for 40 ms");
        assert_eq!(pace.answers_per_s, 1000);
    }

    #[test]
    fn round_trips_of_a_few_handshakes_beside_many_by_cookie_are_no_sample() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 0));
        pacer.tick(look(start, 1, 100));
        let known = *pacer.pace();
        assert_eq!((known.handshake_ns, known.slot_shift), (49_152_000, 27));
        // So many that took so many us in all, of 200 in each look.
        let look_with = |number, timed: &[(u64, u64)]| {
            let mut look = look(start, number, 100 * number);
            (look.counts.handshakes_us, look.counts.handshakes_sum_us) = Default::default();
            timed.iter().for_each(|&(count, us)| count_handshakes(&mut look.counts, count, us));
            look
        };
        // A flood: two that took a fifth of a second, and the others by cookie.
        pacer.tick(look_with(2, &[(200, 49_152), (2, 200_000)]));
        assert_eq!((pacer.pace().handshake_ns, pacer.pace().slot_shift), (49_152_000, 27));
        // It is over, and they are known again; a slot is shorter when that has been enough for a second.
        for number in 3..=60 {
            pacer.tick(look_with(number, &[(200, 49_152), (2, 200_000), (200 * (number - 2), 768)]));
            if number == 3 {
                assert_eq!((pacer.pace().handshake_ns, pacer.pace().slot_shift), (768_000, 27));
            }
        }
        assert_eq!((pacer.pace().handshake_ns, pacer.pace().slot_shift), (768_000, 21));
    }

    #[test]
    fn server_that_answers_silent_clients_counts_them_until_that_is_rare() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 0));
        let mut silent = 0;
        for (number, (share, counts_silent)) in (1..).zip([(60, 1), (30, 1), (20, 0), (30, 0)]) {
            silent += share;
            let mut look = look(start, number, 100 * number);
            look.counts.answered_silent = silent;
            pacer.tick(look);
            assert_eq!(pacer.pace().counts_silent, counts_silent, "{share} of 100");
        }
    }

    #[test]
    fn what_a_listener_says_goes_before_what_is_found() {
        let start = Nanos::from_secs(1);
        for (waits_from, counts_silent) in
            [(WaitsFrom::Found, 1), (WaitsFrom::Request, 0), (WaitsFrom::Handshake, 1)]
        {
            let mut look = look(start, 1, 100);
            look.counts.answered_silent = 100;
            look.demand.waits_from = waits_from;
            let mut pacer = Pacer::new(Look { at: start, counts: Counts::default(), ..look });
            pacer.tick(look);
            assert_eq!(pacer.pace().counts_silent, counts_silent, "{waits_from:?}");
        }
    }

    #[test]
    fn server_whose_answers_are_not_seen_has_no_limit_until_one_is() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 0));
        for (number, established, limit) in
            [(10, 31, 4), (90, 100, 4), (100, 100, 4), (189, 100, 4), (190, 100, 0), (200, 200, 0)]
        {
            let mut look = look(start, number, 0);
            look.counts.established = established;
            pacer.tick(look);
            assert_eq!(pacer.pace().limit, limit, "after {number} looks");
        }
        pacer.tick(look(start, 201, 100));
        assert_eq!(pacer.pace().limit, 4);
    }

    #[test]
    fn time_in_which_nobody_came_says_nothing_of_the_server() {
        let start = Nanos::from_secs(1);
        for polls in [0, 1] {
            // Somebody may wait for an event all that time.
            let look = |number, answered| {
                let mut look = look(start, number, answered);
                (look.counts.established, look.counts.in_stage) = (polls + 2 * answered, [0, polls as u32]);
                look
            };
            let mut pacer = Pacer::new(look(0, 0));
            // An hour without anybody; then a crowd, before whose first answer is more than one look.
            (1..=72_000).for_each(|number| pacer.tick(look(number, 0)));
            let mut first = look(72_001, 0);
            (first.counts.established, first.counts.in_stage) = (polls + 100, [0, 100]);
            (first.demand.new, first.demand.bound) = (150, 50);
            pacer.tick(first);
            assert_eq!(pacer.pace().limit, 4, "its answers are still to come");
            let mut second = look(72_002, 50);
            (second.demand.new, second.demand.bound) = (300, 100);
            pacer.tick(second);
            assert_eq!(pacer.pace().answers_per_s, 500, "50 in the 100 ms since somebody came, {polls} wait");
        }
    }

    /// Clients 40 ms away of whom half are refused, while next to nobody waits.
    #[test]
    fn more_are_let_in_than_are_answered_only_while_others_are_refused_and_find_a_place() {
        for (name, refused, accept_full, found_full, factor) in [
            ("crowd", 100, 0, 0, 2.0),
            ("hardly anybody refused", 10, 0, 0, 1.0),
            ("SYNs that find the queue full", 100, 4, 0, 1.0),
            ("handshakes that do", 100, 0, 4, 1.0),
            ("hardly any", 100, 1, 0, 2.0),
        ] {
            let start = Nanos::from_secs(1);
            let mut pacer = Pacer::new(look(start, 0, 0));
            for number in 1..=200 {
                let mut look = look(start, number, 100 * number);
                look.demand = Demand {
                    new: 200 * number,
                    refused: refused * number,
                    bound: refused * number,
                    accept_full: accept_full * number,
                    found_full: found_full * number,
                    ..Demand::default()
                };
                pacer.tick(look);
            }
            // 2,000 in a second, of 40 ms each.
            assert_eq!(f64::from(pacer.pace().served_meanwhile), factor * 80.0, "{name}");
        }
    }

    /// It answers half as many from the fortieth look on, while one in so many is refused.
    #[test]
    fn server_is_taken_for_slower_where_one_in_a_hundred_is_refused() {
        for (one_in, is_slower) in [(101, false), (100, true)] {
            let start = Nanos::from_secs(1);
            let mut pacer = Pacer::new(look(start, 0, 0));
            let mut answered = 0;
            for number in 1..=80 {
                answered += if number <= 40 { 200 } else { 100 };
                let mut look = look(start, number, answered);
                (look.demand.new, look.demand.bound) = (one_in * number, number);
                pacer.tick(look);
            }
            let per_s = pacer.pace().answers_per_s;
            assert_eq!(per_s < 2_500, is_slower, "{per_s}/s with one in {one_in}");
            assert!(per_s < 4_100, "{per_s}/s with one in {one_in}");
        }
    }

    #[test]
    fn what_other_policies_have_refused_is_nothing_to_learn_from() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 0));
        pacer.tick(look(start, 1, 100));
        let before = *pacer.pace();
        let mut after = look(start, 2, 100);
        (after.demand.refused, after.demand.bound) = (1_000_000, 1_000_000);
        pacer.look_anew(after);
        assert_eq!(pacer.pace().limit, before.limit);
        (3..20).for_each(|number| pacer.tick(Look { at: look(start, number, 0).at, ..after }));
        assert_eq!(pacer.pace().limit, before.limit, "nobody was refused since");
    }

    #[test]
    fn connection_is_overtaken_by_four_times_as_many_as_the_usual_one() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 0));
        for (number, (bucket, overtaken_at)) in (1..).zip([(0, 4), (4, 64), (1, 8), (31, 1_000_000)]) {
            let mut look = look(start, number, 100 * number);
            look.counts.overtakes = pacer.last.counts.overtakes;
            // By then what was counted before does not count for much.
            look.at = start + Nanos::from_secs(10 * number);
            look.counts.overtakes[bucket] += 100;
            pacer.tick(look);
            assert_eq!(pacer.pace().overtaken_at, overtaken_at, "bucket {bucket}");
        }
    }

    /// As `look`, of a server that answers one of those who came while 4 waited and one of those who came while 1,024 did, after a second each; fifty count.
    fn slow_look(start: Nanos, number: u64) -> Look {
        let mut look = look(start, 40 + number, 2 * number);
        look.counts.responses_us = std::array::from_fn(|bucket| if bucket == 20 { 2 * number } else { 0 });
        (look.counts.in_stage, look.counts.recent) = ([0, 1_074], [0, 50]);
        for bucket in [3, 11] {
            look.counts.answers_beside[bucket] = number;
            look.counts.responses_beside_ns[bucket] = number * 1_000_000_000;
            look.counts.waiting_beside[WAITING][bucket] = 20;
        }
        look
    }

    #[test]
    fn limit_is_raised_for_who_is_refused_and_to_a_few_times_as_many_as_count() {
        let start = Nanos::from_secs(1);
        for (refused, raised_to) in [(1, Some(200)), (0, None)] {
            let mut pacer = Pacer::new(look(start, 0, 0));
            (1..=40).for_each(|number| pacer.tick(look(start, number, 0)));
            for number in 1..=60 {
                let mut look = slow_look(start, number);
                look.demand.refused = refused * number;
                pacer.tick(look);
            }
            let limit = Some(pacer.pace().limit).filter(|&limit| limit >= 64);
            assert_eq!(limit, raised_to, "{refused} refused in each look");
        }
    }

    /// Of those beside 1,024 some never are. Nobody is refused in the looks of a pause: a short one does not begin the time anew, and a long one does. It is 47 looks, three usual answers of 0.79 s, from when the limit has
    /// stopped doubling, or the long pause is over.
    #[test]
    fn who_is_not_answered_is_taken_for_one_who_never_is_once_refusals_have_gone_on_for_some_answers_time() {
        let start = Nanos::from_secs(1);
        for (pause, raised_after) in [(0..0, 70), (30..40, 70), (30..80, 129)] {
            let mut pacer = Pacer::new(look(start, 0, 0));
            (1..=40).for_each(|number| pacer.tick(look(start, number, 0)));
            let mut is_raised = |number: u64| {
                let mut look = slow_look(start, number);
                look.counts.waiting_beside[WAITING][11] = 80;
                look.demand.refused = number.min(pause.start) + number.saturating_sub(pause.end);
                pacer.tick(look);
                pacer.pace().limit >= 64
            };
            let raised = (1..200).find(|&number| is_raised(number));
            assert!(
                raised.is_some_and(|raised| raised.abs_diff(raised_after) <= 8),
                "{raised:?} for {pause:?}"
            );
        }
    }

    /// 200 answers/s, after half a second each.
    #[test]
    fn who_counts_anew_raises_the_limit_if_most_were_overtaken_and_nobody_was_refused() {
        let start = Nanos::from_secs(1);
        // 20 connections come in each of the four looks of a share.
        for (in_turn, refused, were_there, raised_to) in
            [(4, 0, 50, Some(100)), (4, 0, 10, Some(90)), (5, 0, 50, None), (4, 1, 50, None)]
        {
            let mut pacer = Pacer::new(look(start, 0, 0));
            for number in 1..=50 {
                let mut look = look(start, number, 10 * number);
                look.counts.in_stage = [0, were_there];
                look.counts.answered_in_turn = in_turn * number;
                look.counts.answers_beside[3] = 10 * number;
                look.counts.responses_beside_ns[3] = 10 * number * 500_000_000;
                look.counts.overtakes[0] = number.min(40);
                look.counts.overtakes[5] = 100 * number.saturating_sub(40);
                look.demand.refused = refused * number;
                pacer.tick(look);
                assert!(number > 40 || pacer.pace().limit < 64, "{:?}", pacer.pace());
            }
            assert!(pacer.pace().overtaken_at > 4);
            let limit = Some(pacer.pace().limit).filter(|&limit| limit >= 64);
            assert_eq!(limit, raised_to, "{in_turn} of ten in turn, {refused} refused, {were_there} there");
        }
    }

    #[test]
    fn time_for_bursts_is_what_the_last_reload_said() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 0));
        for (number, (burst_us, kept_ns)) in (1..).zip([
            (None, 4_000_000_000),
            (Some(0), 0),
            (Some(500_000), 500_000_000),
            (None, 4_000_000_000),
        ]) {
            let mut look = look(start, number, 1000 * number);
            look.demand.add(&Policy { burst_us, ..Policy::UNSERVED }, false, &ListenerStats::default());
            pacer.look_anew(look);
            assert_eq!(pacer.pace().kept_ns, kept_ns);
            assert!(pacer.pace().reserve_ns <= kept_ns);
        }
    }

    #[test]
    fn crowd_that_is_too_large_by_far_leaves_little_idle_time_for_silence() {
        let start = Nanos::from_secs(1);
        let short = Policy { burst_us: Some(500_000), ..Policy::UNSERVED };
        for (policy, times, kept_ns, reserved) in [
            (Policy::UNSERVED, 1, 4_000_000_000, 0.0),
            (Policy::UNSERVED, 2, 4_000_000_000, 0.0),
            (Policy::UNSERVED, 3, 4_000_000_000, 0.45),
            (Policy::UNSERVED, 12, 4_000_000_000, 0.9),
            (short, 12, 500_000_000, 0.9),
        ] {
            let mut pacer = Pacer::new(look(start, 0, 0));
            for number in 1..=40 {
                let mut look = look(start, number, 1000 * number);
                look.counts.never_came = 0;
                look.demand.add(
                    &policy,
                    false,
                    &ListenerStats { seen: 1000 * number * times + 77, returned: 77, ..Default::default() },
                );
                pacer.tick(look);
            }
            let share = pacer.pace().reserve_ns as f64 / kept_ns as f64;
            assert_eq!(pacer.pace().kept_ns, kept_ns, "{policy}");
            assert!((share - reserved).abs() < 0.01, "{times} come for each answer: {share} is kept back");
        }
    }
}
