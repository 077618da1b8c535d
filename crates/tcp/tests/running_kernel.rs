//! The controlled sender against the kernel that runs here: both send a stream to the same
//! receiver, which loses the same segments, and what they put on the wire is held side by side,
//! segment by segment.
//!
//! The kernel is without what this crate has not, and can be without: F-RTO, and segments that the
//! device would cut. The path keeps the order.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use netns::{Lan, Offload, Tap};
use nix::libc;
use nix::sys::socket::sockopt::TcpCongestion;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tcp::{Algorithm, Close, Connection, Control, Handshake, LINUX, Stack, Zeros};
use units::Nanos;
use wire::{Ethernet, Flags, FourTuple, Options, Segment, SeqNumber};

const PORT: u16 = 80;
/// How late the receiver hears: the round trip.
const DELAY: Nanos = Nanos::from_millis(20);
/// A machine that does something else delivers acknowledgments late: one run that agrees is as good
/// as many.
const RUNS: usize = 4;
/// Of losses at random.
const CASES: usize = 20;
const CLIENT_ISS: SeqNumber = SeqNumber(u32::MAX - 10);

/// Of a stream, bytes: so few that a packet socket holds all that is under way at once.
const LEN: u64 = 200_000;

struct Case {
    algorithm: Algorithm,
    sack: bool,
    /// Bytes of the stream.
    len: u64,
    /// Data segments that the receiver does not hear, counted from 0 as they come.
    lost: Vec<usize>,
    /// How long the path takes for each segment, one after the other: what waits for that makes
    /// round trips longer.
    service: Nanos,
}

/// What a sender says of its round trips in the end, milliseconds: the smoothed one, and the
/// timeout.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RoundTrip {
    smoothed_ms: f64,
    timeout_ms: f64,
}

/// A segment without its borrow.
struct Owned {
    seq: SeqNumber,
    ack: SeqNumber,
    flags: Flags,
    window: u16,
    options: Options,
    payload: Vec<u8>,
}

/// What takes in a stream, and what it saw on the wire: where in the stream each data segment
/// began, and its length.
struct Receiver<'a> {
    case: &'a Case,
    stack: Stack,
    connection: Connection,
    inbox: VecDeque<(Nanos, Owned)>,
    /// When the path has done with what came.
    free_at: Nanos,
    irs: SeqNumber,
    seen: Vec<(u32, usize)>,
    heard: u64,
}

impl<'a> Receiver<'a> {
    fn connect(case: &'a Case, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) -> Self {
        let stack = Stack { sack: case.sack, receive_buffer: Some(1 << 20), ..LINUX };
        let connection = Connection::connect(&stack, CLIENT_ISS, 77, now, send);
        Self {
            case,
            stack,
            connection,
            inbox: VecDeque::new(),
            free_at: Nanos::ZERO,
            irs: SeqNumber(0),
            seen: Vec::new(),
            heard: 0,
        }
    }

    fn on_wire(&mut self, segment: &Segment<'_>, now: Nanos) {
        let Segment { seq, ack, flags, window, options, payload } = *segment;
        if flags.has(Flags::SYN) {
            self.irs = seq;
        }
        if !payload.is_empty() {
            self.seen.push((seq - (self.irs + 1), payload.len()));
            if self.case.lost.contains(&(self.seen.len() - 1)) {
                return;
            }
        }
        let owned = Owned { seq, ack, flags, window, options, payload: payload.to_vec() };
        self.free_at = self.free_at.max(now) + self.case.service;
        self.inbox.push_back((self.free_at + DELAY, owned));
    }

    fn next_due(&self) -> Nanos {
        self.inbox.front().map_or(Nanos::MAX, |(at, _)| *at).min(self.connection.deadline())
    }

    fn act(&mut self, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        while self.inbox.front().is_some_and(|(at, _)| *at <= now) {
            let (_, owned) = self.inbox.pop_front().expect("one was there");
            let Owned { seq, ack, flags, window, options, payload } = &owned;
            let segment =
                Segment { seq: *seq, ack: *ack, flags: *flags, window: *window, options: *options, payload };
            let heard = self.connection.on_segment(&self.stack, &segment, now, send);
            self.heard += (heard.data.len() + heard.then.len()) as u64;
        }
        self.connection.on_deadline(&self.stack, &Zeros(0), now, send);
    }

    fn is_over(&self) -> bool {
        self.heard >= self.case.len
    }
}

/// Ours, in virtual time.
fn ours(case: &Case) -> (Vec<(u32, usize)>, RoundTrip) {
    let stack = LINUX;
    let stream = Zeros(case.len);
    let mut now = Nanos::ZERO;
    let mut acks: VecDeque<Owned> = VecDeque::new();
    macro_rules! put {
        () => {
            &mut |segment: &Segment<'_>| {
                let Segment { seq, ack, flags, window, options, payload } = *segment;
                acks.push_back(Owned { seq, ack, flags, window, options, payload: payload.to_vec() });
            }
        };
    }
    let mut receiver = Receiver::connect(case, now, put!());
    let mut handshake = None;
    let mut server: Option<Connection> = None;
    loop {
        while let Some(owned) = acks.pop_front() {
            let Owned { seq, ack, flags, window, options, payload } = &owned;
            let segment =
                Segment { seq: *seq, ack: *ack, flags: *flags, window: *window, options: *options, payload };
            if flags.has(Flags::SYN) {
                let begun = Handshake::begin(&segment, SeqNumber(u32::MAX - 90_000), now);
                receiver.on_wire(&begun.syn_ack(&stack, 0, now), now);
                handshake = Some(begun);
                continue;
            }
            let server = server.get_or_insert_with(|| {
                let mut server = handshake.expect("a SYN came first").established(&stack, 0, now);
                server.control(Control { algorithm: case.algorithm, waits_for_more: true });
                server
            });
            let mut send = |segment: &Segment<'_>| receiver.on_wire(segment, now);
            server.on_segment(&stack, &segment, now, &mut send);
            server.transmit(&stack, &stream, now, &mut send);
        }
        if receiver.is_over() {
            break;
        }
        let deadline = server.as_ref().map_or(Nanos::MAX, Connection::deadline);
        now = receiver.next_due().min(deadline);
        assert!(now < Nanos::from_secs(60), "it comes to an end");
        if let Some(server) = server.as_mut().filter(|_| deadline <= now) {
            server.on_deadline(&stack, &stream, now, &mut |segment| receiver.on_wire(segment, now));
        }
        receiver.act(now, put!());
    }
    let path = server.as_ref().and_then(Connection::path_state).expect("it has sent");
    let smoothed_ms = path.round_trip.as_millis_f64();
    let timeout_ms = smoothed_ms + path.margin.max(stack.rto.least_variation).as_millis_f64();
    (receiver.seen, RoundTrip { smoothed_ms, timeout_ms })
}

/// The running kernel's.
fn kernels(case: &Case) -> (Vec<(u32, usize)>, RoundTrip) {
    let lan = Lan::create().expect("root can make namespaces");
    for (sysctl, value) in [
        ("tcp_recovery", "0"),
        ("tcp_frto", "0"),
        ("tcp_no_metrics_save", "1"),
        ("tcp_wmem", "4096 4194304 8388608"),
    ] {
        lan.server.set_sysctl(&format!("net.ipv4.{sysctl}"), value).expect("a sysctl");
    }
    for offload in [Offload::TcpSegmentation, Offload::GenericSegmentation] {
        netns::set_offload(&lan.server, &lan.s0.name, offload, false).expect("an offload");
    }
    lan.server.ip(&["link", "set", "dev", &lan.s0.name, "gso_max_segs", "1"]).expect("a limit");
    let tap = Tap::open(&lan.client, lan.c0.ifindex).expect("a packet socket");
    let ethernet = Ethernet { src: lan.c0.mac, dst: lan.s0.mac };
    let [src, dst] = [Lan::GHOST[0], Lan::SERVER[0]]
        .map(|address| SocketAddr::new(address.parse().expect("an address"), PORT));
    let tuple = FourTuple { src, dst };
    let (ready, is_ready) = mpsc::channel();
    std::thread::scope(|scope| {
        let (lan, len) = (&lan, case.len as usize);
        let name = if case.algorithm == Algorithm::Cubic { "cubic" } else { "reno" };
        let server = scope.spawn(move || lan.server.enter(|| serve(dst, name, len, &ready)));
        is_ready.recv().expect("it listens");
        let mut put = |segment: &Segment<'_>| {
            let mut frame = vec![0; wire::frame_len(&tuple, segment)];
            wire::emit(&mut frame, &ethernet, &tuple, segment);
            tap.send(&frame).expect("send");
        };
        let start = Instant::now();
        let now = || Nanos::from(start.elapsed());
        let mut receiver = Receiver::connect(case, now(), &mut put);
        while !receiver.is_over() && start.elapsed() < Duration::from_secs(60) {
            let wait = Duration::from(receiver.next_due().since(now())).min(Duration::from_millis(5));
            if let Some(frame) = tap.receive(wait).expect("receive")
                && let Ok((from, segment)) = wire::parse(&frame.bytes)
                && (from.src, from.dst) == (dst, src)
            {
                receiver.on_wire(&segment, now());
            }
            receiver.act(now(), &mut put);
        }
        let stack = receiver.stack;
        receiver.connection.close(&stack, Close::Reset, now(), &mut put);
        let round_trip = server.join().expect("it does not panic").expect("enter a namespace");
        (receiver.seen, round_trip)
    })
}

fn serve(address: SocketAddr, algorithm: &str, len: usize, ready: &mpsc::Sender<()>) -> RoundTrip {
    let listener = TcpListener::bind(address).expect("listen");
    nix::sys::socket::setsockopt(&listener, TcpCongestion, &algorithm.into()).expect("the kernel has it");
    ready.send(()).expect("somebody waits");
    let (mut socket, _) = listener.accept().expect("accept");
    // A receiver that has all resets the connection.
    let _ = socket.write_all(&vec![0; len]).and_then(|()| socket.read(&mut [0]));
    round_trip_of(&socket)
}

/// `TCP_INFO`.
fn round_trip_of(socket: &TcpStream) -> RoundTrip {
    // SAFETY: it is plain data, and zeros are a value of it.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    let room = (&raw mut info).cast();
    // SAFETY: the socket is open, and there is as much room as is said.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, room, &mut len) };
    assert_eq!(done, 0, "the kernel tells");
    let ms = |us: u32| f64::from(us) / 1000.0;
    RoundTrip { smoothed_ms: ms(info.tcpi_rtt), timeout_ms: ms(info.tcpi_rto) }
}

fn is_root() -> bool {
    netns::root_or_reason().inspect_err(|reason| eprintln!("skipped: {reason}")).is_ok()
}

#[track_caller]
fn check(case: &Case) {
    if !is_root() {
        return;
    }
    if let Err(shown) = compare(case) {
        panic!("not what the kernel sends, in {RUNS} runs: {shown}");
    }
}

/// Where they part, if they do in each run.
fn compare(case: &Case) -> Result<(), String> {
    let (ours, _) = ours(case);
    let mut shown = String::new();
    for _ in 0..RUNS {
        let (kernels, _) = kernels(case);
        let same = ours.iter().zip(&kernels).take_while(|(ours, kernels)| ours == kernels).count();
        if same == ours.len() && same == kernels.len() {
            return Ok(());
        }
        let after = |seen: &[(u32, usize)]| {
            seen[same.saturating_sub(3)..]
                .iter()
                .take(20)
                .map(|(at, len)| format!(" {at}+{len}"))
                .collect::<String>()
        };
        shown = format!(
            "{same} of {} and {} are the same, then\nours:    {}\nkernel's:{}",
            ours.len(),
            kernels.len(),
            after(&ours),
            after(&kernels)
        );
    }
    Err(shown)
}

fn reno(sack: bool, lost: &[usize]) -> Case {
    Case { algorithm: Algorithm::NewReno, sack, len: LEN, lost: lost.to_vec(), service: Nanos::ZERO }
}

#[test]
fn root_stream_without_loss_leaves_as_the_kernels() {
    check(&reno(true, &[]));
}

#[test]
fn root_single_loss_is_recovered_from_as_the_kernel_does() {
    check(&reno(true, &[40]));
}

#[test]
fn root_several_losses_of_a_window_are_recovered_from_as_the_kernel_does() {
    check(&reno(true, &[60, 62, 64, 65, 66, 80]));
}

/// Whatever is overtaken while one loss is recovered from is lost at once, and which turn it is to
/// send is as the kernel counts.
#[test]
fn root_second_loss_while_recovering_is_found_when_the_kernel_finds_it() {
    for lost in [&[40, 50][..], &[40, 55, 56], &[40, 58]] {
        check(&reno(true, lost));
    }
}

#[test]
fn root_single_loss_without_selective_acknowledgements_is_recovered_from_as_the_kernel_does() {
    check(&reno(false, &[40]));
}

#[test]
fn root_several_losses_without_selective_acknowledgements_are_recovered_from_as_the_kernel_does() {
    check(&reno(false, &[60, 66, 80]));
}

#[test]
fn root_timeout_is_recovered_from_as_the_kernel_does() {
    // The whole first window, and what is sent after the timer went off first.
    check(&reno(true, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
}

#[test]
fn root_losses_in_several_windows_are_recovered_from_as_the_kernel_does() {
    check(&reno(true, &[40, 60, 61, 110]));
}

#[test]
fn root_segment_that_is_lost_again_is_sent_again_as_the_kernels() {
    let (first, _) = ours(&reno(true, &[40]));
    let again = (41..first.len()).find(|at| first[*at].0 == first[40].0).expect("it is sent again");
    check(&reno(true, &[40, again]));
}

#[test]
fn root_lost_tail_is_sent_again_as_the_kernels() {
    let last = LEN as usize / 1448;
    check(&reno(true, &[last]));
    check(&reno(true, &[last - 1, last]));
    check(&reno(true, &[last - 3, last - 2, last - 1, last]));
}

/// One segment overtakes it: RACK's timer, or the last segment would be sent again in its place.
#[test]
fn root_loss_just_before_the_end_is_sent_again_as_the_kernels() {
    check(&reno(true, &[LEN as usize / 1448 - 1]));
}

/// Any one to six of the first 150 segments are lost. Where they part, a segment most often comes a
/// turn earlier or later: in virtual time a burst is an instant.
#[test]
fn root_random_losses_are_recovered_from_as_the_kernel_does_but_for_a_turn() {
    if !is_root() {
        return;
    }
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let (mut equal, mut parted) = (0, String::new());
    for n in 0..CASES {
        let lost: Vec<usize> = (0..1 + n % 6).map(|_| random.random_range(10..150)).collect();
        match compare(&reno(true, &lost)) {
            Ok(()) => equal += 1,
            Err(shown) => parted += &format!("\n{lost:?}: {shown}"),
        }
    }
    assert!(10 * equal >= 8 * CASES, "{equal} of {CASES} are the same:{parted}");
    println!("{equal} of {CASES} are the same:{parted}");
}

#[test]
fn root_cubic_recovers_as_the_kernels() {
    check(&Case { algorithm: Algorithm::Cubic, ..reno(true, &[20]) });
}

/// A queue grows before the receiver, from nothing to over a hundred segments. A sender that times
/// one segment a round trip is late to see it.
#[test]
fn root_round_trips_that_grow_are_averaged_as_the_kernel_does() {
    if !is_root() {
        return;
    }
    let case = Case { len: 60 * 1448, service: Nanos::from_millis(8), ..reno(true, &[]) };
    let (_, ours) = ours(&case);
    let near = |ours: f64, kernels: f64| (ours / kernels - 1.0).abs() < 0.02;
    let runs: Vec<RoundTrip> = (0..RUNS).map(|_| kernels(&case).1).collect();
    let is_near = |kernels: &RoundTrip| {
        near(ours.smoothed_ms, kernels.smoothed_ms) && near(ours.timeout_ms, kernels.timeout_ms)
    };
    assert!(runs.iter().any(is_near), "{ours:?}, and the kernel's in {RUNS} runs {runs:?}");
    println!("{ours:?}, kernel {runs:?}");
}
