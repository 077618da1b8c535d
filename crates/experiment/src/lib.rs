//! Experiment files, their claims and the results of a run: what the lab and virtual runs share.
//!
//! A [`Plan`] is what a TOML file asks for. Most are a grid ([`Experiment`]): servers, policies,
//! and offered loads as multiples of the server's saturation rate. Some are packet scripts with the
//! claims that they show ([`Traces`]), some are flows over a bottleneck ([`Dumbbell`]). A
//! [`Writer`] takes the records of a run, and writes its page at the end.
//!
//! What it is not: a measurement. It links no socket, no BPF and no namespace, so virtual runs do
//! not either.

mod bounds;
mod bursts;
mod check;
mod claims;
mod clients;
mod demand;
mod dumbbell;
mod error;
mod event;
mod experiment;
mod extent;
mod header;
mod hold;
mod layout;
mod map;
mod outcome;
mod plan;
mod policy;
mod ports;
mod saturation;
mod servers;
mod time;
mod traces;
mod uplink;
mod ways;
mod workload;

pub use self::{
    bursts::Bursts,
    clients::CrowdSpec,
    demand::Demand,
    dumbbell::{Dumbbell, jobs::Job},
    error::ExperimentError,
    event::Event,
    experiment::{Experiment, Grid, bytes_on_the_link},
    header::version,
    hold::Hold,
    layout::{Layout, Receive},
    outcome::{Outcome, Stopped, Writer},
    plan::Plan,
    policy::{Change, Policy},
    ports::{First, LoopText},
    saturation::{Probe, Probed},
    servers::{ServerKind, ServerSpec},
    time::MOST_RATE,
    traces::{ScriptRun, Traces},
    uplink::{Uplink, UplinkText},
    ways::{PathCounted, Way},
    workload::{WorkloadText, parse_workload},
};

use std::time::Duration;

/// Time between samples of the server's counters.
pub const SAMPLE_EVERY: Duration = Duration::from_millis(250);
/// Among these counters, how often the server's CPU turned to received packets, as `/proc/softirqs`
/// calls it.
pub const TURNS: &str = "softirqs.NET_RX";

/// SYNs that the kernel dropped, beside the counters of the guard: the simulated kernel alone can
/// tell.
pub const KERNEL_DROPPED: &str = "syns.kernel_dropped";
/// Most connections in TIME_WAIT at the server in the window, as `/proc/net/sockstat` calls them;
/// and most ends of connections, which the simulated kernel alone counts.
pub const TIME_WAITS: &str = "sockstat.TCP.tw";
/// See [`TIME_WAITS`].
pub const ENDS: &str = "sockstat.TCP.all";
