//! The server's ends of connections, and the cost of finding one. Linux has a hash; SunOS 4.1.3 of
//! `[FTY97]` searches a list from its head.

use std::collections::HashMap;

use crowd::Pages;

use super::{End, Peer};

/// The server's ends of connections, by client.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pages: Pages<End>,
    /// Their order, if the kernel searches a list.
    list: Option<Box<List>>,
}

impl Ends {
    /// Without ends. `dummies` is the number of list entries that stay before all others.
    pub(super) fn new(in_list: bool, dummies: u32) -> Self {
        let list = in_list.then(|| Box::new(List { dummies, ..List::default() }));
        Self { pages: Pages::default(), list }
    }

    pub(super) fn get(&self, peer: Peer) -> Option<End> {
        self.pages.get(peer.number())
    }

    pub(super) fn insert(&mut self, peer: Peer, end: End) {
        let before = self.pages.insert(peer.number(), end);
        if let Some(list) = self.list.as_mut().filter(|_| before.is_none()) {
            list.put_first(peer);
        }
    }

    pub(super) fn remove(&mut self, peer: Peer) {
        if self.pages.remove(peer.number()).is_some()
            && let Some(list) = &mut self.list
        {
            list.remove(peer);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Entries that take memory, dummies included.
    pub(super) fn all(&self) -> usize {
        self.len() + self.list.as_ref().map_or(0, |list| list.dummies as usize)
    }

    /// Entries examined to find a client's end, or that it has none; 0 with a hash.
    pub(super) fn look_for(&mut self, peer: Peer) -> u32 {
        self.list.as_mut().map_or(0, |list| list.look_for(peer))
    }
}

/// A list of transmission control blocks, the newest first and the listener last. A search tries
/// the block found last before the list: `in_pcblookup()` and `tcp_last_inpcb` of 4.3BSD, whose TCP
/// SunOS 4.1.3 has.
///
/// A Fenwick tree counts the blocks that are newer than another.
#[derive(Debug, Default)]
struct List {
    dummies: u32,
    /// Order in which the blocks came, from 1.
    places: HashMap<Peer, usize>,
    /// Fenwick tree: counts of the blocks present, by place.
    sums: Vec<u32>,
    next: usize,
    last_found: Option<Peer>,
}

impl List {
    fn put_first(&mut self, peer: Peer) {
        if self.next + 1 >= self.sums.len() {
            self.close_gaps();
        }
        self.next += 1;
        self.places.insert(peer, self.next);
        self.add(self.next, 1);
    }

    fn remove(&mut self, peer: Peer) {
        if let Some(place) = self.places.remove(&peer) {
            self.add(place, u32::MAX); // minus one
        }
        self.last_found = self.last_found.filter(|last| *last != peer);
    }

    fn look_for(&mut self, peer: Peer) -> u32 {
        let all = self.places.len() as u32;
        let Some(&place) = self.places.get(&peer) else {
            self.last_found = None; // the search found the listener
            return self.dummies + all + 1;
        };
        if self.last_found.replace(peer) == Some(peer) {
            return 1;
        }
        self.dummies + all - self.sum(place) + 1
    }

    fn add(&mut self, mut place: usize, by: u32) {
        while place < self.sums.len() {
            self.sums[place] = self.sums[place].wrapping_add(by);
            place += place & place.wrapping_neg();
        }
    }

    fn sum(&self, mut place: usize) -> u32 {
        let mut sum = 0_u32;
        while place > 0 {
            sum = sum.wrapping_add(self.sums[place]);
            place &= place - 1;
        }
        sum
    }

    fn close_gaps(&mut self) {
        let mut all: Vec<(usize, Peer)> = self.places.iter().map(|(peer, place)| (*place, *peer)).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        self.sums = vec![0; (2 * all.len()).max(1024)];
        self.next = 0;
        self.places.clear();
        for (_, peer) in all {
            self.next += 1;
            self.places.insert(peer, self.next);
            self.add(self.next, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    #[test]
    fn list_is_searched_from_the_newest_on_but_for_the_one_found_last() {
        let mut list = List { dummies: 10, ..List::default() };
        let [a, b, c] = [1, 2, 3].map(|port| Peer::new(1, port));
        for peer in [a, b] {
            list.put_first(peer);
        }
        assert_eq!([a, a, b, b, a].map(|peer| list.look_for(peer)), [12, 1, 11, 1, 12]);
        assert_eq!((list.look_for(c), list.look_for(a)), (13, 12), "the listener was the last");
        list.remove(b);
        assert_eq!((list.look_for(a), list.look_for(b), list.look_for(a)), (1, 12, 11));
        list.remove(a);
        list.put_first(a);
        assert_eq!(list.look_for(a), 11, "another one of these ends");
    }

    /// The tree and a plain list agree.
    #[test]
    fn places_are_those_of_a_list() {
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let (mut list, mut plain) = (List::default(), Vec::new());
        for port in 0..20_000_u32 {
            let peer = Peer::new(port, 1);
            plain.insert(0, peer);
            list.put_first(peer);
            while plain.len() > 50 || (!plain.is_empty() && random.random_bool(0.4)) {
                list.remove(plain.remove(random.random_range(0..plain.len())));
            }
            if !plain.is_empty() {
                let at = random.random_range(0..plain.len());
                list.last_found = None;
                assert_eq!(list.look_for(plain[at]) as usize, at + 1, "{port}");
            }
        }
    }
}
