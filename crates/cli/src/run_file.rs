//! The results of a run, as a command line names them.

use std::path::Path;

use anyhow::{Context, Result};
use report::Run;

use crate::mistake::Mistake;

/// A run from its `results.jsonl`.
pub fn read_run(path: &Path) -> Result<Run> {
    let lines = files::lines(path).with_context(|| format!("read {}", path.display()))?;
    Run::from_lines(lines.map(|line| line.map_err(anyhow::Error::from)))
        .with_context(|| format!("read {}; it should be the results.jsonl of a run", path.display()))
}

/// Runs make folders of their own below one, which a file is not.
pub fn ensure_folder(option: &str, folder: &Path) -> Result<()> {
    if folder.is_file() {
        let why = format!("{option} {}: it is a file, and no folder; name a folder", folder.display());
        return Err(Mistake(why).into());
    }
    Ok(())
}
