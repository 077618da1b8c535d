//! Ctrl-C, SIGTERM and SIGHUP, as flags that subcommands look at.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag that becomes true at the first signal. A second one ends the process at once, as it would without us.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let install = || -> std::io::Result<()> {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
            Ok(())
        };
        install().context("install the signal handlers")?;
    }
    Ok(stop)
}

/// A flag that becomes true at each SIGHUP, which ends the process no longer.
pub fn reload_flag() -> Result<Arc<AtomicBool>> {
    let reload = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&reload)).context("install the signal handlers")?;
    Ok(reload)
}
