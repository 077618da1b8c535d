//! Linux's fq without its pacing.

use std::collections::{HashMap, VecDeque};

use units::Nanos;

use crate::arena::{Arena, Chain};
use crate::config::{ConfigError, FqConfig};
use crate::fifo::Fifo;
use crate::turns::{InTurn, Links, Turns};
use crate::{Aqm, DropReason, Packet};

/// Packets that may go ahead of all flows while no flow has any.
const FAST_PATH_PKTS: u32 = 8;
/// For so long a flow without packets is remembered.
const REMEMBERED: Nanos = Nanos::from_secs(3);
/// Beyond so many, flows without packets are forgotten at once: a flood has a flow for each packet.
const MOST_FLOWS: usize = 65_536;

/// Fair queueing: each flow has a queue of its own; they are served in turns by bytes, flows that
/// begin first.
///
/// Source: `net/sched/sch_fq.c` of Linux 6.18: a flow begins with a credit of `initial_quantum`
/// bytes, and gets a `quantum` for each further turn. One that has been without packets for
/// `refill_delay` has at least a quantum again. Packets that find no flow with packets, and fewer
/// than eight that found the same, go ahead uncharged (since 6.7).
///
/// Differs: no pacing, no bands, no ECN. A flow is one hash of 32 bits, as a socket is one in
/// Linux; packets that it forwards share 1024 flows there. The limit counts packets on the fast
/// path, too. A flow
/// that comes back after three seconds always begins anew, and Linux remembers any number of flows.
#[derive(Debug, Clone)]
pub struct Fq<P> {
    limit: u32,
    flow_limit: u32,
    quantum: i64,
    initial_quantum: i64,
    refill_delay: Nanos,
    /// Goes ahead of all flows.
    fast: Fifo<P>,
    arena: Arena<P>,
    /// Flows that are remembered, by the hash that their packets say.
    numbers: HashMap<u32, u32>,
    flows: Vec<Flow>,
    /// Numbers of flows that were forgotten.
    free: Vec<u32>,
    /// Those that lost their turn without packets, with the moment.
    idle: VecDeque<(Nanos, u32)>,
    new: Turns,
    old: Turns,
    /// Without those on the fast path.
    qlen_pkts: u32,
    qlen_bytes: u64,
}

#[derive(Debug, Clone)]
struct Flow {
    hash: u32,
    packets: Chain,
    qlen_pkts: u32,
    links: Links,
    /// Bytes that it may still send in this turn.
    credit: i64,
    /// Since when it has no turn, if it has none.
    idle_since: Option<Nanos>,
}

impl InTurn for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<P: Packet> Fq<P> {
    /// Without flows.
    pub fn new(config: &FqConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            limit: config.limit_pkts,
            flow_limit: config.flow_limit_pkts,
            quantum: config.quantum_bytes.into(),
            initial_quantum: config.initial_quantum_bytes.into(),
            refill_delay: config.refill_delay,
            fast: Fifo::default(),
            arena: Arena::default(),
            numbers: HashMap::new(),
            flows: Vec::new(),
            free: Vec::new(),
            idle: VecDeque::new(),
            new: Turns::EMPTY,
            old: Turns::EMPTY,
            qlen_pkts: 0,
            qlen_bytes: 0,
        })
    }

    /// Flows that are remembered, with packets or without.
    pub fn remembered(&self) -> usize {
        self.numbers.len()
    }

    /// Forgets flows that have long been without packets.
    fn forget(&mut self, now: Nanos) {
        while let Some((since, number)) = self.idle.front().copied() {
            if now.since(since) <= REMEMBERED && self.numbers.len() <= MOST_FLOWS {
                break;
            }
            self.idle.pop_front();
            let flow = &mut self.flows[number as usize];
            // Otherwise it has had packets since then.
            if flow.idle_since == Some(since) {
                flow.idle_since = None;
                self.numbers.remove(&flow.hash);
                self.free.push(number);
            }
        }
    }

    /// The flow of that hash, which is remembered from now on.
    fn flow(&mut self, hash: u32, now: Nanos) -> u32 {
        if let Some(number) = self.numbers.get(&hash) {
            return *number;
        }
        let flow = Flow {
            hash,
            packets: Chain::EMPTY,
            qlen_pkts: 0,
            links: Links::NONE,
            credit: self.initial_quantum,
            idle_since: Some(now),
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.flows[number as usize] = flow;
                number
            }
            None => {
                self.flows.push(flow);
                self.flows.len() as u32 - 1
            }
        };
        self.numbers.insert(hash, number);
        number
    }

    fn push(&mut self, number: u32, packet: P, now: Nanos) {
        self.qlen_pkts += 1;
        self.qlen_bytes += u64::from(packet.bytes());
        let flow = &mut self.flows[number as usize];
        flow.qlen_pkts += 1;
        flow.packets.push(&mut self.arena, packet);
        if let Some(since) = flow.idle_since.take() {
            if now.since(since) > self.refill_delay {
                flow.credit = flow.credit.max(self.quantum);
            }
            self.new.push(&mut self.flows, number);
        }
    }

    fn pop(&mut self, number: u32) -> Option<P> {
        let flow = &mut self.flows[number as usize];
        let packet = flow.packets.pop(&mut self.arena)?;
        flow.qlen_pkts -= 1;
        flow.credit -= i64::from(packet.bytes());
        self.qlen_pkts -= 1;
        self.qlen_bytes -= u64::from(packet.bytes());
        Some(packet)
    }
}

impl<P: Packet> Aqm for Fq<P> {
    type Packet = P;

    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        self.forget(now);
        if self.qlen_pkts() >= self.limit {
            return dropped(packet, DropReason::Tail);
        }
        if self.qlen_pkts == 0 && self.fast.qlen_pkts() < FAST_PATH_PKTS {
            return self.fast.push(packet);
        }
        let number = self.flow(packet.flow(), now);
        if self.flows[number as usize].qlen_pkts >= self.flow_limit {
            return dropped(packet, DropReason::FlowLimit);
        }
        self.push(number, packet, now);
    }

    fn dequeue(&mut self, now: Nanos, _dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        if let Some(packet) = self.fast.pop() {
            return Some(packet);
        }
        // Without packets the turns of flows stand still, as in Linux.
        if self.qlen_pkts == 0 {
            return None;
        }
        loop {
            let is_new = !self.new.is_empty();
            let number = if is_new { self.new.first() } else { self.old.first() }?;
            let flow = &mut self.flows[number as usize];
            let (has_credit, is_empty) = (flow.credit > 0, flow.packets.is_empty());
            if has_credit && !is_empty {
                return self.pop(number);
            }
            if !has_credit {
                flow.credit += self.quantum;
            }
            let turns = if is_new { &mut self.new } else { &mut self.old };
            turns.pop(&mut self.flows);
            let loses_turn = has_credit && !is_new || self.numbers.len() > MOST_FLOWS;
            if is_empty && loses_turn {
                self.flows[number as usize].idle_since = Some(now);
                self.idle.push_back((now, number));
            } else {
                self.old.push(&mut self.flows, number);
            }
        }
    }

    fn qlen_pkts(&self) -> u32 {
        self.fast.qlen_pkts() + self.qlen_pkts
    }

    fn qlen_bytes(&self) -> u64 {
        self.fast.qlen_bytes() + self.qlen_bytes
    }
}
