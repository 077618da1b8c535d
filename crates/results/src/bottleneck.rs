//! What went through a bottleneck.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The bottleneck of a dumbbell in the measured window, in the direction in which servers send, and
/// the flows that cross it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BottleneckSummary {
    /// Share of the time that something was sent.
    pub utilisation: f64,
    /// Mean length of the queue over time, packets.
    pub queue_pkts: f64,
    /// Packets that came to the queue, without those of a flood.
    pub packets: u64,
    /// Of these, those that it dropped.
    pub drops: u64,
    /// Those by reason, as `early` or `pushed-out`.
    pub drops_by_reason: BTreeMap<String, u64>,
    /// Packets that the wire lost.
    pub lost: u64,
    /// Packets with SYN that came to the queue.
    pub opening: u64,
    /// Of these, those that were dropped.
    pub opening_drops: u64,
    /// Drops of objects' packets: their number in the flow, 0 for SYN and SYN/ACK, and how many.
    /// `None` of a real link, which does not follow flows.
    #[serde(default)]
    pub drops_by_number: Option<Vec<(u32, u64)>>,
    /// SYNs of a flood that came to the queue.
    pub flood: u64,
    /// Of these, those that were dropped.
    pub flood_drops: u64,
    /// Bytes that receivers got in order, per second.
    pub goodput_bytes_per_s: f64,
    /// The same of each bulk flow from a server.
    pub bulk_bytes_per_s: Vec<f64>,
    /// Objects that were asked for.
    pub objects: u64,
    /// Of these, those that had come by the end.
    pub objects_done: u64,
    /// Of these, the share that had come so many milliseconds after their first SYN.
    pub done_by_ms: Vec<(f64, f64)>,
    /// Mean time of objects by their size: at least so many packets, as many objects, milliseconds.
    pub mean_by_pkts: Vec<(u32, u64, f64)>,
    /// Initial retransmission timeout, milliseconds.
    pub initial_rto_ms: f64,
}

impl BottleneckSummary {
    /// Share of the packets that the queue dropped; `None` when there were none.
    pub fn drop_share(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.drops as f64 / self.packets as f64)
    }

    /// Share of the objects that took from so long to so long, milliseconds; `None` when there were
    /// none.
    pub fn share_between(&self, from_ms: f64, to_ms: f64) -> Option<f64> {
        (self.objects_done > 0).then(|| self.share_by(to_ms) - self.share_by(from_ms))
    }

    /// Share of the objects that had come by then; linear between the points that are kept.
    pub fn share_by(&self, ms: f64) -> f64 {
        let mut before = (0.0, 0.0);
        for &(at, share) in &self.done_by_ms {
            if at >= ms {
                let part = if at > before.0 { (ms - before.0) / (at - before.0) } else { 1.0 };
                return before.1 + part * (share - before.1);
            }
            before = (at, share);
        }
        before.1
    }

    /// Mean time of objects from so many packets on up to fewer than so many, milliseconds; `None`
    /// when there were none.
    pub fn mean_between(&self, from_pkts: u32, to_pkts: u32) -> Option<f64> {
        let of = self.mean_by_pkts.iter().filter(|(pkts, ..)| (from_pkts..to_pkts).contains(pkts));
        let (count, sum) = of.fold((0, 0.0), |(count, sum), (_, objects, mean)| {
            (count + objects, sum + *objects as f64 * mean)
        });
        (count > 0).then(|| sum / count as f64)
    }

    /// Drops of objects' packets with these numbers; `None` where packets were not numbered.
    pub fn drops_between(&self, from: u32, to: u32) -> Option<u64> {
        let of = self.drops_by_number.as_ref()?.iter().filter(|(number, _)| (from..to).contains(number));
        Some(of.map(|(_, drops)| drops).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_means_are_of_what_lies_between() {
        let link = BottleneckSummary {
            objects_done: 10,
            done_by_ms: vec![(100.0, 0.2), (200.0, 0.6), (300.0, 1.0)],
            mean_by_pkts: vec![(1, 3, 10.0), (10, 1, 50.0), (100, 1, 900.0)],
            drops_by_number: Some(vec![(0, 4), (1, 2), (10, 1)]),
            ..BottleneckSummary::default()
        };
        let share = |from, to| link.share_between(from, to).expect("there are objects");
        assert!((share(0.0, 100.0) - 0.2).abs() < 1e-9 && (share(150.0, 1000.0) - 0.6).abs() < 1e-9);
        assert_eq!(link.mean_between(1, 100), Some(20.0));
        assert_eq!(link.mean_between(2, 10), None);
        assert_eq!((link.drops_between(0, 1), link.drops_between(1, 10)), (Some(4), Some(2)));
        let of_a_real_link = BottleneckSummary { drops: 3, ..BottleneckSummary::default() };
        assert_eq!(of_a_real_link.drops_between(0, 10), None);
        assert_eq!(BottleneckSummary::default().share_between(0.0, 1.0), None);
    }
}
