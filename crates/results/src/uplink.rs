//! What a server's uplink did, and what waited at the server, second by second.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server's uplink within the measured window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UplinkSummary {
    /// Rate of the link, bits/s.
    pub rate_bps: u64,
    /// Frames that the server's TCP sent down.
    pub frames: u64,
    /// Frames that the link sent.
    pub sent: u64,
    /// Bytes that it sent, those of headers included.
    pub sent_bytes: u64,
    /// Bytes of payload among these, what was sent again included.
    pub payload_bytes: u64,
    /// Frames that the device's queue dropped.
    pub dropped: u64,
    /// SYN/ACKs among these.
    pub dropped_opening: u64,
    /// Frames with payload among these.
    pub dropped_data: u64,
    /// Share of the window in which it was sending.
    pub utilisation: f64,
    /// What there was at the end of each second since the crowd's start, the warm-up included.
    pub series: UplinkSeries,
}

/// A number for each second.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UplinkSeries {
    /// Seconds of the warm-up, which come first.
    pub warmup_s: u32,
    /// Connections that the server's program has, or whose end is awaited; without those in the
    /// accept queue.
    pub connections: Vec<u32>,
    /// SYN queue.
    pub syn_qlen: Vec<u32>,
    /// Accept queue.
    pub accept_qlen: Vec<u32>,
    /// SYNs that the kernel dropped in this second.
    pub syns_dropped: Vec<u32>,
    /// Frames that the device's queue dropped in it.
    pub dropped: Vec<u32>,
    /// Bytes that the link sent in it.
    pub sent_bytes: Vec<u32>,
}

impl UplinkSeries {
    /// Most connections in any second of the window.
    pub fn most_connections(&self) -> Option<u32> {
        self.connections.iter().skip(self.warmup_s as usize).copied().max()
    }

    /// Connections at the end of that second since the crowd's start.
    pub fn connections_at(&self, second: u32) -> Option<u32> {
        self.connections.get((second.max(1) - 1) as usize).copied()
    }

    /// In which second since the crowd's start the first SYN was dropped, from 1; `None` if none
    /// was.
    pub fn first_syn_drop(&self) -> Option<u32> {
        self.syns_dropped.iter().position(|dropped| *dropped > 0).map(|place| place as u32 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_counted_from_the_crowds_start_and_the_most_is_of_the_window() {
        let series = UplinkSeries {
            warmup_s: 1,
            connections: vec![9, 2, 5],
            syns_dropped: vec![0, 0, 7],
            ..UplinkSeries::default()
        };
        assert_eq!((series.most_connections(), series.connections_at(1)), (Some(5), Some(9)));
        assert_eq!((series.connections_at(4), series.first_syn_drop()), (None, Some(3)));
        assert_eq!(UplinkSeries::default().first_syn_drop(), None);
    }
}
