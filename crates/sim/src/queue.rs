//! What is yet to happen, in the order of time.
//!
//! A radix queue with 64 places on each level. An event lies on the level of the highest six bits
//! in which its time differs from now, so that it is moved down when its place's turn comes, and no
//! more often than there are levels below it: the cost of an event depends on how far ahead it lies
//! and not on how many wait. What moves is read from one end of a row to the other, which memory is
//! fast at; a binary heap of ten million jumps through all of it (`tests/queue.rs` has both, and a
//! calendar queue, side by side).

use std::mem::take;

use units::Nanos;

/// Of a time, for each level.
const BITS: u32 = 6;
const PLACES: usize = 1 << BITS;
/// Enough for every time that there is.
const LEVELS: usize = u64::BITS.div_ceil(BITS) as usize;
/// A row that has held more gives its memory back when it is empty: few are as long as the longest
/// was.
const KEPT: usize = 4096;

/// Events by time; those of one moment in the order in which they were pushed.
#[derive(Debug)]
pub struct EventQueue<E> {
    /// When the last one happened.
    now: Nanos,
    len: usize,
    /// Nothing of what is not due yet happens before then.
    no_earlier: Nanos,
    /// Rows of each level that are not empty.
    occupied: [u64; LEVELS],
    /// Level by level.
    rows: Vec<Vec<(Nanos, E)>>,
    /// Those of this moment, from `next` on.
    due: Vec<(Nanos, E)>,
    next: usize,
}

impl<E: Copy> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E: Copy> EventQueue<E> {
    /// Nothing is to happen, and it is time zero.
    pub fn new() -> Self {
        let rows = (0..LEVELS * PLACES).map(|_| Vec::new()).collect();
        Self {
            now: Nanos::ZERO,
            len: 0,
            no_earlier: Nanos::MAX,
            occupied: [0; LEVELS],
            rows,
            due: Vec::new(),
            next: 0,
        }
    }

    /// When the last event was that was taken out.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// How many are to come.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Has an event happen at a moment, which is now or later.
    ///
    /// # Panics
    ///
    /// In debug builds, when that moment is over: time does not go back.
    pub fn push(&mut self, at: Nanos, event: E) {
        debug_assert!(at >= self.now, "an event at {at}, and it is {} already", self.now);
        self.put(at, event);
        self.no_earlier = self.no_earlier.min(at);
        self.len += 1;
    }

    /// The next event and its time, if that is no later than `until`.
    pub fn pop_until(&mut self, until: Nanos) -> Option<(Nanos, E)> {
        let next = self.peek_until(until)?;
        self.next += 1;
        self.len -= 1;
        Some(next)
    }

    /// The same, and it stays where it is. Time goes on to it: nothing earlier can be pushed any
    /// more.
    pub fn peek_until(&mut self, until: Nanos) -> Option<(Nanos, E)> {
        loop {
            if let Some(&(at, event)) = self.due.get(self.next) {
                return (at <= until).then_some((at, event));
            }
            if self.no_earlier > until {
                return None;
            }
            self.bring_next(until)?;
        }
    }

    /// Makes the earliest events those that are due; `None` where they are later than `until`, or
    /// none.
    fn bring_next(&mut self, until: Nanos) -> Option<()> {
        self.due.clear();
        self.next = 0;
        let Some(level) = self.occupied.iter().position(|&rows| rows != 0) else {
            self.no_earlier = Nanos::MAX;
            return None;
        };
        let place = self.occupied[level].trailing_zeros() as usize;
        let row = level * PLACES + place;
        let earliest = self.rows[row].iter().map(|(at, _)| *at).min()?;
        self.no_earlier = earliest;
        if earliest > until {
            return None;
        }
        self.now = earliest;
        self.occupied[level] &= !(1 << place);
        // All of one moment; mostly there is one, which need not go down level by level.
        if level == 0 || self.rows[row].len() == 1 {
            std::mem::swap(&mut self.due, &mut self.rows[row]);
            return Some(());
        }
        let mut moved = take(&mut self.rows[row]);
        for (at, event) in moved.drain(..) {
            self.put(at, event);
        }
        if moved.capacity() <= KEPT {
            self.rows[row] = moved;
        }
        Some(())
    }

    fn put(&mut self, at: Nanos, event: E) {
        let differs = at.0 ^ self.now.0;
        let level = (u64::BITS - 1).saturating_sub(differs.leading_zeros()) / BITS;
        let place = (at.0 >> (level * BITS)) as usize % PLACES;
        self.occupied[level as usize] |= 1 << place;
        self.rows[level as usize * PLACES + place].push((at, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Nanos = Nanos::MAX;

    fn drain(queue: &mut EventQueue<u32>) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| queue.pop_until(END)).map(|(at, event)| (at.0, event)).collect()
    }

    #[test]
    fn events_come_in_the_order_of_time_and_of_one_moment_as_they_were_pushed() {
        let mut queue = EventQueue::new();
        for (at, event) in [(5, 0), (1 << 40, 1), (5, 2), (64, 3), (5, 4), (u64::MAX, 5), (1 << 40, 6)] {
            queue.push(Nanos(at), event);
        }
        let all = [(5, 0), (5, 2), (5, 4), (64, 3), (1 << 40, 1), (1 << 40, 6), (u64::MAX, 5)];
        assert_eq!(drain(&mut queue), all);
        assert!(queue.is_empty());
    }

    #[test]
    fn event_of_this_moment_comes_after_those_that_wait_already() {
        let mut queue = EventQueue::new();
        queue.push(Nanos(1000), 0);
        queue.push(Nanos(1000), 1);
        assert_eq!(queue.pop_until(END), Some((Nanos(1000), 0)));
        queue.push(Nanos(1000), 2);
        queue.push(Nanos(1001), 3);
        assert_eq!(drain(&mut queue), [(1000, 1), (1000, 2), (1001, 3)]);
    }

    #[test]
    fn nothing_comes_before_its_time_and_time_stays_where_it_is() {
        let mut queue = EventQueue::new();
        queue.push(Nanos(100_000), 0);
        assert_eq!(queue.pop_until(Nanos(99_999)), None);
        // Earlier than what waits, and later than now.
        queue.push(Nanos(7), 1);
        assert_eq!(drain(&mut queue), [(7, 1), (100_000, 0)]);
        assert_eq!(queue.now(), Nanos(100_000));
    }
}
