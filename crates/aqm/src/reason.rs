//! Why a packet was dropped.

use std::fmt;
use std::ops::Index;

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DropReason {
    /// It arrived, and the queue was full.
    Tail,
    /// It arrived, and RED dropped it by chance (unforced in `[FJ93]`).
    Early,
    /// It arrived, and RED's average was at its maximum.
    Forced,
    /// CHOKe drew a packet of the same flow; both are dropped.
    ChokeMatch,
    /// It waited, and one that goes before it had no room.
    PushedOut,
    /// CoDel found it at the head, too late.
    Codel,
    /// It is protected, and protected packets have had their share.
    ProtectedShare,
    /// It waited in the longest of several queues, and all together were too many.
    Overlimit,
    /// It arrived, and its flow had as many as one may have.
    FlowLimit,
}

impl DropReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Tail,
        Self::Early,
        Self::Forced,
        Self::ChokeMatch,
        Self::PushedOut,
        Self::Codel,
        Self::ProtectedShare,
        Self::Overlimit,
        Self::FlowLimit,
    ];

    /// As traces and tables have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tail => "tail",
            Self::Early => "early",
            Self::Forced => "forced",
            Self::ChokeMatch => "choke-match",
            Self::PushedOut => "pushed-out",
            Self::Codel => "codel",
            Self::ProtectedShare => "protected-share",
            Self::Overlimit => "overlimit",
            Self::FlowLimit => "flow-limit",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Drops by their reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DropCounts([u64; DropReason::ALL.len()]);

impl DropCounts {
    /// Counts one.
    pub fn count(&mut self, reason: DropReason) {
        self.0[reason as usize] += 1;
    }

    /// Counts several.
    pub fn add(&mut self, reason: DropReason, count: u64) {
        self.0[reason as usize] += count;
    }

    /// All drops.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Reasons in the order of [`DropReason::ALL`], with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropReason, u64)> {
        DropReason::ALL.into_iter().zip(self.0)
    }
}

impl Index<DropReason> for DropCounts {
    type Output = u64;

    fn index(&self, reason: DropReason) -> &u64 {
        &self.0[reason as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_is_counted_under_its_own_reason() {
        for reason in DropReason::ALL {
            let mut counts = DropCounts::default();
            counts.count(reason);
            assert!(counts.iter().all(|(other, count)| count == u64::from(other == reason)));
            assert_eq!((counts[reason], counts.total()), (1, 1));
        }
    }
}
