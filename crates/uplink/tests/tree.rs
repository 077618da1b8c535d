//! The queue disciplines: made, shared, left behind, removed.

use std::thread::sleep;
use std::time::Duration;

use uplink::{Error, Order, Setup, Uplink};

use crate::world::{ADDRESSES, IF, World, http, packets, sent, setup};

#[test]
fn root_interface_is_as_before_when_it_ends() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let before = world.qdiscs();
        let uplink = Uplink::start(&setup()).expect("start");
        let during = world.qdiscs();
        assert!(during.contains("tbf 7466: root") && during.contains("htb 7467: parent 7466:1"), "{during}");
        drop(uplink);
        assert_eq!(world.qdiscs(), before);
    });
}

#[test]
fn root_without_a_lease_all_is_one_fifo_and_arrives() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let lease = Duration::from_millis(500);
        let mut uplink = Uplink::start(&Setup { lease, ..setup() }).expect("start");
        let mut connection = world.connect(ADDRESSES[0]);
        // As if the process were stopped.
        sleep(lease + Duration::from_millis(100));
        let before = packets(&uplink);
        connection.exchange(&http(60_000, 60_000));
        let after = packets(&uplink);
        let others = after.len() - 1;
        assert_eq!(after[..others], before[..others], "nothing is placed");
        assert!(after[others] > before[others]);
        uplink.renew().expect("renew");
        connection.exchange(&http(60_000, 60_000));
        assert!(
            packets(&uplink)[..others].iter().sum::<u64>() > before[..others].iter().sum(),
            "and it goes on"
        );
    });
}

#[test]
fn root_tree_that_was_left_behind_is_replaced() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        // As after kill -9: its qdiscs and the filter stay.
        for class in ["7467: htb default 10", "7466: tbf rate 1mbit burst 1522 limit 9999"] {
            let words: Vec<&str> = class.split(' ').collect();
            let command = [&["qdisc", "replace", "dev", IF, "root", "handle"][..], &words].concat();
            world.server.tc(&command).expect("leave it behind");
        }
        let mut uplink =
            Uplink::start(&Setup { cutoffs: Some(vec![1_000]), ..setup() }).expect("start again");
        assert_eq!(packets(&uplink).len(), 3);
        world.connect(ADDRESSES[0]).exchange(&http(5_000, 5_000));
        assert_eq!(sent(&mut uplink, 1).len(), 1);
        drop(uplink);
        assert!(!world.qdiscs().contains("746"), "{}", world.qdiscs());
    });
}

#[test]
fn root_queue_discipline_of_somebody_else_stays_and_can_be_shared() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let tc = |command: &str| {
            let words: Vec<&str> = command.split_whitespace().collect();
            world.server.tc(&words).expect(command);
        };
        tc("qdisc add dev s0 root handle 1: htb default 10");
        tc("class add dev s0 parent 1: classid 1:10 htb rate 20mbit");
        let theirs = world.qdiscs();
        let error = Uplink::start(&setup()).map(drop).expect_err("it is theirs").to_string();
        assert!(error.contains("htb 1: root") && error.contains("--parent"), "{error}");
        assert_eq!(world.qdiscs(), theirs, "nothing was changed");
        for rate_bps in [None, Some(10_000_000)] {
            let below = Setup { parent: Some("1:10".to_owned()), rate_bps, ..setup() };
            let mut uplink = Uplink::start(&below).expect("start");
            world.connect(ADDRESSES[0]).exchange(&http(60_000, 60_000));
            assert_eq!(sent(&mut uplink, 1).len(), 1, "{rate_bps:?}");
            drop(uplink);
            assert_eq!(world.qdiscs(), theirs);
        }
        let nowhere = Setup { parent: Some("1:77".to_owned()), ..setup() };
        let error = Uplink::start(&nowhere).map(drop).expect_err("no such class").to_string();
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(world.qdiscs(), theirs);
    });
}

#[test]
fn root_dry_run_counts_and_changes_nothing() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let before = world.qdiscs();
        let dry = Setup { is_dry_run: true, rate_bps: None, ..setup() };
        let mut uplink = match Uplink::start(&dry) {
            Ok(uplink) => uplink,
            Err(why) if why.to_string().contains("Linux 6.6") => return eprintln!("skipped: {why}"),
            Err(why) => panic!("{why}"),
        };
        assert_eq!(world.qdiscs(), before);
        world.connect(ADDRESSES[0]).exchange(&http(60_000, 60_000));
        let all = sent(&mut uplink, 1);
        assert_eq!(all[0].bytes, http(60_000, 60_000).len() as u64);
    });
}

#[test]
fn root_fair_has_one_band() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let uplink = Uplink::start(&Setup { order: Order::Fair, ..setup() }).expect("start");
        world.connect(ADDRESSES[0]).exchange(&vec![b'x'; 100_000]);
        assert_eq!(packets(&uplink).len(), 2, "one band, and what is not placed");
        assert!(packets(&uplink)[0] >= 69);
    });
}

#[test]
fn root_tree_that_somebody_removes_is_missed() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let uplink = Uplink::start(&setup()).expect("start");
        world.server.tc(&["qdisc", "del", "dev", IF, "root"]).expect("remove it");
        let error = uplink.bands().expect_err("it is gone").to_string();
        assert!(error.contains("somebody has removed"), "{error}");
        drop(uplink);
        assert!(!world.qdiscs().contains("746"));
    });
}

#[test]
fn root_what_cannot_be_is_refused_in_one_line() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let start = |setup: &Setup| Uplink::start(setup).map(drop).expect_err("refused");
        let nowhere = start(&Setup { interface: "nosuch0".to_owned(), ..setup() });
        assert!(nowhere.to_string().starts_with("nosuch0: no such interface; "), "{nowhere}");
        let loopback = start(&Setup { interface: "lo".to_owned(), ..setup() }).to_string();
        assert!(loopback.starts_with("lo carries no Ethernet frames"), "{loopback}");
        let cutoffs = start(&Setup { cutoffs: Some(vec![5, 5]), ..setup() });
        assert!(matches!(cutoffs, Error::Mistaken(_)), "{cutoffs}");
    });
}

#[test]
fn root_second_uplink_on_an_interface_is_refused() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let first = Uplink::start(&setup()).expect("start");
        let during = world.qdiscs();
        let error = Uplink::start(&setup()).map(drop).expect_err("one is at work").to_string();
        assert!(error.contains("another tidegate uplink is at work"), "{error}");
        assert_eq!(world.qdiscs(), during);
        drop(first);
        Uplink::start(&setup()).expect("and now it may");
    });
}

#[test]
fn root_larger_mtu_is_followed() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        let mut uplink = Uplink::start(&setup()).expect("start");
        for (namespace, interface) in world.ends() {
            namespace.ip(&["link", "set", interface, "mtu", "9000"]).expect("set the MTU");
        }
        uplink.follow().expect("follow");
        world.connect(ADDRESSES[0]).exchange(&http(100_000, 100_000));
        assert_eq!(sent(&mut uplink, 1).len(), 1);
    });
}

#[test]
fn root_leaf_that_has_a_queue_discipline_is_left_alone() {
    let Some(world) = World::create() else { return };
    world.run(|| {
        for command in [
            "qdisc add dev s0 root handle 1: htb default 10",
            "class add dev s0 parent 1: classid 1:10 htb rate 20mbit",
            "qdisc add dev s0 parent 1:10 handle 77: bfifo limit 50000",
        ] {
            world.server.tc(&command.split(' ').collect::<Vec<_>>()).expect(command);
        }
        let theirs = world.qdiscs();
        let below = Setup { parent: Some("1:10".to_owned()), ..setup() };
        let error = Uplink::start(&below).map(drop).expect_err("theirs").to_string();
        assert!(error.contains("bfifo 77: below 1:10"), "{error}");
        assert_eq!(world.qdiscs(), theirs);
    });
}
