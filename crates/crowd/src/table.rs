//! The live attempts: found by endpoint when a segment arrives, by id when a deadline does.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use slab::Slab;
use std::hash::BuildHasher;

use crate::attempt::Attempt;
use crate::clients::Endpoint;

/// Live attempts.
#[derive(Debug)]
pub struct Table {
    attempts: Slab<Attempt>,
    ids: HashTable<u32>,
    hasher: FixedState,
}

impl Table {
    /// Memory for one attempt, bytes: its slot, and its share of an index that is 7/8 full, with a control byte each.
    pub const BYTES_PER_ATTEMPT: usize = size_of::<Attempt>() + (size_of::<u32>() + 1) * 8 / 7;

    /// An empty table that holds `attempts` without growing.
    pub fn with_capacity(attempts: usize) -> Self {
        Self {
            attempts: Slab::with_capacity(attempts),
            ids: HashTable::with_capacity(attempts),
            hasher: FixedState::default(),
        }
    }

    /// Live attempts.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Adds an attempt and gives its id. The endpoint must be free: ask [`Table::find`] first.
    pub fn insert(&mut self, attempt: Attempt) -> u32 {
        let endpoint = attempt.endpoint;
        let id = u32::try_from(self.attempts.insert(attempt))
            .expect("fewer than 2^32 live connections fit in memory");
        let (attempts, hasher) = (&self.attempts, &self.hasher);
        self.ids.insert_unique(hasher.hash_one(endpoint), id, |&id| {
            hasher.hash_one(attempts[id as usize].endpoint)
        });
        id
    }

    /// Id of the attempt at an endpoint.
    pub fn find(&self, endpoint: Endpoint) -> Option<u32> {
        let is_it = |&id: &u32| self.attempts[id as usize].endpoint == endpoint;
        self.ids.find(self.hasher.hash_one(endpoint), is_it).copied()
    }

    /// The attempt with an id.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn get_mut(&mut self, id: u32) -> &mut Attempt {
        &mut self.attempts[id as usize]
    }

    /// Removes an attempt.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn remove(&mut self, id: u32) {
        let attempt = self.attempts.remove(id as usize);
        let hash = self.hasher.hash_one(attempt.endpoint);
        let entry = self.ids.find_entry(hash, |&other| other == id);
        entry.expect("every attempt is in the index").remove();
    }

    /// Every live attempt.
    pub fn iter(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().map(|(_, attempt)| attempt)
    }
}
