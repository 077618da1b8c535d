//! Packets in their order, with their sum.

use std::collections::VecDeque;

use crate::Packet;

/// A queue without a limit of its own. Its memory is that of the longest it has been.
#[derive(Debug, Clone)]
pub(crate) struct Fifo<P> {
    packets: VecDeque<P>,
    bytes: u64,
}

impl<P> Default for Fifo<P> {
    fn default() -> Self {
        Self { packets: VecDeque::new(), bytes: 0 }
    }
}

impl<P: Packet> Fifo<P> {
    pub(crate) fn push(&mut self, packet: P) {
        self.bytes += u64::from(packet.bytes());
        self.packets.push_back(packet);
    }

    pub(crate) fn pop(&mut self) -> Option<P> {
        let packet = self.packets.pop_front();
        self.without(packet)
    }

    pub(crate) fn pop_last(&mut self) -> Option<P> {
        let packet = self.packets.pop_back();
        self.without(packet)
    }

    /// Takes out a packet from between others, which move together.
    pub(crate) fn remove(&mut self, index: usize) -> Option<P> {
        let packet = self.packets.remove(index);
        self.without(packet)
    }

    fn without(&mut self, packet: Option<P>) -> Option<P> {
        self.bytes -= packet.as_ref().map_or(0, |packet| u64::from(packet.bytes()));
        packet
    }

    pub(crate) fn get(&self, index: usize) -> Option<&P> {
        self.packets.get(index)
    }

    pub(crate) fn first(&self) -> Option<&P> {
        self.packets.front()
    }

    pub(crate) fn last(&self) -> Option<&P> {
        self.packets.back()
    }

    pub(crate) fn qlen_pkts(&self) -> u32 {
        self.packets.len() as u32
    }

    pub(crate) fn qlen_bytes(&self) -> u64 {
        self.bytes
    }
}
