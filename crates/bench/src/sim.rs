//! How fast the simulator is.

use std::hint::black_box;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use crowd::{Asks, Clients, Crowd, Manners, Shard, Stacks, Window};
use load::{Arrivals, Close, Workload};
use sim::dumbbell::{Dumbbell, DumbbellRun};
use sim::{Accept, Config, EventQueue, Profile, Serving, Setup, World};
use traffic::Schedule;
use units::Nanos;
use verdict::Policy;

use crate::{Figure, REPETITIONS, clients, go_on};

/// A server that answers some 25,000 connections a second, and a crowd of twice as many.
const PROFILE: &str = "round-numbers";
const RATE: f64 = 50_000.0;
const WINDOW: Nanos = Nanos::from_secs(10);
/// Events that wait, and how many are taken out and put back to see what one costs.
const FEW: u64 = 10_000;
const MANY: u64 = 10_000_000;
const HELD: u64 = 3_000_000;
/// When an event may happen, from when it is put there.
const SPREAD_NS: u64 = 10_000_000_000;

/// Clients that are there at once, and how many come in a second.
const CLIENTS: u64 = 10_000_000;
const CLIENTS_PER_S: f64 = 1e6;
const GIB: f64 = (1 << 30) as f64;

/// All figures.
pub(crate) fn figures(stop: &AtomicBool) -> Result<Vec<Figure>> {
    // First, as long as this process is small.
    let clients = [(clients_10m_gib(stop)?, CLIENTS as f64 * Crowd::BYTES_PER_CONNECTION as f64 / GIB)];
    let mut overloads = Vec::new();
    let mut costs = Vec::new();
    let mut bulks = Vec::new();
    for _ in 0..REPETITIONS {
        go_on(stop)?;
        let few = event_ns(FEW);
        overloads.push((overload_per_s()?, 1e9 / few));
        costs.push((event_ns(MANY), few));
        let (took_s, happened) = bulk100()?;
        bulks.push((took_s, happened as f64 * few / 1e9));
    }
    let queue = "the event queue alone, with 10,000 events waiting, same core";
    Ok(vec![
        Figure::new("sim.events_per_second", "events/s", queue, &overloads),
        Figure::new("sim.event_cost_growth", "ns with 10 million waiting", "ns with 10,000 waiting", &costs),
        Figure::new("sim.bulk100_seconds", "s", "as many events in the event queue alone, same core", &bulks),
        Figure::new("sim.clients_10m_gib", "GiB", "the clients' connections alone", &clients),
    ])
}

/// Events per second of a stock server before a crowd of one-packet requests at twice what it can
/// do.
fn overload_per_s() -> Result<f64> {
    let mut world = overload(RATE, Nanos::from_secs(10))?;
    let start = Instant::now();
    world.run_until(WINDOW);
    Ok(black_box(&world).happened() as f64 / start.elapsed().as_secs_f64())
}

/// A stock server before a crowd of so many one-packet requests a second, whose clients wait so
/// long.
fn overload(rate: f64, timeout: Nanos) -> Result<World> {
    let manners = Manners {
        timeout,
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        window: Window { start: Nanos::ZERO, end: Nanos::MAX },
        stacks: Stacks::default(),
        clock: 0,
        seed: 1,
        first_endpoint: 0,
    };
    let asks = Asks::new(Workload::default(), 1, "server", "/");
    let schedule = Schedule::new(Arrivals::Poisson, rate, 1);
    let crowd = Crowd::new(manners, asks, Clients::new(clients().into()), schedule, 0);
    let setup = Setup {
        kernel: Config { policy: Policy::DEFAULT, ..Config::default() },
        service: Serving {
            accept: Accept::Inf,
            cpu_time: Nanos::ZERO,
            backend: Nanos::ZERO,
            reply_bytes: 512,
            descriptors: None,
            closes: None,
        },
        profile: Profile::shipped(PROFILE).context("the bench's profile")?,
    };
    Ok(World::new(setup, crowd))
}

/// Most memory that this process has had, GiB, when so many clients are there at once and send
/// their SYNs again and again, because the server can answer one in forty.
fn clients_10m_gib(stop: &AtomicBool) -> Result<f64> {
    // What it had before does not count (Linux 6.18 Documentation/filesystems/proc.rst).
    std::fs::write("/proc/self/clear_refs", "5").context("begin a new VmHWM by /proc/self/clear_refs")?;
    let mut world = overload(CLIENTS_PER_S, Nanos::from_secs(600))?;
    let mut now = Nanos::ZERO;
    while (world.crowd().live() as u64) < CLIENTS {
        go_on(stop)?;
        now += Nanos::from_millis(100);
        world.run_until(now);
        ensure!(
            now < Nanos::from_secs(60),
            "{} clients are there at once after a minute",
            world.crowd().live()
        );
    }
    black_box(&world);
    Ok(crate::status_kib("VmHWM")? * 1024.0 / GIB)
}

/// Seconds that 100 bulk flows over 10 Mbit/s take for 100 s of virtual time, and how many events
/// those are.
fn bulk100() -> Result<(f64, u64)> {
    let queue = "red:wait".parse::<aqm::Config>().context("the bench's queue discipline")?;
    let mut run = DumbbellRun::new(Dumbbell::hundred(queue, 1)).map_err(anyhow::Error::msg)?;
    let start = Instant::now();
    run.run_until(Nanos::from_secs(100));
    Ok((start.elapsed().as_secs_f64(), black_box(&run).happened()))
}

/// What it costs to take out an event and to put in another, with so many waiting.
fn event_ns(waiting: u64) -> f64 {
    let mut random = 1u64;
    // A linear congruential generator (Knuth's MMIX) costs next to nothing.
    let mut gap = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Nanos((random >> 30) % SPREAD_NS)
    };
    let mut queue = EventQueue::new();
    for event in 0..waiting {
        queue.push(gap(), event);
    }
    let start = Instant::now();
    for _ in 0..HELD {
        let (now, event) = queue.pop_until(Nanos::MAX).expect("as many as before");
        queue.push(now + gap(), event);
    }
    let took = start.elapsed();
    black_box(&queue);
    took.as_nanos() as f64 / HELD as f64
}
