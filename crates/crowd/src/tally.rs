//! What is counted, and what is made of it.

use std::ops::AddAssign;
use std::time::Duration;

use hdrhistogram::Histogram;
use results::{
    BySize, CrowdSummary, GeneratorHealth, GroupCount, Histograms, LatencySummary, Seconds, Statuses,
};
use units::Nanos;

use crate::attempt::Cause;

/// A start this much after the intended one is late.
const LATE: Nanos = Nanos::from_millis(1);
/// Longest time between turns of a generator: more would make attempts late by what is called late.
pub const MAX_COALESCE: Duration = Duration::from_micros(500);
/// More late starts than this share, and the generator is the limit. On a shared machine, kernel
/// threads take a CPU for 2 to 5 ms several times a second, which makes 2 to 3% of the starts late
/// however much time the generator has left.
const MAX_LATE_SHARE: f64 = 0.05;

/// Attempts that sent more SYNs are counted as if they had sent so many. Within a minute Linux
/// sends ten.
const MOST_SYNS: usize = 16;

/// The measured part of a run: `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// After the warm-up.
    pub start: Nanos,
    /// When attempts stop.
    pub end: Nanos,
}

impl Window {
    fn contains(&self, moment: Nanos) -> bool {
        (self.start..self.end).contains(&moment)
    }
}

/// Counts and histograms of a run.
#[derive(Debug)]
pub struct Tally {
    window: Window,
    /// Attempts of the window by cause, indexed by [`Cause`].
    causes: [u64; Cause::COUNT],
    /// Replies to attempts of the window.
    statuses: Statuses,
    /// Attempts of the window that sent their first SYN.
    sent: u64,
    /// Users who began in the window and gave up.
    gave_up: u64,
    /// Events in the window.
    replies: u64,
    reloads: u64,
    syns: u64,
    starts: u64,
    /// Attempts that ended in the window, and of them the replies, by SYNs sent; the first place is
    /// for one, the last for that many or more.
    ended_by_syns: [u64; MOST_SYNS],
    answered_by_syns: [u64; MOST_SYNS],
    late: u64,
    late_max: Nanos,
    /// Attempts that never left, since the start of the run.
    not_sent: u64,
    /// Microseconds.
    response: Histogram<u64>,
    /// Of all replies since it was last taken, in the window or not; microseconds.
    interval: Histogram<u64>,
    /// From when their users began, microseconds.
    user: Histogram<u64>,
    /// Microseconds.
    refusal: Histogram<u64>,
    /// To the first byte of each reply, microseconds.
    first_byte: Histogram<u64>,
    /// Of replies, in the window.
    bytes: u64,
    sizes: BySize,
    seconds: Seconds,
    groups: Vec<GroupCount>,
    /// Since the start of the run.
    pub totals: Totals,
}

/// Counts since the start of the run, for the progress line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Attempts whose intended start has come.
    pub offered: u64,
    /// SYNs sent, retransmissions included.
    pub syns: u64,
    /// Attempts that were answered.
    pub ok: u64,
    /// Complete replies.
    pub replies: u64,
    /// Those, by the class of their status.
    pub statuses: Statuses,
    /// Attempts refused by a RST to the SYN.
    pub refused: u64,
    /// Attempts reset later.
    pub reset: u64,
    /// Attempts that timed out.
    pub timed_out: u64,
    /// Attempts that failed otherwise.
    pub failed: u64,
    /// Sum of the response times of complete replies, microseconds.
    pub response_us: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, other: Self) {
        // Every field by its name: a new one is not forgotten.
        let Self { offered, syns, ok, replies, statuses, refused, reset, timed_out, failed, response_us } =
            other;
        self.offered += offered;
        self.syns += syns;
        self.ok += ok;
        self.replies += replies;
        self.statuses += statuses;
        self.refused += refused;
        self.reset += reset;
        self.timed_out += timed_out;
        self.failed += failed;
        self.response_us += response_us;
    }
}

impl Tally {
    /// Nothing counted yet.
    pub fn new(window: Window, groups: u8) -> Self {
        let histogram = || Histogram::new(3).expect("3 significant digits are supported");
        Self {
            window,
            causes: [0; Cause::COUNT],
            statuses: Statuses::default(),
            sent: 0,
            gave_up: 0,
            replies: 0,
            reloads: 0,
            syns: 0,
            starts: 0,
            ended_by_syns: [0; MOST_SYNS],
            answered_by_syns: [0; MOST_SYNS],
            late: 0,
            late_max: Nanos::ZERO,
            not_sent: 0,
            response: histogram(),
            interval: histogram(),
            user: histogram(),
            refusal: histogram(),
            first_byte: histogram(),
            bytes: 0,
            sizes: BySize::default(),
            seconds: Seconds::default(),
            groups: vec![GroupCount::default(); groups.into()],
            totals: Totals::default(),
        }
    }

    /// An attempt starts at `now`.
    pub fn started(&mut self, intended_start: Nanos, now: Nanos) {
        self.totals.offered += 1;
        if !self.window.contains(intended_start) {
            return;
        }
        self.sent += 1;
        let delay = now.since(intended_start);
        self.late += u64::from(delay > LATE);
        self.late_max = self.late_max.max(delay);
    }

    /// A SYN leaves; `first` when it is not a retransmission.
    pub fn syn(&mut self, first: bool, now: Nanos) {
        self.totals.syns += 1;
        if self.window.contains(now) {
            self.syns += 1;
            self.starts += u64::from(first);
        }
    }

    /// Bytes of a reply have come.
    pub fn received(&mut self, bytes: usize, now: Nanos) {
        if self.window.contains(now) {
            self.bytes += bytes as u64;
        }
    }

    /// The first byte of a reply has come, to a request that should have been sent then.
    pub fn begun(&mut self, asked_at: Nanos, now: Nanos) {
        if !self.window.contains(now) {
            return;
        }
        let waited_us = now.since(asked_at).as_micros();
        record(&mut self.first_byte, waited_us);
        if let Some(second) = self.second(asked_at) {
            self.seconds.begun(second, waited_us);
        }
    }

    /// Which second of the window a moment is in.
    fn second(&self, moment: Nanos) -> Option<u64> {
        self.window.contains(moment).then(|| moment.since(self.window.start).0 / 1_000_000_000)
    }

    /// A reply of so many bytes without its head is complete, to a request that should have been
    /// sent then; if it is the first on its connection, of a user who began then.
    pub fn replied(&mut self, bytes: u64, asked_at: Nanos, user_start: Option<Nanos>, now: Nanos) {
        let waited_us = now.since(asked_at).as_micros();
        self.totals.replies += 1;
        self.totals.response_us += waited_us;
        record(&mut self.interval, waited_us);
        if self.window.contains(now) {
            self.replies += 1;
            record(&mut self.response, waited_us);
            if let Some(user_start) = user_start {
                record(&mut self.user, now.since(user_start).as_micros());
            }
            let first_asked = user_start.unwrap_or(asked_at);
            let user_us = now.since(first_asked).as_micros();
            self.sizes.replied(bytes, waited_us, user_us);
            if let Some(second) = self.second(first_asked) {
                self.seconds.replied(second, user_us);
            }
        }
    }

    /// That was of a user of this group, who first asked then.
    pub fn replied_to_group(&mut self, group: usize, user_start: Nanos, now: Nanos) {
        if self.window.contains(now) {
            self.groups[group].replies += 1;
            self.groups[group].user_us += now.since(user_start).as_micros();
        }
    }

    /// Response times since [`Tally::begin_interval`], microseconds.
    pub fn interval(&self) -> &Histogram<u64> {
        &self.interval
    }

    /// Forgets the response times of the interval.
    pub fn begin_interval(&mut self) {
        self.interval.reset();
    }

    /// A user loads the page again.
    pub fn reloaded(&mut self, now: Nanos) {
        self.reloads += u64::from(self.window.contains(now));
    }

    /// A request for so many bytes ends without a reply, and is not tried again.
    pub fn incomplete(&mut self, bytes: u64, now: Nanos) {
        if self.window.contains(now) {
            self.sizes.given_up(bytes);
        }
    }

    /// A user who began then does not try again.
    pub fn gave_up(&mut self, user_start: Nanos) {
        self.gave_up += u64::from(self.window.contains(user_start));
    }

    /// An attempt that sent so many SYNs ends, in its one cause.
    pub fn ended(&mut self, cause: Cause, intended_start: Nanos, syns: u32, now: Nanos) {
        let waited_us = now.since(intended_start).as_micros();
        match cause {
            Cause::Ok => self.totals.ok += 1,
            Cause::Refused => self.totals.refused += 1,
            Cause::Reset => self.totals.reset += 1,
            Cause::TimedOutConnect | Cause::TimedOutResponse => self.totals.timed_out += 1,
            Cause::NotSent => {
                self.totals.offered += 1;
                self.not_sent += 1;
            }
            Cause::NoPort => {
                self.totals.offered += 1;
                self.totals.failed += 1;
            }
            _ => self.totals.failed += 1,
        }
        if self.window.contains(intended_start) {
            self.causes[cause as usize] += 1;
        }
        if self.window.contains(now) {
            self.ended_after(syns, cause);
            if cause == Cause::Refused {
                record(&mut self.refusal, waited_us);
            }
        }
    }

    /// The status of a reply that is complete, to an attempt that should have started then; once
    /// with each [`Tally::replied`].
    pub fn status(&mut self, statuses: Statuses, intended_start: Nanos) {
        self.totals.statuses += statuses;
        if self.window.contains(intended_start) {
            self.statuses += statuses;
        }
    }

    /// Attempts since the start of the run that have no cause yet, if each has one at most.
    pub fn open(&self) -> Option<u64> {
        let Totals { offered, ok, refused, reset, timed_out, failed, .. } = self.totals;
        offered.checked_sub(ok + refused + reset + timed_out + failed + self.not_sent)
    }

    /// What is still open when the run stops has not sent all its SYNs.
    fn ended_after(&mut self, syns: u32, cause: Cause) {
        let Some(place) = (syns as usize).min(MOST_SYNS).checked_sub(1) else { return };
        self.ended_by_syns[place] += u64::from(cause != Cause::Unfinished);
        self.answered_by_syns[place] += u64::from(cause == Cause::Ok);
    }

    /// The run as a whole, when it stopped at `stopped`. A run that was stopped early has a shorter
    /// window.
    pub fn summary(&self, stopped: Nanos, mut generator: GeneratorHealth) -> CrowdSummary {
        let window_s = self.window.end.min(stopped).since(self.window.start).as_secs_f64();
        let per_s = |count: u64| {
            if window_s > 0.0 { count as f64 / window_s } else { 0.0 }
        };
        let share = |part: u64, whole: u64| {
            if whole > 0 { part as f64 / whole as f64 } else { 0.0 }
        };
        let cause = |cause: Cause| self.causes[cause as usize];
        let offered = self.causes.iter().sum();
        generator.late_share = share(self.late, self.sent);
        generator.late_max_ms = self.late_max.as_millis_f64();
        judge(&mut generator, cause(Cause::NotSent));
        CrowdSummary {
            window_s,
            offered_per_s: per_s(offered),
            goodput_per_s: per_s(self.replies),
            syns_per_s: per_s(self.syns),
            offered,
            sent: self.sent,
            ok: cause(Cause::Ok),
            refused: cause(Cause::Refused),
            reset: cause(Cause::Reset),
            timed_out_connect: cause(Cause::TimedOutConnect),
            timed_out_response: cause(Cause::TimedOutResponse),
            aborted: cause(Cause::Aborted),
            malformed: cause(Cause::Malformed),
            no_port: cause(Cause::NoPort),
            not_sent: cause(Cause::NotSent),
            unfinished: cause(Cause::Unfinished),
            statuses: self.statuses,
            syns_per_attempt: share(self.syns, self.starts),
            ended_by_syns: without_last_zeros(&self.ended_by_syns),
            answered_by_syns: without_last_zeros(&self.answered_by_syns),
            reloads: self.reloads,
            gave_up: self.gave_up,
            user_ms: LatencySummary::from_micros(&self.user),
            histograms: Histograms::of(&self.response, &self.user, &self.refusal, &self.first_byte),
            response_ms: LatencySummary::from_micros(&self.response),
            refusal_ms: LatencySummary::from_micros(&self.refusal),
            first_byte_ms: LatencySummary::from_micros(&self.first_byte),
            bytes_per_s: per_s(self.bytes),
            sizes: self.sizes.clone(),
            seconds: self.seconds.clone(),
            groups: if self.groups.len() > 1 { self.groups.clone() } else { Vec::new() },
            shards: Vec::new(),
            generator,
        }
    }
}

fn record(histogram: &mut Histogram<u64>, micros: u64) {
    histogram.record(micros).expect("an auto-resizing histogram takes every time of a run");
}

fn without_last_zeros(counts: &[u64]) -> Vec<u64> {
    let len = counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
    counts[..len].to_vec()
}

/// Decides whether the generator was the limit, and says why.
fn judge(health: &mut GeneratorHealth, not_sent: u64) {
    if health.late_share > MAX_LATE_SHARE {
        health.reasons.push(format!(
            "{:.1}% of the attempts started more than 1 ms late (the latest by {:.0} ms)",
            health.late_share * 100.0,
            health.late_max_ms
        ));
    }
    if health.frames_lost > 0 {
        health
            .reasons
            .push(format!("{} frames were lost in the generator's own receive ring", health.frames_lost));
    }
    if health.frames_unsent > 0 {
        health.reasons.push(format!("{} frames found no buffer to be sent from", health.frames_unsent));
    }
    if not_sent > 0 {
        health.reasons.push(format!("{not_sent} attempts were never sent"));
    }
    health.limited = !health.reasons.is_empty();
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Window = Window { start: Nanos::from_secs(1), end: Nanos::from_secs(3) };

    #[test]
    fn causes_of_the_window_sum_to_what_was_offered() {
        let mut tally = Tally::new(WINDOW, 1);
        let causes = [Cause::Ok, Cause::Refused, Cause::Reset, Cause::TimedOutConnect, Cause::Unfinished];
        for (index, cause) in causes.into_iter().enumerate() {
            for start_ms in [500, 1500 + index as u64, 3500] {
                let start = Nanos::from_millis(start_ms);
                tally.started(start, start);
                tally.ended(cause, start, 1, start + Nanos::from_millis(100));
            }
        }
        let summary = tally.summary(Nanos::from_secs(4), GeneratorHealth::default());
        assert_eq!(summary.offered, 5, "only the starts inside the window");
        assert_eq!(
            summary.ok + summary.refused + summary.reset + summary.timed_out_connect + summary.unfinished,
            5
        );
        assert_eq!(summary.offered_per_s, 2.5);
        assert!(!summary.generator.limited);
    }

    #[test]
    fn rates_and_times_are_of_events_in_the_window() {
        let mut tally = Tally::new(WINDOW, 1);
        // Started in the warm-up, answered in the window: part of its goodput, not of its cohort.
        tally.begun(Nanos::from_millis(900), Nanos::from_millis(1500));
        tally.received(700, Nanos::from_millis(1500));
        tally.received(300, Nanos::from_millis(3000));
        tally.replied(512, Nanos::from_millis(900), Some(Nanos::from_millis(100)), Nanos::from_millis(1900));
        tally.ended(Cause::Ok, Nanos::from_millis(900), 2, Nanos::from_millis(1900));
        let summary = tally.summary(WINDOW.end, GeneratorHealth::default());
        assert_eq!((summary.offered, summary.ok), (0, 0));
        assert_eq!(summary.goodput_per_s, 0.5);
        assert_eq!(summary.response_ms.count, 1);
        assert!((summary.response_ms.mean - 1000.0).abs() < 1.0);
        assert!((summary.user_ms.mean - 1800.0).abs() < 2.0, "with the attempts before it");
        assert!((summary.first_byte_ms.mean - 600.0).abs() < 1.0);
        assert_eq!(summary.bytes_per_s, 350.0, "of the bytes in the window");
        let counts: Vec<u64> = summary.sizes.classes.iter().map(|class| class.replies).collect();
        assert_eq!(counts, [1, 0, 0, 0, 0]);
        assert_eq!(summary.sizes.classes[0].mean_ms(), Some(1800.0));
        assert_eq!(summary.seconds.means_ms(), [], "nobody asked in the window");
    }

    #[test]
    fn one_second_means_are_of_those_who_asked_in_it_first() {
        let mut tally = Tally::new(WINDOW, 1);
        let at = Nanos::from_millis;
        // Asked in the window's second second; again, after an abort, in its last.
        tally.replied(60_000, at(2500), Some(at(2100)), at(2900));
        tally.replied(2_000, at(1100), None, at(2900));
        tally.begun(at(2500), at(2600));
        tally.incomplete(60_000, at(2900));
        tally.incomplete(60_000, at(3000));
        let summary = tally.summary(WINDOW.end, GeneratorHealth::default());
        assert_eq!(summary.seconds.means_ms(), [Some(1800.0), Some(800.0)]);
        assert_eq!(summary.seconds.first_byte_means_ms(), [None, Some(100.0)]);
        assert_eq!(summary.sizes.mean_of_very_largest_ms(), Some(800.0), "from the first try");
        let last = summary.sizes.classes[4];
        assert_eq!((last.replies, last.response_us, last.incomplete), (1, 400_000, 1));
    }

    #[test]
    fn ended_attempts_are_counted_by_the_syns_that_they_sent() {
        let mut tally = Tally::new(WINDOW, 1);
        let start = Nanos::from_millis(1500);
        let inside = Nanos::from_millis(2900);
        tally.ended(Cause::Ok, start, 1, inside);
        tally.ended(Cause::Ok, start, 3, inside);
        tally.ended(Cause::TimedOutConnect, start, 3, inside);
        tally.ended(Cause::NotSent, start, 0, inside);
        tally.ended(Cause::Unfinished, start, 2, inside);
        tally.ended(Cause::Ok, start, 1, Nanos::from_millis(3100));
        let summary = tally.summary(WINDOW.end, GeneratorHealth::default());
        assert_eq!(summary.ended_by_syns, [1, 0, 2]);
        assert_eq!(summary.answered_by_syns, [1, 0, 1]);
    }

    #[test]
    fn late_starts_mark_the_generator_as_the_limit() {
        let mut tally = Tally::new(WINDOW, 1);
        let start = Nanos::from_millis(1500);
        tally.started(start, start + Nanos::from_millis(7));
        let generator = tally.summary(WINDOW.end, GeneratorHealth::default()).generator;
        assert!(generator.limited);
        assert!(generator.reasons[0].contains("by 7 ms"), "{:?}", generator.reasons);
    }

    #[test]
    fn lost_frames_mark_the_generator_as_the_limit() {
        let health = GeneratorHealth { frames_lost: 3, ..GeneratorHealth::default() };
        let generator = Tally::new(WINDOW, 1).summary(WINDOW.end, health).generator;
        assert!(generator.limited);
        assert!(generator.reasons[0].starts_with("3 frames"), "{:?}", generator.reasons);
    }
}
