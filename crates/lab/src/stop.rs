//! A run that the user stops.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use experiment::Stopped;

/// How often a wait looks whether the run was stopped.
pub(crate) const STOP_EVERY: Duration = Duration::from_millis(50);

/// What went wrong with real programs after the user stopped the run is ascribed to that: Ctrl-C
/// goes to them, too.
pub(crate) fn unless_stopped(measured: Result<()>, stop: &AtomicBool) -> Result<()> {
    if stop.load(Ordering::Relaxed) { measured.context(Stopped) } else { measured }
}
