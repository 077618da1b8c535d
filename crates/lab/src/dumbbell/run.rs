//! Runs a dumbbell in virtual time: a world for each scenario, load, queue discipline and seed.

use std::time::Duration;

use anyhow::{Context, Result};
use claims::Planned;
use results::{BottleneckSummary, Cell, Header, Record};
use sim::dumbbell::{Bulk, DumbbellRun, LinkCounts, Outcome as Measured, Users};
use tcp::Stack;
use traffic::Sessions;
use units::Nanos;

use super::times::{distribution, means};
use super::{Dumbbell, NamedQueue, Scenario, Tcp};
use crate::environment;
use crate::grid::Event;
use crate::jobs::{Options, Steps, in_order};
use crate::outcome::{Outcome, Writer};

/// `[RF]` table I.
const BETWEEN_SESSIONS: Nanos = Nanos::from_millis(500);
/// Of a request: one packet, as a browser's is.
const REQUEST_BYTES: u64 = 300;
/// Bulk flows begin within this time.
const BULK_WITHIN: Nanos = Nanos::from_secs(5);

/// Virtual time after which a world may be stopped.
const STEP: Nanos = Nanos::from_secs(1);

/// One world.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job<'a> {
    pub(super) dumbbell: &'a Dumbbell,
    pub(super) scenario: &'a Scenario,
    pub(super) aqm: &'a NamedQueue,
    pub(super) load: f64,
    pub(super) repetition: u32,
}

/// Runs it; the results are the same on any number of threads. When it is stopped it ends with what was complete by then.
///
/// # Errors
///
/// When the results cannot be written.
pub fn run(
    dumbbell: &Dumbbell,
    options: &Options<'_>,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let mut writer = Writer::create(options.results, &dumbbell.name)?;
    let jobs = jobs(dumbbell);
    writer.begin(header(dumbbell), jobs.len())?;
    options.watch.grid_begins(jobs.len(), Nanos(length(dumbbell).0 * jobs.len() as u64));
    let measured = in_order(&jobs, options, cell, |cell, done| {
        on_event(&Event::Cell(&cell, done, jobs.len()));
        writer.write(Record::Cell(Box::new(cell)))
    });
    writer.conclude(measured, options.stop, |writer| answer(dumbbell, writer))
}

/// Of a world, with the warm-up.
fn length(dumbbell: &Dumbbell) -> Nanos {
    Nanos::from(dumbbell.grid.warmup + dumbbell.grid.duration)
}

/// All of them, in the order in which they are run.
pub(super) fn jobs(dumbbell: &Dumbbell) -> Vec<Job<'_>> {
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

/// `None` when it was stopped.
fn cell(job: &Job<'_>, steps: &Steps<'_>) -> Result<Option<Cell>> {
    let setup = setup(job)?;
    let initial_rto = setup.stack.initial_rto;
    let window = job.dumbbell.grid.duration;
    let mut run = DumbbellRun::new(setup).map_err(anyhow::Error::msg)?;
    let span = (Nanos::ZERO, length(job.dumbbell));
    let ended = steps.run(span, STEP, |now| {
        let before = run.happened();
        run.run_until(now);
        run.happened() - before
    });
    Ok(ended.map(|()| Cell {
        server: job.scenario.name.clone(),
        policy: job.aqm.name.clone(),
        load: job.load,
        repetition: job.repetition,
        link: Some(Box::new(summary(&run.outcome(), job.bulk(), window, initial_rto))),
        ..Cell::default()
    }))
}

impl Job<'_> {
    /// Bulk flows from servers.
    pub(super) fn bulk(&self) -> u32 {
        (f64::from(self.scenario.bulk) * self.load).round() as u32
    }

    /// Of all that happens by chance.
    pub(super) fn seed(&self) -> u64 {
        u64::from(self.repetition) + 1
    }

    pub(super) fn tcp(&self) -> &Tcp {
        self.scenario.tcp.as_ref().unwrap_or(&self.dumbbell.tcp)
    }

    pub(super) fn stack(&self) -> Result<Stack> {
        self.tcp().stack().with_context(|| format!("no stack is called {}", self.tcp().stack))
    }

    /// Bulk flows, those from servers first.
    pub(super) fn flows(&self) -> Vec<Bulk> {
        let hosts = self.dumbbell.network.hosts;
        // From one host to the next on its side, and to all of the other side in turn.
        let partner = |number: u32| (number / hosts + number) % hosts;
        let (bulk, reverse) = (self.bulk(), self.scenario.reverse);
        let starts = |number: u32| Nanos(BULK_WITHIN.0 * u64::from(number) / u64::from(bulk + reverse));
        let forward = (0..bulk).map(|n| Bulk { from: n % hosts, to: hosts + partner(n), starts: starts(n) });
        let back =
            (0..reverse).map(|n| Bulk { from: hosts + n % hosts, to: partner(n), starts: starts(bulk + n) });
        forward.chain(back).collect()
    }

    pub(super) fn users(&self) -> Result<Option<Users>> {
        if self.scenario.sessions == 0 {
            return Ok(None);
        }
        Ok(Some(Users {
            count: self.scenario.sessions,
            between_sessions: BETWEEN_SESSIONS,
            sessions: Sessions::redfavor(),
            sizes: self.scenario.workload.workload(),
            request_bytes: REQUEST_BYTES,
        }))
    }

    /// The bottleneck, from servers to clients and back.
    pub(super) fn paths(&self) -> [path::Config; 2] {
        let network = &self.dumbbell.network;
        let limit = aqm::Amount::Packets(network.back_limit);
        let back = aqm::Config::DropTail(aqm::DropTailConfig { limit });
        [self.aqm.queue.clone(), back].map(|queue| path::Config { queue, ..network.link.clone() })
    }
}

fn setup(job: &Job<'_>) -> Result<sim::dumbbell::Dumbbell> {
    let network = &job.dumbbell.network;
    let [to_right, to_left] = job.paths();
    let (left, right) = delays(job.dumbbell);
    Ok(sim::dumbbell::Dumbbell {
        to_right,
        to_left,
        access_rate_bps: u64::from(network.access_mbit) * 1_000_000,
        left,
        right,
        stack: job.stack()?,
        algorithm: job.tcp().algorithm.into(),
        bulk: job.flows(),
        users: job.users()?,
        flood_per_s: job.scenario.flood_per_s,
        warm_up: job.dumbbell.grid.warmup.into(),
        seed: job.seed(),
    })
}

/// What the bottleneck leaves of each round trip is the server's link's.
pub(super) fn delays(dumbbell: &Dumbbell) -> (Vec<Nanos>, Vec<Nanos>) {
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
        drops_by_number: Some(
            numbers.filter(|(_, count)| **count > 0).map(|(number, count)| (number, *count)).collect(),
        ),
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

/// Says of each claim what has been measured by now.
pub(super) fn answer(dumbbell: &Dumbbell, writer: &mut Writer) -> Result<()> {
    let as_cell = |record: &Record| match record {
        Record::Cell(cell) => Some((**cell).clone()),
        _ => None,
    };
    let cells: Vec<Cell> = writer.records().iter().filter_map(as_cell).collect();
    let planned = Planned { loads: &dumbbell.grid.loads, repetitions: dumbbell.grid.repetitions };
    for scenario in &dumbbell.scenarios {
        for claim in dumbbell.claims.iter().filter(|claim| claim.is_of(&scenario.name)) {
            let mut answer = claim.answer(&dumbbell.name, &scenario.name, planned, &cells);
            if dumbbell.is_quick {
                answer.marks.push("a quick run, which shows that all works and no more".to_owned());
            }
            writer.write(Record::Claim(Box::new(answer)))?;
        }
    }
    Ok(())
}
