//! `tidegate lab`: experiments on real kernels, in network namespaces.
//!
//! [`run`] finds the rate at which each server saturates. Then it measures each point of the grid
//! in fresh namespaces, writes JSON lines as it goes, and a page at the end. It starts the programs
//! that a user would: `tidegate serve`, `guard`, `load` and `link`. Packet scripts are played to
//! the running kernel.
//!
//! What it is not: it has no remote machines, and no statistics beyond what the crowd and the
//! kernel counted. Files, claims and results are in crates/experiment, and virtual time in
//! crates/virtual-lab.
//!
//! # The testbed of a cell
//!
//! ```text
//!   tg-server-*                                        tg-crowd-*
//!   CPU 0: receive softirq (RPS), server process       CPU 1: receive thread (NAPI), generator
//!          tgs0 10.76.0.1/30  ------- veth -------  tgc0 10.76.0.2/30, sources 10.77.0.0/16
//! ```
//!
//! - It is fresh for every cell, because sockets that an earlier crowd left behind answer a new SYN
//!   with a challenge ACK.
//! - The crowd receives in native XDP. The kernel does not run generic XDP on a buffer that tc
//!   redirected, and the guard's RST is one.
//! - Replies that find the crowd's ring full wait at the server's interface (Linux 6.16). Before,
//!   they are lost: `tx_dropped` of `tgs0` counts them, and the cell is marked.
//! - A flood has a pair of its own, so its answers take no place from replies. It is sent from the
//!   generator's core between the crowd's turns. Both pairs share the backlog of the server's CPU;
//!   with threaded NAPI each has its thread.
//! - Held connections are sockets of the lab's own, by a third pair, because the generator takes
//!   every frame of `tgc0`. They are opened before it starts.
//! - Far clients have a namespace with `tidegate link` before them (`middle.rs`). A thread on the
//!   link's CPU receives there what the server sends.
//! - A dumbbell has three namespaces, with hosts as addresses (`dumbbell/bed.rs`). Nothing is
//!   pinned to a CPU there.

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
