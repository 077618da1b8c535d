//! One connection: its state, how it opens, sends and closes.

use std::fmt;

use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber};

use crate::Stack;
use crate::timer::RoundTrip;

/// Segments that may be in flight at first (RFC 6928).
const INITIAL_WINDOW: u32 = 10;

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
}

/// A client's end of one connection.
///
/// The caller keeps the bytes to send and passes the same `stream` to every call that may send them.
#[derive(Debug)]
pub struct Connection {
    pub(crate) state: State,
    /// The application has closed: what still arrives is answered as Linux answers for a socket without an owner.
    pub(crate) orphaned: bool,
    /// Data segments that arrived since our last ACK.
    pub(crate) unacked_segments: u8,
    /// SYNs sent, the first included.
    pub(crate) syns_sent: u8,
    /// Timeouts since the peer last acknowledged something new.
    pub(crate) timeouts: u8,
    /// The peer's maximum segment size, bytes.
    pub(crate) peer_mss: u16,
    /// The peer's window, bytes.
    pub(crate) peer_window: u16,
    /// Bytes of the stream that were ever sent, and the FIN: `snd_max` of BSD.
    pub(crate) snd_max: SeqNumber,
    pub(crate) iss: SeqNumber,
    pub(crate) snd_una: SeqNumber,
    pub(crate) snd_nxt: SeqNumber,
    pub(crate) rcv_nxt: SeqNumber,
    pub(crate) round_trip: RoundTrip,
    /// When to retransmit, or to probe a closed window; [`Nanos::MAX`] when nothing is out and nothing waits.
    pub(crate) retransmit_at: Nanos,
    /// When the delayed ACK is due; [`Nanos::MAX`] when there is none.
    pub(crate) ack_at: Nanos,
}

impl Connection {
    /// Opens a connection: sends the first SYN, with `iss` as initial sequence number.
    pub fn connect(stack: &Stack, iss: SeqNumber, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) -> Self {
        let mut connection = Self {
            state: State::SynSent,
            orphaned: false,
            unacked_segments: 0,
            syns_sent: 0,
            timeouts: 0,
            peer_mss: 536, // RFC 9293 section 3.7.1, where the peer offers none
            peer_window: 0,
            snd_max: iss + 1,
            iss,
            snd_una: iss,
            snd_nxt: iss + 1,
            rcv_nxt: SeqNumber(0),
            round_trip: RoundTrip::begin(now),
            retransmit_at: Nanos::MAX,
            ack_at: Nanos::MAX,
        };
        connection.send_syn(stack, now, send);
        connection
    }

    /// Where the connection stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// SYNs sent so far, the first included.
    pub fn syns_sent(&self) -> u32 {
        u32::from(self.syns_sent)
    }

    /// Whether the handshake was ever completed.
    pub fn has_connected(&self) -> bool {
        self.snd_una != self.iss
    }

    /// When [`Connection::on_deadline`] wants to be called; [`Nanos::MAX`] for never.
    pub fn deadline(&self) -> Nanos {
        self.retransmit_at.min(self.ack_at)
    }

    /// Sends what of `stream` is unsent and fits the peer's window and the initial congestion window.
    pub fn transmit(
        &mut self,
        stack: &Stack,
        stream: &[u8],
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        if !matches!(self.state, State::Established | State::CloseWait) {
            return;
        }
        let window = u32::from(self.peer_window).min(INITIAL_WINDOW * u32::from(self.peer_mss));
        loop {
            let offset = (self.snd_nxt - (self.iss + 1)) as usize;
            let room = window.saturating_sub(self.snd_nxt - self.snd_una) as usize;
            let len = stream.len().saturating_sub(offset).min(room).min(usize::from(self.peer_mss));
            if len == 0 {
                if offset < stream.len() {
                    self.wait_for_window(stack, now);
                }
                return;
            }
            let payload = &stream[offset..offset + len];
            let flags = if offset + len == stream.len() { Flags::ACK | Flags::PSH } else { Flags::ACK };
            self.send(stack, flags, payload, send);
            self.arm_retransmission(stack, now);
        }
    }

    /// Ends the connection for the application. What still arrives is not delivered.
    pub fn close(&mut self, stack: &Stack, how: Close, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        self.orphaned = true;
        match (self.state, how) {
            (State::Established, Close::Fin) => self.send_fin(stack, State::FinWait1, now, send),
            (State::CloseWait, Close::Fin) => self.send_fin(stack, State::LastAck, now, send),
            (State::Established | State::CloseWait, Close::Reset) => {
                send(&self.segment(stack, Flags::RST | Flags::ACK, &[]));
                self.end();
            }
            // Nothing has been promised to a peer that never answered: close(2) on a connecting socket sends nothing.
            (State::SynSent, _) => self.end(),
            _ => {}
        }
    }

    fn send_fin(&mut self, stack: &Stack, next: State, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        self.state = next;
        self.send(stack, Flags::FIN | Flags::ACK, &[], send);
        self.arm_retransmission(stack, now);
    }

    pub(crate) fn send_syn(&mut self, stack: &Stack, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        self.syns_sent = self.syns_sent.saturating_add(1);
        self.retransmit_at = now + stack.syn_timeout(self.syns_sent());
        let syn = Segment {
            seq: self.iss,
            ack: SeqNumber(0),
            flags: Flags::SYN,
            window: stack.window,
            options: Options::mss(stack.mss),
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
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let segment = self.segment(stack, flags, payload);
        self.snd_nxt += segment.len();
        if self.snd_max < self.snd_nxt {
            self.snd_max = self.snd_nxt;
        }
        self.ack_sent();
        send(&segment);
    }

    pub(crate) fn send_ack(&mut self, stack: &Stack, send: &mut impl FnMut(&Segment<'_>)) {
        self.ack_sent();
        send(&self.segment(stack, Flags::ACK, &[]));
    }

    fn ack_sent(&mut self) {
        self.unacked_segments = 0;
        self.ack_at = Nanos::MAX;
    }

    pub(crate) fn segment<'a>(&self, stack: &Stack, flags: Flags, payload: &'a [u8]) -> Segment<'a> {
        Segment {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags,
            window: stack.window,
            options: Options::default(),
            payload,
        }
    }

    pub(crate) fn end(&mut self) {
        self.state = State::Closed;
        self.retransmit_at = Nanos::MAX;
        self.ack_at = Nanos::MAX;
    }
}
