//! What the tests share. Each uses some of it.

pub mod places;

use std::time::{Duration, Instant};

use aqm::{Config, Rate};
use netns::{Lan, Tap};
use nix::errno::Errno;
use qdisc::{Own, Protection, Setup, Status};

/// Longest wait for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);
const ETHERNET_BYTES: usize = 14;
const IPV4_BYTES: usize = 20;

/// Two hosts; `None` where there is nothing to test on, and it says why.
pub fn lan() -> Option<Lan> {
    let reason = netns::root_or_reason().err().or_else(|| {
        qdisc::support()
            .err()
            .map(|_| "skipped: no BPF qdisc in this kernel (Linux 6.16 and newer)".to_owned())
    });
    if let Some(reason) = reason {
        eprintln!("{reason}");
        return None;
    }
    Some(Lan::create().expect("two hosts"))
}

pub fn setup(text: &str) -> Setup {
    Setup { config: text.parse().expect(text), rate: None, is_replacing: false, replay: None }
}

/// Sends no faster than that.
pub fn paced(text: &str, rate: &str) -> Setup {
    Setup { rate: Some(Rate::parse(rate).expect(rate)), ..setup(text) }
}

/// REDFavor that sends no faster than `rate` of the configuration.
pub fn shaped(text: &str) -> Setup {
    let setup = setup(text);
    match &setup.config {
        Config::RedFavor(config) => Setup { rate: Some(config.red.rate), ..setup },
        other => panic!("{other:?} has no rate"),
    }
}

/// Of REDFavor.
pub fn protection(status: &Status) -> Protection {
    match status.own {
        Own::RedFavor(protection) => protection,
        Own::Ranked(_) => panic!("no REDFavor: {status:?}"),
    }
}

/// Puts the qdisc on the client's interface.
pub fn add(lan: &Lan, setup: &Setup) -> qdisc::Result<Status> {
    lan.client.enter(|| qdisc::add("c0", setup)).expect("enter")
}

pub fn show(lan: &Lan) -> Status {
    lan.client.enter(|| qdisc::show("c0")).expect("enter").expect("there is one")
}

/// Waits until nothing waits in the queue any more.
pub fn drained(lan: &Lan) -> Status {
    let start = Instant::now();
    loop {
        let status = show(lan);
        if status.qlen_pkts == 0 {
            return status;
        }
        assert!(start.elapsed() < PATIENCE, "the queue is never empty: {status:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Every packet that came is sent, dropped for one reason, or waits.
pub fn is_conserved(status: &Status) -> bool {
    let gone = status.sent.pkts + status.dropped.total() + status.unallocated + status.thrown_away;
    status.arrived.pkts == gone + status.qlen_pkts
        && status.arrived.bytes == status.sent.bytes + status.lost_bytes + status.qlen_bytes
}

/// TCP, of so many bytes with the Ethernet header and with these flags. Its checksums are wrong, so
/// that nobody answers.
pub fn segment(lan: &Lan, bytes: usize, flags: u8) -> Vec<u8> {
    const TCP: u8 = 6;
    let mut frame = vec![0; bytes.max(ETHERNET_BYTES + IPV4_BYTES + 20)];
    let length = (frame.len() - ETHERNET_BYTES) as u16;
    frame[..6].copy_from_slice(&lan.s0.mac);
    frame[6..12].copy_from_slice(&lan.c0.mac);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut frame[ETHERNET_BYTES..];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&length.to_be_bytes());
    ip[8..10].copy_from_slice(&[64, TCP]);
    ip[12..20].copy_from_slice(&[10, 9, 0, 1, 10, 9, 0, 2]);
    let tcp = &mut ip[IPV4_BYTES..];
    tcp[12..14].copy_from_slice(&[0x50, flags]);
    frame
}

/// A packet socket whose frames go through the qdisc.
pub fn sender(lan: &Lan) -> Tap {
    Tap::open(&lan.client, lan.c0.ifindex).expect("open")
}

/// The kernel says so if the queue was full; the qdisc counted it then.
pub fn send(tap: &Tap, frame: &[u8]) {
    if let Err(error) = tap.send(frame) {
        let is_full = match &error {
            netns::Error::Failed { error, .. } => error.downcast_ref() == Some(&Errno::ENOBUFS),
            _ => false,
        };
        assert!(is_full, "{error}");
    }
}
