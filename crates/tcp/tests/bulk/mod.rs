//! Large streams between two ends of this crate: they arrive, fill their path, share it, and a loss
//! costs what it should.

mod path;

use path::{Bottleneck, Pattern, World};
use tcp::{Algorithm, Control, Estimator, LINUX, Rto, Stack};
use units::Nanos;

const BOTH: [Algorithm; 2] = [Algorithm::NewReno, Algorithm::Cubic];
const NOTHING: Pattern = Pattern(0);

/// Without timestamps, so that a segment's data are 1000 bytes; with a buffer that is never the
/// limit.
const BULK: Stack = Stack {
    mss: 1000,
    window: 64_000,
    receive_buffer: Some(4 << 20),
    timestamps: false,
    tail_loss_probe: false,
    quick_acks: 0,
    ..LINUX
};

fn control(algorithm: Algorithm) -> Control {
    Control { algorithm, waits_for_more: true }
}

fn path(rate: u64, delay_ms: u64, queue: usize) -> Bottleneck {
    Bottleneck::new(rate, Nanos::from_millis(delay_ms), queue, 7)
}

#[test]
fn whole_stream_arrives_in_order_whatever_the_path_loses_and_reorders() {
    let sacks = [true, false];
    for algorithm in BOTH {
        for (sack, timestamps) in
            sacks.into_iter().flat_map(|sack| sacks.map(|timestamps| (sack, timestamps)))
        {
            for (lost, late) in [(0, 0), (10, 0), (50, 0), (200, 0), (0, 100), (50, 100)] {
                for seed in 0..4 {
                    let stack = Stack { sack, timestamps, tail_loss_probe: seed % 2 == 0, ..BULK };
                    let mut link = Bottleneck::new(10_000_000, Nanos::from_millis(10), 30, seed);
                    (link.lost, link.late) = (lost, late);
                    let mut world = World::new(stack, link);
                    let streams = [Pattern(300_000 + seed * 777), Pattern([0, 50_000][(seed / 2) as usize])];
                    world.add(control(algorithm), streams, Nanos::ZERO);
                    world.run(Nanos::from_secs(3600));
                    let what = format!(
                        "{algorithm:?}, SACK {sack}, timestamps {timestamps}, {lost} and {late} of 1000, seed {seed}"
                    );
                    let flow = &world.flows[0];
                    assert_eq!(flow.heard, [streams[0].0, streams[1].0], "{what}: {:?}", flow.path());
                    assert!(world.is_over(), "{what}: {:?}", flow.client.state());
                }
            }
        }
    }
}

#[test]
fn queue_of_one_bandwidth_delay_product_lets_a_flow_fill_the_link() {
    for algorithm in BOTH {
        for sack in [true, false] {
            // 10 Mb/s times 40 ms are 50 segments.
            let mut world = World::new(Stack { sack, ..BULK }, path(10_000_000, 20, 50));
            world.add(control(algorithm), [Pattern(u64::MAX), NOTHING], Nanos::ZERO);
            world.run(Nanos::from_secs(60));
            let path = world.flows[0].path();
            let utilisation = world.flows[0].heard[0] as f64 * 8.0 * 1.04 / 60.0 / 10_000_000.0;
            println!("{algorithm:?}, SACK {sack}: {utilisation:.3}, {path:?}");
            assert!(
                utilisation > 0.9 && utilisation <= 1.0,
                "{algorithm:?}, SACK {sack}: {utilisation} {path:?}"
            );
            assert!(path.counts.recoveries > 3, "{path:?}");
        }
    }
}

/// One segment of a long stream is lost, where nothing else ever is.
#[test]
fn single_loss_leaves_half_of_the_window_or_seven_tenths_and_no_timer_goes_off() {
    for (algorithm, left) in [(Algorithm::NewReno, 0.5), (Algorithm::Cubic, 0.7)] {
        for sack in [true, false] {
            let stack = Stack { sack, receive_buffer: Some(100_000), ..BULK };
            let mut link = path(100_000_000, 20, 1000);
            link.doomed = vec![1000];
            let mut world = World::new(stack, link);
            let flow = world.add(control(algorithm), [Pattern(3_000_000), NOTHING], Nanos::ZERO);
            world.flows[flow].trace = Some(Vec::new());
            world.run(Nanos::from_secs(100));
            let flow = &world.flows[flow];
            let trace = flow.trace.as_ref().expect("it was kept");
            let what = format!("{algorithm:?}, SACK {sack}");
            let at =
                trace.windows(2).position(|pair| pair[0].1.counts.recoveries < pair[1].1.counts.recoveries);
            let at = at.unwrap_or_else(|| panic!("{what}: no recovery"));
            let (before, threshold) = (trace[at].1.window, trace[at + 1].1.threshold);
            assert!(
                (f64::from(before) * left - f64::from(threshold)).abs() <= 1.0,
                "{what}: {before} to {threshold}"
            );
            let least = trace[at + 1..].iter().map(|(_, state)| state.window).min().unwrap_or_default();
            // While it shrinks it is what is out, which the client's window bounds.
            assert!(least >= threshold.min(100_000) / 10 * 9, "{what}: {least}, {threshold}");
            let counts = flow.path().counts;
            assert_eq!((counts.resent, counts.recoveries, counts.timeouts), (1, 1, 0), "{what}");
            assert_eq!(flow.heard[0], 3_000_000, "{what}");
        }
    }
}

/// RFC 6582 section 1: without selective acknowledgements one segment each round trip, and still no
/// timer.
#[test]
fn several_losses_of_one_window_are_one_reduction() {
    for (sack, trips) in [(true, 2), (false, 6)] {
        let stack = Stack { sack, receive_buffer: Some(100_000), ..BULK };
        let mut link = path(100_000_000, 20, 1000);
        link.doomed = vec![1000, 1010, 1020, 1021, 1030];
        let mut world = World::new(stack, link);
        world.add(control(Algorithm::NewReno), [Pattern(3_000_000), NOTHING], Nanos::ZERO);
        world.flows[0].trace = Some(Vec::new());
        world.run(Nanos::from_secs(100));
        let counts = world.flows[0].path().counts;
        assert_eq!((counts.resent, counts.recoveries, counts.timeouts), (5, 1, 0), "SACK {sack}");
        let trace = world.flows[0].trace.as_ref().expect("it was kept");
        let resent = |n| trace.iter().find(|(_, state)| state.counts.resent >= n).expect("sent again").0;
        let took = resent(5).since(resent(1)).as_millis_f64() / 40.0;
        assert!(took <= f64::from(trips), "SACK {sack}: {took} round trips");
    }
}

/// RFC 8985 section 6.2: one segment that was sent later is enough, which three duplicates
/// (RFC 6675) would never be.
#[test]
fn loss_just_before_the_end_costs_a_round_trip_and_no_timeout() {
    // Of ten segments and a FIN.
    for (algorithm, lost, timeouts) in [
        (Algorithm::NewReno, 8, 0),
        (Algorithm::Cubic, 8, 0),
        (Algorithm::NewReno, 9, 1),
        (Algorithm::Classic, 8, 1),
    ] {
        let mut link = path(100_000_000, 20, 1000);
        link.doomed = vec![lost];
        let mut world = World::new(BULK, link);
        world.add(control(algorithm), [Pattern(10_000), NOTHING], Nanos::ZERO);
        world.flows[0].trace = Some(Vec::new());
        world.run(Nanos::from_secs(100));
        let what = format!("{algorithm:?}, {lost} lost");
        let flow = &world.flows[0];
        assert_eq!((flow.heard[0], flow.path().counts.timeouts), (10_000, timeouts), "{what}");
        let trace = flow.trace.as_ref().expect("it was kept");
        let resent = trace.iter().find(|(_, state)| state.counts.resent == 1).expect("it is sent again").0;
        // Sent after 60 ms, overtaken after 100, lost after 12 more.
        let soon = Nanos::from_millis(112)..Nanos::from_millis(114);
        assert_eq!(soon.contains(&resent), timeouts == 0, "{what}: {resent}");
    }
}

#[test]
fn flows_share_a_bottleneck() {
    for algorithm in BOTH {
        let mut world = World::new(BULK, path(10_000_000, 20, 50));
        for n in 0..2 {
            world.add(control(algorithm), [Pattern(u64::MAX), NOTHING], Nanos::from_secs(5 * n));
        }
        world.run(Nanos::from_secs(30));
        let before: Vec<u64> = world.flows.iter().map(|flow| flow.heard[0]).collect();
        world.run(Nanos::from_secs(330));
        let shares: Vec<f64> =
            world.flows.iter().zip(before).map(|(flow, before)| (flow.heard[0] - before) as f64).collect();
        let fairness = shares.iter().sum::<f64>().powi(2)
            / (2.0 * shares.iter().map(|share| share * share).sum::<f64>());
        println!("{algorithm:?}: {fairness:.4}, {shares:?}");
        assert!(fairness >= 0.9, "{algorithm:?}: Jain's index {fairness}, {shares:?}");
    }
}

/// RFC 7323 section 4.1, and Linux without timestamps, too; RFC 6298 section 3 without either.
#[test]
fn each_acknowledgment_is_a_sample_of_the_round_trip_with_timestamps_and_of_linux() {
    const LEN: u64 = 2_000_000;
    let rto = Rto { estimator: Estimator::Rfc, ..LINUX.rto };
    for (algorithm, rto, timestamps, is_each) in [
        (Algorithm::NewReno, LINUX.rto, true, true),
        (Algorithm::Cubic, LINUX.rto, false, true),
        (Algorithm::NewReno, rto, true, true),
        (Algorithm::NewReno, rto, false, false),
        (Algorithm::Classic, LINUX.rto, true, true),
        (Algorithm::Classic, LINUX.rto, false, false),
    ] {
        let stack = Stack { rto, timestamps, receive_buffer: Some(100_000), ..BULK };
        let mut world = World::new(stack, path(100_000_000, 20, 1000));
        world.add(control(algorithm), [Pattern(LEN), NOTHING], Nanos::ZERO);
        world.flows[0].trace = Some(Vec::new());
        world.run(Nanos::from_secs(100));
        let trace = world.flows[0].trace.as_ref().expect("it was kept");
        let (what, counts) = (format!("{algorithm:?}, {stack:?}"), world.flows[0].path().counts);
        assert_eq!((world.flows[0].heard[0], counts.resent), (LEN, 0), "{what}");
        // The receiver acknowledges each second segment of 988 or 1000 bytes.
        let acks = LEN / u64::from(stack.data_mss()) / 2;
        let last = trace.last().expect("something was sent");
        let round_trips = last.0.as_millis_f64() / 40.0;
        if is_each {
            assert!(
                (acks..acks + acks / 10).contains(&counts.round_trips),
                "{acks} ACKs, {counts:?}: {what}"
            );
        } else {
            assert!(counts.round_trips as f64 <= round_trips + 1.0, "{round_trips}, {counts:?}: {what}");
            assert!(counts.round_trips as f64 >= 0.4 * round_trips, "{round_trips}, {counts:?}: {what}");
        }
        let round_trip = last.1.round_trip.as_millis_f64();
        assert!((40.0..48.0).contains(&round_trip), "{round_trip} ms: {what}");
    }
}

/// 100 flows over 10 Mb/s: each has a window of few segments, and many losses only the timer can
/// tell.
#[test]
fn hundred_flows_keep_a_slow_link_busy() {
    let rto = Rto {
        estimator: Estimator::Rfc,
        least_variation: Nanos::ZERO,
        slop: Nanos::ZERO,
        least: Nanos::from_secs(1),
        most: Nanos::from_secs(60),
    };
    let stack = Stack { rto, delayed_ack: Nanos::from_millis(200), ..BULK };
    let mut world = World::new(stack, path(10_000_000, 20, 100));
    for n in 0..100 {
        world.add(control(Algorithm::NewReno), [Pattern(u64::MAX), NOTHING], Nanos::from_millis(n * 10));
    }
    let start = std::time::Instant::now();
    world.run(Nanos::from_secs(100));
    let heard: Vec<u64> = world.flows.iter().map(|flow| flow.heard[0]).collect();
    let sum: u64 = heard.iter().sum();
    let utilisation = sum as f64 * 8.0 * 1.04 / 100.0 / 10_000_000.0;
    let squares: f64 = heard.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
    let fairness = (sum as f64).powi(2) / (100.0 * squares);
    let timeouts: u64 = world.flows.iter().map(|flow| flow.path().counts.timeouts).sum();
    let resent: u64 = world.flows.iter().map(|flow| flow.path().counts.resent).sum();
    println!(
        "utilisation {utilisation:.3}, Jain {fairness:.3}, {timeouts} timeouts, {resent} sent again, {} dropped, {:?}",
        world.path.dropped,
        start.elapsed()
    );
    assert!(utilisation > 0.95 && utilisation <= 1.0, "{utilisation}");
    assert!(fairness > 0.8, "{fairness}");
    assert!(resent >= world.path.dropped - 1000, "{resent} of {}", world.path.dropped);
}

/// The stream is longer than there are sequence numbers.
#[test]
fn stream_of_more_than_four_gibibytes_arrives() {
    let stack = Stack { mss: 60_000, receive_buffer: Some(16 << 20), window_scale: Some(9), ..BULK };
    let mut link = path(100_000_000_000, 1, 200);
    link.doomed = vec![100, 50_000, 71_580, 71_585, 80_000];
    let mut world = World::new(stack, link);
    let len = (1 << 32) + 700_000_001;
    world.add(control(Algorithm::Cubic), [Pattern(len), NOTHING], Nanos::ZERO);
    world.run(Nanos::from_secs(1000));
    assert_eq!(world.flows[0].heard[0], len);
    assert!(world.is_over());
}

/// What a peer takes bounds what is out, however large the congestion window is; that is looked at
/// after each event.
#[test]
fn peer_with_a_small_window_is_never_sent_more() {
    for window in [500, 1500, 5000] {
        let stack = Stack { window, window_scale: None, receive_buffer: None, ..BULK };
        let mut world = World::new(stack, path(10_000_000, 5, 50));
        world.add(control(Algorithm::Cubic), [Pattern(50_000), NOTHING], Nanos::ZERO);
        world.run(Nanos::from_secs(100));
        assert_eq!(world.flows[0].heard[0], 50_000, "window {window}");
        assert!(world.is_over(), "window {window}");
    }
}
