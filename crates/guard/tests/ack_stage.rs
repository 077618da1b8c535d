//! What becomes of a handshake that ends when the accept queue is full, on a real kernel.

use std::ops::Range;
use std::time::{Duration, Instant};

use crate::common::frame::{Segment, is_reset_to};
use crate::common::*;
use guard::{Attach, Policy};
use nix::sys::socket::Backlog;

const LISTEN4: &str = "10.9.0.2:8080";
const LISTEN6: &str = "[fd09::2]:8080";
/// Every SYN is answered with a cookie (`Documentation/networking/ip-sysctl.rst`).
const COOKIES_ALWAYS: (&str, &str) = ("net.ipv4.tcp_syncookies", "2");
const ABORT_ON_OVERFLOW: (&str, &str) = ("net.ipv4.tcp_abort_on_overflow", "1");

/// What came back to the end of a handshake that met a full accept queue, and what the server's
/// kernel counted.
struct Seen {
    reset: Option<Vec<u8>>,
    embryonic: u64,
}

/// Begins a handshake while there is room, fills the queue, and ends it.
fn overflow(
    listen: &str,
    policy: Option<Policy>,
    sysctls: &[(&str, &str)],
    payload: &[u8],
    attach: Attach,
) -> Option<Seen> {
    let world = World::create_for(attach)?;
    world.finish_checksums();
    for (name, value) in sysctls {
        world.server.set_sysctl(name, value).expect("sysctl");
    }
    let _peer = world.peer_for(attach);
    let _listener = world.listen(listen);
    // The default policy looks and never acts.
    let guarded = world.guard(listen, policy.unwrap_or(Policy::DEFAULT), attach, false);
    let tap = world.tap();
    let handshake = Handshake::begin(&tap, listen);
    let _streams = world.fill(&guarded);
    let end = handshake.end(payload);
    tap.send(&end.to_bytes());
    // Nothing listens there: its RST comes after any other.
    let marker = handshake.syn.clone().with("marker", |segment| segment.destination_port = CLOSED_PORT);
    tap.send(&marker.to_bytes());
    let first = tap.receive("a RST", |frame| is_reset_to(frame, &end) || is_reset_to(frame, &marker));
    let counters = netns::namespace_counters(&world.server).expect("counters");
    let sample = guarded.sample();
    let has_reset = is_reset_to(&first, &end);
    if policy.is_some_and(|policy| policy == Policy::ABORT) {
        assert_eq!((sample.stats.acks_full, sample.stats.acks_reset), (1, 1));
        assert_eq!(sample.stats.acks_implied, u64::from(!payload.is_empty()));
    } else {
        assert_eq!(sample.stats.acks_reset, 0);
    }
    Some(Seen {
        reset: has_reset.then_some(first),
        embryonic: counters.get("TcpExt.EmbryonicRsts").copied().unwrap_or(0),
    })
}

/// Without Ethernet, and without what differs from handshake to handshake: the server's sequence
/// number, and all sums.
fn comparable(frame: &[u8], is_ipv6: bool) -> Vec<u8> {
    let mut packet = frame[14..].to_vec();
    let tcp = if is_ipv6 { 40 } else { 20 };
    if !is_ipv6 {
        packet[10..12].fill(0);
    } else {
        packet[..4].fill(0); // the flow label is a hash with a secret key
    }
    packet[tcp + 4..tcp + 8].fill(0);
    packet[tcp + 16..tcp + 18].fill(0);
    packet
}

#[test]
fn root_abort_resets_as_the_system_wide_sysctl_does() {
    for listen in [LISTEN4, LISTEN6] {
        for payload in [&b""[..], b"GET / HTTP/1.1"] {
            for attach in [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric] {
                let Some(ours) = overflow(listen, Some(Policy::ABORT), &[], payload, attach) else {
                    return;
                };
                let kernels =
                    overflow(listen, None, &[ABORT_ON_OVERFLOW], payload, attach).expect("tcx is there");
                let bytes =
                    |seen: &Seen| comparable(seen.reset.as_deref().expect("a RST"), listen == LISTEN6);
                assert_eq!(bytes(&ours), bytes(&kernels), "{listen} {payload:?} {attach:?}");
                assert_eq!((ours.embryonic, kernels.embryonic), (1, 1), "the request socket goes at once");
            }
        }
    }
}

#[test]
fn root_abort_resets_handshakes_by_cookie_where_the_sysctl_does_not() {
    for listen in [LISTEN4, LISTEN6] {
        let Some(ours) = overflow(listen, Some(Policy::ABORT), &[COOKIES_ALWAYS], b"", Attach::Tcx) else {
            return;
        };
        assert!(ours.reset.is_some(), "{listen}");
        let sysctls = [COOKIES_ALWAYS, ABORT_ON_OVERFLOW];
        let kernels = overflow(listen, None, &sysctls, b"", Attach::Tcx).expect("tcx is there");
        assert!(kernels.reset.is_none(), "{listen}: the sysctl is silent to cookies");
    }
}

#[test]
fn root_without_abort_the_end_of_a_handshake_is_dropped_in_silence() {
    for policy in [Policy::DEFAULT, Policy::RST_SYN] {
        let Some(seen) = overflow(LISTEN4, Some(policy), &[], b"", Attach::Tcx) else {
            return;
        };
        assert!(seen.reset.is_none(), "{policy}");
        assert_eq!(seen.embryonic, 0);
    }
}

#[test]
fn root_handshake_that_finds_room_ends_as_ever() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::ABORT, Attach::Tcx, false);
    let tap = world.tap();
    let handshake = Handshake::begin(&tap, LISTEN4);
    let _streams = world.fill(&guarded);
    listener.accept().expect("one waits");
    tap.send(&handshake.end(b"hello").to_bytes());
    let sample = guarded.wait("the queue to be full again", |sample| {
        sample.load.is_some_and(|load| load.is_accept_queue_full())
    });
    assert_eq!((sample.stats.acks_full, sample.stats.acks_reset), (0, 0));
}

/// The last SYN saw a queue that was half full: that is trusted for some of the segments that come
/// then, and no more of them than find a place.
#[test]
fn root_handshakes_that_end_together_take_each_place_once() {
    for (listen, attach) in [(LISTEN4, Attach::Tcx), (LISTEN6, Attach::Tcx), (LISTEN4, Attach::Xdp)] {
        let Some(world) = World::create_for(attach) else { return };
        world.finish_checksums();
        let _peer = world.peer_for(attach);
        let listener = world.listen(listen);
        nix::sys::socket::listen(&listener, Backlog::new(128).expect("backlog")).expect("listen");
        let guarded = world.guard(listen, Policy::ABORT, attach, false);
        let tap = world.tap();
        let (ghost, server) = if listen == LISTEN6 { (GHOST6, SERVER6) } else { (GHOST4, SERVER4) };
        let begin = |port| {
            let syn = Segment::syn("handshake", ghost, server, PORT);
            Handshake::begin_with(&tap, syn.with("its port", |syn| syn.source_port = port))
        };
        let end = |ports: Range<u16>| {
            let ends: Vec<_> = ports.map(begin).map(|handshake| handshake.end(b"").to_bytes()).collect();
            ends.iter().for_each(|end| tap.send(end));
        };
        end(10_000..10_060);
        guarded.wait("60 to be there", |sample| sample.load.is_some_and(|load| load.accept_qlen == 60));
        end(20_000..20_100);
        guarded.wait("all to be decided", |sample| sample.stats.acks_full >= 31);
        let sample = guarded.sample();
        assert_eq!((sample.stats.acks_full, sample.stats.acks_reset), (31, 31), "{listen} {attach:?}");
        assert_eq!(sample.load.map(|load| load.accept_qlen), Some(129), "{listen} {attach:?}");
        assert!(sample.path.had_room <= 69 - 32, "{listen} {attach:?}: {} unseen", sample.path.had_room);
    }
}

/// A word of a SYN is trusted for some ms only, which a busy machine may take to answer it: so
/// handshakes come until one has ended unseen.
#[test]
fn root_segments_are_not_looked_up_while_the_last_syn_saw_room() {
    for (listen, attach) in [(LISTEN4, Attach::Tcx), (LISTEN6, Attach::Tcx), (LISTEN4, Attach::Xdp)] {
        let Some(world) = World::create_for(attach) else { return };
        world.finish_checksums();
        let _peer = world.peer_for(attach);
        let listener = world.listen(listen);
        let guarded = world.guard(listen, Policy::ABORT, attach, false);
        let set_backlog = |places: i32| {
            nix::sys::socket::listen(&listener, Backlog::new(places).expect("backlog")).expect("listen");
        };
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < Duration::from_secs(20), "{listen} {attach:?}: all were looked up");
            let before = guarded.sample().path.had_room;
            // A queue that overflows has segments looked at for two seconds, and one this short
            // never has enough room.
            set_backlog(BACKLOG as i32);
            let streams = world.fill(&guarded);
            assert_eq!(guarded.sample().path.had_room, before, "{listen} {attach:?}");
            streams.iter().for_each(|_| drop(listener.accept().expect("one waits")));
            set_backlog(128);
            let client = world.connect(listen).expect("there is room");
            listener.accept().expect("one waits");
            let after = guarded.sample().path.had_room;
            drop(client);
            if after > before {
                break;
            }
            // Nobody trusts that word any more.
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn root_segments_of_connections_live_on_while_the_queue_is_full() {
    use std::io::{Read, Write};
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::ABORT, Attach::Tcx, false);
    let mut client = world.connect(LISTEN4).expect("there is room");
    let (mut server, _) = listener.accept().expect("one waits");
    let _streams = world.fill(&guarded);
    let mut buffer = [0; 4];
    for _ in 0..10 {
        client.write_all(b"ping").expect("send");
        server.read_exact(&mut buffer).expect("receive");
        server.write_all(b"pong").expect("answer");
        client.read_exact(&mut buffer).expect("the answer");
    }
    assert_eq!(guarded.sample().stats.acks_full, 0);
}

#[test]
fn root_dry_run_counts_an_abort_and_does_nothing() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::ABORT, Attach::Tcx, true);
    let tap = world.tap();
    let handshake = Handshake::begin(&tap, LISTEN4);
    let _streams = world.fill(&guarded);
    let end = handshake.end(b"");
    tap.send(&end.to_bytes());
    let sample = guarded.wait("the end", |sample| sample.stats.acks_full == 1);
    assert_eq!(sample.stats.acks_reset, 1);
    // The request socket is still there: once there is room, the same segment makes the connection.
    listener.accept().expect("one waits");
    tap.send(&end.to_bytes());
    guarded.wait("the connection", |sample| sample.load.is_some_and(|load| load.is_accept_queue_full()));
    for _ in 0..BACKLOG {
        listener.accept().expect("one waits");
    }
    let (_, peer) = listener.accept().expect("the last");
    assert_eq!(peer.ip().to_string(), GHOST4);
}
