//! Packets, and the wire that they are on.

use std::collections::VecDeque;

use crowd::Endpoint;
use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber};

/// A segment under way. It stays in its place in memory from its sender to its receiver; then another takes that place.
#[derive(Debug)]
pub(super) struct Packet {
    pub(super) endpoint: Endpoint,
    seq: SeqNumber,
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
}

/// Places for packets that are free again.
#[derive(Debug, Default)]
#[expect(clippy::vec_box, reason = "what moves from queue to queue is where the packet is")]
pub(super) struct Packets(Vec<Box<Packet>>);

impl Packets {
    pub(super) fn packet(&mut self, endpoint: Endpoint, segment: &Segment<'_>) -> Box<Packet> {
        let Segment { seq, ack, flags, window, options, payload: bytes } = *segment;
        let Some(mut packet) = self.0.pop() else {
            let payload = bytes.to_vec();
            return Box::new(Packet { endpoint, seq, ack, flags, window, options, payload });
        };
        let mut payload = std::mem::take(&mut packet.payload);
        payload.clear();
        payload.extend_from_slice(bytes);
        *packet = Packet { endpoint, seq, ack, flags, window, options, payload };
        packet
    }

    pub(super) fn take_back(&mut self, packet: Box<Packet>) {
        self.0.push(packet);
    }
}

/// A wire: what leaves later arrives later.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    packets: VecDeque<(Nanos, Box<Packet>)>,
}

impl Pipe {
    /// Whether the pipe was empty, so that somebody must look when this arrives.
    pub(super) fn put(&mut self, arrives: Nanos, packet: Box<Packet>) -> bool {
        debug_assert!(
            self.packets.back().is_none_or(|(before, _)| *before <= arrives),
            "no packet overtakes another"
        );
        self.packets.push_back((arrives, packet));
        self.packets.len() == 1
    }

    pub(super) fn take(&mut self, now: Nanos) -> Option<Box<Packet>> {
        let is_there = self.next().is_some_and(|arrives| arrives <= now);
        if is_there { self.packets.pop_front().map(|(_, packet)| packet) } else { None }
    }

    pub(super) fn next(&self) -> Option<Nanos> {
        self.packets.front().map(|(arrives, _)| *arrives)
    }
}
