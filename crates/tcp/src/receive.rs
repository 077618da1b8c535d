//! What an arriving segment does, question by question: is it acceptable, what does it acknowledge, what does it
//! bring, what is the next state (RFC 9293 section 3.10.7).

use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heard<'a> {
    /// New data in order; empty after the application closed.
    pub data: &'a [u8],
    /// What changed, after the data.
    pub change: Change,
}

impl Heard<'_> {
    const fn only(change: Change) -> Self {
        Self { data: &[], change }
    }
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
            self.end();
            return Change::Refused;
        }
        if segment.flags.has(Flags::ACK) && !acks_syn {
            // An old connection's challenge ACK: the peer forgets it on our RST, and takes the next SYN.
            send(&reset_for(segment).expect("the segment has an ACK and no RST"));
            return Change::None;
        }
        if !(acks_syn && segment.flags.has(Flags::SYN)) {
            return Change::None;
        }
        self.rcv_nxt = segment.seq + 1;
        self.snd_una = segment.ack;
        self.peer_window = segment.window;
        self.peer_mss = segment.options.mss.unwrap_or(self.peer_mss).clamp(48, stack.mss);
        self.round_trip.sample(now);
        self.retransmit_at = Nanos::MAX;
        self.state = State::Established;
        self.send_ack(stack, send);
        Change::Established
    }

    fn on_segment_synchronized<'a>(
        &mut self,
        stack: &Stack,
        segment: &Segment<'a>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Heard<'a> {
        if segment.flags.has(Flags::RST) {
            return Heard::only(self.on_reset(stack, segment, send));
        }
        if !self.is_next(segment) {
            // Old, out of order, or a SYN: say what we expect (RFC 9293 3.10.7.4 first check; RFC 5961 section 4).
            if !segment.is_empty() {
                self.send_ack(stack, send);
            }
            return Heard::only(Change::None);
        }
        if !segment.flags.has(Flags::ACK) || self.snd_max < segment.ack {
            return Heard::only(Change::None);
        }
        let acknowledged = self.take_ack(stack, segment, now);
        self.take_data(stack, segment, acknowledged, now, send)
    }

    /// A RST at exactly the next sequence number ends the connection; elsewhere it may be forged (RFC 5961 section 3).
    fn on_reset(
        &mut self,
        stack: &Stack,
        segment: &Segment<'_>,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Change {
        if segment.seq == self.rcv_nxt {
            self.end();
            return Change::Reset;
        }
        if segment.seq - self.rcv_nxt < u32::from(stack.window) {
            self.send_ack(stack, send);
        }
        Change::None
    }

    fn is_next(&self, segment: &Segment<'_>) -> bool {
        segment.seq == self.rcv_nxt && !segment.flags.has(Flags::SYN)
    }

    /// Moves `snd_una` on. Gives the change of state when that completes a close.
    fn take_ack(&mut self, stack: &Stack, segment: &Segment<'_>, now: Nanos) -> Change {
        self.peer_window = segment.window;
        if segment.ack <= self.snd_una {
            self.end_probing();
            return Change::None;
        }
        self.snd_una = segment.ack;
        if self.snd_nxt < self.snd_una {
            self.snd_nxt = self.snd_una; // what we sent before going back has arrived
        }
        self.timeouts = 0;
        self.round_trip.sample(now);
        if self.snd_una < self.snd_max {
            self.arm_retransmission(stack, now);
            return Change::None;
        }
        self.retransmit_at = Nanos::MAX;
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.retransmit_at = now + FIN_TIMEOUT;
                Change::None
            }
            State::Closing | State::LastAck => {
                self.end();
                Change::Closed
            }
            _ => Change::None,
        }
    }

    fn take_data<'a>(
        &mut self,
        stack: &Stack,
        segment: &Segment<'a>,
        acknowledged: Change,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Heard<'a> {
        let receives = matches!(self.state, State::Established | State::FinWait1 | State::FinWait2);
        if segment.is_empty() || !receives {
            return Heard::only(acknowledged);
        }
        if self.orphaned && !segment.payload.is_empty() {
            // Nobody will read it: Linux resets rather than lose data silently (tcp_rcv_state_process, RFC 2525 2.17).
            send(&reset_for(segment).expect("the segment has an ACK and no RST"));
            self.end();
            return Heard::only(Change::Closed);
        }
        self.rcv_nxt += segment.len();
        let change = if segment.flags.has(Flags::FIN) { self.on_fin() } else { acknowledged };
        self.acknowledge(stack, segment, now, send);
        if self.state == State::Closed {
            self.end();
        }
        Heard { data: segment.payload, change }
    }

    fn on_fin(&mut self) -> Change {
        match self.state {
            State::FinWait1 => {
                self.state = State::Closing;
                Change::PeerClosed
            }
            State::FinWait2 => {
                self.state = State::Closed; // TIME-WAIT, which this crate has not
                Change::Closed
            }
            _ => {
                self.state = State::CloseWait;
                Change::PeerClosed
            }
        }
    }

    /// At once for every second segment, and for a FIN that nobody will answer with one; else within the delayed-ACK time (RFC 9293 section 3.8.6.3).
    fn acknowledge(
        &mut self,
        stack: &Stack,
        segment: &Segment<'_>,
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        self.unacked_segments += 1;
        if self.unacked_segments >= 2 || (segment.flags.has(Flags::FIN) && self.orphaned) {
            self.send_ack(stack, send);
        } else {
            self.ack_at = now + stack.delayed_ack;
        }
    }
}

/// The RST that answers a segment of no connection, or `None` for a RST (RFC 9293 section 3.10.7.1).
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
