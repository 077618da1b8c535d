//! The qdisc in the running kernel: it carries traffic, loses nothing untold, and comes and goes
//! cleanly.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::common::{
    add, drained, is_conserved, lan, protection, segment, send, sender, setup, shaped, show,
};
use aqm::DropReason;
use netns::{Lan, Namespace};

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// What tc says of the root qdisc of `c0`.
fn root(lan: &Lan) -> String {
    let output = lan.client.command("tc").expect("command").args(["qdisc", "show", "dev", "c0"]).output();
    String::from_utf8_lossy(&output.expect("tc").stdout).trim().to_owned()
}

fn del(lan: &Lan) -> qdisc::Result<qdisc::Status> {
    lan.client.enter(|| qdisc::del("c0")).expect("enter")
}

fn transfer(lan: &Lan, bytes: usize) {
    let address = (Lan::SERVER[0], 8080);
    let listener = lan.server.enter(|| TcpListener::bind(address)).expect("enter").expect("bind");
    let data: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let received = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut received = Vec::new();
            listener.accept().expect("accept").0.read_to_end(&mut received).expect("read");
            received
        });
        let mut client = lan.client.enter(|| TcpStream::connect(address)).expect("enter").expect("connect");
        client.write_all(&data).expect("write");
        drop(client);
        server.join().expect("the server")
    });
    assert!(received == data, "{} bytes of {bytes} came, or others", received.len());
}

#[test]
fn root_ten_mebibytes_come_through_as_they_were_sent() {
    let Some(lan) = lan() else { return };
    const BYTES: usize = 10 << 20;
    for setup in [setup("redfavor"), shaped("redfavor:rate=100Mbit")] {
        add(&lan, &setup).expect("add");
        transfer(&lan, BYTES);
        let status = drained(&lan);
        assert!(status.sent.bytes > BYTES as u64, "they went through this queue: {status:?}");
        assert!(protection(&status).arrived_protected > 0, "the SYN was seen: {status:?}");
        assert!(is_conserved(&status), "{status:?}");
        del(&lan).expect("del");
    }
}

#[test]
fn root_flood_is_conserved() {
    let Some(lan) = lan() else { return };
    const FRAMES: u64 = 4000;
    add(&lan, &shaped("redfavor:limit=100,min=5,max=15,w=0.02,rate=20Mbit")).expect("add");
    let before = netns::link_counters(&lan.server, "s0").expect("counters").received;
    let idle = show(&lan);
    let tap = sender(&lan);
    for number in 0..FRAMES {
        let is_syn = number % 4 == 0;
        send(&tap, &segment(&lan, if is_syn { 60 } else { 1000 }, if is_syn { SYN } else { ACK }));
    }
    let status = drained(&lan);
    let received = netns::link_counters(&lan.server, "s0").expect("counters").received - before;
    assert!(status.arrived.pkts - idle.arrived.pkts >= FRAMES, "{status:?}");
    let protected = protection(&status);
    assert_eq!(protected.arrived_protected, FRAMES / 4);
    assert!(is_conserved(&status), "{status:?}");
    assert_eq!(received, status.sent.pkts - idle.sent.pkts, "what was sent came");
    assert!(status.dropped[DropReason::PushedOut] > 0, "{status:?}");
    let standard = status.arrived.pkts - protected.arrived_protected;
    let share = |dropped: u64, all: u64| dropped as f64 / all as f64;
    let dropped_standard = status.dropped.total() - protected.dropped_protected;
    assert!(
        share(protected.dropped_protected, FRAMES / 4) < share(dropped_standard, standard),
        "SYNs were protected: {status:?}"
    );
}

#[test]
fn root_syn_pushes_out_the_last_packet_of_a_full_queue_and_goes_first() {
    let Some(lan) = lan() else { return };
    // As good as no RED, and so slow that nothing leaves meanwhile but the first.
    add(&lan, &shaped("redfavor:limit=4,min=1,max=4,w=0.0000001,rate=1kbit,guard=off")).expect("add");
    let tap = sender(&lan);
    for bytes in [1000, 1001, 1002, 1003, 1004, 1005] {
        send(&tap, &segment(&lan, bytes, ACK));
    }
    send(&tap, &segment(&lan, 60, SYN));
    let status = show(&lan);
    assert_eq!(
        (status.dropped[DropReason::PushedOut], protection(&status).dropped_protected),
        (1, 0),
        "{status:?}"
    );
    assert_eq!((status.qlen_pkts, protection(&status).protected_qlen_pkts), (4, 1), "{status:?}");
    assert!(status.dropped[DropReason::Tail] >= 1, "{status:?}");
    assert!(is_conserved(&status), "{status:?}");
    lan.client.ip(&["link", "set", "c0", "down"]).expect("down");
    let status = show(&lan);
    assert_eq!((status.qlen_pkts, status.thrown_away), (0, 4), "{status:?}");
    assert!(is_conserved(&status), "{status:?}");
}

/// An Ethernet frame around IPv6 with that next header.
fn ipv6(lan: &Lan, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = [lan.s0.mac, lan.c0.mac].concat();
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, payload.len() as u8, next_header, 64]);
    for last in [1, 2] {
        frame.extend([0xfd, 0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend(payload);
    frame
}

#[test]
fn root_packets_that_open_are_known_behind_every_ip_header() {
    const TCP: u8 = 6;
    const SCTP: u8 = 132;
    const FRAGMENT: u8 = 44;
    let Some(lan) = lan() else { return };
    add(&lan, &setup("redfavor:protect=tcp+sctp")).expect("add");
    let tap = sender(&lan);
    let tcp = |flags| [&[0; 12][..], &[0x50, flags], &[0; 6]].concat();
    let sctp = |chunk| [&[0; 12][..], &[chunk, 0, 0, 20], &[0; 16]].concat();
    // Hop-by-hop options (0) of 8 bytes before destination options (60) of 16.
    let behind = |header: &[u8]| [&[60, 0, 1, 4, 0, 0, 0, 0, TCP, 1][..], &[0; 14], header].concat();
    let ipv4 = |at: usize, byte| {
        let mut frame = segment(&lan, 60, SYN);
        frame[14 + at] = byte;
        frame
    };
    let cases = [
        ("SYN in IPv6", ipv6(&lan, TCP, &tcp(SYN)), true),
        ("ACK in IPv6", ipv6(&lan, TCP, &tcp(ACK)), false),
        ("SYN behind extensions", ipv6(&lan, 0, &behind(&tcp(SYN))), true),
        ("ACK behind extensions", ipv6(&lan, 0, &behind(&tcp(ACK))), false),
        (
            "fragment in IPv6",
            ipv6(&lan, FRAGMENT, &[&[TCP, 0, 0, 1, 0, 0, 0, 7], &tcp(SYN)[..]].concat()),
            false,
        ),
        ("INIT of SCTP", ipv6(&lan, SCTP, &sctp(1)), true),
        ("data of SCTP", ipv6(&lan, SCTP, &sctp(0)), false),
        ("header that is cut off", ipv6(&lan, TCP, &tcp(SYN)[..8]), false),
        ("SYN in IPv4", ipv4(0, 0x45), true),
        ("later fragment in IPv4", ipv4(7, 0x10), false),
        ("UDP in IPv4", ipv4(9, 17), false),
    ];
    for (name, frame, is_protected) in cases {
        let arrived = || protection(&show(&lan)).arrived_protected;
        let before = arrived();
        send(&tap, &frame);
        assert_eq!(arrived() - before, u64::from(is_protected), "{name}");
    }
}

#[test]
fn root_qdisc_is_there_until_it_is_removed_and_leaves_nothing() {
    let Some(lan) = lan() else { return };
    let before = root(&lan);
    let added = add(&lan, &setup("redfavor:limit=100,min=5,max=15")).expect("add");
    assert!(added.config.starts_with("redfavor:limit=100,min=5,max=15,"), "{}", added.config);
    assert!(root(&lan).starts_with("qdisc redfavor "), "{}", root(&lan));
    let names = |lan: &Lan| -> Vec<String> {
        let all = lan.client.enter(qdisc::all).expect("enter").expect("all");
        all.into_iter().map(|status| status.interface).collect()
    };
    assert_eq!(names(&lan), ["c0"]);
    assert_eq!(lan.server.enter(qdisc::all).expect("enter").expect("all").len(), 0, "of this namespace only");
    let again = add(&lan, &setup("redfavor")).expect_err("there is one").to_string();
    assert!(again.starts_with("c0 has redfavor already"), "{again}");
    // The name is not known any more, so that nobody makes a second one with the same maps.
    let by_tc = lan.client.tc(&["qdisc", "replace", "dev", "lo", "root", "redfavor"]);
    assert!(by_tc.is_err(), "{by_tc:?}");
    del(&lan).expect("del");
    assert_eq!(root(&lan), before, "the kernel's default again");
    assert_eq!(names(&lan), Vec::<String>::new());
    let error = del(&lan).expect_err("there is none").to_string();
    assert!(error.starts_with("c0 has no queue discipline of ours"), "{error}");
}

#[test]
fn root_qdisc_of_others_is_replaced_only_if_asked() {
    let Some(lan) = lan() else { return };
    lan.client.tc(&["qdisc", "add", "dev", "c0", "root", "pfifo", "limit", "77"]).expect("pfifo");
    let refused = add(&lan, &setup("redfavor")).expect_err("there is another").to_string();
    assert!(refused.contains("pfifo") && refused.contains("--replace"), "{refused}");
    assert!(root(&lan).contains("limit 77p"), "it is still there: {}", root(&lan));
    let status = add(&lan, &qdisc::Setup { is_replacing: true, ..setup("redfavor") }).expect("add");
    assert!(status.replaced.as_deref().is_some_and(|text| text.contains("limit 77p")), "{status:?}");
    assert_eq!(del(&lan).expect("del").replaced, status.replaced, "and says so at the end");
}

#[test]
fn root_interface_that_goes_takes_the_qdisc_with_it() {
    let Some(lan) = lan() else { return };
    add(&lan, &setup("redfavor")).expect("add");
    lan.client.ip(&["link", "del", "c0"]).expect("delete");
    let error = lan.client.enter(|| qdisc::show("c0")).expect("enter").expect_err("it is gone").to_string();
    assert!(error.starts_with("no interface \"c0\""), "{error}");
    // Another one with its number is not taken for it, and what was kept is swept away.
    let index = lan.c0.ifindex.to_string();
    lan.client
        .ip(&["link", "add", "c0", "index", &index, "type", "veth", "peer", "name", "c1"])
        .expect("add");
    assert_eq!(lan.client.enter(qdisc::all).expect("enter").expect("all").len(), 0);
    lan.client.enter(|| qdisc::add("c0", &setup("redfavor"))).expect("enter").expect("add");
    lan.client.enter(|| qdisc::del("c0")).expect("enter").expect("del");
}

#[test]
fn root_two_interfaces_have_a_queue_each() {
    let Some(lan) = lan() else { return };
    add(&lan, &shaped("redfavor:rate=1Mbit")).expect("add");
    let there = lan.server.enter(|| qdisc::add("s0", &setup("redfavor:min=7"))).expect("enter").expect("add");
    assert!(there.config.contains("min=7,"), "{there:?}");
    let before = there.arrived.pkts;
    send(&sender(&lan), &segment(&lan, 60, SYN));
    assert_eq!(protection(&drained(&lan)).arrived_protected, 1);
    let there = lan.server.enter(|| qdisc::show("s0")).expect("enter").expect("there is one");
    assert_eq!(protection(&there).arrived_protected, 0, "{before} before: {there:?}");
}

#[test]
fn root_kernel_without_bpf_qdiscs_is_said_in_a_line_and_nothing_is_changed() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    if qdisc::support().is_ok() {
        return;
    }
    let here = Namespace::create("here").expect("create");
    let error =
        here.enter(|| qdisc::add("lo", &setup("redfavor"))).expect("enter").expect_err("there are none");
    let text = format!("{error:#}");
    assert!(
        text.starts_with("this kernel has no BPF queue disciplines, which Linux 6.16 and newer have"),
        "{text}"
    );
    assert!(!text.contains('\n'), "{text}");
    let shown =
        here.command("tc").expect("command").args(["qdisc", "show", "dev", "lo"]).output().expect("tc");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("noqueue"), "{shown:?}");
}

#[test]
fn interface_that_is_not_there_is_said() {
    for act in [qdisc::show as fn(&str) -> qdisc::Result<qdisc::Status>, qdisc::del] {
        let error = act("no-such-if").expect_err("it is not there").to_string();
        assert_eq!(error, "no interface \"no-such-if\" in this network namespace; `ip link` lists them");
    }
    assert!(qdisc::add("no-such-if", &setup("redfavor")).is_err());
}
