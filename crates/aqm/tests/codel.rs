//! CoDel and FQ-CoDel against their RFCs.

use crate::common::{Sample, dequeue, enqueue, queue};
use aqm::{Aqm, DropReason, Queue};
use units::Nanos;

const STEP: Nanos = Nanos::from_micros(100);

/// Dequeues every 100 us from `from` to `until`, and gives the times of drops.
fn drop_times(queue: &mut Queue<Sample>, from: Nanos, until: Nanos) -> Vec<Nanos> {
    let (mut times, mut now) = (Vec::new(), from);
    while now < until {
        let (_, drops) = dequeue(queue, now);
        assert!(drops.iter().all(|(_, reason)| *reason == DropReason::Codel));
        times.extend(drops.iter().map(|_| now));
        now += STEP;
    }
    times
}

fn filled(text: &str, packets: u64) -> Queue<Sample> {
    let mut queue = queue(text);
    for id in 0..packets {
        assert!(enqueue(&mut queue, Nanos::ZERO, Sample::new(id, 1000)).is_empty());
    }
    queue
}

#[test]
fn codel_drops_follow_the_interval_over_the_square_root_of_their_number() {
    let mut queue = filled("codel:limit=100000", 100_000);
    let times = drop_times(&mut queue, Nanos::ZERO, Nanos::from_secs(3));
    // All wait longer than 5 ms from 5 ms on, and have done so for an interval at 105 ms; the
    // second drop follows an interval after it.
    let mut wanted = 0.105;
    for (number, time) in times.iter().enumerate() {
        let late = time.as_secs_f64() - wanted;
        assert!((-1e-6..1.5e-4).contains(&late), "drop {number} at {time}, not {wanted}");
        wanted += 0.1 / ((number + 1) as f64).sqrt();
    }
    assert!(times.len() > 190, "{}", times.len());
}

#[test]
fn codel_drops_nothing_that_waits_less_than_the_target() {
    let mut queue = queue("codel");
    for id in 0..100_000 {
        let now = Nanos::from_micros(100 * id);
        enqueue(&mut queue, now, Sample::new(id, 1000));
        // 49 wait, so that each does for 4.9 ms.
        if id >= 49 {
            let (packet, drops) = dequeue(&mut queue, now);
            assert!(packet.is_some() && drops.is_empty());
        }
    }
}

#[test]
fn codel_drops_nothing_while_one_packet_at_most_is_left() {
    let mut queue = queue("codel:mtu=1514");
    for id in 0..1000 {
        let now = Nanos::from_millis(20 * id);
        enqueue(&mut queue, now, Sample::new(id, 1514));
        if id > 0 {
            // Each has waited for 20 ms, and leaves one behind.
            assert!(dequeue(&mut queue, now).1.is_empty(), "packet {id}");
        }
    }
}

#[test]
fn codel_comes_back_with_about_the_rate_it_had() {
    let mut queue = filled("codel:limit=100000", 40_000);
    let first = drop_times(&mut queue, Nanos::ZERO, Nanos::from_secs(2));
    while dequeue(&mut queue, Nanos::from_secs(2)).0.is_some() {}
    let refill = |queue: &mut Queue<Sample>, now| {
        for id in 0..20_000 {
            enqueue(queue, now, Sample::new(id, 1000));
        }
    };
    let again = Nanos::from_millis(2100);
    refill(&mut queue, again);
    let soon = drop_times(&mut queue, again, again + Nanos::from_millis(200));
    assert!(first.len() > 80 && (9..=11).contains(&soon.len()), "{} then {}", first.len(), soon.len());

    let mut queue = filled("codel:limit=100000", 40_000);
    drop_times(&mut queue, Nanos::ZERO, Nanos::from_secs(2));
    while dequeue(&mut queue, Nanos::from_secs(2)).0.is_some() {}
    // More than 16 intervals later it begins anew.
    let later = Nanos::from_secs(4);
    refill(&mut queue, later);
    let late = drop_times(&mut queue, later, later + Nanos::from_millis(200));
    assert_eq!(late.len(), 1);
}

#[test]
fn codel_drops_several_before_one_that_goes() {
    let mut queue = filled("codel:limit=100000", 1000);
    dequeue(&mut queue, Nanos::from_millis(5));
    dequeue(&mut queue, Nanos::from_millis(105));
    // 105 + 100 + 70.7 + 57.7 ms: three that are due by then.
    let (packet, drops) = dequeue(&mut queue, Nanos::from_millis(340));
    assert_eq!((drops.len(), packet.map(|packet| packet.id)), (3, Some(6)));
}

fn of_flow(flow: u32, id: u64, bytes: u32) -> Sample {
    Sample { flow, ..Sample::new(id, bytes) }
}

/// Another queue of FQ-CoDel for each number, of 1024.
fn flow(number: u32) -> u32 {
    number << 22
}

#[test]
fn fq_codel_serves_flows_in_turns_and_new_ones_first() {
    let mut queue = queue("fq-codel:quantum=1000");
    let mut number = 0;
    let mut put = |queue: &mut Queue<Sample>, of| {
        number += 1;
        enqueue(queue, Nanos::ZERO, of_flow(flow(of), number, 1000));
    };
    for _ in 0..3 {
        put(&mut queue, 1);
        put(&mut queue, 2);
    }
    let next = |queue: &mut Queue<Sample>| dequeue(queue, Nanos::ZERO).0.map(|packet| packet.flow >> 22);
    assert_eq!([next(&mut queue), next(&mut queue), next(&mut queue)], [Some(1), Some(2), Some(1)]);
    put(&mut queue, 3);
    assert_eq!(next(&mut queue), Some(3), "a new flow goes before old ones");
    put(&mut queue, 3);
    let rest = [next(&mut queue), next(&mut queue), next(&mut queue), next(&mut queue)];
    assert_eq!(rest, [Some(2), Some(3), Some(1), Some(2)], "but has its turn like others then");
    assert_eq!(next(&mut queue), None);
}

#[test]
fn fq_codel_serves_bytes_not_packets() {
    let mut queue = queue("fq-codel:limit=20000");
    for id in 0..1000 {
        enqueue(&mut queue, Nanos::ZERO, of_flow(flow(1), id, 1500));
        for part in 0..15 {
            enqueue(&mut queue, Nanos::ZERO, of_flow(flow(2), id * 15 + part, 100));
        }
    }
    let mut bytes = [0_u32; 3];
    for _ in 0..3200 {
        let packet = dequeue(&mut queue, Nanos::ZERO).0.expect("16000 were put in");
        bytes[packet.flow as usize >> 22] += packet.bytes;
    }
    assert!(bytes[1].abs_diff(bytes[2]) <= 2 * 1514, "{bytes:?}");
}

#[test]
fn fq_codel_keeps_a_bulk_flow_from_a_thin_one() {
    // 10 Mbit/s: 1000 bytes in 0.8 ms. A flow comes at three times that, another with a packet of
    // 100 bytes every 10 ms.
    let mut queue = queue("fq-codel:limit=1000");
    let (mut bulk, mut thin_sent, mut thin_got, mut longest) = (0, 0_u64, 0_u64, Nanos::ZERO);
    let mut came = std::collections::HashMap::new();
    for step in 0..100_000_u64 {
        let now = Nanos(step * 800_000);
        for _ in 0..3 {
            bulk += enqueue(&mut queue, now, of_flow(flow(1), u64::MAX, 1000)).len();
        }
        if step % 12 == 0 {
            thin_sent += 1;
            came.insert(step, now);
            let drops = enqueue(&mut queue, now, of_flow(flow(2), step, 100));
            assert!(drops.iter().all(|(packet, _)| packet.flow == flow(1)));
        }
        let (packet, drops) = dequeue(&mut queue, now);
        bulk += drops.len();
        assert!(drops.iter().all(|(packet, _)| packet.flow == flow(1)));
        if let Some(packet) = packet.filter(|packet| packet.flow == flow(2)) {
            thin_got += 1;
            longest = longest.max(now.since(came[&packet.id]));
        }
    }
    assert!(thin_got + 1 >= thin_sent, "{thin_got} of {thin_sent}");
    assert!(longest <= Nanos::from_millis(2), "a thin packet waits for two others at most, not {longest}");
    assert!(bulk > 190_000, "{bulk}");
}

#[test]
fn fq_codel_drops_half_of_the_longest_queue_but_no_more_than_a_batch() {
    for (limit, batch, wanted) in [(40, 64, 20), (1000, 64, 64), (1000, 1, 1), (40, 7, 7)] {
        let mut queue = queue(&format!("fq-codel:limit={limit},batch={batch}"));
        enqueue(&mut queue, Nanos::ZERO, of_flow(flow(2), 0, 100));
        let mut drops = Vec::new();
        for id in 1..=limit {
            drops.extend(enqueue(&mut queue, Nanos::ZERO, of_flow(flow(1), id, 1000)));
        }
        let ids: Vec<_> = drops.iter().map(|(packet, _)| packet.id).collect();
        assert_eq!(ids, (1..=wanted).collect::<Vec<_>>(), "from the head of the longest");
        assert!(drops.iter().all(|(_, reason)| *reason == DropReason::Overlimit));
        assert_eq!(u64::from(queue.qlen_pkts()), limit + 1 - wanted);
    }
}

#[test]
fn fq_codel_memory_is_bounded_in_bytes_too() {
    let mut queue = queue("fq-codel:memory=10kB,batch=1");
    for id in 0..1000 {
        enqueue(
            &mut queue,
            Nanos::ZERO,
            of_flow((id as u32).wrapping_mul(7_654_321), id, 40 + (id as u32 * 97) % 1460),
        );
        assert!(queue.qlen_bytes() <= 10_000);
    }
}
