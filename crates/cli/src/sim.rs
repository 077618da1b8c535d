//! `tidegate sim`: experiments in virtual time.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, ensure};
use experiment::{Event, ExperimentError, Plan};
use files::ReadError;
use report::Run;
use sim::{Profile, ProfileError};
use virtual_lab::{Captures, Options};

use crate::bar::Bar;
use crate::lab::{event_text, show};
use crate::mistake::{Mistake, in_file};
use crate::output::say;
use crate::printer::complain;
use crate::run_file::{ensure_folder, read_run};
use crate::signals;

/// Run an experiment in virtual time: the lab's files and results, on a machine that a profile
/// describes
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Experiment files, as experiments/demo.toml; all are checked before the first is run
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// The machine, for experiments that have one and do not name it: a TOML file, or xeon-2005,
    /// itanium-2005, round-numbers
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<PathBuf>,

    /// Let every crowd come at the rate at which it was meant to come in that run of the same
    /// experiment, as measured by tidegate lab run, in place of multiples of what the simulated
    /// server can do, and at the speed that the machine had then, where both runs say how fast
    /// theirs was; tidegate compare holds both against each other
    #[arg(long, value_name = "RESULTS", conflicts_with = "quick")]
    rates_of: Option<PathBuf>,

    /// Write all runs as one HTML page, too: a book of figures
    #[arg(long, value_name = "FILE")]
    book: Option<PathBuf>,

    /// Write how many claims of each run hold as a table in Markdown, too
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,

    /// Folder in which each run makes its own
    #[arg(long, value_name = "DIR", default_value = "results")]
    results: PathBuf,

    /// Keep the frames of the server's link of each cell as a pcap file below this folder; times
    /// are virtual, from the start of the warm-up
    #[arg(long, value_name = "DIR")]
    trace: Option<PathBuf>,

    /// Frames of each cell that --trace keeps, from its start; in memory, until the cell is done
    #[arg(long, value_name = "N", default_value_t = 10_000, requires = "trace", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trace_frames: u32,

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

/// Runs the experiments and prints their tables, and at the end the claims of all.
pub fn run(args: Args) -> Result<()> {
    let plans = args.files.iter().map(|file| Plan::read(file, args.quick)).collect::<Result<Vec<_>, _>>()?;
    plans.iter().zip(&args.files).try_for_each(|(plan, file)| {
        args.check(plan, file)?;
        // With rates of another run nothing need be guessed, and that run was had.
        if args.rates_of.is_none() { plan.check_memory(file, args.threads.into()) } else { Ok(()) }
    })?;
    if args.trace.is_some() {
        ensure_own_captures(&plans)?;
    }
    ensure_folder("--results", &args.results)?;
    args.trace.iter().try_for_each(|folder| ensure_folder("--trace", folder))?;
    for (option, path) in [("--book", &args.book), ("--summary", &args.summary)] {
        let Some(path) = path else { continue };
        ensure_nothing_is_lost(option, path, args.files.iter().chain(&args.profile).chain(&args.rates_of))?;
        files::try_place(path).with_context(|| cannot_write(path))?;
    }
    let profile = args.profile.as_deref().map(read_profile).transpose()?;
    let rates_of = args.rates_of.as_deref().map(read_run).transpose()?;
    if let Some(run) = &rates_of {
        plans.iter().try_for_each(|plan| virtual_lab::check_rates(plan, run))?;
    }
    let captures = args.trace.map(|folder| Captures { folder, frames: args.trace_frames as usize });
    let stop = signals::stop_flag()?;
    let options = Options {
        results: &args.results,
        profile: profile.as_ref(),
        threads: args.threads.into(),
        rates_of: rates_of.as_ref(),
        captures: captures.as_ref(),
        stop: &stop,
        watch: &(),
    };
    let (mut runs, mut failed) = (Vec::new(), Vec::new());
    let mut end = Ok(());
    for plan in &plans {
        match run_one(plan, &options) {
            Ok(run) => runs.push(run),
            // One that cannot be simulated must not cost the others.
            Err(error) if plans.len() > 1 && !stop.load(Ordering::Relaxed) => {
                complain(format_args!("{error:#}"));
                failed.push(plan.name());
            }
            Err(error) => {
                end = Err(error);
                break;
            }
        }
    }
    if runs.len() > 1 {
        let claims: Vec<_> = runs.iter().flat_map(|run| run.claims.clone()).collect();
        say(format_args!("\n{}", report::claims_table(&claims).trim_end()))?;
    }
    // After an early end both have the runs that were complete.
    if end.is_ok() || !runs.is_empty() {
        if let Some(path) = &args.book {
            write_whole(path, &report::book("Figures", &runs))?;
            say(format_args!("book     {}", path.display()))?;
        }
        if let Some(path) = &args.summary {
            write_whole(path, &report::summary(&runs))?;
        }
    }
    end?;
    ensure!(failed.is_empty(), "failed: {}; their own messages are above", failed.join(", "));
    Ok(())
}

fn run_one(plan: &Plan, options: &Options<'_>) -> Result<Run> {
    say(format_args!("{}: {}", plan.name(), plan.title()))?;
    let bar = Bar::new();
    let on_event = |event: &Event<'_>| {
        if bar.above(|| say(event_text(event))).is_err() {
            options.stop.store(true, Ordering::Relaxed); // nobody reads any more
        }
        if let Event::Cell(_, done, _) = event {
            bar.done(*done);
        }
    };
    let options = Options { watch: &bar, ..*options };
    let outcome = virtual_lab::run(plan, &options, on_event);
    bar.finish();
    show(outcome?)
}

/// All of it or nothing.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    files::write_whole(path, text.as_bytes()).with_context(|| cannot_write(path))
}

fn cannot_write(path: &Path) -> String {
    format!("write {}", path.display())
}

impl Args {
    /// Whether it can be simulated.
    fn check(&self, plan: &Plan, file: &Path) -> Result<(), ExperimentError> {
        let what = match plan {
            Plan::Dumbbell(_) if self.trace.is_some() => {
                "--trace is for experiments with a server; packets of a dumbbell have no bytes that could be kept"
            }
            Plan::Traces(_) if self.trace.is_some() => {
                "--trace is for experiments with a crowd; the results of packet scripts have every segment"
            }
            Plan::Dumbbell(_) | Plan::Traces(_) if self.rates_of.is_some() => {
                "--rates-of is for experiments with a crowd, whose rates it gives"
            }
            Plan::Grid(experiment) if experiment.profile.is_none() && self.profile.is_none() => {
                "it names no profile: give --profile a name or a file, as --profile round-numbers"
            }
            Plan::Grid(_) | Plan::Dumbbell(_) | Plan::Traces(_) => return Ok(()),
        };
        Err(ExperimentError::Invalid { path: file.to_owned(), what: what.to_owned() })
    }
}

/// Each experiment has its captures in a folder of its name.
fn ensure_own_captures(plans: &[Plan]) -> Result<()> {
    let mut names = HashSet::new();
    let Some(twice) = plans.iter().find(|plan| !names.insert(plan.name())) else { return Ok(()) };
    Err(Mistake(format!(
        "two of the files have the name {:?}, and captures of one would take the place of the other's: simulate them one at a time, each with a --trace of its own",
        twice.name()
    ))
    .into())
}

/// A page in the place of what is read, or of the first of many files where the page's own name was
/// forgotten.
fn ensure_nothing_is_lost<'a>(
    option: &str,
    page: &Path,
    mut read: impl Iterator<Item = &'a PathBuf>,
) -> Result<()> {
    let is_same = |file: &PathBuf| {
        page.canonicalize().is_ok_and(|page| file.canonicalize().is_ok_and(|file| file == page))
    };
    let is_input = page.extension().is_some_and(|extension| extension == "toml" || extension == "jsonl");
    if is_input || read.any(is_same) {
        let page = page.display();
        return Err(Mistake(format!("{option} {page}: the page would take the place of an experiment, a profile or results; name a file for it, as book.html")).into());
    }
    Ok(())
}

fn say_profile(error: ProfileError) -> String {
    match error {
        ProfileError::Toml(error) => files::say_toml_error(&error),
        ProfileError::Invalid(what) => what,
    }
}

/// One that comes along, or a file.
fn read_profile(path: &Path) -> Result<Profile> {
    if let Some(profile) = path.to_str().and_then(Profile::shipped) {
        return Ok(profile);
    }
    let name = format!("profile {}", path.display());
    match files::read_text(path) {
        Ok(text) => in_file(Profile::parse(&text).map_err(say_profile), name),
        Err(ReadError::Missing) => {
            let known: Vec<&str> = Profile::shipped_names().collect();
            let list = format!("those are {}", known.join(", "));
            let then = spelling::did_you_mean(&path.to_string_lossy(), known, &list);
            in_file(Err(format!("no file, and none of those that come along{then}")), name)
        }
        Err(error) => Err(error).context(name),
    }
}
