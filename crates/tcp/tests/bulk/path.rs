//! Two ends of this crate with a path between them, in virtual time: a bottleneck with a rate, a
//! delay and a queue one way, a delay only the other way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tcp::{Change, Close, Connection, Control, Handshake, PathState, Stack, State, Stream};
use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber};

/// A segment without its borrow.
struct Owned {
    seq: SeqNumber,
    ack: SeqNumber,
    flags: Flags,
    window: u16,
    options: Options,
    payload: Vec<u8>,
}

impl Owned {
    fn of(segment: &Segment<'_>) -> Self {
        let Segment { seq, ack, flags, window, options, payload } = *segment;
        Self { seq, ack, flags, window, options, payload: payload.to_vec() }
    }

    fn segment(&self) -> Segment<'_> {
        let Self { seq, ack, flags, window, options, payload } = self;
        Segment { seq: *seq, ack: *ack, flags: *flags, window: *window, options: *options, payload }
    }
}

/// So many bytes of a pattern by which every place is known.
#[derive(Debug, Clone, Copy)]
pub struct Pattern(pub u64);

const PERIOD: u64 = 65_521;
static TABLE: [u8; 2 * 65_536] = {
    let mut table = [0; 2 * 65_536];
    let mut at = 0;
    while at < table.len() {
        let place = (at as u64 % PERIOD) as u32;
        table[at] = (place.wrapping_mul(2_654_435_761) >> 24) as u8;
        at += 1;
    }
    table
};

impl Stream for Pattern {
    fn length(&self) -> u64 {
        self.0
    }

    fn bytes(&self, offset: u64, len: usize) -> &[u8] {
        &TABLE[(offset % PERIOD) as usize..][..len]
    }
}

/// The way of the data.
pub struct Bottleneck {
    /// Bits per second.
    pub rate: u64,
    pub delay: Nanos,
    /// Segments that wait at most.
    pub queue: usize,
    /// Of a thousand segments those that are lost, either way, and those that come late.
    pub lost: u32,
    pub late: u32,
    /// Data segments that are lost, counted from 0 over all flows.
    pub doomed: Vec<u64>,
    free_at: Nanos,
    leave_at: VecDeque<Nanos>,
    random: Pcg64Mcg,
    data: u64,
    pub dropped: u64,
}

impl Bottleneck {
    pub fn new(rate: u64, delay: Nanos, queue: usize, seed: u64) -> Self {
        Self {
            rate,
            delay,
            queue,
            lost: 0,
            late: 0,
            doomed: Vec::new(),
            free_at: Nanos::ZERO,
            leave_at: VecDeque::new(),
            random: Pcg64Mcg::seed_from_u64(seed),
            data: 0,
            dropped: 0,
        }
    }

    /// When a segment arrives, or `None` when it does not. `is_back` is the way of the client,
    /// which has no bottleneck.
    fn carry(&mut self, segment: &Owned, is_back: bool, may_lose: bool, now: Nanos) -> Option<Nanos> {
        let is_lost = self.random.random_range(0..1000) < self.lost;
        let is_late = self.random.random_range(0..1000) < self.late;
        let late = Nanos(if is_late { self.random.random_range(0..=self.delay.0) } else { 0 });
        let mut is_doomed = false;
        if !segment.payload.is_empty() && !is_back {
            is_doomed = self.doomed.contains(&self.data);
            self.data += 1;
        }
        if may_lose && (is_lost || is_doomed) {
            return None;
        }
        if is_back {
            return Some(now + self.delay + late);
        }
        while self.leave_at.front().is_some_and(|at| *at <= now) {
            self.leave_at.pop_front();
        }
        if self.leave_at.len() > self.queue {
            self.dropped += 1;
            return None;
        }
        let bytes = segment.payload.len() as u64 + 40;
        self.free_at = self.free_at.max(now) + Nanos(bytes * 8 * 1_000_000_000 / self.rate);
        self.leave_at.push_back(self.free_at);
        Some(self.free_at + self.delay + late)
    }
}

/// A flow: the server sends, the client takes in, and sends too if it has something.
pub struct Flow {
    pub client: Connection,
    pub server: Option<Connection>,
    handshake: Option<Handshake>,
    control: Control,
    /// What each sends: the server, the client.
    pub streams: [Pattern; 2],
    /// Bytes that have arrived in order: at the client, at the server.
    pub heard: [u64; 2],
    /// Each has heard the other's end.
    pub is_over: [bool; 2],
    /// The server begins then.
    pub starts_at: Nanos,
    /// Ends by FIN when the stream is over.
    pub ends: bool,
    /// The server's state after each event of its own, where it is kept.
    pub trace: Option<Vec<(Nanos, PathState)>>,
}

struct Event {
    at: Nanos,
    order: u64,
    flow: usize,
    to_server: bool,
    segment: Owned,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Event {}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

pub struct World {
    pub now: Nanos,
    pub stack: Stack,
    pub path: Bottleneck,
    pub flows: Vec<Flow>,
    queue: BinaryHeap<Reverse<Event>>,
    order: u64,
}

const SERVER_ISS: SeqNumber = SeqNumber(u32::MAX - 100_000);

impl World {
    pub fn new(stack: Stack, path: Bottleneck) -> Self {
        Self { now: Nanos::ZERO, stack, path, flows: Vec::new(), queue: BinaryHeap::new(), order: 0 }
    }

    /// A flow that connects now.
    pub fn add(&mut self, control: Control, streams: [Pattern; 2], starts_at: Nanos) -> usize {
        let mut out = Vec::new();
        let iss = SeqNumber(u32::MAX - 5000);
        let mut client =
            Connection::connect(&self.stack, iss, 0, self.now, &mut |segment| out.push(Owned::of(segment)));
        client.control(control);
        let id = self.flows.len();
        self.flows.push(Flow {
            client,
            server: None,
            handshake: None,
            control,
            streams,
            heard: [0; 2],
            is_over: [false; 2],
            starts_at,
            ends: true,
            trace: None,
        });
        self.carry(id, true, out);
        id
    }

    fn carry(&mut self, flow: usize, to_server: bool, segments: Vec<Owned>) {
        let may_lose = self.flows[flow].server.is_some() && self.flows[flow].client.has_connected();
        for segment in segments {
            // The client's way has no bottleneck.
            if let Some(at) = self.path.carry(&segment, to_server, may_lose, self.now) {
                self.order += 1;
                let event = Event { at, order: self.order, flow, to_server, segment };
                self.queue.push(Reverse(event));
            }
        }
    }

    /// Runs until then, or until all is over.
    pub fn run(&mut self, until: Nanos) {
        loop {
            let timers = self.flows.iter().map(Flow::deadline).min().unwrap_or(Nanos::MAX);
            let next = self.queue.peek().map_or(Nanos::MAX, |event| event.0.at).min(timers);
            if next > until || next == Nanos::MAX {
                assert!(next != Nanos::MAX || self.is_over(), "nothing is under way and nobody has a timer");
                self.now = until;
                return;
            }
            assert!(next >= self.now, "time goes on");
            self.now = next;
            if timers == next {
                for flow in 0..self.flows.len() {
                    self.fire(flow);
                }
            } else if let Some(Reverse(event)) = self.queue.pop() {
                self.deliver(event);
            }
        }
    }

    pub fn is_over(&self) -> bool {
        self.flows.iter().all(|flow| {
            let server = flow.server.as_ref().map(Connection::state);
            flow.client.state() == State::Closed && server.is_none_or(|state| state == State::Closed)
        })
    }

    fn fire(&mut self, id: usize) {
        let (stack, now) = (self.stack, self.now);
        let flow = &mut self.flows[id];
        let mut out = Vec::new();
        if flow.starts_at <= now && flow.server.is_some() {
            flow.speak(true, &stack, now, &mut out);
            self.carry(id, false, std::mem::take(&mut out));
        }
        for is_server in [true, false] {
            let flow = &mut self.flows[id];
            let stream = flow.streams[usize::from(!is_server)];
            let Some(end) = flow.end(is_server) else {
                continue;
            };
            if end.deadline() <= now {
                let was = end.deadline();
                let change =
                    end.on_deadline(&stack, &stream, now, &mut |segment| out.push(Owned::of(segment)));
                assert!(end.deadline() > now, "{}: a timer of {was} is still due at {now}", end.state());
                assert_ne!(change, Change::GaveUp, "at {now}");
                flow.note(is_server, now);
                self.carry(id, !is_server, std::mem::take(&mut out));
            }
        }
    }

    fn deliver(&mut self, event: Event) {
        let (stack, now) = (self.stack, self.now);
        let Event { flow: id, to_server, segment, .. } = event;
        let flow = &mut self.flows[id];
        let segment = segment.segment();
        let mut out = Vec::new();
        if to_server && flow.server.is_none() {
            if segment.flags.has(Flags::SYN) {
                let handshake = Handshake::begin(&segment, SERVER_ISS, now);
                out.push(Owned::of(&handshake.syn_ack(&stack, 0, now)));
                flow.handshake = Some(handshake);
                return self.carry(id, false, out);
            }
            let handshake = flow.handshake.expect("a SYN came first");
            assert!(handshake.is_acknowledged_by(&segment));
            let mut server = handshake.established(&stack, 0, now);
            server.control(flow.control);
            flow.server = Some(server);
        }
        let Some(end) = flow.end(to_server) else {
            return;
        };
        if end.state() == State::Closed && !segment.is_empty() {
            // What TIME-WAIT would say.
            let (seq, ack) = (end.sends_next(), end.expects());
            let options = Options::NONE;
            out.push(Owned { seq, ack, flags: Flags::ACK, window: 0, options, payload: Vec::new() });
            return self.carry(id, !to_server, out);
        }
        let heard = end.on_segment(&stack, &segment, now, &mut |segment| out.push(Owned::of(segment)));
        assert!(!matches!(heard.change, Change::Reset | Change::Refused), "{:?}", segment.flags);
        let (by, from) = (usize::from(to_server), flow.streams[usize::from(to_server)]);
        for piece in [heard.data, &heard.then] {
            // In chunks, as the pattern gives no more at once.
            for piece in piece.chunks(60_000) {
                assert!(piece == from.bytes(flow.heard[by], piece.len()), "bytes at {}", flow.heard[by]);
                flow.heard[by] += piece.len() as u64;
            }
        }
        if heard.change == Change::PeerClosed
            || heard.change == Change::Closed && !flow.is_over[by] && flow.heard[by] == from.0
        {
            flow.is_over[by] = true;
        }
        flow.speak(to_server, &stack, now, &mut out);
        self.carry(id, !to_server, out);
    }
}

impl Flow {
    fn deadline(&self) -> Nanos {
        let server = self.server.as_ref();
        let start = if server.is_some() { self.starts_at } else { Nanos::MAX };
        self.client.deadline().min(server.map_or(Nanos::MAX, Connection::deadline)).min(start)
    }

    fn end(&mut self, is_server: bool) -> Option<&mut Connection> {
        if is_server { self.server.as_mut() } else { Some(&mut self.client) }
    }

    /// Sends what it may, and ends the way when that is all.
    fn speak(&mut self, is_server: bool, stack: &Stack, now: Nanos, out: &mut Vec<Owned>) {
        let stream = self.streams[usize::from(!is_server)];
        let may_begin = !is_server || self.starts_at <= now || self.starts_at == Nanos::MAX;
        let (ends, is_over) = (self.ends, self.is_over[usize::from(is_server)]);
        let Some(end) = self.end(is_server) else {
            return;
        };
        if !may_begin || !end.has_connected() {
            return;
        }
        let end = if is_server {
            self.starts_at = Nanos::MAX;
            self.server.as_mut().expect("it is there")
        } else {
            &mut self.client
        };
        let before = (out.len(), end.sends_next());
        let peer_closed = is_over && stream.0 == 0;
        if peer_closed && end.state() == State::CloseWait {
            end.close(stack, Close::Fin, now, &mut |segment| out.push(Owned::of(segment)));
        } else if ends && stream.0 > 0 && matches!(end.state(), State::Established | State::CloseWait) {
            end.half_close(stack, &stream, now, &mut |segment| out.push(Owned::of(segment)));
        } else {
            end.transmit(stack, &stream, now, &mut |segment| out.push(Owned::of(segment)));
        }
        let path = end.path_state().expect("a controlled end");
        let sent: u32 = out[before.0..].iter().map(|segment| segment.payload.len() as u32).sum();
        if sent > 0 {
            assert!(path.in_flight <= path.window + 1, "{path:?}"); // and a FIN
        }
        if end.sends_next() != before.1 {
            assert!(path.unacknowledged <= path.peer_window + 1, "{path:?}");
        }
        self.note(is_server, now);
    }

    fn note(&mut self, is_server: bool, now: Nanos) {
        if let Some(state) = self.server.as_ref().filter(|_| is_server).and_then(Connection::path_state)
            && let Some(trace) = &mut self.trace
        {
            trace.push((now, state));
        }
    }

    /// Of the server's sender.
    pub fn path(&self) -> PathState {
        self.server.as_ref().and_then(Connection::path_state).expect("a controlled server")
    }
}
