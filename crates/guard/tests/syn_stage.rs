//! What a guarded listener does with the next SYN, on a real kernel.

use crate::common::frame::Segment;
use crate::common::tap::Tap;
use crate::common::*;
use guard::{Attach, Config, Listener, Policy};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::time::{Duration, Instant};

const LISTEN4: &str = "10.9.0.2:8080";
const LISTEN6: &str = "[fd09::2]:8080";

#[test]
fn root_full_accept_queue_resets_the_next_syn_and_admits_below() {
    let Some(world) = World::create() else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::RST_SYN, Attach::Auto, false);
    let streams = world.fill(&guarded);
    let full = guarded.sample();
    assert_eq!(full.stats.seen, BACKLOG as u64 + 1);
    assert_eq!(full.stats.admitted, full.stats.seen);
    assert_eq!(full.stats.reset, 0);

    let error = world.connect(LISTEN4).expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let refused = guarded.sample();
    assert_eq!(refused.stats.reset, 1);
    assert_eq!(refused.stats.accept_full, 1);
    assert_eq!(refused.stats.seen, refused.stats.admitted + 1);

    listener.accept().expect("one waits");
    world.connect(LISTEN4).expect("there is room again");
    assert_eq!(guarded.sample().stats.admitted, refused.stats.admitted + 1);
    drop(streams);
}

#[test]
fn root_full_syn_queue_alone_admits_every_syn() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::RST_SYN, Attach::Auto, false);
    let tap = world.tap();
    for source_port in 1000..1020 {
        // Nobody owns the source address, so the handshakes stay half open.
        let syn =
            Segment::syn("flood", GHOST4, SERVER4, PORT).with("flood", |syn| syn.source_port = source_port);
        tap.send(&syn.to_bytes());
    }
    let sample = guarded.wait("20 SYNs", |sample| sample.stats.seen == 20);
    let load = sample.load.expect("it listens");
    assert!(load.syn_qlen >= load.syn_limit, "{load:?}");
    assert_eq!(load.accept_qlen, 0);
    assert!(sample.stats.syn_full > 0);
    assert_eq!(sample.stats.admitted, 20);
    assert_eq!(sample.stats.reset, 0);
}

/// An agent that is not heard of any more.
fn silent(world: &World, policy: Policy) -> Guarded<'_> {
    let config = Config {
        listeners: vec![Listener::new(LISTEN4.parse().expect("address"), policy)],
        interfaces: vec!["s0".to_owned()],
        lease: Some(Duration::from_nanos(1)),
        must_listen: true,
        ..Config::default()
    };
    world.guard_with(&config).expect("start the guard")
}

#[test]
fn root_guard_whose_lease_is_over_refuses_no_syn_and_counts_those_that_it_would() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    let guarded = silent(&world, Policy::RST_SYN);
    let mut streams = world.fill(&guarded);
    drop(streams.pop()); // nothing would be done about its FIN
    let full = guarded.sample();
    assert_eq!((full.stats.admitted, full.path.unleased), (BACKLOG as u64 + 1, 0));
    let tap = world.tap();
    let syn = Segment::syn("attempt", GHOST4, SERVER4, PORT);
    tap.send(&syn.to_bytes());
    let later = guarded.wait("a SYN", |sample| sample.path.unleased == 1);
    assert_eq!((later.stats.seen, later.stats.reset), (full.stats.seen, 0));
}

#[test]
fn root_guard_whose_lease_is_over_resets_no_handshake_and_counts_those_that_it_would_ask_about() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    let guarded = silent(&world, Policy::ABORT);
    let tap = world.tap();
    let handshake = Handshake::begin(&tap, LISTEN4);
    let _streams = world.fill(&guarded);
    let before = guarded.sample().path.unleased;
    tap.send(&handshake.end(b"").to_bytes());
    let after = guarded.wait("the end of a handshake", |sample| sample.path.unleased > before);
    assert_eq!((after.stats.acks_full, after.stats.acks_reset), (0, 0));
}

#[test]
fn root_default_policy_never_resets() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::DEFAULT, Attach::Auto, false);
    let _streams = world.fill(&guarded);
    let tap = world.tap();
    tap.send(&Segment::syn("one too many", GHOST4, SERVER4, PORT).to_bytes());
    let sample = guarded.wait("the SYN", |sample| sample.stats.accept_full == 1);
    assert_eq!(sample.stats.admitted, sample.stats.seen);
    assert_eq!(sample.stats.reset, 0);
}

#[test]
fn root_dry_run_counts_resets_and_sends_none() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::RST_SYN, Attach::Auto, true);
    let _streams = world.fill(&guarded);
    let tap = world.tap();
    let syn = Segment::syn("one too many", GHOST4, SERVER4, PORT);
    tap.send(&syn.to_bytes());
    // Nothing listens there: its RST comes after any that our SYN could have caused.
    let marker = Segment::syn("marker", GHOST4, SERVER4, CLOSED_PORT);
    tap.send(&marker.to_bytes());
    let first = tap.receive("the marker's RST", |frame| {
        frame::is_reset_to(frame, &syn) || frame::is_reset_to(frame, &marker)
    });
    assert!(frame::is_reset_to(&first, &marker));
    let sample = guarded.sample();
    assert_eq!((sample.stats.reset, sample.stats.accept_full), (1, 1));
}

#[test]
fn root_dry_run_tells_the_first_syn_of_a_connection_from_its_repetitions() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    for dry_run in [true, false] {
        let guarded = world.guard(LISTEN4, Policy::DEFAULT, Attach::Auto, dry_run);
        if dry_run {
            world.fill(&guarded).into_iter().for_each(std::mem::forget);
        }
        let (before, tap) = (guarded.sample().stats, world.tap());
        // The kernel drops all of them, and each is sent three times. The last two share a flow.
        for _ in 0..3 {
            for (source_port, seq) in [(1000, 7), (1001, 7), (1002, 7), (1002, 8)] {
                let syn = Segment::syn("one too many", GHOST4, SERVER4, PORT)
                    .with("from a port", |syn| (syn.source_port, syn.seq) = (source_port, seq));
                tap.send(&syn.to_bytes());
            }
        }
        let after = guarded.wait("12 SYNs", |sample| sample.stats.seen == before.seen + 12).stats;
        assert_eq!(after.first - before.first, if dry_run { 3 + 1 } else { 0 }, "dry run: {dry_run}");
    }
}

#[test]
fn root_queues_are_read_now_and_not_as_of_the_last_syn() {
    let Some(world) = World::create() else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::RST_SYN, Attach::Auto, false);
    let _streams = world.fill(&guarded);
    let load = guarded.sample().load.expect("it listens");
    assert_eq!((load.accept_qlen, load.accept_limit), (3, 2));
    for _ in 0..=BACKLOG {
        listener.accept().expect("one waits");
    }
    let load = guarded.sample().load.expect("it listens");
    assert_eq!(load.accept_qlen, 0, "no SYN came, and yet it is known");
    close(listener);
    assert!(guarded.sample().load.is_none(), "nothing listens any more");
}

#[test]
fn root_syn_after_the_server_has_gone_is_left_to_the_kernel() {
    let Some(world) = World::create() else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::RST_SYN, Attach::Auto, false);
    close(listener);
    let error = world.connect(LISTEN4).expect_err("nothing listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    let sample = guarded.sample();
    assert_eq!((sample.path.no_listener, sample.stats.seen), (1, 0));
}

#[test]
fn root_retransmitted_syn_of_a_handshake_is_left_to_the_kernel() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::RST_SYN, Attach::Auto, false);
    let tap = world.tap();
    let syn = Segment::syn("twice", GHOST4, SERVER4, PORT);
    tap.send(&syn.to_bytes());
    tap.send(&syn.to_bytes());
    let sample = guarded.wait("both SYNs", |sample| sample.path.frames >= 2);
    assert_eq!((sample.stats.seen, sample.path.known), (1, 1));
}

/// Makes a connection of a ghost's that the server closes first; the ghost closes, too, or only
/// acknowledges. Gives the SYN that reuses its four-tuple.
fn closed_by_the_server(
    world: &World,
    tap: &Tap,
    listener: &TcpListener,
    listen: &str,
    closes: bool,
) -> Segment {
    let handshake = Handshake::begin(tap, listen);
    let end = handshake.end(b"");
    tap.send(&end.to_bytes());
    drop(listener.accept().expect("it is there"));
    tap.receive("the server's FIN", |frame| frame::is_fin_to(frame, &end));
    let answer = end.with("an answer to the FIN", |segment| {
        segment.ack = segment.ack.wrapping_add(1);
        segment.flags = if closes { frame::FIN | frame::ACK } else { frame::ACK };
    });
    tap.send(&answer.to_bytes());
    let start = Instant::now();
    // Remote port and state. FIN-WAIT-2 without a process is kept as TIME_WAIT is, and has a state
    // of its own.
    let remote = format!(":{:04X} {} ", handshake.syn.source_port, if closes { "06" } else { "05" });
    let is_there = || {
        let read = ["tcp", "tcp6"].map(|file| {
            world.server.enter(|| std::fs::read_to_string(format!("/proc/thread-self/net/{file}")))
        });
        read.into_iter().any(|text| text.expect("enter").expect("read").contains(&remote))
    };
    while !is_there() {
        assert!(start.elapsed() < PATIENCE, "no socket in TIME_WAIT");
        std::thread::sleep(Duration::from_millis(10));
    }
    handshake.syn.with("the same port again", |segment| segment.seq = segment.seq.wrapping_add(1000))
}

#[test]
fn root_syn_that_reuses_a_connection_in_time_wait_is_decided_about_as_any_other() {
    let Some(world) = World::create() else { return };
    for listen in [LISTEN4, LISTEN6] {
        let listener = world.listen(listen);
        let guarded = world.guard(listen, Policy::RST_SYN, Attach::Auto, false);
        let tap = world.tap();
        let again = closed_by_the_server(&world, &tap, &listener, listen, true);
        let streams = world.fill(&guarded);
        tap.send(&again.to_bytes());
        tap.receive("a RST", |frame| frame::is_reset_to(frame, &again));
        let sample = guarded.sample();
        assert_eq!((sample.stats.reset, sample.path.known), (1, 0), "{listen}");
        for _ in streams {
            listener.accept().expect("one waits");
        }
        let answered = Handshake::begin_with(&tap, again);
        tap.send(&answered.end(b"").to_bytes());
        listener.accept().expect("it is there");
        let sample = guarded.sample();
        assert_eq!(sample.stats.seen, sample.stats.admitted + 1, "{listen}: {sample:?}");
    }
}

#[test]
fn root_syn_that_reuses_a_connection_in_time_wait_gets_no_cookie() {
    let Some(world) = World::create() else { return };
    world.server.set_sysctl("net.ipv4.tcp_syncookies", "2").expect("sysctl");
    let listener = world.listen(LISTEN4);
    // Cookies of the kernel's, which every kernel takes back.
    let policy = "no-syn-drop:kernel".parse().expect("policy");
    let guarded = world.guard(LISTEN4, policy, Attach::Auto, false);
    let tap = world.tap();
    let again = closed_by_the_server(&world, &tap, &listener, LISTEN4, true);
    let _streams = world.fill(&guarded);
    tap.send(&again.to_bytes());
    let sample = guarded.wait("the SYN", |sample| sample.stats.accept_full > 0);
    assert_eq!((sample.stats.cookies, sample.stats.seen), (0, sample.stats.admitted));
    let other = Segment::syn("another port", GHOST4, SERVER4, PORT)
        .with("another port", |segment| segment.source_port += 1);
    Handshake::begin_with(&tap, other);
    assert_eq!(guarded.sample().stats.cookies, 1);
}

#[test]
fn root_syn_that_meets_a_connection_in_fin_wait_2_is_left_to_the_kernel() {
    let Some(world) = World::create() else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::RST_SYN, Attach::Auto, false);
    let tap = world.tap();
    let again = closed_by_the_server(&world, &tap, &listener, LISTEN4, false);
    tap.send(&again.to_bytes());
    tap.receive("the kernel's RST", |frame| frame::is_reset_to(frame, &again));
    let sample = guarded.sample();
    assert_eq!((sample.stats.seen, sample.path.known), (1, 1));
}

#[test]
fn root_syn_that_cannot_be_turned_into_a_reset_is_passed_and_counted() {
    let Some(world) = World::create_for(Attach::Tcx) else {
        return;
    };
    let _listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, Policy::RST_SYN, Attach::Tcx, false);
    let _streams = world.fill(&guarded);
    // tc cannot cut options out behind a second VLAN tag.
    let syn = Segment::syn("", GHOST4, SERVER4, PORT).with("options behind two tags", |syn| {
        syn.tags = vec![(0x88a8, 7), (0x8100, 8)];
        syn.extra = vec![1; 4];
    });
    world.tap().send(&syn.to_bytes());
    let sample = guarded.wait(syn.name, |sample| sample.stats.unsent == 1);
    assert_eq!(sample.stats.reset, 0);
    assert_eq!(sample.stats.seen, sample.stats.admitted + sample.stats.unsent);
}

#[test]
fn root_reserv_promises_each_place_of_the_accept_queue_once() {
    for (policy, is_reset) in [("reserv", false), ("reserv+rst-syn", true)] {
        let Some(world) = World::create() else { return };
        let listener = world.listen(LISTEN4);
        let guarded = world.guard(LISTEN4, policy.parse().expect("policy"), Attach::Auto, false);
        let tap = world.tap();
        let attempt = |source_port: u16| {
            let syn = Segment::syn("attempt", GHOST4, SERVER4, PORT)
                .with("attempt", |syn| syn.source_port = source_port);
            tap.send(&syn.to_bytes());
            syn
        };
        // One place is taken, the other two of three are promised to handshakes that stay half
        // open.
        let stream = world.connect(LISTEN4).expect("there is room");
        attempt(1001);
        attempt(1002);
        let full = guarded.wait("three SYNs", |sample| sample.stats.seen == 3);
        assert_eq!(full.stats.admitted, 3, "{policy}");
        let refused = attempt(1003);
        let sample = guarded.wait("the fourth SYN", |sample| sample.stats.seen == 4);
        assert_eq!((sample.stats.dropped, sample.stats.reset), (u64::from(!is_reset), u64::from(is_reset)));
        if is_reset {
            tap.receive("a RST", |frame| frame::is_reset_to(frame, &refused));
        }
        // accept(2) gives a place back.
        listener.accept().expect("one waits");
        attempt(1004);
        let sample = guarded.wait("the fifth SYN", |sample| sample.stats.seen == 5);
        assert_eq!(sample.stats.admitted, 4, "{policy}");
        drop(stream);
    }
}

/// SYNs from a host that no kernel owns, one for each source port.
fn send_syns(tap: &Tap, source_ports: std::ops::Range<u16>) {
    for source_port in source_ports {
        let syn = Segment::syn("attempt", GHOST4, SERVER4, PORT)
            .with("attempt", |syn| syn.source_port = source_port);
        tap.send(&syn.to_bytes());
    }
}

#[test]
fn root_early_syn_drop_spares_the_kernel_the_syn() {
    for attach in [Attach::Tcx, Attach::Xdp] {
        let Some(world) = World::create_for(attach) else { continue };
        let _peer = world.peer_for(attach);
        let _listener = world.listen(LISTEN4);
        let guarded = world.guard(LISTEN4, "early-syn-drop".parse().expect("policy"), attach, false);
        let _streams = world.fill(&guarded);
        let drops = || {
            let counters = netns::namespace_counters(&world.server).expect("counters");
            counters.get("TcpExt.ListenDrops").copied().unwrap_or(0)
        };
        let before = drops();
        send_syns(&world.tap(), 1000..1010);
        let sample = guarded.wait("ten SYNs", |sample| sample.stats.accept_full == 10);
        assert_eq!((sample.stats.dropped, sample.stats.reset), (10, 0));
        assert_eq!(drops(), before, "the kernel did not see them");
    }
}

#[test]
fn root_police_admits_a_burst_and_no_more() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    // The next token is a second away.
    let guarded = world.guard(LISTEN4, "police:1/20".parse().expect("policy"), Attach::Auto, false);
    send_syns(&world.tap(), 1000..1030);
    let sample = guarded.wait("thirty SYNs", |sample| sample.stats.seen == 30);
    assert_eq!((sample.stats.admitted, sample.stats.dropped), (20, 10));
}

#[test]
fn root_persistent_drop_refuses_the_same_attempts_again() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN4);
    let policy = "persistent-drop:50+rst-syn".parse().expect("policy");
    let guarded = world.guard(LISTEN4, policy, Attach::Auto, false);
    let tap = world.tap();
    // Those that were admitted may be known to the kernel when they come again.
    let resets = |round: u64| {
        send_syns(&tap, 1000..1200);
        let sample = guarded.wait("a round", |sample| sample.stats.seen + sample.path.known >= 200 * round);
        sample.stats.reset
    };
    let first = resets(1);
    assert!((1..200).contains(&first), "{first} of 200");
    assert_eq!([resets(2), resets(3)], [2 * first, 3 * first]);
}
