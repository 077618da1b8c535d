//! Servers before crowds in virtual time: the agent's own pacer, and the kernel's own counts
//! (kernel/unserved.h, compiled for the host).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};
use std::time::Duration;

use kernel::ListenerStats;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use units::Nanos;
use verdict::{Attempt, ListenerLoad, Policy, Trigger, Verdict};

use crate::{Demand, Look, Pacer, Service, Wait};

/// What decides.
const POLICY: Policy = Policy { trigger: Trigger::Unserved(None), ..Policy::RST_SYN };
const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
const TICK: u64 = 50 * MS;

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Client {
    /// An answer.
    Asks,
    /// To be in the way: it sends half a request, and gives up after ten seconds.
    Holds,
    /// To be told of an event: a long poll.
    Polls,
    /// Nothing: its SYN is forged, and nobody answers the SYN/ACK.
    Spoofs,
    /// To make its own time look like the server's: it sends its request in many pieces, and the
    /// last of them after two seconds.
    Dribbles,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Attempt(Client),
    /// The handshake ends, after so many us, and the request comes along; 0 if that is not known,
    /// as after a SYN cookie of the kernel's.
    Request(Client, u32),
    /// The last piece of the request comes.
    LastPiece(usize),
    /// A worker is done with this connection.
    Done(usize),
    /// This connection ends without a worker's doing: answered, or not.
    End(usize, bool),
}

#[derive(Debug, Clone, Copy)]
struct World {
    workers: usize,
    /// Whether connections wait in the accept queue for a worker, and not inside the server.
    is_pool: bool,
    work_ns: u64,
    /// Whether that is the mean of an exponential distribution.
    is_exponential: bool,
    /// Share of the requests that take a hundred times as long.
    heavy: f64,
    backlog: u32,
    handshake_ns: u64,
    /// Per second.
    asks: f64,
    holds: f64,
    polls: f64,
    spoofs: f64,
    dribbles: f64,
    /// How long it takes until the event comes.
    poll_ns: u64,
}

impl Default for World {
    fn default() -> Self {
        Self {
            workers: 1,
            is_pool: false,
            work_ns: 100 * US,
            is_exponential: false,
            heavy: 0.0,
            backlog: 128,
            handshake_ns: 50 * US,
            asks: 0.0,
            holds: 0.0,
            polls: 0.0,
            spoofs: 0.0,
            dribbles: 0.0,
            poll_ns: 30 * S,
        }
    }
}

/// What became of those that ask.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    asked: u64,
    answered: u64,
    refused: u64,
    response_ns: u64,
    /// Of the workers, for requests that were begun.
    work_ns: u64,
}

impl Seen {
    fn share(&self) -> f64 {
        self.answered as f64 / self.asked.max(1) as f64
    }

    fn mean_ms(&self) -> f64 {
        self.response_ns as f64 / self.answered.max(1) as f64 / 1e6
    }
}

struct Run {
    world: World,
    random: Pcg64Mcg,
    now: u64,
    next_tick: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    service: Box<Service>,
    pacer: Pacer,
    /// Of each connection, when its last piece came, and what is known of it if it is followed.
    waits: Vec<(u64, Option<Wait>)>,
    /// Who is followed: chance of its own, so that the crowd is the same whoever that is.
    following: Pcg64Mcg,
    queue: VecDeque<usize>,
    dribbling: HashSet<usize>,
    busy: usize,
    syn_qlen: u32,
    forged_qlen: u32,
    stats: ListenerStats,
    seen: Seen,
}

impl Run {
    fn new(world: World) -> Self {
        Self::with_seed(world, 1)
    }

    fn with_seed(world: World, seed: u64) -> Self {
        let service = Box::new(Service::of_generation(0));
        let pacer = Pacer::new(Look { at: Nanos(1), counts: *service, demand: Demand::default() });
        let mut run = Self {
            world,
            random: Pcg64Mcg::seed_from_u64(seed),
            now: S,
            next_tick: S + TICK,
            events: BinaryHeap::new(),
            number: 0,
            service,
            pacer,
            waits: Vec::new(),
            following: Pcg64Mcg::seed_from_u64(seed),
            queue: VecDeque::new(),
            dribbling: HashSet::new(),
            busy: 0,
            syn_qlen: 0,
            forged_qlen: 0,
            stats: ListenerStats::default(),
            seen: Seen::default(),
        };
        [Client::Asks, Client::Holds, Client::Polls, Client::Spoofs, Client::Dribbles]
            .into_iter()
            .for_each(|client| run.expect(client));
        run
    }

    /// After some seconds at half of what it can, or less.
    fn calm(world: World, seed: u64) -> Self {
        let can = world.workers as f64 * 1e9 / (world.work_ns as f64 * (1.0 + 99.0 * world.heavy));
        let mut run = Self::with_seed(World { asks: world.asks.min(0.5 * can), ..world }, seed);
        run.run(Duration::from_secs(10));
        run.world = world;
        run
    }

    /// From the guard's first moment on, after which nobody comes for so long, and for up to a
    /// second more.
    fn beginning(world: World, seed: u64, quiet: Duration) -> Self {
        let is_quiet = !quiet.is_zero();
        let first = if is_quiet { World { asks: 0.0, polls: 0.0, ..world } } else { world };
        let mut run = Self::with_seed(first, seed);
        *run.service = Service::idle(0, Nanos(run.now));
        run.pacer = Pacer::new(Look { at: Nanos(run.now), counts: *run.service, demand: Demand::default() });
        run.run(quiet);
        run.world = world;
        run
    }

    fn at(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    fn exponential(&mut self, mean_ns: f64) -> u64 {
        let unit: f64 = Exp1.sample(&mut self.random);
        (unit * mean_ns) as u64
    }

    fn rate(&self, client: Client) -> f64 {
        match client {
            Client::Asks => self.world.asks,
            Client::Holds => self.world.holds,
            Client::Polls => self.world.polls,
            Client::Spoofs => self.world.spoofs,
            Client::Dribbles => self.world.dribbles,
        }
    }

    /// The next attempt of this kind, if there is one within a second.
    fn expect(&mut self, client: Client) {
        let per_s = self.rate(client);
        // Looked at again later, as the rate may change.
        let gap = if per_s > 0.0 { self.exponential(1e9 / per_s) } else { S };
        self.at(self.now + gap, Event::Attempt(client));
    }

    /// So many more that ask within 50 ms, beyond those that come anyway.
    fn burst(&mut self, count: u64) -> Seen {
        let mut sum = Seen::default();
        for _ in 0..count {
            self.seen = Seen::default();
            self.attempt(Client::Asks);
            sum.asked += self.seen.asked;
            sum.refused += self.seen.refused;
            self.run(Duration::from_millis(50) / count as u32);
        }
        sum
    }

    /// Goes on for so long, and tells what happened in it.
    fn run(&mut self, span: Duration) -> Seen {
        let end = self.now + span.as_nanos() as u64;
        self.seen = Seen::default();
        while self.now < end {
            let event_at = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
            if event_at.min(self.next_tick) >= end {
                self.now = end;
            } else if self.next_tick <= event_at {
                self.now = self.next_tick;
                self.next_tick += TICK;
                let mut demand = Demand::default();
                demand.add(&POLICY, false, &self.stats);
                self.pacer.tick(Look { at: Nanos(self.now), counts: *self.service, demand });
            } else {
                let Reverse((at, _, event)) = self.events.pop().expect("it was peeked at");
                self.now = at;
                self.happen(event);
            }
        }
        self.seen
    }

    fn happen(&mut self, event: Event) {
        let now = self.now;
        match event {
            Event::Attempt(client) => {
                self.expect(client);
                if self.rate(client) > 0.0 {
                    self.attempt(client);
                }
            }
            Event::Request(client, handshake_us) => self.request(client, handshake_us),
            Event::Done(connection) => {
                self.busy -= 1;
                if !self.dribbling.remove(&connection) {
                    self.seen.answered += 1;
                    self.seen.response_ns += now - self.waits[connection].0;
                }
                self.end(connection, true);
            }
            Event::End(connection, is_answered) => self.end(connection, is_answered),
            Event::LastPiece(connection) => {
                self.go_on(connection);
                self.queue.push_back(connection);
            }
        }
        while self.busy < self.world.workers
            && let Some(connection) = self.queue.pop_front()
        {
            self.busy += 1;
            let is_heavy = self.world.heavy > 0.0 && self.random.random::<f64>() < self.world.heavy;
            let mean = self.world.work_ns * if is_heavy { 100 } else { 1 };
            let work = if self.world.is_exponential { self.exponential(mean as f64) } else { mean };
            self.seen.work_ns += work;
            self.at(now + work, Event::Done(connection));
        }
    }

    fn accept_qlen(&self) -> u32 {
        if self.world.is_pool { self.queue.len() as u32 } else { 0 }
    }

    fn attempt(&mut self, client: Client) {
        let (qlen, backlog, now) = (self.accept_qlen(), self.world.backlog, Nanos(self.now));
        let pace = *self.pacer.pace();
        let load = ListenerLoad {
            accept_qlen: qlen,
            accept_limit: backlog,
            syn_qlen: self.syn_qlen + self.forged_qlen,
            syn_limit: backlog,
            ..ListenerLoad::default()
        };
        let attempt = Attempt { now, ..Attempt::default() };
        let (verdict, is_server_full) = POLICY.decide_syn(&load, &attempt, &mut self.service, &pace, now);
        let is_admitted = verdict == Verdict::Admit;
        self.seen.asked += u64::from(client == Client::Asks);
        self.stats.seen += 1;
        self.stats.admitted += u64::from(is_admitted);
        if !is_admitted {
            self.stats.server_full += u64::from(is_server_full);
            self.stats.accept_full += u64::from(qlen > backlog);
            self.seen.refused += u64::from(client == Client::Asks);
            return;
        }
        // Of forged ones the kernel keeps as many as the queue holds, for a minute, and answers the
        // others with cookies.
        if client == Client::Spoofs {
            self.forged_qlen = (self.forged_qlen + 1).min(backlog);
            return;
        }
        let is_cookie = self.syn_qlen + self.forged_qlen >= backlog;
        self.syn_qlen += u32::from(!is_cookie);
        let factor = 0.7 + 0.6 * self.random.random::<f64>();
        // Some are far away.
        let tail = if self.random.random::<f64>() < 0.03 { 10.0 } else { 1.0 };
        let after = (self.world.handshake_ns as f64 * factor * tail) as u64;
        self.at(self.now + after, Event::Request(client, if is_cookie { 0 } else { (after / US) as u32 }));
    }

    fn request(&mut self, client: Client, handshake_us: u32) {
        self.syn_qlen -= u32::from(handshake_us > 0);
        if self.accept_qlen() > self.world.backlog {
            self.stats.acks_full += 1;
            return; // the kernel drops the ACK, and the client gives up
        }
        let connection = self.waits.len();
        let (pace, now) = (*self.pacer.pace(), Nanos(self.now));
        let wait = self.service.begin(&pace, self.following.random(), handshake_us, now);
        self.waits.push((self.now, wait));
        self.go_on(connection);
        match client {
            Client::Asks => self.queue.push_back(connection),
            Client::Holds => self.at(self.now + 10 * S, Event::End(connection, false)),
            Client::Polls => self.at(self.now + self.world.poll_ns, Event::End(connection, true)),
            Client::Spoofs => unreachable!("nobody answers the SYN/ACK"),
            Client::Dribbles => {
                // Four pieces at once; the first was above.
                (0..3).for_each(|_| self.go_on(connection));
                self.dribbling.insert(connection);
                self.at(self.now + 2 * S, Event::LastPiece(connection));
            }
        }
    }

    fn go_on(&mut self, connection: usize) {
        let (since, wait) = &mut self.waits[connection];
        *since = self.now;
        if let Some(wait) = wait {
            self.service.go_on(self.pacer.pace(), wait, Nanos(self.now));
        }
    }

    fn end(&mut self, connection: usize, is_answered: bool) {
        if let (_, Some(wait)) = &self.waits[connection] {
            self.service.end(self.pacer.pace(), wait, is_answered, Nanos(self.now));
        }
    }

    /// Prints what happened, for whoever looks.
    fn say(&self, what: &str, seen: Seen) {
        let pace = self.pacer.pace();
        println!(
            "{what}: {:.1}% of {} answered, {:.2} ms, limit {}, overtaken at {}, counted {:?} of {:?}",
            100.0 * seen.share(),
            seen.asked,
            seen.mean_ms(),
            pace.limit,
            pace.overtaken_at,
            self.service.recent,
            self.service.in_stage,
        );
    }
}

/// One crowd alone may be a lucky one.
const SEEDS: [u64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
const SETTLE: Duration = Duration::from_secs(3);
const WINDOW: Duration = Duration::from_secs(4);

fn settled(what: &str, world: World) -> Seen {
    settled_from(what, world, 1)
}

fn settled_from(what: &str, world: World, seed: u64) -> Seen {
    let mut run = Run::calm(world, seed);
    run.run(SETTLE);
    let seen = run.run(WINDOW);
    run.say(what, seen);
    seen
}

#[test]
fn server_before_a_crowd_answers_what_it_can_and_soon() {
    // A period has more than a hundred answers, so that a slow server takes longer.
    for (work_ns, is_exponential, longest_ms, settle_s) in [
        (30 * US, false, 0.5, 3),
        (100 * US, true, 2.0, 3),
        (MS, false, 10.0, 3),
        (10 * MS, false, 100.0, 15),
    ] {
        let can = 1e9 / work_ns as f64;
        for times in [2.0, 6.0] {
            let world = World { work_ns, is_exponential, asks: times * can, ..World::default() };
            let mut run = Run::calm(world, 1);
            run.run(Duration::from_secs(settle_s));
            let seen = run.run(WINDOW);
            run.say(&format!("{work_ns} ns, {times} times"), seen);
            let share = seen.answered as f64 / (can * WINDOW.as_secs_f64());
            assert!(share > 0.96, "{share} of what it can");
            assert!(seen.mean_ms() < longest_ms, "{} ms", seen.mean_ms());
        }
    }
}

#[test]
fn pool_of_processes_before_a_crowd_answers_what_it_can() {
    let world = World { workers: 50, is_pool: true, work_ns: 10 * MS, ..World::default() };
    for is_exponential in [false, true] {
        let seen = settled("fifty", World { is_exponential, asks: 15_000.0, ..world });
        let share = seen.answered as f64 / (5_000.0 * WINDOW.as_secs_f64());
        assert!(share > 0.95, "{share} of what it can");
        assert!(seen.mean_ms() < 30.0, "{} ms", seen.mean_ms());
    }
}

/// For ten milliseconds a period with half of the limit has the answers of all of it. If they
/// count, half seems to do more than it does, and the limit goes down for ever.
#[test]
fn large_pool_still_answers_what_it_can_after_half_a_minute() {
    let world = World { workers: 200, is_pool: true, work_ns: 10 * MS, asks: 60_000.0, ..World::default() };
    let mut run = Run::new(world);
    run.run(Duration::from_secs(30));
    let seen = run.run(WINDOW);
    run.say("two hundred", seen);
    let share = seen.answered as f64 / (20_000.0 * WINDOW.as_secs_f64());
    assert!(share > 0.95, "{share} of what it can");
}

/// Whom twice the limit would not refuse any more, but keep waiting, must not make it grow: each
/// doubling helps until what it adds is full.
#[test]
fn load_that_is_a_little_too_much_makes_no_queue_that_grows() {
    for (times, longest_ms) in [(1.02, 50.0), (1.05, 25.0), (1.1, 12.0)] {
        for is_exponential in [false, true] {
            let mut run = Run::new(World { is_exponential, asks: times * 10_000.0, ..World::default() });
            for _ in 0..4 {
                run.run(Duration::from_secs(15));
                let seen = run.run(Duration::from_secs(5));
                run.say(&format!("{times} times, exponential: {is_exponential}"), seen);
                assert!(seen.answered as f64 > 0.97 * 10_000.0 * 5.0, "{} answered", seen.answered);
                assert!(seen.mean_ms() < longest_ms, "{} ms", seen.mean_ms());
            }
        }
    }
}

/// Who is under way was let in by what the server could do before, so that half the limit shows
/// little. As many as are answered are let in, although more could be: README.md.
#[test]
fn server_of_many_workers_before_a_far_crowd_answers_what_it_can() {
    let pool = World { workers: 50, is_pool: true, work_ns: 10 * MS, backlog: 1024, ..World::default() };
    let cores = World { workers: 8, work_ns: 2 * MS, ..World::default() };
    for (what, world, is_exponential, handshake_ns, settle_s, least) in [
        ("pool", pool, false, 2 * MS, 6, 0.95),
        ("pool", pool, true, 2 * MS, 6, 0.9),
        ("pool", pool, false, 5 * MS, 16, 0.95),
        ("pool", pool, true, 5 * MS, 16, 0.9),
        ("pool", pool, false, 20 * MS, 6, 0.93),
        ("pool", pool, true, 20 * MS, 6, 0.9),
        ("pool", pool, false, 100 * MS, 16, 0.93),
        ("pool", pool, true, 100 * MS, 16, 0.85),
        ("cores", cores, false, 20 * MS, 6, 0.93),
        ("cores", cores, true, 100 * MS, 16, 0.93),
    ] {
        let can = 1e9 * world.workers as f64 / world.work_ns as f64;
        for seed in SEEDS {
            let world = World { is_exponential, handshake_ns, asks: 3.0 * can, ..world };
            let mut run = Run::calm(world, seed);
            run.run(Duration::from_secs(settle_s));
            let seen = run.run(Duration::from_secs(30));
            let what =
                format!("{what}, exponential {is_exponential}, {} ms away, seed {seed}", handshake_ns / MS);
            run.say(&what, seen);
            let share = seen.answered as f64 / (can * 30.0);
            assert!(share > least, "{share} of what it can: {what}");
            assert!(seen.mean_ms() < 20.0, "{} ms: {what}", seen.mean_ms());
        }
    }
}

/// Half of the work is that of one request in a hundred. Just below what the server can do, and
/// just above, the limit stays too small. Beyond it, how many take long
/// in four seconds is chance, and so is 2% of what the server can do. So this takes five times as
/// long, and the server must work nearly all of the time.
#[test]
fn server_whose_requests_differ_much_answers_what_it_can_far_from_its_limit() {
    let world = World { work_ns: 50 * US, heavy: 0.01, ..World::default() };
    let can = 1e9 / (50_000.0 * 1.99);
    for (load, window, least) in [(0.7, WINDOW, 0.99), (3.0, 5 * WINDOW, 0.97)] {
        for seed in SEEDS {
            let mut run = Run::with_seed(World { asks: load * can, ..world }, seed);
            run.run(SETTLE);
            let seen = run.run(window);
            run.say(&format!("at {load}"), seen);
            let share = seen.answered as f64 / window.as_secs_f64() / (can * load.min(1.0));
            assert!(share > least, "{share} of what it can at {load}, seed {seed}");
            let worked = seen.work_ns as f64 / window.as_nanos() as f64;
            assert!(load < 1.0 || worked > 0.985, "{worked} of the time, seed {seed}");
        }
    }
}

#[test]
fn nobody_is_in_the_way_of_those_that_ask() {
    let calm = World { asks: 1_000.0, ..World::default() };
    for (what, world, least) in [
        ("none", calm, 0.999),
        ("few halves", World { holds: 100.0, ..calm }, 0.98),
        ("halves", World { holds: 1_000.0, ..calm }, 0.95),
        ("many halves", World { holds: 5_000.0, ..calm }, 0.9),
        ("many halves, and few that ask", World { asks: 50.0, holds: 1_000.0, ..calm }, 0.9),
        ("many halves for each that asks", World { holds: 20_000.0, ..calm }, 0.9),
        ("long polls", World { polls: 1_000.0, ..calm }, 0.95),
        ("dribbles", World { dribbles: 150.0, ..calm }, 0.98),
        ("dribbles, and few that ask", World { asks: 40.0, dribbles: 150.0, ..calm }, 0.95),
        ("many dribbles, and few that ask", World { asks: 40.0, dribbles: 2_000.0, ..calm }, 0.9),
        ("halves, busy", World { asks: 8_000.0, holds: 2_000.0, ..calm }, 0.9),
        ("forged", World { spoofs: 20_000.0, ..calm }, 0.99),
        ("forged, and busy", World { asks: 8_000.0, spoofs: 300_000.0, handshake_ns: MS, ..calm }, 0.97),
        ("forged, and 20 ms away", World { spoofs: 20_000.0, handshake_ns: 20 * MS, ..calm }, 0.99),
    ] {
        for seed in SEEDS {
            let seen = settled_from(what, world, seed);
            assert!(seen.share() > least, "{what}, seed {seed}: {}", seen.share());
        }
    }
    // Beyond what it can, with as many halves.
    for holds in [1_000.0, 20_000.0] {
        let world = World { asks: 20_000.0, holds, ..calm };
        let seen = settled(&format!("crowd and {holds} halves"), world);
        let share = seen.answered as f64 / (10_000.0 * WINDOW.as_secs_f64());
        assert!(share > 0.9, "{share} of what it can");
    }
}

#[test]
fn server_that_becomes_slower_or_faster_is_followed() {
    let mut run = Run::new(World { asks: 40_000.0, ..World::default() });
    run.run(SETTLE);
    for work_ns in [MS, 100 * US] {
        run.world.work_ns = work_ns;
        let can = 1e9 / work_ns as f64;
        let jump = run.run(Duration::from_secs(2));
        run.say("after the jump", jump);
        assert!(jump.answered as f64 > 0.8 * 2.0 * can, "{jump:?}");
        let seen = run.run(WINDOW);
        run.say("later", seen);
        assert!(seen.answered as f64 > 0.95 * WINDOW.as_secs_f64() * can, "{seen:?}");
    }
}

#[test]
fn crowd_that_comes_and_goes_does_not_mislead() {
    let mut run = Run::calm(World { asks: 1_000.0, ..World::default() }, 1);
    for turn in 0..8 {
        run.world.asks = 40_000.0;
        let seen = run.run(Duration::from_secs(1));
        run.say("crowd", seen);
        if turn > 2 {
            assert!(seen.answered > 9_000, "{seen:?}");
            assert!(seen.mean_ms() < 500.0, "{seen:?}");
        }
        run.world.asks = 100.0;
        let seen = run.run(Duration::from_secs(2));
        assert!(seen.share() > 0.97, "{seen:?}");
        // Beside those who are left of the crowd.
        assert!(seen.refused as f64 <= 0.03 * seen.asked as f64, "{seen:?}");
    }
}

#[test]
fn burst_that_is_soon_answered_is_not_refused() {
    for (work_ns, burst) in [(30 * US, 10_000), (100 * US, 2_000), (10 * MS, 40)] {
        let mut run = Run::new(World { work_ns, asks: 20.0, ..World::default() });
        for _ in 0..4 {
            run.run(SETTLE);
            let seen = run.burst(burst);
            run.say("burst", seen);
            assert_eq!(seen.refused, 0, "of {burst} at {work_ns} ns");
        }
        // Nor is what takes longer: it comes at once, and drains.
        assert_eq!(run.burst(20 * burst).refused, 0, "of {burst} times 20");
    }
}

/// Garbage is collected, or a disk is waited for: who came meanwhile is answered late, as without a
/// guard.
#[test]
fn pause_of_a_server_that_has_time_is_no_crowd() {
    for (pause_ms, load) in [(200, 0.7), (300, 0.7), (500, 0.5), (900, 0.3)] {
        for seed in SEEDS {
            let mut run = Run::calm(World { asks: load * 10_000.0, ..World::default() }, seed);
            run.world.work_ns = pause_ms * MS;
            run.run(Duration::from_millis(2));
            run.world.work_ns = World::default().work_ns;
            let seen = run.run(Duration::from_secs(4));
            run.say(&format!("{pause_ms} ms at {load}, seed {seed}"), seen);
            assert_eq!(seen.refused, 0, "{pause_ms} ms at {load}, seed {seed}");
        }
    }
}

/// A neighbour took its CPU for a while: on the busy day afterwards the crowd is soon over.
#[test]
fn after_a_crowd_a_busy_server_refuses_few_and_soon_nobody() {
    let fast = World { work_ns: 40 * US, ..World::default() };
    let pool = World { workers: 50, is_pool: true, work_ns: 10 * MS, ..World::default() };
    for (what, world, can) in [("one core", fast, 25_000.0), ("a pool", pool, 5_000.0)] {
        for is_exponential in [false, true] {
            for (load, most) in [(0.7, 0.005), (0.9, 0.015)] {
                for seed in [1, 2, 3] {
                    let what = format!("{what} at {load}, exponential: {is_exponential}, seed {seed}");
                    let mut run = Run::calm(World { is_exponential, asks: 3.0 * can, ..world }, seed);
                    run.run(Duration::from_secs(5));
                    run.world.asks = load * can;
                    let after = run.run(Duration::from_secs(2));
                    run.say(&what, after);
                    assert!(after.refused as f64 <= most * after.asked as f64, "{what}: {after:?}");
                    let later = run.run(Duration::from_secs(4));
                    assert_eq!(later.refused, 0, "{what}");
                }
            }
        }
    }
}

/// Browsers open some connections at once.
#[test]
fn after_a_crowd_far_clients_with_several_connections_are_let_in() {
    for (ms, at_once) in [(60, 8), (100, 6), (100, 3)] {
        for is_exponential in [false, true] {
            let pool = World { workers: 20, work_ns: 50 * MS, handshake_ns: ms * MS, ..World::default() };
            let mut run = Run::calm(World { is_exponential, asks: 1_000.0, ..pool }, 1);
            run.run(Duration::from_secs(3));
            run.world.asks = 0.0;
            // 60% of what it can do.
            let gap = Duration::from_secs_f64(f64::from(at_once) / 240.0);
            let mut refused = [0; 2];
            for second in 0..12 {
                let end = run.now + S;
                while run.now < end {
                    (0..at_once).for_each(|_| run.attempt(Client::Asks));
                    refused[usize::from(second >= 4)] += run.seen.refused;
                    run.run(gap);
                }
            }
            println!("{ms} ms, {at_once} at once, exponential {is_exponential}: {refused:?}");
            assert_eq!(refused[1], 0, "{ms} ms, {at_once} at once, exponential {is_exponential}");
        }
    }
}

#[test]
fn server_that_has_time_refuses_as_good_as_nobody() {
    let core = World::default();
    let pool = World { workers: 50, is_pool: true, work_ns: 10 * MS, ..World::default() };
    for (what, world, can) in [("one core", core, 10_000.0), ("a pool", pool, 5_000.0)] {
        for (load, most) in [(0.5, 1e-3), (0.9, 1e-3), (0.97, 0.01), (1.0, 0.03)] {
            for is_exponential in [false, true] {
                let what = format!("{what} at {load}, exponential: {is_exponential}");
                let world = World { is_exponential, asks: load * can, ..world };
                for seed in SEEDS {
                    let seen = settled_from(&what, world, seed);
                    let refused = seen.refused as f64 / seen.asked as f64;
                    assert!(refused <= most, "{refused} before {what}, seed {seed}");
                }
            }
        }
    }
}

/// Longer than a guard needs to see that nobody was there before it.
const QUIET: Duration = Duration::from_secs(5);

/// A thousand things at a time, as a server that waits for another one.
fn slow(work_ns: u64, is_exponential: bool, load: f64) -> World {
    let asks = load * 1e12 / work_ns as f64;
    World { workers: 1_000, is_pool: true, work_ns, is_exponential, asks, ..World::default() }
}

/// Until 28 November half to all of them were refused for half a minute, and of exponential ones
/// for minutes.
#[test]
fn server_whose_answers_take_long_refuses_few_while_it_has_time() {
    for (work_ns, load, first) in [
        (200 * MS, 0.1, 0.05),
        (200 * MS, 0.5, 0.1),
        (500 * MS, 0.1, 0.05),
        (S, 0.1, 0.05),
        (S, 0.5, 0.15),
        (2 * S, 0.1, 0.2),
        (2 * S, 0.5, 0.5),
    ] {
        for (is_exponential, seed) in [false, true].into_iter().flat_map(|is| SEEDS.map(|seed| (is, seed))) {
            let what =
                format!("{work_ns} ns, exponential: {is_exponential}, {load} of what it can, seed {seed}");
            let mut run = Run::beginning(slow(work_ns, is_exponential, load), seed, QUIET);
            let seen = run.run(Duration::from_secs(10));
            assert!(seen.refused as f64 <= first * seen.asked as f64, "at first, {what}: {seen:?}");
            run.run(Duration::from_secs(15));
            let seen = run.run(Duration::from_secs(15));
            assert!(seen.refused as f64 <= 0.005 * seen.asked as f64, "later, {what}: {seen:?}");
        }
    }
}

/// One that begins while they come cannot tell whether others were there before.
#[test]
fn guard_that_begins_before_a_slow_server_at_work_lets_everybody_in_after_a_minute() {
    for (work_ns, load) in [(200 * MS, 0.1), (500 * MS, 0.5), (S, 0.1), (S, 0.5), (2 * S, 0.1), (2 * S, 0.5)]
    {
        for (is_exponential, seed) in [false, true].into_iter().flat_map(|is| SEEDS.map(|seed| (is, seed))) {
            let mut run = Run::beginning(slow(work_ns, is_exponential, load), seed, Duration::ZERO);
            run.run(Duration::from_secs(60));
            let seen = run.run(Duration::from_secs(15));
            assert!(
                seen.refused as f64 <= 0.005 * seen.asked as f64,
                "{work_ns} ns, exponential: {is_exponential}, {load} of what it can, seed {seed}: {seen:?}"
            );
        }
    }
}

/// Those who were there before the guard keep the first waiting, which looks like work that is
/// slow.
#[test]
fn queue_from_before_the_guard_is_not_taken_for_slow_work() {
    for (work_ns, workers, before) in [(MS, 1, 500), (10 * MS, 50, 5_000)] {
        for seed in SEEDS {
            let can = workers as f64 * 1e9 / work_ns as f64;
            let world = World { work_ns, workers, asks: 3.0 * can, is_exponential: true, ..World::default() };
            let mut run = Run::beginning(world, seed, Duration::ZERO);
            for _ in 0..before {
                run.queue.push_back(run.waits.len());
                run.waits.push((run.now, None));
            }
            run.run(Duration::from_secs(120));
            let seen = run.run(Duration::from_secs(10));
            run.say(&format!("{before} before, {work_ns} ns, seed {seed}"), seen);
            assert!(run.pacer.pace().limit <= 2 * workers as u32 + 20, "{:?}, seed {seed}", run.pacer.pace());
            assert!(seen.mean_ms() < 50.0 * work_ns as f64 / 1e6, "{} ms, seed {seed}", seen.mean_ms());
        }
    }
}

/// Until 28 November exponential ones answered 37 to 87% of what they can in the mean, and 5% at
/// worst.
#[test]
fn slow_pool_before_a_crowd_answers_what_it_can_and_not_much_later_than_it_must() {
    for (work_ns, workers) in [(200 * MS, 50), (500 * MS, 20), (500 * MS, 100), (S, 100)] {
        for (is_exponential, times) in [(false, 1.5), (false, 3.0), (true, 1.5), (true, 3.0)] {
            let can = workers as f64 * 1e9 / work_ns as f64;
            let world = World { workers, is_pool: true, work_ns, is_exponential, ..World::default() };
            let mut shares = Vec::new();
            for seed in SEEDS {
                let mut run = Run::calm(World { asks: times * can, ..world }, seed);
                run.run(Duration::from_secs(60));
                let seen = run.run(Duration::from_secs(30));
                run.say(&format!("{workers} of {work_ns} ns, {times} times, seed {seed}"), seen);
                assert!(seen.mean_ms() * 1e6 < 6.0 * work_ns as f64, "{} ms", seen.mean_ms());
                shares.push(seen.answered as f64 / (30.0 * can));
            }
            assert!(shares.iter().all(|&share| share > 0.7), "{shares:?} of what it can");
            assert!(shares.iter().sum::<f64>() > 0.95 * shares.len() as f64, "{shares:?} of what it can");
        }
    }
}

/// Until 28 November up to 99% of those that ask were refused for as long as that lasted: half
/// requests wait for long, too, so that it seemed a queue.
#[test]
fn half_requests_keep_nobody_from_a_slow_server_for_long() {
    for (work_ns, load, holds, dribbles) in [
        (500 * MS, 0.1, 100.0, 0.0),
        (500 * MS, 0.1, 1_000.0, 0.0),
        (2 * S, 0.1, 20.0, 0.0),
        (2 * S, 0.1, 0.0, 20.0),
        (2 * S, 0.5, 100.0, 100.0),
        (2 * S, 0.5, 1_000.0, 0.0),
    ] {
        let mut shares = Vec::new();
        for seed in SEEDS {
            let mut run = Run::beginning(slow(work_ns, true, load), seed, QUIET);
            (run.world.holds, run.world.dribbles) = (holds, dribbles);
            run.run(Duration::from_secs(60));
            let seen = run.run(Duration::from_secs(20));
            run.say(&format!("{holds} halves and {dribbles} dribbles, {work_ns} ns, seed {seed}"), seen);
            shares.push(seen.refused as f64 / seen.asked as f64);
        }
        assert!(shares.iter().all(|&share| share < 0.1), "{shares:?} refused");
        assert!(shares.iter().sum::<f64>() < 0.02 * shares.len() as f64, "{shares:?} refused");
    }
}

/// While polls are most of what is answered they are what is usual, and else they do not count. A
/// limit that was found for the one must not be in the way of the other.
#[test]
fn fewer_fast_requests_than_long_polls_are_answered() {
    for (asks, polls) in [(40.0, 150.0), (100.0, 300.0), (1_000.0, 3_000.0)] {
        // What comes in the guard's first moment may come to a server that is busy with others.
        for (poll_s, quiet, first) in
            [2, 10, 30].into_iter().flat_map(|s| [(s, QUIET, 0.99), (s, Duration::ZERO, 0.9)])
        {
            for seed in SEEDS {
                let world = World { asks, polls, poll_ns: poll_s * S, ..World::default() };
                let mut run = Run::beginning(world, seed, quiet);
                for least in [first, 0.99] {
                    let seen = run.run(Duration::from_secs(20));
                    assert!(
                        seen.share() > least,
                        "{asks} beside {polls} of {poll_s} s, seed {seed}: {seen:?}"
                    );
                }
            }
        }
    }
}

/// What was usual for long is none of who counts from now on.
#[test]
fn long_polls_that_begin_before_a_server_that_was_fast_for_long_are_let_in() {
    for seed in SEEDS {
        for poll_s in [2, 10] {
            let world = World { asks: 100.0, poll_ns: poll_s * S, ..World::default() };
            let mut run = Run::beginning(world, seed, QUIET);
            run.run(Duration::from_secs(150));
            run.world.polls = 300.0;
            let before = run.stats.admitted;
            let mut least: f64 = 1.0;
            for _ in 0..4 {
                least = least.min(run.run(Duration::from_secs(15)).share());
            }
            let let_in = (run.stats.admitted - before) as f64 / (60.0 * 400.0);
            println!("{poll_s} s, seed {seed}: {least}, {let_in} let in");
            assert!(least > 0.97 && let_in > 0.95, "{poll_s} s, seed {seed}: {least}, {let_in} let in");
        }
    }
}

/// Who remembers that a second was usual for few takes a queue of a second for slow work, and in a
/// crowd nobody comes while few wait. Until 28 November that went on for minutes.
#[test]
fn backend_that_recovers_in_the_middle_of_a_crowd_leaves_no_queue() {
    for seed in SEEDS {
        let mut run = Run::beginning(slow(S, true, 0.8), seed, QUIET);
        run.run(Duration::from_secs(30));
        (run.world.work_ns, run.world.workers, run.world.is_pool) = (MS, 1, false);
        run.world.asks = 2_000.0;
        run.run(Duration::from_secs(120));
        let seen = run.run(WINDOW);
        run.say(&format!("two minutes later, seed {seed}"), seen);
        assert!(seen.answered as f64 > 0.95 * 1_000.0 * WINDOW.as_secs_f64(), "{seen:?}");
        assert!(seen.mean_ms() < 50.0, "{seen:?}");
    }
}

/// As a stall of a moment each minute.
#[test]
fn limit_of_slow_answers_is_taken_back_though_some_are_slow_now_and_then() {
    let mut run = Run::beginning(slow(S, true, 0.5), 1, QUIET);
    run.run(Duration::from_secs(20));
    (run.world.work_ns, run.world.workers, run.world.is_exponential) = (MS, 8, false);
    for _ in 0..4 {
        run.run(Duration::from_secs(29));
        run.world.work_ns = 200 * MS;
        run.run(Duration::from_millis(100));
        run.world.work_ns = MS;
    }
    assert!(run.pacer.pace().limit < 100, "{:?}", run.pacer.pace());
}

#[test]
fn fewer_long_polls_than_fast_requests_do_not_raise_the_limit() {
    for (polls, poll_s) in [(150.0, 2), (900.0, 2), (900.0, 30)] {
        let world = World { asks: 1_000.0, polls, poll_ns: poll_s * S, ..World::default() };
        let mut run = Run::beginning(world, 1, QUIET);
        for _ in 0..30 {
            run.run(Duration::from_secs(1));
            assert!(run.pacer.pace().limit <= 64, "beside {polls} of {poll_s} s: {:?}", run.pacer.pace());
        }
    }
}

/// A server that waits for another one has many who wait, and once it does not no more of them may
/// than before: they would be a queue.
#[test]
fn many_may_wait_for_slow_answers_and_not_for_fast_ones_a_minute_later() {
    for seed in SEEDS {
        let mut run = Run::beginning(slow(S, true, 0.5), seed, QUIET);
        run.run(Duration::from_secs(20));
        (run.world.work_ns, run.world.workers) = (MS, 8);
        run.run(Duration::from_secs(70));
        assert!(run.pacer.pace().limit < 100, "{:?}", run.pacer.pace());
        run.world.asks = 16_000.0;
        run.run(SETTLE);
        let seen = run.run(WINDOW);
        run.say("fast again", seen);
        assert!(seen.answered as f64 > 0.95 * 8_000.0 * WINDOW.as_secs_f64(), "{seen:?}");
        // For some seconds it is a burst.
        assert!(seen.mean_ms() < 50.0, "{seen:?}");
    }
}
