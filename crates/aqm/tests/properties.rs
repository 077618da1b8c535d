//! What holds for every discipline, whatever comes: packets are conserved, limits hold, classes
//! keep their order, and more load is never fewer drops.

use std::collections::HashMap;

use crate::common::{Sample, config};
use aqm::{
    Amount, Aqm, BandsConfig, Config, DropCounts, DropReason, FqCodelConfig, PacketKind, Queue, RandomNumbers,
};
use proptest::prelude::*;
use units::Nanos;

/// Each discipline with limits that are reached soon, in packets and in bytes.
const CONFIGS: [&str; 28] = [
    "droptail:limit=20",
    "droptail:limit=20kB",
    "red:limit=30,min=3,max=10,w=0.1",
    "red:limit=30kB,min=3kB,max=10kB,w=0.1,gentle=false,wait",
    "choke:limit=30,min=3,max=10,w=0.1",
    "choke:limit=30kB,min=3kB,max=10kB,w=0.5,gentle",
    "redfavor:limit=30,min=3,max=10,w=0.1",
    "redfavor:limit=30,min=3,max=10,w=0.1,guard=off,protect=tcp+sctp",
    "redfavor:limit=20kB,min=3kB,max=10kB,w=0.1",
    "redfavor:limit=20kB,min=3kB,max=10kB,w=0.1,guard=off",
    "codel:limit=30,target=1ms,interval=5ms",
    "codel:limit=30kB,target=1ms,interval=5ms",
    "fq-codel:limit=30,flows=4,target=1ms,interval=5ms",
    "fq-codel:limit=30,flows=64,batch=3,memory=20kB,target=1ms,interval=5ms",
    "bands:bands=3,limit=20",
    "bands:bands=3,limit=20kB",
    "bands:bands=3,limit=20,push_out=false",
    "bands:cutoffs=1+3+5,limit=20",
    "srpt:limit=20",
    "srpt:limit=20,flow_limit=3",
    "las:limit=20",
    "las:limit=20,flow_limit=3",
    "fq:limit=20,flow_limit=5,quantum=300,initial_quantum=600",
    "fq:limit=20,refill_delay=1ms",
    "sfq:limit=20,depth=6,quantum=300",
    "sfq:limit=20,flows=2,divisor=4",
    "cake:rtt=4ms,memory=20kB,rate=1Gbit",
    "cake:rtt=4ms,memory=60kB,rate=10Mbit",
];

/// What happens next.
#[derive(Debug, Clone, Copy)]
enum Step {
    Arrive(Sample),
    Send,
    Wait(Nanos),
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        4 => Just(PacketKind::Other),
        1 => Just(PacketKind::Syn),
        1 => Just(PacketKind::SynAck),
        1 => Just(PacketKind::SctpInit),
    ];
    let left = prop_oneof![1 => Just(None), 3 => (0..5_u64).prop_map(Some), 1 => any::<u64>().prop_map(Some)];
    let service = (left, prop_oneof![3 => 0..5_u64, 1 => any::<u64>()]);
    let arrive = (1..3000_u32, 0..6_u32, kind, 0..4_u8, service).prop_map(
        |(bytes, flow, kind, band, (left, attained))| {
            let flow = flow.wrapping_mul(0x9e37_79b9);
            Step::Arrive(Sample { id: 0, bytes, flow, kind, band, left, attained })
        },
    );
    prop_oneof![
        6 => arrive,
        4 => Just(Step::Send),
        2 => (0..3_000_000_u64).prop_map(|ns| Step::Wait(Nanos(ns))),
    ]
}

/// Packets that must stay in their order: of a flow, and where there are classes of one of these.
fn class(config: &Config, packet: &Sample) -> (u32, u8) {
    match config {
        Config::RedFavor(config) => (0, config.protect.contains(packet.kind).into()),
        Config::Bands(BandsConfig { cutoffs: Some(_), .. }) => (packet.flow, 0),
        Config::Bands(BandsConfig { bands, .. }) => (0, packet.band.min(bands - 1)),
        Config::FqCodel(_) | Config::Srpt(_) | Config::Las(_) => (packet.flow, 0),
        Config::Fq(_) | Config::Sfq(_) | Config::Cake(_) => (packet.flow, 0),
        _ => (0, 0),
    }
}

fn limit(config: &Config) -> Amount {
    match config {
        Config::DropTail(config) => config.limit,
        Config::Red(config) | Config::Choke(config) => config.limit,
        Config::RedFavor(config) => config.red.limit,
        Config::Codel(config) => config.limit,
        Config::FqCodel(FqCodelConfig { codel, .. }) => codel.limit,
        Config::Bands(config) => config.limit,
        Config::Srpt(config) | Config::Las(config) => Amount::Packets(config.limit_pkts),
        Config::Fq(config) => Amount::Packets(config.limit_pkts),
        Config::Sfq(config) => Amount::Packets(config.limit_pkts),
        Config::Cake(config) => Amount::Bytes(config.memory_bytes.unwrap_or(4 << 20)),
    }
}

/// Reasons for which a discipline may drop.
fn reasons(config: &Config) -> &'static [DropReason] {
    use DropReason::*;
    match config {
        Config::DropTail(_) => &[Tail],
        Config::Red(_) => &[Tail, Early, Forced],
        Config::Choke(_) => &[Tail, Early, Forced, ChokeMatch],
        Config::RedFavor(_) => &[Tail, Early, Forced, PushedOut, ProtectedShare],
        Config::Codel(_) => &[Tail, Codel],
        Config::FqCodel(_) => &[Overlimit, Codel],
        Config::Bands(_) => &[Tail, PushedOut],
        Config::Srpt(_) | Config::Las(_) => &[Tail, PushedOut, FlowLimit],
        Config::Fq(_) => &[Tail, FlowLimit],
        Config::Sfq(_) => &[Tail, Overlimit, FlowLimit],
        Config::Cake(_) => &[Overlimit, Codel],
    }
}

/// What is known of a run from outside.
struct Ledger<'a> {
    config: &'a Config,
    waiting: HashMap<u64, Sample>,
    last_sent: HashMap<(u32, u8), u64>,
}

impl Ledger<'_> {
    fn sent(&mut self, packet: Sample) {
        assert_eq!(self.waiting.remove(&packet.id), Some(packet), "it came once, and goes once");
        let last = self.last_sent.insert(class(self.config, &packet), packet.id);
        assert!(last.is_none_or(|last| last < packet.id), "{last:?} went before {packet:?}");
    }

    fn dropped(&mut self, packet: Sample, reason: DropReason) {
        assert_eq!(self.waiting.remove(&packet.id), Some(packet), "it came once, and is dropped once");
        assert!(reasons(self.config).contains(&reason), "{reason}");
    }

    fn agrees_with(&self, queue: &Queue<Sample>) {
        assert_eq!(queue.qlen_pkts() as usize, self.waiting.len());
        let bytes: u64 = self.waiting.values().map(|packet| u64::from(packet.bytes)).sum();
        assert_eq!(queue.qlen_bytes(), bytes);
        match limit(self.config) {
            Amount::Packets(limit) => assert!(queue.qlen_pkts() <= limit),
            Amount::Bytes(limit) => assert!(bytes <= u64::from(limit)),
        }
        if let Config::FqCodel(config) = self.config {
            assert!(bytes <= u64::from(config.memory_bytes));
        }
    }
}

fn run(config: &Config, seed: u64, steps: &[Step]) {
    let mut queue = Queue::new(config, seed).expect("it was parsed");
    let mut ledger = Ledger { config, waiting: HashMap::new(), last_sent: HashMap::new() };
    let mut now = Nanos::ZERO;
    for (id, step) in steps.iter().enumerate() {
        match *step {
            Step::Wait(span) => now += span,
            Step::Arrive(packet) => {
                let packet = Sample { id: id as u64, ..packet };
                ledger.waiting.insert(packet.id, packet);
                queue.enqueue(now, packet, &mut |packet, reason| ledger.dropped(packet, reason));
            }
            Step::Send => {
                let was_empty = queue.is_empty();
                let packet = queue.dequeue(now, &mut |packet, reason| ledger.dropped(packet, reason));
                assert!(packet.is_some() || queue.is_empty(), "something goes as long as something waits");
                assert!(!was_empty || packet.is_none());
                if let Some(packet) = packet {
                    ledger.sent(packet);
                }
            }
        }
        ledger.agrees_with(&queue);
    }
    while let Some(packet) = queue.dequeue(now, &mut |packet, reason| ledger.dropped(packet, reason)) {
        ledger.sent(packet);
    }
    ledger.agrees_with(&queue);
    assert!(queue.is_empty() && ledger.waiting.is_empty(), "all are sent or dropped");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn packets_are_conserved_limits_hold_and_classes_keep_their_order(
        seed: u64,
        steps in prop::collection::vec(step(), 0..600),
    ) {
        for text in CONFIGS {
            run(&config(text), seed, &steps);
        }
    }

    #[test]
    fn same_seed_and_packets_have_the_same_fate(seed: u64, steps in prop::collection::vec(step(), 0..300)) {
        for text in CONFIGS {
            let fate = || {
                let mut queue = Queue::new(&config(text), seed).expect("it was parsed");
                let (mut now, mut fate) = (Nanos::ZERO, Vec::new());
                for (id, step) in steps.iter().enumerate() {
                    match *step {
                        Step::Wait(span) => now += span,
                        Step::Arrive(packet) => {
                            let packet = Sample { id: id as u64, ..packet };
                            queue.enqueue(now, packet, &mut |packet, why| fate.push((packet.id, Some(why))));
                        }
                        Step::Send => {
                            let packet = queue.dequeue(now, &mut |packet, why| fate.push((packet.id, Some(why))));
                            fate.extend(packet.map(|packet| (packet.id, None)));
                        }
                    }
                }
                fate
            };
            prop_assert_eq!(fate(), fate());
        }
    }
}

/// Drops of a million packet times at that load, of a link that sends one packet in each; the gaps
/// between arrivals are exponential.
fn drops_at(config: &Config, load: f64, syn_percent: u32) -> DropCounts {
    const SLOT_NS: f64 = 800_000.0;
    const SLOTS: f64 = 200_000.0;
    let mut queue = Queue::new(config, 3).expect("it was parsed");
    let mut random = RandomNumbers::new(4);
    let mut drops = DropCounts::default();
    let (mut arrival, mut sending) = (0.0, 0.0);
    let mut id = 0;
    while arrival < SLOTS * SLOT_NS {
        while sending <= arrival {
            let packet = queue.dequeue(Nanos(sending as u64), &mut |_, reason| drops.count(reason));
            sending = if packet.is_some() { sending + SLOT_NS } else { arrival + 1.0 };
        }
        let flow = (random.next_u32() % 50).wrapping_mul(0x9e37_79b9);
        let kind = if random.next_u32() % 100 < syn_percent { PacketKind::Syn } else { PacketKind::Other };
        let band = (random.next_u32() % 3) as u8;
        id += 1;
        let left = Some(u64::from(random.next_u32()));
        let packet = Sample { flow, kind, band, left, ..Sample::new(id, 1000) };
        queue.enqueue(Nanos(arrival as u64), packet, &mut |_, reason| drops.count(reason));
        let uniform = (f64::from(random.next_u32()) + 1.0) / 4_294_967_296.0;
        arrival += -uniform.ln() * SLOT_NS / load;
    }
    drops
}

#[test]
fn drops_rise_with_the_load() {
    for (text, syn_percent) in [
        ("droptail:limit=100", 0),
        ("red", 0),
        ("red:gentle=false,wait", 0),
        ("red:min=30kB,max=90kB,limit=180kB", 0),
        ("choke", 0),
        ("redfavor", 10),
        ("redfavor:guard=off", 10),
        ("codel", 0),
        ("fq-codel:limit=1000", 0),
        ("bands:bands=3,limit=100", 0),
        ("srpt:limit=100", 0),
        ("las:limit=100", 0),
        ("fq:limit=100", 0),
        ("sfq", 0),
        ("cake:memory=100kB", 0),
    ] {
        let config = config(text);
        let mut before = 0;
        for load in [0.5, 0.8, 0.95, 1.05, 1.2, 1.5, 2.0, 3.0] {
            let drops = drops_at(&config, load, syn_percent).total();
            assert!(drops >= before, "{text}: {drops} drops at {load}, {before} at less");
            let excess = (load - 1.0) * 200_000.0;
            assert!(
                drops as f64 > 0.95 * excess - 1500.0,
                "{text}: {drops} at {load}, where {excess} are too many"
            );
            before = drops;
        }
        assert!(before > 380_000, "{text}: {before} at three times the rate");
    }
}

#[test]
fn higher_probability_never_drops_less() {
    let mut before = 0;
    for max_p in ["0.01", "0.05", "0.1", "0.3", "1"] {
        let config = config(&format!("red:max_p={max_p}"));
        let drops = drops_at(&config, 0.97, 0).total();
        assert!(drops >= before, "{drops} at {max_p}, {before} at less");
        before = drops;
    }
}

/// Packets of one class, more than there is room for, and then none.
fn fill_and_drain(queue: &mut Queue<Sample>, kind: PacketKind, band: u8) {
    for id in 0..200 {
        let flow = (id as u32).wrapping_mul(0x9e37_79b9);
        queue.enqueue(Nanos::ZERO, Sample { flow, kind, band, ..Sample::new(id, 100) }, &mut |_, _| ());
    }
    while queue.dequeue(Nanos::ZERO, &mut |_, _| ()).is_some() {}
}

#[test]
fn queue_that_was_at_its_longest_allocates_nothing() {
    for text in CONFIGS {
        let mut queue = Queue::new(&config(text), 1).expect("it was parsed");
        for (kind, band) in [(PacketKind::Other, 0), (PacketKind::Other, 1), (PacketKind::Syn, 2)] {
            fill_and_drain(&mut queue, kind, band);
        }
        let (mut random, mut id) = (RandomNumbers::new(2), 0);
        let mut rounds = |rounds: u64| {
            for _ in 0..rounds {
                id += 1;
                let flow = random.next_u32();
                let kind = if flow.is_multiple_of(5) { PacketKind::Syn } else { PacketKind::Other };
                let now = Nanos::from_micros(id * 100);
                let packet = Sample { flow, kind, band: (flow % 3) as u8, ..Sample::new(id, 100) };
                queue.enqueue(now, packet, &mut |_, _| ());
                if random.next_u32() % 8 < 6 {
                    queue.dequeue(now, &mut |_, _| ());
                }
            }
        };
        rounds(100_000);
        let allocated = allocation_counter::measure(|| rounds(50_000));
        assert_eq!(allocated.count_total, 0, "{text}");
    }
}
