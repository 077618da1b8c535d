//! Who comes: what an experiment file says of its clients.

use std::time::Duration;

use crowd::Stacks;
use ipnet::Ipv4Net;
use serde::Deserialize;
use traffic::Workload;

use super::{LONGEST, duration};
use crate::bursts::Bursts;

/// What the clients do.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crowd {
    /// Network of the source addresses, IPv4.
    #[serde(default = "default_clients")]
    pub clients: Ipv4Net,
    /// How long a user waits for the reply.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// `fin` or `rst`.
    pub close: Close,
    /// `poisson` or `fixed`.
    pub arrivals: Arrivals,
    /// In bursts with gaps between them, the first with the warm-up; else evenly.
    pub bursts: Option<Bursts>,
    /// Their systems, as `{ linux = 0.6, windows-10 = 0.4 }`; Linux if left out, or in virtual time what the profile says.
    pub stacks: Option<Stacks>,
    /// What they ask for: a workload's name or table; the server's page if left out.
    #[serde(default)]
    pub workload: WorkloadText,
    /// Users who stop waiting, and reload.
    pub abort: Option<Abort>,
}

/// Users who do not wait any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// How long a reply may take.
    #[serde(deserialize_with = "duration")]
    pub after: Duration,
    /// How often they load the page again.
    pub reloads: u8,
}

impl Abort {
    /// Whether a clock of milliseconds can tell it, in an hour.
    ///
    /// # Errors
    ///
    /// One line about `key`, the name of the table.
    pub fn check(self, key: &str) -> Result<(), String> {
        match (Duration::from_millis(1)..=LONGEST).contains(&self.after) {
            true => Ok(()),
            false => Err(format!("{key}.after = {:?}: from 1ms to 1h; 8s is usual", self.after)),
        }
    }
}

/// A workload as `tidegate load --workload` takes it. Deserializes from a name or a table.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct WorkloadText(pub String);

impl Default for WorkloadText {
    fn default() -> Self {
        Self("one-packet".to_owned())
    }
}

impl WorkloadText {
    /// What it means.
    pub fn workload(&self) -> Workload {
        traffic::parse_workload(&self.0).expect("checked when the experiment was read")
    }
}

impl TryFrom<toml::Value> for WorkloadText {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let text = match value {
            toml::Value::String(name) => name,
            table => table.to_string(),
        };
        traffic::parse_workload(&text)?;
        Ok(Self(text))
    }
}

/// How connections are closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Close {
    /// close(2).
    Fin,
    /// Abortive.
    Rst,
}

/// How attempts follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Independent users.
    Poisson,
    /// Even gaps.
    Fixed,
}

fn default_clients() -> Ipv4Net {
    "10.77.0.0/16".parse().expect("a network")
}
