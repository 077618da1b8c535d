//! Runs a dumbbell in virtual time: a world for each scenario, load, queue discipline and seed.

use std::time::Duration;

use anyhow::Result;
use experiment::{Dumbbell, Event, Job, Outcome, Writer};
use results::{BottleneckSummary, Cell, Environment, Record};
use sim::dumbbell::{DumbbellRun, LinkCounts, Outcome as Measured};
use units::Nanos;

use crate::jobs::{Options, Steps, in_order};
use crate::simulated;

/// Virtual time after which a world may be stopped.
const STEP: Nanos = Nanos::from_secs(1);

/// Runs it; the results are the same on any number of threads. When it is stopped it ends with what
/// was complete by then.
///
/// # Errors
///
/// When the results cannot be written.
pub(crate) fn run(
    dumbbell: &Dumbbell,
    options: &Options<'_>,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let deviations = [
        "In virtual time: no kernel ran. Both ends of every flow are the TCP of crates/tcp, with congestion control; hosts cost nothing.",
        "A client opens each connection and sends a request of one packet, and the server closes; in the paper's simulator the server sends unasked. Times are from the client's first SYN.",
    ];
    let environment = Environment { cpu: "none".to_owned(), cpus: 0, ..simulated("") };
    let header = dumbbell.header(environment, deviations.map(str::to_owned).into());
    let jobs = dumbbell.jobs();
    let mut writer = Writer::begin(options.results, header, jobs.len())?;
    options.watch.grid_begins(jobs.len(), Nanos(jobs.iter().map(|job| length(job).0).sum()));
    let measured = in_order(&jobs, options, cell, |cell, done| {
        on_event(&Event::Cell(&cell, done, jobs.len()));
        writer.write(Record::Cell(Box::new(cell)))
    });
    writer.conclude(measured, options.stop, |writer| dumbbell.answer(writer))
}

/// Of a world, with the warm-up.
fn length(job: &Job<'_>) -> Nanos {
    Nanos::from(job.times.into_iter().sum::<Duration>())
}

/// `None` when it was stopped.
fn cell(job: &Job<'_>, steps: &Steps<'_>) -> Result<Option<Cell>> {
    let network = job.network()?;
    let initial_rto = network.stack.initial_rto;
    let [_, window] = job.times;
    let mut run = DumbbellRun::new(network).map_err(anyhow::Error::msg)?;
    let ended = steps.run((Nanos::ZERO, length(job)), STEP, |now| {
        let before = run.happened();
        run.run_until(now);
        run.happened() - before
    });
    Ok(ended.map(|()| {
        let measured = run.outcome();
        let link = summary(&measured, job.bulk, window, initial_rto);
        job.cell(link, &measured.completions, marks(&measured))
    }))
}

fn marks(measured: &Measured) -> Vec<String> {
    let given_up = measured.bulk_given_up;
    let word = || format!("connections of bulk flows that broke off, each followed by another: {given_up}");
    (given_up > 0).then(word).into_iter().collect()
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
        initial_rto_ms: initial_rto.as_millis_f64(),
        ..BottleneckSummary::default()
    }
}
