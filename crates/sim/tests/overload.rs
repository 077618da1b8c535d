//! A crowd before a simulated server: what happens below saturation and beyond, and that it happens
//! again.

use crowd::{Asks, Clients, Crowd, Manners, Shard, Stacks, Window};
use results::{CrowdSummary, GeneratorHealth};
use sim::{Accept, Config, Generation, Profile, ServerCounts, Serving, Setup, World};
use tcp::Close;
use traffic::{Arrivals, Bursts, Schedule, Workload};
use units::Nanos;
use verdict::Policy;

/// A machine whose server answers 25,000 connections a second: 40 us for each.
const MACHINE: &str = include_str!("../profiles/round-numbers.toml");
const WARMUP: Nanos = Nanos::from_secs(2);
const END: Nanos = Nanos::from_secs(4);

fn machine() -> Profile {
    Profile::parse(MACHINE).expect("a profile")
}

fn crowd(rate: f64, seed: u64) -> Crowd {
    crowd_of(Schedule::new(Arrivals::Poisson, rate, seed), seed, Window { start: WARMUP, end: END })
}

fn crowd_of(schedule: Schedule, seed: u64, window: Window) -> Crowd {
    let manners = Manners {
        timeout: Nanos::from_secs(10),
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        window,
        stacks: Stacks::default(),
        clock: 0,
        seed,
        first_endpoint: 0,
    };
    let asks = Asks::new(Workload::default(), seed, "server", "/");
    let clients = Clients::new("10.77.0.0/16".parse().expect("a network"));
    Crowd::new(manners, asks, clients, schedule, 0)
}

fn setup(policy: &str) -> Setup {
    let policy: Policy = policy.parse().expect("a policy");
    Setup {
        kernel: Config { policy, ..Config::default() },
        service: Serving {
            accept: Accept::Inf,
            cpu_time: Nanos::ZERO,
            backend: Nanos::ZERO,
            reply_bytes: 512,
            descriptors: None,
            closes: None,
        },
        profile: machine(),
    }
}

/// Two seconds of a crowd after two of warm-up.
fn run(setup: Setup, rate: f64, seed: u64) -> (CrowdSummary, ServerCounts) {
    let mut world = World::new(setup, crowd(rate, seed));
    world.run_until(END);
    world.stop(END);
    (world.crowd().tally().summary(END, GeneratorHealth::default()), world.server())
}

#[test]
fn server_below_saturation_answers_everybody_soon() {
    let (crowd, server) = run(setup("default"), 15_000.0, 1);
    assert!(crowd.goodput_per_s > 0.99 * crowd.offered_per_s, "{crowd:?}");
    assert!(crowd.response_ms.mean < 1.0, "{:?}", crowd.response_ms);
    assert_eq!((server.kernel.listen_overflows, server.frames_lost, server.errors), (0, 0, 0));
    let busy = (server.softirq.0 + server.program.0) as f64 / END.0 as f64;
    assert!((0.4..0.8).contains(&busy), "{busy} of the CPU at 15,000/s");
}

#[test]
fn work_takes_longer_where_the_cpu_is_taken_from_it() {
    let busy = |taken: f64| {
        let mut setup = setup("default");
        setup.service.cpu_time = Nanos::from_millis(2);
        setup.profile.taken = taken;
        let (crowd, server) = run(setup, 100.0, 1);
        assert_eq!(crowd.ok, crowd.offered, "{crowd:?}");
        server.program.0 as f64
    };
    let share = busy(0.5) / busy(0.0);
    assert!((1.9..2.0).contains(&share), "twice the 2 ms, and steps that are as they were measured: {share}");
}

/// A crowd whose frames come one by one, and together, by something that gathers them for so many
/// microseconds. All are answered; how much later those are that were gathered, ms.
fn gather(by: impl Fn(&mut Profile, f64)) -> ([ServerCounts; 2], f64) {
    let [(one_by_one, busy), (gathered, calm)] = [0.0, 500.0].map(|micros| {
        let mut setup = setup("default");
        setup.profile.softirq.wake = 5.0;
        by(&mut setup.profile, micros);
        run(setup, 10_000.0, 1)
    });
    for crowd in [&one_by_one, &gathered] {
        assert!(crowd.ok as f64 > 0.99 * crowd.offered as f64, "{crowd:?}");
    }
    ([busy, calm], gathered.response_ms.mean - one_by_one.response_ms.mean)
}

#[test]
fn moderated_interrupts_gather_frames_and_cost_a_little_time() {
    let ([busy, calm], later) = gather(|profile, micros| profile.receive.moderation = micros);
    assert!(calm.softirq.0 as f64 <= 0.8 * busy.softirq.0 as f64, "{calm:?}, {busy:?}");
    // Two of a reply's three ways to the server wait for an interrupt.
    assert!((0.1..1.5).contains(&later), "{later} ms later");
}

#[test]
fn crowd_in_turns_gathers_frames_and_keeps_its_clients_waiting_at_its_own_end() {
    let ([busy, calm], later) = gather(|profile, micros| profile.crowd.turns = micros);
    assert!(calm.turns * 2 < busy.turns, "{calm:?}, {busy:?}");
    // Who begins waits for half a turn, and the SYN/ACK and the reply for most of one each, as they
    // come soon after it.
    assert!((0.75..1.5).contains(&later), "{later} ms later");
}

/// What `lab calibrate` takes off what it measured, to find the wire.
#[test]
fn who_is_refused_hears_a_turn_and_half_a_look_later() {
    let refused_after_us = |turns: f64, poll: f64| {
        let mut setup = setup("rst-syn");
        (setup.profile.crowd.delay, setup.profile.crowd.turns, setup.profile.crowd.poll) = (5.0, turns, poll);
        let (crowd, _) = run(setup, 40_000.0, 1);
        assert!(crowd.refused > 10_000, "{crowd:?}");
        1000.0 * crowd.refusal_ms.mean
    };
    let later = refused_after_us(60.0, 170.0) - refused_after_us(0.0, 0.0);
    assert!((later - (60.0 + 85.0)).abs() < 25.0, "{later} us later");
}

#[test]
fn guard_costs_what_it_looks_into() {
    // Microseconds of softirq for each answer that are more where each look of the guard takes one.
    let more = |policy: &str, backlog: u32| {
        let softirq_us = |look: f64| {
            let mut setup = setup(policy);
            setup.kernel.backlog = backlog;
            (setup.profile.softirq.guard_syn, setup.profile.softirq.guard_ack) = (look, look);
            let (crowd, server) = run(setup, 5_000.0, 1);
            assert!(crowd.goodput_per_s > 0.98 * crowd.offered_per_s, "{policy}: {crowd:?}");
            server.softirq.0 as f64 / 1e3 / server.answered as f64
        };
        softirq_us(1.0) - softirq_us(0.0)
    };
    assert_eq!(more("default", 1024), 0.0, "no guard");
    let near = |more: f64, looks: f64| assert!((more - looks).abs() < 0.05 * looks, "{more} for {looks}");
    near(more("abort", 1024), 1.0);
    near(more("rst-syn", 3), 1.0);
    // The end of the handshake, the request, the reply's acknowledgment and the FIN; and the FIN's.
    near(more("abort", 3), 1.0 + 5.0);
}

#[test]
fn program_pays_for_being_woken_where_it_sleeps_and_not_beyond_saturation() {
    let with_woken = |micros: f64, rate: f64| {
        let mut setup = setup("rst-syn");
        setup.profile.server.woken = micros;
        let (crowd, server) = run(setup, rate, 1);
        assert!(crowd.goodput_per_s > 0.9 * rate.min(20_000.0), "{crowd:?}");
        server.program.0 as f64 / server.answered as f64
    };
    let [calm, busy] = [2_000.0, 30_000.0].map(|rate| with_woken(10.0, rate) - with_woken(0.0, rate));
    // A client that comes alone wakes it up to three times: the connection, the request and the
    // FIN.
    assert!((10_000.0..30_000.0).contains(&calm), "{calm} ns more for each request");
    assert!(busy < 500.0, "{busy} ns more");
}

#[test]
fn overload_costs_a_stock_server_its_goodput_and_clients_seconds() {
    let (stock, server) = run(setup("default"), 40_000.0, 1);
    let (told, _) = run(setup("abort+rst-syn"), 40_000.0, 1);
    assert!(server.kernel.listen_overflows > 1000, "{server:?}");
    assert!(stock.goodput_per_s < 0.8 * 25_000.0, "{}", stock.goodput_per_s);
    assert!(stock.response_ms.mean > 300.0, "{:?}", stock.response_ms);
    assert!(
        told.goodput_per_s > stock.goodput_per_s,
        "{} against {}",
        told.goodput_per_s,
        stock.goodput_per_s
    );
    assert!(told.response_ms.mean < 0.1 * stock.response_ms.mean, "{:?}", told.response_ms);
    assert!(told.refusal_ms.p50 < 2.0, "{:?}", told.refusal_ms);
}

/// What was accepted is served before the next look tells of those that have closed meanwhile, so
/// that the same work is felt the less, the more of it is theirs.
#[test]
fn connections_are_served_when_they_are_accepted_and_not_behind_those_that_have_closed() {
    let median_ms = |request: f64, close: f64| {
        let mut setup = setup("rst-syn");
        (setup.profile.server.request, setup.profile.server.close) = (request, close);
        let (crowd, _) = run(setup, 40_000.0, 1);
        assert!(crowd.goodput_per_s > 0.7 * 25_000.0, "{crowd:?}");
        crowd.response_ms.p50
    };
    let [early, late] = [(2.0, 12.0), (12.0, 2.0)].map(|(request, close)| median_ms(request, close));
    assert!(early < 0.9 * late, "{early} ms, {late} ms where requests are the work");
}

#[test]
fn cookie_of_the_guard_costs_what_the_profile_says_of_it() {
    let goodput = |cost| {
        let mut setup = setup("no-syn-drop");
        setup.profile.softirq.syn_cookie = cost;
        run(setup, 32_000.0, 1).0.goodput_per_s
    };
    let [as_the_kernels, cheap] = [None, Some(1.0)].map(goodput);
    assert!(cheap > as_the_kernels + 1_000.0, "{cheap}/s, {as_the_kernels}/s");
}

/// Accept-INF takes connections as long as there are any. Where more come than it can take beside
/// what softirq does for them it serves none, unless it runs out of descriptors.
#[test]
fn server_that_only_accepts_is_saved_by_its_limit_of_descriptors() {
    let limited = |descriptors| {
        let mut setup = setup("rst-syn");
        setup.service.descriptors = descriptors;
        run(setup, 80_000.0, 1)
    };
    let (free, _) = limited(None);
    let (bounded, server) = limited(Some(1000));
    assert_eq!(free.ok, 0, "{free:?}");
    assert!(bounded.goodput_per_s > 5_000.0, "{bounded:?}");
    assert!(bounded.refused > free.refused, "its queue is full while it serves: {server:?}");
}

/// A SYN is decided a round trip before its connection asks for anything: what is let in meanwhile
/// is to be as much as the server answers, neither more nor less, or it has too many and nobody in
/// turns.
#[test]
fn clients_that_are_far_away_keep_a_server_busy_and_do_not_queue() {
    for (delay, round_trip_ms) in [("delay 25ms", 50.0), ("delay 100ms", 200.0)] {
        let mut setup = setup("abort+rst-syn+unserved");
        setup.kernel.backlog = 1024;
        setup.service.cpu_time = Nanos::from_micros(460); // and 40 us for the connection: 2,000/s
        let end = Nanos::from_secs(12);
        let window = Window { start: Nanos::from_secs(6), end };
        let crowd = crowd_of(Schedule::new(Arrivals::Poisson, 3_600.0, 1), 1, window);
        let mut world = World::new(setup, crowd);
        let path = delay.parse().expect("a path");
        world.far_away(&path, &path, 1).expect("paths that can be");
        world.run_until(end);
        world.stop(end);
        let crowd = world.crowd().tally().summary(end, GeneratorHealth::default());
        assert!(crowd.goodput_per_s > 0.97 * 2_000.0, "{delay}: {}/s", crowd.goodput_per_s);
        // Two round trips, and a little in the queue.
        let queued = crowd.response_ms.mean - 2.0 * round_trip_ms;
        assert!(queued < 0.25 * round_trip_ms, "{delay}: {queued} ms");
    }
}

/// More handshakes are under way than the accept queue holds, and a server that keeps up takes each
/// as it comes.
#[test]
fn clients_that_are_far_away_are_not_held_back_by_places_that_others_have_left_by_then() {
    for (delay, rate) in [("delay 10ms", 18_000.0), ("delay 30ms", 14_000.0), ("delay 100ms", 6_000.0)] {
        for backlog in [128, 511] {
            let mut setup = setup("abort+rst-syn+unserved");
            setup.kernel.backlog = backlog;
            let end = Nanos::from_secs(8);
            let crowd =
                crowd_of(Schedule::new(Arrivals::Poisson, rate, 1), 1, Window { start: Nanos::ZERO, end });
            let mut world = World::new(setup, crowd);
            let path = delay.parse().expect("a path");
            world.far_away(&path, &path, 1).expect("paths that can be");
            // It begins knowing nothing of them.
            world.run_until(Nanos::from_secs(3));
            let before = world.server().guard.listener;
            world.run_until(end);
            world.stop(end);
            let counts = world.server().guard.listener;
            let held = counts.reset - before.reset;
            assert!(
                1000 * held < counts.seen - before.seen,
                "{delay}, backlog {backlog}: {held}, {counts:?}"
            );
            assert_eq!(counts.acks_full, 0, "{delay}, backlog {backlog}: {counts:?}");
        }
    }
}

/// Of such a crowd (the server can answer some 22,500/s beside the SYNs of twice its load, and
/// 18,700 beside those of four times) more are under way than the SYN queue holds, so that nearly
/// all handshakes end by a cookie of the kernel's, and those who were let in at once come at once.
#[test]
fn crowd_that_is_far_away_is_let_in_as_it_can_be_answered() {
    for (times, backlog, least) in [(2.0, 128, 21_000.0), (4.0, 128, 17_000.0), (2.0, 4096, 21_000.0)] {
        let mut setup = setup("abort+rst-syn+unserved");
        setup.kernel.backlog = backlog;
        let end = Nanos::from_secs(8);
        let window = Window { start: Nanos::from_secs(4), end };
        let crowd = crowd_of(Schedule::new(Arrivals::Poisson, times * 25_000.0, 1), 1, window);
        let mut world = World::new(setup, crowd);
        let path = "delay 30ms".parse().expect("a path");
        world.far_away(&path, &path, 1).expect("paths that can be");
        world.run_until(window.start);
        let before = world.server().guard.listener;
        world.run_until(end);
        world.stop(end);
        let counts = world.server().guard.listener;
        let crowd = world.crowd().tally().summary(end, GeneratorHealth::default());
        let what = format!("{times} times, backlog {backlog}: {}/s, {counts:?}", crowd.goodput_per_s);
        assert!(crowd.goodput_per_s > least, "{what}");
        let in_vain = counts.acks_full - before.acks_full;
        assert!(10 * in_vain < counts.admitted - before.admitted, "{what}");
    }
}

/// The machine of `[Shu05]` with its kernel, or the same machine with today's.
fn thesis(policy: &str, linux: Generation) -> Setup {
    let profile = Profile::shipped("xeon-2005").expect("shipped");
    let kernel = Config { generation: linux, ..profile.system.config() };
    let policy: Policy = policy.parse().expect("a policy");
    Setup { kernel: Config { policy, ..kernel }, profile, ..setup("default") }
}

#[test]
fn linux_2_4_answers_some_syns_into_a_full_queue_and_rst_syn_refuses_only_the_others() {
    let [then, now] = [Generation::Linux24, Generation::Linux410]
        .map(|linux| run(thesis("abort+rst-syn", linux), 30_000.0, 1).1.guard.listener);
    assert!(then.reset > 0 && now.reset > 0, "{then:?}, {now:?}");
    assert!(then.acks_reset > 1000, "handshakes that 2.4 begins end at a full queue: {then:?}");
    assert!(now.acks_reset < then.acks_reset / 10, "today's kernel begins none: {now:?}");
    let (_, reserv) = run(thesis("reserv+rst-syn", Generation::Linux24), 30_000.0, 1);
    assert_eq!(reserv.kernel.listen_overflows, 0, "reserv asks before the kernel: {reserv:?}");
}

#[test]
fn server_that_takes_one_at_a_time_touches_no_connection_before_accept() {
    let mut setup = setup("abort");
    setup.service.accept = Accept::One;
    let (crowd, server) = run(setup, 30_000.0, 1);
    assert!(crowd.goodput_per_s > 10_000.0, "{crowd:?}");
    assert!(server.answered > 0 && crowd.malformed == 0, "{server:?}");
}

#[test]
fn machine_of_the_thesis_has_its_peaks() {
    let mut in_kernel = thesis("default", Generation::Linux24);
    in_kernel.profile.server = in_kernel.profile.in_kernel.expect("costs");
    in_kernel.service.accept = Accept::One;
    in_kernel.kernel.backlog = 2048;
    for (setup, peak) in [(thesis("default", Generation::Linux24), 19_000.0), (in_kernel, 22_000.0)] {
        let (crowd, _) = run(setup.clone(), 0.97 * peak, 1);
        assert!(crowd.goodput_per_s > 0.97 * crowd.offered_per_s, "{} of {peak}", crowd.goodput_per_s);
        let (crowd, _) = run(setup, 1.1 * peak, 1);
        assert!(crowd.goodput_per_s < 1.03 * peak, "{} of {peak}", crowd.goodput_per_s);
    }
}

#[test]
fn same_seed_gives_the_same_and_another_another() {
    let once = run(setup("abort"), 40_000.0, 7);
    assert_eq!(once, run(setup("abort"), 40_000.0, 7));
    assert_ne!(once.0, run(setup("abort"), 40_000.0, 8).0);
}

#[test]
fn every_attempt_ends_in_one_cause() {
    for policy in ["default", "reserv+rst-syn", "no-syn-drop", "rst-fin+abort"] {
        let (crowd, server) = run(setup(policy), 50_000.0, 3);
        let causes =
            crowd.ok + crowd.refused + crowd.reset + crowd.timed_out_connect + crowd.timed_out_response;
        assert_eq!(causes + crowd.malformed + crowd.not_sent + crowd.unfinished, crowd.offered, "{policy}");
        assert_eq!((crowd.malformed, crowd.not_sent), (0, 0), "{policy}");
        assert!(server.answered > 0, "{policy}");
    }
}

#[test]
fn who_would_begin_in_the_crowds_next_turn_has_not_come() {
    for seed in 0..4 {
        let mut setup = setup("rst-syn");
        setup.profile.crowd.turns = 1000.0;
        let (crowd, _) = run(setup, 50_000.0, seed);
        assert_eq!(crowd.not_sent, 0, "seed {seed}");
    }
}

/// Bursts of so many seconds with gaps of so many, whose mean is a rate: what is answered, as a
/// share of what is asked, and the mean, ms.
fn in_bursts(policy: &str, on: u64, off: u64, mean: f64) -> (f64, f64) {
    let bursts = Bursts::new(Nanos::from_secs(on), Nanos::from_secs(off)).expect("bursts");
    let end = WARMUP + Nanos::from_secs(4 * (on + off));
    let schedule = Schedule::in_bursts(Arrivals::Poisson, mean, bursts, 1);
    let mut world = World::new(setup(policy), crowd_of(schedule, 1, Window { start: WARMUP, end }));
    world.run_until(end);
    world.stop(end);
    let crowd = world.crowd().tally().summary(end, GeneratorHealth::default());
    (crowd.goodput_per_s / crowd.offered_per_s, crowd.response_ms.mean)
}

/// [Shu05] section 5.2: who is not refused comes back in the gap, seconds late.
#[test]
fn burst_is_left_to_the_kernel_for_as_long_as_the_policy_says() {
    let [ours, patient, refused, stock] =
        ["abort+rst-syn+unserved", "abort+rst-syn+unserved+burst:10s", "abort+rst-syn", "default"]
            .map(|policy| in_bursts(policy, 1, 1, 20_000.0));
    assert!(patient.0 > 0.97 * stock.0, "{patient:?}, and of stock {stock:?}");
    assert!(ours.0 > 0.97 * refused.0 && ours.1 < 0.5 * stock.1, "{ours:?}, {refused:?}, {stock:?}");
}

#[test]
#[ignore = "long"]
fn burst_of_ten_seconds_is_a_crowd() {
    let [ours, refused, stock] = ["abort+rst-syn+unserved", "abort+rst-syn", "default"]
        .map(|policy| in_bursts(policy, 10, 5, 30_000.0));
    assert!(ours.0 > 1.2 * stock.0 && ours.0 > 0.97 * refused.0, "{ours:?}, {refused:?}, {stock:?}");
}

/// A crowd of twice what the server can do, for twelve seconds after six of quiet, as it is from
/// one second of it to another.
fn crowd_after_quiet(from: u64, to: u64) -> CrowdSummary {
    let bursts = Bursts::new(Nanos::from_secs(12), Nanos::from_secs(6)).expect("bursts");
    let schedule = Schedule::in_bursts(Arrivals::Poisson, 50_000.0 * 12.0 / 18.0, bursts, 1);
    // After one from which it is known what an answer takes.
    let [start, end] = [from, to].map(|second| Nanos::from_secs(18 + second));
    let mut world = World::new(setup("abort+rst-syn+unserved"), crowd_of(schedule, 1, Window { start, end }));
    world.run_until(end);
    world.stop(end);
    world.crowd().tally().summary(end, GeneratorHealth::default())
}

/// Whom the kernel drops before it is a crowd comes back for seven seconds.
#[test]
fn crowd_that_stays_leaves_nobody_unanswered_for_long() {
    let [all, late] = [0, 8].map(|from| crowd_after_quiet(from, 12));
    assert!(all.refusal_ms.mean < 100.0, "{:?}", all.refusal_ms);
    assert!(late.syns_per_attempt < 1.05, "{} SYNs for each attempt", late.syns_per_attempt);
    assert!(late.response_ms.mean < 5.0, "{:?}", late.response_ms);
}
