//! Sequence numbers, compared as RFC 9293 section 3.4 says.

use std::cmp::Ordering;
use std::ops::{Add, AddAssign, Sub};

/// A TCP sequence number. `<` is serial arithmetic: `a < b` when `b` is less than 2^31 ahead of
/// `a`.
///
/// The relation is not total: numbers exactly 2^31 apart are each "less" than the other's
/// complement, so that [`PartialOrd`] is all that it has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SeqNumber(pub u32);

impl Add<u32> for SeqNumber {
    type Output = Self;

    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub for SeqNumber {
    type Output = u32;

    /// Bytes from `earlier` to `self`, modulo 2^32.
    fn sub(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

impl PartialOrd for SeqNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.0.wrapping_sub(other.0).cast_signed().partial_cmp(&0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let before = SeqNumber(u32::MAX - 1);
        let after = before + 5;
        assert!(before < after);
        assert!(after > before);
        assert_eq!(after - before, 5);
    }
}
