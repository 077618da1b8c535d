//! The sender of a large stream: what is out, what of it is lost, and what is sent next.
//!
//! With the peer's selective acknowledgements RFC 6675, without them RFC 6582, in one: without them each duplicate acknowledgment stands for a segment that has
//! left the path, as in Linux (`tcp_add_reno_sack()`, 6.18 `net/ipv4/tcp_input.c`). Limited transmit (RFC 3042) follows from that.

use units::Nanos;
use wire::{SackBlocks, SeqNumber};

use crate::Control;
use crate::congestion::Window;
use crate::scoreboard::{DUPLICATES, Scoreboard};

/// A sender's state, behind one pointer of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) window: Window,
    board: Scoreboard,
    phase: Phase,
    /// Waits with a short segment while another is out (RFC 896).
    pub(crate) waits_for_more: bool,
    /// Timeouts since a round trip was last measured: what the timeout is doubled by (RFC 6298 section 5.5, Karn).
    pub(crate) backoff: u8,
    /// Without selective acknowledgements: segments that have arrived beyond the first that is missing. With them: acknowledgments that told of more.
    duplicates: u32,
    /// `snd_una` as an offset into the stream, which may be longer than sequence numbers say.
    pub(crate) acknowledged: u64,
    /// `RecoveryPoint`: what was out when a loss was noticed.
    recover: SeqNumber,
    /// `HighRxt`: up to where what was lost has been sent again.
    resent: SeqNumber,
    /// What is missing below is lost.
    lost_below: SeqNumber,
    /// What had been sent when the first segment that is missing was sent again, or later; and whether it was lost again.
    first_resent_before: SeqNumber,
    is_first_lost_again: bool,
    /// When the loss was noticed.
    noticed_at: Nanos,
    /// When what is missing below something that has arrived counts as lost, if it is not here by then; [`Nanos::MAX`] if nothing is (`ICSK_TIME_REO_TIMEOUT`).
    pub(crate) loss_at: Nanos,
    /// The shortest round trip so far; [`Nanos::MAX`] before the first (`tcp_min_rtt()`, which forgets after five minutes).
    least_round_trip: Nanos,
    /// Where the last short segment ended (Minshall's variant of Nagle's rule, `tcp_minshall_check()`).
    pub(crate) short_end: SeqNumber,
    /// Where the segment ends whose round trip is being measured.
    pub(crate) timed_end: SeqNumber,
    /// When data were last sent.
    pub(crate) sent_at: Nanos,
    /// The largest window that the peer has offered, bytes.
    pub(crate) most_offered: u32,
    pub(crate) counts: Counts,
}

/// What became of a sender's segments so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments that were sent again.
    pub resent: u64,
    /// Losses that acknowledgments told of, at most one for each window: fast recoveries.
    pub recoveries: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing is known to be lost.
    Open,
    /// Acknowledgments have told of a loss (fast recovery).
    Recovery,
    /// A timeout has: everything that was out and is missing counts as lost.
    Loss,
}

/// What is out, and how it is counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Out {
    pub(crate) una: SeqNumber,
    pub(crate) max: SeqNumber,
    pub(crate) mss: u32,
    pub(crate) has_sack: bool,
}

/// What an acknowledgment says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Told<'a> {
    /// New bytes below the acknowledgment number.
    pub(crate) acked: u32,
    pub(crate) blocks: &'a SackBlocks,
    /// The same number again, without data and with the same window (RFC 5681 section 2).
    pub(crate) is_duplicate: bool,
    pub(crate) round_trip: Nanos,
}

/// Shortest time that the kernel's timer waits beyond what it is told (`TCP_TIMEOUT_MIN_US`).
const LEAST_WAIT: Nanos = Nanos::from_millis(2);

/// A range to send again.
pub(crate) type Range = (SeqNumber, SeqNumber);

impl Sender {
    /// Nothing was sent yet; the stream begins at `start`.
    pub(crate) fn new(control: Control, start: SeqNumber) -> Self {
        let Control { algorithm, waits_for_more } = control;
        Self {
            window: Window::new(algorithm, start),
            board: Scoreboard::default(),
            phase: Phase::Open,
            waits_for_more,
            backoff: 0,
            duplicates: 0,
            acknowledged: 0,
            recover: before(start),
            resent: start,
            lost_below: start,
            first_resent_before: start,
            is_first_lost_again: false,
            noticed_at: Nanos::ZERO,
            loss_at: Nanos::MAX,
            least_round_trip: Nanos::MAX,
            short_end: start,
            timed_end: start,
            sent_at: Nanos::MAX,
            most_offered: 0,
            counts: Counts::default(),
        }
    }

    /// Takes in an acknowledgment.
    pub(crate) fn on_ack(&mut self, out: Out, told: Told<'_>, now: Nanos) {
        let Out { una, mss, .. } = out;
        let arrived = if out.has_sack { self.take_blocks(out, told) } else { self.count(out, told) };
        if told.acked > 0 {
            self.acknowledged += u64::from(told.acked);
            self.first_resent_before = out.max;
            self.is_first_lost_again = false;
            if self.short_end < una {
                self.short_end = una;
            }
            if self.resent < una {
                self.resent = una;
            }
            if self.phase != Phase::Open && self.recover <= una {
                self.end_recovery();
            }
            if self.phase == Phase::Open && self.recover < una {
                self.recover = before(una);
            }
        }
        let was_lost_below = if self.lost_below < una { una } else { self.lost_below };
        self.find_losses(out, told, now);
        if self.phase == Phase::Open && self.is_loss(out) {
            self.begin_recovery(out, now);
        }
        match self.phase {
            Phase::Recovery => {
                let goes_well = told.acked > 0 && self.board.missing(was_lost_below, self.lost_below) == 0;
                self.window.reduce(arrived, self.in_flight(out), goes_well, mss);
            }
            _ if told.acked > 0 => self.window.grow(arrived, mss, told.round_trip, now),
            _ => {}
        }
    }

    /// Gives the bytes that have arrived, as the peer's blocks tell (RFC 6675 section 5, `Update()`). A block below the acknowledgment number says what
    /// came twice (RFC 2883), which is not made use of.
    fn take_blocks(&mut self, out: Out, told: Told<'_>) -> u32 {
        let known = if told.acked > 0 { self.board.advance(out.una) } else { 0 };
        let mut new = 0;
        for &(from, to) in told.blocks.as_slice() {
            if out.una <= from && from < to && to <= out.max {
                new += self.board.insert(from, to);
            }
        }
        if told.acked > 0 {
            self.duplicates = 0;
        } else if new > 0 {
            self.duplicates += 1;
        }
        (told.acked - known.min(told.acked)).saturating_add(new)
    }

    /// Gives the bytes that have arrived, as duplicate acknowledgments tell: of what is acknowledged at last one segment was missing, and the others had been
    /// counted (`tcp_remove_reno_sacks()`).
    fn count(&mut self, out: Out, told: Told<'_>) -> u32 {
        if told.acked > 0 {
            let segments = told.acked.div_ceil(out.mss);
            let arrived = told
                .acked
                .saturating_sub(self.duplicates.saturating_mul(out.mss))
                .max(told.acked.min(out.mss));
            self.duplicates =
                if self.phase == Phase::Recovery { self.duplicates.saturating_sub(segments - 1) } else { 0 };
            return arrived;
        }
        // All but one can have arrived (tcp_limit_reno_sacked()). After a timeout they are of what was sent before it.
        let most = (out.max - out.una).div_ceil(out.mss).saturating_sub(1);
        if !told.is_duplicate || self.duplicates >= most || self.phase == Phase::Loss {
            return 0;
        }
        self.duplicates += 1;
        out.mss
    }

    fn find_losses(&mut self, out: Out, told: Told<'_>, now: Nanos) {
        if self.phase == Phase::Open || self.lost_below < out.una {
            self.lost_below = out.una;
        }
        if out.has_sack {
            let is_classic = self.window.is_classic();
            let of_pieces = self.board.lost_below(out.mss);
            let below = if is_classic { of_pieces } else { self.overtaken(out, of_pieces.is_some(), now) };
            if let Some(below) = below
                && self.lost_below < below
            {
                self.lost_below = below;
            }
            // What was sent again first has arrived, unless this is too early to be of that: it was sent after all that was out then, so that what is missing of
            // that is lost. So concludes RACK (RFC 8985 section 6.2) where RFC 6675 sends the tail again once, lost or not (`NextSeg()` (4)).
            let is_partial = self.phase == Phase::Recovery && told.acked > 0 && !is_classic;
            if is_partial
                && now.since(self.noticed_at).0 >= told.round_trip.0 / 2
                && self.lost_below < self.recover
            {
                self.lost_below = self.recover;
            }
            // What was sent after the first segment was sent again has arrived, and that has not.
            self.is_first_lost_again |= !is_classic
                && self.phase != Phase::Open
                && out.una < self.resent
                && !self.board.has(out.una)
                && self.board.end().is_some_and(|end| self.first_resent_before < end);
        } else if self.phase == Phase::Recovery && self.resent <= out.una {
            self.lose_head(out); // a partial acknowledgment (RFC 6582 section 3.2)
        }
    }

    /// Below where what is missing is lost, as something that was sent later has arrived (RACK, RFC 8985 section 6.2; `tcp_rack_detect_loss()`, Linux 6.18
    /// `net/ipv4/tcp_recovery.c`): at once when more was lost before or three segments have overtaken it, or after a quarter of the shortest round trip. Linux counts
    /// that from when each was sent, this from the acknowledgment that first tells of one that was overtaken.
    fn overtaken(&mut self, out: Out, is_often: bool, now: Nanos) -> Option<SeqNumber> {
        let end = self.board.end().filter(|end| self.board.missing(out.una, *end) > 0);
        if end.is_none() || is_often || self.phase != Phase::Open {
            self.loss_at = Nanos::MAX;
            return end;
        }
        let window = if self.least_round_trip == Nanos::MAX { 0 } else { self.least_round_trip.0 / 4 };
        self.loss_at = self.loss_at.min(now + Nanos(window) + LEAST_WAIT);
        None
    }

    /// What was overtaken has not come: it is lost (`tcp_rack_reo_timeout()`).
    pub(crate) fn on_overtaken(&mut self, out: Out, now: Nanos) {
        self.loss_at = Nanos::MAX;
        if let Some(end) = self.board.end().filter(|_| self.phase == Phase::Open) {
            self.lost_below = end;
            if self.is_loss(out) {
                self.begin_recovery(out, now);
                self.window.reduce(out.mss, self.in_flight(out), false, out.mss);
            }
        }
    }

    /// A round trip was measured: the timeout is as long as it says.
    pub(crate) fn note_round_trip(&mut self, took: Nanos) {
        self.backoff = 0;
        self.least_round_trip = self.least_round_trip.min(took);
    }

    /// The first segment that is out counts as lost.
    fn lose_head(&mut self, out: Out) {
        let end = self.board.hole(out.una, out.max).map_or(out.max, |hole| hole.1);
        let len = (end - out.una).min(out.mss);
        if self.lost_below < out.una + len {
            self.lost_below = out.una + len;
        }
    }

    /// RFC 6675 section 5, (2) and (3); without selective acknowledgements RFC 6582 section 3.2, which wants more than what was out at the last loss to be
    /// acknowledged, as the duplicates may be of what was sent twice.
    fn is_loss(&self, out: Out) -> bool {
        let is_told_often = self.duplicates >= DUPLICATES;
        if out.has_sack {
            return (is_told_often || out.una < self.lost_below)
                && !self.board.has(out.una)
                && out.una < out.max;
        }
        is_told_often && self.recover < out.una
    }

    fn begin_recovery(&mut self, out: Out, now: Nanos) {
        self.is_first_lost_again = false;
        self.phase = Phase::Recovery;
        self.recover = out.max;
        self.resent = out.una;
        self.noticed_at = now;
        self.loss_at = Nanos::MAX;
        self.lose_head(out);
        self.window.begin_reduction(self.in_flight(out), out.mss);
        self.counts.recoveries += 1;
    }

    fn end_recovery(&mut self) {
        if self.phase == Phase::Recovery {
            self.window.end_reduction();
        }
        self.phase = Phase::Open;
        self.duplicates = 0;
    }

    /// The retransmission timer went off: what is out and was not selectively acknowledged is lost, and sent again in slow start (RFC 6675 section 5.1;
    /// `tcp_enter_loss()`). `is_first`: since something new was acknowledged. Differs: no F-RTO (RFC 5682).
    pub(crate) fn on_timeout(&mut self, out: Out, is_first: bool) {
        let is_new = match self.phase {
            Phase::Open => true,
            Phase::Recovery => false, // that loss has counted
            Phase::Loss => is_first,
        };
        let in_flight = self.in_flight(out);
        if self.board.has(out.una) {
            self.board.clear();
        }
        self.phase = Phase::Loss;
        self.loss_at = Nanos::MAX;
        self.recover = out.max;
        self.lost_below = out.max;
        self.resent = out.una;
        self.duplicates = 0;
        self.is_first_lost_again = false;
        self.backoff = self.backoff.saturating_add(1);
        self.window.collapse(is_new, in_flight, out.mss);
        self.counts.timeouts += 1;
    }

    /// Bytes that are on their way, as far as one can know (RFC 6675 section 4, `SetPipe()`).
    pub(crate) fn in_flight(&self, out: Out) -> u32 {
        let Out { una, max, mss, has_sack } = out;
        if self.phase == Phase::Open {
            let out = self.board.missing(una, max);
            return if has_sack { out } else { out.saturating_sub(self.duplicates.saturating_mul(mss)) };
        }
        let from = if self.lost_below < una { una } else { self.lost_below };
        let out = self.board.missing(from, max) + self.board.missing(una, self.resent);
        let out = out - self.lost_again(una, max, mss).map_or(0, |range| range.1 - range.0).min(out);
        if has_sack { out } else { out.saturating_sub(self.duplicates.saturating_mul(mss)) }
    }

    /// The next range that is lost and was not sent again (`NextSeg()` (1)).
    pub(crate) fn next_lost(&self, out: Out) -> Option<Range> {
        if self.phase == Phase::Open {
            return None;
        }
        if let Some(range) = self.lost_again(out.una, out.max, out.mss) {
            return Some(range);
        }
        let (from, to) = self.board.hole(self.resent, out.max).filter(|hole| hole.0 < self.lost_below)?;
        Some((from, if self.lost_below < to { self.lost_below } else { to }))
    }

    /// The first segment, if it was lost again when it was sent again. As RACK has it where nothing was reordered (RFC 8985 section 6.2), for this one segment: RFC 6675
    /// waits for the timer.
    fn lost_again(&self, una: SeqNumber, max: SeqNumber, mss: u32) -> Option<Range> {
        let (from, to) = self.board.hole(una, max).filter(|_| self.is_first_lost_again)?;
        let most = if from < self.resent { self.resent - from } else { 0 };
        Some((from, from + (to - from).min(mss).min(most))).filter(|range| range.0 < range.1)
    }

    /// What a timeout is for: up to where something has arrived, or all that is out.
    pub(crate) fn first_missing(&self, out: Out) -> Range {
        self.board.hole(out.una, out.max).filter(|hole| hole.0 == out.una).unwrap_or((out.una, out.max))
    }

    /// What may be sent again when nothing new can be sent: what is missing below something that has arrived (`NextSeg()` (3)).
    pub(crate) fn next_doubtful(&self, out: Out) -> Option<Range> {
        let end = self.board.end().filter(|_| self.phase == Phase::Recovery)?;
        self.board.hole(self.resent, out.max).filter(|hole| hole.0 < end)
    }

    /// A range was sent again.
    pub(crate) fn note_resent(&mut self, from: SeqNumber, to: SeqNumber, out: Out) {
        if from == out.una {
            self.first_resent_before = out.max;
            self.is_first_lost_again = false;
        }
        if self.resent < to {
            self.resent = to;
        }
        self.counts.resent += 1;
        self.note_sent(to - from);
    }

    /// Bytes were sent, for the first time or again.
    pub(crate) fn note_sent(&mut self, bytes: u32) {
        if self.phase == Phase::Recovery {
            self.window.note_sent(bytes);
        }
    }

    /// Whether a round trip may be measured: not while one waits for what was lost.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }
}

/// The number before.
fn before(seq: SeqNumber) -> SeqNumber {
    SeqNumber(seq.0.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Algorithm;

    const MSS: u32 = 1000;
    /// The stream crosses the wrap.
    const START: SeqNumber = SeqNumber(u32::MAX - 4500);

    /// A sender and what it has out.
    struct Game {
        sender: Sender,
        out: Out,
    }

    impl Game {
        /// So many segments are out, which fill the window.
        fn new(segments: u32, has_sack: bool) -> Self {
            Self::of(Algorithm::NewReno, segments, has_sack)
        }

        fn of(algorithm: Algorithm, segments: u32, has_sack: bool) -> Self {
            let control = Control { algorithm, waits_for_more: false };
            let mut sender = Sender::new(control, START);
            let out = Out { una: START, max: START + segments * MSS, mss: MSS, has_sack };
            sender.window.size = segments * MSS;
            sender.window.note_use(START, out.max, true);
            Self { sender, out }
        }

        /// Up to where, and which pieces beyond, in segments.
        fn hear(&mut self, una: u32, pieces: &[(u32, u32)]) {
            let mut blocks = SackBlocks::NONE;
            pieces.iter().for_each(|(from, to)| blocks.push(START + *from * MSS, START + *to * MSS));
            let una = START + una * MSS;
            let acked = una - self.out.una;
            self.out.una = una;
            let told = Told { acked, blocks: &blocks, is_duplicate: acked == 0, round_trip: Nanos::ZERO };
            self.sender.on_ack(self.out, told, Nanos::ZERO);
        }

        /// What `NextSeg()` gives, in segments; `new` is what has never been sent.
        fn next(&mut self, has_new: bool) -> Option<(u32, &'static str)> {
            let Self { sender, out } = self;
            let at = |range: Range| (range.0 - START) / MSS;
            let end = |range: Range| if range.1 - range.0 > MSS { range.0 + MSS } else { range.1 };
            if let Some(range) = sender.next_lost(*out) {
                sender.note_resent(range.0, end(range), *out);
                return Some((at(range), "lost"));
            }
            if has_new {
                out.max += MSS;
                sender.note_sent(MSS);
                return Some(((out.max - START) / MSS - 1, "new"));
            }
            let range = sender.next_doubtful(*out)?;
            sender.note_resent(range.0, end(range), *out);
            Some((at(range), "doubtful"))
        }

        fn in_flight(&self) -> u32 {
            self.sender.in_flight(self.out) / MSS
        }
    }

    /// Ten segments, of which the first, the third and the fifth are lost: by hand after RFC 6675 sections 4 and 5.
    #[test]
    fn with_selective_acknowledgements_what_is_lost_goes_first_then_new_data_then_what_is_in_doubt() {
        let mut game = Game::of(Algorithm::Classic, 10, true);
        game.hear(0, &[(1, 2)]);
        game.hear(0, &[(3, 4), (1, 2)]);
        assert_eq!((game.in_flight(), game.sender.counts.recoveries), (8, 0));
        game.hear(0, &[(5, 6), (3, 4), (1, 2)]);
        // Three pieces are above the first hole, two above the second, one above the third.
        assert_eq!((game.in_flight(), game.sender.counts.recoveries), (6, 1));
        assert_eq!(game.next(true), Some((0, "lost")));
        assert_eq!(game.in_flight(), 7);
        assert_eq!(game.next(true), Some((10, "new")));
        assert_eq!(game.next(false), Some((2, "doubtful")));
        assert_eq!(game.next(false), Some((4, "doubtful")));
        // Both count twice, as nobody knows.
        assert_eq!(game.in_flight(), 10);
        assert_eq!(game.next(false), None, "the tail may be under way");
        game.hear(0, &[(5, 7), (3, 4), (1, 2)]);
        game.hear(0, &[(5, 9), (3, 4), (1, 2)]);
        // 5 to 8 are more than two segments: 4 is lost, was sent again, and so is 2.
        assert_eq!(game.in_flight(), 3 + 2);
        assert_eq!(game.next(false), None);
        game.hear(10, &[]);
        let left = game.sender.window.size - game.sender.window.threshold;
        assert!(left < MSS, "what the last acknowledgment adds: {left}");
        assert!(game.sender.is_open());
    }

    /// The same after RFC 8985 section 6.2: all of them were sent before what has arrived.
    #[test]
    fn what_three_segments_have_overtaken_is_lost_and_all_else_that_was_sent_before() {
        let mut game = Game::new(10, true);
        game.hear(0, &[(1, 2)]);
        game.hear(0, &[(3, 4), (1, 2)]);
        assert_eq!((game.in_flight(), game.sender.counts.recoveries), (8, 0));
        game.hear(0, &[(5, 6), (3, 4), (1, 2)]);
        assert_eq!((game.in_flight(), game.sender.loss_at), (4, Nanos::MAX));
        let sent: Vec<_> = (0..4).map(|_| game.next(true)).map(Option::unwrap_or_default).collect();
        assert_eq!(sent, [(0, "lost"), (2, "lost"), (4, "lost"), (10, "new")]);
        // What was sent since is lost as soon as it is overtaken.
        game.out.max += 2 * MSS;
        game.hear(6, &[(11, 12)]);
        assert_eq!(game.next(false), Some((6, "lost")));
    }

    /// RFC 8985 section 6.2, step 4: a quarter of the shortest round trip, and what the kernel's timer takes.
    #[test]
    fn what_one_segment_has_overtaken_is_lost_when_it_does_not_come_for_a_while() {
        let mut game = Game::new(3, true);
        [50, 40, 60].into_iter().for_each(|took| game.sender.note_round_trip(Nanos::from_millis(took)));
        game.hear(0, &[(1, 2)]);
        assert_eq!(game.sender.loss_at, Nanos::from_millis(12));
        game.hear(0, &[(1, 3)]);
        assert_eq!((game.sender.loss_at, game.next(false)), (Nanos::from_millis(12), None));
        game.sender.on_overtaken(game.out, Nanos::from_millis(12));
        assert_eq!((game.sender.counts.recoveries, game.sender.loss_at), (1, Nanos::MAX));
        assert_eq!((game.next(false), game.in_flight()), (Some((0, "lost")), 1));
        // One that was only late is not.
        let mut game = Game::new(3, true);
        game.hear(0, &[(1, 2)]);
        game.hear(2, &[]);
        assert_eq!((game.sender.loss_at, game.sender.is_open()), (Nanos::MAX, true));
    }

    /// RFC 8985 section 6.2.
    #[test]
    fn what_was_sent_before_a_segment_that_was_sent_again_and_arrived_is_lost() {
        let mut game = Game::new(8, true);
        game.hear(0, &[(1, 4)]);
        assert_eq!(game.next(true), Some((0, "lost")));
        assert_eq!(game.next(true), Some((8, "new")));
        // Of 4 to 7 nothing was heard, nor of 8, which was sent later.
        game.hear(4, &[]);
        assert_eq!((game.in_flight(), game.next(true)), (1, Some((4, "lost"))));
    }

    #[test]
    fn segment_that_is_lost_again_is_sent_a_third_time_when_a_later_one_arrives() {
        let mut game = Game::new(8, true);
        game.hear(0, &[(1, 5)]);
        assert_eq!(game.next(true), Some((0, "lost")));
        assert_eq!(game.next(true), Some((8, "new")));
        game.hear(0, &[(1, 8)]);
        assert_eq!((game.in_flight(), game.next(true)), (2, Some((9, "new"))));
        game.hear(0, &[(1, 9)]);
        assert_eq!((game.in_flight(), game.next(true)), (1, Some((0, "lost"))));
        assert_eq!((game.in_flight(), game.next(true)), (2, Some((10, "new"))));
    }

    #[test]
    fn without_them_a_partial_acknowledgment_has_the_next_segment_sent_again() {
        let mut game = Game::new(10, false);
        (0..2).for_each(|_| game.hear(0, &[]));
        assert_eq!((game.in_flight(), game.next(false)), (8, None), "limited transmit has room for two");
        game.hear(0, &[]);
        assert_eq!(game.next(true), Some((0, "lost")));
        assert_eq!(game.in_flight(), 7);
        // Segment 4 is lost, too: 1 to 3 and 5 to 9 arrive.
        (0..5).for_each(|_| game.hear(0, &[]));
        assert_eq!(game.in_flight(), 2);
        assert_eq!(game.next(true), Some((10, "new")));
        game.hear(4, &[]);
        assert_eq!(game.next(true), Some((4, "lost")));
        assert_eq!(game.in_flight(), 2, "that, and the new one");
        game.hear(11, &[]);
        assert!(game.sender.is_open());
        assert_eq!(game.sender.counts, Counts { resent: 2, recoveries: 1, timeouts: 0 });
    }

    #[test]
    fn timeout_loses_what_is_out_but_not_what_has_arrived() {
        let mut game = Game::new(6, true);
        game.hear(0, &[(3, 4)]);
        game.sender.on_timeout(game.out, true);
        assert_eq!(
            (game.in_flight(), game.sender.window.size, game.sender.window.threshold),
            (0, MSS, 3 * MSS)
        );
        let (from, to) = game.sender.first_missing(game.out);
        assert_eq!((from - START, to - START), (0, 3 * MSS));
        let sent: Vec<_> = (0..6).map(|_| game.next(true)).map(Option::unwrap_or_default).collect();
        assert_eq!(sent, [(0, "lost"), (1, "lost"), (2, "lost"), (4, "lost"), (5, "lost"), (6, "new")]);
        assert_eq!(game.in_flight(), 6);
        // Another timeout without progress halves nothing; one after progress does.
        game.sender.on_timeout(game.out, false);
        assert_eq!(game.sender.window.threshold, 3 * MSS);
    }

    /// RFC 2018 section 8.
    #[test]
    fn peer_that_threw_away_what_it_had_is_believed_after_a_timeout() {
        let mut game = Game::new(4, true);
        game.hear(0, &[(1, 4)]);
        assert_eq!(game.next(false), Some((0, "lost")));
        game.hear(1, &[]);
        game.sender.on_timeout(game.out, true);
        assert_eq!(game.sender.first_missing(game.out), (START + MSS, START + 4 * MSS));
        assert_eq!(game.next(false), Some((1, "lost")));
    }

    /// RFC 6582 section 4.1: duplicates of what was sent twice tell nothing.
    #[test]
    fn duplicates_after_a_timeout_begin_no_recovery_until_more_is_acknowledged() {
        let mut game = Game::new(4, false);
        game.sender.on_timeout(game.out, true);
        game.hear(4, &[]);
        game.out.max += 8 * MSS;
        (0..5).for_each(|_| game.hear(4, &[]));
        assert_eq!(game.sender.counts.recoveries, 0);
        game.hear(5, &[]);
        (0..3).for_each(|_| game.hear(5, &[]));
        assert_eq!(game.sender.counts.recoveries, 1);
    }

    /// Whatever a peer says of what it has is within what is out.
    #[test]
    fn blocks_that_cannot_be_are_not_believed() {
        let mut game = Game::new(4, true);
        game.hear(2, &[]);
        for (from, to) in [(0, 1), (1, 3), (3, 3), (3, 2), (3, 5), (4, 9), (2, 5)] {
            game.hear(2, &[(from, to)]);
        }
        assert_eq!((game.in_flight(), game.sender.counts.recoveries), (2, 0));
    }
}
