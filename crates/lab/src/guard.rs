//! The guard of a testbed's server, by `tidegate guard`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

use crate::child::Running;
use crate::policy::Policy;
use crate::testbed::Testbed;

/// How long loading and verifying the programs may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a guard counted by a moment.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// Since its start.
    elapsed_s: f64,
    /// Counter -> count since its start.
    pub counts: BTreeMap<String, u64>,
}

/// Starts the guard of a policy, if it has one; its programs are attached when this returns.
pub fn start(policy: &Policy, testbed: &Testbed, program: &Path) -> Result<Option<Running>> {
    let Some(name) = &policy.guard else { return Ok(None) };
    let mut command = testbed.server.command(program)?;
    command.args(["guard", "--json", "--policy", name]);
    for interface in &testbed.server_interfaces {
        command.args(["--interface", interface]);
    }
    command.args(["--listen", &testbed.server_address().to_string()]);
    if policy.dry_run {
        command.arg("--dry-run");
    }
    let mut running = Running::start("tidegate guard", &mut command)?;
    running.wait_for("attached", PATIENCE)?;
    Ok(Some(running))
}

/// What it said in the last second; `None` if it has said nothing since it was asked before.
pub fn ask(running: &Running) -> Option<Said> {
    running.latest("sample").map(|line| said(&line))
}

/// Ends a guard and gives what it counted.
pub fn finish(mut running: Running) -> Result<Said> {
    running.terminate();
    Ok(said(&running.wait_for("final", PATIENCE)?))
}

/// How fast its counters grew from one moment to another, per second.
pub fn growth_per_s(from: &Said, to: &Said) -> BTreeMap<String, f64> {
    let span_s = (to.elapsed_s - from.elapsed_s).max(1e-3);
    let before = |name: &String| from.counts.get(name).copied().unwrap_or(0);
    let growth =
        |(name, count): (&String, &u64)| (name.clone(), count.saturating_sub(before(name)) as f64 / span_s);
    to.counts.iter().map(growth).collect()
}

fn said(line: &Value) -> Said {
    let groups = ["syns", "acks", "fins", "passed"]
        .into_iter()
        .filter_map(|group| Some((group, line[group].as_object()?)));
    let counts =
        groups.flat_map(|(group, counts)| counts.iter().map(move |(name, value)| (group, name, value)));
    let counts = counts.filter_map(|(group, name, value)| Some((format!("{group}.{name}"), value.as_u64()?)));
    Said { elapsed_s: line["elapsed_s"].as_f64().unwrap_or(0.0), counts: counts.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_of_counters_by_group_over_the_time_between() {
        let line = |elapsed_s, full| {
            said(&serde_json::json!({"elapsed_s": elapsed_s, "acks": {"full": full}, "syn_qlen": 7}))
        };
        let growth = growth_per_s(&line(1.0, 100), &line(3.0, 500));
        assert_eq!(growth, [("acks.full".to_owned(), 200.0)].into());
        assert_eq!(growth_per_s(&Said::default(), &line(2.0, 500))["acks.full"], 250.0);
    }
}
