//! How experiments are run on this machine.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use experiment::Stopped;

/// How to run an experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder in which the run makes its own.
    pub results: PathBuf,
    /// `tidegate` itself, which the lab starts as server, guard and crowd.
    pub program: PathBuf,
}

/// What went wrong with real programs after the user stopped the run is ascribed to that: Ctrl-C goes to them, too.
pub fn unless_stopped(measured: Result<()>, stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { measured.context(Stopped) } else { measured }
}
