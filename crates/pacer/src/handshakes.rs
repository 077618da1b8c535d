//! What handshakes under way are counted by: how long they take, and how many of them end.

use units::Nanos;

use crate::fade::{SECOND, remembered};
use crate::round_trips::{RoundTrips, Timed};

/// One that takes longer is not waited for: clients can make it last.
pub(crate) const LONGEST_HANDSHAKE_NS: u64 = 1000 * kernel::LONGEST_HANDSHAKE_US as u64;
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

/// Who found the accept queue full sends again after a fifth of a second (`TCP_RTO_MIN`): where few are timed, what is in this bucket of microseconds and in later ones, from 131 ms on, may be theirs.
const MAY_HAVE_FOUND_IT_FULL: usize = 18;
/// Of fewer, where most are not timed, nothing is known.
const ENOUGH: f64 = 32.0;
/// Until something is known, a millisecond.
pub(crate) const FIRST_SLOT_SHIFT: u32 = 20;
/// Who came back to a full queue counts as never come when the slot is over, three slots later: for so many he is remembered.
const SLOTS_OF_VAIN: u64 = 8;
/// A shorter slot must have been enough for so long: each change forgets who is under way.
const SHRINK_AFTER: Nanos = Nanos::from_secs(1);

/// SYNs that were let in, as counted since the last time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    /// That should have become connections by now.
    pub(crate) expected: u64,
    /// Of these, that have not.
    pub(crate) never_came: u64,
    /// Whose client came back and found the accept queue full; most are counted in `never_came` later.
    pub(crate) found_full: u64,
}

/// Handshakes of the last moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Handshakes {
    /// Those that should have ended by now, and of these those that did. In a flood of forged SYNs these are few among many, so that a share of fewer would be noise.
    expected: f64,
    completed: f64,
    /// Those that came back to a full accept queue, and were not expected by now.
    found_full: f64,
    /// How long they took.
    round_trips: RoundTrips,
    /// log2 of a slot's length in ns, and for how long a shorter one would have been enough.
    slot_shift: Option<u32>,
    too_long_for: Nanos,
    /// What the usual one takes, and the mean one; 0 until it is known.
    usual_ns: u64,
    mean_ns: u64,
}

impl Default for Handshakes {
    /// As good as nothing, and all of it.
    fn default() -> Self {
        Self {
            expected: 1.0,
            completed: 1.0,
            found_full: 0.0,
            round_trips: RoundTrips::default(),
            slot_shift: None,
            too_long_for: Nanos::ZERO,
            usual_ns: 0,
            mean_ns: 0,
        }
    }
}

impl Handshakes {
    /// Goes on by so many handshakes that ended in so much time, of which these were timed: fewer than half of them in a flood, as a cookie of the kernel's
    /// tells nothing, and where the SYN queue is shorter than what honest clients have under way.
    pub(crate) fn time(&mut self, elapsed: Nanos, ended: u64, timed: Timed) {
        let is_minority = 2 * timed.count() < ended;
        let sample = if is_minority { timed.below_bucket(MAY_HAVE_FOUND_IT_FULL) } else { timed };
        // If most of the few took longer, and it is not that they found the queue full, they are farther away, and the others no sample of them.
        let late = timed.count() - sample.count();
        let is_no_sample = late > sample.count() && late as f64 > self.found_full;
        self.round_trips.add(elapsed, &if is_no_sample { sample.below_bucket(0) } else { sample });
        if is_no_sample || (is_minority && self.round_trips.count() < ENOUGH) {
            return;
        }
        if let Some(wanted) = self.wanted_shift() {
            self.set_slot(elapsed, wanted);
        }
    }

    /// log2 of the slot's length in ns that they ask for.
    fn wanted_shift(&mut self) -> Option<u32> {
        self.usual_ns = self.round_trips.usual_ns()?.min(LONGEST_HANDSHAKE_NS);
        let slot_ns = |share| {
            let us = self.round_trips.below_us(share)?;
            Some(SLOTS_PER_HANDSHAKE * us.saturating_mul(1000).clamp(1, LONGEST_HANDSHAKE_NS))
        };
        let longest = (USUAL_PER_SLOT * self.usual_ns).max(ALWAYS_IN_SLOT_NS);
        let (most_ns, late_ns) = (slot_ns(MOST)?, slot_ns(LATE)?);
        let slot_ns = if most_ns <= longest { late_ns.min(longest) } else { late_ns };
        Some(slot_ns.next_power_of_two().ilog2().clamp(*SLOT_SHIFT.start(), *SLOT_SHIFT.end()))
    }

    fn set_slot(&mut self, elapsed: Nanos, wanted: u32) {
        // By slots that were shorter than the usual handshake nearly everybody never came.
        if wanted > self.shift() && 1 << self.shift() < self.usual_ns {
            (self.expected, self.completed) = (1.0, 1.0);
        }
        let is_too_long = self.slot_shift.is_some_and(|shift| wanted < shift);
        self.too_long_for = if is_too_long { self.too_long_for + elapsed } else { Nanos::ZERO };
        if !is_too_long || self.too_long_for >= SHRINK_AFTER {
            (self.slot_shift, self.too_long_for) = (Some(wanted), Nanos::ZERO);
        }
        self.mean_ns = self.round_trips.mean_ns(2 << self.shift());
    }

    /// What there is until more is known.
    fn shift(&self) -> u32 {
        self.slot_shift.unwrap_or(FIRST_SLOT_SHIFT)
    }

    /// log2 of the slot's length in ns; `None` until it is known.
    pub(crate) fn slot_shift(&self) -> Option<u32> {
        self.slot_shift
    }

    /// Goes on by those that should have ended by now. Of a full accept queue the kernel drops them, and that they did not come back is its
    /// doing: to promise fewer places then would fill it again.
    pub(crate) fn count(&mut self, elapsed: Nanos, due: Due, was_full: bool) {
        let Due { expected, never_came, found_full } = due;
        let memory = SECOND.max(Nanos(SLOTS_OF_VAIN << self.shift()));
        self.found_full = self.found_full * remembered(elapsed, memory) + found_full as f64;
        let came_in_vain = self.found_full.min(never_came as f64);
        self.found_full -= came_in_vain;
        let completed = expected.saturating_sub(never_came) as f64 + came_in_vain;
        let expected = expected as f64;
        if was_full && completed < self.share() * expected {
            return;
        }
        // Not without end, so that the share stays where nobody comes.
        let remembered = if expected > 0.0 { remembered(elapsed, SECOND) } else { 1.0 };
        self.expected = remembered * self.expected + expected;
        self.completed = remembered * self.completed + completed;
    }

    /// The share of them that ends, 0 to 1.
    pub(crate) fn share(&self) -> f64 {
        (self.completed / self.expected).min(1.0)
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
    use crate::round_trips::tests::timed;

    const LOOK: Nanos = Nanos::from_millis(50);

    /// A client whose handshake ended at a full accept queue ends it again after a fifth of a second; with slots of half a second the error about who never comes would be of thousands.
    #[test]
    fn slot_is_not_made_for_a_few_handshakes_that_take_by_far_longer_than_most() {
        // So many of a hundred took 197 ms, and the others so many us, in buckets that end at 0.5, 8 and 32 ms. 16 times 6.144 ms are 98.
        for (late, usual_us, slot_shift) in [
            (0, 384, 20),
            (2, 384, 24),
            (10, 384, 24),
            (11, 384, 29),
            (60, 384, 29),
            (2, 6_144, 27),
            (2, 24_576, 29),
            (0, 24_576, 26),
        ] {
            let mut handshakes = Handshakes::default();
            handshakes.time(LOOK, 100, timed(&[(100 - late, usual_us), (late, 196_608)]));
            assert_eq!(handshakes.slot_shift(), Some(slot_shift), "{late} of 100, the others {usual_us} us");
        }
    }

    /// The SYN queue is full of those who are far away, and the kernel tells nothing of those that it sends a cookie to.
    #[test]
    fn where_few_are_timed_those_tell_that_cannot_have_found_the_queue_full() {
        for (few, late, slot_shift) in
            [(31, 0, None), (32, 0, Some(27)), (32, 32, Some(27)), (0, 99, None), (40, 41, None)]
        {
            let mut handshakes = Handshakes::default();
            handshakes.time(LOOK, 1000, timed(&[(few, 60_000), (late, 260_000)]));
            assert_eq!(handshakes.slot_shift(), slot_shift, "{few} and {late} of 1000");
        }
        // So many have found it full that it may be these.
        let mut handshakes = Handshakes::default();
        handshakes.count(LOOK, Due { expected: 0, never_came: 0, found_full: 100 }, true);
        handshakes.time(LOOK, 1000, timed(&[(40, 60_000), (90, 260_000)]));
        assert_eq!(handshakes.slot_shift(), Some(27));
    }

    #[test]
    fn slot_is_longer_at_once_and_shorter_when_that_was_enough_for_a_second() {
        let mut handshakes = Handshakes::default();
        let mut time = |looks, near, far| {
            let timed = timed(&[(near, 60_000), (far, 120_000)]);
            (0..looks).for_each(|_| handshakes.time(LOOK, near + far, timed));
            handshakes.slot_shift()
        };
        assert_eq!(time(1, 50, 0), Some(27));
        // In every other look some take twice as long.
        for turn in 0..100 {
            assert_eq!(time(1, 48, 2), Some(28), "turn {turn}");
            assert_eq!(time(1, 50, 0), Some(28), "turn {turn}");
        }
        assert_eq!(
            time(30, 50, 0),
            Some(28),
            "two thirds of a second until they are one in a hundred, and not yet one"
        );
        assert_eq!(time(10, 50, 0), Some(27));
    }

    #[test]
    fn what_slots_have_said_that_were_shorter_than_a_handshake_is_forgotten() {
        let of = |expected, never_came| Due { expected, never_came, found_full: 0 };
        // By slots of 2 ms few of those who are 2, 4 or 8 ms away come in time.
        for (us, share) in [(2_000, 0.01), (4_000, 1.0), (8_000, 1.0)] {
            let mut handshakes = Handshakes::default();
            handshakes.time(LOOK, 100, timed(&[(100, 900)]));
            assert_eq!(handshakes.slot_shift(), Some(21));
            handshakes.count(Nanos::ZERO, of(999, 990), false);
            handshakes.time(LOOK, 10_000, timed(&[(10_000, us)]));
            assert_eq!(handshakes.share(), share, "{us} us away");
        }
    }

    /// Whose slot is of half a second is known not to have become a connection two seconds later.
    #[test]
    fn who_came_back_to_a_full_queue_is_remembered_until_his_slot_is_over() {
        let mut handshakes = Handshakes::default();
        handshakes.time(LOOK, 100, timed(&[(100, 200_000)]));
        handshakes.count(LOOK, Due { expected: 0, never_came: 0, found_full: 1000 }, true);
        (0..36).for_each(|_| {
            handshakes.count(LOOK, Due { expected: 0, never_came: 0, found_full: 0 }, true);
        });
        handshakes.count(LOOK, Due { expected: 1000, never_came: 1000, found_full: 0 }, false);
        assert!(handshakes.share() > 0.6, "{}", handshakes.share());
    }

    /// A botnet could have it forgotten again and again.
    #[test]
    fn share_is_not_forgotten_since_a_few_take_long() {
        let mut handshakes = Handshakes::default();
        handshakes.time(LOOK, 100, timed(&[(100, 400)]));
        handshakes.count(Nanos::ZERO, Due { expected: 999, never_came: 990, found_full: 0 }, false);
        handshakes.time(LOOK, 100, timed(&[(80, 400), (20, 100_000)]));
        assert_eq!((handshakes.slot_shift(), handshakes.share()), (Some(28), 0.01));
    }

    #[test]
    fn mean_counts_two_slots_for_whoever_takes_longer_than_is_waited_for() {
        // Of a hundred handshakes of 0.4 ms so many took 197, and slots are of 17 ms, or of 0.5 s.
        for (late, mean_ns) in [(0, 384_000), (10, 3_701_043), (20, 39_628_800)] {
            let mut handshakes = Handshakes::default();
            handshakes.time(LOOK, 100, timed(&[(100 - late, 384), (late, 196_608)]));
            assert_eq!(handshakes.mean_ns(), mean_ns, "{late} of 100");
        }
    }

    #[test]
    fn full_accept_queue_makes_no_smaller_share_and_may_make_a_larger_one() {
        for (was_full, never_came, wanted) in [(false, 150, 0.375), (true, 150, 0.5), (true, 50, 0.625)] {
            let mut handshakes = Handshakes::default();
            handshakes.count(Nanos::ZERO, Due { expected: 199, never_came: 100, found_full: 0 }, false);
            assert_eq!(handshakes.share(), 0.5, "of 199, and of one before them");
            handshakes.count(Nanos::ZERO, Due { expected: 200, never_came, found_full: 0 }, was_full);
            assert_eq!(handshakes.share(), wanted, "{never_came} of 200 never came, full: {was_full}");
        }
    }

    /// Or any share would stay as it is: if half of them are thought to come, twice as many are let in as there is room for, and half find it.
    #[test]
    fn who_came_back_to_a_full_accept_queue_has_come() {
        let mut handshakes = Handshakes::default();
        handshakes.count(Nanos::ZERO, Due { expected: 199, never_came: 100, found_full: 0 }, false);
        // They come a little before it is known that they did not become connections.
        handshakes.count(Nanos::ZERO, Due { expected: 0, never_came: 0, found_full: 60 }, true);
        assert_eq!(handshakes.share(), 0.5);
        handshakes.count(Nanos::ZERO, Due { expected: 100, never_came: 50, found_full: 0 }, true);
        assert_eq!(handshakes.share(), 200.0 / 300.0, "all of a hundred");
        handshakes.count(Nanos::ZERO, Due { expected: 100, never_came: 50, found_full: 0 }, false);
        assert_eq!(handshakes.share(), 260.0 / 400.0, "of the sixty ten were left");
    }
}
