//! A connection with a controlled sender: when it may send, and what.

use units::Nanos;
use wire::{Flags, Segment, SeqNumber};

use crate::flight::Range;
use crate::recovery::{Counts, Out, Sender, Told};
use crate::stream::Stream;
use crate::{Algorithm, Connection, Estimator, Stack};

/// How a connection sends a large stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Control {
    /// The rule of its congestion window.
    pub algorithm: Algorithm,
    /// A short segment waits while another is out, in case more is written (RFC 896, RFC 9293
    /// section 3.7.4, as Linux has it: `tcp_minshall_check()`). False is `TCP_NODELAY`.
    pub waits_for_more: bool,
}

/// What a controlled sender knows of its path, as `ss -i` shows it of the kernel's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathState {
    /// Congestion window, bytes; 0 before the first segment.
    pub window: u32,
    /// Slow-start threshold, bytes; about 2^30 before the first loss.
    pub threshold: u32,
    /// Bytes that are on their way, as far as acknowledgments tell (RFC 6675 section 4, `pipe`).
    pub in_flight: u32,
    /// Bytes that were sent and are not acknowledged.
    pub unacknowledged: u32,
    /// What the peer takes, bytes.
    pub peer_window: u32,
    /// Smoothed round-trip time; zero before the first.
    pub round_trip: Nanos,
    /// The shortest that it ever was; [`Nanos::MAX`] before the first (`tcp_min_rtt()`, which
    /// forgets after five minutes).
    pub least_round_trip: Nanos,
    /// What the retransmission timeout adds to that, before the stack's least and slop: four times
    /// the variation (RFC 6298 section 2).
    pub margin: Nanos,
    /// What became of its segments so far.
    pub counts: Counts,
}

/// Room that a segment leaves for headers, bytes, and the least that is left for data beside it
/// (`tcp_bound_to_half_wnd()`, Linux 6.18 `net/ipv4/tcp_output.c`).
const LEAST_SEGMENT: u32 = 48;
/// A peer whose window was never larger has a tiny one (`TCP_MSS_DEFAULT`).
const TINY_WINDOW: u32 = 536;

impl Connection {
    /// Gives this end congestion control and loss recovery: its congestion window grows and
    /// shrinks, what the peer's acknowledgments tell to be lost is sent again, and a stream may be
    /// longer than 4 GiB. Without it a sender has the initial window for ever, and goes back to the
    /// first byte that is not acknowledged when its timer goes off, which is all that a request
    /// needs.
    ///
    /// Call it before there is anything to send. From then on [`Connection::transmit`] is to be
    /// called after each [`Connection::on_segment`], also after the application has closed: it
    /// sends what was lost, too.
    ///
    /// Sources: RFC 5681, RFC 6298, RFC 6582, RFC 6675, RFC 6937, RFC 8985, and RFC 9438 for
    /// [`Algorithm::Cubic`]; Linux 6.18 where it chooses. Differs from Linux: a path that reorders
    /// is never believed to; no F-RTO (RFC 5682); no undoing of a reduction that was needless (RFC
    /// 3522, RFC 4015); no HyStart, no pacing, no ECN. On a path that keeps the order both send the
    /// same segments: `tests/running_kernel.rs`.
    ///
    /// # Panics
    ///
    /// When something was sent already.
    pub fn control(&mut self, control: Control) {
        assert!(self.snd_max == self.stream_start, "control begins before the first byte is sent");
        let handshake = Some(self.round_trip.smoothed()).filter(|took| *took > Nanos::ZERO);
        self.sender = Some(Box::new(Sender::new(control, self.snd_max, handshake)));
    }

    /// What a controlled sender knows of its path; `None` without [`Connection::control`].
    pub fn path_state(&self) -> Option<PathState> {
        let sender = self.sender.as_deref()?;
        Some(PathState {
            window: sender.window.size,
            threshold: sender.window.threshold,
            in_flight: sender.in_flight(self.out(sender)),
            unacknowledged: self.snd_max - self.snd_una,
            peer_window: self.peer_window,
            round_trip: self.round_trip.smoothed(),
            least_round_trip: sender.least_round_trip(),
            margin: self.round_trip.margin(),
            counts: sender.counts,
        })
    }

    /// So many segments may leave from now on until this is said again; a controlled sender has no
    /// bound unless one is said. Linux bounds what of a flow waits below TCP
    /// (`tcp_small_queue_check()`, since 3.6): the caller counts that, since it knows what has left
    /// the host. What a timeout sends is not bounded.
    pub fn allow(&mut self, segments: u32) {
        if let Some(sender) = &mut self.sender {
            sender.allowed = segments;
        }
    }

    /// Whether the last [`Connection::transmit`] ended because of [`Connection::allow`]: there may
    /// be more to send when more is allowed.
    pub fn is_held(&self) -> bool {
        self.sender.as_deref().is_some_and(|sender| sender.is_held)
    }

    /// Data of a full segment now, bytes.
    pub fn full_segment(&self) -> u32 {
        self.sender.as_deref().map_or(self.data_mss(), |sender| self.segment_size(sender))
    }

    /// Where in the stream a sequence number is; of an uncontrolled sender's, whose stream is
    /// shorter than 4 GiB.
    pub(crate) fn offset(&self, seq: SeqNumber) -> u64 {
        match &self.sender {
            Some(sender) => sender.acknowledged + u64::from(seq - self.snd_una),
            None => u64::from(seq - self.stream_start),
        }
    }

    fn out(&self, sender: &Sender) -> Out {
        Out { una: self.snd_una, max: self.snd_max, mss: self.segment_size(sender), has_sack: self.has_sack }
    }

    /// Data of a full segment, bytes: less than the largest where half of the peer's window is less
    /// (`tcp_bound_to_half_wnd()`), so that two are out.
    fn segment_size(&self, sender: &Sender) -> u32 {
        let most = sender.most_offered;
        let half = if most > TINY_WINDOW { most / 2 } else { most };
        let mss = self.data_mss();
        if half == 0 { mss } else { mss.min(half.max(LEAST_SEGMENT)) }
    }

    pub(crate) fn transmit_controlled(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        if !self.connected || !(self.is_open() || self.is_closing()) {
            return;
        }
        self.prepare(stack, stream, now);
        let Some(sender) = self.sender.as_deref() else {
            return;
        };
        let out = self.out(sender);
        let mut in_flight = sender.in_flight(out);
        let before = self.snd_max;
        let mut allowed = sender.allowed;
        let mut is_held = false;
        let is_full = loop {
            if allowed == 0 {
                is_held = true;
                break false;
            }
            match self.send_next(stack, stream, in_flight, now, send) {
                Turn::Sent(bytes) => {
                    in_flight += bytes;
                    allowed -= u32::from(allowed < u32::MAX);
                }
                Turn::Full => break true,
                Turn::Done => break false,
            }
        };
        let (una, max) = (self.snd_una, self.snd_max);
        if let Some(sender) = &mut self.sender {
            (sender.allowed, sender.is_held) = (allowed, is_held);
            let is_limit = is_full || sender.window.size < in_flight.saturating_add(out.mss);
            sender.window.note_use(una, max, is_limit);
            if let Some(sent_at) = sender.first_sent_at().filter(|_| max != before) {
                self.arm_probe(stack, sent_at, now);
            }
        }
    }

    /// Sends a segment so that the peer tells what of the tail is missing: a new one if it takes
    /// it, whatever the congestion window is, or else the last one again (`tcp_send_loss_probe()`,
    /// Linux 6.18 `net/ipv4/tcp_output.c`).
    pub(crate) fn probe(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let Some(mss) = self.sender.as_deref().map(|sender| self.segment_size(sender)) else {
            return;
        };
        if matches!(self.send_new(stack, stream, (u32::MAX, mss), now, send), Turn::Sent(_)) {
            return;
        }
        // Segments are full but for the last one, which may have a FIN besides.
        let fin = u32::from(self.is_closing());
        let data = self.snd_max - self.snd_una - fin;
        let last = if data == 0 { 0 } else { (data - 1) % mss + 1 };
        let from = self.snd_una + (data - last);
        let bytes = self.send_again(stack, stream, (from, self.snd_max), now, send);
        if let Some(sender) = &mut self.sender {
            sender.note_resent((from, from + bytes), now);
            sender.note_probe(self.snd_max);
        }
    }

    /// The window begins, or begins again after nothing was sent for a while.
    fn prepare(&mut self, stack: &Stack, stream: &(impl Stream + ?Sized), now: Nanos) {
        let has_more = self.offset(self.snd_nxt) < stream.length() && self.is_open();
        let is_idle = self.snd_una == self.snd_max && self.peer_window > 0;
        let timeout = self.round_trip.timeout(stack, self.syns_sent);
        let segments = if self.begins_small { 1 } else { u32::from(stack.initial_window) };
        let peer_window = self.peer_window;
        if let Some(sender) = &mut self.sender {
            sender.most_offered = sender.most_offered.max(peer_window);
        }
        let mss = self.sender.as_deref().map_or(0, |sender| self.segment_size(sender));
        let Some(sender) = &mut self.sender else {
            return;
        };
        if sender.window.size == 0 {
            sender.window.size = segments * mss;
        } else if has_more && is_idle && sender.sent_at != Nanos::MAX {
            sender.window.restart(now.since(sender.sent_at), timeout, segments * mss);
            sender.sent_at = now;
        }
        // Segments have become larger, as the peer's window has.
        sender.window.size = sender.window.size.max(mss);
    }

    /// Sends one segment, if there is one and the window has room for it: `NextSeg()` (RFC 6675
    /// section 4).
    fn send_next(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        in_flight: u32,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Turn {
        let Some(sender) = self.sender.as_deref() else {
            return Turn::Done;
        };
        let out = self.out(sender);
        let room = sender.window.size.saturating_sub(in_flight);
        let (lost, doubtful) = (sender.next_lost(), sender.next_doubtful());
        if let Some(range) = lost {
            return self.send_range(stack, stream, range, room, now, send);
        }
        let turn = self.send_new(stack, stream, (room, out.mss), now, send);
        if turn != Turn::Done {
            return turn;
        }
        match doubtful {
            Some(range) => self.send_range(stack, stream, range, room, now, send),
            None => Turn::Done,
        }
    }

    /// Sends what was never sent, as the peer's window lets: full segments, or the last one, or
    /// whatever it takes when nothing is out.
    fn send_new(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        (room, mss): (u32, u32),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Turn {
        let offset = self.offset(self.snd_nxt);
        let left = stream.length().saturating_sub(offset);
        if !self.is_open() {
            return Turn::Done;
        }
        if left == 0 {
            if self.half_closed {
                self.close_way(stack, now, send);
            }
            return Turn::Done;
        }
        let out = self.snd_nxt - self.snd_una;
        let offered = self.peer_window.saturating_sub(out);
        let most = self.beside_options(mss);
        let wanted = left.min(u64::from(most)) as u32;
        // A silly window is waited with (RFC 9293 section 3.8.6.2.1), as acknowledgments will come.
        let len = if wanted <= offered || out == 0 { wanted.min(offered) } else { 0 };
        if len == 0 || (len < most && self.waits(len, left)) {
            self.wait_for_window(stack, now);
            return Turn::Done;
        }
        if len > room {
            return Turn::Full;
        }
        let payload = stream.bytes(offset, len as usize);
        let is_last = u64::from(len) == left;
        let flags = match (is_last, self.half_closed) {
            (false, _) => Flags::ACK,
            (true, false) => Flags::ACK | Flags::PSH,
            // What waits when the application closes goes with the FIN (tcp_send_fin()).
            (true, true) => {
                self.leave_open();
                Flags::ACK | Flags::PSH | Flags::FIN
            }
        };
        self.note_answer(stack, now);
        self.send(stack, flags, payload, now, send);
        self.start_timer(stack, now);
        let (end, times_each) = (self.snd_nxt, self.times_each_segment(stack));
        if let Some(sender) = &mut self.sender {
            sender.sent_at = now;
            if len < most {
                sender.short_end = end;
            }
            // While a loss is recovered from, too: else a flow that is never without one would keep
            // a timeout that was doubled (RFC 6298 section 5, after 5.7).
            if !times_each && !self.round_trip.is_timing() && self.timeouts == 0 && !self.has_probed {
                self.round_trip.start(now);
                sender.timed_end = end;
            }
        }
        Turn::Sent(len)
    }

    /// Nagle's rule: a short segment at the end of what was written waits while another short one
    /// is out.
    fn waits(&self, len: u32, left: u64) -> bool {
        let sender = self.sender.as_deref().filter(|sender| sender.waits_for_more && !self.half_closed);
        sender.is_some_and(|sender| u64::from(len) == left && self.snd_una < sender.short_end)
    }

    /// Sends the first segment of a range again, if it fits the window and what the peer takes now
    /// (`tcp_retransmit_skb()`: of a peer that takes less than it said only the first segment is
    /// asked again).
    fn send_range(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        (from, to): Range,
        room: u32,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Turn {
        let Some(sender) = self.sender.as_deref() else {
            return Turn::Done;
        };
        let len = (to - from).min(self.segment_size(sender));
        if from != self.snd_una && from + len - self.snd_una > self.peer_window {
            return Turn::Done;
        }
        if len > room {
            return Turn::Full;
        }
        let bytes = self.send_again(stack, stream, (from, from + len), now, send);
        if bytes == 0 {
            return Turn::Done; // the stream is shorter than it was
        }
        if let Some(sender) = &mut self.sender {
            sender.note_resent((from, from + bytes), now);
        }
        Turn::Sent(len) // all that counted as lost: options may have taken some of its room
    }

    /// After a timeout: the first segment that is not acknowledged, whatever the windows are.
    pub(crate) fn send_first_again(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let Some(sender) = self.sender.as_deref() else {
            return;
        };
        let (from, to) = sender.first_missing();
        let bytes = self.send_again(stack, stream, (from, to), now, send);
        if let Some(sender) = &mut self.sender {
            sender.note_resent((from, from + bytes), now);
        }
    }

    /// Sends one segment of a range again, with the FIN if that is in it. Gives its length.
    fn send_again(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        (from, to): Range,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> u32 {
        let Some(sender) = self.sender.as_deref() else {
            return 0;
        };
        let offset = self.offset(from);
        let rest = stream.length().saturating_sub(offset);
        let most = self.beside_options(self.segment_size(sender)).min(to - from);
        let len = rest.min(u64::from(most)) as usize;
        let is_last = len as u64 == rest;
        let has_fin = is_last && self.is_closing() && len < (to - from) as usize;
        let flags = match (has_fin, is_last && len > 0) {
            (true, _) => Flags::ACK | Flags::FIN,
            (false, true) => Flags::ACK | Flags::PSH,
            (false, false) => Flags::ACK,
        };
        let payload = if len == 0 { &[] } else { stream.bytes(offset, len) };
        let segment = Segment { seq: from, ..self.segment(stack, flags, payload, now) };
        let bytes = segment.len();
        if bytes == 0 {
            return 0;
        }
        self.ack_sent();
        send(&segment);
        self.round_trip.abandon();
        if let Some(sender) = &mut self.sender {
            sender.sent_at = now;
        }
        if from == self.snd_una {
            self.arm(stack, now); // as Linux, and as RFC 6675 section 6 lets (tcp_xmit_retransmit_queue())
        }
        bytes
    }

    /// What is left of a segment beside the blocks that say what of the peer's has arrived.
    fn beside_options(&self, mss: u32) -> u32 {
        let blocks =
            if self.early.is_some() && self.has_sack { 4 + 8 * self.most_blocks() as u32 } else { 0 };
        mss.saturating_sub(blocks).max(1)
    }

    /// Tells the sender what a segment acknowledges. The numbers have been moved on.
    pub(crate) fn control_ack(
        &mut self,
        stack: &Stack,
        segment: &Segment<'_>,
        (acked, is_again): (u32, bool),
        now: Nanos,
    ) {
        let Some(sender) = self.sender.as_deref() else {
            return;
        };
        let out = self.out(sender);
        let told = Told {
            acked,
            blocks: &segment.options.sack,
            is_duplicate: is_again && self.snd_una != self.snd_max,
            round_trip: self.round_trip.smoothed(),
            echoed: self.echoed(segment, now).filter(|_| acked > 0),
            measures: self.times_each_segment(stack).then_some(stack.rto.least_variation),
        };
        if let Some(sender) = &mut self.sender {
            sender.on_ack(out, told, now);
            if let Some(estimate) = &sender.estimate {
                self.round_trip.set(estimate);
            }
        }
    }

    /// Each acknowledgment is a sample of the round trip, whether or not a segment is being timed.
    pub(crate) fn times_each_segment(&self, stack: &Stack) -> bool {
        let is_as_linux = stack.rto.estimator == Estimator::Linux;
        is_as_linux && self.sender.as_deref().is_some_and(|sender| !sender.window.is_classic())
    }

    /// The timer went off.
    pub(crate) fn lose_all(&mut self, now: Nanos) {
        let is_first = self.timeouts == 0;
        if let Some(out) = self.sender.as_deref().map(|sender| self.out(sender))
            && let Some(sender) = &mut self.sender
        {
            sender.on_timeout(out, is_first, now);
        }
    }

    /// Whether no more than a segment is out, as far as is known.
    pub(crate) fn is_single(&self) -> bool {
        let sender = self.sender.as_deref();
        sender.is_none_or(|sender| self.snd_max - self.snd_una <= self.segment_size(sender))
    }

    /// RFC 6298 section 5 (1): sending does not put it off.
    pub(crate) fn start_timer(&mut self, stack: &Stack, now: Nanos) {
        if self.retransmit_at == Nanos::MAX {
            self.arm(stack, now);
        }
    }

    /// By how many doublings the timeout is longer than its measure.
    pub(crate) fn backoff(&self) -> u8 {
        self.sender.as_deref().map_or(0, |sender| sender.backoff)
    }

    /// A round trip was measured.
    pub(crate) fn end_backoff(&mut self) {
        if let Some(sender) = &mut self.sender {
            sender.backoff = 0;
            sender.counts.round_trips += 1;
        }
    }

    /// Counts what was overtaken as lost, if it is time. Gives whether it was.
    pub(crate) fn take_overtaken(&mut self, now: Nanos) -> bool {
        let Some(out) =
            self.sender.as_deref().filter(|sender| sender.loss_at <= now).map(|sender| self.out(sender))
        else {
            return false;
        };
        if let Some(sender) = &mut self.sender {
            sender.on_overtaken(out, now);
        }
        true
    }

    /// Whether the segment that is being timed has arrived.
    pub(crate) fn is_timed_acknowledged(&self) -> bool {
        self.sender.as_deref().is_none_or(|sender| sender.timed_end <= self.snd_una)
    }
}

/// What became of a turn to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// So many bytes.
    Sent(u32),
    /// The congestion window is full.
    Full,
    /// There is nothing to send, or the peer does not take it.
    Done,
}
