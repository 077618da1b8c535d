//! `tidegate merge`: adds what several generators saw of one crowd.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use results::{CrowdSummary, LoadEvent};
use serde_json::Value;

use crate::load::{json_line, summary_text};
use crate::mistake::{Mistake, in_file};
use crate::output::say;
use crate::printer::complain;

/// Add the results of several `tidegate load --shard I/N --json`, exactly: counts, and the
/// histograms behind percentiles
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
    let name = |which: usize| args.files[which].display().to_string();
    let summary = results::merge(&parts)
        .map_err(|error| Mistake(format!("add these runs: {}", error.said_of(name))))?;
    if let Some(missing) = missing(&summary.shards) {
        complain(format_args!("part {missing} of this crowd is missing; the sum is of the others"));
    }
    if args.json {
        return say(json_line(&LoadEvent::Summary(Box::new(summary))));
    }
    say(summary_text(&summary).trim_end())
}

/// Parts that were not given, as `2/3`; of many the first few.
fn missing(shards: &[String]) -> Option<String> {
    const SHOWN: usize = 5;
    let missing = results::missing_parts(shards);
    let shown = missing[..missing.len().min(SHOWN)].join(", ");
    match missing.len() {
        0 => None,
        count if count <= SHOWN => Some(shown),
        count => Some(format!("{shown} and {} others", count - SHOWN)),
    }
}

fn read(path: &Path) -> Result<CrowdSummary> {
    const NONE: &str = "there is no summary in it; it should be what tidegate load --json printed to its end";
    let context = || format!("read {}", path.display());
    let is_summary =
        |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|line| line["event"] == "summary");
    let mut last = None;
    for line in files::lines(path).with_context(context)? {
        let line = line.with_context(context)?;
        // The last counts.
        if is_summary(&line) {
            last = Some(line);
        }
    }
    let line = in_file(last.ok_or(NONE), path.display())?;
    in_file(serde_json::from_str(&line), format_args!("{}: read its summary", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_missing_are_named_and_many_are_counted() {
        let shards = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(missing(&shards(&["1/1"])), None);
        assert_eq!(missing(&shards(&["1/3", "3/3"])), Some("2/3".to_owned()));
        assert_eq!(missing(&shards(&["9/9"])), Some("1/9, 2/9, 3/9, 4/9, 5/9 and 3 others".to_owned()));
    }
}
