//! The qdisc in the kernel against `crates/aqm` on the host: the same packets at the same times
//! with the same random numbers.

use std::time::Duration;

use crate::common::{add, drained, is_conserved, lan, protection, segment, send, sender, shaped};
use aqm::{Aqm, Config, DropReason, Packet, PacketKind, RandomNumbers, RedFavor, RedFavorConfig};
use netns::Lan;
use qdisc::{Event, Replay, Setup};
use units::Nanos;

const SEED: u64 = 20;
const FRAMES: u32 = 3000;
/// Every frame has two; the rest is for what the host itself sends.
const EVENTS: u32 = 4 * FRAMES;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Arrival {
    packet: u32,
    bytes: u32,
    kind: PacketKind,
}

impl Packet for Arrival {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u32 {
        0
    }

    fn kind(&self) -> PacketKind {
        self.kind
    }
}

/// Bursts, with pauses in which the queue gets shorter, or empty for some time.
fn send_all(lan: &Lan, syn_percent: u32) {
    const SYN: u8 = 0x02;
    const SYN_ACK: u8 = 0x12;
    const ACK: u8 = 0x10;
    let tap = sender(lan);
    let mut random = RandomNumbers::new(7);
    for number in 0..FRAMES {
        let frame = if random.next_u32() % 100 < syn_percent {
            segment(lan, 60, if random.next_u32().is_multiple_of(2) { SYN } else { SYN_ACK })
        } else {
            segment(lan, 60 + random.next_u32() as usize % 1400, ACK)
        };
        send(&tap, &frame);
        if number % 20 == 0 {
            let ms = if number % 600 == 0 { 300 } else { random.next_u32() % 25 };
            std::thread::sleep(Duration::from_millis(ms.into()));
        }
    }
}

/// Tells the host's queue what the kernel's was told, and demands the same of it; gives the average
/// at the end.
fn replay(config: &RedFavorConfig, events: &[Event]) -> f64 {
    let mut queue = RedFavor::new(config, SEED).expect("it was parsed");
    let mut last = Nanos::ZERO;
    let mut rest = events.iter().peekable();
    while let Some(event) = rest.next() {
        match *event {
            Event::Arrived { at, packet, bytes, kind, .. } => {
                assert!(at >= last, "time goes on");
                last = at;
                let mut drops = Vec::new();
                let mut here = |arrival: Arrival, reason| drops.push((arrival.packet, reason));
                queue.enqueue(at, Arrival { packet, bytes, kind }, &mut here);
                for (packet, reason) in drops {
                    assert_eq!(rest.next(), Some(&Event::Dropped { packet, reason }), "after {event:?}");
                }
            }
            Event::Sent { at, packet } => {
                assert!(at >= last, "time goes on");
                last = at;
                let sent = queue.dequeue(at, &mut |_, _| {}).map(|arrival| arrival.packet);
                assert_eq!(sent, Some(packet), "{event:?}");
            }
            Event::Dropped { .. } => panic!("only the kernel: {event:?}"),
        }
    }
    assert!(queue.is_empty(), "both have sent all");
    queue.average()
}

fn kernel_and_host_decide_the_same(text: &str, syn_percent: u32, reasons: &[DropReason]) {
    let Some(lan) = lan() else { return };
    let replayed = Setup { replay: Some(Replay { seed: SEED, events: EVENTS }), ..shaped(text) };
    let Config::RedFavor(config) = &replayed.config else { panic!("{text} is no REDFavor") };
    add(&lan, &replayed).expect("add");
    send_all(&lan, syn_percent);
    let status = drained(&lan);
    let (events, total) = lan.client.enter(|| qdisc::trace("c0")).expect("enter").expect("a trace");
    assert_eq!(events.len() as u64, total, "all were kept");
    assert!(is_conserved(&status), "{status:?}");
    assert!(status.arrived.pkts >= FRAMES.into() && protection(&status).arrived_protected > 0, "{status:?}");
    for reason in reasons {
        assert!(status.dropped[*reason] > 0, "the load was to show {reason}: {status:?}");
    }
    assert_eq!(replay(config, &events).to_bits(), protection(&status).average.to_bits());
}

#[test]
fn root_replay_in_packets_with_a_guard_decides_the_same() {
    let reasons = [DropReason::Early, DropReason::Forced, DropReason::PushedOut, DropReason::ProtectedShare];
    let text = "redfavor:limit=60,min=2,max=6,max_p=0.1,w=0.05,gentle=false,rate=10Mbit,guard=10%";
    kernel_and_host_decide_the_same(text, 30, &reasons);
}

#[test]
fn root_replay_without_a_guard_decides_the_same() {
    let reasons = [DropReason::Tail, DropReason::PushedOut];
    let text = "redfavor:limit=20,min=10,max=20,w=0.002,wait,rate=10Mbit,guard=off";
    kernel_and_host_decide_the_same(text, 20, &reasons);
}

#[test]
fn root_replay_that_spares_one_packet_decides_the_same() {
    // The average is still above its minimum when a burst has left, and the next one finds the
    // queue empty.
    let reasons = [DropReason::Early, DropReason::PushedOut];
    let text = "redfavor:limit=60,min=2,max=20,max_p=0.5,w=0.01,spare_one,rate=10Mbit,guard=off";
    kernel_and_host_decide_the_same(text, 20, &reasons);
}

#[test]
fn root_replay_in_bytes_decides_the_same() {
    let reasons = [DropReason::Early, DropReason::Tail, DropReason::PushedOut];
    let text = "redfavor:limit=24kB,min=6kB,max=20kB,max_p=0.2,w=0.01,mean=700,rate=10Mbit,guard=50%";
    kernel_and_host_decide_the_same(text, 20, &reasons);
}
