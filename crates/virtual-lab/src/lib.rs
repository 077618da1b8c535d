//! Runs experiments in virtual time: the lab's files and results, on a machine that a profile
//! describes (`tidegate sim`).
//!
//! [`run`] takes any [`Plan`]: a grid of servers, packet scripts, or a dumbbell. Every cell is a
//! world of its own. So cells run on as many threads as there are CPUs, and come out the same on
//! any number of them. `rates.rs` simulates a grid at the rates that the lab sent, so that
//! `tidegate compare` can hold one against the other.
//!
//! What it is not: a user of the kernel. It links no AF_XDP, no BPF and no guard.

mod capture;
mod dumbbell;
mod grid;
mod jobs;
mod rates;
mod traces;

use std::collections::BTreeMap;

use anyhow::Result;
use experiment::{Event, Outcome, Plan};
use results::Environment;

pub use self::{
    capture::Captures,
    jobs::{Options, Watch},
    rates::{RatesError, check_rates},
};

/// Runs an experiment. When it is stopped it ends with what was complete by then.
///
/// # Errors
///
/// When nothing of it can be simulated, or the results cannot be written.
pub fn run(plan: &Plan, options: &Options<'_>, on_event: impl FnMut(&Event<'_>)) -> Result<Outcome> {
    match plan {
        Plan::Grid(experiment) => grid::run(experiment, options, on_event),
        Plan::Traces(traces) => traces::run(traces, options, on_event),
        Plan::Dumbbell(dumbbell) => dumbbell::run(dumbbell, options, on_event),
    }
}

/// A machine that is simulated.
fn simulated(profile: &str) -> Environment {
    Environment {
        kernel: Environment::SIMULATED.to_owned(),
        cpu: format!("the profile {profile}"),
        cpus: 1,
        memory_mib: 0,
        versions: [("tidegate".to_owned(), experiment::version().to_owned())].into(),
        sysctls: BTreeMap::new(),
    }
}
