//! One crowd against the server of a testbed, by `tidegate load`.

use std::path::Path;
use std::time::Duration;

use ::crowd::Abort;
use anyhow::{Context, Result};
use experiment::{Bursts, CrowdSpec, First, Hold, Layout};
use results::CrowdSummary;
use tcp::Close;
use traffic::Arrivals;

use crate::child::Running;
use crate::testbed::{CROWD_INTERFACE, FLOOD_INTERFACE, Testbed};

/// How long the generator may take to open its rings and find the server.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Send {
    /// Attempts per second; of bursts, the mean over burst and gap.
    pub rate: f64,
    /// In bursts, if not evenly.
    pub bursts: Option<Bursts>,
    /// As the experiment's demand and reuse of connections are, where it has such; else evenly, on
    /// a connection each.
    pub is_cell: bool,
    /// Before the measured window.
    pub warmup: Duration,
    /// The measured window.
    pub duration: Duration,
    /// How long each waits for its reply.
    pub timeout: Duration,
    /// Seed of the arrivals.
    pub seed: u64,
    /// Spoofed SYNs beside them, per second; infinity is what the crowd leaves of its core.
    pub flood_per_s: Option<f64>,
    /// Connections that are held beside it.
    pub hold: Option<Hold>,
    /// Users who stop waiting, and reload.
    pub abort: Option<Abort>,
}

impl Send {
    /// Users who come evenly, and nobody beside them.
    pub(crate) fn evenly(rate: f64, warmup: Duration, duration: Duration, timeout: Duration) -> Self {
        Self {
            rate,
            bursts: None,
            is_cell: false,
            warmup,
            duration,
            timeout,
            seed: 1,
            flood_per_s: None,
            hold: None,
            abort: None,
        }
    }
}

fn close_word(close: Close) -> &'static str {
    match close {
        Close::Fin => "fin",
        Close::Reset => "rst",
        Close::Swap => "swap",
    }
}

/// Starts a crowd; its first attempt is about to start when this returns.
pub(crate) fn start(
    send: &Send,
    crowd: &CrowdSpec,
    testbed: &Testbed,
    program: &Path,
    layout: &Layout,
) -> Result<Running> {
    let mut command = testbed.crowd.command(program)?;
    command.arg("load").arg(format!("http://{}/", testbed.server_address()));
    let millis = |duration: Duration| format!("{}ms", duration.as_millis());
    let options = [
        ("--warmup", millis(send.warmup)),
        ("--duration", millis(send.duration)),
        ("--drain", "0s".to_owned()),
        ("--seed", send.seed.to_string()),
        ("--timeout", millis(send.timeout)),
        ("--clients", crowd.clients.to_string()),
        ("--close", close_word(crowd.close).to_owned()),
        ("--arrivals", if crowd.arrivals == Arrivals::Fixed { "fixed" } else { "poisson" }.to_owned()),
        ("--stacks", crowd.stacks.clone().unwrap_or_default().to_string()),
        ("--workload", crowd.workload.0.clone()),
        ("--interface", CROWD_INTERFACE.to_owned()),
        ("--xdp", "native".to_owned()),
        ("--cpu", layout.crowd_cpu.to_string()),
        ("--coalesce", format!("{}ns", layout.coalesce.as_nanos())),
    ];
    for (name, value) in options {
        command.arg(name).arg(value);
    }
    match crowd.closed_loop.filter(|_| send.is_cell) {
        Some(users) => {
            command.args(["--users", &users.of(send.rate).users.to_string(), "--think", &millis(users.think)])
        }
        None => command.args(["--rate", &send.rate.to_string()]),
    };
    match crowd.first {
        First::Client => &mut command,
        First::ClientClose => command.args(["--first", "client-close"]),
        First::Server => command.args(["--first", "server"]),
    };
    if let Some(ports) = crowd.ports {
        command.args(["--ports", &ports.to_string(), "--time-wait", &millis(crowd.time_wait)]);
        command.args(crowd.nat.then_some("--nat"));
        if let Some(after) = crowd.tw_reuse_after {
            command.args(["--tw-reuse-after", &millis(after)]);
        }
    }
    if let Some(abort) = send.abort {
        command.args(["--abort-after", &millis(abort.after.into()), "--reloads", &abort.reloads.to_string()]);
    }
    if send.is_cell {
        command.args(["--reuse", &crowd.reuse.to_string()]);
    }
    if let Some(bursts) = send.bursts {
        command.args(["--bursts", &bursts.to_string()]);
    }
    if let Some(demand) = crowd.demand.as_ref().filter(|_| send.is_cell) {
        command.args(["--shape", &demand.shape().to_string()]);
    }
    if let Some(rate) = send.flood_per_s {
        command.args(["--flood", FLOOD_INTERFACE, "--flood-rate", &rate.to_string()]);
    }
    let mut running = Running::start("tidegate load", command.arg("--json"))?;
    running.wait_for("started", PATIENCE)?;
    Ok(running)
}

/// What a crowd saw, once it has ended.
pub(crate) fn finish(mut running: Running, send: &Send) -> Result<CrowdSummary> {
    let summary = running.wait_for("summary", send.warmup + send.duration + PATIENCE)?;
    serde_json::from_value(summary).context("read what tidegate load printed")
}
