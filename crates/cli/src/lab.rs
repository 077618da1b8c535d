//! `tidegate lab`: runs experiments.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use lab::{Event, Experiment, Options};

use crate::output::say;
use crate::signals;

/// Run an experiment on real kernels, in network namespaces of its own
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an experiment file: find each server's saturation, measure the grid, write a report
    Run {
        /// Experiment file, as experiments/demo.toml
        file: PathBuf,

        /// Folder in which the run makes its own
        #[arg(long, value_name = "DIR", default_value = "results")]
        results: PathBuf,
    },
}

/// Runs the experiment and prints its table.
pub fn run(args: Args) -> Result<()> {
    let Command::Run { file, results } = args.command;
    let experiment = Experiment::read(&file)?;
    let stop = signals::stop_flag()?;
    let program = std::env::current_exe().context("find the path of tidegate itself")?;
    say(format_args!("{}: {}", experiment.name, experiment.title))?;
    let outcome = lab::run(&experiment, &Options { results, program }, &stop, |event| {
        if say(event_text(event)).is_err() {
            stop.store(true, Ordering::Relaxed); // nobody reads any more
        }
    })?;
    say(format_args!("\n{}\n{}\n", report::table(&outcome.run), report::finding(&outcome.run)))?;
    say(format_args!("report   {}", outcome.page.display()))?;
    say(format_args!("results  {}", outcome.lines.display()))?;
    if outcome.stopped {
        bail!("stopped before the end; the report has what was complete");
    }
    Ok(())
}

fn event_text(event: &Event<'_>) -> String {
    match event {
        Event::Note(text) => format!("note: {text}"),
        Event::Probe(server, offered, goodput) => {
            format!("  {}: offered {offered:.0}/s, answered {goodput:.0}/s", server.name)
        }
        Event::Saturated(found) => {
            format!("{} saturates at {:.0} requests/s", found.server, found.rate_per_s)
        }
        Event::Cell(cell, done, all) => {
            let marked = if cell.marks.is_empty() { "" } else { "  (marked)" };
            format!(
                "  [{done}/{all}] {} at {:.1} x, {}: {:.0}/s after {:.1} ms{marked}",
                cell.server, cell.load, cell.policy, cell.crowd.goodput_per_s, cell.crowd.response_ms.mean
            )
        }
    }
}
