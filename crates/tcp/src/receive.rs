//! What an arriving segment does, question by question: is it acceptable, what does it acknowledge,
//! what does it bring, what is the next state (RFC 9293 section 3.10.7).

use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber};

use crate::connection::clock_ms;
use crate::timer::FIN_TIMEOUT;
use crate::{Connection, Stack, State};

/// What an arriving segment or a deadline changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing that the application sees.
    None,
    /// The handshake is complete.
    Established,
    /// A RST answered the SYN.
    Refused,
    /// A RST ended the connection.
    Reset,
    /// The peer sent its FIN; nothing more will arrive.
    PeerClosed,
    /// Both ways are closed and acknowledged.
    Closed,
    /// Retransmissions were used up without an answer.
    GaveUp,
}

/// What an arriving segment gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard<'a> {
    /// New data in order; empty after the application closed.
    pub data: &'a [u8],
    /// What had come before its turn and follows that; mostly empty.
    pub then: Vec<u8>,
    /// What changed, after the data.
    pub change: Change,
}

impl Heard<'_> {
    const fn only(change: Change) -> Self {
        Self { data: &[], then: Vec::new(), change }
    }
}

/// What of a segment is within the window, and where.
struct Fitting<'a> {
    seq: SeqNumber,
    data: &'a [u8],
    has_fin: bool,
}

impl Connection {
    /// Takes in a segment of this connection.
    pub fn on_segment<'a>(
        &mut self,
        stack: &Stack,
        segment: &Segment<'a>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Heard<'a> {
        match self.state {
            State::Closed => Heard::only(Change::None),
            State::SynSent => Heard::only(self.on_answer_to_syn(stack, segment, now, send)),
            State::TimeWait => Heard::only(self.on_segment_in_time_wait(stack, segment, now, send)),
            _ => self.on_segment_synchronized(stack, segment, now, send),
        }
    }

    fn on_answer_to_syn(
        &mut self,
        stack: &Stack,
        segment: &Segment<'_>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Change {
        let acks_syn = segment.flags.has(Flags::ACK) && segment.ack == self.snd_nxt;
        if segment.flags.has(Flags::RST) {
            if !acks_syn {
                return Change::None; // a blind reset
            }
            return self.on_refusal(stack, now, send);
        }
        if segment.flags.has(Flags::ACK) && !acks_syn {
            // An old connection's challenge ACK: the peer forgets it on our RST, and takes the next
            // SYN.
            send(&reset_for(segment).expect("the segment has an ACK and no RST"));
            return Change::None;
        }
        if !(acks_syn && segment.flags.has(Flags::SYN)) {
            return Change::None;
        }
        self.rcv_nxt = segment.seq + 1;
        self.snd_una = segment.ack;
        self.take_options(stack, &segment.options);
        self.peer_window = u32::from(segment.window); // never scaled in a SYN/ACK
        self.sample_round_trip(stack, segment, now);
        self.timeouts = 0;
        self.retransmit_at = Nanos::MAX;
        self.connected = true;
        self.begins_small = self.syns_sent > 2;
        self.state = State::Established;
        self.send_ack(stack, now, send);
        Change::Established
    }

    /// The end, as RFC 9293 has it; or another SYN, as Windows does (`[Shu05]` section 4.1.5).
    fn on_refusal(&mut self, stack: &Stack, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) -> Change {
        if self.resets >= stack.reset_retries {
            self.end();
            return Change::Refused;
        }
        self.resets += 1;
        self.round_trip.abandon();
        if stack.reset_pause == Nanos::ZERO {
            self.send_syn(stack, now, send);
        } else {
            self.retry_syn_at(now + stack.reset_pause);
        }
        Change::None
    }

    pub(crate) fn take_options(&mut self, stack: &Stack, options: &Options) {
        self.peer_mss = options.mss.unwrap_or(self.peer_mss).clamp(LEAST_MSS, stack.mss);
        self.peer_scale = options.window_scale.filter(|_| stack.window_scale.is_some()).map(|by| by.min(14));
        self.has_sack = stack.sack && options.sack_permitted;
        if let Some(timestamps) = options.timestamps.filter(|_| stack.timestamps) {
            self.has_timestamps = true;
            self.peer_clock = timestamps.value;
        }
    }

    fn on_segment_synchronized<'a>(
        &mut self,
        stack: &Stack,
        segment: &Segment<'a>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Heard<'a> {
        if segment.flags.has(Flags::RST) {
            return Heard::only(self.on_reset(stack, segment, now, send));
        }
        let is_from_the_past = self.is_from_the_past(segment);
        if let Some(timestamps) = segment.options.timestamps.filter(|_| !is_from_the_past)
            && segment.seq <= self.rcv_nxt
        {
            self.peer_clock = timestamps.value; // of what is not acceptable, too (RFC 7323 section 4.3)
        }
        let fitting = self.fit(stack, segment).filter(|_| !is_from_the_past);
        let Some(fitting) = fitting.filter(|_| !segment.flags.has(Flags::SYN)) else {
            // Old, beyond the window, or a SYN: say what we expect (RFC 9293 3.10.7.4 first check;
            // RFC 5961 section 4).
            let twice = self.came_twice(segment);
            if twice.is_some() {
                self.be_quick(stack);
            }
            self.send_ack_of(stack, twice, now, send);
            return Heard::only(Change::None);
        };
        if !segment.flags.has(Flags::ACK) || self.snd_max < segment.ack {
            return Heard::only(Change::None);
        }
        let swaps = self.state == State::LastAckSwap;
        let acknowledged = self.take_ack(stack, segment, now);
        if acknowledged == Change::Closed && swaps {
            send(&reset_for(segment).expect("the segment has an ACK and no RST"));
        }
        self.take_data(stack, segment, &fitting, acknowledged, now, send)
    }

    /// What comes again is acknowledged again, and TIME-WAIT begins anew with a FIN; a RST at the
    /// next number ends it (`tcp_timewait_state_process()`, Linux 6.18 `net/ipv4/tcp_minisocks.c`,
    /// with `tcp_rfc1337` 0). Differs: there it begins anew with every segment that has an ACK and
    /// is not older by its timestamp.
    fn on_segment_in_time_wait(
        &mut self,
        stack: &Stack,
        segment: &Segment<'_>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Change {
        let is_next = segment.seq == self.rcv_nxt;
        if segment.flags.has(Flags::RST) {
            if is_next {
                self.end();
            }
            return Change::None;
        }
        if segment.flags.has(Flags::FIN) {
            self.begin_time_wait(now);
        }
        if !segment.is_empty() || !is_next {
            self.send_ack(stack, now, send);
        }
        Change::None
    }

    /// An old duplicate, by its timestamp (RFC 7323 section 5.3, PAWS).
    fn is_from_the_past(&self, segment: &Segment<'_>) -> bool {
        let timestamps = segment.options.timestamps.filter(|_| self.has_timestamps);
        timestamps.is_some_and(|timestamps| SeqNumber(timestamps.value) < SeqNumber(self.peer_clock))
    }

    /// What of a segment is new and within the window; `None` when it is all old, or beyond.
    fn fit<'a>(&self, stack: &Stack, segment: &Segment<'a>) -> Option<Fitting<'a>> {
        let window_end = self.rcv_nxt + self.receive_window(stack);
        let end = segment.seq + segment.len();
        let is_new = self.rcv_nxt < end || (end == self.rcv_nxt && segment.is_empty());
        if !is_new || window_end < segment.seq || (segment.seq == window_end && !segment.is_empty()) {
            return None;
        }
        let data_end = segment.seq + segment.payload.len() as u32;
        let old = if segment.seq < self.rcv_nxt { self.rcv_nxt - segment.seq } else { 0 };
        let beyond = if window_end < data_end { data_end - window_end } else { 0 };
        let len = segment.payload.len();
        let from = (old as usize).min(len);
        let data = &segment.payload[from..(len - (beyond as usize).min(len)).max(from)];
        let has_fin = segment.flags.has(Flags::FIN) && beyond == 0;
        Some(Fitting { seq: segment.seq + from as u32, data, has_fin })
    }

    /// Of a segment's data, what is before the next that is expected.
    fn came_twice(&self, segment: &Segment<'_>) -> Option<(SeqNumber, SeqNumber)> {
        let end = segment.seq + segment.len();
        let to = if end < self.rcv_nxt { end } else { self.rcv_nxt };
        (segment.seq < to && !segment.flags.has(Flags::SYN)).then_some((segment.seq, to))
    }

    /// The peer sends again what it need not: it should hear soon (tcp_enter_quickack_mode()).
    fn be_quick(&mut self, stack: &Stack) {
        self.quick_acks = stack.quick_acks;
        self.is_interactive = false;
    }

    /// A RST at exactly the next sequence number ends the connection; elsewhere it may be forged
    /// (RFC 5961 section 3).
    fn on_reset(
        &mut self,
        stack: &Stack,
        segment: &Segment<'_>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Change {
        if segment.seq == self.rcv_nxt {
            self.end();
            return Change::Reset;
        }
        if segment.seq - self.rcv_nxt < self.receive_window(stack) {
            self.send_ack(stack, now, send);
        }
        Change::None
    }

    /// Something new is acknowledged: by the segment that was timed, or by what the peer echoes of
    /// our clock (RFC 7323 section 4.1), which is right for what was sent twice, too. A sender that
    /// times each segment has measured in [`Connection::control_ack`].
    fn sample_round_trip(&mut self, stack: &Stack, segment: &Segment<'_>, now: Nanos) {
        if self.times_each_segment(stack) {
            return;
        }
        if self.is_timed_acknowledged() && self.round_trip.sample(now) {
            return self.end_backoff();
        }
        if let Some(took) = self.echoed(segment, now) {
            self.round_trip.take(took);
            self.end_backoff();
        }
    }

    /// Time since our clock showed what the peer echoes of it: a tick at least, as it may have come
    /// just then (`tcp_rtt_tsopt_us()`, Linux 6.18 `net/ipv4/tcp_input.c`). `None` without
    /// timestamps, and for an echo that is none.
    pub(crate) fn echoed(&self, segment: &Segment<'_>, now: Nanos) -> Option<Nanos> {
        let timestamps = segment.options.timestamps.filter(|_| self.has_timestamps)?;
        let millis = self.clock(now).wrapping_sub(timestamps.echo);
        (millis < MOST_ECHO_MS).then(|| Nanos::from_millis(u64::from(millis).max(1)))
    }

    /// Moves `snd_una` on. Gives the change of state when that completes a close.
    fn take_ack(&mut self, stack: &Stack, segment: &Segment<'_>, now: Nanos) -> Change {
        let window = u32::from(segment.window) << self.peer_scale.unwrap_or(0);
        let is_window_new = self.peer_window != window;
        if self.sender.is_none() || self.snd_una <= segment.ack {
            self.peer_window = window; // an older segment that was overtaken says an older one (RFC 9293 section 3.10.7.4)
        }
        if segment.ack <= self.snd_una {
            let is_again = segment.ack == self.snd_una && segment.is_empty() && !is_window_new;
            self.end_probing();
            self.control_ack(stack, segment, (0, is_again), now);
            return Change::None;
        }
        let acked = segment.ack - self.snd_una;
        self.snd_una = segment.ack;
        if self.snd_nxt < self.snd_una {
            self.snd_nxt = self.snd_una; // what we sent before going back has arrived
        }
        self.timeouts = 0;
        self.has_probed = false;
        self.sample_round_trip(stack, segment, now);
        self.control_ack(stack, segment, (acked, false), now);
        if self.snd_una < self.snd_max {
            self.arm(stack, now); // and times nothing: nothing is sent
            self.arm_probe(stack, now, now);
            return Change::None;
        }
        self.retransmit_at = Nanos::MAX;
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                if self.orphaned {
                    self.retransmit_at = now + FIN_TIMEOUT;
                }
                Change::None
            }
            State::LastAck => {
                self.end();
                Change::Closed
            }
            State::Closing | State::LastAckSwap => {
                self.begin_time_wait(now);
                Change::Closed
            }
            _ => Change::None,
        }
    }

    fn take_data<'a>(
        &mut self,
        stack: &Stack,
        segment: &Segment<'a>,
        fitting: &Fitting<'a>,
        acknowledged: Change,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Heard<'a> {
        let receives = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if segment.is_empty() || !receives {
            return Heard::only(acknowledged);
        }
        let Fitting { seq, data, has_fin } = *fitting;
        if self.orphaned && !data.is_empty() {
            // Nobody will read it: Linux resets rather than lose data silently
            // (tcp_rcv_state_process, RFC 2525 2.17).
            send(&reset_for(segment).expect("the segment has an ACK and no RST"));
            self.end();
            return Heard::only(Change::Closed);
        }
        if self.rcv_nxt < seq {
            self.keep(stack, seq, data, has_fin);
            self.send_ack(stack, now, send);
            return Heard::only(acknowledged);
        }
        let twice = self.came_twice(segment);
        self.rcv_nxt += data.len() as u32;
        let then = self.take_early();
        let fills_a_hole = !then.is_empty();
        let ends_here = has_fin && self.rcv_nxt == seq + data.len() as u32;
        let is_over = ends_here || self.early.as_ref().is_some_and(|early| early.ends_at(self.rcv_nxt));
        let mut change = acknowledged;
        if is_over {
            self.rcv_nxt += 1;
            self.early = None;
            change = self.on_fin(now);
        }
        if !data.is_empty() {
            self.heard_at_ms = clock_ms(now).max(1);
        }
        let is_urgent = fills_a_hole || self.early.is_some();
        self.acknowledge(stack, Arrived { is_over, is_urgent, twice }, now, send);
        if self.state == State::Closed {
            self.end();
        }
        Heard { data, then, change }
    }

    fn keep(&mut self, stack: &Stack, seq: SeqNumber, data: &[u8], has_fin: bool) {
        let window = self.receive_window(stack);
        let early = self.early.get_or_insert_default();
        early.insert(seq, data, window);
        if has_fin {
            early.insert_fin(seq + data.len() as u32);
        }
    }

    /// What follows without a hole.
    fn take_early(&mut self) -> Vec<u8> {
        let Some(early) = &mut self.early else {
            return Vec::new();
        };
        let then = early.take_from(self.rcv_nxt);
        self.rcv_nxt += then.len() as u32;
        if early.is_empty() {
            self.early = None;
        }
        then
    }

    fn on_fin(&mut self, now: Nanos) -> Change {
        match self.state {
            State::FinWait1 => {
                self.state = State::Closing;
                Change::PeerClosed
            }
            State::FinWait2 => {
                self.begin_time_wait(now);
                Change::Closed
            }
            _ => {
                self.state = State::CloseWait;
                Change::PeerClosed
            }
        }
    }

    /// At once for every second segment, where there is or was a hole, for the first ones if the
    /// stack does so, and for a FIN that nobody will answer with one; else within the delayed-ACK
    /// time (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2).
    fn acknowledge(
        &mut self,
        stack: &Stack,
        arrived: Arrived,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let Arrived { is_over, is_urgent, twice } = arrived;
        self.unacked_segments += 1;
        // A FIN makes the kernel expect an answer, too (tcp_fin()).
        self.is_interactive |= is_over;
        let is_quick = self.quick_acks > 0 && !self.is_interactive;
        let is_last = is_over && (self.orphaned || self.state != State::CloseWait);
        if self.unacked_segments >= 2 || is_quick || is_last || is_urgent {
            self.send_ack_of(stack, twice, now, send);
        } else {
            self.ack_at = now + stack.delayed_ack;
        }
    }
}

/// What an acknowledgment depends on.
struct Arrived {
    /// The peer's FIN was in its turn.
    is_over: bool,
    /// There is or was a hole.
    is_urgent: bool,
    /// What had been there already.
    twice: Option<(SeqNumber, SeqNumber)>,
}

/// As Linux has it (`TCP_MIN_SND_MSS`), so that options leave room for data.
const LEAST_MSS: u16 = 48;
/// An echo of more is none of our clock, which began just then, or was forged.
const MOST_ECHO_MS: u32 = 600_000;

/// The RST that answers a segment of no connection, or `None` for a RST (RFC 9293 section
/// 3.10.7.1).
pub fn reset_for(segment: &Segment<'_>) -> Option<Segment<'static>> {
    if segment.flags.has(Flags::RST) {
        return None;
    }
    let (seq, ack, flags) = if segment.flags.has(Flags::ACK) {
        (segment.ack, SeqNumber(0), Flags::RST)
    } else {
        (SeqNumber(0), segment.seq + segment.len(), Flags::RST | Flags::ACK)
    };
    Some(Segment { seq, ack, flags, window: 0, options: Options::default(), payload: &[] })
}
