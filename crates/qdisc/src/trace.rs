//! What a qdisc decided, one event each: for a replay elsewhere.

use aqm::{DropReason, PacketKind};
use units::Nanos;

use crate::program::types;

/// As [`crate::Setup::replay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// Of [`aqm::RandomNumbers`]: arrival n is decided with its number n.
    pub seed: u64,
    /// That are kept, and random numbers that there are; what comes later is decided with 0, and not kept.
    pub events: u32,
}

/// What happened, in this order. Packets have numbers by their arrival, from 0; times are the kernel's monotonic clock.
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
        /// What it is for its connection.
        kind: PacketKind,
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

impl Event {
    /// `None` for what this version does not know.
    pub(crate) fn new(raw: &types::redfavor_event) -> Option<Self> {
        /// `enum traced`.
        const ARRIVED: u32 = 0;
        const SENT: u32 = 1;
        const DROPPED: u32 = 2;
        let types::redfavor_event { time_ns, packet, bytes, what, detail } = *raw;
        let (at, detail) = (Nanos(time_ns), detail as usize);
        match what {
            ARRIVED => Some(Self::Arrived { at, packet, bytes, kind: *PacketKind::ALL.get(detail)? }),
            SENT => Some(Self::Sent { at, packet }),
            DROPPED => Some(Self::Dropped { packet, reason: *DropReason::ALL.get(detail)? }),
            _ => None,
        }
    }
}
