//! Ctrl-C, SIGTERM and SIGHUP, as flags that subcommands look at.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag that becomes true at the first signal. A second Ctrl-C ends the process at once, as it would without us. A second SIGTERM does not: timeout(1) sends one to its child and another
/// to their group.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let install = || -> std::io::Result<()> {
            if signal == SIGINT {
                signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
            }
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
