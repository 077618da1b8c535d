//! `tidegate lab`: experiments on real kernels, in network namespaces.
//!
//! [`run`] finds the rate at which each server saturates, then measures each point of the grid in
//! fresh namespaces, and writes JSON lines as it goes and a page at the end. The lab starts the
//! same programs that a user would: `tidegate serve`, `tidegate guard`, `tidegate load`. Packet
//! scripts are played to the running kernel, and a dumbbell is hosts in namespaces around a
//! `tidegate link`.
//!
//! What it is not: no remote machines, no statistics beyond what the crowd and the kernel counted.
//! Files, claims and results are in crates/experiment, and virtual time in crates/virtual-lab.

mod apache;
mod cell;
mod child;
mod crowd;
mod distance;
mod dumbbell;
mod environment;
mod gauge;
mod grid;
mod guard;
mod hold;
mod middle;
mod nearness;
mod nft;
mod nginx;
mod pages;
mod probe;
mod relay;
mod saturation;
mod server;
mod stop;
mod testbed;
#[cfg(test)]
mod testing;
mod traces;
mod undisturbed;
mod uplink;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use experiment::{Event, Outcome, Plan};

pub use self::{
    cell::{Lab, Measured},
    nearness::Nearness,
    probe::{Difference, GUARD_RUN_NS, LOOKS, SLEEPS},
    testbed::{CROWD_INTERFACE, CROWD_POLL, SERVER_INTERFACE, Testbed},
};

/// Runs an experiment, with its results in a folder of its own below `results`. When `stop` is set
/// it ends within a moment, with what was complete by then. `program` is `tidegate` itself, which
/// is started as server, guard and crowd.
///
/// # Errors
///
/// When the machine cannot run it, or something fails on the way; what was measured by then stays
/// in the results folder.
pub fn run(
    plan: &Plan,
    program: &Path,
    results: &Path,
    stop: &AtomicBool,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    if !nix::unistd::geteuid().is_root() {
        bail!("run experiment {}: network namespaces need root; run it with sudo", plan.name());
    }
    for name in netns::sweep()? {
        on_event(&Event::Note(&format!("removed namespace {name}, which an earlier run left behind")));
    }
    match plan {
        Plan::Grid(experiment) => grid::run(experiment, program, results, stop, on_event),
        Plan::Traces(traces) => traces::run(traces, results, stop, on_event),
        Plan::Dumbbell(dumbbell) => dumbbell::run(dumbbell, program, results, stop, on_event),
    }
}
