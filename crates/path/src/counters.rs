//! What became of packets, counted.

use std::fmt;
use std::iter::Sum;

use aqm::{DropCounts, DropReason};

/// Why a packet did not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DropCause {
    /// The queue discipline dropped it.
    Queue(DropReason),
    /// The wire lost it.
    Loss,
}

impl DropCause {
    /// As tables and JSON have it: that of [`DropReason::name`], or `loss`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queue(reason) => reason.name(),
            Self::Loss => "loss",
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Packets, and their bytes without [`crate::Config::overhead_bytes`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// How many.
    pub packets: u64,
    /// How long, all together.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// What became of packets. Those that arrived were delivered or dropped, or wait, or are under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// That came to the near end.
    pub arrived: Count,
    /// That were taken at the far end.
    pub delivered: Count,
    /// That the queue dropped, or the wire lost.
    pub dropped: Count,
    /// Of those, the queue's, by reason.
    pub queue_drops: DropCounts,
    /// And the wire's.
    pub lost: u64,
    /// Packets that went ahead of those before them without delay.
    pub reordered: u64,
}

/// Those of several paths together.
impl Sum for Counters {
    fn sum<I: Iterator<Item = Self>>(counters: I) -> Self {
        let mut sum = Self::default();
        for other in counters {
            // Every field by its name: a new one is not forgotten.
            let Self { arrived, delivered, dropped, queue_drops, lost, reordered } = other;
            let counts = [&mut sum.arrived, &mut sum.delivered, &mut sum.dropped];
            for (count, other) in counts.into_iter().zip([arrived, delivered, dropped]) {
                count.packets += other.packets;
                count.bytes += other.bytes;
            }
            queue_drops.iter().for_each(|(reason, count)| sum.queue_drops.add(reason, count));
            sum.lost += lost;
            sum.reordered += reordered;
        }
        sum
    }
}

impl Counters {
    pub(crate) fn drop(&mut self, cause: DropCause, bytes: u32) {
        self.dropped.add(bytes);
        match cause {
            DropCause::Queue(reason) => self.queue_drops.count(reason),
            DropCause::Loss => self.lost += 1,
        }
    }

    /// Drops by cause, those of the queue first.
    pub fn drops(&self) -> impl Iterator<Item = (DropCause, u64)> {
        let queue = self.queue_drops.iter().map(|(reason, count)| (DropCause::Queue(reason), count));
        queue.chain([(DropCause::Loss, self.lost)])
    }
}
