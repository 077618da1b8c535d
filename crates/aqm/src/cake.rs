//! CAKE's flow queues.

use units::Nanos;

use crate::arena::{Arena, Chain};
use crate::arithmetic::RandomNumbers;
use crate::cobalt::{Cobalt, Params};
use crate::codel::Queued;
use crate::config::{CakeConfig, ConfigError};
use crate::turns::{InTurn, Links, Turns};
use crate::{Aqm, DropReason, Packet, Rate};

const QUEUES: u32 = 1024;
/// Queues that a flow may have: those of its set.
const WAYS: u32 = 8;
/// Bytes of the largest packet.
const MTU: u64 = 1514;
/// Bytes of a turn, whatever the rate.
const QUANTUM: std::ops::RangeInclusive<u64> = 300..=1514;
/// Bytes that may wait, at least and at most, unless told.
const MEMORY: std::ops::RangeInclusive<u64> = 4 << 20..=10_240 * MTU;

/// CAKE with one tin (`besteffort`) and flow isolation (`flows`): flows have queues, which seldom
/// collide, and are served in turns by bytes; those that begin go first. Cobalt drops in each.
///
/// Source: `net/sched/sch_cake.c` of Linux 6.18. A turn is of rate / 4096, in bytes, from 300 to
/// 1514. A queue keeps its place while Cobalt still has something to forget. When memory runs out,
/// the longest queue loses its head.
///
/// Differs: no shaper (the rate is that of what sends), no isolation of hosts (`triple-isolate` is
/// Linux's default), no priorities (`diffserv3` is), no ACK filter, no ECN. Memory is bytes of
/// packets, not of buffers. While nothing waits Linux wakes up every `target` to let Cobalt forget;
/// here it forgets with the packets that come then.
#[derive(Debug, Clone)]
pub struct Cake<P> {
    params: Params,
    quantum: i64,
    memory_bytes: u64,
    arena: Arena<Queued<P>>,
    flows: Vec<Flow>,
    /// Of each queue: the flow that has it.
    tags: Vec<u32>,
    /// Bytes that wait in each, apart: they are looked through for the longest.
    backlogs: Vec<u64>,
    /// One for each of [`Among`].
    turns: [Turns; 3],
    random: RandomNumbers,
    qlen_pkts: u32,
    qlen_bytes: u64,
}

#[derive(Debug, Clone)]
struct Flow {
    packets: Chain,
    links: Links,
    among: Option<Among>,
    /// Bytes that it may still send in this turn.
    deficit: i64,
    cobalt: Cobalt,
}

/// Whose turns a queue's is among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Among {
    New = 0,
    Old = 1,
    /// Without packets, but with a Cobalt that is not at rest.
    Decaying = 2,
}

impl InTurn for Flow {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl<P: Packet> Cake<P> {
    /// Empty queues. `seed` is for BLUE.
    pub fn new(config: &CakeConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let idle = Flow {
            packets: Chain::EMPTY,
            links: Links::NONE,
            among: None,
            deficit: 0,
            cobalt: Cobalt::default(),
        };
        let bytes_per_s = config.rate.bits_per_s() / 8;
        let memory = bytes_per_s.saturating_mul(4).saturating_mul(config.rtt.as_micros()) / 1_000_000;
        Ok(Self {
            params: params(config.rate, config.rtt),
            quantum: (bytes_per_s >> 12).clamp(*QUANTUM.start(), *QUANTUM.end()) as i64,
            memory_bytes: config.memory_bytes.map_or(memory.clamp(*MEMORY.start(), *MEMORY.end()), u64::from),
            arena: Arena::default(),
            flows: vec![idle; QUEUES as usize],
            tags: vec![0; QUEUES as usize],
            backlogs: vec![0; QUEUES as usize],
            turns: [const { Turns::EMPTY }; 3],
            random: RandomNumbers::new(seed),
            qlen_pkts: 0,
            qlen_bytes: 0,
        })
    }

    /// The queue of a flow: its own, or one that is free, of the eight that it may have; the first
    /// of them where others have all.
    fn queue_of(&mut self, flow: u32) -> u32 {
        let direct = flow % QUEUES;
        let set = direct - direct % WAYS;
        let mut ways = (0..WAYS).map(|way| set + (direct + way) % WAYS);
        let is_own = |queue: &u32| self.tags[*queue as usize] == flow;
        let is_free = |queue: &u32| self.flows[*queue as usize].among.is_none();
        let own = ways.clone().find(is_own);
        let queue = own.or_else(|| ways.find(is_free)).unwrap_or(direct);
        self.tags[queue as usize] = flow;
        queue
    }

    fn first(&self, among: Among) -> Option<u32> {
        self.turns[among as usize].first()
    }

    /// The queue has its turn after all others of these.
    fn put(&mut self, queue: u32, to: Option<Among>) {
        let from = std::mem::replace(&mut self.flows[queue as usize].among, to);
        if let Some(from) = from {
            self.turns[from as usize].remove(&mut self.flows, queue);
        }
        if let Some(to) = to {
            self.turns[to as usize].push(&mut self.flows, queue);
        }
    }

    fn pop(&mut self, queue: u32) -> Option<Queued<P>> {
        let queued = self.flows[queue as usize].packets.pop(&mut self.arena)?;
        let bytes = u64::from(queued.packet.bytes());
        self.backlogs[queue as usize] -= bytes;
        self.qlen_bytes -= bytes;
        self.qlen_pkts -= 1;
        Some(queued)
    }

    /// The head of the longest queue.
    fn drop_from_longest(&mut self, now: Nanos) -> Option<P> {
        let mut longest = 0;
        for (queue, backlog) in self.backlogs.iter().enumerate() {
            if *backlog > self.backlogs[longest] {
                longest = queue;
            }
        }
        let Queued { packet, .. } = self.pop(longest as u32)?;
        self.flows[longest].cobalt.full(&self.params, now);
        Some(packet)
    }

    /// What the queue sends, if it has something.
    fn dequeue_from(&mut self, queue: u32, now: Nanos, dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        while let Some(Queued { packet, since }) = self.pop(queue) {
            let flow = &mut self.flows[queue as usize];
            let drops = flow.cobalt.drops(&self.params, now, now.since(since), &mut self.random);
            // The last packet of a queue is not dropped.
            if !drops || flow.packets.is_empty() {
                flow.deficit -= i64::from(packet.bytes());
                return Some(packet);
            }
            dropped(packet, DropReason::Codel);
        }
        None
    }
}

/// As `cake_set_rate()` has them.
fn params(rate: Rate, rtt: Nanos) -> Params {
    let usual = Nanos(rtt.0 / 20);
    let mtu_time = Nanos(rate.transmission_ns(MTU));
    let target = usual.max(Nanos(mtu_time.0 * 3 / 2));
    let interval = Nanos((rtt.0 + target.0 - usual.0).max(2 * target.0));
    Params { interval, target, mtu_time }
}

impl<P: Packet> Aqm for Cake<P> {
    type Packet = P;

    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        let queue = self.queue_of(packet.flow());
        let bytes = u64::from(packet.bytes());
        self.backlogs[queue as usize] += bytes;
        self.qlen_bytes += bytes;
        self.qlen_pkts += 1;
        let flow = &mut self.flows[queue as usize];
        flow.packets.push(&mut self.arena, Queued { packet, since: now });
        if matches!(flow.among, None | Some(Among::Decaying)) {
            flow.deficit = self.quantum;
            self.put(queue, Some(Among::New));
        }
        while self.qlen_bytes > self.memory_bytes
            && let Some(packet) = self.drop_from_longest(now)
        {
            dropped(packet, DropReason::Overlimit);
        }
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        // One queue that decays is looked at each time, before all others.
        let mut decaying = self.first(Among::Decaying);
        while self.qlen_pkts > 0 {
            let next = || self.first(Among::New).or_else(|| self.first(Among::Old));
            let queue = decaying.take().or_else(next)?;
            let flow = &mut self.flows[queue as usize];
            if flow.deficit <= 0 {
                flow.deficit += self.quantum;
                self.put(queue, Some(Among::Old));
                continue;
            }
            if let Some(packet) = self.dequeue_from(queue, now, dropped) {
                return Some(packet);
            }
            let cobalt = &mut self.flows[queue as usize].cobalt;
            cobalt.empty(&self.params, now);
            let is_at_rest = cobalt.is_at_rest(now);
            self.put(queue, (!is_at_rest).then_some(Among::Decaying));
        }
        None
    }

    fn qlen_pkts(&self) -> u32 {
        self.qlen_pkts
    }

    fn qlen_bytes(&self) -> u64 {
        self.qlen_bytes
    }
}
