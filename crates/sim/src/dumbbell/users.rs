//! Users in sessions: which page, which object, when.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use traffic::{Sessions, Workload};
use units::Nanos;

/// Users who look at one page after another; each object is a connection of its own.
#[derive(Debug, Clone)]
pub struct Users {
    /// How many. They are spread evenly over the hosts.
    pub count: u32,
    /// Mean time from the beginning of one session to the next one's at the same server.
    pub between_sessions: Nanos,
    /// Pages, objects, times to think.
    pub sessions: Sessions,
    /// How long objects are.
    pub sizes: Workload,
    /// Bytes of a request.
    pub request_bytes: u64,
}

/// One user.
#[derive(Debug, Clone, Copy)]
pub struct User {
    /// Host of the user, one of those on the right.
    pub client: u32,
    /// Host of its server, on the left.
    pub server: u32,
    page: u32,
    pages: u32,
    /// Objects of the session that were asked for.
    objects: u32,
    /// Objects of the page that are still to be asked for.
    to_ask: u32,
    /// Objects that were asked for and are not there.
    waits_for: u32,
}

/// What a user does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asks {
    /// Bytes of the object.
    pub bytes: u64,
    /// When the next object of the page is asked for, from now.
    pub next: Option<Nanos>,
}

/// What the users of a run do: a function of the seed, and of when replies come.
#[derive(Debug)]
pub struct Population {
    of: Users,
    seed: u64,
    users: Vec<User>,
}

impl Population {
    /// Nobody has begun yet. `servers` are the hosts on the left, `clients` those on the right,
    /// which follow them.
    pub fn new(of: Users, (servers, clients): (u32, u32), seed: u64) -> Self {
        let user = |number: u32| User {
            client: servers + (number / servers + number) % clients,
            server: number % servers,
            page: 0,
            pages: of.sessions.pages(seed, number.into()),
            objects: 0,
            to_ask: 0,
            waits_for: 0,
        };
        let users = (0..of.count).map(user).collect();
        Self { of, seed, users }
    }

    /// A user, by number.
    pub fn get(&self, user: u32) -> &User {
        &self.users[user as usize]
    }

    /// Bytes of a request.
    pub fn request_bytes(&self) -> u64 {
        self.of.request_bytes
    }

    /// When each session begins, user by user.
    pub fn starts(&self) -> Vec<Nanos> {
        let mut random = Pcg64Mcg::seed_from_u64(self.seed);
        let servers = self.users.iter().map(|user| user.server as usize + 1).max().unwrap_or(0);
        let mut last = vec![Nanos::ZERO; servers];
        let start = |user: &User| {
            let gap = -(1.0 - random.random::<f64>()).ln() * self.of.between_sessions.as_secs_f64();
            last[user.server as usize] += Nanos::from_secs_f64(gap);
            last[user.server as usize]
        };
        self.users.iter().map(start).collect()
    }

    /// The user asks for the next object, the first of a page if there is none left.
    pub fn ask(&mut self, number: u32) -> Asks {
        let (user, seed, whose) = (&mut self.users[number as usize], self.seed, u64::from(number));
        if user.to_ask == 0 {
            user.to_ask = self.of.sessions.objects(seed, whose, user.page);
        }
        let object = user.objects;
        user.objects += 1;
        user.to_ask -= 1;
        user.waits_for += 1;
        // Objects of all users have numbers of their own.
        let attempt = whose << 32 | u64::from(object);
        let bytes = match self.of.sizes.object(seed, attempt, 0) {
            traffic::Object::Bytes(bytes) => bytes,
            traffic::Object::File(file) => file.bytes(),
            traffic::Object::Page => PAGE_BYTES,
        };
        let next = (user.to_ask > 0).then(|| self.of.sessions.between_objects(seed, whose, object));
        Asks { bytes: bytes.max(1), next }
    }

    /// An object is there, or never will be. Gives after which time the user asks for the next
    /// page, if this was the last object of one.
    pub fn got(&mut self, number: u32) -> Option<Nanos> {
        let user = &mut self.users[number as usize];
        user.waits_for -= 1;
        if user.waits_for > 0 || user.to_ask > 0 {
            return None;
        }
        let think = self.of.sessions.think(self.seed, number.into(), user.page);
        user.page += 1;
        (user.page < user.pages).then_some(think)
    }
}

/// The page of `tidegate serve`.
const PAGE_BYTES: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(count: u32) -> Population {
        let table = toml::from_str(Workload::NAMES[7].1).expect("a table");
        let of = Users {
            count,
            between_sessions: Nanos::from_millis(500),
            sessions: Sessions::redfavor(),
            sizes: Workload::new(&table).expect("a workload"),
            request_bytes: 300,
        };
        Population::new(of, (9, 9), 1)
    }

    #[test]
    fn next_page_waits_for_all_objects_of_the_last() {
        let mut crowd = crowd(1);
        for _ in 0..5 {
            let mut objects = 1;
            while crowd.ask(0).next.is_some() {
                objects += 1;
            }
            for _ in 1..objects {
                assert_eq!(crowd.got(0), None);
            }
            assert!(crowd.got(0).is_some(), "time to think after the page");
        }
    }

    #[test]
    fn users_are_spread_evenly_over_servers_and_clients() {
        let crowd = crowd(162);
        for host in 0..9 {
            assert_eq!(crowd.users.iter().filter(|user| user.server == host).count(), 18);
            assert_eq!(crowd.users.iter().filter(|user| user.client == 9 + host).count(), 18);
        }
        let starts = crowd.starts();
        assert!(starts[0] < starts[153], "sessions of one server begin one after another");
    }
}
