//! Who keeps TIME_WAIT, and who runs out of ports [FTY97].

use crowd::{Asks, Clients, Crowd, Loop, Manners, Ports, Shard, Stacks, Window};
use results::{CrowdSummary, GeneratorHealth};
use sim::{Accept, Config, Profile, ServerCounts, Serving, Setup, World};
use tcp::Close;
use traffic::{Arrivals, Schedule, Workload};
use units::Nanos;

const END: Nanos = Nanos::from_secs(40);
const PORTS: Ports = Ports { count: 10, time_wait_s: 60, reuse_after: None, is_nat: false };

/// Who closes first, and how the client does.
#[derive(Debug, Clone, Copy)]
struct Way {
    server_first: bool,
    says_close: bool,
    close: Close,
    ports: Ports,
}

/// One user who asks ten times a second for 40 s, from one address with ten ports. Gives what he
/// saw, what the server counted, and its TIME_WAITs at the end.
fn run(way: Way, stacks: &str, change: impl FnOnce(&mut Setup)) -> (CrowdSummary, ServerCounts, u32) {
    let manners = Manners {
        timeout: Nanos::from_secs(10),
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: way.close,
        window: Window { start: Nanos::ZERO, end: END },
        stacks: stacks.parse::<Stacks>().expect("stacks"),
        clock: 0,
        seed: 1,
        first_endpoint: 0,
    };
    let asks = Asks::new(Workload::default(), 1, "server", "/");
    let clients = Clients::new("10.77.0.1/32".parse().expect("a network"));
    let schedule = Schedule::new(Arrivals::Fixed, 1.0, 1);
    let mut crowd = Crowd::new(manners, asks, clients, schedule, 0)
        .with_ports(way.ports)
        .in_a_loop(Loop { users: 1, think: Nanos::from_millis(100) });
    if way.server_first {
        crowd = crowd.let_server_close_first();
    }
    if way.says_close {
        crowd = crowd.say_client_close();
    }
    let mut setup = Setup {
        kernel: Config::default(),
        service: Serving {
            accept: Accept::Inf,
            cpu_time: Nanos::ZERO,
            backend: Nanos::ZERO,
            reply_bytes: 512,
            descriptors: None,
            closes: None,
        },
        profile: Profile::shipped("round-numbers").expect("shipped"),
    };
    change(&mut setup);
    let mut world = World::new(setup, crowd);
    world.run_until(END);
    world.stop(END);
    let (_, time_waits) = world.kept(END);
    (world.crowd().tally().summary(END, GeneratorHealth::default()), world.server(), time_waits)
}

const STOCK: Way = Way { server_first: true, says_close: false, close: Close::Fin, ports: PORTS };
const SWAP: Way = Way { close: Close::Swap, ..STOCK };
const CLIENT_CLOSE: Way = Way { server_first: false, ..STOCK };

#[test]
fn ports_are_free_at_once_where_the_server_keeps_time_wait() {
    let (crowd, _, time_waits) = run(STOCK, "linux", |_| {});
    assert_eq!((crowd.ok, crowd.no_port, time_waits), (crowd.offered, 0, 10), "{crowd:?}");
    assert!(crowd.offered > 380 && crowd.syns_per_attempt == 1.0, "{crowd:?}");
}

#[test]
fn client_that_keeps_time_wait_runs_out_of_ports() {
    for way in [SWAP, CLIENT_CLOSE] {
        let (crowd, _, time_waits) = run(way, "linux", |_| {});
        assert_eq!((crowd.ok, time_waits), (10, 0), "{way:?}");
        assert!(crowd.no_port > 300 && crowd.ok + crowd.no_port == crowd.offered, "{way:?}: {crowd:?}");
    }
}

#[test]
fn ports_come_back_after_a_second_where_both_ends_have_timestamps() {
    let ports = Ports { reuse_after: Some(Nanos::from_secs(1)), ..PORTS };
    for way in [SWAP, CLIENT_CLOSE] {
        let way = Way { ports, ..way };
        let (crowd, _, _) = run(way, "linux", |_| {});
        assert!(crowd.ok > 350 && crowd.ok + crowd.no_port == crowd.offered, "{way:?}: {crowd:?}");
        let (crowd, _, _) = run(way, "windows-xp", |_| {});
        assert_eq!(crowd.ok, 10, "{way:?}: without timestamps");
    }
}

/// The request has no reply, and is no attempt: the client sees what it sees without it.
#[test]
fn client_that_says_that_it_closes_does_so_and_the_server_keeps_nothing() {
    let (told, server, time_waits) = run(Way { says_close: true, ..CLIENT_CLOSE }, "linux", |_| {});
    let (plain, other, _) = run(CLIENT_CLOSE, "linux", |_| {});
    assert_eq!((told.ok, told.no_port, time_waits), (plain.ok, plain.no_port, 0));
    assert_eq!((server.answered, server.errors), (other.answered, 0), "{server:?}");
    assert!(server.program > other.program, "it was said: {server:?} {other:?}");
}

#[test]
fn abortive_close_leaves_nothing_anywhere() {
    let (crowd, _, time_waits) = run(Way { close: Close::Reset, ..CLIENT_CLOSE }, "linux", |_| {});
    assert_eq!((crowd.ok, time_waits), (crowd.offered, 0));
}

/// Half of the hosts have an older clock than the last one had. The server's TIME_WAIT answers by
/// an ACK, and the host by a RST. Its SYN goes again after a second.
#[test]
fn hosts_behind_a_nat_wait_for_the_servers_time_wait() {
    let ports = Ports { is_nat: true, ..PORTS };
    let (crowd, server, _) = run(Way { ports, ..STOCK }, "linux", |_| {});
    assert!((1.3..1.7).contains(&crowd.syns_per_attempt), "{crowd:?}");
    assert!(server.kernel.paws_rejects > 0 && crowd.ok + crowd.unfinished == crowd.offered, "{server:?}");
    for way in [SWAP, CLIENT_CLOSE] {
        let (crowd, ..) = run(Way { ports, ..way }, "linux", |_| {});
        assert_eq!((crowd.syns_per_attempt, crowd.no_port), (1.0, 0), "{way:?}");
    }
}

#[test]
fn servers_time_wait_is_not_freed_where_its_kernel_ignores_resets() {
    let (_, _, time_waits) = run(SWAP, "linux", |setup| setup.kernel.rfc1337 = true);
    assert_eq!(time_waits, 10);
}

#[test]
fn time_waits_beyond_the_buckets_are_forgotten_at_once() {
    let (crowd, server, time_waits) = run(STOCK, "linux", |setup| setup.kernel.max_tw_buckets = 4);
    assert_eq!(time_waits, 4);
    assert!(server.kernel.time_wait_overflows > 200 && crowd.ok == crowd.offered, "{server:?}");
}

#[test]
fn syn_is_dropped_where_connections_that_are_over_have_all_the_memory() {
    let ports = Ports { count: 100, ..PORTS };
    let (crowd, server, time_waits) =
        run(Way { ports, ..STOCK }, "linux", |setup| setup.kernel.most_ends = Some(20));
    assert_eq!(time_waits, 20);
    assert!(server.kernel.syns_dropped > 0 && crowd.ok < 60, "{crowd:?}");
}

#[test]
fn list_that_is_searched_costs_by_its_length() {
    let softirq = |examined: f64| {
        let ports = Ports { count: 20_000, ..PORTS };
        let (_, server, _) =
            run(Way { ports, ..STOCK }, "linux", |setup| setup.profile.softirq.examined = examined);
        server.softirq.as_secs_f64()
    };
    // Of a SYN the whole list: 195 blocks on the mean, 390 times.
    let more = softirq(1.0) - softirq(0.0);
    assert!((0.06..0.10).contains(&more), "{more} s");
}
