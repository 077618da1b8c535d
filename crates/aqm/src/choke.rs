//! CHOKe: RED that punishes flows which fill the queue, without a state for each.

use units::Nanos;

use crate::arithmetic::{self, RandomNumbers};
use crate::config::{ConfigError, RedConfig};
use crate::fifo::Fifo;
use crate::{Amount, Aqm, DropReason, Packet};

/// CHOose and Keep for responsive flows: from RED's minimum on, a packet that arrives is compared
/// with one drawn from the queue. If both are of one flow, both are dropped; otherwise RED decides.
///
/// Source: R. Pan, B. Prabhakar and K. Psounis, INFOCOM 2000. A packet that is dropped from between
/// others costs time in proportion to the queue's length.
#[derive(Debug, Clone)]
pub struct Choke<P> {
    limit: Amount,
    fifo: Fifo<P>,
    red: arithmetic::Red,
    random: RandomNumbers,
}

impl<P: Packet> Choke<P> {
    /// An empty queue, which has long been idle.
    pub fn new(config: &RedConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check("choke")?;
        Ok(Self {
            limit: config.limit,
            fifo: Fifo::default(),
            red: arithmetic::Red::new(config),
            random: RandomNumbers::new(seed),
        })
    }

    /// The average length as of the last arrival, in packets, or bytes if the thresholds are.
    pub fn average(&self) -> f64 {
        self.red.average()
    }

    /// Where a packet that was drawn stands, if it is of that flow.
    fn draw_of_flow(&mut self, flow: u32) -> Option<usize> {
        let index = self.random.below(self.fifo.qlen_pkts()) as usize;
        (self.fifo.get(index)?.flow() == flow).then_some(index)
    }
}

impl<P: Packet> Aqm for Choke<P> {
    type Packet = P;

    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        let (qlen_pkts, qlen_bytes) = (self.fifo.qlen_pkts(), self.fifo.qlen_bytes());
        let random = self.random.next_u32();
        let qlen = self.red.qlen(qlen_pkts, qlen_bytes);
        let is_at_stake = self.red.update(qlen, now);
        if is_at_stake && let Some(index) = self.draw_of_flow(packet.flow()) {
            dropped(packet, DropReason::ChokeMatch);
            dropped(self.fifo.remove(index).expect("it was drawn from there"), DropReason::ChokeMatch);
            if self.is_empty() {
                self.red.left_empty(now);
            }
        } else if let Some(reason) = self.red.decide(qlen, packet.bytes(), random) {
            dropped(packet, reason);
        } else if self.limit.has_room(qlen_pkts, qlen_bytes, packet.bytes()) {
            self.fifo.push(packet);
        } else {
            dropped(packet, DropReason::Tail);
        }
    }

    fn dequeue(&mut self, now: Nanos, _dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        let packet = self.fifo.pop()?;
        if self.is_empty() {
            self.red.left_empty(now);
        }
        Some(packet)
    }

    fn qlen_pkts(&self) -> u32 {
        self.fifo.qlen_pkts()
    }

    fn qlen_bytes(&self) -> u64 {
        self.fifo.qlen_bytes()
    }
}
