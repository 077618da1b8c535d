//! Random servers before random crowds, in virtual time.

use std::collections::HashMap;
use std::num::NonZeroU32;

use advise::{Look, Record, SOON};
use crowd::{Abort, Asks, Cause, Clients, Crowd, Manners, Shard, Stacks, Window};
use kernel::ListenerStats;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use results::{CrowdSummary, GeneratorHealth};
use sim::{Accept, Config, Profile, Serving, Setup, World};
use tcp::Close;
use traffic::{Arrivals, Kind, Piece, Schedule, Shape, Table, Workload};
use units::Nanos;
use verdict::Policy;

/// For how long is looked at.
pub const FOR: Nanos = Nanos::from_secs(40);
const EVERY: Nanos = Nanos::from_millis(50);

/// A server and a crowd.
#[derive(Debug, Clone)]
pub struct Case {
    pub seed: u64,
    pub accept: Accept,
    pub cost_us: f64,
    pub backend_ms: f64,
    /// Whether the time of a request depends on what it asks for.
    pub varies: bool,
    pub backlog: u32,
    /// Each way.
    pub delay_us: f64,
    /// Of what the server can do, over time.
    pub loads: Vec<Piece>,
    pub timeout_s: f64,
    pub abort: Option<Abort>,
    pub stacks: &'static str,
}

/// What becomes of the crowd.
pub struct Outcome {
    pub record: Record,
    crowd: CrowdSummary,
    guard: ListenerStats,
    /// Users that came, and those that had an answer within a second of coming.
    came: usize,
    soon: usize,
}

impl Case {
    /// The server and the crowd of this seed.
    pub fn random(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut unit = || random.random::<f64>();
        let mut between = |least: f64, most: f64| least * (most / least).powf(unit());
        let cost_us = between(200.0, 20_000.0);
        let backend_ms = between(5.0, 500.0);
        let delay_us = between(20.0, 50_000.0);
        let processes = NonZeroU32::new(between(4.0, 256.0) as u32).expect("four or more");
        let timeout_s = between(3.0, 30.0);
        let patience_s = between(2.0, 8.0);
        let kind = pick(&mut unit, 5);
        let pool = Accept::Each(processes);
        let accept = [Accept::Inf, Accept::Inf, Accept::One, pool, pool][kind];
        let (cost_us, backend_ms) = if kind == 4 { (0.1 * cost_us, backend_ms) } else { (cost_us, 0.0) };
        let backlog = [64, 128, 511, 1024, 4096][pick(&mut unit, 5)];
        let varies = pick(&mut unit, 3) == 0;
        let reloads = pick(&mut unit, 3) as u8;
        let abort =
            (pick(&mut unit, 4) == 0).then(|| Abort { after: Nanos::from_secs_f64(patience_s), reloads });
        let stacks = ["linux", "linux:0.6,windows-10:0.4"][pick(&mut unit, 2)];
        let mut load = || if unit() < 0.4 { 0.2 + 0.7 * unit() } else { 0.9 * (4.0_f64 / 0.9).powf(unit()) };
        let (one, other) = (load(), load());
        let loads = match pick(&mut unit, 3) {
            0 => vec![Piece::level(FOR, one)],
            // A ramp, and back.
            1 => vec![
                Piece { span: Nanos(FOR.0 / 2), from: one.min(0.5), to: other },
                Piece { span: Nanos(FOR.0 / 2), from: other, to: one.min(0.5) },
            ],
            // Crowds.
            _ => {
                let (calm_s, crowd_s) = (2.0 + 13.0 * unit(), 0.3 * 50.0_f64.powf(unit()));
                vec![
                    Piece::level(Nanos::from_secs_f64(calm_s), one.min(0.8)),
                    Piece::level(Nanos::from_secs_f64(crowd_s), other),
                ]
            }
        };
        Self { seed, accept, cost_us, backend_ms, varies, backlog, delay_us, loads, timeout_s, abort, stacks }
    }

    /// What becomes of it without a guard, where it is only looked at, or with one.
    pub fn run(&self, guarded: bool) -> Outcome {
        let mut crowd = self.crowd();
        crowd.keep_ended();
        let mut world = World::new(self.setup(guarded), crowd);
        let (mut came, mut soon) = (HashMap::new(), 0);
        let mut record = Record::default();
        let mut now = Nanos::ZERO;
        while now < FOR {
            record.add(look(&world, now));
            now += EVERY;
            world.run_until(now);
            for ended in world.take_ended() {
                let came_at = *came.entry(ended.user).or_insert(ended.intended_start);
                soon += usize::from(ended.cause == Cause::Ok && ended.ended.since(came_at) <= SOON);
            }
        }
        record.add(look(&world, now));
        world.stop(now);
        came.extend(world.take_ended().map(|ended| (ended.user, ended.intended_start)));
        let crowd = world.crowd().tally().summary(now, GeneratorHealth::default());
        Outcome { record, crowd, guard: world.server().guard.listener, came: came.len(), soon }
    }

    /// Whether users load the page again.
    pub fn reloads(&self) -> bool {
        self.abort.is_some_and(|abort| abort.reloads > 0)
    }

    fn setup(&self, guarded: bool) -> Setup {
        let mut profile = Profile::shipped("round-numbers").expect("it is shipped");
        profile.crowd.delay = self.delay_us;
        let (fixed_us, kib_us) = if self.varies { (0.3, 0.7 / MEAN_KIB) } else { (1.0, 0.0) };
        profile.server.kib = self.cost_us * kib_us;
        let cpu_time = Nanos::from_secs_f64(1e-6 * self.cost_us * fixed_us);
        Setup {
            kernel: Config {
                policy: Policy::UNSERVED,
                dry_run: !guarded,
                backlog: self.backlog,
                seed: self.seed,
                ..Config::default()
            },
            service: Serving {
                accept: self.accept,
                cpu_time,
                backend: Nanos::from_secs_f64(1e-3 * self.backend_ms),
                reply_bytes: 512,
                descriptors: None,
                closes: None,
            },
            profile,
        }
    }

    fn crowd(&self) -> Crowd {
        let manners = Manners {
            timeout: Nanos::from_secs_f64(self.timeout_s),
            abort: self.abort,
            reuse: 1,
            groups: 1,
            sessions: None,
            shard: Shard::WHOLE,
            close: Close::Fin,
            window: Window { start: Nanos::ZERO, end: FOR },
            stacks: self.stacks.parse::<Stacks>().expect("names of stacks"),
            clock: 0,
            seed: self.seed,
            first_endpoint: 0,
        };
        let workload = if self.varies { sizes() } else { Workload::default() };
        let asks = Asks::new(workload, self.seed, "server", "/");
        let clients = Clients::new("10.77.0.0/16".parse().expect("a network"));
        let shape = Shape::new(self.loads.clone()).expect("a load");
        let schedule = Schedule::shaped(Arrivals::Poisson, self.can_per_s(), shape, self.seed);
        Crowd::new(manners, asks, clients, schedule, 0)
    }

    /// Connections that the server can answer in a second, more or less.
    fn can_per_s(&self) -> f64 {
        let cpu_per_s = 1e6 / (self.cost_us + 45.0);
        match self.accept {
            Accept::Each(processes) if self.backend_ms > 0.0 => {
                let stay_s = 1e-3 * self.backend_ms + 1.0 / cpu_per_s;
                cpu_per_s.min(f64::from(processes.get()) / stay_s)
            }
            _ => cpu_per_s,
        }
    }
}

impl Outcome {
    /// Connections that were begun.
    pub fn clients(&self) -> u64 {
        self.crowd.offered
    }

    /// Of these, those that ended with a refusal. A client may try again, and succeed.
    pub fn refused(&self) -> u64 {
        self.crowd.refused + self.crowd.reset
    }

    /// Refusals that a dry run has counted.
    pub fn counted_by_dry_run(&self) -> u64 {
        self.guard.seen - self.guard.admitted + self.guard.acks_reset
    }

    /// Share of the users that had an answer within a second.
    pub fn soon(&self) -> f64 {
        self.soon as f64 / self.came.max(1) as f64
    }
}

const MEAN_KIB: f64 = 4.0;

fn sizes() -> Workload {
    let table = Table {
        kind: Kind::ParetoIi,
        requests_per_connection: 1.0,
        directories: None,
        least: Some(100),
        mean: Some(1024 * MEAN_KIB as u64),
        median: None,
        p90: None,
        most: Some(64 << 10),
        shape: Some(2.2),
    };
    Workload::new(&table).expect("a table")
}

fn pick(unit: &mut impl FnMut() -> f64, of: usize) -> usize {
    (unit() * of as f64) as usize
}

fn look(world: &World, now: Nanos) -> Look {
    let service = *world.service().expect("its policy asks");
    // The clock of the service begins at a second.
    Look { at: now + Nanos::from_secs(1), load: world.load(), stats: world.server().guard.listener, service }
}
