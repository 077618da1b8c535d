//! What a qdisc decided, one event each: for a replay elsewhere.

use aqm::{DropReason, PacketKind};
use units::Nanos;

/// As [`crate::Setup::replay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// Of [`aqm::RandomNumbers`]: arrival n is decided with its number n.
    pub seed: u64,
    /// That are kept, and random numbers that there are; what comes later is decided with 0, and
    /// not kept.
    pub events: u32,
}

/// What happened, in this order. Packets have numbers by their arrival, from 0; times are the
/// kernel's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A packet came.
    Arrived {
        /// When.
        at: Nanos,
        /// Which.
        packet: u32,
        /// Its length, with the Ethernet header.
        bytes: u32,
        /// What it is for its connection; told by REDFavor only.
        kind: PacketKind,
        /// Its place among the flows, and its flow; 0 under REDFavor.
        rank: u64,
        /// As above.
        flow: u64,
    },
    /// A packet left.
    Sent {
        /// When.
        at: Nanos,
        /// Which.
        packet: u32,
    },
    /// A packet was dropped, by the arrival before.
    Dropped {
        /// Which.
        packet: u32,
        /// Why.
        reason: DropReason,
    },
}
