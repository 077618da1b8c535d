//! The sender of a large stream: what is out, what of it is lost, and what is sent next.
//!
//! With the peer's selective acknowledgements RACK (RFC 8985), as Linux, or RFC 6675 for
//! [`crate::Algorithm::Classic`]; without them RFC 6582. Without them each duplicate acknowledgment
//! stands for a segment that has left the path, as in Linux (`tcp_add_reno_sack()`, 6.18
//! `net/ipv4/tcp_input.c`). Limited transmit (RFC 3042) follows from that.

use units::Nanos;
use wire::{SackBlocks, SeqNumber};

use crate::Control;
use crate::congestion::Window;
use crate::estimate::Estimate;
use crate::flight::{DUPLICATES, Flight, Range};

/// A sender's state, behind one pointer of a connection.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) window: Window,
    flight: Flight,
    phase: Phase,
    /// Waits with a short segment while another is out (RFC 896).
    pub(crate) waits_for_more: bool,
    /// Timeouts since a round trip was last measured: what the timeout is doubled by (RFC 6298
    /// section 5.5, Karn).
    pub(crate) backoff: u8,
    /// Without selective acknowledgements: segments that have arrived beyond the first that is
    /// missing. With them: acknowledgments that told of more.
    duplicates: u32,
    /// `snd_una` as an offset into the stream, which may be longer than sequence numbers say.
    pub(crate) acknowledged: u64,
    /// `RecoveryPoint`: what was out when a loss was noticed.
    recover: SeqNumber,
    /// Where the last segment ends that was sent again to probe for a lost tail, and is not known
    /// to have been needless (`tlp_high_seq`).
    probed_end: Option<SeqNumber>,
    /// When what was overtaken counts as lost, if it is not here by then; [`Nanos::MAX`] if nothing
    /// was (`ICSK_TIME_REO_TIMEOUT`).
    pub(crate) loss_at: Nanos,
    /// Where the last short segment ended (Minshall's variant of Nagle's rule,
    /// `tcp_minshall_check()`).
    pub(crate) short_end: SeqNumber,
    /// Where the segment ends whose round trip is being measured.
    pub(crate) timed_end: SeqNumber,
    /// When data were last sent.
    pub(crate) sent_at: Nanos,
    /// The largest window that the peer has offered, bytes.
    pub(crate) most_offered: u32,
    /// Of round trips, where each acknowledgment is a sample; `None` before the first.
    pub(crate) estimate: Option<Estimate>,
    /// How long the handshake took, if that is known, and where the stream began.
    handshake: Option<Nanos>,
    start: SeqNumber,
    /// Segments that may still go down to the host's queues, and whether that has stopped the
    /// sender.
    pub(crate) allowed: u32,
    pub(crate) is_held: bool,
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
    /// Round trips that were measured after the handshake's.
    pub round_trips: u64,
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
    /// Time since the moment that its timestamp echoes, if it acknowledges something new.
    pub(crate) echoed: Option<Nanos>,
    /// Each acknowledgment is a sample of the round trip, with this least margin of the timeout
    /// ([`crate::Estimator::Linux`]).
    pub(crate) measures: Option<Nanos>,
}

/// Shortest time that the kernel's timer waits beyond what it is told (`TCP_TIMEOUT_MIN_US`).
pub(crate) const LEAST_WAIT: Nanos = Nanos::from_millis(2);

impl Sender {
    /// Nothing was sent yet; the stream begins at `start`, and so long took the handshake, if that
    /// is known.
    pub(crate) fn new(control: Control, start: SeqNumber, handshake: Option<Nanos>) -> Self {
        let Control { algorithm, waits_for_more } = control;
        Self {
            window: Window::new(algorithm, start),
            flight: Flight::new(start, handshake),
            phase: Phase::Open,
            waits_for_more,
            backoff: 0,
            duplicates: 0,
            acknowledged: 0,
            recover: before(start),
            probed_end: None,
            loss_at: Nanos::MAX,
            short_end: start,
            timed_end: start,
            sent_at: Nanos::MAX,
            most_offered: 0,
            estimate: None,
            handshake,
            start,
            allowed: u32::MAX,
            is_held: false,
            counts: Counts::default(),
        }
    }

    /// Takes in an acknowledgment.
    pub(crate) fn on_ack(&mut self, out: Out, told: Told<'_>, now: Nanos) {
        let Out { una, mss, .. } = out;
        let losses = self.flight.losses();
        let arrived =
            if out.has_sack { self.take_blocks(out, told, now) } else { self.count(out, told, now) };
        let round_trip = self.measure(out, told, now);
        if told.acked > 0 {
            self.acknowledged += u64::from(told.acked);
            if self.short_end < una {
                self.short_end = una;
            }
            if self.phase != Phase::Open && self.recover <= una {
                self.end_recovery();
            }
            if self.phase == Phase::Open && self.recover < una {
                self.recover = before(una);
            }
        }
        self.find_losses(out, told, now);
        if self.phase == Phase::Open && self.is_loss(out) {
            self.begin_recovery(out);
        }
        self.judge_probe(out, told);
        match self.phase {
            Phase::Recovery => {
                let goes_well = told.acked > 0 && self.flight.losses() == losses;
                self.window.reduce(arrived, self.in_flight(out), goes_well, mss);
            }
            _ if told.acked > 0 => self.window.grow(arrived, mss, round_trip, now),
            _ => {}
        }
    }

    /// Measures the round trip, if this is to, and gives the smoothed one: what was sent again and
    /// then acknowledged tells nothing but by the timestamp that comes back
    /// (`tcp_ack_update_rtt()`, Linux 6.18 `net/ipv4/tcp_input.c`).
    fn measure(&mut self, out: Out, told: Told<'_>, now: Nanos) -> Nanos {
        let timing = self.flight.take_timing();
        let Some(floor) = told.measures else {
            return told.round_trip;
        };
        let estimate =
            self.estimate.get_or_insert_with(|| Estimate::begin(self.handshake, floor, self.start));
        if let Some(took) = timing.sent_at().map(|at| now.since(at)).or(told.echoed) {
            estimate.take(took, floor, (out.una, out.max));
            self.backoff = 0;
            self.counts.round_trips += 1;
        }
        estimate.smoothed()
    }

    /// Gives the bytes that have arrived, as the peer's blocks tell (RFC 6675 section 5,
    /// `Update()`). A block below the acknowledgment number says what came twice (RFC 2883), which
    /// is not made use of.
    fn take_blocks(&mut self, out: Out, told: Told<'_>, now: Nanos) -> u32 {
        let mut new = 0;
        for &(from, to) in told.blocks.as_slice() {
            if out.una <= from && from < to && to <= out.max {
                new += self.flight.arrive((from, to), now);
            }
        }
        let known = if told.acked > 0 { self.flight.acknowledge(out.una, now) } else { 0 };
        if told.acked > 0 {
            self.duplicates = 0;
        } else if new > 0 {
            self.duplicates += 1;
        }
        (told.acked - known.min(told.acked)).saturating_add(new)
    }

    /// Gives the bytes that have arrived, as duplicate acknowledgments tell: of what is
    /// acknowledged at last one segment was missing, and the others had been counted
    /// (`tcp_remove_reno_sacks()`).
    fn count(&mut self, out: Out, told: Told<'_>, now: Nanos) -> u32 {
        if told.acked > 0 {
            self.flight.acknowledge(out.una, now);
            let segments = told.acked.div_ceil(out.mss);
            let arrived = told
                .acked
                .saturating_sub(self.duplicates.saturating_mul(out.mss))
                .max(told.acked.min(out.mss));
            self.duplicates =
                if self.phase == Phase::Recovery { self.duplicates.saturating_sub(segments - 1) } else { 0 };
            return arrived;
        }
        // All but one can have arrived (tcp_limit_reno_sacked()). After a timeout they are of what
        // was sent before it.
        let most = (out.max - out.una).div_ceil(out.mss).saturating_sub(1);
        if !told.is_duplicate || self.duplicates >= most || self.phase == Phase::Loss {
            return 0;
        }
        self.duplicates += 1;
        out.mss
    }

    /// What was sent again as a probe has arrived. If it came twice nothing was lost; if more is
    /// acknowledged since, and nobody says so, it was, which costs the window what a loss does (RFC
    /// 8985 section 7.4.2; `tcp_process_tlp_ack()`, Linux 6.18 `net/ipv4/tcp_input.c`).
    fn judge_probe(&mut self, out: Out, told: Told<'_>) {
        let Some(end) = self.probed_end.filter(|end| *end <= out.una) else {
            return;
        };
        let came_twice = told.blocks.as_slice().first().is_some_and(|block| block.1 <= out.una);
        let is_repaired = !came_twice && end < out.una;
        if is_repaired && self.phase == Phase::Open {
            self.window.begin_reduction(self.in_flight(out), out.mss);
            self.window.end_reduction();
        }
        if came_twice || is_repaired || told.is_duplicate {
            self.probed_end = None;
        }
    }

    /// The tail up to `end` was sent again as a probe.
    pub(crate) fn note_probe(&mut self, end: SeqNumber) {
        self.probed_end = Some(end);
    }

    /// Nothing is known to be missing.
    pub(crate) fn is_well(&self) -> bool {
        self.phase == Phase::Open && self.flight.arrived() == 0
    }

    /// When the first byte was sent that is not acknowledged; `None` without one.
    pub(crate) fn first_sent_at(&self) -> Option<Nanos> {
        self.flight.first_sent_at()
    }

    fn find_losses(&mut self, out: Out, told: Told<'_>, now: Nanos) {
        if !out.has_sack {
            if self.phase == Phase::Recovery && told.acked > 0 {
                self.flight.lose_first(out.mss); // a partial acknowledgment (RFC 6582 section 3.2)
            }
        } else if !self.window.is_classic() {
            self.find_overtaken(out, now);
        } else if let Some(below) = self.flight.lost_below(out.mss) {
            self.flight.lose_below(below);
        }
    }

    /// RACK (RFC 8985 section 6.2): what was overtaken is lost at once if a loss is recovered from
    /// or three segments have overtaken it, or after a quarter of the shortest round trip
    /// (`tcp_rack_reo_wnd()`, Linux 6.18 `net/ipv4/tcp_recovery.c`, where nothing was ever
    /// reordered).
    fn find_overtaken(&mut self, out: Out, now: Nanos) {
        let is_certain = self.phase != Phase::Open || self.flight.arrived().div_ceil(out.mss) >= DUPLICATES;
        let least = self.flight.least();
        let wait = if is_certain || least == Nanos::MAX { Nanos::ZERO } else { Nanos(least.0 / 4) };
        let last = self.flight.find_overtaken(wait, now);
        self.loss_at = last.map_or(Nanos::MAX, |last| last + LEAST_WAIT);
    }

    /// What was overtaken has not come (`tcp_rack_reo_timeout()`).
    pub(crate) fn on_overtaken(&mut self, out: Out, now: Nanos) {
        self.find_overtaken(out, now);
        if self.phase == Phase::Open && self.is_loss(out) {
            self.begin_recovery(out);
            self.window.reduce(out.mss, self.in_flight(out), false, out.mss);
        }
    }

    /// RACK: something is lost. RFC 6675 section 5, (2) and (3); without selective acknowledgements
    /// RFC 6582 section 3.2, which wants more than what was out at the last loss to be
    /// acknowledged, as the duplicates may be of what was sent twice.
    fn is_loss(&self, out: Out) -> bool {
        let is_told_often = self.duplicates >= DUPLICATES;
        if !out.has_sack {
            return is_told_often && self.recover < out.una;
        }
        let is_told = is_told_often && self.window.is_classic();
        (is_told || self.flight.has_lost()) && !self.flight.has_first_arrived() && out.una < out.max
    }

    fn begin_recovery(&mut self, out: Out) {
        self.phase = Phase::Recovery;
        self.recover = out.max;
        if !self.flight.has_lost() {
            self.flight.lose_first(out.mss);
        }
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

    /// The retransmission timer went off: what is out and was not selectively acknowledged is lost,
    /// and sent again in slow start (RFC 6675 section 5.1; `tcp_enter_loss()`). `is_first`: since
    /// something new was acknowledged. Differs: no F-RTO (RFC 5682).
    pub(crate) fn on_timeout(&mut self, out: Out, is_first: bool, now: Nanos) {
        let is_new = match self.phase {
            Phase::Open => true,
            Phase::Recovery => false, // that loss has counted
            Phase::Loss => is_first,
        };
        let in_flight = self.in_flight(out);
        self.flight.lose_all(out.has_sack && !self.window.is_classic(), now);
        self.phase = Phase::Loss;
        self.recover = out.max;
        self.loss_at = Nanos::MAX;
        self.probed_end = None;
        self.duplicates = 0;
        self.backoff = self.backoff.saturating_add(1);
        self.window.collapse(is_new, in_flight, out.mss);
        self.counts.timeouts += 1;
    }

    /// The shortest time that anything has taken; [`Nanos::MAX`] before it is known.
    pub(crate) fn least_round_trip(&self) -> Nanos {
        self.flight.least()
    }

    /// Bytes that are on their way, as far as one can know (RFC 6675 section 4, `SetPipe()`).
    pub(crate) fn in_flight(&self, out: Out) -> u32 {
        let bytes = self.flight.in_flight();
        if out.has_sack { bytes } else { bytes.saturating_sub(self.duplicates.saturating_mul(out.mss)) }
    }

    /// The next range that is lost and was not sent again (`NextSeg()` (1)).
    pub(crate) fn next_lost(&self) -> Option<Range> {
        self.flight.next_lost().filter(|_| self.phase != Phase::Open)
    }

    /// What a timeout is for: up to where something has arrived, or all that is out.
    pub(crate) fn first_missing(&self) -> Range {
        self.flight.first_missing()
    }

    /// What may be sent again when nothing new can be sent: what is missing below something that
    /// has arrived (`NextSeg()` (3)).
    pub(crate) fn next_doubtful(&self) -> Option<Range> {
        self.flight.next_doubtful().filter(|_| self.phase == Phase::Recovery)
    }

    /// A range was sent again.
    pub(crate) fn note_resent(&mut self, range: Range, now: Nanos) {
        self.flight.resend(range, now);
        self.counts.resent += 1;
        if self.phase == Phase::Recovery {
            self.window.note_sent(range.1 - range.0);
        }
    }

    /// All below `end` was sent, and so many bytes of it for the first time.
    pub(crate) fn note_sent(&mut self, end: SeqNumber, bytes: u32, now: Nanos) {
        self.flight.send(end, now);
        if self.phase == Phase::Recovery {
            self.window.note_sent(bytes);
        }
    }

    /// Whether nothing is known to be lost.
    #[cfg(test)]
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
        now: Nanos,
    }

    /// Between two acknowledgments, and from the first segments to the first of them.
    const TURN: Nanos = Nanos::from_millis(20);

    impl Game {
        /// So many segments are out, which fill the window.
        fn new(segments: u32, has_sack: bool) -> Self {
            Self::of(Algorithm::NewReno, segments, has_sack)
        }

        fn of(algorithm: Algorithm, segments: u32, has_sack: bool) -> Self {
            let control = Control { algorithm, waits_for_more: false };
            let mut sender = Sender::new(control, START, None);
            let out = Out { una: START, max: START + segments * MSS, mss: MSS, has_sack };
            sender.window.size = segments * MSS;
            sender.window.note_use(START, out.max, true);
            sender.note_sent(out.max, segments * MSS, Nanos::ZERO);
            Self { sender, out, now: Nanos::ZERO }
        }

        /// Up to where, and which pieces beyond, in segments.
        fn hear(&mut self, una: u32, pieces: &[(u32, u32)]) {
            self.now += TURN;
            let mut blocks = SackBlocks::NONE;
            pieces.iter().for_each(|(from, to)| blocks.push(START + *from * MSS, START + *to * MSS));
            let una = START + una * MSS;
            let acked = una - self.out.una;
            self.out.una = una;
            let told = Told {
                acked,
                blocks: &blocks,
                is_duplicate: acked == 0,
                round_trip: Nanos::ZERO,
                echoed: None,
                measures: None,
            };
            self.sender.on_ack(self.out, told, self.now);
        }

        /// What `NextSeg()` gives, in segments; `new` is what has never been sent.
        fn next(&mut self, has_new: bool) -> Option<(u32, &'static str)> {
            let at = |range: Range| (range.0 - START) / MSS;
            let segment = |range: Range| (range.0, range.0 + (range.1 - range.0).min(MSS));
            if let Some(range) = self.sender.next_lost() {
                self.sender.note_resent(segment(range), self.now);
                return Some((at(range), "lost"));
            }
            if has_new {
                self.send(1);
                return Some(((self.out.max - START) / MSS - 1, "new"));
            }
            let range = self.sender.next_doubtful()?;
            self.sender.note_resent(segment(range), self.now);
            Some((at(range), "doubtful"))
        }

        fn send(&mut self, segments: u32) {
            self.out.max += segments * MSS;
            self.sender.note_sent(self.out.max, segments * MSS, self.now);
        }

        fn in_flight(&self) -> u32 {
            self.sender.in_flight(self.out) / MSS
        }
    }

    /// Ten segments, of which the first, the third and the fifth are lost: by hand after RFC 6675
    /// sections 4 and 5.
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
        game.send(2);
        game.hear(6, &[(11, 12)]);
        assert_eq!(game.next(false), Some((6, "lost")));
    }

    /// RFC 8985 section 6.2, step 4: a quarter of the shortest round trip, and what the kernel's
    /// timer takes.
    #[test]
    fn what_one_segment_has_overtaken_is_lost_when_it_does_not_come_for_a_while() {
        let mut game = Game::new(3, true);
        game.hear(0, &[(1, 2)]);
        assert_eq!(game.sender.loss_at, Nanos::from_millis(20 + 5 + 2));
        game.hear(0, &[(1, 3)]);
        assert_eq!((game.sender.loss_at, game.next(false)), (Nanos::from_millis(40 + 5 + 2), None));
        game.sender.on_overtaken(game.out, game.sender.loss_at);
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
        assert_eq!(game.sender.counts, Counts { resent: 2, recoveries: 1, ..Counts::default() });
    }

    #[test]
    fn timeout_loses_what_is_out_but_not_what_has_arrived() {
        let mut game = Game::new(6, true);
        game.hear(0, &[(3, 4)]);
        game.sender.on_timeout(game.out, true, game.now + TURN);
        assert_eq!(
            (game.in_flight(), game.sender.window.size, game.sender.window.threshold),
            (0, MSS, 3 * MSS)
        );
        let (from, to) = game.sender.first_missing();
        assert_eq!((from - START, to - START), (0, 3 * MSS));
        let sent: Vec<_> = (0..6).map(|_| game.next(true)).map(Option::unwrap_or_default).collect();
        assert_eq!(sent, [(0, "lost"), (1, "lost"), (2, "lost"), (4, "lost"), (5, "lost"), (6, "new")]);
        assert_eq!(game.in_flight(), 6);
        // Another timeout without progress halves nothing; one after progress does.
        game.sender.on_timeout(game.out, false, game.now + TURN);
        assert_eq!(game.sender.window.threshold, 3 * MSS);
    }

    /// RFC 2018 section 8.
    #[test]
    fn peer_that_threw_away_what_it_had_is_believed_after_a_timeout() {
        let mut game = Game::new(4, true);
        game.hear(0, &[(1, 4)]);
        assert_eq!(game.next(false), Some((0, "lost")));
        game.hear(1, &[]);
        game.sender.on_timeout(game.out, true, game.now + TURN);
        assert_eq!(game.sender.first_missing(), (START + MSS, START + 4 * MSS));
        assert_eq!(game.next(false), Some((1, "lost")));
    }

    /// RFC 6582 section 4.1: duplicates of what was sent twice tell nothing.
    #[test]
    fn duplicates_after_a_timeout_begin_no_recovery_until_more_is_acknowledged() {
        let mut game = Game::new(4, false);
        game.sender.on_timeout(game.out, true, game.now + TURN);
        game.hear(4, &[]);
        game.send(8);
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
