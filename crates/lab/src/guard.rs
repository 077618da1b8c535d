//! The guard of a testbed's server, by `tidegate guard`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::child::Running;
use crate::testbed::{SERVER_INTERFACE, Testbed};

/// How long loading and verifying the programs may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Starts a guard; its programs are attached when this returns.
pub fn start(policy: &str, testbed: &Testbed, program: &Path) -> Result<Running> {
    let mut command = testbed.server.command(program)?;
    command.args(["guard", "--json", "--policy", policy, "--interface", SERVER_INTERFACE]);
    command.args(["--listen", &testbed.server_address().to_string()]);
    let mut running = Running::start("tidegate guard", &mut command)?;
    running.wait_for("attached", PATIENCE)?;
    Ok(running)
}

/// Ends a guard and gives what it counted.
pub fn finish(mut running: Running) -> Result<BTreeMap<String, u64>> {
    running.terminate();
    let last = running.wait_for("final", PATIENCE)?;
    let groups = ["syns", "acks", "fins", "passed"]
        .into_iter()
        .filter_map(|group| Some((group, last[group].as_object()?)));
    let counts =
        groups.flat_map(|(group, counts)| counts.iter().map(move |(name, value)| (group, name, value)));
    Ok(counts.filter_map(|(group, name, value)| Some((format!("{group}.{name}"), value.as_u64()?))).collect())
}
