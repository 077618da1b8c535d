//! What an emulated bottleneck saw.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `tidegate link` saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkSummary {
    /// How long it ran before anything here was counted, seconds.
    #[serde(default)]
    pub warmup_s: f64,
    /// How long it ran after that, seconds.
    pub elapsed_s: f64,
    /// CPU time of its thread over that, 0 to 1.
    pub cpu_share: f64,
    /// What ended it before its time: an interface that went away. What was counted by then is
    /// here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_by: Option<String>,
    /// From the first interface to the second, and back.
    pub directions: Vec<LinkDirection>,
}

/// One direction of a bottleneck. Packets that arrived, or were inside before, were delivered or
/// dropped, or are still inside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkDirection {
    /// Interface whose frames it takes.
    pub from: String,
    /// Interface that it sends them to.
    pub to: String,
    /// What it was told to be, in the words of `--forward`.
    pub path: String,
    /// How frames are received: xdp-native, xdp-skb or af-packet.
    pub receive_mode: String,
    /// Why not by AF_XDP, where that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_fallback: Option<String>,
    /// Came to its queue.
    pub arrived: PacketCount,
    /// Left it in time.
    pub delivered: PacketCount,
    /// Dropped by the queue discipline or lost by the wire, as told, by cause; causes without a
    /// drop are left out.
    pub drops: BTreeMap<String, u64>,
    /// Went ahead of those before them, as told.
    pub reordered: u64,
    /// Mean length of the queue over time, packets.
    #[serde(default)]
    pub queue_pkts: f64,
    /// Of those that came: they open a connection, as SYN and SYN/ACK do.
    #[serde(default)]
    pub opening: u64,
    /// Of these, those that were dropped or lost.
    #[serde(default)]
    pub opening_drops: u64,
    /// In the queue or on the wire when counting began.
    #[serde(default)]
    pub inside_before: u64,
    /// Still in the queue or on the wire at the end.
    pub inside: u64,
    /// On the links of hosts (`--access`) at the end, before the bottleneck or behind it.
    #[serde(default)]
    pub access_inside: u64,
    /// Dropped or lost by these.
    #[serde(default)]
    pub access_drops: u64,
    /// The tool's own failures: lost before it received them.
    pub lost: u64,
    /// Longer than the other interface's MTU allows: not taken.
    pub too_long: u64,
    /// Not taken as all buffers were in use.
    pub no_buffer: u64,
    /// Delivered, and not taken by the kernel.
    pub unsent: u64,
    /// Frames whose checksum the sender had left to its device, and was written here.
    pub checksums_finished: u64,
    /// Time in the queue.
    pub sojourn: LinkTimes,
    /// How much later than meant frames left.
    pub late: LinkTimes,
}

/// What went between a server and clients that are far away.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathSummary {
    /// What the way from the clients was told to be, in the words of `tidegate link --forward`.
    pub to_server: String,
    /// And the way back.
    pub to_clients: String,
    /// What became of packets in the measured window, `to_server.` or `to_clients.` before:
    /// `arrived` at the near end, `delivered` at the far end, `dropped` by the queue, `lost` by the
    /// wire, `reordered`; `opening` of those that arrived are SYNs or SYN/ACKs, of which
    /// `opening_dropped` were dropped or lost.
    pub counters: BTreeMap<String, u64>,
    /// How much later than meant one in a hundred left, or later, of the worse direction; 0 in
    /// virtual time.
    pub late_p99_ms: f64,
}

/// Packets, and their bytes with Ethernet header and without FCS.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PacketCount {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A distribution of times, to within 1%.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkTimes {
    /// Mean.
    pub mean_ms: f64,
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// Longest.
    pub max_ms: f64,
}
