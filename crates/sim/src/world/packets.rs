//! Packets, and the wire that they are on.

use std::collections::VecDeque;

use crowd::Endpoint;
use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber};

use crate::kernel::Mark;

/// A segment under way. It stays in its place in memory from its sender to its receiver; then
/// another takes that place.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) endpoint: Endpoint,
    /// Of the server's own, where its responses are long.
    pub(super) mark: Mark,
    pub(super) seq: SeqNumber,
    ack: SeqNumber,
    flags: Flags,
    window: u16,
    options: Options,
    payload: Vec<u8>,
}

impl Packet {
    pub(super) fn segment(&self) -> Segment<'_> {
        let Self { seq, ack, flags, window, options, .. } = *self;
        Segment { seq, ack, flags, window, options, payload: &self.payload }
    }

    pub(super) fn payload_bytes(&self) -> u64 {
        self.payload.len() as u64
    }
}

/// Places for packets.
#[derive(Debug, Default)]
pub(super) struct Packets {
    /// Those that are free again.
    #[expect(clippy::vec_box, reason = "what moves from queue to queue is where the packet is")]
    free: Vec<Box<Packet>>,
    /// All.
    places: usize,
}

impl Packets {
    pub(super) fn packet(&mut self, endpoint: Endpoint, segment: &Segment<'_>) -> Box<Packet> {
        let Segment { seq, ack, flags, window, options, payload: bytes } = *segment;
        let mark = Mark::default();
        let Some(mut packet) = self.free.pop() else {
            self.places += 1;
            let payload = bytes.to_vec();
            return Box::new(Packet { endpoint, mark, seq, ack, flags, window, options, payload });
        };
        let mut payload = std::mem::take(&mut packet.payload);
        payload.clear();
        payload.extend_from_slice(bytes);
        *packet = Packet { endpoint, mark, seq, ack, flags, window, options, payload };
        packet
    }

    pub(super) fn take_back(&mut self, packet: Box<Packet>) {
        self.free.push(packet);
    }

    /// Packets that were not taken back.
    pub(super) fn under_way(&self) -> usize {
        self.places - self.free.len()
    }
}

/// A wire: what leaves later arrives later.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    packets: VecDeque<(Nanos, Box<Packet>)>,
    /// Since the start.
    sent: u64,
}

impl Pipe {
    /// Whether the pipe was empty, so that somebody must look when this arrives.
    pub(super) fn put(&mut self, arrives: Nanos, packet: Box<Packet>) -> bool {
        debug_assert!(
            self.packets.back().is_none_or(|(before, _)| *before <= arrives),
            "no packet overtakes another"
        );
        self.sent += 1;
        self.packets.push_back((arrives, packet));
        self.packets.len() == 1
    }

    pub(super) fn take(&mut self, now: Nanos) -> Option<Box<Packet>> {
        let is_there = self.next().is_some_and(|arrives| arrives <= now);
        if is_there { self.packets.pop_front().map(|(_, packet)| packet) } else { None }
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Packets that have come to its far end since the start.
    pub(super) fn crossed(&self) -> u64 {
        self.sent - self.packets.len() as u64
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.packets.front().map(|(arrives, _)| *arrives)
    }
}
