//! The server's side of a handshake: what its kernel keeps of a SYN, the SYN/ACK, and the
//! connection that the client's ACK makes of them.

use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber, Timestamps};

use crate::Stack;
use crate::connection::{Close, Connection, State, clock_ms};
use crate::stream::Stream;

/// A handshake that a client began: a request socket without its place in a queue (`struct
/// tcp_request_sock`, Linux 6.18 `include/linux/tcp.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// The client's initial sequence number.
    pub irs: SeqNumber,
    /// Ours.
    pub iss: SeqNumber,
    /// What the SYN offered.
    pub offered: Options,
    /// When the SYN/ACK was sent first.
    pub sent_at: Nanos,
    /// SYN/ACKs sent after that (`num_retrans`).
    pub sent_again: u8,
    /// Of these, those that its timer sent (`num_timeout`), and not the SYN, which came again.
    pub timeouts: u8,
}

impl Handshake {
    /// Of a SYN that came now, with an initial sequence number of ours.
    pub fn begin(syn: &Segment<'_>, iss: SeqNumber, now: Nanos) -> Self {
        Self { irs: syn.seq, iss, offered: syn.options, sent_at: now, sent_again: 0, timeouts: 0 }
    }

    /// The SYN/ACK: what the SYN offered and this stack has. `clock` is what timestamps show at
    /// time zero, milliseconds.
    pub fn syn_ack(&self, stack: &Stack, clock: u32, now: Nanos) -> Segment<'static> {
        let ours = stack.syn_options(clock.wrapping_add(clock_ms(now)));
        let options = Options {
            window_scale: ours.window_scale.filter(|_| self.offered.window_scale.is_some()),
            sack_permitted: ours.sack_permitted && self.offered.sack_permitted,
            timestamps: ours
                .timestamps
                .zip(self.offered.timestamps)
                .map(|(ours, theirs)| Timestamps { echo: theirs.value, ..ours }),
            ..ours
        };
        Segment {
            seq: self.iss,
            ack: self.irs + 1,
            flags: Flags::SYN | Flags::ACK,
            window: stack.window,
            options,
            payload: &[],
        }
    }

    /// The SYN/ACK is sent again, since the SYN was (`inet_rtx_syn_ack()`).
    pub fn repeat(&mut self) {
        self.sent_again = self.sent_again.saturating_add(1);
    }

    /// It is sent again, since nobody has answered it (`reqsk_timer_handler()`).
    pub fn time_out(&mut self) {
        self.timeouts = self.timeouts.saturating_add(1);
        self.repeat();
    }

    /// How long it waits for an answer now: `first`, doubled each time that its timer came up, and
    /// no more than `longest` (`tcp_reqsk_timeout()`).
    pub fn timeout(&self, first: Nanos, longest: Nanos) -> Nanos {
        Nanos(first.0 << self.timeouts.min(10)).min(longest)
    }

    /// Whether a segment acknowledges the SYN/ACK.
    pub fn is_acknowledged_by(&self, segment: &Segment<'_>) -> bool {
        segment.flags.has(Flags::ACK) && segment.ack == self.iss + 1
    }

    /// The connection that it has become. The segment that ended it is still to be taken in.
    pub fn established(&self, stack: &Stack, clock: u32, now: Nanos) -> Connection {
        let mut connection = Connection::begin(stack, self.iss, clock, self.sent_at);
        connection.state = State::Established;
        connection.connected = true;
        connection.snd_una = self.iss + 1;
        connection.rcv_nxt = self.irs + 1;
        connection.take_options(stack, &self.offered);
        connection.begins_small = self.sent_again > 1;
        // Karn's rule: which SYN/ACK was answered nobody knows.
        if self.sent_again > 0 {
            connection.round_trip.abandon();
        } else {
            connection.round_trip.sample(now);
        }
        connection
    }
}

impl Connection {
    /// The next byte that is expected of the peer.
    pub fn expects(&self) -> SeqNumber {
        self.rcv_nxt
    }

    /// The next of ours to be sent for the first time.
    pub fn sends_next(&self) -> SeqNumber {
        self.snd_max
    }

    /// The first byte of ours that is not acknowledged.
    pub fn first_unacknowledged(&self) -> SeqNumber {
        self.snd_una
    }

    /// Bytes of the stream that were ever sent.
    pub fn sent(&self) -> u64 {
        self.offset(self.snd_max)
    }

    /// The last timestamp of the peer, if segments have them.
    pub fn peer_timestamp(&self) -> Option<u32> {
        self.has_timestamps.then_some(self.peer_clock)
    }

    /// This end is no more, and tells nobody: the host has decided so.
    pub fn forget(&mut self) {
        self.end();
    }

    /// close(2) of a connection on which not all of `stream` is acknowledged: the FIN follows it.
    /// Data that is not sent yet when this is called is sent as the peer's window lets it.
    pub fn close_after(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) {
        let is_all_sent = self.offset(self.snd_max) >= stream.length();
        match self.state {
            State::Established | State::CloseWait if !is_all_sent => {
                self.orphaned = true;
                self.early = None;
                self.half_close(stack, stream, now, send);
            }
            _ => self.close(stack, Close::Fin, now, send),
        }
    }
}
