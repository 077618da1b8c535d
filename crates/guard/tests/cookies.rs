//! SYNs that a full queue does not stop: answered with a cookie, and made a connection once there
//! is room.

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use crate::common::frame::{ACK, PSH, RST, Segment, checksum, is_reset_to, syn_ack_to, tcp_checksum};
use crate::common::tap::Tap;
use crate::common::*;
use guard::{Attach, Policy};

const LISTEN4: &str = "10.9.0.2:8080";
const LISTEN6: &str = "[fd09::2]:8080";
/// As Linux sends them: MSS 1400, SACK permitted, timestamps (7, 0), NOP, window scale 9.
const OPTIONS: [u8; 20] = [2, 4, 5, 0x78, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 0, 1, 3, 3, 9];
const TSVAL: u32 = 7;
/// `TCPI_OPT_*` of include/uapi/linux/tcp.h.
const TIMESTAMPS_SACK_WSCALE: u8 = 7;
const COOKIES_ALWAYS: (&str, &str) = ("net.ipv4.tcp_syncookies", "2");

fn kernel_cookies() -> Policy {
    "no-syn-drop:kernel".parse().expect("policy")
}

/// What the kernel says of a connection: options, its shift and the client's, and what it may send
/// at once.
fn info(stream: &TcpStream) -> libc::tcp_info {
    // SAFETY: plain numbers, for which all zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes into `info`.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut size,
        )
    };
    assert_eq!(got, 0, "TCP_INFO");
    info
}

/// A full accept queue, and a handshake whose SYN met it.
struct Met<'a> {
    guarded: Guarded<'a>,
    listener: TcpListener,
    streams: Vec<TcpStream>,
    tap: Tap,
    syn: Segment,
    /// The SYN/ACK, as on the wire.
    answer: Vec<u8>,
    _peer: Option<bpf::Link>,
}

fn meet<'a>(
    world: &'a World,
    listen: &str,
    policy: Policy,
    attach: Attach,
    options: &[u8],
    sysctls: &[(&str, &str)],
) -> Met<'a> {
    world.finish_checksums();
    for (name, value) in sysctls {
        world.server.set_sysctl(name, value).expect("sysctl");
    }
    let peer = world.peer_for(attach);
    let listener = world.listen(listen);
    let guarded = world.guard(listen, policy, attach, false);
    let streams = world.fill(&guarded);
    let (ghost, server) = if listen.starts_with('[') { (GHOST6, SERVER6) } else { (GHOST4, SERVER4) };
    let syn = Segment::syn("with options", ghost, server, PORT)
        .with("with options", |syn| syn.tcp_options = options.to_vec());
    let tap = world.tap();
    tap.send(&syn.to_bytes());
    let answer = tap.receive("a SYN/ACK", |frame| syn_ack_to(frame, &syn).is_some());
    assert_eq!(guarded.sample().stats.cookies, 1, "and it is ours");
    Met { guarded, listener, streams, tap, syn, answer, _peer: peer }
}

impl Met<'_> {
    /// The TCP header and options of the SYN/ACK.
    fn tcp(&self) -> &[u8] {
        let header = if self.syn.source.is_ipv6() { 40 } else { 20 };
        &self.answer[14 + header..]
    }

    /// The segment that ends the handshake, with timestamps if the SYN/ACK has them.
    fn end(&self, payload: &[u8]) -> Segment {
        let tcp = self.tcp();
        let isn = u32::from_be_bytes(tcp[4..8].try_into().expect("four bytes"));
        let tsval =
            tcp[20..].windows(2).position(|pair| pair == [8, 10]).map(|at| &tcp[20 + at + 2..20 + at + 6]);
        self.syn.clone().with("the end of a handshake", |segment| {
            segment.seq = segment.seq.wrapping_add(1);
            segment.ack = isn.wrapping_add(1);
            segment.flags = ACK;
            segment.tcp_options = match tsval {
                Some(tsval) => [&[1, 1, 8, 10, 0, 0, 0, 8][..], tsval].concat(),
                None => Vec::new(),
            };
            segment.payload = payload.to_vec();
        })
    }

    /// Another SYN than the first, which a full queue answers, too.
    fn meet_again(&mut self, change: impl FnOnce(&mut Segment)) {
        let before = self.guarded.sample().stats.cookies;
        self.syn = self.syn.clone().with("another", change);
        self.tap.send(&self.syn.to_bytes());
        let acks = self.syn.seq.wrapping_add(1).to_be_bytes();
        self.answer = self.tap.receive("a SYN/ACK", |frame| {
            syn_ack_to(frame, &self.syn).is_some() && frame.windows(4).any(|bytes| bytes == acks)
        });
        assert_eq!(self.guarded.sample().stats.cookies, before + 1);
    }

    fn accept_with_patience(&self) -> TcpStream {
        let (server, peer) = self.listener.accept().expect("the handshake by cookie");
        assert_eq!(peer.ip(), self.syn.source);
        server.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        server
    }

    /// Accepts those who waited before but for one, which is gone already, and gives the next with
    /// its first five bytes.
    fn after_those_before(&self) -> (TcpStream, [u8; 5]) {
        for _ in 1..self.streams.len() {
            self.listener.accept().expect("it was there before");
        }
        let mut data = [0; 5];
        let mut server = self.accept_with_patience();
        server.read_exact(&mut data).expect("nobody sends it again");
        (server, data)
    }

    /// Makes room, ends the handshake with data, and gives the server's end once the data is there.
    fn finish(&self) -> TcpStream {
        self.listener.accept().expect("one waits");
        self.tap.send(&self.end(b"hello").to_bytes());
        let (server, data) = self.after_those_before();
        assert_eq!(&data, b"hello");
        server
    }
}

#[test]
fn root_syn_to_a_full_queue_gets_a_syn_ack_with_the_options_that_it_offered() {
    for attach in [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric] {
        for listen in [LISTEN4, LISTEN6] {
            let Some(world) = World::create_for(attach) else { return };
            let Some(met) = meet_if_taken(&world, listen, attach) else { return };
            let tcp = met.tcp();
            let mss: u16 = if listen == LISTEN6 { 1440 } else { 1460 };
            let [high, low] = mss.to_be_bytes();
            assert_eq!(tcp.len(), 40, "{listen} {attach:?}: no longer than the SYN");
            assert_eq!(tcp[20..28], [2, 4, high, low, 4, 2, 8, 10], "{listen} {attach:?}");
            assert_eq!(tcp[32..36], TSVAL.to_be_bytes(), "the client's timestamp comes back");
            assert_eq!(tcp[36..], [1, 3, 3, 7]);
            assert_eq!(tcp[8..12], met.syn.seq.wrapping_add(1).to_be_bytes());
            assert_eq!(tcp_checksum(met.syn.destination, met.syn.source, tcp), 0, "{listen} {attach:?}");
            if met.syn.source.is_ipv4() {
                assert_eq!(checksum(&met.answer[14..34]), 0);
            }
        }
    }
}

/// With cookies of ours; `None`, with the reason printed, on a kernel that takes none.
fn meet_if_taken<'a>(world: &'a World, listen: &str, attach: Attach) -> Option<Met<'a>> {
    guard::takes_own_cookies()
        .then(|| meet(world, listen, Policy::NO_SYN_DROP, attach, &OPTIONS, &[]))
        .or_else(|| {
            eprintln!("skipped: no bpf_sk_assign_tcp_reqsk in this kernel (Linux 6.9 and newer)");
            None
        })
}

#[test]
fn root_syn_without_options_gets_an_mss_and_nothing_else() {
    if !guard::takes_own_cookies() {
        return eprintln!("skipped: no bpf_sk_assign_tcp_reqsk in this kernel (Linux 6.9 and newer)");
    }
    // None; a length of nothing, of more than there is, of the wrong size; padding only.
    let options: [&[u8]; 5] =
        [&[], &[2, 0, 5, 0xb4], &[2, 40, 5, 0xb4], &[3, 4, 9, 9, 8, 4, 0, 0, 4, 4, 0, 0], &[1; 40]];
    for options in options {
        for attach in [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric] {
            let Some(world) = World::create_for(attach) else { return };
            let met = meet(&world, LISTEN4, Policy::NO_SYN_DROP, attach, options, &[]);
            assert_eq!(met.tcp()[20..24], [2, 4, 5, 0xb4], "{options:?} {attach:?}");
            assert_eq!(met.tcp()[12], 6 << 4, "{options:?} {attach:?}");
            assert_eq!(tcp_checksum(met.syn.destination, met.syn.source, &met.tcp()[..24]), 0);
        }
    }
}

#[test]
fn root_handshake_by_cookie_becomes_a_connection_with_all_its_options_once_there_is_room() {
    for attach in [Attach::Tcx, Attach::Xdp] {
        for listen in [LISTEN4, LISTEN6] {
            let Some(world) = World::create_for(attach) else { return };
            let Some(met) = meet_if_taken(&world, listen, attach) else { return };
            let info = info(&met.finish());
            assert_eq!(
                info.tcpi_options & TIMESTAMPS_SACK_WSCALE,
                TIMESTAMPS_SACK_WSCALE,
                "{listen} {attach:?}"
            );
            assert_eq!(info.tcpi_snd_rcv_wscale & 0xf, 9, "the client's shift");
            assert_eq!(info.tcpi_snd_rcv_wscale >> 4, 7, "ours");
            // The size of a cookie below 1400, without the timestamps.
            assert_eq!(info.tcpi_snd_mss, 1300 - 12, "{listen}");
            assert_eq!(met.guarded.sample().stats.cookies_back, 1);
        }
    }
}

/// Whether all were sent before the first was received.
fn send_in_one_batch(met: &Met, segments: &[Segment]) -> bool {
    let frames = |met: &Met| met.guarded.sample().path.frames;
    let before = frames(met);
    // The next look at the ring is 50 ms after this one.
    let first = segments[0].clone().with("first", |first| first.destination_port = CLOSED_PORT);
    met.tap.send(&first.to_bytes());
    met.guarded.wait("the first", |sample| sample.path.frames > before);
    let start = frames(met);
    for segment in segments {
        met.tap.send(&segment.to_bytes());
    }
    frames(met) == start
}

/// With PSH, or GRO keeps it for the next batch.
fn pushed(segment: Segment) -> Segment {
    segment.with("pushed", |segment| segment.flags |= PSH)
}

#[test]
fn root_request_in_one_batch_with_the_end_of_its_handshake_is_received() {
    let mut batches = 0;
    // A busy machine may look at the ring between two of them.
    for (attach, listen) in [(Attach::Tcx, LISTEN4), (Attach::Tcx, LISTEN6), (Attach::Xdp, LISTEN4)].repeat(3)
    {
        let Some(world) = World::create_for(attach) else { return };
        world.receive_in_batches();
        let Some(met) = meet_if_taken(&world, listen, attach) else { return };
        met.listener.accept().expect("one waits");
        if !send_in_one_batch(&met, &[met.end(b""), pushed(met.end(b"hello"))]) {
            continue;
        }
        batches += 1;
        assert_eq!(&met.after_those_before().1, b"hello");
        assert_eq!(met.guarded.sample().stats.cookies_back, 1, "{listen} {attach:?}");
    }
    assert!(batches > 0, "no batch in nine attempts");
}

#[test]
fn root_request_behind_an_end_for_which_a_batch_had_no_more_room_is_reset() {
    let mut batches = 0;
    for listen in [LISTEN4, LISTEN6].repeat(3) {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        world.receive_in_batches();
        let Some(mut met) = meet_if_taken(&world, listen, Attach::Tcx) else { return };
        let (end, request) = (met.end(b""), pushed(met.end(b"hello")));
        met.meet_again(|syn| syn.source_port += 1);
        let (late_end, late_request) = (met.end(b""), pushed(met.end(b"late")));
        met.listener.accept().expect("one waits");
        if !send_in_one_batch(&met, &[end, request, late_end.clone(), late_request]) {
            continue;
        }
        batches += 1;
        met.tap.receive("a RST to the second", |frame| is_reset_to(frame, &late_end));
        assert_eq!(&met.after_those_before().1, b"hello");
        met.listener.set_nonblocking(true).expect("a flag");
        assert_eq!(met.listener.accept().expect_err("none").kind(), ErrorKind::WouldBlock);
    }
    assert!(batches > 0, "no batch in six attempts");
}

#[test]
fn root_client_comes_again_from_its_port_at_once() {
    for listen in [LISTEN4, LISTEN6] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let Some(mut met) = meet_if_taken(&world, listen, Attach::Tcx) else { return };
        let first = met.end(b"");
        met.meet_again(|syn| syn.seq = syn.seq.wrapping_add(1 << 20));
        let again = met.end(b"again");
        met.listener.accept().expect("one waits");
        met.listener.accept().expect("so does another");
        met.tap.send(&first.to_bytes());
        met.tap.send(&first.with("given up", |segment| segment.flags = RST).to_bytes());
        met.tap.send(&again.to_bytes());
        for _ in 1..met.streams.len() {
            met.listener.accept().expect("those before, and the first, which was given up");
        }
        let mut data = [0; 5];
        met.accept_with_patience().read_exact(&mut data).expect("the data that came with the end");
        assert_eq!(&data, b"again", "{listen}");
        assert_eq!(met.guarded.sample().stats.cookies_back, 2, "{listen}");
    }
}

#[test]
fn root_kernels_cookie_becomes_a_connection_without_options() {
    for listen in [LISTEN4, LISTEN6] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let met = meet(&world, listen, kernel_cookies(), Attach::Tcx, &OPTIONS, &[COOKIES_ALWAYS]);
        assert_eq!(met.tcp()[12], 6 << 4, "{listen}: an MSS alone");
        assert_eq!(
            tcp_checksum(met.syn.destination, met.syn.source, met.tcp().get(..24).expect("it is there")),
            0
        );
        let info = info(&met.finish());
        assert_eq!(info.tcpi_options & TIMESTAMPS_SACK_WSCALE, 0, "{listen}");
        assert_eq!(met.guarded.sample().stats.cookies_back, 0, "the kernel took it");
    }
}

#[test]
fn root_handshake_by_cookie_that_finds_no_room_is_reset() {
    for listen in [LISTEN4, LISTEN6] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let Some(met) = meet_if_taken(&world, listen, Attach::Tcx) else { return };
        let end = met.end(b"hello");
        met.tap.send(&end.to_bytes());
        met.tap.receive("a RST", |frame| is_reset_to(frame, &end));
        let stats = met.guarded.sample().stats;
        assert_eq!((stats.acks_full, stats.acks_reset, stats.cookies_back), (1, 1, 0), "{listen}");
    }
}

#[test]
fn root_forged_cookie_is_the_kernels_to_reset() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let Some(met) = meet_if_taken(&world, LISTEN4, Attach::Tcx) else { return };
    met.listener.accept().expect("one waits");
    for forge in [
        |end: &mut Segment| end.ack = end.ack.wrapping_add(1),
        |end: &mut Segment| end.ack ^= 1 << 31,
        |end: &mut Segment| end.seq = end.seq.wrapping_add(1),
        |end: &mut Segment| end.source_port += 1,
    ] {
        let end = met.end(b"hello").with("a forged end", forge);
        met.tap.send(&end.to_bytes());
        met.tap.receive("a RST", |frame| is_reset_to(frame, &end));
    }
    let sample = met.guarded.sample();
    assert_eq!(sample.stats.cookies_back, 0);
    assert_eq!(sample.load.map(|load| load.accept_qlen), Some(BACKLOG as u32), "no connection came of it");
}

#[test]
fn root_full_syn_queue_is_answered_with_cookies_as_well() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    if !guard::takes_own_cookies() {
        return eprintln!("skipped: no bpf_sk_assign_tcp_reqsk in this kernel (Linux 6.9 and newer)");
    }
    let _listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::NO_SYN_DROP, Attach::Tcx, false);
    let tap = world.tap();
    for port in 0..4 {
        let syn =
            Segment::syn("one of many", GHOST4, SERVER4, PORT).with("one", |syn| syn.source_port += port);
        tap.send(&syn.to_bytes());
        tap.receive("a SYN/ACK", |frame| syn_ack_to(frame, &syn).is_some());
    }
    let sample = guarded.sample();
    assert_eq!((sample.stats.admitted, sample.stats.cookies), (BACKLOG as u64, 2));
    assert_eq!(sample.load.map(|load| load.syn_qlen), Some(BACKLOG as u32));
}

#[test]
fn root_kernels_own_client_is_told_by_a_reset_that_there_is_no_room() {
    for listen in [LISTEN4, LISTEN6] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let Some(met) = meet_if_taken(&world, listen, Attach::Tcx) else { return };
        // Refused would be a RST to its SYN. The reset may come before it looks.
        let answer = world.connect(listen).and_then(|mut client| client.read(&mut [0]));
        let error = answer.expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{listen}");
        assert_eq!(met.guarded.sample().stats.acks_reset, 1);
    }
}

#[test]
fn root_dry_run_counts_a_cookie_and_sends_none() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    if !guard::takes_own_cookies() {
        return eprintln!("skipped: no bpf_sk_assign_tcp_reqsk in this kernel (Linux 6.9 and newer)");
    }
    let _listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::NO_SYN_DROP, Attach::Tcx, true);
    let _streams = world.fill(&guarded);
    let tap = world.tap();
    let syn = Segment::syn("attempt", GHOST4, SERVER4, PORT);
    let marker = syn.clone().with("marker", |segment| segment.destination_port = CLOSED_PORT);
    tap.send(&syn.to_bytes());
    tap.send(&marker.to_bytes());
    let first =
        tap.receive("an answer", |frame| syn_ack_to(frame, &syn).is_some() || is_reset_to(frame, &marker));
    assert!(is_reset_to(&first, &marker), "the SYN was left to the kernel, which dropped it");
    assert_eq!(guarded.sample().stats.cookies, 1);
}

#[test]
fn root_end_of_a_handshake_is_counted_once_where_two_programs_see_it() {
    let Some(_tcx) = World::create_for(Attach::Tcx) else { return };
    if !guard::takes_own_cookies() {
        return eprintln!("skipped: no bpf_sk_assign_tcp_reqsk in this kernel (Linux 6.9 and newer)");
    }
    let Some(world) = World::create_for(Attach::Xdp) else { return };
    let _peer = world.peer_for(Attach::Xdp);
    let _listener = world.listen(LISTEN4);
    // A dry run leaves the segment as it is for the program at tcx.
    let guarded = world.guard(LISTEN4, Policy::NO_SYN_DROP, Attach::Xdp, true);
    let tap = world.tap();
    let handshake = Handshake::begin(&tap, LISTEN4);
    let _streams = world.fill(&guarded);
    let end = handshake.end(b"");
    let marker = handshake.syn.clone().with("marker", |segment| segment.destination_port = CLOSED_PORT);
    tap.send(&end.to_bytes());
    tap.send(&marker.to_bytes());
    tap.receive("a RST", |frame| is_reset_to(frame, &marker));
    let stats = guarded.sample().stats;
    assert_eq!((stats.acks_full, stats.acks_reset), (1, 1));
}

#[test]
fn root_sysctls_that_make_cookies_fail_are_refused_before_anything_is_attached() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    let refused = |policy: &str, syncookies: &str| {
        world.server.set_sysctl("net.ipv4.tcp_syncookies", syncookies).expect("sysctl");
        let listener =
            guard::Listener::new(LISTEN4.parse().expect("address"), policy.parse().expect("policy"));
        let config = guard::Config {
            listeners: vec![listener],
            interfaces: vec!["s0".to_owned()],
            must_listen: true,
            ..guard::Config::default()
        };
        world.guard_with(&config).err().map(|error| error.to_string())
    };
    if guard::takes_own_cookies() {
        assert_eq!(refused("no-syn-drop", "1"), None);
        assert!(refused("no-syn-drop", "0").is_some_and(|error| error.contains("tcp_syncookies=1")));
    } else {
        assert!(refused("no-syn-drop", "2").is_some_and(|error| error.contains("no-syn-drop:kernel")));
    }
    assert!(refused("no-syn-drop:kernel", "1").is_some_and(|error| error.contains("tcp_syncookies=2")));
    assert_eq!(
        world.server.enter(|| bpf::count_tcx_ingress(world.s0.ifindex)).expect("enter").unwrap_or(0),
        0
    );
}
