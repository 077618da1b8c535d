//! What each kernel should have, from `features.tsv`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use script::Series;

/// A feature that not every kernel has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    /// The name of doctor's probe, and the first kernel that has it; `None` if it is none of the
    /// kernel's.
    pub probe: Option<(String, Series)>,
    /// How the reason begins with which tests are skipped without it, if any are.
    pub skip: Option<String>,
}

/// An empty cell.
const NONE: &str = "-";

/// Reads the table.
pub fn read(path: &Path) -> Result<Vec<Feature>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    parse(&text).with_context(|| format!("read {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Feature>> {
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.map(|line| {
        let mut cells = line.split('\t');
        let mut cell = || cells.next().with_context(|| format!("{line:?} has fewer than three columns"));
        let (probe, since, skip) = (cell()?.to_owned(), cell()?, cell()?);
        let series = || Series::parse(since).with_context(|| format!("{since:?} is no kernel release"));
        let probe = if probe == NONE { None } else { Some((probe, series()?)) };
        Ok(Feature { probe, skip: (skip != NONE).then(|| skip.to_owned()) })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_this_repository_is_read() {
        let features = parse(include_str!("../features.tsv")).expect("it is well formed");
        let tcx = features.iter().find(|feature| {
            feature.probe.as_ref().is_some_and(|(name, since)| name == "tcx" && *since == Series(6, 6))
        });
        assert!(tcx.expect("tcx is among them").skip.is_some());
    }
}
