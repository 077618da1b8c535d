//! First in, first out; what finds it full is dropped.

use units::Nanos;

use crate::config::{ConfigError, DropTailConfig};
use crate::fifo::Fifo;
use crate::{Amount, Aqm, DropReason, Packet};

/// First in, first out; what finds it full is dropped. As pfifo and bfifo of Linux.
#[derive(Debug, Clone)]
pub struct DropTail<P> {
    limit: Amount,
    fifo: Fifo<P>,
}

impl<P: Packet> DropTail<P> {
    /// An empty queue.
    pub fn new(config: &DropTailConfig) -> Result<Self, ConfigError> {
        config.check("droptail")?;
        Ok(Self { limit: config.limit, fifo: Fifo::default() })
    }
}

impl<P: Packet> Aqm for DropTail<P> {
    type Packet = P;

    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        if self.limit.has_room(self.fifo.qlen_pkts(), self.fifo.qlen_bytes(), packet.bytes()) {
            self.fifo.push(packet);
        } else {
            dropped(packet, DropReason::Tail);
        }
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        self.fifo.pop()
    }

    fn qlen_pkts(&self) -> u32 {
        self.fifo.qlen_pkts()
    }

    fn qlen_bytes(&self) -> u64 {
        self.fifo.qlen_bytes()
    }
}
