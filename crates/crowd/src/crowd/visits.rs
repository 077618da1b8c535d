//! Users between their requests: at which page they are, and when they ask for the next object.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use slab::Slab;
use traffic::Sessions;
use units::Nanos;

/// The sessions of a crowd.
#[derive(Debug)]
pub struct Visits {
    sessions: Sessions,
    seed: u64,
    visits: Slab<Visit>,
    /// When each asks for the next object, with its id; at most one of each.
    due: BinaryHeap<Reverse<(Nanos, u32)>>,
}

/// One user's session.
#[derive(Debug)]
struct Visit {
    user: u64,
    pages: u32,
    /// Under way, from 0.
    page: u32,
    /// Of this page, not asked for yet.
    objects_left: u32,
    /// Asked for, over all pages.
    objects: u32,
    /// Asked for, and not there yet.
    open: u32,
    /// There is an entry in `due`.
    is_due: bool,
    /// Did not get an object, and asks for no more.
    is_leaving: bool,
}

/// A user asks for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// When.
    pub at: Nanos,
    /// Of the session.
    pub id: u32,
    /// The user's number.
    pub user: u64,
    /// Which object of the session, from 0.
    pub object: u32,
}

impl Visits {
    /// Nobody yet.
    pub fn new(sessions: Sessions, seed: u64) -> Self {
        Self { sessions, seed, visits: Slab::new(), due: BinaryHeap::new() }
    }

    /// A user comes, and asks for the first object.
    pub fn begin(&mut self, user: u64, at: Nanos) -> Wish {
        let (pages, objects_left) =
            (self.sessions.pages(self.seed, user), self.sessions.objects(self.seed, user, 0));
        let visit = Visit {
            user,
            pages,
            page: 0,
            objects_left,
            objects: 0,
            open: 0,
            is_due: false,
            is_leaving: false,
        };
        let id = u32::try_from(self.visits.insert(visit)).expect("fewer than 2^32 sessions fit in memory");
        self.ask(id, at)
    }

    /// When somebody asks next.
    pub fn next(&self) -> Option<Nanos> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The one who does; `None` when he has left meanwhile.
    pub fn take_next(&mut self) -> Option<Wish> {
        let Reverse((at, id)) = self.due.pop()?;
        let visit = &mut self.visits[id as usize];
        visit.is_due = false;
        if visit.is_leaving {
            self.forget(id);
            return None;
        }
        if visit.objects_left == 0 {
            visit.page += 1;
            visit.objects_left = self.sessions.objects(self.seed, visit.user, visit.page);
        }
        Some(self.ask(id, at))
    }

    fn ask(&mut self, id: u32, at: Nanos) -> Wish {
        let visit = &mut self.visits[id as usize];
        let (user, object) = (visit.user, visit.objects);
        visit.objects += 1;
        visit.open += 1;
        visit.objects_left -= 1;
        if visit.objects_left > 0 {
            visit.is_due = true;
            let next = at + self.sessions.between_objects(self.seed, user, object);
            self.due.push(Reverse((next, id)));
        }
        Wish { at, id, user, object }
    }

    /// An object is there, or will not come: who does not get one leaves.
    pub fn ended(&mut self, id: u32, is_there: bool, now: Nanos) {
        let visit = &mut self.visits[id as usize];
        visit.open -= 1;
        visit.is_leaving |= !is_there;
        let is_read = visit.open == 0 && visit.objects_left == 0;
        let is_last = visit.page + 1 >= visit.pages;
        if is_read && !is_last && !visit.is_leaving {
            visit.is_due = true;
            let next = now + self.sessions.think(self.seed, visit.user, visit.page);
            self.due.push(Reverse((next, id)));
        } else if is_read || visit.is_leaving {
            self.forget(id);
        }
    }

    /// Removes a session that is over, once nothing of it is under way.
    fn forget(&mut self, id: u32) {
        let visit = &self.visits[id as usize];
        if visit.open == 0 && !visit.is_due {
            self.visits.remove(id as usize);
        }
    }

    /// Nothing is under way, and whoever is there still thinks about what to ask next.
    #[cfg(test)]
    pub fn is_settled(&self) -> bool {
        self.visits.iter().all(|(_, visit)| visit.open == 0 && visit.is_due)
    }

    /// Sessions that are not over.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.visits.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visits() -> Visits {
        let sessions = Sessions::new(3.0, 3.0, Nanos::from_secs(5), Nanos::from_millis(100));
        Visits::new(sessions.expect("sessions"), 1)
    }

    /// Every object comes after 10 ms.
    #[test]
    fn user_asks_for_every_object_of_every_page_in_turn() {
        for user in 0..50 {
            let mut visits = visits();
            let mut asks = vec![visits.begin(user, Nanos::ZERO)];
            let mut under_way = asks.clone();
            while visits.len() > 0 {
                let back = under_way.first().map(|ask| ask.at + Nanos::from_millis(10));
                match (back, visits.next()) {
                    (Some(back), next) if next.is_none_or(|next| back <= next) => {
                        visits.ended(under_way.remove(0).id, true, back);
                    }
                    _ => {
                        let ask = visits.take_next().expect("nobody leaves");
                        asks.push(ask);
                        under_way.push(ask);
                    }
                }
            }
            let sessions = visits.sessions;
            let mut expected = Vec::new();
            let mut at = Nanos::ZERO;
            for page in 0..sessions.pages(1, user) {
                for left in (0..sessions.objects(1, user, page)).rev() {
                    let object = expected.len() as u32;
                    expected.push((at, object));
                    at += if left > 0 {
                        sessions.between_objects(1, user, object)
                    } else {
                        Nanos::from_millis(10) + sessions.think(1, user, page)
                    };
                }
            }
            let asked: Vec<_> = asks.iter().map(|ask| (ask.at, ask.object)).collect();
            assert_eq!(asked, expected, "user {user}");
        }
    }

    #[test]
    fn user_who_does_not_get_an_object_leaves_and_nothing_stays() {
        for user in 0..50 {
            let mut visits = visits();
            let ask = visits.begin(user, Nanos::ZERO);
            visits.ended(ask.id, false, Nanos::from_millis(1));
            while visits.next().is_some() {
                assert_eq!(visits.take_next(), None);
            }
            assert_eq!(visits.len(), 0);
        }
    }
}
