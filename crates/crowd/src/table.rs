//! The live attempts: found by endpoint when a segment arrives, by id when a deadline does.

use std::num::NonZeroU32;

use slab::Slab;

use crate::attempt::Attempt;
use crate::clients::{Clients, Endpoint};
use crate::pages::Pages;

/// Live attempts.
#[derive(Debug)]
pub struct Table {
    clients: Clients,
    attempts: Slab<Attempt>,
    /// Ids by the numbers of their endpoints, which follow each other as attempts do.
    ids: Pages<Entry>,
}

/// An id, and one more, so that a place without one takes no more room.
#[derive(Debug, Clone, Copy)]
struct Entry(NonZeroU32);

impl Entry {
    fn id(self) -> u32 {
        self.0.get() - 1
    }
}

impl Table {
    /// Memory for one attempt, bytes: its slot, and its place in the index where its neighbours
    /// live, too (alone it holds a page of a KiB there).
    pub const BYTES_PER_ATTEMPT: usize = size_of::<Attempt>() + Pages::<Entry>::BYTES_PER_VALUE;

    /// An empty table of these clients that holds `attempts` without growing.
    pub fn new(clients: Clients, attempts: usize) -> Self {
        Self { clients, attempts: Slab::with_capacity(attempts), ids: Pages::with_capacity(attempts) }
    }

    /// Live attempts.
    pub fn len(&self) -> usize {
        self.attempts.len()
    }

    /// Adds an attempt and gives its id. The endpoint must be free: ask [`Table::find`] first.
    pub fn insert(&mut self, attempt: Attempt) -> u32 {
        let number = self.clients.number(attempt.endpoint);
        let id = self.attempts.insert(attempt);
        let next = u32::try_from(id + 1).expect("fewer than 2^32 live connections fit in memory");
        let entry = Entry(NonZeroU32::new(next).expect("one more than an id"));
        let before = self.ids.insert(number, entry);
        debug_assert!(before.is_none(), "an endpoint has one attempt");
        entry.id()
    }

    /// Id of the attempt at an endpoint.
    pub fn find(&self, endpoint: Endpoint) -> Option<u32> {
        let id = self.ids.get(self.clients.number(endpoint))?.id();
        // Another worker's endpoint may have the same number.
        (self.attempts[id as usize].endpoint == endpoint).then_some(id)
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
        let entry = self.ids.remove(self.clients.number(attempt.endpoint));
        debug_assert_eq!(entry.map(Entry::id), Some(id), "every attempt is in the index");
    }

    /// Every live attempt.
    pub fn iter(&self) -> impl Iterator<Item = &Attempt> {
        self.attempts.iter().map(|(_, attempt)| attempt)
    }
}
