//! The clients that came, once more, before a guard: its own decision, its own agent, and a server
//! as fast as the one that was measured. In virtual time.
//!
//! Simpler than `crates/sim`, which needs to know what all work costs. Here a request takes the
//! server as long as it took, and clients have no patience to lose.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use kernel::ListenerStats;
use pacer::{Demand, LOOK_EVERY, Look, Pacer, Service, Wait};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Nanos;
use verdict::{Attempt, ListenerLoad, Policy, Verdict};

use crate::SOON;
use crate::record::{Bin, Record};
use crate::server::Server;

/// The service's clock must not show 0, which is never.
const START: Nanos = Nanos::from_secs(1);
/// A client sends so often again what the kernel dropped: after a second, two more, four more.
const REPEATS: u8 = 5;

/// What becomes of the clients.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Fate {
    pub(crate) refused: u64,
    pub(crate) answered: u64,
    /// Of these, within [`SOON`] of their first SYN.
    pub(crate) soon: u64,
    /// From their first SYN, together.
    pub(crate) waited: Nanos,
}

/// Lets the clients of a record come before a guard with this policy. The same record gives the
/// same fate.
pub(crate) fn replay(record: &Record, server: &Server, policy: Policy) -> Fate {
    let mut replay = Replay::new(record, server, policy);
    let mut end = START;
    for bin in &record.bins {
        end += bin.span;
        replay.begin(bin);
        replay.run_until(end);
    }
    replay.fate
}

/// A client, by its first SYN, and how often it has sent what it sends now before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Client {
    first: Nanos,
    repeats: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Syn(Client),
    /// The end of the handshake, with the request.
    Request(Client),
    /// A worker is done with the connection of this number.
    Done(usize),
    /// The agent looks.
    Look,
}

#[derive(Debug, Clone, Copy)]
struct Connection {
    first: Nanos,
    /// If it is followed.
    wait: Option<Wait>,
}

struct Replay {
    policy: Policy,
    workers: u32,
    work: Nanos,
    accepts_all: bool,
    accept_limit: u32,
    round_trip: Nanos,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    scheduled: u64,
    random: Pcg64Mcg,
    service: Box<Service>,
    pacer: Pacer,
    stats: ListenerStats,
    connections: Vec<Connection>,
    /// Numbers of connections that are over.
    free: Vec<usize>,
    accept_queue: VecDeque<usize>,
    /// Accepted, and no worker has them.
    inside: VecDeque<usize>,
    busy: u32,
    fate: Fate,
}

impl Replay {
    fn new(record: &Record, server: &Server, policy: Policy) -> Self {
        // Without a queue it was never seen how many it can work on.
        let (workers, work) = match server.per_s {
            Some(per_s) => (server.workers, Nanos::from_secs_f64(f64::from(server.workers) / per_s)),
            None => (u32::MAX, server.answer),
        };
        let service = Box::new(Service::idle(0, START));
        let pacer = Pacer::new(Look { at: START, counts: *service, demand: Demand::default() });
        let mut replay = Self {
            policy,
            workers,
            work,
            accepts_all: server.accepts_all,
            accept_limit: record.accept_limit,
            round_trip: server.round_trip,
            now: START,
            events: BinaryHeap::new(),
            scheduled: 0,
            random: Pcg64Mcg::seed_from_u64(1),
            service,
            pacer,
            stats: ListenerStats::default(),
            connections: Vec::new(),
            free: Vec::new(),
            accept_queue: VecDeque::new(),
            inside: VecDeque::new(),
            busy: 0,
            fate: Fate::default(),
        };
        replay.after(LOOK_EVERY, Event::Look);
        replay
    }

    /// Those that came in a bin come at any moment of it.
    fn begin(&mut self, bin: &Bin) {
        for _ in 0..bin.first {
            let gap = Nanos(self.random.random_range(0..bin.span.0.max(1)));
            self.after(gap, Event::Syn(Client { first: self.now + gap, repeats: 0 }));
        }
    }

    fn run_until(&mut self, end: Nanos) {
        while let Some(&Reverse((at, _, event))) = self.events.peek()
            && at < end
        {
            self.events.pop();
            self.now = at;
            match event {
                Event::Syn(client) => self.syn(client),
                Event::Request(client) => self.request(client),
                Event::Done(number) => self.answer(number),
                Event::Look => self.look(),
            }
            self.work();
        }
        self.now = end;
    }

    fn after(&mut self, time: Nanos, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((self.now + time, self.scheduled, event)));
    }

    fn load(&self) -> ListenerLoad {
        ListenerLoad {
            accept_qlen: self.accept_queue.len() as u32,
            accept_limit: self.accept_limit,
            syn_limit: self.accept_limit,
            ..ListenerLoad::default()
        }
    }

    fn syn(&mut self, client: Client) {
        let (load, now) = (self.load(), self.now);
        let attempt = Attempt { now, ..Attempt::default() };
        let pace = *self.pacer.pace();
        let (verdict, _) = self.policy.decide_syn(&load, &attempt, &mut self.service, &pace, now);
        self.stats.seen += 1;
        if verdict != Verdict::Admit {
            self.fate.refused += 1;
            return;
        }
        self.stats.admitted += 1;
        if load.is_accept_queue_full() {
            return self.repeat(client, Event::Syn); // the kernel drops it
        }
        self.after(self.round_trip, Event::Request(client));
    }

    fn repeat(&mut self, client: Client, event: fn(Client) -> Event) {
        if client.repeats < REPEATS {
            let timeout = Nanos(Nanos::from_secs(1).0 << client.repeats);
            self.after(timeout, event(Client { repeats: client.repeats + 1, ..client }));
        }
    }

    fn request(&mut self, client: Client) {
        let (load, pace, now) = (self.load(), *self.pacer.pace(), self.now);
        if load.is_accept_queue_full() {
            // Outside a crowd the kernel drops the end of the handshake, and else the guard resets.
            if !self.service.is_refusing(&pace, now) || self.policy.admit_ack(&load, false) == Verdict::Admit
            {
                return self.repeat(client, Event::Request);
            }
            self.stats.acks_full += 1;
            self.fate.refused += 1;
            return;
        }
        let handshake_us = u32::try_from(self.round_trip.as_micros()).unwrap_or(u32::MAX);
        let mut wait = self.service.begin(&pace, self.random.random(), handshake_us, now);
        if let Some(wait) = &mut wait {
            self.service.go_on(&pace, wait, now);
        }
        let connection = Connection { first: client.first, wait };
        let number = match self.free.pop() {
            Some(number) => {
                self.connections[number] = connection;
                number
            }
            None => {
                self.connections.push(connection);
                self.connections.len() - 1
            }
        };
        self.accept_queue.push_back(number);
    }

    /// Workers that have time take the next.
    fn work(&mut self) {
        while self.busy < self.workers
            && let Some(number) = self.take_next()
        {
            self.busy += 1;
            self.after(self.work, Event::Done(number));
        }
    }

    fn take_next(&mut self) -> Option<usize> {
        if self.inside.is_empty() && self.accepts_all {
            self.inside.append(&mut self.accept_queue);
        }
        self.inside.pop_front().or_else(|| self.accept_queue.pop_front())
    }

    fn answer(&mut self, number: usize) {
        let Connection { first, wait } = self.connections[number];
        self.busy -= 1;
        self.free.push(number);
        let waited = self.now.since(first);
        self.fate.answered += 1;
        self.fate.soon += u64::from(waited <= SOON);
        self.fate.waited += waited;
        if let Some(wait) = wait {
            self.service.end(self.pacer.pace(), &wait, true, self.now);
        }
    }

    fn look(&mut self) {
        let mut demand = Demand::default();
        demand.add(&self.policy, false, &self.stats);
        self.pacer.tick(Look { at: self.now, counts: *self.service, demand });
        self.after(LOOK_EVERY, Event::Look);
    }
}
