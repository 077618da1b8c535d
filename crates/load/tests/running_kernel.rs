//! The stack that says it is Linux, against the Linux that runs here: both are clients of the same
//! scripted server, and what they put on the wire is held side by side, byte for byte but for
//! ports, checksums and clocks.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use netns::{Lan, Tap};
use tcp::{Change, Close, Connection, LINUX, Stack, State};
use units::Nanos;
use wire::{Ethernet, Flags, FourTuple, Options, Segment, SeqNumber, Timestamps};

const REQUEST: usize = 100;
const SERVER_ISS: SeqNumber = SeqNumber(7000);
const SERVER_CLOCK: u32 = 900_000;
const PORT: u16 = 80;
/// The kernel is looked at until it was silent for so long; longer than any timer of a scenario but
/// those of its end.
const SILENCE: Duration = Duration::from_millis(2500);
/// A machine that does something else makes a run late, and never early: one that was on time is as
/// good as many.
const RUNS: usize = 4;

/// How the client's application behaves.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// close(2) when all is read.
    Fin,
    /// The same with `SO_LINGER` 0.
    Reset,
    /// shutdown(2) after the request, close(2) when all is read.
    HalfClose,
}

/// One segment of a reply: when, since the request was heard; from which byte to which; whether a
/// FIN follows.
type Piece = (u64, u32, u32, bool);

/// What the server does with one client.
#[derive(Clone)]
struct Scenario {
    /// SYNs that it does not hear.
    lost_syns: usize,
    /// It answers the SYN by a RST.
    refuses: bool,
    is_ipv6: bool,
    /// Offers timestamps, window scale and selective acknowledgements.
    is_modern: bool,
    /// Transmissions of the first request that it does not hear.
    lost_requests: usize,
    /// FINs that it does not hear.
    lost_fins: usize,
    /// What it sends for each request, milliseconds after it.
    replies: Vec<Vec<Piece>>,
    /// Where the client reads to before it sends the next request, or ends.
    read: Vec<u32>,
    /// How long the client waits then.
    pause: u64,
    ends: Ends,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            lost_syns: 0,
            refuses: false,
            is_ipv6: false,
            is_modern: true,
            lost_requests: 0,
            lost_fins: 0,
            replies: vec![vec![(2, 0, 500, false)]],
            read: vec![500],
            pause: 0,
            ends: Ends::Fin,
        }
    }
}

impl Scenario {
    fn server(&self) -> SocketAddr {
        let address = Lan::GHOST[usize::from(self.is_ipv6)];
        SocketAddr::new(address.parse().expect("an address"), PORT)
    }

    fn stack(&self) -> &'static Stack {
        if self.is_ipv6 { LINUX.over_ipv6() } else { &LINUX }
    }
}

/// A segment that the server is about to send.
struct Due {
    at: Nanos,
    flags: Flags,
    /// From the first byte of its stream on.
    seq: u32,
    len: u32,
}

/// The server: what it has heard, and what it will send.
struct Server {
    scenario: Scenario,
    due: Vec<Due>,
    lost_syns: usize,
    lost_requests: usize,
    lost_fins: usize,
    /// The next that is expected of the client.
    next: SeqNumber,
    client_iss: SeqNumber,
    /// Requests that were heard.
    requests: usize,
    client_clock: u32,
    sent: u32,
    has_sent_fin: bool,
    end: u32,
}

impl Server {
    fn new(scenario: &Scenario) -> Self {
        Self {
            lost_syns: scenario.lost_syns,
            lost_requests: scenario.lost_requests,
            lost_fins: scenario.lost_fins,
            scenario: scenario.clone(),
            due: Vec::new(),
            next: SeqNumber(0),
            client_iss: SeqNumber(0),
            requests: 0,
            client_clock: 0,
            sent: 0,
            has_sent_fin: false,
            end: 0,
        }
    }

    fn hear(&mut self, segment: &Segment<'_>, now: Nanos) {
        if segment.flags.has(Flags::RST) {
            self.due.clear();
            return;
        }
        let timestamps = segment.options.timestamps;
        if segment.flags.has(Flags::SYN) {
            if take_one(&mut self.lost_syns) {
                return;
            }
            self.client_iss = segment.seq;
            self.next = segment.seq + 1;
            let flags = if self.scenario.refuses { Flags::RST | Flags::ACK } else { Flags::SYN | Flags::ACK };
            self.answer(now + Nanos::from_millis(2), flags, 0, 0);
        } else if segment.seq == self.next {
            let is_request = !segment.payload.is_empty();
            let has_fin = segment.flags.has(Flags::FIN);
            if is_request && take_one(&mut self.lost_requests) || has_fin && take_one(&mut self.lost_fins) {
                return;
            }
            self.next += segment.len();
            if is_request {
                for (after, from, to, fin) in self.scenario.replies[self.requests].clone() {
                    let flags = if fin { Flags::ACK | Flags::FIN } else { Flags::ACK };
                    self.answer(now + Nanos::from_millis(after), flags, from, to - from);
                    self.end = self.end.max(to);
                    self.has_sent_fin |= fin;
                }
                self.requests += 1;
            }
            // Half-closed clients wait for their reply, and its end for their close.
            if has_fin && (self.scenario.ends != Ends::HalfClose || self.has_sent_fin) {
                let flags = if self.has_sent_fin { Flags::ACK } else { Flags::ACK | Flags::FIN };
                let seq = self.end + u32::from(self.has_sent_fin);
                self.answer(now + Nanos::from_millis(2), flags, seq, 0);
                self.has_sent_fin = true;
            }
        }
        if let Some(timestamps) = timestamps {
            self.client_clock = timestamps.value;
        }
    }

    fn answer(&mut self, at: Nanos, flags: Flags, seq: u32, len: u32) {
        self.due.push(Due { at, flags, seq, len });
    }

    fn next_due(&self) -> Nanos {
        self.due.iter().map(|due| due.at).min().unwrap_or(Nanos::MAX)
    }

    /// Hands over what is due by `now`.
    fn send(&mut self, now: Nanos, mut send: impl FnMut(&Segment<'_>)) {
        self.due.sort_by_key(|due| due.at);
        while self.due.first().is_some_and(|due| due.at <= now) {
            let Due { flags, seq, len, .. } = self.due.remove(0);
            self.sent += 1;
            let is_syn = flags.has(Flags::SYN);
            let timestamps = Timestamps { value: SERVER_CLOCK + self.sent, echo: self.client_clock };
            let options = Options {
                mss: is_syn.then_some(1460),
                window_scale: (is_syn && self.scenario.is_modern).then_some(8),
                sack_permitted: is_syn && self.scenario.is_modern,
                timestamps: self.scenario.is_modern.then_some(timestamps),
                ..Options::NONE
            };
            let payload = vec![b'x'; len as usize];
            let first = if is_syn { SERVER_ISS } else { SERVER_ISS + 1 + seq };
            let segment =
                Segment { seq: first, ack: self.next, flags, window: 60_000, options, payload: &payload };
            send(&segment);
        }
    }
}

fn take_one(left: &mut usize) -> bool {
    let is_some = *left > 0;
    *left = left.saturating_sub(1);
    is_some
}

/// What a client sent: how long after whatever was on the wire before, and what.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    gap: Nanos,
    text: String,
}

/// A record of the wire, of which only the client's part is kept.
#[derive(Default)]
struct Record {
    lines: Vec<Line>,
    last: Nanos,
}

impl Record {
    fn client(&mut self, segment: &Segment<'_>, options: &[u8], iss: SeqNumber, now: Nanos) {
        let text = describe(segment, options, iss, self.lines.len());
        self.lines.push(Line { gap: now.since(self.last), text });
        self.last = now;
    }

    fn server(&mut self, now: Nanos) {
        self.last = now;
    }
}

/// Flags, relative numbers, options without our clock; the window of the first three segments,
/// since the kernel's buffer grows later.
fn describe(segment: &Segment<'_>, options: &[u8], iss: SeqNumber, index: usize) -> String {
    let seq = segment.seq - iss;
    let ack = if segment.flags.has(Flags::ACK) { segment.ack - SERVER_ISS } else { 0 };
    let mut options = options.to_vec();
    if segment.flags.has(Flags::RST) {
        options.clear(); // whose clock it shows is the kernel's own affair
    }
    if let Some(timestamps) = segment.options.timestamps
        && let Some(at) = options.windows(4).position(|bytes| bytes == timestamps.value.to_be_bytes())
    {
        options[at..at + 4].fill(0);
    }
    let window = if index < 3 { format!(" win {}", segment.window) } else { String::new() };
    format!("{:?} {seq}:{} ack {ack}{window} {options:?}", segment.flags, seq + segment.len())
}

/// Options of a frame, as they are on the wire.
fn options_of(frame: &[u8]) -> &[u8] {
    let is_ipv6 = frame[12..14] == [0x86, 0xdd];
    let tcp = &frame[14 + if is_ipv6 { 40 } else { 20 }..];
    &tcp[20..usize::from(tcp[12] >> 4) * 4]
}

/// The stack under test, in virtual time.
fn ours(scenario: &Scenario) -> Vec<Line> {
    let mut server = Server::new(scenario);
    let mut record = Record::default();
    let iss = SeqNumber(1_000_000);
    let mut out: VecDeque<Vec<u8>> = VecDeque::new();
    let stack = scenario.stack();
    let src = if scenario.is_ipv6 { "[2001:db8::2]:40000" } else { "10.9.0.2:40000" };
    let tuple = FourTuple { src: src.parse().expect("an address"), dst: scenario.server() };
    let ethernet = Ethernet { src: [2; 6], dst: [4; 6] };
    macro_rules! put {
        () => {
            &mut |segment: &Segment<'_>| {
                let mut frame = vec![0; wire::frame_len(&tuple, segment)];
                wire::emit(&mut frame, &ethernet, &tuple, segment);
                out.push_back(frame);
            }
        };
    }
    let mut now = Nanos::ZERO;
    let mut connection = Connection::connect(stack, iss, 77, now, put!());
    let (mut read, mut asked) = (0, 0);
    let mut act_at = Nanos::MAX;
    let stream = [b'q'; REQUEST];
    loop {
        while let Some(frame) = out.pop_front() {
            let (_, segment) = wire::parse(&frame).expect("a frame of ours");
            record.client(&segment, options_of(&frame), iss, now);
            server.hear(&segment, now);
        }
        now = server.next_due().min(connection.deadline()).min(act_at);
        if now == Nanos::MAX || now > Nanos::from_secs(20) {
            return record.lines;
        }
        let mut heard = Vec::new();
        server.send(now, |segment| {
            heard.push((Segment { payload: &[], ..*segment }, segment.payload.to_vec()));
        });
        for (segment, payload) in heard {
            let segment = Segment { payload: &payload, ..segment };
            record.server(now);
            let told = connection.on_segment(stack, &segment, now, put!());
            read += (told.data.len() + told.then.len()) as u32;
            let is_asked = asked > 0 && scenario.read.get(asked - 1).is_some_and(|until| *until <= read);
            if told.change == Change::Established {
                act_at = now;
            } else if is_asked && act_at == Nanos::MAX && connection.state() != State::Closed {
                act_at = now + Nanos::from_millis(scenario.pause);
            }
        }
        if act_at <= now {
            act_at = Nanos::MAX;
            if asked < scenario.read.len() {
                assert!(asked == 0 || connection.next_stream(), "the reply acknowledged the request");
                asked += 1;
                connection.transmit(stack, &stream, now, put!());
                if scenario.ends == Ends::HalfClose {
                    connection.half_close(stack, &stream, now, put!());
                }
            } else {
                asked += 1;
                let how = if scenario.ends == Ends::Reset { Close::Reset } else { Close::Fin };
                connection.close(stack, how, now, put!());
            }
        }
        connection.on_deadline(stack, &stream, now, put!());
    }
}

/// The running kernel, on a wire of its own.
fn kernels(scenario: &Scenario) -> Vec<Line> {
    let lan = Lan::create().expect("root can make namespaces");
    // What window scale and window follow from; the default is another on every second kernel.
    lan.server.set_sysctl("net.ipv4.tcp_rmem", "4096 131072 33554432").expect("a sysctl");
    let tap = Tap::open(&lan.client, lan.c0.ifindex).expect("a packet socket");
    let (to, ethernet) = (scenario.server(), Ethernet { src: lan.c0.mac, dst: lan.s0.mac });
    std::thread::scope(|scope| {
        let lan = &lan;
        scope.spawn(move || lan.server.enter(|| application(scenario, to)).expect("enter a namespace"));
        listen(scenario, &tap, &ethernet, to)
    })
}

fn application(scenario: &Scenario, to: SocketAddr) {
    let Ok(mut socket) = TcpStream::connect(to) else {
        return; // refused, as it should be
    };
    socket.set_nodelay(true).expect("an option");
    let mut read = 0;
    for until in &scenario.read {
        if read > 0 {
            std::thread::sleep(Duration::from_millis(scenario.pause));
        }
        socket.write_all(&[b'q'; REQUEST]).expect("a request");
        if scenario.ends == Ends::HalfClose {
            socket.shutdown(Shutdown::Write).expect("shut down");
        }
        let mut reply = vec![0; (until - read) as usize];
        socket.read_exact(&mut reply).expect("a reply");
        read = *until;
    }
    std::thread::sleep(Duration::from_millis(scenario.pause));
    if scenario.ends == Ends::Reset {
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::Linger, &linger).expect("an option");
    }
}

fn listen(scenario: &Scenario, tap: &Tap, ethernet: &Ethernet, address: SocketAddr) -> Vec<Line> {
    let mut server = Server::new(scenario);
    let mut record = Record::default();
    let mut client = None;
    let start = Instant::now();
    let mut last = Instant::now();
    while last.elapsed() < SILENCE {
        let now = Nanos::from(start.elapsed());
        if let Some((src, _)) = client {
            server.send(now, |segment| {
                let tuple = FourTuple { src: address, dst: src };
                let mut frame = vec![0; wire::frame_len(&tuple, segment)];
                wire::emit(&mut frame, ethernet, &tuple, segment);
                tap.send(&frame).expect("send");
                record.server(Nanos::from(start.elapsed()));
            });
        }
        let wait = Duration::from(server.next_due().since(now)).min(Duration::from_millis(5));
        let Some(frame) = tap.receive(wait).expect("receive") else { continue };
        let came = Nanos::from(start.elapsed().saturating_sub(frame.age));
        let Ok((tuple, segment)) = wire::parse(&frame.bytes) else { continue };
        if tuple.dst != address {
            continue;
        }
        last = Instant::now();
        let (_, iss) = *client.get_or_insert((tuple.src, segment.seq));
        if record.lines.is_empty() {
            record.last = came; // nothing was before the first SYN
        }
        record.client(&segment, options_of(&frame.bytes), iss, came);
        server.hear(&segment, came);
    }
    record.lines
}

/// Timers of the kernel fire up to an eighth late, and at ticks of 4 ms; whatever else is late is
/// this machine.
fn is_on_time(ours: Nanos, kernels: Nanos) -> bool {
    let (ours, kernels) = (ours.as_millis_f64(), kernels.as_millis_f64());
    ours - 6.0 <= kernels && kernels <= ours * 1.15 + 25.0
}

#[track_caller]
fn check(scenario: &Scenario) {
    if let Err(reason) = netns::root_or_reason() {
        eprintln!("skipped: {reason}");
        return;
    }
    let ours = ours(scenario);
    let mut shown = String::new();
    for _ in 0..RUNS {
        let kernels = kernels(scenario);
        let texts = |lines: &[Line]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>();
        let is_same = texts(&ours) == texts(&kernels);
        if is_same && ours.iter().zip(&kernels).all(|(ours, kernels)| is_on_time(ours.gap, kernels.gap)) {
            return;
        }
        let show = |lines: &[Line]| {
            lines.iter().map(|line| format!("  +{} {}\n", line.gap, line.text)).collect::<String>()
        };
        shown = format!("ours:\n{}kernel's:\n{}", show(&ours), show(&kernels));
    }
    panic!("not what the kernel sends, in {RUNS} runs:\n{shown}");
}

#[test]
fn reply_is_acknowledged_at_once_and_then_closed() {
    check(&Scenario::default());
}

#[test]
fn ipv6_has_smaller_segments_and_the_same_manners() {
    let reply = (0..6).map(|n| (2 + n, n as u32 * 1428, (n as u32 + 1) * 1428, false)).collect();
    check(&Scenario {
        is_ipv6: true,
        lost_requests: 1,
        replies: vec![reply],
        read: vec![6 * 1428],
        ..Scenario::default()
    });
}

#[test]
fn peer_without_options_gets_none() {
    check(&Scenario { is_modern: false, ..Scenario::default() });
}

#[test]
fn abortive_close_is_one_reset() {
    check(&Scenario { ends: Ends::Reset, ..Scenario::default() });
}

#[test]
fn half_closed_client_reads_on() {
    check(&Scenario {
        ends: Ends::HalfClose,
        replies: vec![vec![(5, 0, 500, false), (10, 500, 900, true)]],
        read: vec![900],
        ..Scenario::default()
    });
}

#[test]
fn server_that_closes_first_gets_fin_and_ack_in_one() {
    check(&Scenario { replies: vec![vec![(2, 0, 500, true)]], ..Scenario::default() });
}

#[test]
fn unanswered_syn_is_sent_every_second_and_then_later() {
    check(&Scenario { lost_syns: 6, ..Scenario::default() });
}

#[test]
fn refused_client_sends_no_more() {
    check(&Scenario { refuses: true, ..Scenario::default() });
}

#[test]
fn lost_request_is_sent_again() {
    check(&Scenario { lost_requests: 3, ..Scenario::default() });
}

#[test]
fn lost_request_of_a_peer_without_options_is_sent_again() {
    check(&Scenario { lost_requests: 3, is_modern: false, ..Scenario::default() });
}

#[test]
fn lost_fin_is_sent_again() {
    check(&Scenario { lost_fins: 2, ..Scenario::default() });
}

#[test]
fn long_reply_is_acknowledged_segment_by_segment_at_first() {
    let reply = (0..6).map(|n| (2 + n, n as u32 * 1448, (n as u32 + 1) * 1448, false)).collect();
    check(&Scenario { replies: vec![reply], read: vec![6 * 1448], ..Scenario::default() });
}

#[test]
fn segments_out_of_order_are_kept_and_said() {
    let reply =
        vec![(2, 1000, 1500, false), (4, 2000, 2500, false), (6, 1500, 2000, false), (8, 0, 1000, false)];
    check(&Scenario { replies: vec![reply], read: vec![2500], ..Scenario::default() });
}

#[test]
fn what_comes_twice_is_delivered_once() {
    let reply = vec![(2, 0, 1000, false), (4, 0, 1000, false), (6, 500, 1500, false)];
    check(&Scenario { replies: vec![reply], read: vec![1500], ..Scenario::default() });
}

#[test]
fn fin_that_comes_before_its_turn_counts_when_the_data_are_there() {
    let reply = vec![(2, 1000, 1500, true), (10, 0, 1000, false)];
    check(&Scenario { replies: vec![reply], read: vec![1500], ..Scenario::default() });
}

#[test]
fn second_reply_of_a_conversation_is_acknowledged_late() {
    check(&Scenario {
        replies: vec![vec![(2, 0, 500, false)], vec![(2, 500, 900, false)]],
        read: vec![500, 900],
        pause: 10,
        ..Scenario::default()
    });
    check(&Scenario {
        replies: vec![vec![(2, 0, 500, false)], vec![(2, 500, 900, false)]],
        read: vec![500, 900],
        pause: 100,
        ..Scenario::default()
    });
}
