//! Flow queues with CoDel.

use units::Nanos;

use crate::arena::{Arena, Chain};
use crate::codel::{Control, Params, Queued, Source};
use crate::config::{ConfigError, FqCodelConfig};
use crate::turns::{InTurn, Links, Turns};
use crate::{Aqm, DropReason, Packet};

/// Flow Queue CoDel: flows are hashed into queues, each with a CoDel of its own, that are served in
/// turns by bytes; new ones first.
///
/// Source: RFC 8290. When all are too many, up to a batch is dropped from the head of the longest
/// queue (section 4.1), and CoDel there is told. Memory is bounded by the limit of packets and the
/// number of queues.
#[derive(Debug, Clone)]
pub struct FqCodel<P> {
    limit_pkts: u32,
    memory_bytes: u64,
    batch: u32,
    quantum: i64,
    params: Params,
    flows: Vec<Flow>,
    /// Bytes that wait in each, apart: they are looked through for the longest.
    backlogs: Vec<u64>,
    new: Turns,
    old: Turns,
    arena: Arena<Queued<P>>,
    qlen_pkts: u32,
    qlen_bytes: u64,
}

/// A queue, and its place among the others.
#[derive(Debug, Clone)]
struct Flow {
    packets: Chain,
    links: Links,
    /// In one of the two lists of turns.
    is_active: bool,
    /// Bytes that it may still send in this turn.
    deficit: i64,
    control: Control,
}

impl InTurn for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

const IDLE: Flow =
    Flow { packets: Chain::EMPTY, links: Links::NONE, is_active: false, deficit: 0, control: Control::NEW };

impl<P: Packet> FqCodel<P> {
    /// Empty queues.
    pub fn new(config: &FqCodelConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            limit_pkts: config.codel.limit.number(),
            memory_bytes: config.memory_bytes.into(),
            batch: config.batch,
            quantum: config.quantum_bytes.into(),
            params: Params::new(&config.codel),
            flows: vec![IDLE; config.flows as usize],
            backlogs: vec![0; config.flows as usize],
            new: Turns::EMPTY,
            old: Turns::EMPTY,
            arena: Arena::default(),
            qlen_pkts: 0,
            qlen_bytes: 0,
        })
    }

    /// As reciprocal_scale() of Linux.
    fn flow_of(&self, packet: &P) -> u32 {
        ((u64::from(packet.flow()) * self.flows.len() as u64) >> 32) as u32
    }

    fn push(&mut self, index: u32, queued: Queued<P>) {
        let bytes = u64::from(queued.packet.bytes());
        self.backlogs[index as usize] += bytes;
        self.qlen_bytes += bytes;
        self.qlen_pkts += 1;
        let flow = &mut self.flows[index as usize];
        flow.packets.push(&mut self.arena, queued);
        if !flow.is_active {
            flow.is_active = true;
            flow.deficit = self.quantum;
            self.new.push(&mut self.flows, index);
        }
    }

    fn pop(&mut self, index: u32) -> Option<Queued<P>> {
        let queued = self.flows[index as usize].packets.pop(&mut self.arena)?;
        let bytes = u64::from(queued.packet.bytes());
        self.backlogs[index as usize] -= bytes;
        self.qlen_bytes -= bytes;
        self.qlen_pkts -= 1;
        Some(queued)
    }

    /// Half of the longest queue, but no more than a batch.
    fn drop_from_longest(&mut self, dropped: &mut impl FnMut(P, DropReason)) {
        let mut longest = 0;
        for (index, backlog) in self.backlogs.iter().enumerate() {
            if *backlog > self.backlogs[longest] {
                longest = index;
            }
        }
        let half = self.backlogs[longest] / 2;
        let (mut drops, mut bytes) = (0, 0);
        while drops == 0 || drops < self.batch && bytes < half {
            let Some(Queued { packet, .. }) = self.pop(longest as u32) else { break };
            bytes += u64::from(packet.bytes());
            drops += 1;
            dropped(packet, DropReason::Overlimit);
        }
        let control = &mut self.flows[longest].control;
        control.count = control.count.saturating_add(drops);
    }

    fn end_turn(&mut self, is_new: bool) {
        let turns = if is_new { &mut self.new } else { &mut self.old };
        turns.pop(&mut self.flows);
    }

    /// What the flow sends, if it still has something.
    fn dequeue_flow(&mut self, index: u32, now: Nanos, dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        // Taken out meanwhile, as it takes packets from where it stands.
        let mut control = std::mem::replace(&mut self.flows[index as usize].control, Control::NEW);
        let params = self.params.clone();
        let packet = control.dequeue(&params, now, &mut OfFlow { queue: self, index }, dropped);
        self.flows[index as usize].control = control;
        packet
    }
}

impl<P: Packet> Aqm for FqCodel<P> {
    type Packet = P;

    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        let index = self.flow_of(&packet);
        self.push(index, Queued { packet, since: now });
        while self.qlen_pkts > self.limit_pkts || self.qlen_bytes > self.memory_bytes {
            self.drop_from_longest(dropped);
        }
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        loop {
            let is_new = !self.new.is_empty();
            let index = if is_new { self.new.first() } else { self.old.first() }?;
            let flow = &mut self.flows[index as usize];
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                self.end_turn(is_new);
                self.old.push(&mut self.flows, index);
                continue;
            }
            if let Some(packet) = self.dequeue_flow(index, now, dropped) {
                self.flows[index as usize].deficit -= i64::from(packet.bytes());
                return Some(packet);
            }
            self.end_turn(is_new);
            // A new flow goes through the old ones once, or it could come back as a new one at once
            // and starve them.
            if is_new {
                self.old.push(&mut self.flows, index);
            } else {
                self.flows[index as usize].is_active = false;
            }
        }
    }

    fn qlen_pkts(&self) -> u32 {
        self.qlen_pkts
    }

    fn qlen_bytes(&self) -> u64 {
        self.qlen_bytes
    }
}

/// One flow's packets.
struct OfFlow<'a, P> {
    queue: &'a mut FqCodel<P>,
    index: u32,
}

impl<P: Packet> Source<P> for OfFlow<'_, P> {
    fn pop(&mut self) -> Option<Queued<P>> {
        self.queue.pop(self.index)
    }

    fn qlen_bytes(&self) -> u64 {
        self.queue.backlogs[self.index as usize]
    }
}
