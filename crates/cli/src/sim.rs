//! `tidegate sim`: experiments in virtual time.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use lab::simulate::{self, Options};
use lab::{Experiment, Plan};
use sim::Profile;

use crate::lab::{event_text, show};
use crate::output::say;
use crate::signals;

/// Run an experiment in virtual time: the lab's files and results, on a machine that a profile describes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Experiment files, as experiments/demo.toml; all are checked before the first is run
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// What the machine's work costs: a TOML file
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,

    /// Folder in which each run makes its own
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,

    /// Measure each point once and for a second only, to see that all works; the results say so
    #[arg(long)]
    quick: bool,

    /// Worlds that are simulated at once; the results are the same with any number
    #[arg(long, value_name = "N", default_value_t = threads(), value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,
}

fn threads() -> u16 {
    std::thread::available_parallelism().map_or(1, |cpus| cpus.get().min(1024) as u16)
}

/// Runs the experiments and prints their tables.
pub fn run(args: Args) -> Result<()> {
    let mut plans = args.files.iter().map(|file| Plan::read(file)).collect::<Result<Vec<_>, _>>()?;
    if args.quick {
        plans.iter_mut().for_each(Plan::quicken);
    }
    let experiments = plans.iter().map(grid).collect::<Result<Vec<_>>>()?;
    let profile = read_profile(&args.profile)?;
    let stop = signals::stop_flag()?;
    for experiment in experiments {
        say(format_args!("{}: {}", experiment.name, experiment.title))?;
        let options =
            Options { results: &args.results, profile: profile.clone(), threads: args.threads.into() };
        let outcome = simulate::run(experiment, &options, &stop, |event| {
            if say(event_text(event)).is_err() {
                stop.store(true, Ordering::Relaxed); // nobody reads any more
            }
        })?;
        show(outcome)?;
    }
    Ok(())
}

fn grid(plan: &Plan) -> Result<&Experiment> {
    match plan {
        Plan::Grid(experiment) => Ok(experiment),
        Plan::Traces(traces) => {
            bail!("{} is packet scripts; they are played by tidegate lab run", traces.name)
        }
    }
}

fn read_profile(path: &Path) -> Result<Profile> {
    let context = || format!("profile {}", path.display());
    let text = std::fs::read_to_string(path).with_context(context)?;
    Profile::parse(&text).map_err(anyhow::Error::msg).with_context(context)
}
