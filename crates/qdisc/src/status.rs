//! What a qdisc does.

use aqm::{DropCounts, FixedPoint};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::program::types;

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

impl Status {
    pub(crate) fn new(
        interface: &str,
        config: &types::redfavor_config,
        queue: &types::redfavor_queue,
    ) -> Self {
        let waiting = [queue.protected, queue.standard];
        let mut dropped = DropCounts::default();
        for (reason, count) in aqm::DropReason::ALL.into_iter().zip(queue.dropped) {
            dropped.add(reason, count);
        }
        Self {
            interface: interface.to_owned(),
            config: text(&config.words).unwrap_or_default(),
            bits_per_s: (config.bits_per_s != 0).then_some(config.bits_per_s),
            replaced: text(&config.replaced),
            qlen_pkts: waiting.iter().map(|length| length.pkts).sum(),
            qlen_bytes: waiting.iter().map(|length| length.bytes).sum(),
            protected_qlen_pkts: queue.protected.pkts,
            average: FixedPoint::average(queue.red.average),
            arrived: Traffic {
                pkts: queue.arrived_pkts,
                bytes: queue.arrived_bytes,
                protected_pkts: queue.arrived_protected,
            },
            sent: Traffic {
                pkts: queue.sent_pkts,
                bytes: queue.sent_bytes,
                protected_pkts: queue.sent_protected,
            },
            dropped,
            dropped_protected: queue.dropped_protected,
            unallocated: queue.unallocated,
            thrown_away: queue.thrown_away,
        }
    }
}

fn by_name<S: Serializer>(dropped: &DropCounts, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    for (reason, count) in dropped.iter() {
        map.serialize_entry(reason.name(), &count)?;
    }
    map.end()
}

/// `None` if it is empty.
fn text(bytes: &[i8]) -> Option<String> {
    let bytes: Vec<u8> =
        bytes.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}
