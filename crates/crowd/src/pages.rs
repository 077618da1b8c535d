//! Values by number, where those that are asked for together have numbers close to each other: what
//! clients that come one after the other have.
//!
//! A hash of each number would scatter them, so that every look-up among a million misses the
//! cache. Here 256 neighbours share a page, and only its number is hashed: the table of pages is
//! small, and of a page that was just used the next place is in the cache, too. Where each number
//! is far from all others a page is used for each.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Of a number, those that say which place of its page it has.
const BITS: u32 = 8;
const PLACES: usize = 1 << BITS;
/// Fewest empty pages that are kept for others: a crowd that goes on from page to page allocates
/// none.
const KEPT: usize = 64;

/// Values by number.
#[derive(Debug)]
pub struct Pages<T> {
    /// By the upper bits of their numbers; none is empty.
    pages: HashMap<u64, Page<T>, FixedState>,
    free: Vec<Page<T>>,
    /// Most of these.
    kept: usize,
    len: usize,
}

#[derive(Debug)]
struct Page<T> {
    places: Box<[Option<T>; PLACES]>,
    used: usize,
}

impl<T: Copy> Page<T> {
    fn new() -> Self {
        Self { places: Box::new([None; PLACES]), used: 0 }
    }
}

impl<T: Copy> Default for Pages<T> {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl<T: Copy> Pages<T> {
    /// Memory for one value, bytes, where all neighbours are there.
    pub const BYTES_PER_VALUE: usize = size_of::<Option<T>>();

    /// None, with room for so many values with numbers that follow each other.
    pub fn with_capacity(values: usize) -> Self {
        // One more, as the first of them may be in the middle of a page.
        let pages = values.div_ceil(PLACES) + 1;
        Self {
            pages: HashMap::with_capacity_and_hasher(pages, FixedState::default()),
            free: (0..pages).map(|_| Page::new()).collect(),
            kept: pages.max(KEPT),
            len: 0,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value of a number.
    pub fn get(&self, number: u64) -> Option<T> {
        self.pages.get(&(number >> BITS)).and_then(|page| page.places[place(number)])
    }

    /// Gives a number a value, and what it had before.
    pub fn insert(&mut self, number: u64, value: T) -> Option<T> {
        let free = &mut self.free;
        let page = self.pages.entry(number >> BITS).or_insert_with(|| free.pop().unwrap_or_else(Page::new));
        let before = page.places[place(number)].replace(value);
        if before.is_none() {
            page.used += 1;
            self.len += 1;
        }
        before
    }

    /// Takes a number's value away.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let page = self.pages.get_mut(&(number >> BITS))?;
        let before = page.places[place(number)].take()?;
        page.used -= 1;
        self.len -= 1;
        if page.used == 0
            && let Some(page) = self.pages.remove(&(number >> BITS))
            && self.free.len() < self.kept
        {
            self.free.push(page);
        }
        Some(before)
    }
}

fn place(number: u64) -> usize {
    number as usize % PLACES
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn values_are_those_of_a_map_wherever_their_numbers_lie() {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let (mut pages, mut map) = (Pages::with_capacity(300), HashMap::new());
        for value in 0..100_000u32 {
            // In one page, in many, and at the end of all numbers.
            let number = match random.random_range(0..3) {
                0 => random.random_range(0..100),
                1 => random.random_range(0..100_000),
                _ => u64::MAX - random.random_range(0..1000),
            };
            if random.random_bool(0.5) {
                assert_eq!(pages.insert(number, value), map.insert(number, value));
            } else {
                assert_eq!(pages.remove(number), map.remove(&number));
            }
            assert_eq!((pages.get(number), pages.len()), (map.get(&number).copied(), map.len()));
        }
        assert!(map.len() > 1000, "{} are there at the end", map.len());
        assert!(map.iter().all(|(number, value)| pages.get(*number) == Some(*value)));
    }

    #[test]
    fn pages_that_are_empty_again_are_used_for_other_numbers() {
        const MANY: u64 = 100_000;
        let mut pages = Pages::with_capacity(MANY as usize);
        let allocated = allocation_counter::measure(|| {
            for number in 0..MANY {
                pages.insert(number, number);
                pages.remove(number);
            }
            // The room that was asked for is still there.
            for number in MANY + 77..2 * MANY + 77 {
                pages.insert(number, number);
            }
            for number in MANY + 77..2 * MANY + 77 {
                pages.remove(number);
            }
        });
        assert!(pages.is_empty());
        assert_eq!(allocated.count_total, 0);
    }
}
