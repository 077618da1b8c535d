//! The guard of a testbed's server, by `tidegate guard`.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use experiment::Policy;
use results::GuardSample;
use serde_json::Value;
use telemetry::{Entry, Reading};

use crate::child::Running;
use crate::testbed::Testbed;

/// How long loading and verifying the programs may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the guard of a policy, if it has one; its programs are attached when this returns.
pub(crate) fn start(policy: &Policy, testbed: &Testbed, program: &Path) -> Result<Option<Running>> {
    let Some(name) = &policy.guard else { return Ok(None) };
    let mut command = testbed.server.command(program)?;
    command.args(["guard", "--json", "--state", "none", "--policy", name]);
    for interface in &testbed.server_interfaces {
        command.args(["--interface", interface]);
    }
    command.args(["--listen", &testbed.server_address().to_string()]);
    if let Some(hook) = &policy.attach {
        command.args(["--attach", hook]);
    }
    if policy.dry_run {
        command.arg("--dry-run");
    }
    let mut running = Running::start("tidegate guard", &mut command)?;
    running.wait_for("attached", PATIENCE)?;
    Ok(Some(running))
}

/// What it has counted by its last word, and who waited at each since the crowd's start; `None` if
/// it has said nothing since it was asked before.
pub(crate) fn ask(running: &Running, start: Instant) -> (Option<Reading>, Vec<GuardSample>) {
    let lines = running.said("sample");
    let since = lines.iter().filter_map(|(at, line)| Some(waiting(at.checked_duration_since(start)?, line)));
    (lines.last().map(|(_, line)| said(line)), since.collect())
}

/// Ends a guard and gives what it counted.
pub(crate) fn finish(mut running: Running) -> Result<Reading> {
    running.terminate();
    Ok(said(&running.wait_for("final", PATIENCE)?))
}

fn said(line: &Value) -> Reading {
    let count = |entry: Entry| {
        let (group, key) = entry.name.split_once('.')?;
        Some((entry.name.to_owned(), line[group][key].as_u64()?))
    };
    let elapsed = Duration::try_from_secs_f64(line["elapsed_s"].as_f64().unwrap_or(0.0)).unwrap_or_default();
    Reading { elapsed, counts: telemetry::catalogue().filter_map(count).collect() }
}

fn waiting(at: Duration, line: &Value) -> GuardSample {
    let service = &line["service"];
    GuardSample {
        at_ms: at.as_secs_f64() * 1e3,
        accept_qlen: line["accept_qlen"].as_u64(),
        syn_qlen: line["syn_qlen"].as_u64(),
        silent: service["silent"].as_u64(),
        waiting: service["waiting"].as_u64(),
        counted: service["counted"].as_u64(),
        limit: service["limit"].as_u64(),
        answered: service["answered"].as_u64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_of_counters_by_group_over_the_time_between() {
        let line = |elapsed_s, full| {
            said(&serde_json::json!({"elapsed_s": elapsed_s, "acks": {"full": full}, "syn_qlen": 7}))
        };
        let growth = line(3.0, 500).per_s(&line(1.0, 100));
        assert_eq!(growth, [("acks.full".to_owned(), 200.0)].into());
        assert_eq!(line(2.0, 500).per_s(&Reading::default())["acks.full"], 250.0);
    }

    #[test]
    fn sample_says_who_waits_as_far_as_the_guard_knows() {
        let service =
            serde_json::json!({"silent": 3, "waiting": 40, "counted": 38, "limit": null, "answered": 900});
        let line = serde_json::json!({"accept_qlen": 5, "syn_qlen": 2, "service": service});
        let sample = waiting(Duration::from_millis(1500), &line);
        let expected = GuardSample {
            at_ms: 1500.0,
            accept_qlen: Some(5),
            syn_qlen: Some(2),
            silent: Some(3),
            waiting: Some(40),
            counted: Some(38),
            limit: None,
            answered: Some(900),
        };
        assert_eq!(sample, expected);
        let queues = serde_json::json!({"accept_qlen": null, "syn_qlen": 2, "service": null});
        let expected = GuardSample { syn_qlen: Some(2), ..GuardSample::default() };
        assert_eq!(waiting(Duration::ZERO, &queues), expected);
    }
}
