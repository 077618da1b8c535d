//! SRPT and LAS: one flow is served before another, by what its response still has to send or has
//! sent.
//!
//! # The rules
//!
//! They are written so that another implementation, a qdisc in BPF, can decide the same. All
//! numbers are unsigned integers of 64 bits; nothing depends on the time.
//!
//! 1. Packets are numbered as they arrive, from 0 on, those that are dropped, too.
//! 2. A packet's **rank** is, under `srpt`, its [`Packet::left`], or its [`Packet::attained`] where
//!    what is left is not known; under `las` it is its [`Packet::attained`]. It is asked once, at
//!    arrival.
//! 3. Packets of one [`Packet::flow`] wait in the order of their arrival. A flow's **key** is rank
//!    and number of its first packet. Keys are compared by rank, and if that is equal by number. No
//!    two flows have the same key.
//! 4. *Dequeue*: the first packet of the flow with the least key.
//! 5. *Enqueue*, in this order:
//!    1. If the packet's flow has `flow_limit` packets that wait, the packet is dropped
//!       ([`DropReason::FlowLimit`]).
//!    2. If `limit` packets wait, the flow with the greatest key gives one up. If the packet's flow
//!       has packets that wait, it takes part with its key, and otherwise with the key that it
//!       would have: rank and number of this packet. If the greatest key is that of the packet's
//!       flow, the packet is dropped ([`DropReason::Tail`]). If not, the last packet of the flow
//!       with the greatest key is dropped ([`DropReason::PushedOut`]).
//!    3. The packet goes behind those of its flow.
//!
//! So a flow's place follows its first packet. A flow that is promoted while its packets wait does
//! not overtake itself. Of flows with equal rank the one whose first packet came first goes first:
//! where nothing is known this is first in, first out.
//!
//! Bytes attained stand in for bytes left because the largest responses are much larger than the
//! others (`[SH06]` section 2.2): of such sizes, the more was sent, the more is expected to follow.

use std::cmp::Reverse;
use std::collections::HashMap;

use units::Nanos;

use crate::arena::{Arena, Chain};
use crate::config::{ConfigError, RankedConfig};
use crate::heap::Heap;
use crate::{Aqm, DropReason, Packet};

/// SRPT, shortest remaining processing time, or LAS, least attained service.
///
/// SRPT serves the flow whose response has the fewest bytes left; LAS, also called
/// foreground-background, the one whose response has sent the fewest. The rules are in `ranked.rs`.
/// Both preempt after each packet, and take O(log n) time for a packet with n flows.
///
/// Source: `[SH06]` section 1 for SRPT, on packets instead of bands; the fallback and the limits
/// are ours.
#[derive(Debug, Clone)]
pub struct Ranked<P> {
    by: By,
    limit: u32,
    flow_limit: u32,
    arena: Arena<Numbered<P>>,
    /// Flows that have packets, by the hash that these say.
    numbers: HashMap<u32, u32>,
    flows: Vec<Flow>,
    /// Numbers of flows that have no packets.
    free: Vec<u32>,
    least: Heap<FlowKey>,
    greatest: Heap<Reverse<FlowKey>>,
    arrived: u64,
    qlen_pkts: u32,
    qlen_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Left,
    Attained,
}

/// Place of a flow among the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct FlowKey {
    rank: u64,
    number: u64,
}

#[derive(Debug, Clone)]
struct Numbered<P> {
    packet: P,
    key: FlowKey,
}

#[derive(Debug, Clone)]
struct Flow {
    hash: u32,
    packets: Chain,
    qlen_pkts: u32,
}

impl<P: Packet> Ranked<P> {
    /// An empty queue in the order of SRPT.
    pub fn srpt(config: &RankedConfig) -> Result<Self, ConfigError> {
        config.check("srpt")?;
        Ok(Self::new(By::Left, config))
    }

    /// An empty queue in the order of LAS.
    pub fn las(config: &RankedConfig) -> Result<Self, ConfigError> {
        config.check("las")?;
        Ok(Self::new(By::Attained, config))
    }

    fn new(by: By, config: &RankedConfig) -> Self {
        Self {
            by,
            limit: config.limit_pkts,
            flow_limit: config.flow_limit_pkts,
            arena: Arena::default(),
            numbers: HashMap::new(),
            flows: Vec::new(),
            free: Vec::new(),
            least: Heap::default(),
            greatest: Heap::default(),
            arrived: 0,
            qlen_pkts: 0,
            qlen_bytes: 0,
        }
    }

    fn rank(&self, packet: &P) -> u64 {
        match self.by {
            By::Left => packet.left().unwrap_or_else(|| packet.attained()),
            By::Attained => packet.attained(),
        }
    }

    /// The flow that would give up a packet for one more of the flow with that key, if it is
    /// another.
    fn behind(&self, own: FlowKey) -> Option<u32> {
        let (Reverse(greatest), flow) = self.greatest.first()?;
        (own < greatest).then_some(flow)
    }

    fn key(&self, flow: u32) -> Option<FlowKey> {
        Some(self.flows[flow as usize].packets.first(&self.arena)?.key)
    }

    fn open(&mut self, hash: u32) -> u32 {
        let flow = self.free.pop().unwrap_or_else(|| {
            self.flows.push(Flow { hash, packets: Chain::EMPTY, qlen_pkts: 0 });
            self.flows.len() as u32 - 1
        });
        self.flows[flow as usize].hash = hash;
        self.numbers.insert(hash, flow);
        flow
    }

    fn push(&mut self, number: u32, packet: P, key: FlowKey) {
        self.qlen_pkts += 1;
        self.qlen_bytes += u64::from(packet.bytes());
        let flow = &mut self.flows[number as usize];
        flow.qlen_pkts += 1;
        let is_first = flow.packets.is_empty();
        flow.packets.push(&mut self.arena, Numbered { packet, key });
        if is_first {
            self.least.set(number, key);
            self.greatest.set(number, Reverse(key));
        }
    }

    /// The first packet of a flow.
    fn pop(&mut self, number: u32) -> Option<P> {
        let taken = self.flows[number as usize].packets.pop(&mut self.arena);
        let packet = self.without(number, taken)?;
        if let Some(key) = self.key(number) {
            self.least.set(number, key);
            self.greatest.set(number, Reverse(key));
        }
        Some(packet)
    }

    fn pop_last(&mut self, number: u32) -> Option<P> {
        let taken = self.flows[number as usize].packets.pop_last(&mut self.arena);
        self.without(number, taken)
    }

    /// Counts a packet that was taken from a flow, and forgets the flow if it was the only one.
    fn without(&mut self, number: u32, taken: Option<Numbered<P>>) -> Option<P> {
        let Numbered { packet, .. } = taken?;
        self.qlen_pkts -= 1;
        self.qlen_bytes -= u64::from(packet.bytes());
        let flow = &mut self.flows[number as usize];
        flow.qlen_pkts -= 1;
        if flow.packets.is_empty() {
            self.numbers.remove(&flow.hash);
            self.free.push(number);
            self.least.remove(number);
            self.greatest.remove(number);
        }
        Some(packet)
    }
}

impl<P: Packet> Aqm for Ranked<P> {
    type Packet = P;

    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        let key = FlowKey { rank: self.rank(&packet), number: self.arrived };
        self.arrived += 1;
        let hash = packet.flow();
        let flow = self.numbers.get(&hash).copied();
        if flow.is_some_and(|flow| self.flows[flow as usize].qlen_pkts >= self.flow_limit) {
            return dropped(packet, DropReason::FlowLimit);
        }
        if self.qlen_pkts >= self.limit {
            let own = flow.and_then(|flow| self.key(flow)).unwrap_or(key);
            match self.behind(own).and_then(|behind| self.pop_last(behind)) {
                Some(last) => dropped(last, DropReason::PushedOut),
                None => return dropped(packet, DropReason::Tail),
            }
        }
        let flow = flow.unwrap_or_else(|| self.open(hash));
        self.push(flow, packet, key);
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        let (_, flow) = self.least.first()?;
        self.pop(flow)
    }

    fn qlen_pkts(&self) -> u32 {
        self.qlen_pkts
    }

    fn qlen_bytes(&self) -> u64 {
        self.qlen_bytes
    }
}
