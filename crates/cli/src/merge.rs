//! `tidegate merge`: adds what several generators saw of one crowd.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use results::{CrowdSummary, LoadEvent};
use serde_json::Value;

use crate::load::{json_line, summary_text};
use crate::output::say;

/// Add the results of several `tidegate load --shard I/N --json`, exactly: counts, and the histograms behind percentiles
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files with what each printed; of one with several lines the summary counts
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Print one JSON object, as `tidegate load --json` does at its end
    #[arg(long)]
    json: bool,
}

/// Prints the sum.
pub fn run(args: Args) -> Result<()> {
    let parts = args.files.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let summary = results::merge(&parts).context("add these runs")?;
    if args.json {
        return say(json_line(&LoadEvent::Summary(Box::new(summary))));
    }
    say(summary_text(&summary).trim_end())
}

fn read(path: &Path) -> Result<CrowdSummary> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let is_summary =
        |line: &&str| serde_json::from_str::<Value>(line).is_ok_and(|line| line["event"] == "summary");
    let line = text.lines().rfind(is_summary).with_context(|| {
        format!(
            "{}: there is no summary in it; it should be what tidegate load --json printed to its end",
            path.display()
        )
    })?;
    serde_json::from_str(line).with_context(|| format!("{}: read its summary", path.display()))
}
