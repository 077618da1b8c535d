//! What the tests share. Each uses some of it.

pub mod dumbbell;
pub mod reference;

use aqm::{Aqm, Config, DropReason, Packet, PacketKind, Queue};
use units::Nanos;

/// A packet with a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub id: u64,
    pub bytes: u32,
    pub flow: u32,
    pub kind: PacketKind,
    pub band: u8,
    pub left: Option<u64>,
    pub attained: u64,
}

impl Sample {
    pub fn new(id: u64, bytes: u32) -> Self {
        Self { id, bytes, flow: 0, kind: PacketKind::Other, band: 0, left: None, attained: 0 }
    }

    pub fn syn(id: u64) -> Self {
        Self { kind: PacketKind::Syn, ..Self::new(id, 60) }
    }
}

impl Packet for Sample {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u32 {
        self.flow
    }

    fn kind(&self) -> PacketKind {
        self.kind
    }

    fn band(&self) -> u8 {
        self.band
    }

    fn left(&self) -> Option<u64> {
        self.left
    }

    fn attained(&self) -> u64 {
        self.attained
    }
}

pub fn config(text: &str) -> Config {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub fn queue(text: &str) -> Queue<Sample> {
    Queue::new(&config(text), 1).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Enqueues, and gives what was dropped.
pub fn enqueue<P>(queue: &mut impl Aqm<Packet = P>, now: Nanos, packet: P) -> Vec<(P, DropReason)>
where
    P: Packet,
{
    let mut drops = Vec::new();
    queue.enqueue(now, packet, &mut |packet, reason| drops.push((packet, reason)));
    drops
}

/// Dequeues, and gives what was dropped meanwhile, too.
pub fn dequeue<P>(queue: &mut impl Aqm<Packet = P>, now: Nanos) -> (Option<P>, Vec<(P, DropReason)>)
where
    P: Packet,
{
    let mut drops = Vec::new();
    let packet = queue.dequeue(now, &mut |packet, reason| drops.push((packet, reason)));
    (packet, drops)
}

/// The ids of all that waits, in the order in which it goes.
pub fn drain(queue: &mut impl Aqm<Packet = Sample>, now: Nanos) -> Vec<u64> {
    std::iter::from_fn(|| dequeue(queue, now).0).map(|packet| packet.id).collect()
}
