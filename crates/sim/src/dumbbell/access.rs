//! A host's link to its router, one way: a rate, a delay, and a queue without a limit.

use std::collections::VecDeque;

use units::Nanos;

use super::packet::Handle;

/// One way of an access link. When a packet arrives follows from when it comes, so that a link
/// costs one event for a packet.
#[derive(Debug)]
pub(super) struct Access {
    rate_bps: u64,
    delay: Nanos,
    /// When what was sent before has left.
    free_at: Nanos,
    under_way: VecDeque<(Nanos, Handle)>,
}

impl Access {
    pub(super) fn new(rate_bps: u64, delay: Nanos) -> Self {
        Self { rate_bps, delay, free_at: Nanos::ZERO, under_way: VecDeque::new() }
    }

    /// Takes a packet at a moment, now or later; those come in their order. Gives when it arrives
    /// if nothing else is under way, so that somebody must look then.
    pub(super) fn send(&mut self, at: Nanos, packet: Handle) -> Option<Nanos> {
        self.free_at = self.free_at.max(at) + transmission(packet.bytes, self.rate_bps);
        let arrives = self.free_at + self.delay;
        self.under_way.push_back((arrives, packet));
        (self.under_way.len() == 1).then_some(arrives)
    }

    /// What has arrived.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Handle> {
        let has_arrived = self.next().is_some_and(|arrives| arrives <= now);
        if has_arrived { self.under_way.pop_front().map(|(_, packet)| packet) } else { None }
    }

    /// When the next one arrives.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.under_way.front().map(|(arrives, _)| *arrives)
    }

    /// Packets under way.
    pub(super) fn len(&self) -> usize {
        self.under_way.len()
    }
}

/// How long so many bytes take at a rate.
pub(super) fn transmission(bytes: u32, rate_bps: u64) -> Nanos {
    Nanos(u64::from(bytes) * 8_000_000_000 / rate_bps)
}
