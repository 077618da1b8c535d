//! Hosts on two sides of a bottleneck, with TCP at both ends of every flow.
//!
//! ```text
//!   left 0 ---- access --.                                            .-- access ---- right 0
//!   left 1 ---- access --router -- queue, rate, delay --> <-- router --- access ---- right 1
//!   ...                                                                              ...
//! ```
//!
//! Flows are connections of `crates/tcp`, the handshake and congestion control included: bulk flows
//! that never end, and objects that users in sessions ask the servers on the left for. Each way of
//! the bottleneck is a path of `crates/path`, with a queue discipline of `crates/aqm`; a host's own
//! link has a rate, a delay and a queue without a limit. Everything follows from the seed.
//!
//! What it is not: no listen queues and no CPU (a [`crate::World`] has both), no ECN.

mod access;
mod bottleneck;
mod flow;
mod hundred;
mod network;
mod packet;
mod users;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use slotmap::SlotMap;
use tcp::{Algorithm, Control, Stack};
use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber};

pub use bottleneck::LinkCounts;
use flow::{Ends, Flow, News, Plan, Purpose};
use network::{Event, Network};
use packet::{FlowKey, Role, Route};
pub use users::{Asks, Population, User, Users};

/// What is simulated. Hosts are numbered from the left ones on.
#[derive(Debug, Clone)]
pub struct Dumbbell {
    /// The bottleneck for what goes to the right, which is what servers send: rate, delay, queue
    /// discipline.
    pub to_right: path::Config,
    /// The bottleneck for what goes to the left.
    pub to_left: path::Config,
    /// Of the hosts' links, bits/s.
    pub access_rate_bps: u64,
    /// Delay of each link on the left, each way: the base round trip of two hosts is twice the sum
    /// of their links' and the bottleneck's.
    pub left: Vec<Nanos>,
    /// The same on the right.
    pub right: Vec<Nanos>,
    /// The TCP of all hosts.
    pub stack: Stack,
    /// Its congestion control.
    pub algorithm: Algorithm,
    /// Flows that never end.
    pub bulk: Vec<Bulk>,
    /// Users on the right, of servers on the left.
    pub users: Option<Users>,
    /// SYNs from forged addresses that come to the left router, a flow each, per second; of
    /// exponential gaps.
    pub flood_per_s: f64,
    /// What happens before is not counted.
    pub warm_up: Nanos,
    /// Of all random numbers.
    pub seed: u64,
}

/// A flow that never ends. Its sender opens it, and opens another connection [`REOPEN_AFTER`] its
/// system has given one up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bulk {
    /// The host that sends.
    pub from: u32,
    /// The host that receives, on the other side.
    pub to: u32,
    /// When it opens the connection.
    pub starts: Nanos,
}

/// How long the sender of a bulk flow waits, once its connection was given up, before it opens
/// another.
pub const REOPEN_AFTER: Nanos = Nanos::from_secs(1);

/// One way of the bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the hosts on the left, the servers.
    ToRight = 0,
    /// Back.
    ToLeft = 1,
}

/// An object that was there in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Full packets of data, the last one rounded up.
    pub packets: u32,
    /// From the client's first SYN to the object's last byte.
    pub took: Nanos,
}

/// What happened in the measured window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outcome {
    /// The bottleneck to the right.
    pub to_right: LinkCounts,
    /// Back.
    pub to_left: LinkCounts,
    /// Bytes that each bulk flow's receiver got in order.
    pub bulk_bytes: Vec<u64>,
    /// Connections of bulk flows that their senders' systems gave up, from the start of the run on;
    /// each was followed by another.
    pub bulk_given_up: u64,
    /// Bytes that all receivers on the right got in order.
    pub bytes_to_right: u64,
    /// Objects that were asked for in the window and are there.
    pub completions: Vec<Completion>,
    /// Objects that were asked for in the window.
    pub asked: u64,
    /// Of these, those whose connection failed.
    pub failed: u64,
}

impl Dumbbell {
    fn check(&self) -> Result<(), String> {
        let hosts = (self.left.len() as u32, self.right.len() as u32);
        if hosts.0 == 0 || hosts.1 == 0 {
            return Err("a dumbbell has a host on each side at least".to_owned());
        }
        if self.access_rate_bps == 0 {
            return Err("a link of rate 0 sends nothing; 10mbit is usual".to_owned());
        }
        if !(0.0..=MOST_SYNS).contains(&self.flood_per_s) {
            return Err(format!("a flood of {} SYNs/s: from 0 to {MOST_SYNS}", self.flood_per_s));
        }
        let is_left = |host: u32| host < hosts.0;
        let is_there = |host: u32| host < hosts.0 + hosts.1;
        let wrong = self.bulk.iter().find(|bulk| {
            !is_there(bulk.from) || !is_there(bulk.to) || is_left(bulk.from) == is_left(bulk.to)
        });
        match wrong {
            Some(Bulk { from, to, .. }) => Err(format!(
                "a flow from host {from} to host {to}: they are not on two sides of {hosts:?} hosts"
            )),
            None => Ok(()),
        }
    }
}

/// As many as a link of 10 Gbit/s carries.
const MOST_SYNS: f64 = 15e6;

/// A run.
#[derive(Debug)]
pub struct DumbbellRun {
    stack: Stack,
    control: Control,
    warm_up: Nanos,
    bulk: Vec<Bulk>,
    flood_per_s: f64,
    network: Network,
    flows: SlotMap<FlowKey, Flow>,
    crowd: Option<Population>,
    random: Pcg64Mcg,
    left: u32,
    opened: u32,
    happened: u64,
    now: Nanos,
    outcome: Outcome,
}

impl DumbbellRun {
    /// Nothing has happened yet.
    ///
    /// # Errors
    ///
    /// One line: what cannot be, and why.
    pub fn new(setup: Dumbbell) -> Result<Self, String> {
        setup.check()?;
        let network = Network::new(&setup).map_err(|error| error.to_string())?;
        let left = setup.left.len() as u32;
        let hosts = (left, setup.right.len() as u32);
        let mut run = Self {
            stack: setup.stack,
            control: Control { algorithm: setup.algorithm, waits_for_more: false },
            warm_up: setup.warm_up,
            flood_per_s: setup.flood_per_s,
            network,
            flows: SlotMap::with_key(),
            crowd: setup.users.map(|users| Population::new(users, hosts, setup.seed)),
            random: Pcg64Mcg::seed_from_u64(setup.seed),
            left,
            opened: 0,
            happened: 0,
            now: Nanos::ZERO,
            outcome: Outcome { bulk_bytes: vec![0; setup.bulk.len()], ..Outcome::default() },
            bulk: setup.bulk,
        };
        let events = &mut run.network.events;
        for (number, bulk) in run.bulk.iter().enumerate() {
            events.push(bulk.starts, Event::Bulk(number as u32));
        }
        let starts = run.crowd.as_ref().map(Population::starts).unwrap_or_default();
        for (user, at) in starts.into_iter().enumerate() {
            events.push(at, Event::User(user as u32));
        }
        if run.flood_per_s > 0.0 {
            events.push(Nanos::ZERO, Event::Flood);
        }
        Ok(run)
    }

    /// Lets time pass until a moment.
    pub fn run_until(&mut self, until: Nanos) {
        while let Some((now, event)) = self.network.events.pop_until(until) {
            self.happened += 1;
            match event {
                Event::AtRouter(host) => self.network.arrive_at_router(host, now),
                Event::Bottleneck(way) => self.network.cross(way, now),
                Event::AtHost(host) => self.arrive_at_host(host, now),
                Event::Deadline(key, role) => self.on_deadline(key, role, now),
                Event::Bulk(number) => self.open_bulk(number, now),
                Event::User(user) => self.ask(user, now),
                Event::Flood => self.flood(now),
            }
        }
        self.now = until;
        if cfg!(debug_assertions) {
            self.network.check();
        }
    }

    /// Events so far.
    pub fn happened(&self) -> u64 {
        self.happened
    }

    /// What happened from the warm-up's end until now.
    pub fn outcome(&mut self) -> Outcome {
        Outcome {
            to_right: self.network.counts(Way::ToRight, self.now),
            to_left: self.network.counts(Way::ToLeft, self.now),
            ..self.outcome.clone()
        }
    }

    fn arrive_at_host(&mut self, host: u32, now: Nanos) {
        while let Some(parcel) = self.network.take_at_host(host, now) {
            let (key, to) = (parcel.route.flow, parcel.route.to);
            let Self { flows, network, stack, control, .. } = self;
            let Some(flow) = flows.get_mut(key) else {
                continue; // it is over, or the segment is of the flood
            };
            let ends = Ends { stack, control: *control };
            let send = &mut |route: Route, segment: &Segment<'_>| network.send(route, segment, now);
            let news = flow.receive((key, to), &parcel.segment(), ends, now, send);
            self.after(key, to, news, now);
        }
    }

    fn on_deadline(&mut self, key: FlowKey, role: Role, now: Nanos) {
        let Self { flows, network, stack, control, .. } = self;
        let Some(flow) = flows.get_mut(key) else {
            return;
        };
        if flow.woken_at[role as usize] != now {
            return; // an earlier one has come in between
        }
        flow.woken_at[role as usize] = Nanos::MAX;
        let mut news = News::default();
        if flow.deadline(role) <= now {
            let ends = Ends { stack, control: *control };
            let send = &mut |route: Route, segment: &Segment<'_>| network.send(route, segment, now);
            news = flow.on_deadline((key, role), ends, now, send);
        }
        self.after(key, role, news, now);
    }

    /// An end of a flow has done something: when it is to be looked at next, and who is told.
    fn after(&mut self, key: FlowKey, role: Role, news: News, now: Nanos) {
        let Self { flows, network, outcome, stack, left, .. } = self;
        let flow = &mut flows[key];
        let deadline = flow.deadline(role);
        if deadline < flow.woken_at[role as usize] {
            flow.woken_at[role as usize] = deadline;
            network.events.push(deadline, Event::Deadline(key, role));
        }
        let (plan, started) = (flow.plan, flow.started);
        if now >= self.warm_up {
            let [opener, acceptor] = news.heard;
            if let Purpose::Bulk(number) = plan.purpose {
                outcome.bulk_bytes[number as usize] += acceptor;
            }
            outcome.bytes_to_right += if plan.opener < *left { acceptor } else { opener };
        }
        if flow.is_over() {
            flows.remove(key);
        }
        let user = match plan.purpose {
            Purpose::Object { user } => user,
            Purpose::Bulk(number) if news.has_failed => {
                outcome.bulk_given_up += 1;
                network.events.push(now + REOPEN_AFTER, Event::Bulk(number));
                return;
            }
            Purpose::Bulk(_) => return,
        };
        if !(news.is_complete || news.has_failed) {
            return;
        }
        if started >= self.warm_up {
            if news.is_complete {
                let packets = plan.reply.div_ceil(stack.mss.into()) as u32;
                outcome.completions.push(Completion { packets, took: now - started });
            } else {
                outcome.failed += 1;
            }
        }
        if let Some(think) = self.crowd.as_mut().and_then(|crowd| crowd.got(user)) {
            self.network.events.push(now + think, Event::User(user));
        }
    }

    fn open_bulk(&mut self, number: u32, now: Nanos) {
        let Bulk { from, to, .. } = self.bulk[number as usize];
        let purpose = Purpose::Bulk(number);
        self.open(Plan { purpose, opener: from, acceptor: to, ask: u64::MAX, reply: 0 }, now);
    }

    /// A user asks for an object.
    fn ask(&mut self, user: u32, now: Nanos) {
        let Some(crowd) = &mut self.crowd else {
            return;
        };
        let asks = crowd.ask(user);
        let whose = *crowd.get(user);
        let purpose = Purpose::Object { user };
        let ask = crowd.request_bytes();
        let plan = Plan { purpose, opener: whose.client, acceptor: whose.server, ask, reply: asks.bytes };
        self.outcome.asked += u64::from(now >= self.warm_up);
        if let Some(after) = asks.next {
            self.network.events.push(now + after, Event::User(user));
        }
        self.open(plan, now);
    }

    fn open(&mut self, plan: Plan, now: Nanos) {
        self.opened = self.opened.wrapping_add(1);
        let hash = hash(self.opened);
        let Self { flows, network, stack, control, .. } = self;
        let ends = Ends { stack, control: *control };
        let send = &mut |route: Route, segment: &Segment<'_>| network.send(route, segment, now);
        let key = flows.insert_with_key(|key| Flow::open(plan, (key, hash), ends, now, send));
        self.after(key, Role::Opener, News::default(), now);
    }

    /// The next SYN of the flood comes.
    fn flood(&mut self, now: Nanos) {
        let options = Options::mss(self.stack.mss);
        let syn = Segment {
            seq: SeqNumber(self.random.random()),
            ack: SeqNumber(0),
            flags: Flags::SYN,
            window: self.stack.window,
            options,
            payload: &[],
        };
        let route = Route::of_flood(self.left, self.random.random());
        self.network.inject(route, &syn, now);
        let gap = -(1.0 - self.random.random::<f64>()).ln() / self.flood_per_s;
        self.network.events.push(now + Nanos::from_secs_f64(gap), Event::Flood);
    }
}

/// Evenly spread over all 32 bits (the finalizer of MurmurHash3).
fn hash(number: u32) -> u32 {
    let mut hash = number;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}
