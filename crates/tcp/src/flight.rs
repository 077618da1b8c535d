//! What was sent and is not acknowledged: when, and what became of it. RACK (RFC 8985) and RFC 6675
//! find in it what is lost.
//!
//! As the kernel keeps it for each segment (`struct tcp_skb_cb`, Linux 6.18 `include/net/tcp.h`),
//! this keeps it for each run of bytes that have had the same fate.

use std::collections::VecDeque;

use units::Nanos;
use wire::SeqNumber;

/// Duplicate acknowledgments, or pieces above a hole, that make the hole a loss (RFC 6675 section
/// 2, `DupThresh`). Linux raises it where a path reorders; this does not.
pub(crate) const DUPLICATES: u32 = 3;
/// Runs that are kept at most: what a peer says beyond them is as if it had not been heard, so that
/// none makes us remember without end.
const MOST_RUNS: usize = 1 << 16;

/// Bytes from `snd_una` to `snd_max`.
#[derive(Debug)]
pub(crate) struct Flight {
    /// Ascending, without gaps, from `start` on.
    runs: VecDeque<Run>,
    start: SeqNumber,
    /// Bytes of the runs that have arrived, of those that are lost, and of those that are out
    /// again.
    arrived: u32,
    lost: u32,
    resent: u32,
    /// Bytes that were found to be lost, ever; wraps (`tp->lost`).
    losses: u32,
    /// Of all that has arrived, what was sent last (`rack.mstamp`, `rack.end_seq`).
    newest: Sending,
    /// Of what is sent now.
    turn: u32,
    /// How long what arrived last has taken (`rack.rtt_us`), and the shortest time ever;
    /// [`Nanos::MAX`] before the first.
    took: Nanos,
    least: Nanos,
    timing: Timing,
}

/// What an acknowledgment says about round trips.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Timing {
    /// When the first byte was sent that is acknowledged now, was never sent again, and was not
    /// known to have arrived (`first_ackt`).
    first_acknowledged: Option<Nanos>,
    /// Something that is acknowledged now was sent again, ever (`FLAG_RETRANS_DATA_ACKED`).
    is_ambiguous: bool,
    /// The first byte, and when it was sent, that is selectively acknowledged now and was never
    /// sent again (`first_sackt`).
    first_arrived: Option<(SeqNumber, Nanos)>,
}

impl Timing {
    /// When that was sent whose round trip is over now; `None` where nobody can say (Karn). What is
    /// acknowledged goes before what is selectively (`tcp_ack_update_rtt()`, Linux 6.18
    /// `net/ipv4/tcp_input.c`).
    pub(crate) fn sent_at(&self) -> Option<Nanos> {
        let acknowledged = self.first_acknowledged.filter(|_| !self.is_ambiguous);
        acknowledged.or(self.first_arrived.map(|(_, at)| at))
    }
}

/// Bytes up to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    /// The last one of it.
    sent: Sending,
    /// Selectively acknowledged (`TCPCB_SACKED_ACKED`); then it is neither lost nor out again.
    is_arrived: bool,
    /// It, or what was sent again of it, is lost (`TCPCB_LOST`).
    is_lost: bool,
    /// It is out again (`TCPCB_SACKED_RETRANS`), or was once (`TCPCB_EVER_RETRANS`).
    is_resent: bool,
    was_resent: bool,
}

/// When bytes were sent, and where they end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sending {
    at: Nanos,
    /// Tells what was sent again from what was sent before and after it at the same time: in
    /// virtual time an instant is long.
    turn: u32,
    end: SeqNumber,
}

/// A range of the stream.
pub(crate) type Range = (SeqNumber, SeqNumber);

impl Sending {
    /// Whether it was sent after the other (`tcp_skb_sent_after()`).
    fn is_after(&self, other: &Self) -> bool {
        let (this, that) = ((self.at, self.turn), (other.at, other.turn));
        this > that || this == that && other.end < self.end
    }
}

impl Run {
    fn new(sent: Sending) -> Self {
        Self { sent, is_arrived: false, is_lost: false, is_resent: false, was_resent: false }
    }

    fn end(&self) -> SeqNumber {
        self.sent.end
    }

    /// It is lost, and waits to be sent again.
    fn waits(&self) -> bool {
        self.is_lost && !self.is_resent
    }
}

impl Flight {
    /// Nothing was sent; the stream begins at `start`, and so long took the handshake, if that is
    /// known.
    pub(crate) fn new(start: SeqNumber, handshake: Option<Nanos>) -> Self {
        Self {
            runs: VecDeque::new(),
            start,
            arrived: 0,
            lost: 0,
            resent: 0,
            losses: 0,
            newest: Sending { at: Nanos::ZERO, turn: 0, end: start },
            turn: 0,
            took: Nanos::ZERO,
            least: handshake.unwrap_or(Nanos::MAX),
            timing: Timing::default(),
        }
    }

    /// Everything below `end` was sent, what is new of it now.
    pub(crate) fn send(&mut self, end: SeqNumber, now: Nanos) {
        if end <= self.end() {
            return;
        }
        let sent = Sending { at: now, turn: self.turn, end };
        match self.runs.back_mut() {
            Some(last) if *last == Run::new(Sending { end: last.end(), ..sent }) => last.sent = sent,
            _ => self.runs.push_back(Run::new(sent)),
        }
    }

    /// A range is sent again, as much of it as has not arrived.
    pub(crate) fn resend(&mut self, (from, to): Range, now: Nanos) {
        let mut start = from;
        let runs = self.split(from)..self.split(to);
        for run in self.runs.range_mut(runs) {
            let bytes = run.end() - start;
            start = run.end();
            if run.is_arrived {
                continue;
            }
            if !run.is_resent {
                self.resent += bytes;
            }
            (run.is_resent, run.was_resent) = (true, true);
            run.sent = Sending { at: now, turn: self.turn.wrapping_add(1), ..run.sent };
        }
        self.turn = self.turn.wrapping_add(2);
    }

    /// Everything below `una` is acknowledged. Gives the bytes of that which were known to have
    /// arrived.
    pub(crate) fn acknowledge(&mut self, una: SeqNumber, now: Nanos) -> u32 {
        let mut known = 0;
        while let Some(&run) = self.runs.front().filter(|_| self.start < una) {
            let end = if una < run.end() { una } else { run.end() };
            let bytes = end - self.start;
            self.timing.is_ambiguous |= run.was_resent;
            if !run.is_arrived && !run.was_resent {
                self.timing.first_acknowledged.get_or_insert(run.sent.at);
            }
            if run.is_arrived {
                known += bytes;
                self.arrived -= bytes;
            } else {
                self.take(Run { sent: Sending { end, ..run.sent }, ..run }, bytes, now);
            }
            self.start = end;
            if end == run.end() {
                self.runs.pop_front();
            }
        }
        self.start = una;
        known
    }

    /// A range has arrived out of order. Gives the bytes of it that are news.
    pub(crate) fn arrive(&mut self, (from, to): Range, now: Nanos) -> u32 {
        if self.runs.len() >= MOST_RUNS {
            return 0;
        }
        let (mut start, mut new) = (from, 0);
        let first = self.split(from);
        let mut end = self.split(to);
        for at in first..end {
            let run = self.runs[at];
            let bytes = run.end() - start;
            if !run.is_arrived {
                new += bytes;
                self.arrived += bytes;
                self.take(run, bytes, now);
                if !run.was_resent && self.timing.first_arrived.is_none_or(|(seq, _)| start < seq) {
                    self.timing.first_arrived = Some((start, run.sent.at));
                }
                let was_resent = run.was_resent;
                self.runs[at] = Run { is_arrived: true, was_resent, ..Run::new(run.sent) };
            }
            start = run.end();
        }
        // All of them are one run now, with those that it touches.
        let mut first = first;
        if first > 0 && self.runs[first - 1].is_arrived {
            first -= 1;
        }
        if self.runs.get(end).is_some_and(|run| run.is_arrived) {
            end += 1;
        }
        if let Some(last) = end.checked_sub(1).filter(|last| first < *last) {
            self.runs[last].was_resent = self.runs.range(first..=last).any(|run| run.was_resent);
            self.runs.drain(first..last);
        }
        new
    }

    /// What was heard since the last call says so much about round trips.
    pub(crate) fn take_timing(&mut self) -> Timing {
        std::mem::take(&mut self.timing)
    }

    /// Bytes have arrived: what that says of the others (`tcp_rack_advance()`, Linux 6.18
    /// `net/ipv4/tcp_recovery.c`).
    fn take(&mut self, run: Run, bytes: u32, now: Nanos) {
        if run.is_lost {
            self.lost -= bytes;
        }
        if run.is_resent {
            self.resent -= bytes;
        }
        let took = now.since(run.sent.at);
        if run.was_resent && took < self.least {
            return; // it may be the first one that has arrived
        }
        if !run.was_resent {
            self.least = self.least.min(took);
        }
        self.took = took;
        if run.sent.is_after(&self.newest) {
            self.newest = run.sent;
        }
    }

    /// Finds out what is lost: what was sent before something that has arrived, and has not come
    /// `wait` after it should have (RFC 8985 section 6.2, step 5; `tcp_rack_detect_loss()`). Gives
    /// when the last of those that were overtaken will be, if they do not come.
    pub(crate) fn find_overtaken(&mut self, wait: Nanos, now: Nanos) -> Option<Nanos> {
        let (mut start, mut last) = (self.start, None);
        for run in &mut self.runs {
            let bytes = run.end() - start;
            start = run.end();
            if run.is_arrived || run.waits() {
                continue;
            }
            if !self.newest.is_after(&run.sent) {
                if run.is_resent {
                    continue;
                }
                break; // and so were all that follow
            }
            let lost_at = run.sent.at + self.took + wait;
            if now < lost_at {
                last = last.max(Some(lost_at));
                continue;
            }
            self.losses = self.losses.wrapping_add(bytes);
            if run.is_lost {
                run.is_resent = false;
                self.resent -= bytes;
            } else {
                run.is_lost = true;
                self.lost += bytes;
            }
        }
        last
    }

    /// What is missing below `end`, where a run begins, is lost, whether it was sent again or not.
    pub(crate) fn lose_below(&mut self, end: SeqNumber) {
        let mut start = self.start;
        for run in self.runs.iter_mut().take_while(|run| run.end() <= end) {
            if !run.is_arrived && !run.is_lost {
                run.is_lost = true;
                self.lost += run.end() - start;
                self.losses = self.losses.wrapping_add(run.end() - start);
            }
            start = run.end();
        }
    }

    /// The first segment of so many bytes is lost, if it has not arrived.
    pub(crate) fn lose_first(&mut self, mss: u32) {
        let (from, to) = self.first_missing();
        let end = from + (to - from).min(mss);
        self.split(end);
        self.lose_below(end);
    }

    /// The timer went off: what is missing is lost, whether it was sent again or not, but for what
    /// was sent a moment ago where times are looked at (`tcp_timeout_mark_lost()`, Linux 6.18
    /// `net/ipv4/tcp_input.c`).
    pub(crate) fn lose_all(&mut self, looks_at_times: bool, now: Nanos) {
        if self.has_first_arrived() {
            // The peer has thrown away what it had (RFC 2018 section 8).
            self.arrived = 0;
            self.runs.iter_mut().for_each(|run| run.is_arrived = false);
        }
        let (mut start, took, first) = (self.start, self.took, self.start);
        for run in &mut self.runs {
            let bytes = run.end() - start;
            let is_recent = looks_at_times && start != first && now < run.sent.at + took;
            start = run.end();
            if run.is_arrived || run.waits() || is_recent {
                continue;
            }
            self.losses = self.losses.wrapping_add(bytes);
            if !run.is_lost {
                run.is_lost = true;
                self.lost += bytes;
            }
            if run.is_resent {
                run.is_resent = false;
                self.resent -= bytes;
            }
        }
    }

    /// Bytes that are on their way, as far as one can know (RFC 6675 section 4, `SetPipe()`;
    /// `tcp_packets_in_flight()`).
    pub(crate) fn in_flight(&self) -> u32 {
        self.end() - self.start - self.arrived - self.lost + self.resent
    }

    /// When the first byte was sent, for the last time; `None` if nothing is out.
    pub(crate) fn first_sent_at(&self) -> Option<Nanos> {
        self.runs.front().map(|run| run.sent.at)
    }

    /// Bytes that have arrived out of order.
    pub(crate) fn arrived(&self) -> u32 {
        self.arrived
    }

    /// Whether anything is lost that has not arrived since.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost > 0
    }

    /// Bytes that were found to be lost so far; wraps.
    pub(crate) fn losses(&self) -> u32 {
        self.losses
    }

    /// The shortest time that anything has taken; [`Nanos::MAX`] before it is known
    /// (`tcp_min_rtt()`, which forgets after five minutes).
    pub(crate) fn least(&self) -> Nanos {
        self.least
    }

    /// Whether the peer says that it has what comes next, and does not acknowledge it: it has
    /// thrown something away.
    pub(crate) fn has_first_arrived(&self) -> bool {
        self.runs.front().is_some_and(|run| run.is_arrived)
    }

    /// From the first byte to where something has arrived, or all that is out.
    pub(crate) fn first_missing(&self) -> Range {
        if self.has_first_arrived() {
            return (self.start, self.end());
        }
        self.first(|run| !run.is_arrived).unwrap_or((self.start, self.end()))
    }

    /// The first range that is lost and was not sent again.
    pub(crate) fn next_lost(&self) -> Option<Range> {
        self.first(Run::waits).filter(|_| self.lost > 0)
    }

    /// The first range below something that has arrived that is missing, and was neither found to
    /// be lost nor sent again.
    pub(crate) fn next_doubtful(&self) -> Option<Range> {
        let last = self.runs.iter().rposition(|run| run.is_arrived)?;
        let end = self.end_of(last);
        self.first(|run| !run.is_arrived && !run.is_lost && !run.is_resent).filter(|range| range.0 < end)
    }

    /// Up to where what is missing counts as lost: below as many pieces, or more bytes than as many
    /// segments less one, as [`DUPLICATES`] says (RFC 6675 section 4, `IsLost()`, which holds for
    /// all that is below where it holds).
    pub(crate) fn lost_below(&self, mss: u32) -> Option<SeqNumber> {
        let (mut pieces, mut bytes) = (0, 0);
        for at in (0..self.runs.len()).rev().filter(|at| self.runs[*at].is_arrived) {
            let start = self.start_of(at);
            pieces += 1;
            bytes += self.runs[at].end() - start;
            if pieces >= DUPLICATES || bytes > (DUPLICATES - 1) * mss {
                return Some(start);
            }
        }
        None
    }

    fn end(&self) -> SeqNumber {
        self.runs.back().map_or(self.start, |run| run.end())
    }

    fn start_of(&self, at: usize) -> SeqNumber {
        if at == 0 { self.start } else { self.runs[at - 1].end() }
    }

    fn end_of(&self, at: usize) -> SeqNumber {
        self.runs[at].end()
    }

    /// The first range of which this holds.
    fn first(&self, holds: impl Fn(&Run) -> bool) -> Option<Range> {
        let from = self.runs.iter().position(&holds)?;
        let runs = self.runs.iter().skip(from).take_while(|run| holds(run)).count();
        Some((self.start_of(from), self.end_of(from + runs - 1)))
    }

    /// Has a run end at `at`, and gives the index of the one that begins there.
    fn split(&mut self, at: SeqNumber) -> usize {
        let index = self.runs.partition_point(|run| run.end() <= at);
        if let Some(&run) = self.runs.get(index).filter(|_| self.start_of(index) < at) {
            self.runs.insert(index, Run { sent: Sending { end: at, ..run.sent }, ..run });
            return index + 1;
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const START: SeqNumber = SeqNumber(u32::MAX - 5000);
    const MSS: u32 = 1000;

    fn at(millis: u64) -> Nanos {
        Nanos::from_millis(millis)
    }

    fn range(from: u32, to: u32) -> Range {
        (START + from, START + to)
    }

    /// So many bytes are out, sent at once; these pieces have arrived.
    fn flight(bytes: u32, pieces: &[(u32, u32)]) -> Flight {
        let mut flight = Flight::new(START, None);
        flight.send(START + bytes, Nanos::ZERO);
        for (from, to) in pieces {
            flight.arrive(range(*from, *to), Nanos::ZERO);
        }
        flight
    }

    fn arrived(flight: &Flight) -> Vec<(u32, u32)> {
        let runs = (0..flight.runs.len()).filter(|at| flight.runs[*at].is_arrived);
        runs.map(|at| (flight.start_of(at) - START, flight.end_of(at) - START)).collect()
    }

    #[test]
    fn pieces_that_touch_are_one() {
        let mut flight = flight(9000, &[(1000, 2000), (3000, 4000), (5000, 6000)]);
        assert_eq!(flight.arrive(range(2000, 3000), at(0)), 1000);
        assert_eq!(arrived(&flight), [(1000, 4000), (5000, 6000)]);
        assert_eq!(flight.arrive(range(500, 7000), at(0)), 6500 - 4000);
        assert_eq!(arrived(&flight), [(500, 7000)]);
        assert_eq!(flight.arrive(range(600, 700), at(0)), 0);
        assert_eq!(flight.acknowledge(START + 600, at(0)), 100);
        assert!(flight.has_first_arrived());
        assert_eq!(flight.acknowledge(START + 7000, at(0)), 6400);
        assert_eq!((arrived(&flight), flight.in_flight()), (vec![], 2000));
    }

    /// RFC 6675 section 4: `DupThresh` pieces above, or more than `DupThresh - 1` full segments.
    #[test]
    fn hole_is_lost_below_three_pieces_or_more_than_two_segments() {
        let lost_below = |pieces: &[(u32, u32)]| flight(9000, pieces).lost_below(MSS).map(|seq| seq - START);
        assert_eq!(lost_below(&[(1000, 3000)]), None);
        assert_eq!(lost_below(&[(1000, 3001)]), Some(1000));
        assert_eq!(lost_below(&[(1000, 1010), (1020, 1030)]), None);
        assert_eq!(lost_below(&[(1000, 1010), (1020, 1030), (1040, 1050)]), Some(1000));
        assert_eq!(lost_below(&[(1000, 2000), (3000, 4000), (5000, 7500)]), Some(5000));
    }

    /// RFC 8985 section 6.2: by when each was sent, and of what was sent at once by its place.
    #[test]
    fn what_was_sent_before_something_that_has_arrived_is_lost_a_while_after_it_should_have_come() {
        let mut flight = Flight::new(START, None);
        for n in 1..=4 {
            flight.send(START + n * MSS, at(u64::from(n)));
        }
        flight.send(START + 6 * MSS, at(4));
        flight.arrive(range(4 * MSS, 5 * MSS), at(54));
        // The first was sent at 1 ms, the fourth at 4 ms, and what arrived, at 4 ms, has taken 50.
        assert_eq!(flight.find_overtaken(at(10), at(54)), Some(at(64)));
        assert_eq!((flight.in_flight(), flight.next_lost()), (5 * MSS, None));
        assert_eq!(flight.find_overtaken(at(10), at(62)), Some(at(64)));
        assert_eq!(flight.next_lost(), Some(range(0, 2 * MSS)));
        assert_eq!(flight.find_overtaken(at(10), at(64)), None);
        assert_eq!((flight.next_lost(), flight.in_flight()), (Some(range(0, 4 * MSS)), MSS));
    }

    #[test]
    fn what_is_sent_again_is_lost_again_when_something_that_was_sent_later_arrives() {
        let mut flight = flight(4 * MSS, &[]);
        flight.arrive(range(MSS, 3 * MSS), at(50));
        flight.find_overtaken(Nanos::ZERO, at(50));
        flight.resend(range(0, MSS), at(50));
        assert_eq!((flight.in_flight(), flight.next_lost()), (2 * MSS, None));
        flight.send(START + 5 * MSS, at(51));
        flight.arrive(range(3 * MSS, 4 * MSS), at(60));
        flight.find_overtaken(Nanos::ZERO, at(60));
        assert_eq!(flight.next_lost(), None, "the last was sent before");
        flight.arrive(range(4 * MSS, 5 * MSS), at(101));
        flight.find_overtaken(Nanos::ZERO, at(101));
        assert_eq!((flight.next_lost(), flight.in_flight()), (Some(range(0, MSS)), 0));
        // It arrives sooner than anything ever has: it was the first one.
        flight.resend(range(0, MSS), at(101));
        flight.send(START + 6 * MSS, at(101));
        flight.acknowledge(START + 5 * MSS, at(102));
        assert_eq!((flight.newest.at, flight.least()), (at(51), at(50)));
    }

    #[test]
    fn timeout_loses_all_but_what_was_sent_a_moment_ago() {
        let mut flight = flight(2 * MSS, &[]);
        flight.acknowledge(START + MSS, at(50));
        flight.send(START + 3 * MSS, at(240));
        flight.resend(range(MSS, 2 * MSS), at(250));
        flight.lose_all(true, at(260));
        assert_eq!((flight.next_lost(), flight.in_flight()), (Some(range(MSS, 2 * MSS)), MSS));
        flight.lose_all(false, at(260));
        assert_eq!((flight.next_lost(), flight.in_flight()), (Some(range(MSS, 3 * MSS)), 0));
    }

    /// Against a fate for each byte.
    #[test]
    fn whatever_happens_is_counted_as_a_fate_for_each_byte_counts_it() {
        #[derive(Clone, Copy, PartialEq)]
        enum Fate {
            Out,
            Arrived,
            Lost,
            Again,
        }
        for seed in 0..300 {
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            let mut flight = Flight::new(START, None);
            let (mut fates, mut una) = (Vec::new(), 0);
            for now in (1..80).map(at) {
                let len = fates.len();
                let mut piece = || {
                    let from = random.random_range(una..len);
                    (from, random.random_range(from + 1..=(from + 30).min(len)))
                };
                match now.0 / 1_000_000 % 6 {
                    _ if una == len => {
                        fates.resize(len + 40, Fate::Out);
                        flight.send(START + fates.len() as u32, now);
                    }
                    0 => {
                        let (_, to) = piece();
                        let known = fates[una..to].iter().filter(|fate| **fate == Fate::Arrived).count();
                        assert_eq!(flight.acknowledge(START + to as u32, now) as usize, known, "seed {seed}");
                        una = to;
                    }
                    1 | 2 => {
                        let (from, to) = piece();
                        let news = fates[from..to].iter().filter(|fate| **fate != Fate::Arrived).count();
                        let new = flight.arrive(range(from as u32, to as u32), now) as usize;
                        assert_eq!(new, news, "seed {seed}");
                        fates[from..to].fill(Fate::Arrived);
                    }
                    3 => {
                        if fates[una] != Fate::Arrived {
                            let all = fates.iter_mut().skip(una).filter(|fate| **fate != Fate::Arrived);
                            all.for_each(|fate| *fate = Fate::Lost);
                            flight.lose_all(false, now);
                        }
                    }
                    4 => {
                        if let Some((from, to)) = flight.next_lost() {
                            let to = from + (to - from).min(7);
                            flight.resend((from, to), now);
                            fates[(from - START) as usize..(to - START) as usize].fill(Fate::Again);
                        }
                    }
                    _ => {
                        fates.resize(len + 20, Fate::Out);
                        flight.send(START + fates.len() as u32, now);
                    }
                }
                let out = fates[una..].iter().filter(|fate| matches!(fate, Fate::Out | Fate::Again)).count();
                assert_eq!(flight.in_flight() as usize, out, "seed {seed} at {now}");
                let lost =
                    fates[una..].iter().position(|fate| *fate == Fate::Lost).map(|at| (una + at) as u32);
                assert_eq!(flight.next_lost().map(|range| range.0 - START), lost, "seed {seed} at {now}");
                let missing =
                    fates[una..].iter().position(|fate| *fate == Fate::Arrived).unwrap_or(fates.len() - una);
                if missing > 0 {
                    let (from, to) = flight.first_missing();
                    assert_eq!(
                        (from - START, to - START),
                        (una as u32, (una + missing) as u32),
                        "seed {seed}"
                    );
                }
                let runs: Vec<_> = flight.runs.iter().collect();
                assert!(runs.windows(2).all(|pair| pair[0].end() < pair[1].end()), "seed {seed}");
                assert!(
                    runs.windows(2).all(|pair| !(pair[0].is_arrived && pair[1].is_arrived)),
                    "seed {seed}"
                );
            }
        }
    }
}
