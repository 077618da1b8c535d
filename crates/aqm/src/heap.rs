//! What has the least key, of entries whose keys change.

use crate::arena::NONE;

/// A binary heap of numbered entries: the least key is found at once, and any entry's key is
/// changed in O(log n).
///
/// Numbers should be small: there is a place for each up to the highest.
#[derive(Debug, Clone)]
pub(crate) struct Heap<K> {
    entries: Vec<(K, u32)>,
    /// Where each number's entry is, or [`NONE`].
    places: Vec<u32>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Self { entries: Vec::new(), places: Vec::new() }
    }
}

impl<K: Copy + Ord> Heap<K> {
    /// The entry with the least key.
    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Gives an entry that key, new or not.
    pub(crate) fn set(&mut self, number: u32, key: K) {
        let index = number as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, NONE);
        }
        let at = match self.places[index] {
            NONE => {
                self.entries.push((key, number));
                self.places[index] = self.entries.len() as u32 - 1;
                self.entries.len() - 1
            }
            at => {
                self.entries[at as usize].0 = key;
                at as usize
            }
        };
        self.settle(at);
    }

    /// Takes an entry out, if it is there.
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(place) = self.places.get_mut(number as usize) else { return };
        let at = std::mem::replace(place, NONE) as usize;
        if at >= self.entries.len() {
            return;
        }
        self.entries.swap_remove(at);
        if let Some((_, moved)) = self.entries.get(at) {
            self.places[*moved as usize] = at as u32;
            self.settle(at);
        }
    }

    /// Moves an entry up or down to where it belongs.
    fn settle(&mut self, mut at: usize) {
        while at > 0 && self.entries[at].0 < self.entries[(at - 1) / 2].0 {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        loop {
            let below = [2 * at + 1, 2 * at + 2].into_iter().filter(|below| *below < self.entries.len());
            match below.min_by_key(|below| self.entries[*below].0) {
                Some(least) if self.entries[least].0 < self.entries[at].0 => {
                    self.swap(at, least);
                    at = least;
                }
                _ => return,
            }
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.entries.swap(one, other);
        for at in [one, other] {
            self.places[self.entries[at].1 as usize] = at as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn first_is_the_least(steps in prop::collection::vec((0..20_u32, any::<u8>(), any::<bool>()), 0..300)) {
            let mut heap = Heap::default();
            let mut wanted = BTreeMap::new();
            for (number, key, is_removed) in steps {
                // Keys are unique, as those of the disciplines are.
                let key = (key, number);
                if is_removed {
                    heap.remove(number);
                    wanted.remove(&number);
                } else {
                    heap.set(number, key);
                    wanted.insert(number, key);
                }
                prop_assert_eq!(heap.first().map(|(key, _)| key), wanted.values().min().copied());
            }
        }
    }
}
