//! What holds for every path, whatever comes: packets are conserved, the rate is kept, delays are
//! exact, order is kept where nothing disturbs it, and who asks late loses nothing.

use std::collections::HashSet;

use aqm::{Packet, PacketKind};
use path::{Config, DropCause, Path};
use proptest::prelude::*;
use units::Nanos;

/// A packet with a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sample {
    id: u64,
    bytes: u32,
}

impl Packet for Sample {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u32 {
        (self.id as u32 % 5).wrapping_mul(0x9e37_79b9)
    }

    fn kind(&self) -> PacketKind {
        if self.id.is_multiple_of(4) { PacketKind::Syn } else { PacketKind::Other }
    }
}

fn config(text: &str) -> Config {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// What comes, each some time after the one before.
type Load = Vec<(Nanos, u32)>;

fn load() -> impl Strategy<Value = Load> {
    proptest::collection::vec((0..2_000_000_u64, 40..1514_u32), 1..300)
        .prop_map(|packets| packets.into_iter().map(|(gap, bytes)| (Nanos(gap), bytes)).collect())
}

/// What became of each packet: when it was due at the far end, or why it never was, in the order of
/// the events' own lists.
#[derive(Debug, Default, PartialEq)]
struct Fates {
    arrivals: Vec<(Nanos, Sample)>,
    drops: Vec<(Sample, DropCause)>,
}

/// Hands over the load, and asks for what arrived only before every `asked_every`th packet, and at
/// the end.
fn run(config: &Config, load: &Load, asked_every: usize) -> (Path<Sample>, Fates) {
    let mut path = Path::new(config, 11).expect("it was parsed");
    let Fates { mut arrivals, mut drops } = Fates::default();
    let mut now = Nanos::ZERO;
    for (id, (gap, bytes)) in load.iter().enumerate() {
        now += *gap;
        if id % asked_every == 0 {
            take_all(&mut path, now, &mut arrivals, &mut drops);
        }
        let packet = Sample { id: id as u64, bytes: *bytes };
        path.arrive(now, packet, &mut |packet, cause| drops.push((packet, cause)));
        let kept = path.qlen_pkts() as usize + path.in_flight() + arrivals.len() + drops.len();
        assert_eq!(kept, id + 1, "every packet is in one place");
    }
    while let Some(next) = path.next() {
        assert!(
            next >= now || asked_every > 1,
            "what was due before {now} was taken, and yet {next} is next"
        );
        now = now.max(next);
        take_all(&mut path, now, &mut arrivals, &mut drops);
    }
    (path, Fates { arrivals, drops })
}

fn take_all(
    path: &mut Path<Sample>,
    now: Nanos,
    arrivals: &mut Vec<(Nanos, Sample)>,
    drops: &mut Vec<(Sample, DropCause)>,
) {
    while let Some(arrival) = path.take(now, &mut |packet, cause| drops.push((packet, cause))) {
        assert!(arrival.at <= now, "{} is later than {now}", arrival.at);
        arrivals.push((arrival.at, arrival.packet));
    }
}

const CONFIGS: [&str; 9] = [
    "",
    "delay 3ms loss 10% reorder 10%",
    "rate 5mbit limit 10",
    "rate 5mbit delay 7ms jitter 7ms limit 10kB",
    "rate 5mbit delay 7ms jitter 2ms in-order loss 5% aqm red:limit=30,min=3,max=10,w=0.1",
    "rate 5mbit delay 1ms aqm redfavor:limit=30,min=3,max=10,w=0.1",
    "rate 3mbit overhead 24 delay 1ms aqm codel:limit=30,target=1ms,interval=5ms",
    "rate 3mbit loss gilbert-elliott:p=5%,r=30% aqm fq-codel:limit=30,flows=4,target=1ms,interval=5ms",
    "rate 1mbit overhead -39 delay 50ms reorder 20% aqm choke:limit=30,min=3,max=10,w=0.1",
];

proptest! {
    #[test]
    fn packets_are_conserved_and_counted(load in load()) {
        for text in CONFIGS {
            let (path, fates) = run(&config(text), &load, 1);
            let counters = path.counters();
            let ids: HashSet<u64> = fates.arrivals.iter().map(|(_, packet)| packet.id)
                .chain(fates.drops.iter().map(|(packet, _)| packet.id)).collect();
            prop_assert_eq!(ids.len(), load.len(), "each comes out once");
            prop_assert_eq!(fates.arrivals.len() + fates.drops.len(), load.len());
            prop_assert_eq!(counters.delivered.packets as usize, fates.arrivals.len());
            prop_assert_eq!(counters.dropped.packets as usize, fates.drops.len());
            prop_assert_eq!(counters.arrived.bytes, counters.delivered.bytes + counters.dropped.bytes);
            prop_assert_eq!(counters.drops().map(|(_, count)| count).sum::<u64>(), counters.dropped.packets);
            let sent = counters.delivered.packets + counters.lost;
            prop_assert_eq!(path.sojourns_us().len(), sent, "a sojourn of each that was sent");
        }
    }

    #[test]
    fn who_asks_late_loses_nothing(load in load()) {
        for text in CONFIGS {
            let config = config(text);
            let (_, mut soon) = run(&config, &load, 1);
            let (_, mut late) = run(&config, &load, 50);
            // Drops of the queue are told when somebody asks.
            for fates in [&mut soon, &mut late] {
                fates.drops.sort_by_key(|(packet, _)| packet.id);
            }
            prop_assert_eq!(&soon, &late);
        }
    }

    #[test]
    fn rate_is_never_exceeded_over_any_interval(load in load()) {
        for text in ["rate 7mbit limit 50", "rate 3mbit delay 5ms aqm codel", "rate 999kbit overhead 24 limit 20"] {
            let config = config(text);
            let rate = config.rate.expect("it has one").bits_per_s();
            let bits = |packet: &Sample| 8 * (i64::from(packet.bytes) + i64::from(config.overhead_bytes)) as u64;
            let (_, fates) = run(&config, &load, 1);
            let arrivals = &fates.arrivals;
            for (first, (from, _)) in arrivals.iter().enumerate() {
                let mut sent = 0;
                for (until, packet) in &arrivals[first + 1..] {
                    sent += bits(packet);
                    // Moments are whole nanoseconds: one at each end.
                    let most = u128::from(rate) * u128::from(until.since(*from).0 + 1) / 1_000_000_000 + 1;
                    prop_assert!(u128::from(sent) <= most, "{} bits from {} to {}", sent, from, until);
                }
            }
        }
    }

    #[test]
    fn order_is_kept_unless_jitter_or_reordering_disturb_it(load in load()) {
        for text in ["", "rate 5mbit delay 7ms limit 10", "rate 5mbit delay 7ms jitter 7ms in-order loss 5% limit 10"] {
            let (_, fates) = run(&config(text), &load, 1);
            let ids: Vec<u64> = fates.arrivals.iter().map(|(_, packet)| packet.id).collect();
            prop_assert!(ids.is_sorted(), "{:?}", ids);
        }
    }

    #[test]
    fn delay_is_exact_and_jitter_within_its_bounds(load in load()) {
        for (text, least, most) in [("delay 20ms", 20_000, 20_000), ("delay 20ms jitter 3ms", 17_000, 23_000)] {
            let (_, fates) = run(&config(text), &load, 1);
            prop_assert_eq!(fates.arrivals.len(), load.len());
            let mut sent = Nanos::ZERO;
            let sent: Vec<Nanos> = load.iter().map(|(gap, _)| { sent += *gap; sent }).collect();
            for (at, packet) in &fates.arrivals {
                let delay = at.since(sent[packet.id as usize]);
                let bounds = Nanos::from_micros(least)..=Nanos::from_micros(most);
                prop_assert!(bounds.contains(&delay), "{} after {}", text, delay);
            }
        }
    }
}

/// Packets of 1000 bytes, one each `gap`.
fn steady(packets: usize, gap: Nanos) -> Load {
    vec![(gap, 1000); packets]
}

#[test]
fn saturated_transmitter_is_never_idle_and_never_ahead_by_a_nanosecond() {
    // 3 Mbit/s does not divide: 8000 bits take 2,666,666.67 ns.
    let (_, fates) = run(&config("rate 3mbit limit 100000"), &steady(30_000, Nanos(1)), 1);
    let last = fates.arrivals.last().expect("all arrive").0;
    let exact = 1.0 + 30_000.0 * 8000.0 / 3e6 * 1e9;
    assert!((last.0 as f64 - exact).abs() <= 1.0, "{last}");
}

#[test]
fn packet_waits_for_those_before_it_and_that_is_its_sojourn() {
    let mut path = Path::new(&config("rate 8mbit delay 10ms"), 1).expect("it was parsed");
    for id in 0..3 {
        path.arrive(Nanos::from_millis(5), Sample { id, bytes: 1000 }, &mut |_, _| {});
    }
    assert_eq!((path.qlen_pkts(), path.qlen_bytes(), path.in_flight()), (2, 2000, 1));
    assert_eq!(path.next(), Some(Nanos::from_millis(6)), "the first has left the transmitter");
    let mut at = Vec::new();
    while let Some(next) = path.next() {
        while let Some(arrival) = path.take(next, &mut |_, _| {}) {
            at.push(arrival.at.as_micros());
        }
    }
    assert_eq!(at, [16_000, 17_000, 18_000]);
    let sojourns = path.sojourns_us();
    assert_eq!((sojourns.min(), sojourns.len()), (0, 3));
    assert!(sojourns.equivalent(sojourns.max(), 2000), "{}", sojourns.max());
}

#[test]
fn area_of_the_queue_is_how_long_packets_waited_however_late_it_is_asked() {
    for asked_every_us in [1, 100, 700, 9000] {
        let mut path = Path::new(&config("rate 8mbit"), 1).expect("it was parsed");
        for id in 0..3 {
            path.arrive(Nanos::from_millis(5), Sample { id, bytes: 1000 }, &mut |_, _| {});
        }
        assert_eq!(path.queue_area(Nanos::from_micros(5500)), 2 * 500_000, "two wait for half a millisecond");
        let mut now = Nanos::from_millis(5);
        while now < Nanos::from_millis(14) {
            now += Nanos::from_micros(asked_every_us);
            while path.take(now, &mut |_, _| {}).is_some() {}
        }
        assert_eq!(path.queue_area(now), 3_000_000, "a millisecond and two, asked every {asked_every_us} us");
    }
}

#[test]
fn full_queue_drops_the_next_packet_with_its_reason() {
    let mut path = Path::new(&config("rate 8mbit limit 2"), 1).expect("it was parsed");
    let mut drops = Vec::new();
    for id in 0..5 {
        let packet = Sample { id, bytes: 1000 };
        path.arrive(Nanos::ZERO, packet, &mut |packet, cause| drops.push((packet.id, cause.name())));
    }
    // One is being sent and two wait.
    assert_eq!(drops, [(3, "tail"), (4, "tail")]);
}

#[test]
fn reordered_packets_have_their_share_and_overtake() {
    let (path, fates) = run(&config("delay 20ms reorder 10%"), &steady(20_000, Nanos::from_millis(1)), 1);
    let share = path.counters().reordered as f64 / 20_000.0;
    assert!((share - 0.1).abs() < 0.011, "{share}");
    let mut highest = 0;
    let overtaken = fates.arrivals.iter().filter(|(_, packet)| {
        highest = highest.max(packet.id);
        packet.id < highest
    });
    assert!(overtaken.count() > 10_000, "with 20 under way and one in ten ahead of them most are overtaken");
}

#[test]
fn jitter_does_not_change_which_packets_are_lost() {
    let lost = |text: &str| {
        let (_, fates) = run(&config(text), &steady(2000, Nanos::from_millis(1)), 1);
        fates.drops
    };
    let without = lost("delay 20ms loss 5%");
    assert!(!without.is_empty());
    assert_eq!(without, lost("delay 20ms jitter 10ms reorder 3% loss 5%"));
}

#[test]
fn other_seeds_lose_other_packets() {
    let lost = |seed| {
        let mut path = Path::new(&config("loss 50%"), seed).expect("it was parsed");
        let mut lost = Vec::new();
        for id in 0..64 {
            path.arrive(Nanos(id), Sample { id, bytes: 100 }, &mut |packet, _| lost.push(packet.id));
        }
        lost
    };
    assert_eq!(lost(1), lost(1));
    assert_ne!(lost(1), lost(2));
}

#[test]
fn red_goes_idle_at_the_rate_of_the_path() {
    // After an idle second the average of a fast link has fallen to nothing, that of 100 kbit/s (12
    // packets of 1000 bytes) has hardly fallen.
    let drops_after_idle = |rate: &str| {
        let aqm = "aqm red:limit=1000,min=5,max=500,max_p=1,w=0.05,gentle=false,rate=10mbit";
        let mut path = Path::new(&config(&format!("rate {rate} {aqm}")), 1).expect("it was parsed");
        let mut drops = 0;
        for id in 0..200 {
            path.arrive(Nanos::ZERO, Sample { id, bytes: 1000 }, &mut |_, _| {});
        }
        let mut idle_since = Nanos::ZERO;
        while let Some(next) = path.next() {
            idle_since = next;
            while path.take(next, &mut |_, _| {}).is_some() {}
        }
        for id in 0..10 {
            path.arrive(idle_since + Nanos::from_secs(1), Sample { id, bytes: 1000 }, &mut |_, _| drops += 1);
        }
        drops
    };
    assert_eq!(drops_after_idle("100mbit"), 0);
    assert!(drops_after_idle("100kbit") > 0);
}

#[test]
fn nothing_is_allocated_for_each_packet() {
    let texts = ["rate 10mbit delay 20ms jitter 5ms loss 1% limit 100", "delay 20ms reorder 5%"];
    for text in texts {
        let mut path = Path::new(&config(text), 1).expect("it was parsed");
        let mut now = Nanos::ZERO;
        let mut rounds = |packets: u64| {
            for id in 0..packets {
                now += Nanos::from_micros(700);
                while path.take(now, &mut |_, _| {}).is_some() {}
                path.arrive(now, Sample { id, bytes: 1000 }, &mut |_, _| {});
            }
        };
        rounds(100_000);
        let allocated = allocation_counter::measure(|| rounds(20_000));
        assert_eq!(allocated.count_total, 0, "{text}");
    }
}
