//! CAKE's flow queues, by hand. At 10 Mbit/s a turn is 305 bytes, the target 5 ms and the interval
//! 100 ms.

use crate::common::{Sample, dequeue, drain, enqueue, queue};
use aqm::{DropReason, Queue};
use units::Nanos;

const T: Nanos = Nanos::ZERO;

fn of_flow(flow: u32, id: u64) -> Sample {
    Sample { flow, ..Sample::new(id, 1000) }
}

fn take_all(queue: &mut Queue<Sample>, packets: impl IntoIterator<Item = Sample>) {
    for packet in packets {
        assert_eq!(enqueue(queue, T, packet), [], "there is room");
    }
}

#[test]
fn flow_that_begins_goes_before_those_that_owe_bytes() {
    let mut queue = queue("cake");
    take_all(&mut queue, (0..4).map(|id| of_flow(1, id)));
    assert_eq!(dequeue(&mut queue, T).0.map(|packet| packet.id), Some(0));
    take_all(&mut queue, [of_flow(2, 10), of_flow(2, 11)]);
    // Packets of 1000 bytes take four turns of 305 each.
    assert_eq!(drain(&mut queue, T), [10, 1, 11, 2, 3]);
}

#[test]
fn turn_is_of_the_rate() {
    // 100 packets of 100 bytes beside as many of 1500: the same bytes of each, in turns of 1514 at
    // a gigabit and of 300 at a megabit.
    let small_before_first_large_is_over = |rate: &str| {
        let mut queue = queue(&format!("cake:rate={rate}"));
        take_all(&mut queue, (0..100).map(|id| Sample { bytes: 100, ..of_flow(1, id) }));
        take_all(&mut queue, (100..110).map(|id| Sample { bytes: 1500, ..of_flow(2, id) }));
        drain(&mut queue, T).iter().position(|id| *id == 100).expect("it is sent")
    };
    assert_eq!(small_before_first_large_is_over("1Gbit"), 16);
    assert_eq!(small_before_first_large_is_over("1Mbit"), 3);
}

#[test]
fn flows_of_one_set_have_queues_of_their_own() {
    let mut queue = queue("cake");
    // The same place for all, in a set of eight: the ninth shares it with the first.
    let flows = (0..9).map(|number| 5 + (number << 10));
    take_all(&mut queue, flows.clone().zip(0..).map(|(flow, id)| of_flow(flow, id)));
    take_all(&mut queue, flows.zip(10..).map(|(flow, id)| of_flow(flow, id)));
    assert_eq!(
        drain(&mut queue, T),
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 10, 18],
        "0, 8, 10 and 18 are in one queue"
    );
}

#[test]
fn longest_queue_loses_its_head_when_memory_runs_out() {
    let mut queue = queue("cake:memory=4kB");
    take_all(&mut queue, [of_flow(1, 0), of_flow(2, 1), of_flow(1, 2), of_flow(3, 3)]);
    assert_eq!(enqueue(&mut queue, T, of_flow(3, 4)), [(of_flow(1, 0), DropReason::Overlimit)]);
    assert_eq!(drain(&mut queue, T), [2, 1, 3, 4]);
}

/// Two flows send at a quarter and at the whole of the link's rate of 10 Mbit/s for 30 s: packets
/// sent and dropped of each, and the longest sojourn in the last second.
fn run(text: &str) -> ([u32; 2], [u32; 2], Nanos) {
    let mut queue = queue(text);
    let (mut sent, mut drops, mut longest) = ([0; 2], [0; 2], T);
    // A millisecond sends a packet of 1250 bytes. The id of a packet is its moment.
    for ms in 0..30_000_u64 {
        let now = Nanos::from_millis(ms);
        let flows: &[u32] = if ms % 4 == 0 { &[0, 1] } else { &[1] };
        for flow in flows {
            let packet = Sample { flow: *flow, ..Sample::new(ms, 1250) };
            assert_eq!(enqueue(&mut queue, now, packet), []);
        }
        let (packet, dropped) = dequeue(&mut queue, now);
        for (packet, reason) in dropped {
            assert_eq!(reason, DropReason::Codel);
            drops[packet.flow as usize] += 1;
        }
        let packet = packet.expect("there is always one");
        sent[packet.flow as usize] += 1;
        if ms >= 29_000 {
            longest = longest.max(now - Nanos::from_millis(packet.id));
        }
    }
    (sent, drops, longest)
}

#[test]
fn cobalt_drops_of_the_flow_that_sends_too_much() {
    let (sent, drops, longest) = run("cake");
    assert_eq!((sent[0], drops[0]), (7500, 0));
    assert!((6500..7500).contains(&drops[1]), "{drops:?}");
    assert!(longest <= Nanos::from_millis(10), "{longest}, with a target of 5 ms");
}
