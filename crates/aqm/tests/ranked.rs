//! SRPT and LAS, by hand and against the rules written out plainly.

use crate::common::{Sample, config, drain, enqueue, queue};
use aqm::{Aqm, DropReason, Queue};
use proptest::prelude::*;
use units::Nanos;

const T: Nanos = Nanos::ZERO;

/// A packet of a flow with that much left.
fn left(flow: u32, id: u64, left: u64) -> Sample {
    Sample { flow, left: Some(left), ..Sample::new(id, 1500) }
}

/// A packet of a flow that has sent that much, and of which no more is known.
fn attained(flow: u32, id: u64, attained: u64) -> Sample {
    Sample { flow, attained, ..Sample::new(id, 1500) }
}

fn take_all(queue: &mut Queue<Sample>, packets: impl IntoIterator<Item = Sample>) {
    for packet in packets {
        assert_eq!(enqueue(queue, T, packet), [], "there is room");
    }
}

#[test]
fn srpt_sends_the_shortest_rest_first() {
    let mut queue = queue("srpt");
    take_all(&mut queue, [left(1, 0, 9000), left(2, 1, 3000), left(1, 2, 7500), left(3, 3, 5000)]);
    assert_eq!(drain(&mut queue, T), [1, 3, 0, 2]);
}

#[test]
fn las_sends_the_least_attained_first_whatever_is_left() {
    let mut queue = queue("las");
    let with_left = |packet, left| Sample { left: Some(left), ..packet };
    take_all(
        &mut queue,
        [with_left(attained(1, 0, 6000), 1), with_left(attained(2, 1, 0), 90_000), attained(3, 2, 1500)],
    );
    assert_eq!(drain(&mut queue, T), [1, 2, 0]);
}

#[test]
fn srpt_goes_by_what_was_attained_where_nothing_is_known_of_the_rest() {
    let mut queue = queue("srpt");
    take_all(&mut queue, [left(1, 0, 5000), attained(2, 1, 6000), attained(3, 2, 4000)]);
    assert_eq!(drain(&mut queue, T), [2, 0, 1]);
}

#[test]
fn packets_of_which_nothing_is_known_go_as_they_came() {
    for text in ["srpt", "las"] {
        let mut queue = queue(text);
        take_all(&mut queue, (0..50).map(|id| Sample { flow: id as u32 % 7, ..Sample::new(id, 40) }));
        assert_eq!(drain(&mut queue, T), Vec::from_iter(0..50), "{text}");
    }
}

#[test]
fn flow_that_is_promoted_does_not_overtake_itself() {
    let mut queue = queue("srpt");
    // The end of a long response, and then a short one on the same connection.
    take_all(&mut queue, [left(1, 0, 90_000), left(1, 1, 100), left(2, 2, 500)]);
    assert_eq!(drain(&mut queue, T), [2, 0, 1]);
}

#[test]
fn full_queue_pushes_out_the_last_packet_of_the_longest_rest() {
    let mut queue = queue("srpt:limit=3");
    take_all(&mut queue, [left(1, 0, 9000), left(1, 1, 7500), left(2, 2, 4000)]);
    assert_eq!(enqueue(&mut queue, T, left(3, 3, 8000)), [(left(1, 1, 7500), DropReason::PushedOut)]);
    assert_eq!(enqueue(&mut queue, T, left(4, 4, 9001)), [(left(4, 4, 9001), DropReason::Tail)]);
    assert_eq!(enqueue(&mut queue, T, left(1, 5, 10)), [(left(1, 5, 10), DropReason::Tail)], "its own flow");
    assert_eq!(enqueue(&mut queue, T, left(2, 6, 2500)), [(left(1, 0, 9000), DropReason::PushedOut)]);
    assert_eq!(drain(&mut queue, T), [2, 6, 3]);
}

#[test]
fn of_equal_rests_the_younger_is_pushed_out() {
    let mut queue = queue("srpt:limit=2");
    take_all(&mut queue, [left(1, 0, 500), left(2, 1, 500)]);
    assert_eq!(enqueue(&mut queue, T, left(3, 2, 500)), [(left(3, 2, 500), DropReason::Tail)]);
    assert_eq!(enqueue(&mut queue, T, left(1, 3, 500)), [(left(2, 1, 500), DropReason::PushedOut)]);
    assert_eq!(drain(&mut queue, T), [0, 3]);
}

#[test]
fn flow_has_no_more_than_its_limit() {
    let mut queue = queue("srpt:limit=5,flow_limit=2");
    take_all(&mut queue, [left(1, 0, 500), left(1, 1, 400)]);
    assert_eq!(enqueue(&mut queue, T, left(1, 2, 300)), [(left(1, 2, 300), DropReason::FlowLimit)]);
    take_all(&mut queue, [left(2, 3, 450)]);
    assert_eq!(drain(&mut queue, T), [3, 0, 1], "500 are left of the flow as long as its first packet waits");
}

/// The rules of `ranked.rs` word by word, in a list of all packets.
#[derive(Default)]
struct Plain {
    waiting: Vec<Sample>,
}

impl Plain {
    fn rank(packet: &Sample, is_las: bool) -> u64 {
        if is_las { packet.attained } else { packet.left.unwrap_or(packet.attained) }
    }

    /// The first packets of all flows, by their keys. Packets are numbered by their id.
    fn firsts(waiting: &[Sample], is_las: bool) -> Vec<(u64, u64, u32)> {
        let is_first = |at: &usize| waiting[..*at].iter().all(|before| before.flow != waiting[*at].flow);
        let firsts = (0..waiting.len()).filter(is_first).map(|at| &waiting[at]);
        let mut keys: Vec<_> =
            firsts.map(|packet| (Self::rank(packet, is_las), packet.id, packet.flow)).collect();
        keys.sort_unstable();
        keys
    }

    fn enqueue(
        &mut self,
        packet: Sample,
        is_las: bool,
        limit: usize,
        flow_limit: usize,
    ) -> Option<(u64, DropReason)> {
        if self.waiting.iter().filter(|other| other.flow == packet.flow).count() >= flow_limit {
            return Some((packet.id, DropReason::FlowLimit));
        }
        let is_full = self.waiting.len() >= limit;
        self.waiting.push(packet);
        if !is_full {
            return None;
        }
        let (_, _, victim) = *Self::firsts(&self.waiting, is_las).last()?;
        let at = self.waiting.iter().rposition(|other| other.flow == victim)?;
        let dropped = self.waiting.remove(at).id;
        Some((dropped, if dropped == packet.id { DropReason::Tail } else { DropReason::PushedOut }))
    }

    fn dequeue(&mut self, is_las: bool) -> Option<u64> {
        let (_, id, _) = *Self::firsts(&self.waiting, is_las).first()?;
        self.waiting.retain(|packet| packet.id != id);
        Some(id)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn every_decision_is_that_of_the_rules(
        is_las: bool,
        limit in 1..12_usize,
        flow_limit in 1..6_usize,
        steps in prop::collection::vec(
            prop::option::weighted(0.6, (0..6_u32, prop::option::of(0..6_u64), 0..6_u64)), 0..300),
    ) {
        let kind = if is_las { "las" } else { "srpt" };
        let mut queue =
            Queue::new(&config(&format!("{kind}:limit={limit},flow_limit={flow_limit}")), 1).expect("it was parsed");
        let mut plain = Plain::default();
        for (id, step) in (0..).zip(steps) {
            if let Some((flow, left, attained)) = step {
                let packet = Sample { flow, left, attained, ..Sample::new(id, 100) };
                let drops = enqueue(&mut queue, T, packet);
                let drops: Vec<_> = drops.into_iter().map(|(packet, reason)| (packet.id, reason)).collect();
                prop_assert_eq!(drops, Vec::from_iter(plain.enqueue(packet, is_las, limit, flow_limit)));
            } else {
                let packet = queue.dequeue(T, &mut |_, _| ());
                prop_assert_eq!(packet.map(|packet| packet.id), plain.dequeue(is_las));
            }
        }
    }
}
