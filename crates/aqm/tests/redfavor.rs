//! REDFavor against Algorithm 1 of [RF], and its guard against what it promises.

use crate::common::reference::Algorithm1;
use crate::common::{Sample, dequeue, drain, enqueue};
use aqm::{Aqm, Config, DropReason, PacketKind, RandomNumbers, Red, RedFavor, RedFavorConfig};
use units::Nanos;

fn redfavor(text: &str) -> RedFavorConfig {
    match crate::common::config(text) {
        Config::RedFavor(config) => config,
        other => panic!("{other} is not REDFavor"),
    }
}

fn queue(text: &str) -> RedFavor<Sample> {
    RedFavor::new(&redfavor(text), 1).expect("it was parsed")
}

/// As good as no RED: a full queue is all that drops.
const FULL_ONLY: &str = "redfavor:limit=4,min=1,max=4,w=0.0000001";
const T: Nanos = Nanos::ZERO;

#[test]
fn full_queue_pushes_out_the_last_standard_packet_for_a_syn() {
    let mut queue = queue(&format!("{FULL_ONLY},guard=off"));
    let data: Vec<_> = (0..4).map(|id| Sample::new(id, 1000)).collect();
    for packet in &data {
        assert!(enqueue(&mut queue, T, *packet).is_empty());
    }
    assert_eq!(enqueue(&mut queue, T, Sample::new(9, 1000)), [(Sample::new(9, 1000), DropReason::Tail)]);
    assert_eq!(enqueue(&mut queue, T, Sample::syn(10)), [(data[3], DropReason::PushedOut)]);
    assert_eq!(enqueue(&mut queue, T, Sample::syn(11)), [(data[2], DropReason::PushedOut)]);
    assert_eq!(
        drain(&mut queue, T),
        [10, 11, 0, 1],
        "in front of all standard packets, behind protected ones"
    );
}

#[test]
fn queue_of_syns_only_drops_the_next() {
    let mut queue = queue(&format!("{FULL_ONLY},guard=off"));
    for id in 0..4 {
        assert!(enqueue(&mut queue, T, Sample::syn(id)).is_empty());
    }
    assert_eq!(enqueue(&mut queue, T, Sample::syn(4)), [(Sample::syn(4), DropReason::Tail)]);
    assert_eq!(drain(&mut queue, T), [0, 1, 2, 3]);
}

#[test]
fn early_drop_of_a_syn_is_a_standard_packets_drop() {
    // The average is the length, and from two packets on all are dropped.
    let text = "redfavor:limit=9,min=1,max=2,w=1,gentle=false,guard=off";
    let mut queue = queue(text);
    for id in 0..2 {
        assert!(enqueue(&mut queue, T, Sample::new(id, 1000)).is_empty());
    }
    assert_eq!(enqueue(&mut queue, T, Sample::new(2, 1000)), [(Sample::new(2, 1000), DropReason::Forced)]);
    assert_eq!(enqueue(&mut queue, T, Sample::syn(3)), [(Sample::new(1, 1000), DropReason::PushedOut)]);
    assert_eq!(enqueue(&mut queue, T, Sample::syn(4)), [(Sample::new(0, 1000), DropReason::PushedOut)]);
    assert_eq!(
        enqueue(&mut queue, T, Sample::syn(5)),
        [(Sample::syn(5), DropReason::Forced)],
        "only protected"
    );
    assert_eq!(drain(&mut queue, T), [3, 4]);
}

#[test]
fn what_is_protected_is_what_the_set_names() {
    let init = |id| Sample { kind: PacketKind::SctpInit, ..Sample::new(id, 60) };
    let ack = |id| Sample { kind: PacketKind::SynAck, ..Sample::new(id, 60) };
    for (protect, order) in [("tcp", [3, 4, 1, 2]), ("sctp", [2, 1, 3, 4]), ("tcp+sctp", [2, 3, 4, 1])] {
        let mut queue = queue(&format!("redfavor:protect={protect}"));
        for packet in [Sample::new(1, 1000), init(2), Sample::syn(3), ack(4)] {
            assert!(enqueue(&mut queue, T, packet).is_empty());
        }
        assert_eq!(drain(&mut queue, T), order, "{protect}");
    }
}

#[test]
fn limit_in_bytes_pushes_out_as_many_as_it_takes() {
    let mut queue = queue("redfavor:limit=1000B,min=1,max=4,w=0.0000001,guard=off");
    for (id, bytes) in [(0, 900), (1, 40), (2, 40)] {
        assert!(enqueue(&mut queue, T, Sample::new(id, bytes)).is_empty());
    }
    let pushed: Vec<_> =
        enqueue(&mut queue, T, Sample::syn(3)).into_iter().map(|(packet, _)| packet.id).collect();
    assert_eq!(pushed, [2]);
    let pushed: Vec<_> =
        enqueue(&mut queue, T, Sample::syn(4)).into_iter().map(|(packet, _)| packet.id).collect();
    assert_eq!(pushed, [1, 0]);
    let large = Sample { bytes: 900, ..Sample::syn(5) };
    assert_eq!(enqueue(&mut queue, T, large), [(large, DropReason::Tail)], "which would not fit anyway");
    assert_eq!(queue.qlen_pkts(), 2, "and for which nothing was pushed out");
}

/// Packets at random, the same for the same seed: (time, packet if one arrives).
fn traffic(seed: u64, steps: u64, syn_percent: u32) -> impl Iterator<Item = (Nanos, Option<Sample>)> {
    let mut random = RandomNumbers::new(seed);
    let mut now = Nanos::ZERO;
    (0..steps).map(move |id| {
        // From two thirds of the rate at which they leave to twice of it.
        let in_percent = 40 + 27 * (id / 3000 % 2) as u32;
        now += Nanos(u64::from(random.next_u32() % 800_000));
        let is_syn = random.next_u32() % 100 < syn_percent;
        let packet = if is_syn { Sample::syn(id) } else { Sample::new(id, 1000) };
        (now, (random.next_u32() % 100 < in_percent).then_some(packet))
    })
}

#[test]
fn without_a_guard_it_is_algorithm_1() {
    let is_protected = |packet: &Sample| packet.kind != PacketKind::Other;
    for (seed, syn_percent) in [(1, 0), (2, 5), (3, 30), (4, 80), (5, 100)] {
        for red in [
            "limit=180",
            "limit=40,min=5,max=15,w=0.02,gentle=false",
            "limit=60,min=10,max=60,wait,spare_one",
        ] {
            let config = redfavor(&format!("redfavor:{red},guard=off"));
            let mut queue = RedFavor::new(&config, seed).expect("it was parsed");
            let mut paper = Algorithm1::new(&config.red, seed, is_protected);
            let mut dropped = Vec::new();
            for (now, packet) in traffic(seed, 100_000, syn_percent) {
                match packet {
                    Some(packet) => {
                        paper.enqueue(packet, now);
                        dropped
                            .extend(enqueue(&mut queue, now, packet).into_iter().map(|(packet, _)| packet));
                    }
                    None => assert_eq!(dequeue(&mut queue, now).0, paper.dequeue(now), "{red} at {now}"),
                }
                assert_eq!(queue.qlen_pkts() as usize, paper.queue.len());
            }
            assert_eq!(dropped, paper.dropped, "{red}, seed {seed}");
            assert!(dropped.len() > 1000, "{red}: {} drops show little", dropped.len());
        }
    }
}

#[test]
fn without_protected_packets_it_is_red() {
    for guard in ["guard=off", "guard=25%"] {
        let config = redfavor(&format!("redfavor:{guard}"));
        let mut queue = RedFavor::new(&config, 1).expect("it was parsed");
        let mut red = Red::new(&config.red, 1).expect("it was parsed");
        for (now, packet) in traffic(6, 200_000, 0) {
            match packet {
                Some(packet) => assert_eq!(enqueue(&mut queue, now, packet), enqueue(&mut red, now, packet)),
                None => assert_eq!(dequeue(&mut queue, now), dequeue(&mut red, now)),
            }
        }
    }
}

#[test]
fn guard_does_nothing_to_a_few_syns() {
    let mut guarded = RedFavor::new(&redfavor("redfavor"), 1).expect("it was parsed");
    let mut bare = RedFavor::new(&redfavor("redfavor:guard=off"), 1).expect("it was parsed");
    for (now, packet) in traffic(8, 200_000, 8) {
        match packet {
            Some(packet) => assert_eq!(enqueue(&mut guarded, now, packet), enqueue(&mut bare, now, packet)),
            None => assert_eq!(dequeue(&mut guarded, now), dequeue(&mut bare, now)),
        }
    }
}

/// What standard packets lose to protected ones, in bytes, less the share of what was sent that
/// they may lose.
struct Cost {
    share: f64,
    now: f64,
    least: f64,
    most: f64,
}

impl Cost {
    fn add(&mut self, bytes: u32) {
        self.now += f64::from(bytes);
        self.most = self.most.max(self.now - self.least);
    }

    fn sent(&mut self, bytes: u32) {
        self.now -= self.share * f64::from(bytes);
        self.least = self.least.min(self.now);
    }
}

#[test]
fn guard_bounds_what_protection_costs_over_any_time() {
    for (syn_percent, share) in [(20, 0.25), (60, 0.25), (95, 0.25), (60, 0.0625), (60, 1.0)] {
        let text = format!("redfavor:limit=120,guard={share}");
        let mut queue = queue(&text);
        let burst = 30.0 * 1000.0;
        let mut cost = Cost { share, now: 0.0, least: 0.0, most: 0.0 };
        for (now, packet) in traffic(9, 300_000, syn_percent) {
            match packet {
                Some(packet) => {
                    for (packet, reason) in enqueue(&mut queue, now, packet) {
                        if reason == DropReason::PushedOut {
                            cost.add(packet.bytes);
                        }
                    }
                    assert!(queue.protected_qlen_pkts() <= 30, "places");
                }
                None => {
                    let standard = queue.qlen_pkts() - queue.protected_qlen_pkts();
                    if let Some(packet) = dequeue(&mut queue, now).0 {
                        if packet.kind == PacketKind::Syn && standard > 0 {
                            cost.add(packet.bytes);
                        }
                        cost.sent(packet.bytes);
                    }
                }
            }
        }
        let most = cost.most;
        // One packet's share, as a packet is paid for before it is sent.
        assert!(
            most <= burst + 1000.0 * share + 1.0,
            "{text}: {most} bytes beyond the share, {burst} may be"
        );
        assert!(share == 1.0 || syn_percent < 60 || most > burst / 2.0, "{text}: {most} bytes try nothing");
    }
}

#[test]
fn guarded_syns_go_all_the_same_when_nothing_else_waits() {
    let mut queue = queue("redfavor:guard=1%,places=30");
    for id in 0..30 {
        assert!(enqueue(&mut queue, T, Sample::syn(id)).is_empty());
    }
    assert_eq!(enqueue(&mut queue, T, Sample::syn(30)), [(Sample::syn(30), DropReason::ProtectedShare)]);
    assert_eq!(drain(&mut queue, T), (0..30).collect::<Vec<_>>());
}

#[test]
fn syns_that_cannot_pay_wait_for_standard_packets() {
    // 10,000 bytes of credit are spent on ten push-outs of 1000.
    let mut queue = queue("redfavor:limit=20,min=10,max=20,w=0.0000001,guard=10%,mean=1000");
    for id in 0..20 {
        assert!(enqueue(&mut queue, T, Sample::new(id, 1000)).is_empty());
    }
    for id in 20..30 {
        assert!(matches!(enqueue(&mut queue, T, Sample::syn(id))[..], [(_, DropReason::PushedOut)]));
    }
    let late = Sample::syn(30);
    assert_eq!(enqueue(&mut queue, T, late), [(late, DropReason::ProtectedShare)], "no place");
    let next = dequeue(&mut queue, T).0.expect("20 wait");
    assert_eq!(next.id, 0, "nothing left to pay with");
    let order = drain(&mut queue, T);
    assert_eq!(
        order[..3],
        [20, 1, 21],
        "a tenth of 1000 bytes pays for one SYN of 60, and leaves 40 for the next"
    );
}
