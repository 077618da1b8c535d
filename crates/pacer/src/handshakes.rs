//! What handshakes under way are counted by: how long they take, and how many of them end.

use units::Nanos;

use crate::histogram::{mean_ns, median_ns, quantile};

/// How fast it is forgotten how many end.
const FORGET_S: f64 = 1.0;
/// One that takes longer is not waited for: clients can make it last.
pub(crate) const LONGEST_HANDSHAKE_NS: u64 = 250_000_000;
/// Handshakes are waited for by slots of time, each of twice what all but one in a hundred take.
const LATE: f64 = 0.99;
const SLOTS_PER_HANDSHAKE: u64 = 2;
/// And no longer than so many usual ones take, or this, if that is enough for this share of them: what takes longer is said again by a client whom a full accept queue has not taken,
/// or is of one who is far away from where the others are. To wait for few of a hundred would make noise of all.
const USUAL_PER_SLOT: u64 = 16;
const ALWAYS_IN_SLOT_NS: u64 = 1 << 24;
const MOST: f64 = 0.9;
/// Slots from 131 us on: what a network interface and its interrupt gather into one batch.
const SLOT_SHIFT: std::ops::RangeInclusive<u32> = 17..=30;

/// Handshakes of the last moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handshakes {
    /// Those that should have ended by now, and of these those that did. In a flood of forged SYNs these are few among many, so that a share of fewer would be noise.
    expected: f64,
    completed: f64,
    /// What the usual one takes, and the mean one; 0 until it is known.
    usual_ns: u64,
    mean_ns: u64,
}

impl Default for Handshakes {
    /// As good as nothing, and all of it.
    fn default() -> Self {
        Self { expected: 1.0, completed: 1.0, usual_ns: 0, mean_ns: 0 }
    }
}

impl Handshakes {
    /// log2 of the slot's length in ns that these round trips ask for: histograms in us of all until now and until the last time. `None` if they are known of fewer than half of so many
    /// that ended: in a flood nearly all may end by a cookie of the kernel's, which tells none, and the few others are no sample, such as found the accept queue full and took a quarter of a second.
    pub(crate) fn time(&mut self, ended: u64, now: &[u64; 32], before: &[u64; 32]) -> Option<u32> {
        let timed: u64 = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before)).sum();
        if 2 * timed < ended {
            return None;
        }
        self.usual_ns = median_ns(now, before)?.min(LONGEST_HANDSHAKE_NS);
        let slot_ns = |share| {
            let us = quantile(now, before, share)?;
            Some(SLOTS_PER_HANDSHAKE * us.saturating_mul(1000).clamp(1, LONGEST_HANDSHAKE_NS))
        };
        let longest = (USUAL_PER_SLOT * self.usual_ns).max(ALWAYS_IN_SLOT_NS);
        let (most_ns, late_ns) = (slot_ns(MOST)?, slot_ns(LATE)?);
        let slot_ns = if most_ns <= longest { late_ns.min(longest) } else { late_ns };
        let slot_shift = slot_ns.next_power_of_two().ilog2().clamp(*SLOT_SHIFT.start(), *SLOT_SHIFT.end());
        self.mean_ns = mean_ns(now, before, 2 << slot_shift);
        Some(slot_shift)
    }

    /// So many more should have ended by now, and so many of them never came back. Of a full accept queue the kernel drops them, and that they did not come back is its
    /// doing: to promise fewer places then would fill it again.
    pub(crate) fn count(&mut self, elapsed: Nanos, expected: u64, never_came: u64, was_full: bool) {
        let completed = expected.saturating_sub(never_came) as f64;
        let expected = expected as f64;
        if was_full && completed < self.share() * expected {
            return;
        }
        // Not without end, so that the share stays where nobody comes.
        let remembered = if expected > 0.0 { (-elapsed.as_secs_f64() / FORGET_S).exp() } else { 1.0 };
        self.expected = remembered * self.expected + expected;
        self.completed = remembered * self.completed + completed;
    }

    /// The share of them that ends, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        self.completed / self.expected
    }

    /// What the usual one takes; 0 until it is known.
    pub(crate) fn usual_ns(&self) -> u64 {
        self.usual_ns
    }

    /// What the mean one of those takes that are waited for, and two slots for each that takes longer; 0 until it is known.
    pub(crate) fn mean_ns(&self) -> u64 {
        self.mean_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client whose handshake ended at a full accept queue ends it again after a fifth of a second; with slots of half a second the error about who never comes would be of thousands.
    #[test]
    fn slot_is_not_made_for_a_few_handshakes_that_take_by_far_longer_than_most() {
        // So many of a hundred took up to 262 ms; the others up to 0.5, 8 or 32 ms. Usual is the middle of the bucket: 16 times 6.144 ms are 98.
        for (late, bucket, slot_shift) in [
            (0, 9, 20),
            (2, 9, 24),
            (10, 9, 24),
            (11, 9, 29),
            (60, 9, 29),
            (2, 13, 27),
            (2, 15, 29),
            (0, 15, 26),
        ] {
            let mut round_trips_us = [0; 32];
            (round_trips_us[bucket], round_trips_us[18]) = (100 - late, late);
            let slot = Handshakes::default().time(100, &round_trips_us, &[0; 32]);
            assert_eq!(slot, Some(slot_shift), "{late} of 100, the others in bucket {bucket}");
        }
    }

    #[test]
    fn mean_counts_two_slots_for_whoever_takes_longer_than_is_waited_for() {
        // Of a hundred handshakes of 0.4 ms so many took 197, and slots are of 17 ms, or of 0.5 s.
        for (late, mean_ns) in [(0, 384_000), (10, 3_701_043), (20, 39_628_800)] {
            let mut round_trips_us = [0; 32];
            (round_trips_us[9], round_trips_us[18]) = (100 - late, late);
            let mut handshakes = Handshakes::default();
            handshakes.time(100, &round_trips_us, &[0; 32]);
            assert_eq!(handshakes.mean_ns(), mean_ns, "{late} of 100");
        }
    }

    #[test]
    fn full_accept_queue_makes_no_smaller_share_and_may_make_a_larger_one() {
        for (was_full, never_came, wanted) in [(false, 150, 0.375), (true, 150, 0.5), (true, 50, 0.625)] {
            let mut handshakes = Handshakes::default();
            handshakes.count(Nanos::ZERO, 199, 100, false);
            assert_eq!(handshakes.share(), 0.5, "of 199, and of one before them");
            handshakes.count(Nanos::ZERO, 200, never_came, was_full);
            assert_eq!(handshakes.share(), wanted, "{never_came} of 200 never came, full: {was_full}");
        }
    }
}
