//! What a qdisc does.

use aqm::DropCounts;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// What a qdisc does, since it was made: arrived = sent + dropped + unallocated + thrown away +
/// waiting.
///
/// The kernel goes on while it is read, so the sum may be off by a packet that is under way.
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Of which interface.
    pub interface: String,
    /// With all parameters, as `redfavor:limit=100,...`.
    pub config: String,
    /// That it sends at most; `None`: as fast as the interface takes it.
    pub bits_per_s: Option<u64>,
    /// What tc said of the qdisc that was replaced, if somebody had made one.
    pub replaced: Option<String>,
    /// Packets that wait.
    pub qlen_pkts: u64,
    /// Bytes that wait.
    pub qlen_bytes: u64,
    /// All that came.
    pub arrived: Traffic,
    /// All that left.
    pub sent: Traffic,
    /// By reason, packets.
    #[serde(serialize_with = "by_reason")]
    pub dropped: DropCounts,
    /// Packets that were dropped as the kernel had no memory to queue them.
    pub unallocated: u64,
    /// Packets that waited while the interface was put down.
    pub thrown_away: u64,
    /// Bytes of the packets of the last three: arrived = sent + lost + waiting.
    pub lost_bytes: u64,
    /// What this discipline has besides.
    #[serde(flatten)]
    pub own: Own,
}

/// Packets, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// All.
    pub pkts: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: u64,
}

/// What a discipline has that others do not.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Own {
    /// `redfavor`.
    RedFavor(Protection),
    /// `srpt` and `las`.
    Ranked(Order),
}

/// What REDFavor protects, packets.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Protection {
    /// RED's average as of the last arrival, in packets, or bytes if the thresholds are.
    pub average: f64,
    /// That wait.
    pub protected_qlen_pkts: u64,
    /// That came.
    pub arrived_protected: u64,
    /// That left.
    pub sent_protected: u64,
    /// That were dropped.
    pub dropped_protected: u64,
}

/// What puts flows in their order.
#[derive(Debug, Clone, Serialize)]
pub struct Order {
    /// That have packets.
    pub flows: u64,
    /// Sources of sizes that are at work, the best first.
    pub sources: Vec<&'static str>,
    /// Those that the discipline would use and this host does not have.
    pub missing: Vec<&'static str>,
    /// Packets that came, by how their place was known: a source, `no-data` of what carries no data
    /// of a connection of this host, or `untold` of what `tell` has not seen.
    #[serde(serialize_with = "by_name")]
    pub placed_by: Vec<(&'static str, u64)>,
}

fn by_reason<S: Serializer>(dropped: &DropCounts, serializer: S) -> Result<S::Ok, S::Error> {
    by_name(&dropped.iter().map(|(reason, count)| (reason.name(), count)).collect::<Vec<_>>(), serializer)
}

fn by_name<S: Serializer>(counts: &[(&'static str, u64)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (name, count) in counts {
        map.serialize_entry(name, count)?;
    }
    map.end()
}
