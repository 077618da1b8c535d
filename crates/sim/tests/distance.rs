//! Clients that are far from the server: what delay and loss between them do.

use crowd::{Asks, Clients, Crowd, Manners, Shard, Stacks, Totals, Window};
use sim::{Accept, Capture, Config, PathCounts, Profile, Serving, Setup, World};
use tcp::Close;
use traffic::{Arrivals, Schedule, Workload};
use units::Nanos;

/// Everybody starts by then, and waits for as long.
const SECOND: Nanos = Nanos::from_secs(1);
const PATIENCE: Nanos = Nanos::from_secs(300);

/// So many clients start within a second before a server that has time for all of them.
fn world(clients: f64, paths: Option<(&str, &str)>, seed: u64) -> World {
    world_of(Stacks::default(), Config::default(), clients, paths, seed)
}

/// The same with clients of other systems, and other settings of the server's kernel.
fn world_of(stacks: Stacks, kernel: Config, clients: f64, paths: Option<(&str, &str)>, seed: u64) -> World {
    let manners = Manners {
        timeout: PATIENCE,
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        window: Window { start: Nanos::ZERO, end: SECOND },
        stacks,
        clock: 0,
        seed: 1,
        first_endpoint: 0,
    };
    let asks = Asks::new(Workload::default(), 1, "server", "/");
    let network = Clients::new("10.77.0.0/16".parse().expect("a network"));
    let crowd = Crowd::new(manners, asks, network, Schedule::new(Arrivals::Fixed, clients, 1), 0);
    let setup = Setup {
        kernel,
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
    let mut world = World::new(setup, crowd);
    if let Some((to_server, to_clients)) = paths {
        let path = |words: &str| words.parse().expect("a path");
        world.far_away(&path(to_server), &path(to_clients), seed).expect("paths that can be");
    }
    world.capture("10.76.0.1:80".parse().expect("an address"), 100_000);
    world
}

/// What became of the clients, the frames at the server, and what the paths counted.
fn run(mut world: World) -> (Totals, Capture, Option<[PathCounts; 2]>) {
    assert!(world.run_until(SECOND + PATIENCE), "the last one has ended");
    let capture = world.take_capture().expect("it was asked for");
    (world.crowd().tally().totals, capture, world.paths())
}

/// When the frames of the first connection that a server saw passed its link.
fn times(paths: Option<(&str, &str)>) -> Vec<Nanos> {
    let mut world = world(1.0, paths, 1);
    world.run_until(SECOND);
    world.take_capture().expect("it was asked for").frames().map(|(at, _)| at).collect()
}

#[test]
fn delay_is_seen_in_the_times_to_the_nanosecond() {
    let ms = Nanos::from_millis;
    let near = times(None);
    let far = times(Some(("delay 70ms", "delay 30ms")));
    let later: Vec<Nanos> = far.iter().zip(&near).map(|(far, near)| far.since(*near)).collect();
    // SYN, SYN/ACK; then ACK and request a round trip later, and what follows those at once.
    assert_eq!(later[..4], [ms(70), ms(70), ms(170), ms(170)], "{later:?}");
    assert_eq!(near.len(), far.len());
    let (near, ..) = run(world(200.0, None, 1));
    let (far, ..) = run(world(200.0, Some(("delay 70ms", "delay 30ms")), 1));
    assert_eq!(far.ok, near.ok);
    assert_eq!(far.response_us - near.response_us, 200_000 * far.ok, "two round trips for each");
}

/// With the windows that its client and the server agreed on, a reply takes no more than one round
/// trip.
#[test]
fn connection_by_syn_cookie_has_the_options_that_were_answered() {
    let two = || Config { syncookies: 2, ..Config::default() };
    // With timestamps, and without.
    for stacks in ["linux", "windows-10"] {
        let stacks: Stacks = stacks.parse().expect("stacks");
        let (near, ..) = run(world_of(stacks.clone(), two(), 200.0, None, 1));
        let (far, ..) = run(world_of(stacks, two(), 200.0, Some(("delay 50ms", "delay 50ms")), 1));
        assert_eq!((near.ok, far.ok), (near.offered, far.offered));
        assert_eq!(far.response_us - near.response_us, 200_000 * far.ok, "two round trips for each");
    }
}

#[test]
fn path_that_is_nothing_changes_nothing() {
    assert_eq!(times(None), times(Some(("", ""))));
}

#[test]
fn lost_syns_are_sent_again_and_everybody_is_answered() {
    let (near, _, none) = run(world(2000.0, None, 1));
    let (far, _, paths) = run(world(2000.0, Some(("loss 10%", "loss 10%")), 1));
    assert_eq!((near.syns, none), (near.offered, None), "one each");
    assert_eq!((near.ok, far.ok), (near.offered, far.offered), "{far:?}");
    // One in ten is lost, and of the answers as many, which Linux sends again by itself a moment
    // before the client does.
    let again = far.syns as f64 / far.offered as f64 - 1.0;
    assert!((0.10..0.30).contains(&again), "{again}");
    let [to_server, to_clients] = paths.expect("paths");
    for PathCounts { packets, opening, opening_dropped } in [to_server, to_clients] {
        assert_eq!(packets.arrived.packets, packets.delivered.packets + packets.dropped.packets);
        assert_eq!(packets.lost, packets.dropped.packets);
        let share = opening_dropped as f64 / opening as f64;
        assert!((0.07..0.13).contains(&share), "{opening_dropped} of {opening}");
    }
}

#[test]
fn everybody_is_answered_over_a_bad_way() {
    let words = "delay 80ms jitter 40ms reorder 5% loss gilbert-elliott:p=4%,r=30% rate 20mbit limit 50";
    let (crowd, _, paths) = run(world(1000.0, Some((words, words)), 3));
    assert_eq!(crowd.ok, crowd.offered, "{crowd:?}");
    let [to_server, to_clients] = paths.expect("paths");
    assert!(to_server.packets.reordered > 0 && to_clients.packets.reordered > 0, "{to_server:?}");
    assert!(to_clients.packets.lost > 0, "{to_clients:?}");
}

#[test]
fn rate_of_the_way_is_not_exceeded() {
    let mut world = world(1000.0, Some(("", "rate 1mbit")), 1);
    world.run_until(SECOND);
    let [_, to_clients] = world.paths().expect("paths");
    let bytes = to_clients.packets.delivered.bytes;
    assert!((124_000..=125_000).contains(&bytes), "as many as go through in a second: {bytes}");
    assert!(to_clients.packets.arrived.bytes > 2 * bytes, "{to_clients:?}");
}

#[test]
fn same_seed_gives_the_same_frames_at_the_same_times() {
    let frames = |seed| {
        let words = "delay 20ms jitter 5ms loss 5%";
        let (_, capture, paths) = run(world(300.0, Some((words, words)), seed));
        let frames: Vec<_> = capture.frames().map(|(at, frame)| (at, frame.to_vec())).collect();
        (frames, paths)
    };
    assert_eq!(frames(1), frames(1));
    assert_ne!(frames(1), frames(2));
}
