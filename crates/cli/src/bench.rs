//! `tidegate bench`: figures of this machine.

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;

use crate::output::say;
use crate::signals;

/// Measure figures of this machine, each against its reference: one JSON line per figure
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Figures or groups of figures to measure; all, unless given
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(bench::GROUPS.into_iter().chain(bench::NAMES)))]
    names: Vec<String>,
}

/// Measures and prints.
pub fn run(args: Args) -> Result<()> {
    // What was made is taken away by whoever made it, so that a signal may not end the process.
    let stop = signals::stop_flag()?;
    let mut printed = Ok(());
    bench::run(&args.names, &stop, |figure| {
        let line = serde_json::to_string(figure).context("write a figure as JSON");
        printed = std::mem::replace(&mut printed, Ok(())).and_then(|()| say(line?));
    })?;
    printed
}
