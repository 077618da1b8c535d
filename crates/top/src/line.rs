//! The lines of a guard, as its socket and `guard --json` have them.
//!
//! A guard of another version may say more, which is not read, or less, which is not shown.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The first line of a socket: who speaks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// As `tidegate --version` has it.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Inode number of the network namespace that it guards.
    pub netns: u64,
    /// As its `--netns` names that.
    #[serde(default)]
    pub netns_name: Option<String>,
}

impl Hello {
    /// As JSON, without the line's end.
    pub fn line(&self) -> String {
        let mut line = serde_json::to_value(self).expect("texts and numbers are JSON");
        line["event"] = "hello".into();
        line.to_string()
    }
}

/// A line, told apart by its `event` key.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum Line {
    Hello(Hello),
    Attached(Attached),
    #[serde(alias = "final")]
    Sample(Box<Sample>),
    #[serde(other)]
    Unknown,
}

/// Where a listener is guarded.
#[derive(Debug, Deserialize)]
pub(crate) struct Attached {
    #[serde(flatten)]
    pub head: Head,
    #[serde(default)]
    pub hooks: Vec<Place>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Place {
    pub interface: String,
    pub hook: String,
    /// Programs of others that see each frame first.
    #[serde(default)]
    pub before: Vec<Other>,
}

/// As in `eth0 (tcx, behind cilium 17)`.
impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |of: &Other| format!("{} {}", of.name.as_deref().unwrap_or("program"), of.id);
        let before: Vec<String> = self.before.iter().map(name).collect();
        let behind =
            if before.is_empty() { String::new() } else { format!(", behind {}", before.join(", ")) };
        write!(f, "{} ({}{behind})", self.interface, self.hook)
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Other {
    pub id: u32,
    pub name: Option<String>,
}

/// A listener as it is configured.
#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Head {
    pub listen: String,
    #[serde(default)]
    pub elapsed_s: f64,
    #[serde(default)]
    pub policy: Option<String>,
    #[serde(default)]
    pub reserved_slots: u32,
    #[serde(default)]
    pub dry_run: bool,
}

/// What was counted at a listener by now.
#[derive(Debug, Deserialize)]
pub(crate) struct Sample {
    #[serde(flatten)]
    pub head: Head,
    pub accept_qlen: Option<u64>,
    pub accept_limit: Option<u64>,
    pub syn_qlen: Option<u64>,
    pub syn_limit: Option<u64>,
    #[serde(default)]
    pub blind: bool,
    pub service: Option<Service>,
    /// Of a listener that is only observed; so are `counters`.
    pub drops: Option<u64>,
    pub counters: Option<Map<String, Value>>,
    #[serde(default)]
    pub syns: BTreeMap<String, u64>,
    #[serde(default)]
    pub acks: BTreeMap<String, u64>,
    #[serde(default)]
    pub fins: BTreeMap<String, u64>,
    #[serde(default)]
    pub passed: BTreeMap<String, u64>,
}

/// Connections of a server, and sums.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Service {
    pub silent: Option<u64>,
    pub waiting: Option<u64>,
    pub counted: Option<u64>,
    pub limit: Option<u64>,
    pub learning: bool,
    pub follows_one_in: Option<u64>,
    pub answered: Option<u64>,
    pub answered_in_turn: Option<u64>,
    pub ended: Option<u64>,
    pub idle_time_s: Option<f64>,
    pub response_time_s: Option<f64>,
    pub response_floor_s: Option<f64>,
    pub response_buckets: Vec<Bucket>,
    pub handshake_median_s: Option<f64>,
    pub completed_share: Option<f64>,
}

/// How many took up to a bound.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(crate) struct Bucket {
    pub le_s: f64,
    pub count: u64,
}
