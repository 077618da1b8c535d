//! Bulk flows through one bottleneck: enough of TCP NewReno (RFC 6582) to load a queue as ns-2 and
//! ns-3 do, and unresponsive packets beside it.
//!
//! Not a TCP for anything else: packets instead of bytes, no handshake, no delayed ACKs, ACKs are
//! never lost, a receiver without a limit.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use aqm::{Aqm, Config, DropCounts, DropReason, Packet, PacketKind, Queue, RandomNumbers};
use units::Nanos;

const LEAST_RTO: Nanos = Nanos::from_millis(200);
const MOST_RTO: Nanos = Nanos::from_secs(60);
const FIRST_RTO: Nanos = Nanos::from_secs(1);

/// What goes through the bottleneck.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    pub sender: u32,
    seq: u64,
    sent_at: Nanos,
    bytes: u32,
    kind: PacketKind,
}

impl Packet for Segment {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    /// SYNs have a flow each, as from forged addresses.
    fn flow(&self) -> u32 {
        let number = if self.kind == PacketKind::Syn { self.seq as u32 } else { self.sender };
        (number + 1).wrapping_mul(0x9e37_79b9)
    }

    fn kind(&self) -> PacketKind {
        self.kind
    }
}

/// A run.
pub struct Dumbbell {
    pub rate_bps: u64,
    /// Round trip without the queue, one for each bulk flow.
    pub round_trips: Vec<Nanos>,
    pub segment_bytes: u32,
    /// SYNs of a flood, with their size, per second.
    pub flood_per_s: f64,
    pub flood_bytes: u32,
    /// SYNs of others, of 60 bytes, per second.
    pub syns_per_s: f64,
    pub warm_up: Nanos,
    pub measured: Nanos,
    pub seed: u64,
}

impl Dumbbell {
    /// 100 bulk flows on 10 Mbit/s with round trips from 40 to 120 ms, segments of 1000 bytes.
    pub fn bulk() -> Self {
        Self {
            rate_bps: 10_000_000,
            round_trips: (0..100).map(|flow| Nanos::from_micros(40_000 + 800 * flow)).collect(),
            segment_bytes: 1000,
            flood_per_s: 0.0,
            flood_bytes: 40,
            syns_per_s: 0.0,
            warm_up: Nanos::from_secs(20),
            measured: Nanos::from_secs(100),
            seed: 1,
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Mean over time, packets.
    pub queue: f64,
    /// Segments of bulk flows that came to the queue.
    pub segments: u64,
    /// And were dropped, for whatever.
    pub drops: DropCounts,
    /// Bytes of bulk flows that reached their receivers for the first time, over what the link
    /// could carry.
    pub goodput: f64,
    /// Bytes of anything that were sent, over what the link could carry.
    pub utilisation: f64,
    /// SYNs of others, and those that were lost.
    pub syns: u64,
    pub lost_syns: u64,
    pub flood: u64,
    pub lost_flood: u64,
}

impl Outcome {
    /// Share of the segments of bulk flows that was dropped.
    pub fn drop_rate(&self) -> f64 {
        self.drops.total() as f64 / self.segments as f64
    }
}

/// Senders that are no bulk flow.
const FLOOD: u32 = 1 << 20;
const OTHERS: u32 = 1 << 21;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    LinkIsFree,
    Start(u32),
    /// Cumulative, and when the segment was sent that brought it.
    Ack(u32, u64, u64),
    Timeout(u32, u64),
    FloodSyn,
    OtherSyn,
}

pub fn run(dumbbell: &Dumbbell, config: &Config) -> Outcome {
    let mut run = Run::new(dumbbell, config);
    let end = dumbbell.warm_up + dumbbell.measured;
    while let Some(Reverse((at, _, event))) = run.events.pop() {
        if at > end {
            break;
        }
        run.advance(at);
        run.handle(event);
    }
    run.outcome.queue /= dumbbell.measured.0 as f64;
    let capacity = dumbbell.rate_bps as f64 / 8.0 * dumbbell.measured.as_secs_f64();
    run.outcome.goodput /= capacity;
    run.outcome.utilisation /= capacity;
    run.outcome
}

struct Run<'a> {
    dumbbell: &'a Dumbbell,
    queue: Queue<Segment>,
    link_is_busy: bool,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    now: Nanos,
    random: RandomNumbers,
    bulk: Vec<Bulk>,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn new(dumbbell: &'a Dumbbell, config: &Config) -> Self {
        let mut run = Self {
            dumbbell,
            queue: Queue::new(config, dumbbell.seed).expect("it was parsed"),
            link_is_busy: false,
            events: BinaryHeap::new(),
            order: 0,
            now: Nanos::ZERO,
            random: RandomNumbers::new(dumbbell.seed ^ 0xdead),
            bulk: dumbbell.round_trips.iter().map(|_| Bulk::default()).collect(),
            outcome: Outcome::default(),
        };
        for flow in 0..dumbbell.round_trips.len() as u32 {
            run.at(Nanos::from_millis(50 * u64::from(flow)), Event::Start(flow));
        }
        if dumbbell.flood_per_s > 0.0 {
            run.at(Nanos::ZERO, Event::FloodSyn);
        }
        if dumbbell.syns_per_s > 0.0 {
            run.at(Nanos::ZERO, Event::OtherSyn);
        }
        run
    }

    fn at(&mut self, at: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, event)));
    }

    fn is_measured(&self) -> bool {
        self.now >= self.dumbbell.warm_up
    }

    fn advance(&mut self, at: Nanos) {
        if self.is_measured() {
            self.outcome.queue += f64::from(self.queue.qlen_pkts()) * at.since(self.now).0 as f64;
        }
        self.now = at;
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::LinkIsFree => {
                self.link_is_busy = false;
                self.send_next();
            }
            Event::Start(flow) => self.fill_window(flow),
            Event::Ack(flow, ack, sent_at) => {
                let again = self.bulk[flow as usize].on_ack(ack, self.now.since(Nanos(sent_at)));
                if again {
                    self.send(flow, self.bulk[flow as usize].una);
                }
                self.fill_window(flow);
                self.set_timer(flow);
            }
            Event::Timeout(flow, timer) => {
                let sender = &mut self.bulk[flow as usize];
                if timer == sender.timer && sender.next > sender.una {
                    sender.on_timeout();
                    self.fill_window(flow);
                    self.set_timer(flow);
                }
            }
            Event::FloodSyn => {
                self.syn(FLOOD, self.dumbbell.flood_bytes);
                let gap = self.exponential(self.dumbbell.flood_per_s);
                self.at(self.now + gap, event);
            }
            Event::OtherSyn => {
                self.syn(OTHERS, 60);
                let gap = self.exponential(self.dumbbell.syns_per_s);
                self.at(self.now + gap, event);
            }
        }
    }

    fn exponential(&mut self, per_s: f64) -> Nanos {
        let uniform = (f64::from(self.random.next_u32()) + 1.0) / 4_294_967_296.0;
        Nanos::from_secs_f64(-uniform.ln() / per_s)
    }

    fn syn(&mut self, sender: u32, bytes: u32) {
        self.order += 1;
        self.enqueue(Segment { sender, seq: self.order, sent_at: self.now, bytes, kind: PacketKind::Syn });
    }

    fn set_timer(&mut self, flow: u32) {
        let sender = &mut self.bulk[flow as usize];
        sender.timer += 1;
        let (timer, rto) = (sender.timer, sender.rto());
        self.at(self.now + rto, Event::Timeout(flow, timer));
    }

    fn fill_window(&mut self, flow: u32) {
        while let Some(seq) = self.bulk[flow as usize].next_to_send() {
            let is_first = self.bulk[flow as usize].timer == 0;
            self.send(flow, seq);
            if is_first {
                self.set_timer(flow);
            }
        }
    }

    fn send(&mut self, flow: u32, seq: u64) {
        let (sent_at, bytes) = (self.now, self.dumbbell.segment_bytes);
        self.enqueue(Segment { sender: flow, seq, sent_at, bytes, kind: PacketKind::Other });
    }

    fn enqueue(&mut self, segment: Segment) {
        if self.is_measured() {
            match segment.sender {
                FLOOD => self.outcome.flood += 1,
                OTHERS => self.outcome.syns += 1,
                _ => self.outcome.segments += 1,
            }
        }
        let (is_measured, outcome) = (self.is_measured(), &mut self.outcome);
        self.queue
            .enqueue(self.now, segment, &mut |segment, reason| count(outcome, is_measured, &segment, reason));
        self.send_next();
    }

    fn send_next(&mut self) {
        if self.link_is_busy {
            return;
        }
        let (is_measured, outcome) = (self.is_measured(), &mut self.outcome);
        let next = self
            .queue
            .dequeue(self.now, &mut |segment, reason| count(outcome, is_measured, &segment, reason));
        let Some(segment) = next else { return };
        self.link_is_busy = true;
        let free_at = self.now + Nanos(u64::from(segment.bytes) * 8_000_000_000 / self.dumbbell.rate_bps);
        self.at(free_at, Event::LinkIsFree);
        if is_measured {
            self.outcome.utilisation += f64::from(segment.bytes);
        }
        let Some(sender) = self.bulk.get_mut(segment.sender as usize) else { return };
        let (ack, is_new) = sender.receive(segment.seq);
        if is_measured && is_new {
            self.outcome.goodput += f64::from(segment.bytes);
        }
        // The jitter of hosts keeps flows from marching in step.
        let jitter = Nanos(u64::from(self.random.next_u32() % 1_000_000));
        let back_at = free_at + self.dumbbell.round_trips[segment.sender as usize] + jitter;
        self.at(back_at, Event::Ack(segment.sender, ack, segment.sent_at.0));
    }
}

fn count(outcome: &mut Outcome, is_measured: bool, segment: &Segment, reason: DropReason) {
    if !is_measured {
        return;
    }
    match segment.sender {
        FLOOD => outcome.lost_flood += 1,
        OTHERS => outcome.lost_syns += 1,
        _ => outcome.drops.count(reason),
    }
}

/// Both ends of a bulk flow; sequence numbers are packets.
#[derive(Debug)]
struct Bulk {
    una: u64,
    next: u64,
    cwnd: f64,
    ssthresh: f64,
    dup_acks: u32,
    /// Recovery lasts until this is acknowledged.
    recover: Option<u64>,
    srtt: Option<f64>,
    rttvar: f64,
    backoff: u32,
    timer: u64,
    /// The receiver: what comes next, and what has come beyond it.
    expected: u64,
    beyond: BTreeSet<u64>,
}

impl Default for Bulk {
    fn default() -> Self {
        Self {
            una: 0,
            next: 0,
            cwnd: 2.0,
            ssthresh: 1e9,
            dup_acks: 0,
            recover: None,
            srtt: None,
            rttvar: 0.0,
            backoff: 0,
            timer: 0,
            expected: 0,
            beyond: BTreeSet::new(),
        }
    }
}

impl Bulk {
    /// The acknowledgment, and whether the segment had not come before.
    fn receive(&mut self, seq: u64) -> (u64, bool) {
        let is_new = seq >= self.expected && self.beyond.insert(seq);
        while self.beyond.remove(&self.expected) {
            self.expected += 1;
        }
        (self.expected, is_new)
    }

    fn next_to_send(&mut self) -> Option<u64> {
        // Limited transmit (RFC 3042).
        let extra = if self.recover.is_none() { self.dup_acks.min(2) } else { 0 };
        let window = self.cwnd.floor().max(1.0) as u64 + u64::from(extra);
        if self.next >= self.una + window {
            return None;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    fn flight(&self) -> f64 {
        (self.next - self.una) as f64
    }

    /// Whether the first segment that is not acknowledged is to be sent again.
    fn on_ack(&mut self, ack: u64, rtt: Nanos) -> bool {
        self.measure(rtt.as_secs_f64());
        if ack <= self.una {
            return ack == self.una && self.on_duplicate();
        }
        let newly = ack - self.una;
        self.una = ack;
        self.next = self.next.max(ack);
        self.backoff = 0;
        self.dup_acks = 0;
        match self.recover {
            Some(recover) if ack >= recover => {
                self.recover = None;
                self.cwnd = self.ssthresh;
                false
            }
            Some(_) => {
                self.cwnd = (self.cwnd - newly as f64 + 1.0).max(1.0);
                true
            }
            None if self.cwnd < self.ssthresh => {
                self.cwnd += 1.0;
                false
            }
            None => {
                self.cwnd += 1.0 / self.cwnd;
                false
            }
        }
    }

    fn on_duplicate(&mut self) -> bool {
        if self.next == self.una {
            return false;
        }
        self.dup_acks += 1;
        match self.recover {
            Some(_) => {
                self.cwnd += 1.0;
                false
            }
            None if self.dup_acks == 3 => {
                self.ssthresh = (self.flight() / 2.0).max(2.0);
                self.cwnd = self.ssthresh + 3.0;
                self.recover = Some(self.next);
                true
            }
            None => false,
        }
    }

    fn on_timeout(&mut self) {
        self.ssthresh = (self.flight() / 2.0).max(2.0);
        self.cwnd = 1.0;
        self.next = self.una;
        self.dup_acks = 0;
        self.recover = None;
        self.backoff = (self.backoff + 1).min(8);
    }

    fn measure(&mut self, rtt: f64) {
        match self.srtt {
            None => (self.srtt, self.rttvar) = (Some(rtt), rtt / 2.0),
            Some(srtt) => {
                self.rttvar += ((srtt - rtt).abs() - self.rttvar) / 4.0;
                self.srtt = Some(srtt + (rtt - srtt) / 8.0);
            }
        }
    }

    fn rto(&self) -> Nanos {
        let base = self.srtt.map_or(FIRST_RTO, |srtt| Nanos::from_secs_f64(srtt + 4.0 * self.rttvar));
        Nanos(base.max(LEAST_RTO).0 << self.backoff).min(MOST_RTO)
    }
}
