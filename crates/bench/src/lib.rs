//! `tidegate bench`: figures of this machine, each beside a reference from the same run.
//!
//! A figure is a median over repetitions that alternate with its reference, because a shared
//! machine drifts. The bench is a subcommand, because operators may want to know what their machine
//! can send. It calls the crowd as a library.
//!
//! What it is not: a test. No figure passes or fails here.

mod bare;
mod close;
mod echo;
mod follow;
mod link;
mod load;
mod optimum;
mod peers;
mod program;
mod rate;
mod sim;
mod time_wait;
mod turns;
mod uplink;

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use ipnet::Ipv4Net;
use netns::pin_to_cpu;
use serde::Serialize;

/// Names of all figures. They stay: scripts compare them over time.
pub const NAMES: [&str; 41] = [
    "load.connections_per_second",
    "load.frames_per_second",
    "load.vs_bare_exchange",
    "load.core_round_trip_ns",
    "load.bytes_per_connection",
    "load.million_connections_mib",
    "load.timer_tick_ns",
    "load.vs_wrk",
    "load.vs_h2load",
    "load.bare_exchange_vs_wrk",
    "load.bare_exchange_vs_h2load",
    "load.vs_httperf_goodput",
    "load.vs_httperf_response_ms",
    "bpf.admit_ns",
    "bpf.admit_unserved_ns",
    "bpf.refuse_tcx_ns",
    "bpf.refuse_xdp_ns",
    "bpf.data_segment_ns",
    "bpf.ack_armed_ns",
    "bpf.cookie_ns",
    "bpf.rst_fin_ns",
    "bpf.connection_ns",
    "bpf.uplink_ns",
    "bpf.hold_segment_ns",
    "bpf.hold_close_ns",
    "bpf.swap_segment_ns",
    "bpf.swap_close_ns",
    "sim.events_per_second",
    "sim.event_cost_growth",
    "sim.bulk100_seconds",
    "sim.clients_10m_gib",
    "link.packets_per_second",
    "link.delay_error_us",
    "link.clock_error_us",
    "uplink.to_optimum",
    "uplink.bands_to_optimum",
    "uplink.cake_to_optimum",
    "time_wait.count",
    "time_wait.bytes",
    "time_wait.lookup_ns",
    "time_wait.transfer",
];

/// What the names begin with, for all figures of a group.
pub const GROUPS: [&str; 6] = ["load", "bpf", "sim", "link", "uplink", "time_wait"];

/// CPU of what is measured.
const CPU: usize = 1;
/// Of a server that is not asked inline.
const SERVER_CPU: usize = 0;
const REPETITIONS: usize = 5;

/// One figure, as `./dev bench` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// One of [`NAMES`].
    pub name: &'static str,
    /// Median over the repetitions.
    pub value: f64,
    /// Unit of value and reference.
    pub unit: &'static str,
    /// What it is held against, measured in the same run.
    pub reference: f64,
    /// `value / reference`.
    pub ratio: f64,
    /// What the reference is.
    pub reference_is: &'static str,
    /// How often both were measured.
    pub repetitions: usize,
    /// Smallest and largest value.
    pub spread: [f64; 2],
}

/// The one in the middle, or between the two that are, of one at least.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1).expect("something was measured");
    f64::midpoint(values[last / 2], values[last.div_ceil(2)])
}

impl Figure {
    fn new(name: &'static str, unit: &'static str, reference_is: &'static str, pairs: &[(f64, f64)]) -> Self {
        let values: Vec<f64> = pairs.iter().map(|pair| pair.0).collect();
        let references: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
        let (value, reference) = (median(values.clone()), median(references));
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (repetitions, spread) = (pairs.len(), [least, most]);
        Self { name, value, unit, reference, ratio: value / reference, reference_is, repetitions, spread }
    }
}

/// Measures figures, those of `names` ([`NAMES`] and [`GROUPS`]), or all when there are none.
///
/// # Errors
///
/// No root; fewer than two CPUs; a machine that is too busy to measure; `stop`, within seconds.
pub fn run(names: &[String], stop: &AtomicBool, mut on_figure: impl FnMut(&Figure)) -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the bench makes network namespaces, which needs root; run it with sudo"
    );
    netns::sweep()?;
    pin_to_cpu(CPU)?;
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| is_meant(wanted, name));
    let groups: [(&str, Measure); 6] = [
        ("load.", load::figures),
        ("bpf.", bpf_figures),
        ("sim.", sim::figures),
        ("link.", link::figures),
        ("uplink.", optimum::figures),
        ("time_wait.", time_wait::figures),
    ];
    for (group, measure) in groups {
        if NAMES.iter().any(|name| name.starts_with(group) && is_wanted(name)) {
            let figures = measure(stop)?;
            figures.iter().filter(|figure| is_wanted(figure.name)).for_each(&mut on_figure);
        }
    }
    Ok(())
}

/// Measures the figures of a group.
type Measure = fn(&AtomicBool) -> Result<Vec<Figure>>;

/// Those of the programs alone, of a whole connection, and of a packet of the uplink.
fn bpf_figures(stop: &AtomicBool) -> Result<Vec<Figure>> {
    let mut figures = program::figures(stop)?;
    figures.push(follow::figure(stop)?);
    figures.push(uplink::figure(stop)?);
    figures.extend(close::figures(stop)?);
    Ok(figures)
}

/// A line of `/proc/self/status`, KiB.
fn status_kib(name: &str) -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok())
        .with_context(|| format!("find {name} in /proc/self/status"))
}

fn go_on(stop: &AtomicBool) -> Result<()> {
    ensure!(!stop.load(Ordering::Relaxed), "stopped");
    Ok(())
}

/// Whether a name, or a group's, means this figure.
fn is_meant(wanted: &str, name: &str) -> bool {
    wanted == name || name.split_once('.').is_some_and(|(group, _)| wanted == group)
}

fn clients() -> Ipv4Net {
    "10.77.0.0/16".parse().expect("a network")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_means_its_figures_and_no_others() {
        assert!(is_meant("bpf", "bpf.admit_ns") && is_meant("bpf.admit_ns", "bpf.admit_ns"));
        assert!(!is_meant("load", "bpf.admit_ns") && !is_meant("bpf.admit_ns", "bpf.cookie_ns"));
        assert!(NAMES.iter().all(|name| GROUPS.iter().any(|group| is_meant(group, name))));
    }

    #[test]
    fn figure_is_the_median_with_its_spread() {
        let figure = Figure::new("x", "things", "others", &[(3.0, 4.0), (1.0, 4.0), (2.0, 8.0)]);
        assert_eq!((figure.value, figure.reference, figure.ratio), (2.0, 4.0, 0.5));
        assert_eq!((figure.spread, figure.repetitions), ([1.0, 3.0], 3));
    }
}
