//! What the agent finds out about a server while it runs, several times a second.

use std::num::{NonZeroU32, NonZeroU64};

use serde::{Deserialize, Serialize};
use units::Nanos;
use verdict::{Histogram, Policy, WaitsFrom};

use crate::handshakes::Handshakes;
use crate::histogram::{FadingHistogram, median_ns, since};
use crate::limit::{Limit, Tick};
use crate::{Demand, Pace, Service as Counts};

/// How often the agent is to look at what is counted, and [`Pacer::tick`].
pub const LOOK_EVERY: Nanos = Nanos::from_millis(50);

/// A round trip is no shorter, and a difference to the limit is made up for in so many.
const SHORTEST_ROUND_TRIP_NS: u64 = 50_000;
const MAKES_UP_IN: f64 = 2.0;
/// Until anything is known: no limit, and every SYN becomes a connection.
pub const FIRST_PACE: Pace = Pace {
    epoch_ns: 1_000_000_000,
    overtaken_at: 4,
    limit: 0,
    completed_ppm: 1_000_000,
    counts_silent: 0,
    follow_one_in: 1,
    answers_per_s: 0,
    gain_per_s: 1_000,
    quick_ns: 0,
    burst_ns: 1000 * Policy::USUAL_BURST_US as u64,
    calm_ns: SHORTEST_CALM_NS,
};

/// Counts that a share is taken of; of fewer only after so long.
const ENOUGH: u64 = 32;
const LONGEST_SHARE: Nanos = Nanos::from_secs(1);
/// A server that answers nobody for longer does not stall: its answers are not seen, or it hangs,
/// and then a limit keeps nobody from anything.
const LONGEST_STALL: Nanos = Nanos::from_secs(5);
/// By time, an epoch lasts for so many usual responses.
const RESPONSES_PER_EPOCH: u64 = 8;
/// Three of these are longer than the kernel lets a process run while another one waits
/// (docs/kernel.md): a server that waits for the CPU beside one has not stalled.
const SHORTEST_EPOCH_NS: u64 = 2_000_000;
const LONGEST_EPOCH_NS: u64 = 8_000_000_000;
/// A connection is overtaken by so many times as many as the usual one, and by so many at least.
const OVERTAKES: u64 = 4;
const FEWEST_OVERTAKES: u64 = 4;
const MOST_OVERTAKES: u64 = 1_000_000;
/// A crowd is over when nobody was refused for so long: longer than a server's stalls, and longer
/// than who may wait takes twice.
const SHORTEST_CALM_NS: u64 = 500_000_000;
const LONGEST_CALM_NS: u64 = 10_000_000_000;
/// While few wait, one connection in so many is followed before a server of at least this many
/// answers a second.
const FOLLOW_ONE_IN: u16 = 4;
const SAMPLED_FROM_PER_S: f64 = 2_000.0;
/// But all are followed for so long at first: a sample does not tell what the server can do.
const FOLLOWS_ALL_FOR: Nanos = Nanos::from_secs(3);
/// Shares of the answers that came before we saw a byte of a request: silent connections count from
/// the first on, until it is below the second.
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
    began_at: Nanos,
    /// When a SYN came last.
    asked_at: Nanos,
    handshakes: Handshakes,
    response_ns: u64,
    /// How long answers took in the last moments.
    responses: FadingHistogram,
    /// By how many who came later those that were answered were overtaken. One look would be noise:
    /// where its median doubles by chance, connections count for longer.
    overtakes: FadingHistogram,
    /// Since when so many connections have come as would tell, and no answer was seen.
    unanswered_since: Option<Nanos>,
    /// Whether that is so for long: it hangs, or we cannot see its answers.
    is_blind: bool,
    /// Whether most are answered before we see a byte of a request.
    is_silent: bool,
    waiting: Waiting,
}

/// How many waited, at all looks together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Looks, by how many waited.
    pub looks: Histogram,
    /// Those that waited, added up over the looks.
    pub sum: u64,
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
}

/// What is known of a server, for a guard that comes after this one. Its limit in a crowd is not
/// among it: that is found within seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Learnt {
    /// The shortest usual answer.
    pub usual_ns: NonZeroU64,
    /// Answers in a second while nobody is refused.
    pub per_s: f64,
    /// The usual answer of late.
    pub response_ns: u64,
    /// See [`Pace::overtaken_at`].
    pub overtaken_at: NonZeroU32,
    /// Whether most are answered before a byte of a request is seen.
    pub is_silent: bool,
}

impl Pacer {
    /// From now on, with what another guard has learnt.
    pub fn knowing(look: Look, learnt: &Learnt) -> Self {
        let mut pacer = Self::new(look);
        pacer.limit = Limit::knowing(Nanos(learnt.usual_ns.get()), learnt.per_s.clamp(0.0, 1e9));
        (pacer.is_silent, pacer.response_ns) = (learnt.is_silent, learnt.response_ns);
        pacer.pace.overtaken_at =
            learnt.overtaken_at.get().clamp(FEWEST_OVERTAKES as u32, MOST_OVERTAKES as u32);
        pacer.set_epoch();
        pacer.set_pace();
        pacer
    }

    /// For the next guard; `None` while too little is known.
    pub fn learnt(&self) -> Option<Learnt> {
        let (usual, per_s) = self.limit.known()?;
        Some(Learnt {
            usual_ns: NonZeroU64::new(usual.0)?,
            per_s,
            response_ns: self.response_ns,
            overtaken_at: NonZeroU32::new(self.pace.overtaken_at)?,
            is_silent: self.is_silent,
        })
    }

    /// Whether nobody is refused for some seconds, as the server stood idle while others were.
    pub fn has_stopped(&self) -> bool {
        self.limit.has_stopped()
    }

    /// From now on.
    pub fn new(look: Look) -> Self {
        let mut pacer = Self {
            pace: FIRST_PACE,
            limit: Limit::default(),
            last: look,
            shared: look,
            began_at: look.at,
            asked_at: look.at,
            handshakes: Handshakes::default(),
            response_ns: 0,
            responses: FadingHistogram::default(),
            overtakes: FadingHistogram::default(),
            unanswered_since: None,
            is_blind: false,
            is_silent: false,
            waiting: Waiting::default(),
        };
        pacer.set_pace();
        pacer
    }

    /// How many waited that count, at each look so far.
    pub fn waiting(&self) -> Waiting {
        self.waiting
    }

    /// What the kernel should have.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Goes on from here: what was counted since the last time is not what the same listeners asked
    /// for. What was learnt stays.
    pub fn look_anew(&mut self, look: Look) {
        if look.counts.generation != self.last.counts.generation {
            *self = Self::new(look);
            return;
        }
        (self.last, self.shared) = (look, look);
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
        let idle = Nanos(look.idle_ns().saturating_sub(self.last.idle_ns()));
        let new = look.asked_since(&self.last, |demand| demand.new);
        if new > 0 {
            self.asked_at = look.at;
        }
        // Outside a crowd only reserved places refuse SYNs: nothing to learn.
        let has_refused = look.counts.refused_ns > self.last.counts.refused_ns;
        let refused = if has_refused { look.asked_since(&self.last, |demand| demand.refused) } else { 0 };
        let usual = self.usual(&look);
        let counted = |look: &Look| u64::from(look.counts.counted(&self.pace));
        let tick = Tick {
            elapsed,
            // What the limit is now says nothing of those who came long before.
            answered: look.since(&self.last, |counts| counts.answered - counts.answered_piecemeal),
            response: usual,
            waited: Nanos(elapsed.0 * (counted(&look) + counted(&self.last)) / 2),
            idle,
            refused,
            round_trip: Nanos(self.handshakes.usual_ns()),
            waiting_at_onset: look.counts.waiting_at_onset,
            is_refusing: look.counts.is_refusing(&self.pace, look.at),
            is_sampled: self.pace.follow_one_in > 1,
        };
        self.waiting.looks.add(counted(&look));
        self.waiting.sum += counted(&look);
        self.limit.tick(tick);
        let before = std::mem::replace(&mut self.last, look);
        self.share();
        self.count_handshakes(&before);
        self.set_pace();
    }

    /// How long an answer usually takes now.
    fn usual(&mut self, look: &Look) -> Nanos {
        let counts = since(&look.counts.responses_us, &self.last.counts.responses_us);
        self.responses.add(look.at.since(self.last.at), &counts);
        Nanos(self.responses.below(0.5).unwrap_or(0).saturating_mul(750))
    }

    fn set_pace(&mut self) {
        let demand = &self.last.demand;
        self.pace.limit = if self.is_blind || self.has_stopped() { 0 } else { self.limit.now() };
        self.pace.quick_ns = self.limit.quick().map_or(0, |quick| quick.0.max(1));
        self.pace.counts_silent = u16::from(match demand.waits_from {
            WaitsFrom::Found => self.is_silent,
            WaitsFrom::Request => false,
            WaitsFrom::Handshake => true,
        });
        self.pace.answers_per_s = self.limit.per_s() as u32;
        let stay_s = f64::from(self.pace.limit) / self.limit.per_s().max(1.0);
        self.pace.calm_ns = ((2e9 * stay_s) as u64).clamp(SHORTEST_CALM_NS, LONGEST_CALM_NS);
        self.pace.burst_ns = demand.burst_ns();
        self.pace.follow_one_in = if self.may_sample() { FOLLOW_ONE_IN } else { 1 };
        self.set_turns();
    }

    /// Whether it is enough to follow some of the connections: the server is known and fast, no
    /// policy names a limit, and no crowd is there.
    fn may_sample(&self) -> bool {
        let is_calm = !self.last.counts.is_refusing(&self.pace, self.last.at);
        let is_known = self.limit.known().is_some() && self.last.at.since(self.began_at) >= FOLLOWS_ALL_FOR;
        // Of the last second.
        let per_s = self.responses.count();
        is_calm && is_known && !self.last.demand.follows_all && per_s >= SAMPLED_FROM_PER_S
    }

    /// How fast clients are let in, and how soon a difference to the limit is made up for:
    /// README.md.
    fn set_turns(&mut self) {
        let round_trip_s = Nanos(self.handshakes.usual_ns().max(SHORTEST_ROUND_TRIP_NS)).as_secs_f64();
        self.pace.gain_per_s = (1.0 / (MAKES_UP_IN * round_trip_s)) as u32;
        self.pace.completed_ppm = (1e6 * self.handshakes.share()) as u32;
    }

    /// Whether nobody has come or was answered since the last share, and nobody waits or no SYN
    /// has come for long. That time says nothing of what the server can do: one who waits then may
    /// wait for an event.
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
        let before = std::mem::replace(&mut self.shared, self.last);
        let now = &self.last;
        if let Some(response_ns) = median_ns(&now.counts.responses_us, &before.counts.responses_us) {
            self.response_ns = response_ns;
        }
        self.set_epoch();
        if silent >= SILENT_FROM {
            self.is_silent = true;
        } else if silent < SILENT_UNTIL {
            self.is_silent = false;
        }
        self.count_overtakes(&before);
    }

    fn set_epoch(&mut self) {
        let epoch_ns = RESPONSES_PER_EPOCH.saturating_mul(self.response_ns);
        self.pace.epoch_ns = epoch_ns.clamp(SHORTEST_EPOCH_NS, LONGEST_EPOCH_NS);
    }

    /// After how many others a connection counts no more.
    fn count_overtakes(&mut self, before: &Look) {
        let now = &self.last;
        self.overtakes.add(now.at.since(before.at), &since(&now.counts.overtakes, &before.counts.overtakes));
        if self.pace.follow_one_in > 1 && self.overtakes.count() < ENOUGH as f64 {
            return; // those that were left of a busy moment
        }
        let Some(overtakes) = self.overtakes.below(0.5) else { return };
        let overtaken_at = (OVERTAKES * overtakes).clamp(FEWEST_OVERTAKES, MOST_OVERTAKES);
        let overtaken_at = u32::try_from(overtaken_at).expect("it is at most a million");
        self.pace.overtaken_at = overtaken_at;
    }

    /// How long handshakes take, and how many of those that were let in end.
    fn count_handshakes(&mut self, before: &Look) {
        let since = |of| self.last.since(before, of);
        let asked = |of| self.last.asked_since(before, of);
        let ended = since(|counts| counts.established) + asked(|demand| demand.found_full);
        let times = self::since(&self.last.counts.handshakes_us, &before.counts.handshakes_us);
        self.handshakes.add(self.last.at.since(before.at), asked(|demand| demand.let_in), ended, &times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 50 ms each: so many answers of 5 ms, twice as many handshakes of 40 ms, and four times as
    /// many SYNs that were admitted.
    fn look(start: Nanos, number: u64, answered: u64) -> Look {
        let mut counts = Counts {
            answered,
            answered_silent: answered / 8,
            established: 2 * answered,
            ..Counts::default()
        };
        counts.responses_us[13] = answered;
        counts.handshakes_us[16] = 2 * answered;
        let demand = Demand { let_in: 4 * answered, ..Demand::default() };
        Look { at: start + Nanos::from_millis(50 * number), counts, demand }
    }

    #[test]
    fn shares_are_of_what_came_since_the_last() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 1000));
        pacer.tick(look(start, 1, 1016));
        assert_eq!(pacer.pace().epoch_ns, FIRST_PACE.epoch_ns, "sixteen answers are not enough");
        pacer.tick(look(start, 2, 1100));
        let pace = *pacer.pace();
        assert_eq!(pace.epoch_ns, 8 * 6_144_000, "eight of them");
        let mut fast = look(start, 3, 1200);
        fast.counts.responses_us[7] = 1100;
        pacer.tick(fast);
        assert_eq!(pacer.pace().epoch_ns, SHORTEST_EPOCH_NS, "eight of 96 us are less");
        assert_eq!(pace.completed_ppm / 10_000, 50, "two of four");
        assert_eq!(pace.counts_silent, 0);
        assert_eq!(pace.gain_per_s, 10, "in twice 49.152 ms");
    }

    #[test]
    fn guard_that_comes_after_another_knows_what_that_had_learnt() {
        let start = Nanos::from_secs(1);
        let first = look(start, 0, 0);
        let mut pacer = Pacer::new(first);
        assert_eq!(pacer.learnt(), None, "nothing yet");
        (1..=10).for_each(|number| pacer.tick(look(start, number, 100 * number)));
        let learnt = pacer.learnt().expect("a thousand answers");
        let next = Pacer::knowing(first, &learnt);
        assert_eq!(next.learnt(), Some(learnt));
        let of = |pacer: &Pacer| {
            let pace = pacer.pace();
            (pace.limit, pace.quick_ns, pace.epoch_ns, pace.overtaken_at, pace.counts_silent)
        };
        assert_eq!(of(&next), of(&pacer));
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
    fn some_are_followed_before_a_fast_server_that_is_known_while_nobody_is_refused() {
        let (start, one_in) = (Nanos::from_secs(1), |pacer: &Pacer| pacer.pace().follow_one_in);
        for (answers, is_exact, followed) in [(20, false, 1), (500, true, 1), (500, false, 4)] {
            let at = |number: u64| {
                let mut look = look(start, number, answers * number);
                look.demand.follows_all = is_exact;
                look
            };
            let mut pacer = Pacer::new(at(0));
            assert_eq!(one_in(&pacer), 1, "nothing is known");
            (1..=80).for_each(|number| pacer.tick(at(number)));
            assert_eq!(one_in(&pacer), followed, "{answers} in a look, exact: {is_exact}");
            let mut refused = at(81);
            (refused.counts.refused_ns, refused.demand.refused) = (refused.at.0, 10);
            pacer.tick(refused);
            assert_eq!(one_in(&pacer), 1, "somebody was refused");
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
            [(10, 31, 64), (90, 100, 64), (100, 100, 64), (189, 100, 64), (190, 100, 0), (200, 200, 0)]
        {
            let mut look = look(start, number, 0);
            look.counts.established = established;
            pacer.tick(look);
            assert_eq!(pacer.pace().limit, limit, "after {number} looks");
        }
        pacer.tick(look(start, 201, 100));
        assert!(pacer.pace().limit > 0);
    }

    #[test]
    fn what_other_policies_have_refused_is_nothing_to_learn_from() {
        let start = Nanos::from_secs(1);
        let mut pacer = Pacer::new(look(start, 0, 0));
        pacer.tick(look(start, 1, 100));
        let mut after = look(start, 2, 100);
        after.demand.refused = 1_000_000;
        pacer.look_anew(after);
        (3..20).for_each(|number| pacer.tick(Look { at: look(start, number, 0).at, ..after }));
        assert!((32..=64).contains(&pacer.pace().limit), "nobody was refused since");
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
}
