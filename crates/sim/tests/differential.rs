//! An ordinary day, many times over: whenever stock Linux answers everybody, the guard refuses
//! nobody.

use std::ops::RangeInclusive;

use crowd::{Asks, Clients, Crowd, Manners, Shard, Stacks, Totals, Window};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sim::{Accept, Config, Profile, Serving, Setup, World};
use tcp::Close;
use traffic::{Arrivals, Bursts, Schedule, Workload};
use units::Nanos;
use verdict::Policy;

/// CPU time of a connection besides the work, on the machine of round numbers.
const OVERHEAD: Nanos = Nanos::from_micros(40);
/// Clients start until then, or until there are as many as the last; each gives up after its
/// patience.
const LONGEST: Nanos = Nanos::from_secs(20);
const PATIENCE: Nanos = Nanos::from_secs(30);
const MOST_CLIENTS: f64 = 4_000.0;
/// Share of the days that ask for pulses of forged SYNs. A day that ends before the first has none.
const FORGED: f64 = 0.4;

#[derive(Debug, Clone, Copy)]
struct Case {
    seed: u64,
    backlog: u32,
    round_trip: Nanos,
    work: Nanos,
    /// Of what the server can do.
    load: f64,
    bursts: Option<Bursts>,
    /// Forged SYNs in a pulse, and the time between pulses.
    forged: Option<(u32, Nanos)>,
}

/// Log-uniform.
fn between(random: &mut Pcg64Mcg, low: f64, high: f64) -> f64 {
    (low.ln() + (high / low).ln() * random.random::<f64>()).exp()
}

impl Case {
    fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let ms = |ms: f64| Nanos((1e6 * ms) as u64);
        let backlog = between(&mut random, 5.0, 4_097.0) as u32;
        let is_near = random.random::<bool>();
        let round_trip = if is_near { Nanos::ZERO } else { ms(between(&mut random, 1.0, 300.0)) };
        let work = ms(between(&mut random, 0.01, 20.0));
        let load = 0.05 + 0.65 * random.random::<f64>();
        let on = ms(between(&mut random, 1.0, 50.0));
        let off = ms(between(&mut random, 100.0, 6_000.0));
        let bursts = if random.random::<bool>() { Bursts::new(on, off) } else { None };
        let (syns, every) =
            (between(&mut random, 10.0, 4_000.0) as u32, ms(between(&mut random, 500.0, 8_000.0)));
        let forged = if random.random::<f64>() < FORGED { Some((syns, every)) } else { None };
        Self { seed, backlog, round_trip, work, load, bursts, forged }
    }

    fn rate(&self) -> f64 {
        self.load / (self.work + OVERHEAD).as_secs_f64()
    }

    fn run(&self, policy: &str) -> Totals {
        let end = LONGEST.min(Nanos((1e9 * MOST_CLIENTS / self.rate()) as u64));
        let manners = Manners {
            timeout: PATIENCE,
            abort: None,
            reuse: 1,
            groups: 1,
            sessions: None,
            shard: Shard::WHOLE,
            close: Close::Fin,
            window: Window { start: Nanos::ZERO, end },
            stacks: Stacks::default(),
            clock: 0,
            seed: self.seed,
            first_endpoint: 0,
        };
        let asks = Asks::new(Workload::default(), self.seed, "server", "/");
        let network = Clients::new("10.77.0.0/16".parse().expect("a network"));
        let (poisson, rate) = (Arrivals::Poisson, self.rate());
        let schedule = match self.bursts.filter(|bursts| bursts.rate_in_burst(rate).is_some()) {
            Some(bursts) => Schedule::in_bursts(poisson, rate, bursts, self.seed),
            None => Schedule::new(poisson, rate, self.seed),
        };
        let policy: Policy = policy.parse().expect("a policy");
        let setup = Setup {
            kernel: Config { policy, backlog: self.backlog, ..Config::default() },
            service: Serving {
                accept: Accept::One,
                cpu_time: self.work,
                backend: Nanos::ZERO,
                reply_bytes: 512,
                descriptors: None,
                closes: None,
            },
            profile: Profile::shipped("round-numbers").expect("shipped"),
        };
        let mut world = World::new(setup, Crowd::new(manners, asks, network, schedule, 0));
        if self.round_trip > Nanos::ZERO {
            let path = format!("delay {}us", self.round_trip.0 / 2_000).parse().expect("a path");
            world.far_away(&path, &path, self.seed).expect("paths that can be");
        }
        if let Some((syns, every)) = self.forged {
            let mut at = every;
            while at < end {
                world.run_until(at);
                world.forge(syns, at);
                at += every;
            }
        }
        world.run_until(end + PATIENCE);
        world.crowd().tally().totals
    }
}

/// Of cases with these seeds, those in which stock answers everybody; and of them the seeds with
/// which the guard refuses somebody.
fn differences(seeds: RangeInclusive<u64>) -> (u64, Vec<u64>) {
    let (mut calm, mut harmed) = (0, Vec::new());
    for seed in seeds {
        let case = Case::new(seed);
        let stock = case.run("default");
        if stock.ok < stock.offered {
            continue;
        }
        calm += 1;
        let guarded = case.run("abort+rst-syn+unserved");
        if guarded.ok < guarded.offered {
            println!("{case:?}: {stock:?} {guarded:?}");
            harmed.push(seed);
        }
    }
    (calm, harmed)
}

#[test]
fn whenever_stock_answers_all_nobody_is_refused() {
    let (calm, harmed) = differences(1..=100);
    assert!(calm > 70, "{calm} of a hundred");
    assert!(harmed.is_empty(), "{harmed:?} of {calm}");
}

#[test]
#[ignore = "long"]
fn whenever_stock_answers_all_of_ten_thousand_days_nobody_is_refused() {
    let (calm, harmed) = differences(1..=10_000);
    println!("stock answers all on {calm} days");
    assert!(harmed.is_empty(), "{harmed:?} of {calm}");
}
