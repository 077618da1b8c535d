//! Places of the accept queue that the crowd does not get, and a budget of refusals, on a real
//! kernel.

use std::io::Read;
use std::net::Shutdown;
use std::num::NonZeroU32;

use crate::common::frame::{Segment, is_reset_to, syn_ack_to};
use crate::common::tap::Tap;
use crate::common::*;
use guard::{Attach, Config, Listener, Policy, takes_own_cookies};

const LISTEN: [&str; 2] = ["10.9.0.2:8080", "[fd09::2]:8080"];

/// One place of three is for the probe.
fn config(listen: &str, policy: &str) -> Config {
    let policy: Policy = policy.parse().expect("policy");
    let reserved = [format!("{PROBE4}/32"), format!("{PROBE6}/127")];
    let is_ipv4 = !listen.starts_with('[');
    let listener = Listener {
        reserved: reserved[..if is_ipv4 { 1 } else { 2 }]
            .iter()
            .map(|net| net.parse().expect("network"))
            .collect(),
        ..Listener::new(listen.parse().expect("address"), Policy { reserved_slots: 1, ..policy })
    };
    Config {
        listeners: vec![listener],
        interfaces: vec!["s0".to_owned()],
        attach: Attach::Tcx,
        must_listen: true,
        ..Config::default()
    }
}

/// Of the crowd.
fn syn(listen: &str) -> Segment {
    let (ghost, server) = if listen.starts_with('[') { (GHOST6, SERVER6) } else { (GHOST4, SERVER4) };
    Segment::syn("the crowd's", ghost, server, PORT)
}

/// Of the reserved source.
fn probe(listen: &str) -> Segment {
    let source = if listen.starts_with('[') { PROBE6 } else { PROBE4 };
    syn(listen).with("the probe's", |syn| {
        syn.source = source.parse().expect("address");
        syn.source_port += 100; // answers are told apart by their ports
    })
}

/// Whether the server answers: a RST to a closed port comes after any answer.
fn is_answered(tap: &Tap, syn: &Segment) -> bool {
    let marker = syn.clone().with("marker", |segment| segment.destination_port = CLOSED_PORT);
    tap.send(&syn.to_bytes());
    tap.send(&marker.to_bytes());
    let first = tap.receive("an answer", |frame| {
        syn_ack_to(frame, syn).is_some() || is_reset_to(frame, syn) || is_reset_to(frame, &marker)
    });
    syn_ack_to(&first, syn).is_some()
}

#[test]
fn root_last_places_are_for_reserved_sources_in_every_policy() {
    for listen in LISTEN {
        for policy in
            ["default", "rst-syn", "abort", "reserv", "reserv+rst-syn", "early-syn-drop", "police:1000/9"]
        {
            let Some(world) = World::create_for(Attach::Tcx) else { return };
            let _listener = world.listen(listen);
            let guarded = world.guard_with(&config(listen, policy)).expect("start");
            let _crowd: Vec<_> =
                (0..BACKLOG).map(|_| world.connect(listen).expect("there is room")).collect();
            guarded.wait("the crowd's places to be taken", |sample| {
                sample.load.is_some_and(|load| load.accept_qlen == BACKLOG as u32)
            });
            let tap = world.tap();
            assert!(!is_answered(&tap, &syn(listen)), "{listen} {policy}: the crowd gets no SYN/ACK");
            let stats = guarded.sample().stats;
            assert_eq!(stats.dropped + stats.reset, 1, "{listen} {policy}: and by us, not by the kernel");
            assert!(is_answered(&tap, &probe(listen)), "{listen} {policy}: a reserved source does");
        }
    }
}

#[test]
fn root_handshake_of_the_crowd_does_not_end_in_a_reserved_place() {
    for (policy, is_reset) in [("default", false), ("abort", true)] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let listener = world.listen(LISTEN[0]);
        let guarded = world.guard_with(&config(LISTEN[0], policy)).expect("start");
        let tap = world.tap();
        let crowd = Handshake::begin_with(&tap, syn(LISTEN[0]));
        let probe = Handshake::begin_with(&tap, probe(LISTEN[0]));
        let _streams: Vec<_> =
            (0..BACKLOG).map(|_| world.connect(LISTEN[0]).expect("there is room")).collect();
        let end = crowd.end(b"");
        tap.send(&end.to_bytes());
        let sample = guarded.wait("the crowd's end", |sample| sample.stats.acks_full == 1);
        assert_eq!(
            (sample.stats.acks_reset == 1, sample.stats.acks_dropped == 1),
            (is_reset, !is_reset),
            "{policy}"
        );
        if is_reset {
            tap.receive("a RST", |frame| is_reset_to(frame, &end));
        }
        tap.send(&probe.end(b"").to_bytes());
        guarded.wait("the reserved source's connection", |sample| {
            sample.load.is_some_and(|load| load.accept_qlen == BACKLOG as u32 + 1)
        });
        let peers: Vec<String> =
            (0..=BACKLOG).map(|_| listener.accept().expect("it waits").1.ip().to_string()).collect();
        assert!(peers.contains(&PROBE4.to_owned()) && !peers.contains(&GHOST4.to_owned()), "{peers:?}");
    }
}

#[test]
fn root_reload_changes_who_is_reserved_for() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let _listener = world.listen(LISTEN[0]);
    let with = config(LISTEN[0], "rst-syn");
    let mut without = with.clone();
    without.listeners[0].reserved = vec!["192.0.2.0/24".parse().expect("network")];
    let mut guarded = world.guard_with(&without).expect("start");
    let _crowd: Vec<_> = (0..BACKLOG).map(|_| world.connect(LISTEN[0]).expect("there is room")).collect();
    let tap = world.tap();
    for (config, is_in, port) in [(&without, false, 1), (&with, true, 2), (&without, false, 3)] {
        world.server.enter(|| guarded.guard.reload(config)).expect("enter").expect("reload");
        let attempt = probe(LISTEN[0]).with("attempt", |syn| syn.source_port += port);
        assert_eq!(is_answered(&tap, &attempt), is_in, "{:?}", config.listeners[0].reserved);
    }
}

#[test]
fn root_as_many_other_sources_as_there_is_room_for_can_be_named_again_and_again() {
    let Some(world) = World::create() else { return };
    let config = |port: u16, block: u8| {
        let listen = format!("10.9.0.2:{port}").parse().expect("address");
        let reserved: Vec<_> = (0..1000)
            .map(|n: u16| format!("10.{block}.{}.{}/32", n >> 8, n & 255).parse().expect("net"))
            .collect();
        let policy = Policy { reserved_slots: 1, ..Policy::DEFAULT };
        Config {
            listeners: vec![Listener { reserved, ..Listener::new(listen, policy) }],
            interfaces: vec!["s0".to_owned()],
            ..Config::default()
        }
    };
    let mut guarded = world.guard_with(&config(8080, 1)).expect("start");
    for (port, block) in [(8080, 2), (8081, 3), (8082, 4), (8080, 5)] {
        world.server.enter(|| guarded.guard.reload(&config(port, block))).expect("enter").expect("reload");
    }
}

#[test]
fn root_more_reserved_places_than_the_queue_has_are_refused() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN[0]);
    let mut config = config(LISTEN[0], "default");
    config.listeners[0].policy.reserved_slots = BACKLOG as u32 + 1;
    config.attach = Attach::Auto;
    let error = world.guard_with(&config).err().expect("refused").to_string();
    assert!(error.contains("3 places are to be reserved and its accept queue has 3"), "{error}");
}

/// What comes back to a segment before a closed port's RST does.
fn is_reset(tap: &Tap, sent: &Segment) -> bool {
    let marker = syn(LISTEN[0]).with("marker", |marker| {
        (marker.source, marker.source_port) = (sent.source, sent.source_port);
        marker.destination_port = CLOSED_PORT;
    });
    tap.send(&sent.to_bytes());
    tap.send(&marker.to_bytes());
    let first = tap.receive("a RST", |frame| is_reset_to(frame, sent) || is_reset_to(frame, &marker));
    is_reset_to(&first, sent)
}

#[test]
fn root_exempt_source_is_never_reset() {
    for attach in [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric] {
        let Some(world) = World::create_for(attach) else { return };
        let _peer = world.peer_for(attach);
        let _listener = world.listen(LISTEN[0]);
        let mut config = config(LISTEN[0], "abort+rst-syn");
        config.attach = attach;
        config.listeners[0].policy.reserved_slots = 0;
        config.listeners[0].exempt = std::mem::take(&mut config.listeners[0].reserved);
        let guarded = world.guard_with(&config).expect("start");
        let tap = world.tap();
        let other =
            Handshake::begin_with(&tap, syn(LISTEN[0]).with("an earlier one", |syn| syn.source_port += 1));
        let exempt =
            Handshake::begin_with(&tap, probe(LISTEN[0]).with("earlier", |syn| syn.source_port += 1));
        let _streams = world.fill(&guarded);
        assert!(is_reset(&tap, &syn(LISTEN[0])), "{attach:?}: the crowd is");
        assert!(!is_reset(&tap, &probe(LISTEN[0])), "{attach:?}: SYN");
        assert!(is_reset(&tap, &other.end(b"")), "{attach:?}: the crowd is");
        assert!(!is_reset(&tap, &exempt.end(b"")), "{attach:?}: end of a handshake");
        let stats = guarded.sample().stats;
        assert_eq!((stats.reset, stats.acks_reset), (1, 1), "{attach:?}");
        assert_eq!(stats.seen, stats.admitted + stats.reset, "{attach:?}");
    }
}

#[test]
fn root_exempt_network_may_have_an_exception_with_a_reserved_place() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let _listener = world.listen(LISTEN[0]);
    let mut config = config(LISTEN[0], "rst-syn");
    config.listeners[0].exempt = vec!["10.9.0.0/16".parse().expect("network")];
    let guarded = world.guard_with(&config).expect("start");
    let _crowd: Vec<_> = (0..BACKLOG).map(|_| world.connect(LISTEN[0]).expect("there is room")).collect();
    guarded.wait("the crowd's places to be taken", |sample| {
        sample.load.is_some_and(|load| load.accept_qlen == BACKLOG as u32)
    });
    let tap = world.tap();
    assert!(is_answered(&tap, &probe(LISTEN[0])), "the longest prefix counts");
    assert!(is_answered(&tap, &syn(LISTEN[0])), "the kernel decides, and has a place");
}

#[test]
fn root_fin_of_an_exempt_source_is_kept() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN[0]);
    let mut config = config(LISTEN[0], "rst-fin:always");
    config.listeners[0].policy.reserved_slots = 0;
    config.listeners[0].reserved.clear();
    config.listeners[0].exempt = vec!["10.9.0.0/16".parse().expect("network")];
    let guarded = world.guard_with(&config).expect("start");
    let client = world.connect(LISTEN[0]).expect("there is room");
    let (mut server, _) = listener.accept().expect("one waits");
    client.shutdown(Shutdown::Write).expect("send FIN");
    assert_eq!(server.read(&mut [0; 16]).map_err(|error| error.kind()), Ok(0));
    assert_eq!(guarded.sample().stats.fins, 0);
}

#[test]
fn root_answers_over_budget_are_dropped_and_counted() {
    for policy in [Policy::RST_SYN, Policy::NO_SYN_DROP] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let cookies = policy == Policy::NO_SYN_DROP;
        if cookies && !takes_own_cookies() {
            return eprintln!("skipped: this kernel takes no cookies of ours");
        }
        let _listener = world.listen(LISTEN[0]);
        let config = Config {
            listeners: vec![Listener::new(LISTEN[0].parse().expect("address"), policy)],
            interfaces: vec!["s0".to_owned()],
            must_listen: true,
            refusals_per_s: NonZeroU32::new(1),
            ..Config::default()
        };
        let guarded = world.guard_with(&config).expect("start");
        let _streams = world.fill(&guarded);
        let tap = world.tap();
        for port in 0..20 {
            tap.send(&syn(LISTEN[0]).with("one of many", |syn| syn.source_port += port).to_bytes());
        }
        let stats = guarded.wait("all SYNs", |sample| sample.stats.accept_full == 20).stats;
        let answered = if cookies { stats.cookies } else { stats.reset };
        assert_eq!(answered + stats.dropped, 20, "{policy}");
        assert_eq!(stats.dropped, stats.over_budget, "{policy}");
        // One at once, and one for each second that a slow machine took.
        assert!((1..20).contains(&answered), "{policy}: {stats:?}");
    }
}
