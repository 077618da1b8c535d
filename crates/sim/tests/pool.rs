//! A pool of processes: how many it serves at once, how fast, and what silent clients and slow
//! readers cost it.

use std::num::NonZeroU32;

use crowd::{Asks, Clients, Crowd, Manners, Shard, Stacks, Window};
use results::{CrowdSummary, GeneratorHealth};
use sim::{Accept, Config, Profile, ServerCounts, Serving, Setup, World};
use tcp::Close;
use traffic::{Arrivals, Schedule, Workload};
use units::Nanos;

const WARMUP: Nanos = Nanos::from_secs(1);
const END: Nanos = Nanos::from_secs(3);

fn processes(count: u32) -> Accept {
    Accept::Each(NonZeroU32::new(count).expect("a process"))
}

/// A machine by its name, with the costs of its process pool.
fn machine(name: &str) -> Profile {
    let mut profile = Profile::shipped(name).expect("shipped");
    profile.server = profile.process_pool.expect("costs of a process pool");
    profile
}

fn setup(profile: Profile, count: u32) -> Setup {
    let kernel = Config { backlog: 511, ..profile.system.config() };
    let service = Serving {
        accept: processes(count),
        cpu_time: Nanos::ZERO,
        backend: Nanos::ZERO,
        reply_bytes: 512,
        descriptors: None,
        closes: None,
    };
    Setup { kernel, service, profile }
}

fn run(setup: Setup, rate: f64) -> (CrowdSummary, ServerCounts) {
    let manners = Manners {
        timeout: Nanos::from_secs(10),
        abort: None,
        reuse: 1,
        groups: 1,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        window: Window { start: WARMUP, end: END },
        stacks: Stacks::default(),
        clock: 0,
        seed: 1,
        first_endpoint: 0,
    };
    let asks = Asks::new(Workload::default(), 1, "server", "/");
    let clients = Clients::new("10.77.0.0/16".parse().expect("a network"));
    let schedule = Schedule::new(Arrivals::Poisson, rate, 1);
    let mut world = World::new(setup, Crowd::new(manners, asks, clients, schedule, 0));
    world.run_until(END);
    world.stop(END);
    (world.crowd().tally().summary(END, GeneratorHealth::default()), world.server())
}

#[test]
fn cpu_bound_pool_answers_one_in_what_a_connection_costs() {
    let profile = machine("round-numbers");
    // SYN, end of the handshake, request, the reply's ACK, FIN, the ACK of its own; then accept,
    // request, the switch that sees the FIN, close.
    let softirq = 7.0 + 5.0 + 4.0 + 1.5 + 3.0 + 1.5;
    let program = 6.0 + 100.0 + 2.0 + 4.0;
    let peak = 1e6 / (softirq + program);
    let (below, _) = run(setup(profile.clone(), 150), 0.95 * peak);
    assert!(below.goodput_per_s > 0.98 * below.offered_per_s, "{} of {peak}", below.goodput_per_s);
    let (beyond, server) = run(setup(profile, 150), 1.05 * peak);
    assert!((0.9 * peak..1.01 * peak).contains(&beyond.goodput_per_s), "{} of {peak}", beyond.goodput_per_s);
    assert_eq!(server.errors, 0);
}

#[test]
fn waiting_for_clients_bounds_a_pool_by_its_processes() {
    // With 50 ms each way a process has its connection for the request's round trip, and for that
    // in which the client closes.
    let mut profile = machine("round-numbers");
    profile.crowd.delay = 50_000.0;
    for count in [1, 10, 40] {
        let (crowd, _) = run(setup(profile.clone(), count), 1000.0);
        let most = f64::from(count) / (2.0 * profile.crowd.delay().as_secs_f64());
        assert!(
            crowd.goodput_per_s <= 1.05 * most,
            "{} by {count} processes, {most} at most",
            crowd.goodput_per_s
        );
        assert!(
            crowd.goodput_per_s >= 0.8 * most,
            "{} by {count} processes, {most} at most",
            crowd.goodput_per_s
        );
    }
}

#[test]
fn apache_of_the_thesis_answers_a_fifth_of_its_event_driven_server() {
    let of = |rate| run(setup(machine("xeon-2005"), 150), rate).0;
    let peak = 19_000.0 / 5.0;
    let below = of(0.97 * peak);
    assert!(below.goodput_per_s > 0.97 * below.offered_per_s, "{} of {peak}", below.goodput_per_s);
    let beyond = of(1.1 * peak);
    assert!(beyond.goodput_per_s < 1.03 * peak, "{} of {peak}", beyond.goodput_per_s);
}

#[test]
fn processes_wait_for_another_server_side_by_side_and_leave_the_cpu_to_others() {
    for (count, of_what_they_can) in [(5, 2.0), (20, 2.0), (20, 0.8)] {
        let mut setup = setup(machine("round-numbers"), count);
        setup.service.backend = Nanos::from_millis(50);
        let most = f64::from(count) / 0.05;
        let (crowd, server) = run(setup, of_what_they_can * most);
        let share = crowd.goodput_per_s / most.min(of_what_they_can * most);
        assert!((0.95..1.02).contains(&share), "{share} of what {count} processes can");
        assert!(crowd.response_ms.p50 >= 50.0, "{:?}", crowd.response_ms);
        // They wait for most of the time, and the CPU works for a tenth of a millisecond each.
        assert!(server.program.0 < END.0 / 10, "{:?} of the CPU", server.program);
    }
}
