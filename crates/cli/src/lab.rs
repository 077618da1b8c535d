//! `tidegate lab`: runs experiments.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use clap::Subcommand;
use experiment::{Event, Outcome, Plan};
use report::Run;
use results::TraceOutcome;

use crate::output::say;
use crate::printer::complain;
use crate::run_file::ensure_folder;
use crate::signals;

/// Run an experiment on real kernels, in network namespaces of its own
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run experiment files: find each server's saturation, measure the grid, hold the claims
    /// against it, write a report
    Run {
        /// Experiment files, as experiments/demo.toml; all are checked before the first is run
        #[arg(required = true)]
        files: Vec<PathBuf>,

        /// Folder in which each run makes its own
        #[arg(long, value_name = "DIR", default_value = "results")]
        results: PathBuf,

        /// Measure each point once and for a second only, to see that all works; the results say so
        #[arg(long)]
        quick: bool,
    },

    /// Measure what work costs on this machine, and print it as a profile for tidegate sim; takes a
    /// few minutes
    Calibrate {
        /// Attempts per second, fewer than the server can answer; unless given, seven tenths of
        /// what it can, which is looked for first
        #[arg(long, value_name = "R", value_parser = parse_rate)]
        rate: Option<f64>,
    },
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (100.0..=1e6).contains(rate));
    rate.ok_or_else(|| "a rate per second from 100 to 1000000".to_owned())
}

/// Runs the experiments and prints their tables, and at the end the claims of all.
pub fn run(args: Args) -> Result<()> {
    let (files, results, quick) = match args.command {
        Command::Run { files, results, quick } => (files, results, quick),
        Command::Calibrate { rate } => return calibrate(rate),
    };
    let plans = files.iter().map(|file| Plan::read(file, quick)).collect::<Result<Vec<_>, _>>()?;
    ensure_folder("--results", &results)?;
    let stop = signals::stop_flag()?;
    let program = std::env::current_exe().context("find the path of tidegate itself")?;
    let mut claims = Vec::new();
    let mut failed = Vec::new();
    for plan in &plans {
        match run_one(plan, &program, &results, &stop) {
            Ok(run) => claims.extend(run.claims),
            // What a busy machine did to one experiment must not cost the others.
            Err(error) if files.len() > 1 && !stop.load(Ordering::Relaxed) => {
                complain(format_args!("{error:#}"));
                failed.push(plan.name());
            }
            Err(error) => return Err(error),
        }
    }
    if plans.len() > 1 {
        say(format_args!("\n{}", report::claims_table(&claims).trim_end()))?;
    }
    ensure!(failed.is_empty(), "failed: {}; their own messages are above", failed.join(", "));
    Ok(())
}

fn calibrate(rate: Option<f64>) -> Result<()> {
    let stop = signals::stop_flag()?;
    let program = std::env::current_exe().context("find the path of tidegate itself")?;
    let profile = calibrate::calibrate(&program, rate, &stop, |line| complain(format_args!("{line}")))?;
    say(profile.to_toml().trim_end())
}

fn run_one(plan: &Plan, program: &Path, results: &Path, stop: &AtomicBool) -> Result<Run> {
    say(format_args!("{}: {}", plan.name(), plan.title()))?;
    let outcome = lab::run(plan, program, results, stop, |event| {
        if say(event_text(event)).is_err() {
            stop.store(true, Ordering::Relaxed); // nobody reads any more
        }
    })?;
    show(outcome)
}

/// Prints what came of an experiment, and where its results are.
pub fn show(outcome: Outcome) -> Result<Run> {
    let Outcome { run, lines, page, stopped } = outcome;
    say(format_args!("\n{}\n{}\n", report::table(&run), report::finding(&run)))?;
    if !run.claims.is_empty() {
        say(report::claims_table(&run.claims))?;
    }
    say(format_args!("report   {}", page.display()))?;
    say(format_args!("results  {}", lines.display()))?;
    if let Some((complete, planned)) = run.part() {
        let what = if run.traces.is_empty() { "cells" } else { "runs of scripts" };
        ensure!(!stopped, "stopped before the end; the report has {complete} of {planned} {what}");
    }
    Ok(run)
}

/// What happened, in a line.
pub fn event_text(event: &Event<'_>) -> String {
    match event {
        Event::Note(text) => format!("note: {text}"),
        Event::Probe(server, offered, goodput) => {
            format!("  {}: offered {offered:.0}/s, answered {goodput:.0}/s", server.name)
        }
        Event::Trace(trace) => {
            let end = match trace.outcome {
                TraceOutcome::Held => "every line holds",
                TraceOutcome::Failed(_) => "not every line holds",
                TraceOutcome::Skipped(_) => "cannot be played here",
            };
            format!("  {}, {}: {end}", trace.script, trace.family)
        }
        Event::Saturated(found) => match found.users {
            Some(users) => format!("{}: a load of 1 is {users} users in a closed loop", found.server),
            None => format!("{} saturates at {:.0} requests/s", found.server, found.rate_per_s),
        },
        Event::SetAside(cell) => {
            format!(
                "  {} at {:.1} x, {}: measured again, {}",
                cell.server,
                cell.load,
                cell.policy,
                cell.marks.join("; ")
            )
        }
        Event::Cell(cell, done, all) => {
            let marked = if cell.marks.is_empty() { "" } else { "  (marked)" };
            if let Some(link) = &cell.link {
                return format!(
                    "  [{done}/{all}] {} at {:.1} x, {}: {} drops, {} of SYNs and SYN/ACKs",
                    cell.server, cell.load, cell.policy, link.drops, link.opening_drops
                );
            }
            let answered = match cell.crowd.ok {
                0 => "nobody was answered".to_owned(),
                _ => {
                    let (goodput, mean) = (cell.crowd.goodput_per_s, cell.crowd.response_ms.mean);
                    format!("{goodput:.0}/s after {mean:.1} ms")
                }
            };
            let (server, load, policy) = (&cell.server, cell.load, &cell.policy);
            format!("  [{done}/{all}] {server} at {load:.1} x, {policy}: {answered}{marked}")
        }
    }
}
