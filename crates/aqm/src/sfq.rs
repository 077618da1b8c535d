//! Stochastic Fairness Queueing, as Linux has it.

use std::cmp::Reverse;

use units::Nanos;

use crate::arena::{Arena, Chain};
use crate::config::{ConfigError, SfqConfig};
use crate::heap::Heap;
use crate::turns::{InTurn, Links, Turns};
use crate::{Aqm, DropReason, Packet};

/// Stochastic Fairness Queueing: flows are hashed into queues that are served in turns by bytes.
/// When all are too many, the longest queue loses its last packet.
///
/// Source: `net/sched/sch_sfq.c` of Linux 6.18, with its defaults. A queue that begins has its turn
/// after all others. Of queues with as many packets that one is the longest which last came to this
/// number. While no queue has more than one packet, the queue whose turn is next loses its own.
///
/// Differs: the hash is never changed (`perturb`, which is off there, too), no RED, no dropping
/// from the head.
#[derive(Debug, Clone)]
pub struct Sfq<P> {
    limit: u32,
    depth: u32,
    most_flows: u32,
    quantum: i64,
    arena: Arena<P>,
    /// One for each value of the hash.
    flows: Vec<Flow>,
    /// Flows that have packets.
    active: u32,
    turns: Turns,
    longest: Heap<Reverse<(u32, u64)>>,
    /// Times that the length of any queue changed.
    changes: u64,
    qlen_pkts: u32,
    qlen_bytes: u64,
}

#[derive(Debug, Clone)]
struct Flow {
    packets: Chain,
    qlen_pkts: u32,
    links: Links,
    /// Bytes that it may still send in this turn.
    allot: i64,
}

const IDLE: Flow = Flow { packets: Chain::EMPTY, qlen_pkts: 0, links: Links::NONE, allot: 0 };

impl InTurn for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<P: Packet> Sfq<P> {
    /// Empty queues.
    pub fn new(config: &SfqConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            limit: config.limit_pkts,
            depth: config.depth_pkts,
            most_flows: config.flows,
            quantum: config.quantum_bytes.into(),
            arena: Arena::default(),
            flows: vec![IDLE; config.divisor as usize],
            active: 0,
            turns: Turns::EMPTY,
            longest: Heap::default(),
            changes: 0,
            qlen_pkts: 0,
            qlen_bytes: 0,
        })
    }

    fn index_of(&self, packet: &P) -> u32 {
        ((u64::from(packet.flow()) * self.flows.len() as u64) >> 32) as u32
    }

    fn push(&mut self, index: u32, packet: P) {
        self.qlen_pkts += 1;
        self.qlen_bytes += u64::from(packet.bytes());
        let flow = &mut self.flows[index as usize];
        flow.packets.push(&mut self.arena, packet);
        flow.qlen_pkts += 1;
        if flow.qlen_pkts == 1 {
            flow.allot = self.quantum;
            self.active += 1;
            self.turns.push(&mut self.flows, index);
        }
        self.length_changed(index);
    }

    /// Counts a packet that was taken from a queue. One that is empty must have lost its turn.
    fn without(&mut self, index: u32, taken: Option<P>) -> Option<P> {
        let packet = taken?;
        self.qlen_pkts -= 1;
        self.qlen_bytes -= u64::from(packet.bytes());
        let flow = &mut self.flows[index as usize];
        flow.qlen_pkts -= 1;
        if flow.qlen_pkts == 0 {
            self.active -= 1;
            self.longest.remove(index);
        } else {
            self.length_changed(index);
        }
        Some(packet)
    }

    fn length_changed(&mut self, index: u32) {
        self.changes += 1;
        self.longest.set(index, Reverse((self.flows[index as usize].qlen_pkts, self.changes)));
    }

    /// The last packet of the longest queue, and which queue that is.
    fn drop_one(&mut self) -> Option<(P, u32)> {
        let (Reverse((qlen_pkts, _)), longest) = self.longest.first()?;
        let index = if qlen_pkts > 1 { longest } else { self.turns.pop(&mut self.flows)? };
        let taken = self.flows[index as usize].packets.pop_last(&mut self.arena);
        Some((self.without(index, taken)?, index))
    }
}

impl<P: Packet> Aqm for Sfq<P> {
    type Packet = P;

    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        let index = self.index_of(&packet);
        let qlen_pkts = self.flows[index as usize].qlen_pkts;
        if qlen_pkts == 0 && self.active >= self.most_flows {
            return dropped(packet, DropReason::Tail);
        }
        if qlen_pkts >= self.depth {
            return dropped(packet, DropReason::FlowLimit);
        }
        self.push(index, packet);
        if self.qlen_pkts > self.limit
            && let Some((last, of)) = self.drop_one()
        {
            // The last of its queue is the packet that arrived.
            dropped(last, if of == index { DropReason::Tail } else { DropReason::Overlimit });
        }
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        loop {
            let index = self.turns.first()?;
            let flow = &mut self.flows[index as usize];
            if flow.allot <= 0 {
                flow.allot += self.quantum;
                self.turns.pop(&mut self.flows);
                self.turns.push(&mut self.flows, index);
                continue;
            }
            let taken = flow.packets.pop(&mut self.arena);
            if flow.packets.is_empty() {
                self.turns.pop(&mut self.flows);
            }
            let packet = self.without(index, taken)?;
            self.flows[index as usize].allot -= i64::from(packet.bytes());
            return Some(packet);
        }
    }

    fn qlen_pkts(&self) -> u32 {
        self.qlen_pkts
    }

    fn qlen_bytes(&self) -> u64 {
        self.qlen_bytes
    }
}
