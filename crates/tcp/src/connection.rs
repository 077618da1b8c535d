//! One connection: its state, how it opens, sends and closes.

use std::fmt;

use units::Nanos;
use wire::{Flags, Options, SackBlocks, Segment, SeqNumber, Timestamps};

use crate::Stack;
use crate::early::Early;
use crate::recovery::Sender;
use crate::stream::Stream;
use crate::timer::{FIN_TIMEOUT, RoundTrip};

/// Where a connection stands. Displays as RFC 9293 prints it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A SYN is out.
    SynSent,
    /// Both ways are open.
    Established,
    /// The peer has closed its way.
    CloseWait,
    /// We closed first; the FIN is not acknowledged.
    FinWait1,
    /// We closed first; the peer may still send.
    FinWait2,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// We closed after the peer; our FIN is not acknowledged.
    LastAck,
    /// The same, and its acknowledgment is answered by a RST ([`Close::Swap`]): `[FTY97]`.
    LastAckSwap,
    /// Over, and its addresses and ports are kept from use for a while. Only where
    /// [`Connection::keep_time_wait`] was said.
    TimeWait,
    /// Over.
    Closed,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SynSent => "SYN-SENT",
            Self::Established => "ESTABLISHED",
            Self::CloseWait => "CLOSE-WAIT",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::LastAckSwap => "LAST-ACK-SWAP",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        })
    }
}

/// How the application ends a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// close(2): a FIN after what was sent.
    Fin,
    /// An abortive close (`SO_LINGER` with 0): a RST, and nothing stays behind at either end.
    Reset,
    /// As [`Close::Fin`]; but if the peer closed first, its last ACK is answered by a RST, so that
    /// TIME-WAIT is here and not there: LAST_ACK_SWAP of `[FTY97]`.
    Swap,
}

/// A client's end of one connection.
///
/// The caller keeps the bytes to send and passes the same `stream` to every call that may send
/// them, until it begins another by [`Connection::next_stream`].
#[derive(Debug)]
pub struct Connection {
    pub(crate) state: State,
    /// The application has closed: what still arrives is answered as Linux answers for a socket
    /// without an owner.
    pub(crate) orphaned: bool,
    /// The application will send no more, but reads on: a FIN follows the stream.
    pub(crate) half_closed: bool,
    /// How long it is in TIME-WAIT, seconds; 0 is not at all.
    pub(crate) time_wait_s: u8,
    /// The handshake was completed.
    pub(crate) connected: bool,
    /// Both ends offered timestamps.
    pub(crate) has_timestamps: bool,
    /// Both ends offered selective acknowledgements.
    pub(crate) has_sack: bool,
    /// Both ends scale their windows; the peer by so many bits.
    pub(crate) peer_scale: Option<u8>,
    /// The next SYN is due because a RST answered the last, not because nothing did.
    pub(crate) retries_after_reset: bool,
    /// Data has been answered by data: ACKs wait for more of it (the kernel's pingpong mode).
    pub(crate) is_interactive: bool,
    /// Data segments that arrived since our last ACK.
    pub(crate) unacked_segments: u8,
    /// Data segments that are still to be acknowledged at once.
    pub(crate) quick_acks: u8,
    /// SYNs sent, the first included.
    pub(crate) syns_sent: u8,
    /// RSTs that answered a SYN and did not end the attempt.
    pub(crate) resets: u8,
    /// Timeouts since the peer last acknowledged something new.
    pub(crate) timeouts: u8,
    /// The tail was probed since then.
    pub(crate) has_probed: bool,
    /// The handshake was lost more than once: a controlled sender begins with a window of one
    /// segment.
    pub(crate) begins_small: bool,
    /// The peer's maximum segment size, bytes.
    pub(crate) peer_mss: u16,
    /// The peer's window, bytes.
    pub(crate) peer_window: u32,
    /// Bytes of the stream that were ever sent, and the FIN: `snd_max` of BSD.
    pub(crate) snd_max: SeqNumber,
    /// Sequence number of the stream's first byte; of the first stream one more than the SYN's.
    pub(crate) stream_start: SeqNumber,
    pub(crate) snd_una: SeqNumber,
    pub(crate) snd_nxt: SeqNumber,
    pub(crate) rcv_nxt: SeqNumber,
    /// Our clock at time zero, milliseconds.
    clock_offset: u32,
    /// The peer's clock, as its last segment in order showed it (RFC 7323, TS.Recent).
    pub(crate) peer_clock: u32,
    /// When data last arrived, milliseconds; wraps.
    pub(crate) heard_at_ms: u32,
    pub(crate) round_trip: RoundTrip,
    /// When to retransmit, or to probe a closed window; [`Nanos::MAX`] when nothing is out and
    /// nothing waits.
    pub(crate) retransmit_at: Nanos,
    /// When the delayed ACK is due; [`Nanos::MAX`] when there is none.
    pub(crate) ack_at: Nanos,
    /// What arrived before its turn. Mostly there is none.
    pub(crate) early: Option<Box<Early>>,
    /// Congestion control and loss recovery of a sender that has them.
    pub(crate) sender: Option<Box<Sender>>,
}

impl Connection {
    /// Opens a connection: sends the first SYN, with `iss` as initial sequence number. `clock` is
    /// what timestamps show at time zero, milliseconds: the later of two connections from one
    /// address should have the later clock.
    pub fn connect(
        stack: &Stack,
        iss: SeqNumber,
        clock: u32,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Self {
        let mut connection = Self::begin(stack, iss, clock, now);
        connection.send_syn(stack, now, send);
        connection
    }

    /// Nothing was sent yet; a SYN with `iss` is timed from now on.
    pub(crate) fn begin(stack: &Stack, iss: SeqNumber, clock: u32, now: Nanos) -> Self {
        Self {
            state: State::SynSent,
            orphaned: false,
            half_closed: false,
            time_wait_s: 0,
            connected: false,
            has_timestamps: false,
            has_sack: false,
            peer_scale: None,
            retries_after_reset: false,
            is_interactive: false,
            unacked_segments: 0,
            quick_acks: stack.quick_acks,
            syns_sent: 0,
            resets: 0,
            timeouts: 0,
            has_probed: false,
            begins_small: false,
            peer_mss: 536, // RFC 9293 section 3.7.1, where the peer offers none
            peer_window: 0,
            snd_max: iss + 1,
            stream_start: iss + 1,
            snd_una: iss,
            snd_nxt: iss + 1,
            rcv_nxt: SeqNumber(0),
            clock_offset: clock,
            peer_clock: 0,
            heard_at_ms: 0,
            round_trip: RoundTrip::begin(now),
            retransmit_at: Nanos::MAX,
            ack_at: Nanos::MAX,
            early: None,
            sender: None,
        }
    }

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// SYNs sent so far, the first included.
    pub fn syns_sent(&self) -> u32 {
        u32::from(self.syns_sent)
    }

    /// From now on it has TIME-WAIT where TCP does, for so many seconds; without, it is closed at
    /// once, which does for whoever never uses a four-tuple twice.
    pub fn keep_time_wait(&mut self, seconds: u8) {
        self.time_wait_s = seconds;
    }

    /// For how long it has been in TIME-WAIT, or since it last heard of the peer there.
    pub fn in_time_wait(&self, now: Nanos) -> Option<Nanos> {
        let since = || now.since(Nanos(self.retransmit_at.0 - self.time_wait().0));
        (self.state == State::TimeWait).then(since)
    }

    /// Whether its segments have timestamps.
    pub fn has_timestamps(&self) -> bool {
        self.has_timestamps
    }

    /// Whether the handshake was ever completed.
    pub fn has_connected(&self) -> bool {
        self.connected
    }

    /// When [`Connection::on_deadline`] wants to be called; [`Nanos::MAX`] for never.
    pub fn deadline(&self) -> Nanos {
        let loss_at = self.sender.as_deref().map_or(Nanos::MAX, |sender| sender.loss_at);
        self.retransmit_at.min(self.ack_at).min(loss_at)
    }

    /// Sends what of `stream` is unsent and fits the peer's window and the initial congestion
    /// window; of a controlled sender what its congestion window lets, and what was lost
    /// ([`Connection::control`]).
    pub fn transmit(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        if self.sender.is_some() {
            return self.transmit_controlled(stack, stream, now, send);
        }
        if !self.is_open() {
            return;
        }
        let mss = self.data_mss();
        let window = self.peer_window.min(u32::from(stack.initial_window) * mss);
        loop {
            let offset = self.offset(self.snd_nxt);
            let room = window.saturating_sub(self.snd_nxt - self.snd_una);
            let len = stream.length().saturating_sub(offset).min(u64::from(room.min(mss))) as usize;
            if len == 0 {
                if offset < stream.length() {
                    self.wait_for_window(stack, now);
                } else if self.half_closed {
                    self.close_way(stack, now, send);
                }
                return;
            }
            let payload = stream.bytes(offset, len);
            let is_last = offset + len as u64 == stream.length();
            let flags = if is_last { Flags::ACK | Flags::PSH } else { Flags::ACK };
            self.note_answer(stack, now);
            self.send(stack, flags, payload, now, send);
            self.arm_retransmission(stack, now);
        }
    }

    /// Data leave: what answers within the time that an ACK waits carries the ACK; so will the next
    /// (`tcp_event_data_sent()`).
    pub(crate) fn note_answer(&mut self, stack: &Stack, now: Nanos) {
        let since_heard = clock_ms(now).wrapping_sub(self.heard_at_ms);
        self.is_interactive |=
            self.heard_at_ms != 0 && u64::from(since_heard) < stack.delayed_ack.as_micros() / 1000;
    }

    /// Our way is open for data.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
    }

    /// Bytes of the stream that the peer has acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.offset(self.snd_una)
    }

    /// The stream is over, and another begins with the next call that has one. Gives false, and
    /// does nothing, as long as the peer has not acknowledged all that was sent.
    pub fn next_stream(&mut self) -> bool {
        let is_settled = self.snd_una == self.snd_max && !self.half_closed;
        if is_settled {
            self.stream_start = self.snd_max;
            if let Some(sender) = &mut self.sender {
                sender.acknowledged = 0;
            }
        }
        is_settled
    }

    /// shutdown(2) of our way: a FIN follows `stream`, now or when the peer has taken all of it.
    /// What arrives is still delivered.
    pub fn half_close(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        self.half_closed = true;
        self.transmit(stack, stream, now, send);
    }

    /// Ends the connection for the application. What still arrives is not delivered.
    pub fn close(&mut self, stack: &Stack, how: Close, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        self.orphaned = true;
        self.early = None;
        match (self.state, how) {
            // Nothing has been promised to a peer that never answered: close(2) on a connecting
            // socket sends nothing.
            (State::SynSent, _) => self.end(),
            (State::Closed | State::TimeWait, _) => {}
            (_, Close::Reset) => {
                send(&self.segment(stack, Flags::RST | Flags::ACK, &[], now));
                self.end();
            }
            (State::Established | State::CloseWait, Close::Fin | Close::Swap) => {
                self.close_way(stack, now, send);
                if self.state == State::LastAck && how == Close::Swap {
                    self.state = State::LastAckSwap;
                }
            }
            (State::FinWait2, Close::Fin | Close::Swap) => self.retransmit_at = now + FIN_TIMEOUT,
            (_, Close::Fin | Close::Swap) => {}
        }
    }

    /// Sends the FIN.
    pub(crate) fn close_way(&mut self, stack: &Stack, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        self.leave_open();
        self.send(stack, Flags::FIN | Flags::ACK, &[], now, send);
        self.arm_retransmission(stack, now);
    }

    /// The FIN leaves.
    pub(crate) fn leave_open(&mut self) {
        self.state = if self.state == State::CloseWait { State::LastAck } else { State::FinWait1 };
    }

    pub(crate) fn send_syn(&mut self, stack: &Stack, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        self.syns_sent = self.syns_sent.saturating_add(1);
        let timeout = stack.syn_timeout(self.timeouts).expect("an attempt ends with its last timeout");
        self.retransmit_at = now + timeout;
        let syn = Segment {
            seq: SeqNumber(self.stream_start.0.wrapping_sub(1)),
            ack: SeqNumber(0),
            flags: Flags::SYN,
            window: stack.window,
            options: stack.syn_options(self.clock(now)),
            payload: &[],
        };
        send(&syn);
    }

    /// Sends at `snd_nxt` and moves it on. Every segment carries the ACK that was due.
    pub(crate) fn send(
        &mut self,
        stack: &Stack,
        flags: Flags,
        payload: &[u8],
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let segment = self.segment(stack, flags, payload, now);
        self.snd_nxt += segment.len();
        if self.snd_max < self.snd_nxt {
            self.snd_max = self.snd_nxt;
        }
        if let Some(sender) = &mut self.sender {
            sender.note_sent(self.snd_max, segment.len(), now);
        }
        self.ack_sent();
        send(&segment);
    }

    pub(crate) fn send_ack(&mut self, stack: &Stack, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        self.send_ack_of(stack, None, now, send);
    }

    /// Acknowledges, and says what came twice (RFC 2883 section 4).
    pub(crate) fn send_ack_of(
        &mut self,
        stack: &Stack,
        twice: Option<(SeqNumber, SeqNumber)>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        self.ack_sent();
        let mut ack = self.segment(stack, Flags::ACK, &[], now);
        if let Some((from, to)) = twice.filter(|_| self.has_sack) {
            let others = std::mem::replace(&mut ack.options.sack, SackBlocks::NONE);
            ack.options.sack.push(from, to);
            let room = self.most_blocks() - 1;
            others.as_slice().iter().take(room).for_each(|(from, to)| ack.options.sack.push(*from, *to));
        }
        send(&ack);
    }

    pub(crate) fn ack_sent(&mut self) {
        self.quick_acks = self.quick_acks.saturating_sub(self.unacked_segments);
        self.unacked_segments = 0;
        self.ack_at = Nanos::MAX;
    }

    pub(crate) fn segment<'a>(
        &self,
        stack: &Stack,
        flags: Flags,
        payload: &'a [u8],
        now: Nanos,
    ) -> Segment<'a> {
        Segment {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags,
            window: (self.receive_window(stack) >> self.scale(stack)) as u16,
            options: self.options(now),
            payload,
        }
    }

    fn options(&self, now: Nanos) -> Options {
        let timestamps =
            self.has_timestamps.then(|| Timestamps { value: self.clock(now), echo: self.peer_clock });
        let mut options = Options { timestamps, ..Options::NONE };
        if let Some(early) = self.early.as_deref().filter(|_| self.has_sack) {
            options.sack = early.blocks(self.most_blocks());
        }
        options
    }

    pub(crate) fn most_blocks(&self) -> usize {
        if self.has_timestamps { SackBlocks::MOST - 1 } else { SackBlocks::MOST }
    }

    /// By how many bits our windows are shifted.
    pub(crate) fn scale(&self, stack: &Stack) -> u8 {
        stack.window_scale.filter(|_| self.peer_scale.is_some()).unwrap_or(0)
    }

    /// What we can still take in, bytes: rounded up to what a scaled window can say, as Linux does
    /// (`__tcp_select_window()`).
    pub(crate) fn receive_window(&self, stack: &Stack) -> u32 {
        let scale = self.scale(stack);
        let buffer = stack.receive_buffer.unwrap_or(u32::from(stack.window));
        let unit = (1 << scale) - 1;
        (buffer.saturating_add(unit) & !unit).min(u32::from(u16::MAX) << scale)
    }

    /// Data that a segment may carry beside its options, bytes.
    pub(crate) fn data_mss(&self) -> u32 {
        data_bytes(self.peer_mss, self.has_timestamps)
    }

    /// What timestamps show at `now`, milliseconds.
    pub(crate) fn clock(&self, now: Nanos) -> u32 {
        self.clock_offset.wrapping_add(clock_ms(now))
    }

    fn time_wait(&self) -> Nanos {
        Nanos::from_secs(self.time_wait_s.into())
    }

    /// TIME-WAIT begins, or begins anew; where there is none the connection is over.
    pub(crate) fn begin_time_wait(&mut self, now: Nanos) {
        self.end();
        if self.time_wait_s > 0 {
            self.state = State::TimeWait;
            self.retransmit_at = now + self.time_wait();
        }
    }

    pub(crate) fn end(&mut self) {
        self.state = State::Closed;
        self.retransmit_at = Nanos::MAX;
        self.ack_at = Nanos::MAX;
        if let Some(sender) = &mut self.sender {
            sender.loss_at = Nanos::MAX;
        }
        self.early = None;
    }
}

/// The timestamps option and two NOPs, bytes.
const TIMESTAMPS_LEN: u32 = 12;

/// Data of a full segment, bytes.
pub(crate) fn data_bytes(mss: u16, has_timestamps: bool) -> u32 {
    u32::from(mss) - if has_timestamps { TIMESTAMPS_LEN } else { 0 }
}

/// Milliseconds since time zero; wraps after 49 days.
pub(crate) fn clock_ms(now: Nanos) -> u32 {
    (now.0 / 1_000_000) as u32
}
