//! Random Early Detection.

use units::Nanos;

use crate::arithmetic::{self, RandomNumbers};
use crate::config::{ConfigError, RedConfig};
use crate::fifo::Fifo;
use crate::{Amount, Aqm, DropReason, Packet};

/// Random Early Detection: packets that arrive are dropped by chance, the more of them the longer
/// the queue is on the average.
///
/// Sources: `[FJ93]`, and `[Floyd 2000]` for gentle. The arithmetic is `kernel/red.h`. What RED
/// takes and finds the queue full is dropped as [`DropReason::Tail`].
#[derive(Debug, Clone)]
pub struct Red<P> {
    limit: Amount,
    fifo: Fifo<P>,
    red: arithmetic::Red,
    random: RandomNumbers,
}

impl<P: Packet> Red<P> {
    /// An empty queue, which has long been idle.
    pub fn new(config: &RedConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check("red")?;
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
}

impl<P: Packet> Aqm for Red<P> {
    type Packet = P;

    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        let (qlen_pkts, qlen_bytes) = (self.fifo.qlen_pkts(), self.fifo.qlen_bytes());
        let random = self.random.next_u32();
        let qlen = self.red.qlen(qlen_pkts, qlen_bytes);
        self.red.update(qlen, now);
        if let Some(reason) = self.red.decide(qlen, packet.bytes(), random) {
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
