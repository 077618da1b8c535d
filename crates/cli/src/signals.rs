//! Ctrl-C, SIGTERM and SIGHUP, as flags that subcommands look at; and SIGXFSZ, as an error.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use nix::libc;
use nix::sys::signal::{SigHandler, Signal, signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A flag that becomes true at the first signal; that the terminal has gone is one, but for who was
/// started to stay (nohup(1)). A second Ctrl-C ends the process at once, as it would without us. A
/// second SIGTERM does not: timeout(1) sends one to its child and another to their group.
pub fn stop_flag() -> Result<Arc<AtomicBool>> {
    let stop = stop_by_hand()?;
    if !is_ignored(SIGHUP) {
        set_at(SIGHUP, &stop)?;
    }
    Ok(stop)
}

/// A flag as [`stop_flag`]'s for what ends within a second and has much to put back: a second
/// Ctrl-C does nothing more.
pub fn stop_flag_in_order() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        if signal != SIGHUP || !is_ignored(SIGHUP) {
            set_at(signal, &stop)?;
        }
    }
    Ok(stop)
}

/// For what stays when its terminal goes: a flag as [`stop_flag`]'s, and one that becomes true at
/// each SIGHUP, which is no reason to end.
pub fn stop_and_reload_flags() -> Result<(Arc<AtomicBool>, Arc<AtomicBool>)> {
    let reload = Arc::new(AtomicBool::new(false));
    set_at(SIGHUP, &reload)?;
    Ok((stop_by_hand()?, reload))
}

/// Has writes fail when a file is longer than `ulimit -f` allows, as on a full disk: SIGXFSZ would
/// end the process in the middle of a line.
pub fn let_long_files_fail() {
    // SAFETY: ignoring a signal installs no handler.
    unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }.expect("it is a signal that may be ignored");
}

fn stop_by_hand() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register_conditional_default(SIGINT, Arc::clone(&stop))
        .context("install the signal handlers")?;
    set_at(SIGINT, &stop)?;
    set_at(SIGTERM, &stop)?;
    Ok(stop)
}

fn set_at(signal: i32, flag: &Arc<AtomicBool>) -> Result<()> {
    signal_hook::flag::register(signal, Arc::clone(flag)).map(drop).context("install the signal handlers")
}

/// Whether whoever started us had the signal ignored.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: all zero is a valid sigaction; the call writes to it and changes nothing, as there is
    // no new one.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action);
        action
    };
    action.sa_sigaction == libc::SIG_IGN
}
