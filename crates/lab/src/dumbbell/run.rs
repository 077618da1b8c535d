//! Runs a dumbbell in virtual time: a world for each scenario, load, queue discipline and seed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use results::{BottleneckSummary, Cell, Header, Record};
use sim::dumbbell::{Bulk, Completion, DumbbellRun, LinkCounts, Outcome as Measured, Users};
use traffic::Sessions;
use units::Nanos;

use super::{Dumbbell, NamedQueue, Scenario};
use crate::environment;
use crate::grid::Event;
use crate::outcome::{Outcome, Writer};
use crate::simulate::in_order;

/// `[RF]` table I.
const BETWEEN_SESSIONS: Nanos = Nanos::from_millis(500);
/// Of a request: one packet, as a browser's is.
const REQUEST_BYTES: u64 = 300;
/// Bulk flows begin within this time.
const BULK_WITHIN: Nanos = Nanos::from_secs(5);
/// Of the distribution of times, milliseconds: steps of the first, and how long those are told apart.
const STEP_MS: u32 = 50;
const STEPS: u32 = 400;

/// One world.
#[derive(Debug, Clone, Copy)]
struct Job<'a> {
    dumbbell: &'a Dumbbell,
    scenario: &'a Scenario,
    aqm: &'a NamedQueue,
    load: f64,
    repetition: u32,
}

/// Runs it on so many threads, with its results in a folder of its own in `results`; they are the same on any number. When `stop` is set it ends with what was complete by then.
///
/// # Errors
///
/// When the results cannot be written.
pub fn run(
    dumbbell: &Dumbbell,
    (results, threads): (&Path, usize),
    stop: &AtomicBool,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let mut writer = Writer::create(results, &dumbbell.name)?;
    writer.write(Record::Header(Box::new(header(dumbbell))))?;
    let jobs = jobs(dumbbell);
    let result = in_order(&jobs, threads, stop, cell, |cell, done| {
        on_event(&Event::Cell(&cell, done, jobs.len()));
        writer.write(Record::Cell(Box::new(cell)))
    });
    answer(dumbbell, &mut writer)?;
    let stopped = stop.load(Ordering::Relaxed);
    let folder = writer.folder().to_owned();
    let outcome = writer.finish(stopped)?;
    result.with_context(|| format!("incomplete results are in {}", folder.display()))?;
    Ok(outcome)
}

fn jobs(dumbbell: &Dumbbell) -> Vec<Job<'_>> {
    let mut jobs = Vec::new();
    for scenario in &dumbbell.scenarios {
        for &load in &dumbbell.grid.loads {
            for repetition in 0..dumbbell.grid.repetitions {
                let job = |aqm| Job { dumbbell, scenario, aqm, load, repetition };
                jobs.extend(dumbbell.aqms.iter().map(job));
            }
        }
    }
    jobs
}

fn header(dumbbell: &Dumbbell) -> Header {
    let deviations = vec![
        "In virtual time: no kernel ran. Both ends of every flow are the TCP of crates/tcp, with congestion control; hosts cost nothing.".to_owned(),
        "A client opens each connection and sends a request of one packet, and the server closes; in the paper's simulator the server sends unasked. Times are from the client's first SYN.".to_owned(),
    ];
    environment::of_dumbbell(dumbbell, deviations)
}

fn cell(job: &Job<'_>) -> Result<Cell> {
    let setup = setup(job)?;
    let initial_rto = setup.stack.initial_rto;
    let window = job.dumbbell.grid.duration;
    let mut run = DumbbellRun::new(setup).map_err(anyhow::Error::msg)?;
    run.run_until(Nanos::from(job.dumbbell.grid.warmup + window));
    Ok(Cell {
        server: job.scenario.name.clone(),
        policy: job.aqm.name.clone(),
        load: job.load,
        repetition: job.repetition,
        link: Some(Box::new(summary(&run.outcome(), bulk(job), window, initial_rto))),
        ..Cell::default()
    })
}

/// Bulk flows from servers.
fn bulk(job: &Job<'_>) -> u32 {
    (f64::from(job.scenario.bulk) * job.load).round() as u32
}

fn setup(job: &Job<'_>) -> Result<sim::dumbbell::Dumbbell> {
    let Job { dumbbell, scenario, aqm, repetition, .. } = *job;
    let (network, tcp) = (&dumbbell.network, scenario.tcp.as_ref().unwrap_or(&dumbbell.tcp));
    let seed = u64::from(repetition) + 1;
    let hosts = network.hosts;
    // From one host to the next on its side, and to all of the other side in turn.
    let partner = |number: u32| (number / hosts + number) % hosts;
    let bulk = bulk(job);
    let starts = |number: u32| Nanos(BULK_WITHIN.0 * u64::from(number) / u64::from(bulk + scenario.reverse));
    let forward = (0..bulk).map(|n| Bulk { from: n % hosts, to: hosts + partner(n), starts: starts(n) });
    let back = (0..scenario.reverse).map(|n| Bulk {
        from: hosts + n % hosts,
        to: partner(n),
        starts: starts(bulk + n),
    });
    let users = (scenario.sessions > 0).then(|| {
        let sizes = load::parse_workload(&scenario.workload.0).map_err(anyhow::Error::msg)?;
        Ok::<Users, anyhow::Error>(Users {
            count: scenario.sessions,
            between_sessions: BETWEEN_SESSIONS,
            sessions: Sessions::redfavor(),
            sizes,
            request_bytes: REQUEST_BYTES,
        })
    });
    let back_limit = aqm::Amount::Packets(network.back_limit);
    let back_queue = aqm::Config::DropTail(aqm::DropTailConfig { limit: back_limit });
    let (left, right) = delays(dumbbell);
    Ok(sim::dumbbell::Dumbbell {
        to_right: path::Config { queue: aqm.queue.clone(), ..network.link.clone() },
        to_left: path::Config { queue: back_queue, ..network.link.clone() },
        access_rate_bps: u64::from(network.access_mbit) * 1_000_000,
        left,
        right,
        stack: tcp.stack().with_context(|| format!("no stack is called {}", tcp.stack))?,
        algorithm: tcp.algorithm.into(),
        bulk: forward.chain(back).collect(),
        users: users.transpose()?,
        flood_per_s: scenario.flood_per_s,
        warm_up: dumbbell.grid.warmup.into(),
        seed,
    })
}

/// What the bottleneck leaves of each round trip is the server's link's.
fn delays(dumbbell: &Dumbbell) -> (Vec<Nanos>, Vec<Nanos>) {
    let network = &dumbbell.network;
    let [first, last] = network.round_trips.map(|round_trip| round_trip.as_secs_f64());
    let most = f64::from(network.hosts.saturating_sub(1).max(1));
    let of = |host: u32| {
        let round_trip = first + (last - first) * f64::from(host) / most;
        Nanos::from_secs_f64((round_trip / 2.0 - network.link.delay.as_secs_f64()).max(0.0))
    };
    ((0..network.hosts).map(of).collect(), vec![Nanos::ZERO; network.hosts as usize])
}

/// `bulk` flows are those from servers, which come first.
fn summary(measured: &Measured, bulk: u32, window: Duration, initial_rto: Nanos) -> BottleneckSummary {
    let LinkCounts { packets, drops, lost, opening, opening_dropped, flood, flood_dropped, .. } =
        measured.to_right;
    let per_s = |bytes: u64| bytes as f64 / window.as_secs_f64();
    let numbers = (0..).zip(&measured.to_right.dropped_numbers);
    BottleneckSummary {
        utilisation: measured.to_right.utilisation(),
        queue_pkts: measured.to_right.queue_pkts,
        packets,
        drops: drops.total(),
        drops_by_reason: drops
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| (reason.name().to_owned(), count))
            .collect(),
        lost,
        opening,
        opening_drops: opening_dropped,
        drops_by_number: numbers
            .filter(|(_, count)| **count > 0)
            .map(|(number, count)| (number, *count))
            .collect(),
        flood,
        flood_drops: flood_dropped,
        goodput_bytes_per_s: per_s(measured.bytes_to_right),
        bulk_bytes_per_s: measured.bulk_bytes.iter().take(bulk as usize).map(|bytes| per_s(*bytes)).collect(),
        objects: measured.asked,
        objects_done: measured.completions.len() as u64,
        done_by_ms: distribution(&measured.completions),
        mean_by_pkts: means(&measured.completions),
        initial_rto_ms: initial_rto.as_millis_f64(),
    }
}

/// Shares that had come by each step.
fn distribution(completions: &[Completion]) -> Vec<(f64, f64)> {
    let mut steps = vec![0u64; STEPS as usize];
    for done in completions {
        let step = (done.took.as_millis_f64() / f64::from(STEP_MS)) as usize;
        if let Some(count) = steps.get_mut(step) {
            *count += 1;
        }
    }
    let all = completions.len().max(1) as f64;
    let mut sum = 0;
    let share = |(step, count): (u32, u64)| {
        sum += count;
        (f64::from((step + 1) * STEP_MS), sum as f64 / all)
    };
    (0..).zip(steps).map(share).collect()
}

/// Mean times by size, in classes of about a quarter more each; 10 and 100 are the first of theirs.
fn means(completions: &[Completion]) -> Vec<(u32, u64, f64)> {
    let mut classes: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    for done in completions {
        let class = class(done.packets.max(1));
        let (count, sum) = classes.entry(class).or_default();
        *count += 1;
        *sum += done.took.as_millis_f64();
    }
    classes.into_iter().map(|(packets, (count, sum))| (packets, count, sum / count as f64)).collect()
}

/// The first size of a class: 1 to 9 each, then ten to the decade.
fn class(packets: u32) -> u32 {
    let tenth = (10.0 * f64::from(packets).log10() + 1e-9).floor();
    if packets < 10 { packets } else { 10f64.powf(tenth / 10.0).round() as u32 }
}

/// Says of each claim what has been measured by now.
fn answer(dumbbell: &Dumbbell, writer: &mut Writer) -> Result<()> {
    let as_cell = |record: &Record| match record {
        Record::Cell(cell) => Some((**cell).clone()),
        _ => None,
    };
    let cells: Vec<Cell> = writer.records().iter().filter_map(as_cell).collect();
    for scenario in &dumbbell.scenarios {
        for claim in dumbbell.claims.iter().filter(|claim| claim.is_of(&scenario.name)) {
            let mut answer = claim.answer(&dumbbell.name, &scenario.name, &dumbbell.grid.loads, &cells);
            if dumbbell.is_quick {
                answer.marks.push("a quick run, which shows that all works and no more".to_owned());
            }
            writer.write(Record::Claim(Box::new(answer)))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_classes_that_begin_at_ten_and_a_hundred() {
        assert_eq!(
            [1, 9, 10, 12, 13, 99, 100, 125, 126, 1000].map(class),
            [1, 9, 10, 10, 13, 79, 100, 100, 126, 1000]
        );
    }

    #[test]
    fn distribution_rises_to_the_share_that_had_come() {
        let done = |millis| Completion { packets: 1, took: Nanos::from_millis(millis) };
        let shares = distribution(&[done(10), done(49), done(50), done(100_000)]);
        assert_eq!(shares[..2], [(50.0, 0.5), (100.0, 0.75)]);
        assert_eq!(shares.last(), Some(&(20_000.0, 0.75)));
    }
}
