//! Many listeners, and what a reload does to them, on a real kernel.

use std::num::NonZeroU32;

use crate::common::frame::{Segment, is_reset_to};
use crate::common::tap::Tap;
use crate::common::*;
use guard::{Attach, Config, Guard, Listener, Sample};

const FIRST: &str = "10.9.0.2:8080";
const SECOND: &str = "10.9.0.2:8081";
/// Shares the first one's place in the map `hints` (rules.bpf.h).
const FELLOW: &str = "10.9.0.2:8145";

fn listener(listen: &str, policy: &str) -> Listener {
    let (listen, policy) = (listen.parse().expect("address"), policy.parse().expect("policy"));
    Listener::new(listen, policy)
}

fn config(listeners: &[Listener]) -> Config {
    Config { listeners: listeners.to_vec(), interfaces: vec!["s0".to_owned()], ..Config::default() }
}

fn start(world: &World, listeners: &[Listener]) -> Guard {
    world.server.enter(|| Guard::start(&config(listeners))).expect("enter").expect("start")
}

fn sample(world: &World, guard: &Guard) -> Sample {
    world.server.enter(|| guard.sample()).expect("enter").expect("sample")
}

fn reload(world: &World, guard: &mut Guard, listeners: &[Listener]) -> anyhow::Result<Vec<String>> {
    world.server.enter(|| guard.reload(&config(listeners))).expect("enter")
}

/// Fills the accept queue of a listener.
fn fill(world: &World, listen: &str) -> Vec<std::net::TcpStream> {
    (0..=BACKLOG).map(|_| world.connect(listen).expect("there is room")).collect()
}

/// Whether a SYN to the port gets a RST.
fn is_reset(tap: &Tap, port: u16, source_port: u16) -> bool {
    let syn =
        Segment::syn("attempt", GHOST4, SERVER4, port).with("attempt", |syn| syn.source_port = source_port);
    // Nothing listens there: its RST comes after any other.
    let marker = syn.clone().with("marker", |marker| marker.destination_port = CLOSED_PORT);
    tap.send(&syn.to_bytes());
    tap.send(&marker.to_bytes());
    let first = tap.receive("a RST", |frame| is_reset_to(frame, &syn) || is_reset_to(frame, &marker));
    is_reset_to(&first, &syn)
}

#[test]
fn root_guard_needs_no_loopback() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(FIRST);
    world.server.ip(&["link", "set", "lo", "down"]).expect("take the loopback down");
    let guard = start(&world, &[listener(FIRST, "rst-syn")]);
    let _streams = fill(&world, FIRST);
    assert!(is_reset(&world.tap(), 8080, 1001));
    assert_eq!(sample(&world, &guard).listeners[0].stats.reset, 1);
}

#[test]
fn root_reload_changes_the_budget_and_nothing_that_is_attached() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(FIRST);
    let first = config(&[listener(FIRST, "rst-syn")]);
    let mut guard = world.server.enter(|| Guard::start(&first)).expect("enter").expect("start");
    let _streams = fill(&world, FIRST);
    let tap = world.tap();
    assert!(is_reset(&tap, 8080, 1001));
    let one = Config { refusals_per_s: NonZeroU32::new(1), ..first.clone() };
    world.server.enter(|| guard.reload(&one)).expect("enter").expect("reload");
    let resets = (1002..1008).filter(|&port| is_reset(&tap, 8080, port)).count();
    let over_budget = sample(&world, &guard).listeners[0].stats.over_budget;
    assert!(
        over_budget > 0 && resets as u64 + over_budget == 6,
        "{resets} resets, {over_budget} over budget"
    );
    for (key, changed) in [
        ("interfaces", Config { interfaces: vec!["lo".to_owned()], ..one.clone() }),
        ("attach", Config { attach: Attach::Xdp, ..one.clone() }),
        ("sockopt", Config { sockopt: true, ..one.clone() }),
    ] {
        let result = world.server.enter(|| guard.reload(&changed)).expect("enter");
        let error = result.expect_err(key).to_string();
        assert!(error.starts_with(&format!("{key} differs")), "{error}");
    }
}

#[test]
fn root_each_listener_has_its_policy_and_its_counters() {
    let Some(world) = World::create() else { return };
    let _listeners = [world.listen(FIRST), world.listen(SECOND)];
    let guard = start(&world, &[listener(FIRST, "rst-syn"), listener(SECOND, "early-syn-drop")]);
    let _streams = [fill(&world, FIRST), fill(&world, SECOND)];
    let tap = world.tap();
    assert!(is_reset(&tap, 8080, 1001));
    assert!(!is_reset(&tap, 8081, 1002));
    let sample = sample(&world, &guard);
    let counts = |index: usize| {
        let stats = sample.listeners[index].stats;
        (stats.seen, stats.reset, stats.dropped)
    };
    assert_eq!((counts(0), counts(1)), ((4, 1, 0), (4, 0, 1)));
}

#[test]
fn root_listeners_whose_ports_share_a_place_are_told_apart() {
    let Some(world) = World::create() else { return };
    let (_first, _fellow) = (world.listen(FIRST), world.listen(FELLOW));
    let tap = world.tap();
    let mut guard = start(&world, &[listener(FIRST, "rst-syn")]);
    let _streams = fill(&world, FIRST);
    assert!(is_reset(&tap, 8080, 1001), "alone");
    reload(&world, &mut guard, &[listener(FIRST, "rst-syn"), listener(FELLOW, "rst-syn")]).expect("reload");
    assert!(is_reset(&tap, 8080, 1002) && !is_reset(&tap, 8145, 1002), "beside one that has room");
    reload(&world, &mut guard, &[listener(FELLOW, "rst-syn")]).expect("reload");
    let _streams = fill(&world, FELLOW);
    assert!(!is_reset(&tap, 8080, 1003), "the kernel's alone");
    assert!(is_reset(&tap, 8145, 1003), "alone");
}

#[test]
fn root_address_gets_its_own_listener_beside_a_wildcard_and_gives_it_back() {
    const ANY: &str = "0.0.0.0:8080";
    const OTHER_FAMILY: &str = "[::]:8080";
    let Some(world) = World::create() else { return };
    let _listener = world.listen(OTHER_FAMILY);
    let tap = world.tap();
    let _streams = fill(&world, FIRST);
    let (refuses, admits) = (|listen| listener(listen, "rst-syn"), |listen| listener(listen, "default"));
    let mut guard = start(&world, &[refuses(ANY)]);
    assert!(is_reset(&tap, 8080, 1001), "by the wildcard");
    reload(&world, &mut guard, &[admits(FIRST)]).expect("reload");
    assert!(!is_reset(&tap, 8080, 1002), "by its own");
    reload(&world, &mut guard, &[refuses(OTHER_FAMILY)]).expect("reload");
    assert!(is_reset(&tap, 8080, 1003), "by the wildcard of both families");
    reload(&world, &mut guard, &[refuses(OTHER_FAMILY), admits(FIRST)]).expect("reload");
    assert!(!is_reset(&tap, 8080, 1004), "by its own, which the wildcard of both families does not hide");
    reload(&world, &mut guard, &[refuses(OTHER_FAMILY)]).expect("reload");
    assert!(is_reset(&tap, 8080, 1005), "by the wildcard again");
    reload(&world, &mut guard, &[refuses(OTHER_FAMILY), listener(FIRST, "observe")]).expect("reload");
    assert!(!is_reset(&tap, 8080, 1006), "it is only observed");
}

#[test]
fn root_server_of_both_families_that_restarts_after_a_reload_is_guarded_at_once() {
    const ANY: &str = "[::]:8080";
    let Some(world) = World::create() else { return };
    let tap = world.tap();
    let server = world.listen(ANY);
    let mut guard = start(&world, &[listener(ANY, "rst-syn")]);
    close(server);
    reload(&world, &mut guard, &[listener(ANY, "rst-syn")]).expect("reload");
    let _server = world.listen(ANY);
    let _streams = fill(&world, FIRST);
    assert!(is_reset(&tap, 8080, 1001));
}

#[test]
fn root_reload_to_a_wildcard_knows_the_hosts_addresses_at_once() {
    let Some(world) = World::create() else { return };
    let tap = world.tap();
    let _server = world.listen("0.0.0.0:8080");
    let mut guard = start(&world, &[listener(FIRST, "rst-syn")]);
    let _streams = fill(&world, FIRST);
    reload(&world, &mut guard, &[listener("0.0.0.0:8080", "rst-syn")]).expect("reload");
    assert!(is_reset(&tap, 8080, 1001));
}

#[test]
fn root_reload_changes_policies_and_keeps_counters_and_what_stays() {
    let Some(world) = World::create() else { return };
    let _listeners = [world.listen(FIRST), world.listen(SECOND)];
    let mut guard = start(&world, &[listener(FIRST, "default")]);
    let _streams = [fill(&world, FIRST), fill(&world, SECOND)];
    let tap = world.tap();
    assert!(!is_reset(&tap, 8080, 1001));

    reload(&world, &mut guard, &[listener(SECOND, "rst-syn"), listener(FIRST, "rst-syn")]).expect("reload");
    assert!(is_reset(&tap, 8080, 1002) && is_reset(&tap, 8081, 1003));
    let stats = sample(&world, &guard).listeners.iter().map(|of| of.stats.seen).collect::<Vec<_>>();
    assert_eq!(stats, [5, 1], "the first counts on, the second from its first SYN");

    let overlap = [listener(FIRST, "default"), listener("0.0.0.0:8080", "default")];
    let error = reload(&world, &mut guard, &overlap).expect_err("one SYN, two policies").to_string();
    assert!(error.contains("overlap"), "{error}");
    assert!(is_reset(&tap, 8080, 1004), "all stays as it was");

    reload(&world, &mut guard, &[listener(SECOND, "rst-syn")]).expect("reload");
    let before = sample(&world, &guard).path.not_guarded;
    assert!(!is_reset(&tap, 8080, 1005));
    assert!(sample(&world, &guard).path.not_guarded > before);
    // Guarded again, it counts from zero.
    reload(&world, &mut guard, &[listener(SECOND, "rst-syn"), listener(FIRST, "rst-syn")]).expect("reload");
    let again = sample(&world, &guard);
    let first = again.listeners.iter().find(|of| of.listener.listen.port() == 8080).expect("named");
    assert_eq!(first.stats.seen, 0);
}

#[test]
fn root_address_that_is_another_hosts_is_not_guarded_until_it_comes() {
    const AWAY: &str = "10.9.0.9";
    let Some(world) = World::create() else { return };
    let _listener = world.listen("0.0.0.0:8080");
    let mut guard = start(&world, &[listener("10.9.0.9:8080", "abort+rst-syn")]);
    assert!(
        guard.warnings().iter().any(|note| note.contains("is no address of this host")),
        "{:?}",
        guard.warnings()
    );
    let _streams = fill(&world, FIRST);
    let tap = world.tap();
    let mut port = 1000;
    let mut seen = || {
        port += 1;
        let syn = Segment::syn("to a moving address", GHOST4, AWAY, 8080)
            .with("next", |syn| syn.source_port = port);
        let marker =
            Segment::syn("marker", GHOST4, SERVER4, CLOSED_PORT).with("next", |syn| syn.source_port = port);
        tap.send(&syn.to_bytes());
        tap.send(&marker.to_bytes());
        tap.receive("the marker's RST", |frame| is_reset_to(frame, &marker));
        let now = sample(&world, &guard);
        let stats = now.listeners[0].stats;
        let notes = world.server.enter(|| guard.follow(&now)).expect("enter");
        (stats.seen, stats.reset, notes)
    };
    assert_eq!(seen(), (0, 0, vec![]));
    // Its way leads through this host.
    let move_to = |verb: &str| world.server.ip(&["addr", verb, "10.9.0.9/32", "dev", "s0"]).expect("address");
    move_to("add");
    assert_eq!(seen().2, ["10.9.0.9:8080 is an address of this host, and guarded"]);
    assert_eq!(seen(), (1, 1, vec![]));
    move_to("del");
    assert_eq!(seen().2, ["10.9.0.9:8080 is no address of this host any more; guarded again once it is"]);
    let before = seen();
    assert_eq!(seen(), before);
    // By a route alone.
    world.server.ip(&["route", "add", "local", "10.9.0.9/32", "dev", "lo"]).expect("route");
    assert_eq!(seen().2, ["10.9.0.9:8080 is an address of this host, and guarded"]);
    assert_eq!(seen().1, before.1 + 1);
}

#[test]
fn root_address_that_leaves_is_not_guarded_though_its_server_stays_bound_to_it() {
    for (address, listen) in [("10.9.0.9/32", "10.9.0.9:8080"), ("fd09::9/128", "[fd09::9]:8080")] {
        let Some(world) = World::create() else { return };
        let ip = |arguments: &[&str]| world.server.ip(arguments).expect("address or route");
        ip(&["addr", "add", address, "dev", "s0", "nodad"]);
        let _listener = world.listen(listen);
        let guard = start(&world, &[listener(listen, "rst-syn")]);
        let away = || sample(&world, &guard).away.len();
        assert_eq!(away(), 0);
        ip(&["addr", "del", address, "dev", "s0"]);
        assert_eq!(away(), 1, "{listen}");
        ip(&["route", "add", "local", address, "dev", "lo"]);
        assert_eq!(away(), 0, "{listen} by a route alone");
    }
}

#[test]
fn root_wildcard_shows_the_queue_of_a_socket_at_one_address() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(FIRST);
    let wildcard = [listener("0.0.0.0:8080", "rst-syn")];
    let config = Config { must_listen: true, ..config(&wildcard) };
    let guard = world.server.enter(|| Guard::start(&config)).expect("enter").expect("one listens");
    let _streams = fill(&world, FIRST);
    let load = sample(&world, &guard).listeners[0].load.expect("the socket's");
    assert_eq!(load.accept_qlen as usize, BACKLOG + 1);
}

#[test]
fn root_listener_that_comes_later_is_guarded_from_then_on() {
    let Some(world) = World::create() else { return };
    let guard = start(&world, &[listener(FIRST, "rst-syn")]);
    assert!(sample(&world, &guard).listeners[0].load.is_none());
    for source_port in [1001, 1002] {
        let server = world.listen(FIRST);
        let _streams = fill(&world, FIRST);
        assert!(is_reset(&world.tap(), 8080, source_port));
        close(server);
    }
    assert_eq!(sample(&world, &guard).listeners[0].stats.reset, 2, "and after a restart");
}

#[test]
fn root_reloads_under_way_cost_no_client_its_connection() {
    // One of the policies has an ACK stage.
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let server = world.listen(FIRST);
    let _other = world.listen(FELLOW);
    // The other listener's rule would refuse nearly every SYN of the first.
    let other = listener(FELLOW, "persistent-drop:99+rst-syn");
    let mut guard = start(&world, &[listener(FIRST, "default"), other.clone()]);
    let policies = ["default", "rst-syn", "reserv", "abort+rst-syn", "police:1000000", "reserv+rst-syn"];
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let connections = std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut connections = 0;
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                let _client = world.connect(FIRST).expect("the queue is empty");
                server.accept().expect("it is there");
                connections += 1;
            }
            connections
        });
        let reloads = (0..1000).try_for_each(|round| {
            let first = listener(FIRST, policies[round % policies.len()]);
            let both = if round % 2 == 0 { vec![first, other.clone()] } else { vec![first] };
            reload(&world, &mut guard, &both).map(drop)
        });
        // Before any panic: the scope waits for the client.
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        reloads.expect("reload");
        client.join().expect("every client got in")
    });
    let sample = sample(&world, &guard);
    let stats = sample.listeners[0].stats;
    assert!(stats.seen + sample.path.known >= connections, "{sample:?} of {connections}");
    assert_eq!(stats.admitted, stats.seen, "none was refused");
    assert!(connections > 10, "{connections}: the reloads met some");
}
