//! Drop-tail, CHOKe and priority bands, by hand.

use crate::common::{Sample, dequeue, drain, enqueue, queue};
use aqm::{Aqm, DropReason, Queue, RandomNumbers};
use units::Nanos;

const T: Nanos = Nanos::ZERO;

#[test]
fn droptail_drops_what_finds_it_full() {
    let mut queue = queue("droptail:limit=3");
    for id in 0..3 {
        assert!(enqueue(&mut queue, T, Sample::new(id, 1000)).is_empty());
    }
    assert_eq!(enqueue(&mut queue, T, Sample::syn(3)), [(Sample::syn(3), DropReason::Tail)]);
    assert_eq!(drain(&mut queue, T), [0, 1, 2]);
}

#[test]
fn droptail_in_bytes_takes_what_still_fits() {
    let mut queue = queue("droptail:limit=2kB");
    assert!(enqueue(&mut queue, T, Sample::new(0, 1500)).is_empty());
    assert_eq!(enqueue(&mut queue, T, Sample::new(1, 501)).len(), 1);
    assert!(enqueue(&mut queue, T, Sample::new(2, 500)).is_empty());
    assert_eq!((queue.qlen_pkts(), queue.qlen_bytes()), (2, 2000));
}

fn of_band(band: u8, id: u64) -> Sample {
    Sample { band, ..Sample::new(id, 1000) }
}

#[test]
fn bands_go_in_their_order_and_packets_in_theirs() {
    let mut queue = queue("bands:bands=3");
    for (band, id) in [(2, 0), (1, 1), (0, 2), (1, 3), (0, 4), (200, 5)] {
        assert!(enqueue(&mut queue, T, of_band(band, id)).is_empty());
    }
    assert_eq!(drain(&mut queue, T), [2, 4, 1, 3, 0, 5], "a band that there is not is the last");
}

#[test]
fn full_bands_push_out_the_last_of_the_last() {
    let mut queue = queue("bands:bands=3,limit=4");
    for (band, id) in [(1, 0), (2, 1), (2, 2), (1, 3)] {
        assert!(enqueue(&mut queue, T, of_band(band, id)).is_empty());
    }
    let fate = |queue: &mut Queue<Sample>, band, id| {
        let drops = enqueue(queue, T, of_band(band, id));
        let [(packet, reason)] = drops[..] else { panic!("{drops:?}") };
        (packet.id, reason)
    };
    assert_eq!(fate(&mut queue, 2, 4), (4, DropReason::Tail), "nobody is behind it");
    assert_eq!(fate(&mut queue, 0, 5), (2, DropReason::PushedOut));
    assert_eq!(fate(&mut queue, 1, 6), (1, DropReason::PushedOut));
    assert_eq!(fate(&mut queue, 1, 7), (7, DropReason::Tail), "its own band is not behind it");
    assert_eq!(fate(&mut queue, 0, 8), (6, DropReason::PushedOut));
    assert_eq!(drain(&mut queue, T), [5, 8, 0, 3]);
}

#[test]
fn bands_without_push_out_drop_what_comes() {
    let mut queue = queue("bands:limit=1,push_out=false");
    assert!(enqueue(&mut queue, T, of_band(4, 0)).is_empty());
    assert_eq!(enqueue(&mut queue, T, of_band(0, 1)), [(of_band(0, 1), DropReason::Tail)]);
}

#[test]
fn bands_go_by_what_is_left_and_no_flow_overtakes_itself() {
    let mut queue = queue("bands:cutoffs=1kB+10kB");
    let of_flow = |flow, id, left| Sample { flow, left, ..Sample::new(id, 1000) };
    let unknown = |flow, id, attained| Sample { attained, ..of_flow(flow, id, None) };
    for packet in [
        of_flow(1, 0, Some(10_001)),
        of_flow(1, 1, Some(900)),
        of_flow(2, 2, Some(10_000)),
        unknown(3, 3, 1000),
        unknown(4, 4, 1001),
        of_flow(2, 5, Some(20_000)),
        of_flow(2, 6, Some(1)),
    ] {
        assert!(enqueue(&mut queue, T, packet).is_empty());
    }
    assert_eq!(drain(&mut queue, T), [3, 2, 4, 0, 1, 5, 6]);
    assert!(enqueue(&mut queue, T, of_flow(5, 7, Some(5000))).is_empty());
    assert!(enqueue(&mut queue, T, of_flow(1, 8, Some(900))).is_empty());
    assert_eq!(drain(&mut queue, T), [8, 7], "its packets are gone");
}

#[test]
fn choke_drops_both_packets_of_a_match() {
    // The average is the length: from one packet on packets are compared, and RED itself drops
    // hardly any.
    let mut queue = queue("choke:min=1,max=90,max_p=0.000001,w=1");
    let first = Sample { flow: 7, ..Sample::new(0, 1000) };
    let second = Sample { flow: 7, ..Sample::new(1, 1000) };
    let other = Sample { flow: 8, ..Sample::new(2, 1000) };
    assert!(enqueue(&mut queue, T, first).is_empty());
    assert_eq!(
        enqueue(&mut queue, T, second),
        [(second, DropReason::ChokeMatch), (first, DropReason::ChokeMatch)]
    );
    assert!(queue.is_empty());
    assert!(enqueue(&mut queue, T, first).is_empty());
    assert!(enqueue(&mut queue, T, other).is_empty(), "another flow");
    assert_eq!(drain(&mut queue, T), [0, 2]);
}

/// Packets that a flow at twice the link's rate, and ten others at a tenth of it each, get through.
fn shares(text: &str) -> (u32, u32) {
    let mut queue = queue(text);
    let mut random = RandomNumbers::new(1);
    let (mut fast, mut slow) = (0, 0);
    for step in 0..400_000_u64 {
        for flow in [0, 0, 1 + random.next_u32() % 10] {
            enqueue(&mut queue, Nanos(step * 800_000), Sample { flow, ..Sample::new(0, 1000) });
        }
        match dequeue(&mut queue, Nanos(step * 800_000)).0 {
            Some(Sample { flow: 0, .. }) => fast += 1,
            Some(_) => slow += 1,
            None => {}
        }
    }
    (fast, slow)
}

#[test]
fn choke_punishes_a_flow_that_does_not_respond() {
    let (fast, slow) = shares("red");
    let under_red = f64::from(fast) / f64::from(fast + slow);
    assert!((0.6..0.73).contains(&under_red), "two thirds of the packets, as of the load: {under_red}");
    let (fast, slow) = shares("choke");
    let under_choke = f64::from(fast) / f64::from(fast + slow);
    assert!(under_choke < 0.4, "{under_choke}");
}
