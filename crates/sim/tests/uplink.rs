//! A server with a narrow uplink: long responses, processes that wait for their clients' end, and
//! the order in which the link sends.

use std::num::NonZeroU32;
use std::sync::Arc;

use crowd::{Asks, Cause, Clients, Crowd, Manners, Shard, Stacks, Window};
use kernel::{Cutoffs, SizeSource};
use sim::{
    Accept, Closes, Config, Device, Generation, Profile, Sending, Serving, Setup, UplinkConfig, UplinkCounts,
    World,
};
use tcp::{Algorithm, Close, Control};
use traffic::{Arrivals, Entry, Replay, Schedule, Workload};
use units::Nanos;

const PATIENCE: Nanos = Nanos::from_secs(3000);
const BYTES_PER_S: f64 = 10e6 / 8.0;
/// Of the paper, `[SH06]` section 3.2.
const CUTOFFS: [u64; 4] = [1000, 2000, 5000, 50_000];

/// What differs between runs.
#[derive(Clone)]
struct Server {
    processes: u32,
    has_small_queue: bool,
    device: Device,
    paths: Option<&'static str>,
    closes: bool,
    overtakes: bool,
    old: bool,
}

fn queue(words: &str) -> aqm::Config {
    words.parse().expect("a discipline")
}

/// Today's Linux with one queue that never overflows.
fn fair() -> Server {
    Server {
        processes: 350,
        has_small_queue: true,
        device: Device::One(queue("droptail:limit=100000")),
        paths: None,
        closes: true,
        overtakes: false,
        old: false,
    }
}

fn srpt() -> Server {
    Server {
        device: Device::Prio { bands: 5, of_each: queue("droptail:limit=100000"), floor: 0.0 },
        ..fair()
    }
}

/// Linux 2.2 as in the paper.
fn paper(device: Device) -> Server {
    Server { has_small_queue: false, device, old: true, ..fair() }
}

fn world(server: &Server, schedule: Schedule, workload: Workload, end: Nanos, seed: u64) -> World {
    let mut profile = Profile::shipped("round-numbers").expect("shipped");
    profile.server = profile.process_pool.expect("a pool");
    profile.system.linux = if server.old { Generation::Linux22 } else { Generation::Linux410 };
    let bands = matches!(server.device, Device::Prio { .. });
    let sending = Sending {
        control: Control { algorithm: Algorithm::NewReno, waits_for_more: true },
        send_buffer: 65_536,
        has_small_queue: server.has_small_queue,
        cutoffs: Cutoffs::new(if bands { &CUTOFFS } else { &[] }).expect("ascending"),
        source: SizeSource::Told,
        writes: None,
        overtakes: server.overtakes,
        control_last: false,
    };
    let kernel = Config {
        backlog: 511,
        max_syn_backlog: 512,
        syncookies: 0,
        sending: Some(sending),
        seed,
        ..profile.system.config()
    };
    let one = NonZeroU32::MIN;
    let service = Serving {
        accept: Accept::Each(NonZeroU32::new(server.processes).expect("some")),
        cpu_time: Nanos::ZERO,
        backend: Nanos::ZERO,
        reply_bytes: 512,
        descriptors: None,
        closes: server.closes.then_some(Closes { after: one, lingers: Nanos::from_secs(2) }),
    };
    let manners = Manners {
        timeout: PATIENCE,
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        window: Window { start: Nanos::ZERO, end },
        stacks: if server.old { "linux-2.2".parse().expect("a stack") } else { Stacks::default() },
        clock: 0,
        seed,
        first_endpoint: 0,
    };
    let asks = Asks::new(workload, seed, "server", "/");
    let network = Clients::new("10.77.0.0/16".parse().expect("a network"));
    let mut crowd = Crowd::new(manners, asks, network, schedule, 0);
    crowd.keep_ended();
    let mut world = World::new(Setup { kernel, service, profile }, crowd);
    let rate = aqm::Rate::parse("10mbit").expect("a rate");
    let uplink = UplinkConfig { rate, overhead_bytes: 0, device: server.device.clone(), card: 4 };
    world.narrow(uplink, seed).expect("a queue that can be");
    if let Some(path) = server.paths {
        let path = path.parse().expect("a path");
        world.far_away(&path, &path, seed).expect("paths that can be");
    }
    world
}

/// Clients who come together and ask for so many bytes each: when each was through, in their order,
/// and what the uplink counted.
fn together(server: &Server, sizes: &[u32]) -> (Vec<f64>, UplinkCounts) {
    let entries = sizes.iter().map(|&bytes| Entry { second: 0, bytes }).collect();
    let replay = Arc::new(Replay::new(entries, 1e3).expect("some"));
    let (schedule, workload) = (Schedule::of_log(Arc::clone(&replay)), Workload::of_log(replay));
    let mut world = world(server, schedule, workload, Nanos::from_secs(1), 1);
    assert!(world.run_until(PATIENCE), "all are through");
    let mut took = vec![f64::NAN; sizes.len()];
    for ended in world.take_ended() {
        assert_eq!(ended.cause, Cause::Ok, "{ended:?}");
        took[ended.user as usize] = ended.ended.as_secs_f64();
    }
    assert_eq!(world.connections(), 0, "nobody is left");
    (took, world.uplink().expect("it has one"))
}

/// A Poisson crowd of World-Cup-like sizes at some load for so long.
fn crowd(server: &Server, load: f64, seconds: u64, seed: u64) -> World {
    let workload = Workload::new(&toml::from_str("kind = \"world-cup\"").expect("a table")).expect("one");
    let schedule = Schedule::new(Arrivals::Poisson, load * BYTES_PER_S / 5500.0, seed);
    world(server, schedule, workload, Nanos::from_secs(seconds), seed)
}

fn near(what: &str, ours: f64, expected: f64, within: f64) {
    assert!((ours / expected - 1.0).abs() <= within, "{what}: {ours}, and {expected} was expected");
}

#[test]
fn response_alone_takes_what_the_link_takes_for_it() {
    let (took, counts) = together(&fair(), &[2_000_000]);
    // 66 bytes of headers for each segment, and the head of the response.
    near("time", took[0], 2_000_000.0 * (1514.0 / 1448.0) / BYTES_PER_S, 0.01);
    assert_eq!(counts.dropped, 0);
    let head = counts.sent_payload - 2_000_000;
    assert!((240..250).contains(&head), "all bytes once: {counts:?}");
}

/// The place where the queue is: a connection that is not on a LAN has a few segments below TCP, so
/// that one queue serves all in turn.
#[test]
fn one_queue_is_processor_sharing_where_small_queues_bound_each_connection() {
    const KB: u32 = 1000;
    let sizes = [200 * KB, 400 * KB, 400 * KB, 1000 * KB, 1000 * KB];
    let (took, _) = together(&Server { paths: Some("delay 3ms"), ..fair() }, &sizes);
    let rate = BYTES_PER_S * 1448.0 / 1514.0 / 1e3;
    // Five share it until the smallest is through, then four, then two.
    let first = 5.0 * 200.0 / rate;
    let second = first + 4.0 * 200.0 / rate;
    let last = second + 2.0 * 600.0 / rate;
    for (took, expected) in took.into_iter().zip([first, second, second, last, last]) {
        near("time", took, expected, 0.04);
    }
}

#[test]
fn bands_send_the_shortest_first_and_large_ones_are_through_as_soon() {
    let sizes = [2_000_000, 2_000_000, 40_000, 4000, 900];
    let [(fair, _), (srpt, _)] = [fair(), srpt()].map(|server| together(&server, &sizes));
    for (number, most_s) in [(4, 0.03), (3, 0.04), (2, 0.1)] {
        assert!(srpt[number] < most_s, "{} bytes: {srpt:?}", sizes[number]);
        assert!(srpt[number] < fair[number], "{fair:?}");
    }
    near("the last", srpt[0].max(srpt[1]), fair[0].max(fair[1]), 0.02);
}

/// One of 200 kB beside forty of 45 kB, all of which go before it but for the floor.
#[test]
fn last_band_gets_its_floor_beside_those_above() {
    let sizes: Vec<u32> = [200_000].into_iter().chain([45_000; 40]).collect();
    let with = |floor| {
        let device = Device::Prio { bands: 5, of_each: queue("droptail:limit=100000"), floor };
        together(&Server { device, ..fair() }, &sizes).0[0]
    };
    let alone = 200_000.0 * (1514.0 / 1448.0) / BYTES_PER_S;
    let all = f64::from(sizes.iter().sum::<u32>()) * (1514.0 / 1448.0) / BYTES_PER_S;
    near("without a floor it is the last", with(0.0), all, 0.03);
    near("with a quarter of the rate", with(0.25), alone / 0.25, 0.1);
}

#[test]
fn exact_bands_without_room_drop_and_all_is_whole_in_the_end() {
    let few = |bands| match bands {
        1 => Device::One(queue("droptail:limit=10")),
        bands => Device::Prio { bands, of_each: queue("droptail:limit=10"), floor: 0.0 },
    };
    let sizes = [300_000, 150_000, 80_000, 60_000, 20_000, 5000, 2500, 900, 500, 100];
    for bands in [1, 5] {
        for server in [paper(few(bands)), Server { device: few(bands), ..fair() }] {
            let (_, counts) = together(&server, &sizes);
            assert!(counts.dropped > 0, "{counts:?}");
            let all = sizes.iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
            assert!(counts.sent_payload >= all, "{counts:?}");
        }
    }
}

#[test]
fn any_discipline_may_be_the_devices() {
    let sizes = [300_000, 40_000, 20_000, 5000, 900];
    for words in ["fq-codel", "codel", "red", "bands:bands=5,limit=100,push_out", "choke"] {
        together(&Server { device: Device::One(queue(words)), ..fair() }, &sizes);
    }
}

#[test]
fn network_that_loses_delays_and_reorders_changes_no_byte() {
    let sizes = [200_000, 60_000, 20_000, 5000, 2500, 900, 900, 900];
    for server in [fair(), srpt(), Server { overtakes: true, ..paper(srpt().device) }] {
        let lossy = Server { paths: Some("delay 50ms loss 5%"), ..server };
        let (took, counts) = together(&lossy, &sizes);
        assert!(took.iter().all(|took| *took > 0.2), "two round trips: {took:?}");
        let all = sizes.iter().map(|&bytes| u64::from(bytes)).sum::<u64>();
        assert!(counts.sent_payload > all, "some was sent again: {counts:?}");
    }
}

/// The client's FIN comes with its acknowledgment of the last byte; before that a process has
/// nobody else.
#[test]
fn process_serves_nobody_else_until_its_client_has_ended() {
    let far = Server { processes: 1, paths: Some("delay 100ms"), ..fair() };
    let (took, _) = together(&far, &[900, 900, 900]);
    // A handshake, then for each request and reply a round trip, and one for both FINs.
    for (number, took) in took.iter().enumerate() {
        near("time", *took, 0.4 + 0.2 * number as f64, 0.05);
    }
    let (kept, _) = together(&Server { closes: false, ..far }, &[900, 900, 900]);
    assert!(kept[2] >= took[2] - 0.01, "a client that closes first is waited for, too: {kept:?} {took:?}");
}

#[test]
fn overload_fills_the_link_and_leaves_nothing_behind() {
    for server in [
        fair(),
        srpt(),
        paper(Device::One(queue("droptail:limit=100"))),
        paper(Device::Prio { bands: 5, of_each: queue("droptail:limit=100"), floor: 0.0 }),
    ] {
        let mut world = crowd(&server, 1.5, 20, 3);
        world.run_until(Nanos::from_secs(5));
        let before = world.uplink().expect("it has one");
        world.run_until(Nanos::from_secs(20));
        let after = world.uplink().expect("it has one");
        let sent = (after.sent_bytes - before.sent_bytes) as f64 / 15.0;
        assert!(sent <= BYTES_PER_S * 1.001 && sent > 0.98 * BYTES_PER_S, "{sent} bytes/s");
        assert!(world.connections() > 30, "{} connections", world.connections());
        // Nobody else comes: in the end all are through, and every process is there for those who
        // come then.
        assert!(world.run_until(PATIENCE), "all are through");
        let [ok, all] = [true, false].map(|only| {
            let tally = world.crowd().tally().summary(PATIENCE, results::GeneratorHealth::default());
            if only { tally.ok } else { tally.offered }
        });
        assert_eq!(ok, all);
        assert_eq!((world.connections(), world.load().accept_qlen, world.load().syn_qlen), (0, 0, 0));
    }
}

/// `[SH06]` section 6.1: a device queue of 100 packets overflows under FAIR and loses SYN/ACKs;
/// bands keep those out of it.
#[test]
fn full_queue_loses_syn_acks_where_they_wait_among_the_data() {
    let dropped = |device| {
        let mut world = crowd(&paper(device), 1.2, 30, 1);
        world.run_until(Nanos::from_secs(30));
        world.uplink().expect("it has one")
    };
    let each = queue("droptail:limit=100");
    let fair = dropped(Device::One(each.clone()));
    let srpt = dropped(Device::Prio { bands: 5, of_each: each, floor: 0.0 });
    assert!(fair.dropped_opening > 100, "{fair:?}");
    assert_eq!(srpt.dropped_opening, 0, "{srpt:?}");
}

#[test]
fn same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let mut world = crowd(&paper(srpt().device), 1.1, 10, seed);
        world.run_until(Nanos::from_secs(10));
        (world.uplink(), world.server(), world.happened())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
