//! Connections, the one that was heard of the longest ago first.

use std::collections::HashMap;

use super::Side;
use super::entry::Half;

/// No place.
const NONE: u32 = u32::MAX;

/// A bounded table of connections.
#[derive(Debug)]
pub(super) struct Table {
    most: usize,
    places: HashMap<u64, u32>,
    entries: Vec<Entry>,
    newest: u32,
    oldest: u32,
}

#[derive(Debug)]
struct Entry {
    connection: u64,
    /// Heard of just before this one, and just after.
    older: u32,
    newer: u32,
    halves: [Half; 2],
}

impl Table {
    pub(super) fn new(most: usize) -> Self {
        Self { most, places: HashMap::new(), entries: Vec::new(), newest: NONE, oldest: NONE }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The direction of that side, and the opposite one. The connection is the newest now.
    pub(super) fn both(&mut self, connection: u64, side: Side) -> [&mut Half; 2] {
        let place = match self.places.get(&connection) {
            Some(place) => *place,
            None => self.insert(connection),
        };
        self.renew(place);
        let [first, second] = &mut self.entries[place as usize].halves;
        match side {
            Side::First => [first, second],
            Side::Second => [second, first],
        }
    }

    fn insert(&mut self, connection: u64) -> u32 {
        let place = if self.entries.len() < self.most {
            let halves = [Half::default(), Half::default()];
            self.entries.push(Entry { connection, older: NONE, newer: NONE, halves });
            let place = self.entries.len() as u32 - 1;
            self.link(place);
            place
        } else {
            let entry = &mut self.entries[self.oldest as usize];
            self.places.remove(&entry.connection);
            entry.connection = connection;
            entry.halves = [Half::default(), Half::default()];
            self.oldest
        };
        self.places.insert(connection, place);
        place
    }

    fn renew(&mut self, place: u32) {
        if place == self.newest {
            return;
        }
        let Entry { older, newer, .. } = self.entries[place as usize];
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        // It is not the newest.
        self.entries[newer as usize].older = older;
        self.link(place);
    }

    /// Puts an entry that is not linked behind the newest.
    fn link(&mut self, place: u32) {
        let newest = std::mem::replace(&mut self.newest, place);
        match newest {
            NONE => self.oldest = place,
            newest => self.entries[newest as usize].newer = place,
        }
        let entry = &mut self.entries[place as usize];
        entry.older = newest;
        entry.newer = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_forgets_the_connection_that_was_heard_of_the_longest_ago() {
        let mut table = Table::new(3);
        let mut hear = |connection| {
            let [half, _] = table.both(connection, Side::First);
            let is_known = half.is_open();
            half.open(7);
            is_known
        };
        assert_eq!([1, 2, 3].map(&mut hear), [false; 3]);
        assert!(hear(1), "2 is the oldest now");
        assert!(!hear(4));
        assert_eq!([1, 3, 4].map(&mut hear), [true; 3]);
        assert!(!hear(2), "for which 1 is forgotten");
        assert_eq!([3, 4, 2].map(&mut hear), [true; 3]);
        assert!(!hear(1));
        assert_eq!(table.len(), 3);
    }
}
