//! What a qdisc does.

use aqm::DropCounts;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

/// What a qdisc does, since it was made: arrived = sent + dropped + unallocated + thrown away + waiting.
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
    /// Protected packets of these.
    pub protected_qlen_pkts: u64,
    /// RED's average as of the last arrival, in packets, or bytes if the thresholds are.
    pub average: f64,
    /// All that came.
    pub arrived: Traffic,
    /// All that left.
    pub sent: Traffic,
    /// By reason, packets.
    #[serde(serialize_with = "by_name")]
    pub dropped: DropCounts,
    /// Protected packets of these.
    pub dropped_protected: u64,
    /// Packets that were dropped as the kernel had no memory to queue them.
    pub unallocated: u64,
    /// Packets that waited while the interface was put down.
    pub thrown_away: u64,
}

/// Packets, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// All.
    pub pkts: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: u64,
    /// Packets that were protected.
    pub protected_pkts: u64,
}

fn by_name<S: Serializer>(dropped: &DropCounts, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (reason, count) in dropped.iter() {
        map.serialize_entry(reason.name(), &count)?;
    }
    map.end()
}
