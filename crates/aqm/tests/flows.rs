//! Linux's fq and sfq, by hand. Sizes are chosen so that turns are easy to count.

use crate::common::{Sample, dequeue, drain, enqueue, queue};
use aqm::{DropReason, Queue};
use units::Nanos;

const T: Nanos = Nanos::ZERO;

fn of_flow(flow: u32, id: u64) -> Sample {
    Sample { flow: flow << 24, ..Sample::new(id, 1000) }
}

fn take_all(queue: &mut Queue<Sample>, packets: impl IntoIterator<Item = Sample>) {
    for packet in packets {
        assert_eq!(enqueue(queue, T, packet), [], "there is room");
    }
}

/// Packets of other flows, so that what comes then does not take the fast path of fq.
fn busy(queue: &mut Queue<Sample>) {
    take_all(queue, (0..8).map(|id| of_flow(200, 1000 + id)));
}

#[test]
fn fq_sends_what_finds_it_empty_as_it_came() {
    let mut queue = queue("fq:initial_quantum=1kB,quantum=1kB");
    // Eight packets go ahead uncharged; the others are of two flows with a packet for each turn.
    take_all(&mut queue, (0..12).map(|id| of_flow((id / 2 % 2) as u32, id)));
    assert_eq!(drain(&mut queue, T)[..8], [0, 1, 2, 3, 4, 5, 6, 7]);
    take_all(&mut queue, [of_flow(1, 20), of_flow(0, 21), of_flow(1, 22)]);
    assert_eq!(drain(&mut queue, T), [20, 21, 22], "nothing waits any more");
}

#[test]
fn fq_gives_a_flow_its_first_turn_before_all_old_ones() {
    let mut queue = queue("fq:initial_quantum=2kB,quantum=1kB");
    busy(&mut queue);
    take_all(&mut queue, (0..5).map(|id| of_flow(1, id)).chain((5..7).map(|id| of_flow(2, id))));
    let mut order = Vec::new();
    for _ in 0..8 + 3 {
        order.extend(dequeue(&mut queue, T).0.map(|packet| packet.id));
    }
    assert_eq!(order[8..], [0, 1, 5], "the first turn is of two packets, and then it is the other's");
    take_all(&mut queue, [of_flow(3, 10)]);
    // 2 has a packet of its first turn left, 3 begins behind it, and 1 goes on when both are
    // through.
    assert_eq!(drain(&mut queue, T), [6, 10, 2, 3, 4]);
}

#[test]
fn fq_lets_a_large_packet_owe_bytes() {
    let mut queue = queue("fq:initial_quantum=300,quantum=300");
    busy(&mut queue);
    let small = |id| Sample { bytes: 100, ..of_flow(2, id) };
    take_all(&mut queue, [of_flow(1, 0), of_flow(1, 1)].into_iter().chain((2..20).map(small)));
    let order = drain(&mut queue, T);
    let second = order.iter().position(|id| *id == 1).expect("it is sent");
    // It owes 700 bytes, and has a credit after three turns of 300. Three small packets pass in
    // each of the other's.
    assert_eq!(second - 8, 1 + 3 * 3, "{order:?}");
}

#[test]
fn fq_credit_of_a_flow_is_kept_unless_it_was_away_long_enough() {
    let sent_at_once = |pause: Nanos| {
        let mut queue = queue("fq:initial_quantum=1kB,quantum=3kB,refill_delay=40ms");
        busy(&mut queue);
        // Of 4000 bytes that the flow may send it has 500 left when it loses its turn.
        take_all(&mut queue, [of_flow(1, 0), Sample { bytes: 2500, ..of_flow(1, 1) }]);
        take_all(&mut queue, (2..20).map(|id| of_flow(2, id)));
        for _ in 0..8 + 2 + 3 {
            dequeue(&mut queue, T);
        }
        let later = T + pause;
        for id in 20..25 {
            enqueue(&mut queue, later, of_flow(1, id));
        }
        std::iter::from_fn(|| dequeue(&mut queue, later).0).take_while(|packet| packet.id >= 20).count()
    };
    assert_eq!(sent_at_once(Nanos::from_millis(40)), 1);
    assert_eq!(sent_at_once(Nanos::from_millis(41)), 3, "a quantum");
}

#[test]
fn fq_bounds_each_flow_and_all() {
    let mut queue = queue("fq:limit=14,flow_limit=3");
    busy(&mut queue);
    take_all(&mut queue, (0..3).map(|id| of_flow(1, id)));
    assert_eq!(enqueue(&mut queue, T, of_flow(1, 3)), [(of_flow(1, 3), DropReason::FlowLimit)]);
    take_all(&mut queue, (4..7).map(|id| of_flow(2, id)));
    assert_eq!(enqueue(&mut queue, T, of_flow(3, 7)), [(of_flow(3, 7), DropReason::Tail)]);
}

/// Flows that fq remembers when packets of a thousand bytes came for 20 s, 10,000/s, so many of
/// each flow.
fn remembered(packets_of_a_flow: u64) -> usize {
    let mut queue = queue("fq:initial_quantum=1kB");
    for id in 0..200_000 {
        let now = Nanos::from_micros(100 * id);
        let flow = (id / packets_of_a_flow) as u32;
        enqueue(&mut queue, now, Sample { flow, ..Sample::new(id, 1000) });
        // So that hardly any finds the queue empty.
        if id >= 20 {
            dequeue(&mut queue, now);
        }
    }
    let Queue::Fq(fq) = &queue else { panic!("it is fq") };
    fq.remembered()
}

#[test]
fn fq_forgets_flows_that_are_gone() {
    let flows = remembered(2);
    assert!((15_000..15_100).contains(&flows), "{flows} flows of the last 3 s at 5000/s");
    let flows = remembered(1);
    assert!((65_536..65_600).contains(&flows), "{flows} of 200,000 that had but a first turn");
}

#[test]
fn sfq_takes_turns_and_lets_a_new_flow_wait_for_the_others() {
    let mut queue = queue("sfq:quantum=1000");
    take_all(&mut queue, (0..4).map(|id| of_flow(1, id)));
    take_all(&mut queue, (4..6).map(|id| of_flow(2, id)));
    assert_eq!(dequeue(&mut queue, T).0.map(|packet| packet.id), Some(0));
    take_all(&mut queue, [of_flow(3, 6)]);
    assert_eq!(drain(&mut queue, T), [4, 6, 1, 5, 2, 3]);
}

#[test]
fn full_sfq_drops_the_last_packet_of_the_longest_queue() {
    let mut queue = queue("sfq:limit=5");
    take_all(&mut queue, [of_flow(1, 0), of_flow(1, 1), of_flow(2, 2), of_flow(1, 3), of_flow(2, 4)]);
    assert_eq!(enqueue(&mut queue, T, of_flow(3, 5)), [(of_flow(1, 3), DropReason::Overlimit)]);
    // Flows 1 and 2 have two packets each; 1 came to two when it lost one, which is later.
    assert_eq!(enqueue(&mut queue, T, of_flow(3, 6)), [(of_flow(3, 6), DropReason::Tail)], "two, the last");
    assert_eq!(enqueue(&mut queue, T, of_flow(4, 7)), [(of_flow(1, 1), DropReason::Overlimit)]);
    assert_eq!(drain(&mut queue, T), [0, 2, 4, 5, 7]);
}

#[test]
fn full_sfq_of_single_packets_drops_the_one_that_is_next() {
    let mut queue = queue("sfq:limit=3");
    take_all(&mut queue, (0..3).map(|id| of_flow(id as u32, id)));
    assert_eq!(enqueue(&mut queue, T, of_flow(9, 9)), [(of_flow(0, 0), DropReason::Overlimit)]);
    assert_eq!(drain(&mut queue, T), [1, 2, 9]);
}

#[test]
fn sfq_bounds_the_depth_and_the_number_of_queues() {
    let mut queue = queue("sfq:depth=2,flows=2");
    take_all(&mut queue, [of_flow(1, 0), of_flow(1, 1), of_flow(2, 2)]);
    assert_eq!(enqueue(&mut queue, T, of_flow(1, 3)), [(of_flow(1, 3), DropReason::FlowLimit)]);
    assert_eq!(enqueue(&mut queue, T, of_flow(3, 4)), [(of_flow(3, 4), DropReason::Tail)]);
    assert_eq!(drain(&mut queue, T).len(), 3);
    take_all(&mut queue, [of_flow(3, 5)]);
}
