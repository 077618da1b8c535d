//! Who comes: what an experiment file says of its clients.

use std::num::NonZeroU8;
use std::time::Duration;

use crowd::{Abort, Stacks};
use ipnet::Ipv4Net;
use serde::{Deserialize, Deserializer};
use tcp::Close;
use traffic::Arrivals;
use units::Nanos;

use crate::bursts::Bursts;
use crate::demand::Demand;
use crate::ports::{First, LoopText, time_wait};
use crate::time::{LONGEST, duration, some_duration};
use crate::workload::WorkloadText;

/// What the clients do.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrowdSpec {
    /// Network of the source addresses, IPv4.
    #[serde(default = "default_clients")]
    pub clients: Ipv4Net,
    /// How long a user waits for the reply.
    #[serde(deserialize_with = "duration")]
    pub timeout: Duration,
    /// `fin`, `rst`, or `swap`: LAST_ACK_SWAP of `[FTY97]`.
    #[serde(with = "CloseText")]
    pub close: Close,
    /// `poisson` or `fixed`.
    #[serde(with = "ArrivalsText")]
    pub arrivals: Arrivals,
    /// In bursts with gaps between them, the first with the warm-up; else evenly.
    pub bursts: Option<Bursts>,
    /// The bandwidth that they ask for over time, the first period with the warm-up.
    pub demand: Option<Demand>,
    /// Their systems, as `{ linux = 0.6, windows-10 = 0.4 }`; Linux if left out, or in virtual time
    /// what the profile says.
    pub stacks: Option<Stacks>,
    /// What they ask for: a workload's name or table; the server's page if left out.
    #[serde(default)]
    pub workload: WorkloadText,
    /// Users who stop waiting, and reload.
    #[serde(default, deserialize_with = "some_abort")]
    pub abort: Option<Abort>,
    /// Requests that a connection carries at most, of one user after the other.
    #[serde(default = "a_connection_each")]
    pub reuse: NonZeroU8,
    /// Who closes first.
    #[serde(default)]
    pub first: First,
    /// Users who come back as soon as they are answered, in place of a rate: loads are multiples of
    /// how many.
    #[serde(rename = "loop")]
    pub closed_loop: Option<LoopText>,
    /// Ports of each address, which come back; without, each connection has a four-tuple of its
    /// own, and clients have no TIME_WAIT.
    pub ports: Option<u16>,
    /// How long a port is in TIME_WAIT at the client.
    #[serde(default = "time_wait", deserialize_with = "duration")]
    pub time_wait: Duration,
    /// From then on it is used again all the same, where the connection had timestamps:
    /// `net.ipv4.tcp_tw_reuse`, whose time is 1 s.
    #[serde(default, deserialize_with = "some_duration")]
    pub tw_reuse_after: Option<Duration>,
    /// The address is a NAT's, which knows no TIME_WAIT.
    #[serde(default)]
    pub nat: bool,
}

pub(crate) fn a_connection_each() -> NonZeroU8 {
    NonZeroU8::MIN
}

impl CrowdSpec {
    /// The mean over bursts and gaps of a crowd with such a rate, attempts/s.
    pub fn mean_rate(&self, rate: f64) -> f64 {
        self.bursts.map_or(rate, |bursts| bursts.mean_rate(rate))
    }
}

/// Users who do not wait any longer, as a table.
#[derive(Deserialize)]
#[serde(remote = "Abort", deny_unknown_fields)]
struct AbortText {
    #[serde(deserialize_with = "nanos")]
    after: Nanos,
    reloads: u8,
}

fn nanos<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    duration(deserializer).map(Nanos::from)
}

/// A table [`Abort`] that may be left out.
pub(crate) fn some_abort<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Abort>, D::Error> {
    AbortText::deserialize(deserializer).map(Some)
}

/// Whether a clock of milliseconds can tell it, in an hour.
///
/// # Errors
///
/// One line about `key`, the name of the table.
pub(crate) fn check_abort(key: &str, abort: Option<Abort>) -> Result<(), String> {
    let Some(after) = abort.map(|abort| Duration::from(abort.after)) else { return Ok(()) };
    match (Duration::from_millis(1)..=LONGEST).contains(&after) {
        true => Ok(()),
        false => Err(format!("{key}.after = {after:?}: from 1ms to 1h; 8s is usual")),
    }
}

/// How connections are closed, in a word.
#[derive(Deserialize)]
#[serde(remote = "Close", rename_all = "kebab-case")]
enum CloseText {
    Fin,
    #[serde(rename = "rst")]
    Reset,
    Swap,
}

/// The word that may be left out.
pub(crate) fn some_close<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Close>, D::Error> {
    CloseText::deserialize(deserializer).map(Some)
}

/// How attempts follow each other, in a word.
#[derive(Deserialize)]
#[serde(remote = "Arrivals", rename_all = "kebab-case")]
enum ArrivalsText {
    Poisson,
    Fixed,
}

fn default_clients() -> Ipv4Net {
    "10.77.0.0/16".parse().expect("a network")
}
