//! How near orders of the uplink come to the optimum.
//!
//! In virtual time: the figures are the same on every machine.

use std::num::NonZeroU32;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use aqm::Rate;
use aqm::fluid::{Arrival, Order, ends, mean_response_s};
use crowd::{Asks, Clients, Crowd, Manners, Shard, Stacks, Window};
use kernel::{Cutoffs, SizeSource};
use load::{Arrivals, Close};
use sim::{Accept, Closes, Config, Device, Profile, Sending, Serving, Setup, UplinkConfig, World};
use tcp::{Algorithm, Control};
use traffic::{Schedule, Shape, Workload};
use units::Nanos;
use verdict::Policy;

use crate::{Figure, REPETITIONS, clients, go_on};

const PROFILE: &str = "round-numbers";
const RATE_BPS: u64 = 10_000_000;
/// Five cycles of W1 and a half: who comes in the five is answered in the rest, whose load is low.
const CAME: Nanos = Nanos::from_secs(250);
const END: Nanos = Nanos::from_secs(275);
/// As `tidegate uplink` sets them for these sizes: two thirds below the first, 0.1% above the last.
const CUTOFFS: [u64; 7] = [1978, 4746, 11_389, 27_330, 65_580, 157_364, 377_608];
/// Packets that a queue holds, which is more than ever wait.
const QUEUE: u32 = 1000;

/// All figures: `W1` of `[SH06]` with the World Cup's sizes, before today's Linux.
pub(crate) fn figures(stop: &AtomicBool) -> Result<Vec<Figure>> {
    let reference = "preemptive SRPT on a fluid link, same arrivals and bytes on the link";
    let figure = |(name, device, cutoffs): (_, Device, _)| {
        let pairs = (1..=REPETITIONS as u64).map(|seed| {
            go_on(stop)?;
            let arrivals = arrivals(seed)?;
            Ok((mean_ms(&device, cutoffs, in_time(&arrivals), seed)?, optimum_ms(&arrivals)?))
        });
        Ok(Figure::new(name, "ms", reference, &pairs.collect::<Result<Vec<_>>>()?))
    };
    orders()?.into_iter().map(figure).collect()
}

/// Each figure's queue, and its cutoffs if it has bands.
fn orders() -> Result<[(&'static str, Device, Cutoffs); 3]> {
    let of_each = format!("droptail:limit={QUEUE}").parse()?;
    let bands = Device::Prio { bands: CUTOFFS.len() as u8 + 1, of_each, floor: 0.0 };
    let cutoffs = Cutoffs::new(&CUTOFFS).context("the bench's cutoffs")?;
    Ok([
        ("uplink.to_optimum", Device::One("srpt".parse()?), Cutoffs::default()),
        ("uplink.bands_to_optimum", bands, cutoffs),
        ("uplink.cake_to_optimum", Device::One("cake".parse()?), Cutoffs::default()),
    ])
}

fn schedule(seed: u64) -> Result<Schedule> {
    let mean = workload()?.mean_bytes().context("the bench's sizes")?;
    let per_s = RATE_BPS as f64 / 8.0 / experiment::bytes_on_the_link(mean);
    Ok(Schedule::shaped(Arrivals::Poisson, per_s, Shape::of_paper(1).context("W1")?, seed))
}

fn workload() -> Result<Workload> {
    experiment::parse_workload("world-cup").map_err(anyhow::Error::msg)
}

/// All who come before the end, as a fluid link would have them.
fn arrivals(seed: u64) -> Result<Vec<Arrival>> {
    let (mut schedule, workload, mut arrivals) = (schedule(seed)?, workload()?, Vec::new());
    while schedule.intended_start() < END {
        let bytes = workload.object(seed, arrivals.len() as u64, 0).bytes().context("a size")?;
        let bytes = experiment::bytes_on_the_link(bytes as f64).round() as u64;
        arrivals.push(Arrival { at: schedule.intended_start(), bytes });
        schedule.advance();
    }
    Ok(arrivals)
}

/// How many of them come early enough.
fn in_time(arrivals: &[Arrival]) -> usize {
    arrivals.partition_point(|arrival| arrival.at < CAME)
}

/// The mean of those who come early enough.
fn optimum_ms(arrivals: &[Arrival]) -> Result<f64> {
    let rate = Rate::from_bits_per_s(RATE_BPS).context("a rate")?;
    let in_time = in_time(arrivals);
    let ends = ends(Order::Srpt, rate, arrivals);
    Ok(1e3 * mean_response_s(&arrivals[..in_time], &ends[..in_time]))
}

/// The same of the simulated server.
fn mean_ms(device: &Device, cutoffs: Cutoffs, came: usize, seed: u64) -> Result<f64> {
    let mut profile = Profile::shipped(PROFILE).context("the bench's profile")?;
    profile.server = profile.process_pool.context("costs of a process pool")?;
    let sending = Sending {
        control: Control { algorithm: Algorithm::NewReno, waits_for_more: true },
        send_buffer: 65_536,
        has_small_queue: true,
        cutoffs,
        source: SizeSource::Told,
        writes: None,
        overtakes: false,
        control_last: false,
    };
    let kernel = Config {
        backlog: 511,
        policy: Policy::DEFAULT,
        seed,
        sending: Some(sending),
        ..profile.system.config()
    };
    let service = Serving {
        accept: Accept::Each(NonZeroU32::new(350).context("processes")?),
        cpu_time: Nanos::ZERO,
        backend: Nanos::ZERO,
        reply_bytes: 512,
        descriptors: None,
        closes: Some(Closes { after: NonZeroU32::MIN, lingers: Nanos::from_secs(2) }),
    };
    let manners = Manners {
        timeout: Nanos::from_secs(3600),
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        window: Window { start: Nanos::ZERO, end: END },
        stacks: Stacks::default(),
        clock: 0,
        seed,
        first_endpoint: 0,
    };
    let asks = Asks::new(workload()?, seed, "server", "/");
    let mut crowd = Crowd::new(manners, asks, Clients::new(clients().into()), schedule(seed)?, 0);
    crowd.keep_ended();
    let mut world = World::new(Setup { kernel, service, profile }, crowd);
    let rate = Rate::from_bits_per_s(RATE_BPS).context("a rate")?;
    // A shaper is before the card, which has nothing to keep then.
    let link = UplinkConfig { rate, overhead_bytes: 0, device: device.clone(), card: 0 };
    world.narrow(link, seed).map_err(|why| anyhow::anyhow!("the bench's uplink: {why}"))?;
    world.run_until(END);
    let ms: Vec<f64> = world
        .take_ended()
        .filter(|ended| ended.intended_start < CAME)
        .map(|ended| ended.ended.since(ended.intended_start).as_millis_f64())
        .collect();
    ensure!(ms.len() == came, "{} of {came} responses have ended", ms.len());
    Ok(ms.iter().sum::<f64>() / ms.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_order_is_better_than_the_optimum_and_exact_srpt_is_nearest() {
        let arrivals = arrivals(1).expect("arrivals");
        let optimum_ms = optimum_ms(&arrivals).expect("a mean");
        let mean_ms = |(_, device, cutoffs): (_, Device, _)| {
            mean_ms(&device, cutoffs, in_time(&arrivals), 1).expect("a mean")
        };
        let [exact, bands, cake] = orders().expect("orders").map(mean_ms);
        assert!(
            optimum_ms < exact && exact < bands && bands < cake,
            "{optimum_ms}, {exact}, {bands}, {cake}"
        );
    }
}
