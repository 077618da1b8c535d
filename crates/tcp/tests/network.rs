//! A client and a simple server on a network that loses, doubles and reorders segments: what one
//! end sends the other gets, once and in order, and every connection comes to its end.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tcp::{Change, Close, Connection, STACKS, Stack, State};
use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber, Timestamps};

const MSS: usize = 1000;
/// Bytes that the server has under way at most.
const WINDOW: usize = 8 * MSS;
const SERVER_RTO: Nanos = Nanos::from_millis(300);
/// Near the wrap.
const SERVER_ISS: SeqNumber = SeqNumber(u32::MAX - 2000);

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

/// One way of the wire.
struct Wire {
    random: Pcg64Mcg,
    /// Of a hundred segments, those that are lost, and those that come twice.
    lost: u32,
    twice: u32,
    under_way: Vec<(Nanos, Owned)>,
}

impl Wire {
    fn new(seed: u64, lost: u32, twice: u32) -> Self {
        Self { random: Pcg64Mcg::seed_from_u64(seed), lost, twice, under_way: Vec::new() }
    }

    fn send(&mut self, segment: &Segment<'_>, now: Nanos) {
        let copies = 1 + u32::from(self.random.random_range(0..100) < self.twice);
        for _ in 0..copies {
            if self.random.random_range(0..100) >= self.lost {
                let delay = Nanos::from_micros(self.random.random_range(500..30_000));
                self.under_way.push((now + delay, Owned::of(segment)));
            }
        }
    }

    fn next(&self) -> Nanos {
        self.under_way.iter().map(|(at, _)| *at).min().unwrap_or(Nanos::MAX)
    }

    fn receive(&mut self, now: Nanos) -> Option<Owned> {
        let at = self.under_way.iter().position(|(at, _)| *at <= now)?;
        Some(self.under_way.remove(at).1)
    }
}

/// Answers one request with a reply, and closes then. Goes back to what is not acknowledged when
/// nothing is heard.
struct Server {
    is_open: bool,
    client_next: SeqNumber,
    heard: Vec<u8>,
    request_len: usize,
    reply: Vec<u8>,
    /// Of the reply and the FIN behind it.
    acked: usize,
    next: usize,
    has_timestamps: bool,
    peer_clock: u32,
    resend_at: Nanos,
}

impl Server {
    fn hear(&mut self, segment: &Segment<'_>, now: Nanos, wire: &mut Wire) {
        if segment.flags.has(Flags::RST) {
            self.resend_at = Nanos::MAX;
            return;
        }
        if let Some(timestamps) = segment.options.timestamps {
            self.peer_clock = timestamps.value;
        }
        if segment.flags.has(Flags::SYN) {
            if !self.is_open {
                self.client_next = segment.seq + 1;
            }
            self.is_open = true;
            self.has_timestamps = segment.options.timestamps.is_some();
            self.emit(Flags::SYN | Flags::ACK, None, &[], now, wire);
            return;
        }
        if !self.is_open {
            return;
        }
        let acked = (segment.ack - (SERVER_ISS + 1)) as usize;
        if (self.acked..=self.reply.len() + 1).contains(&acked) && acked > self.acked {
            self.acked = acked;
            self.next = self.next.max(acked);
            self.resend_at = if acked > self.reply.len() { Nanos::MAX } else { now + SERVER_RTO };
        }
        if segment.seq == self.client_next {
            self.heard.extend_from_slice(segment.payload);
            self.client_next += segment.len();
        }
        if !segment.is_empty() {
            self.emit(Flags::ACK, Some(self.next), &[], now, wire);
        }
        self.transmit(now, wire);
    }

    fn transmit(&mut self, now: Nanos, wire: &mut Wire) {
        if self.heard.len() < self.request_len {
            return;
        }
        while self.next <= self.reply.len() && self.next < self.acked + WINDOW {
            let from = self.next;
            let to = (from + MSS).min(self.reply.len());
            let fin = if to == self.reply.len() { Flags::FIN } else { Flags(0) };
            let data = self.reply[from..to].to_vec();
            self.emit(Flags::ACK | fin, Some(from), &data, now, wire);
            self.next = to + usize::from(to == self.reply.len());
            self.resend_at = self.resend_at.min(now + SERVER_RTO);
        }
    }

    fn on_timer(&mut self, now: Nanos, wire: &mut Wire) {
        if self.resend_at <= now {
            self.next = self.acked;
            self.resend_at = now + SERVER_RTO;
            self.transmit(now, wire);
        }
    }

    /// `at` is where in the reply; a SYN/ACK is before it.
    fn emit(&self, flags: Flags, at: Option<usize>, payload: &[u8], now: Nanos, wire: &mut Wire) {
        let is_syn = at.is_none();
        let value = (now.as_micros() / 1000) as u32 + 7;
        let timestamps = self.has_timestamps.then_some(Timestamps { value, echo: self.peer_clock });
        let options = Options {
            mss: is_syn.then_some(MSS as u16 + 12),
            window_scale: is_syn.then_some(2),
            sack_permitted: is_syn,
            timestamps,
            ..Options::NONE
        };
        let seq = at.map_or(SERVER_ISS, |at| SERVER_ISS + 1 + at as u32);
        wire.send(&Segment { seq, ack: self.client_next, flags, window: 60_000, options, payload }, now);
    }
}

/// How a run ended.
struct Ended {
    heard_by_server: Vec<u8>,
    heard_by_client: Vec<u8>,
    is_over: bool,
    at: Nanos,
}

fn run(stack: &Stack, seed: u64, lost: u32, request: &[u8], reply: &[u8]) -> Ended {
    let (mut up, mut down) = (Wire::new(seed, lost, 5), Wire::new(!seed, lost, 5));
    let mut server = Server {
        is_open: false,
        client_next: SeqNumber(0),
        heard: Vec::new(),
        request_len: request.len(),
        reply: reply.to_vec(),
        acked: 0,
        next: 0,
        has_timestamps: false,
        peer_clock: 0,
        resend_at: Nanos::MAX,
    };
    let mut now = Nanos::ZERO;
    let iss = SeqNumber(u32::MAX - 50);
    let mut client = Connection::connect(stack, iss, 0, now, &mut |segment| up.send(segment, Nanos::ZERO));
    let (mut heard, mut is_over) = (Vec::new(), false);
    while client.state() != State::Closed && now < Nanos::from_secs(3600) {
        let next = up.next().min(down.next()).min(client.deadline()).min(server.resend_at);
        assert!(next != Nanos::MAX, "{}: nothing is under way and nobody has a timer", client.state());
        now = now.max(next);
        while let Some(segment) = up.receive(now) {
            server.hear(&segment.segment(), now, &mut down);
        }
        server.on_timer(now, &mut down);
        let send = &mut |segment: &Segment<'_>| up.send(segment, now);
        while let Some(segment) = down.receive(now) {
            let segment = segment.segment();
            let told = client.on_segment(stack, &segment, now, send);
            heard.extend_from_slice(told.data);
            heard.extend_from_slice(&told.then);
            if told.change == Change::PeerClosed {
                is_over = true;
                client.close(stack, Close::Fin, now, send);
            }
            client.transmit(stack, request, now, send);
        }
        let before = client.deadline();
        if before <= now {
            client.on_deadline(stack, request, now, send);
            assert!(client.deadline() > now, "{}: a timer that fired at {now} is still due", client.state());
        }
    }
    Ended { heard_by_server: server.heard, heard_by_client: heard, is_over, at: now }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 253) as u8).collect()
}

#[test]
fn every_byte_arrives_once_and_in_order() {
    for seed in 0..60 {
        for stack in STACKS {
            let (request, reply) = (bytes(200 + seed as usize * 40), bytes(1 + seed as usize * 1500));
            let ended = run(stack, seed, (seed % 4) as u32 * 5, &request, &reply);
            let what = format!("{}, seed {seed}", stack.name);
            assert!(ended.is_over, "{what}: no end of the reply by {}", ended.at);
            assert_eq!(ended.heard_by_server, request, "{what}");
            assert_eq!(ended.heard_by_client, reply, "{what}");
        }
    }
}

#[test]
fn client_gives_up_when_nothing_arrives() {
    for stack in STACKS {
        let ended = run(stack, 1, 100, b"request", b"reply");
        let schedule: u64 = stack.syn_timeouts.iter().map(|timeout| timeout.0).sum();
        assert_eq!((ended.is_over, ended.at), (false, Nanos(schedule)), "{}", stack.name);
    }
}
