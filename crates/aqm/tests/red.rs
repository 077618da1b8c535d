//! RED against what the papers say, by hand and in floating point.

use crate::common::{Sample, dequeue, enqueue, reference};
use aqm::{Amount, Aqm, Config, DropReason, RandomNumbers, Red, RedConfig, base_probability, probability};
use units::Nanos;

const PROBABILITY_ERROR: f64 = 1e-9;

fn red(text: &str) -> RedConfig {
    match crate::common::config(text) {
        Config::Red(config) => config,
        other => panic!("{other} is not RED"),
    }
}

fn assert_near(value: f64, wanted: f64, error: f64, what: &str) {
    assert!((value - wanted).abs() <= error, "{what}: {value} is not {wanted}");
}

#[test]
fn average_moves_by_its_weight_from_the_length_that_an_arrival_finds() {
    let config = red("red:w=0.25");
    let mut queue = Red::new(&config, 1).expect("it was parsed");
    let mut average = 0.0;
    for length in 0..20_u32 {
        assert!(enqueue(&mut queue, Nanos::ZERO, Sample::new(0, 1000)).is_empty());
        average += 0.25 * (f64::from(length) - average);
        assert_near(queue.average(), average, 1e-8, "a quarter is exact");
    }
}

#[test]
fn average_of_an_idle_queue_falls_as_if_packets_had_found_it_empty() {
    let config = red("red:w=0.25,mean=1000,rate=10Mbit");
    let mut queue = Red::new(&config, 1).expect("it was parsed");
    for _ in 0..10 {
        enqueue(&mut queue, Nanos::ZERO, Sample::new(0, 1000));
    }
    let full = queue.average();
    let empty_at = Nanos::from_millis(1);
    crate::common::drain(&mut queue, empty_at);
    // A packet takes 0.8 ms; this is 10 of them and almost an 11th.
    enqueue(&mut queue, empty_at + Nanos::from_micros(8799), Sample::new(0, 1000));
    assert_near(queue.average(), full * 0.75_f64.powi(10), 1e-8, "ten empty slots");

    let mut queue = Red::new(&config, 1).expect("it was parsed");
    for _ in 0..10 {
        enqueue(&mut queue, Nanos::ZERO, Sample::new(0, 1000));
    }
    crate::common::drain(&mut queue, empty_at);
    enqueue(&mut queue, Nanos::from_secs(1_000_000_000), Sample::new(0, 1000));
    assert_near(queue.average(), 0.0, 0.0, "thirty years later");
}

#[test]
fn average_is_that_of_floating_point() {
    for weight in ["0.002", "0.001953125", "0.5", "1", "0.00001"] {
        let config = red(&format!("red:w={weight},limit=1000,min=200,max=600"));
        // Half a unit of the last place at each arrival, as the weight forgets it; the power of an
        // idle time, to a few units, of some hundred packets.
        let error = (-33_f64).exp2() / config.weight + 1e-6;
        let mut queue = Red::new(&config, 7).expect("it was parsed");
        let mut reference = reference::Red::new(&config, 7);
        let mut steps = RandomNumbers::new(3);
        let mut now = Nanos::ZERO;
        for step in 0..200_000 {
            now += Nanos(u64::from(steps.next_u32() % 1_600_000));
            // Longer and shorter by turns, and now and then idle for a while.
            let arrivals = if step / 500 % 2 == 0 { 3 } else { 1 };
            for _ in 0..arrivals {
                let random = reference.next_random();
                reference.arrival(queue.qlen_pkts(), 1000, now, random);
                enqueue(&mut queue, now, Sample::new(0, 1000));
                assert_near(queue.average(), reference.average, error, weight);
            }
            for _ in 0..2 {
                if dequeue(&mut queue, now).0.is_some() && queue.is_empty() {
                    reference.left_empty(now);
                }
            }
        }
    }
}

#[test]
fn probability_rises_from_min_to_max_and_gently_to_one() {
    let gentle = red("red");
    for (average, wanted) in [
        (0.0, 0.0),
        (29.99, 0.0),
        (30.0, 0.0),
        (60.0, 0.05),
        (90.0, 0.1),
        (135.0, 0.55),
        (180.0, 1.0),
        (1e6, 1.0),
    ] {
        assert_near(base_probability(&gentle, average), wanted, PROBABILITY_ERROR, "gentle");
    }
    let abrupt = red("red:gentle=false");
    assert_near(base_probability(&abrupt, 89.999_999_9), 0.1, 1e-8, "below max");
    assert_near(base_probability(&abrupt, 90.0), 1.0, 0.0, "at max");
    let bytes = red("red:min=30kB,max=90kB,limit=180kB");
    assert_near(base_probability(&bytes, 60_000.0), 0.05, PROBABILITY_ERROR, "in bytes");
}

#[test]
fn probability_grows_with_the_packets_since_the_last_drop() {
    let config = red("red");
    for (count, wanted) in [(0, 0.05), (1, 0.05 / 0.95), (10, 0.1), (19, 1.0), (20, 1.0), (u32::MAX, 1.0)] {
        assert_near(probability(&config, 0.05, count, 1), wanted, 1e-6, "p / (1 - count p)");
    }
    let waits = red("red:wait");
    for (count, wanted) in [(0, 0.0), (19, 0.0), (21, 0.05 / 0.95), (30, 0.1), (39, 1.0), (41, 1.0)] {
        assert_near(probability(&waits, 0.05, count, 1), wanted, 1e-6, "p / (2 - count p)");
    }
    let bytes = red("red:min=30kB,max=90kB,limit=180kB,mean=1000");
    assert_near(probability(&bytes, 0.05, 10_000, 500), 0.05, 1e-7, "half a mean packet");
    assert_near(probability(&bytes, 0.05, 10_000, 1500), 0.15, 1e-7, "one and a half");
    assert_near(probability(&config, 1.0, 0, 1), 1.0, 0.0, "forced");
    assert_near(probability(&config, 0.0, u32::MAX, 1), 0.0, 0.0, "at the minimum");
}

/// The replay: whoever is handed the same packets, times and random numbers decides the same.
#[test]
fn decisions_are_those_of_floating_point() {
    let texts = [
        "red",
        "red:gentle=false",
        "red:wait",
        "red:w=0.001953125,min=5,max=15,limit=40,max_p=0.02",
        "red:min=30kB,max=90kB,limit=180kB,mean=600",
        "red:min=30kB,max=90kB,limit=180,wait,mean=600",
        "red:max_p=1,w=1",
        "red:min=2,max=10,limit=40,max_p=0.5,spare_one",
        "red:min=2kB,max=10kB,limit=40kB,max_p=0.5,mean=600,spare_one",
    ];
    for text in texts {
        let config = red(text);
        let mut queue = Red::new(&config, 11).expect("it was parsed");
        let mut reference = reference::Red::new(&config, 11);
        let mut traffic = RandomNumbers::new(5);
        let (mut now, mut drops) = (Nanos::ZERO, 0_u32);
        for step in 0..300_000_u64 {
            // From half the link's rate to twice of it and back.
            let load = 0.5 + 1.5 * ((step as f64 / 20_000.0).sin().abs());
            now += Nanos((f64::from(traffic.next_u32() % 1_600_000) / load) as u64);
            let bytes = 40 + traffic.next_u32() % 1460;
            let qlen = match config.min {
                Amount::Packets(_) => queue.qlen_pkts(),
                Amount::Bytes(_) => queue.qlen_bytes() as u32,
            };
            let random = reference.next_random();
            let wanted = reference.arrival(qlen, bytes, now, random);
            let dropped = enqueue(&mut queue, now, Sample::new(step, bytes));
            let is_early = dropped.first().is_some_and(|(_, reason)| *reason != DropReason::Tail);
            assert_eq!(is_early, wanted, "{text}: packet {step} at an average of {}", queue.average());
            drops += u32::from(is_early);
            if traffic.next_u32() % 100 < 80 && dequeue(&mut queue, now).0.is_some() && queue.is_empty() {
                reference.left_empty(now);
            }
        }
        assert!(drops > 1000, "{text}: {drops} drops show little");
    }
}

/// Packets between drops, while 60 packets wait.
fn gaps(text: &str) -> Vec<u32> {
    let mut queue = Red::new(&red(text), 5).expect("it was parsed");
    let (mut gaps, mut gap) = (Vec::new(), 0);
    for step in 0..1_200_000_u32 {
        gap += 1;
        let is_dropped = !enqueue(&mut queue, Nanos::ZERO, Sample::new(0, 1000)).is_empty();
        if queue.qlen_pkts() > 60 {
            dequeue(&mut queue, Nanos::ZERO);
        }
        if is_dropped {
            if step > 20_000 {
                gaps.push(gap);
            }
            gap = 0;
        }
    }
    gaps
}

#[test]
fn gaps_between_drops_are_uniform() {
    // p_b is 0.05 at 60 packets, so that [FJ93] has one drop among the next 20 packets at the
    // latest.
    let count = |gaps: &[u32], gap| gaps.iter().filter(|other| **other == gap).count() as f64;
    let all = gaps("red");
    for gap in 1..=19 {
        assert_near(count(&all, gap) / all.len() as f64, 1.0 / 19.0, 0.003, "each as often");
    }
    assert!(all.iter().all(|gap| *gap <= 20), "{:?}", all.iter().max());
    let waiting = gaps("red:wait");
    assert!(waiting.iter().all(|gap| (20..=40).contains(gap)), "not within 1/p");
    for gap in 21..=39 {
        assert_near(count(&waiting, gap) / waiting.len() as f64, 1.0 / 19.0, 0.006, "each as often");
    }
}

/// After a burst the average is still at its maximum, and packets come one by one to a queue of so
/// many: how many of 100 are dropped.
fn drops_after_a_burst(text: &str, qlen_pkts: u32) -> usize {
    let mut queue = Red::new(&red(text), 1).expect("it was parsed");
    for id in 0..6000 {
        enqueue(&mut queue, Nanos::ZERO, Sample::new(id, 1000));
    }
    while queue.qlen_pkts() > qlen_pkts {
        dequeue(&mut queue, Nanos::ZERO);
    }
    assert!(queue.average() > 30.0, "{text}: an average of {}", queue.average());
    let mut drops = 0;
    for id in 0..100 {
        drops += enqueue(&mut queue, Nanos::ZERO, Sample::new(id, 1000)).len();
        while queue.qlen_pkts() > qlen_pkts {
            dequeue(&mut queue, Nanos::ZERO);
        }
    }
    drops
}

#[test]
fn who_finds_one_packet_at_most_is_spared_where_that_is_asked_for_only() {
    for (qlen_pkts, is_spared) in [(0, true), (1, true), (2, false)] {
        let common = "red:limit=180,min=5,max=15,w=0.0005,gentle=false";
        assert!(drops_after_a_burst(common, qlen_pkts) > 50, "[FJ93] drops, whatever waits");
        let drops = drops_after_a_burst(&format!("{common},spare_one"), qlen_pkts);
        assert_eq!(drops == 0, is_spared, "{drops} drops with {qlen_pkts} waiting");
    }
}

#[test]
fn full_queue_drops_what_red_takes() {
    let mut queue = Red::new(&red("red:limit=4,min=1,max=4,w=0.0001"), 1).expect("it was parsed");
    for id in 0..4 {
        assert!(enqueue(&mut queue, Nanos::ZERO, Sample::new(id, 1000)).is_empty());
    }
    let last = Sample::new(4, 1000);
    assert_eq!(enqueue(&mut queue, Nanos::ZERO, last), [(last, DropReason::Tail)]);
}

#[test]
fn average_at_its_maximum_drops_all() {
    let mut queue = Red::new(&red("red:limit=4,min=1,max=2,w=1,gentle=false"), 1).expect("it was parsed");
    let reasons: Vec<_> = (0..9)
        .flat_map(|id| enqueue(&mut queue, Nanos::ZERO, Sample::new(id, 1000)))
        .map(|(_, reason)| reason)
        .collect();
    assert_eq!(reasons.last(), Some(&DropReason::Forced));
    assert!(!reasons.contains(&DropReason::Tail) && queue.qlen_pkts() == 2);
}
