//! Which interfaces `tidegate guard` keeps to while they come and go.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::common::*;
use netns::Namespace;
use nix::sys::signal::Signal;
use serde_json::Value;

#[test]
fn root_interface_that_was_gone_is_guarded_again() {
    interface_is_guarded_again("auto");
}

#[test]
fn root_interface_that_was_gone_is_guarded_again_at_xdp() {
    interface_is_guarded_again("xdp-generic");
}

fn interface_is_guarded_again(attach: &str) {
    let Some(world) = World::create() else { return };
    let add = || world.server.ip(&["link", "add", "x0", "type", "veth", "peer", "name", "x1"]).expect("add");
    add();
    // For so long, so that a line that never comes is a failure.
    let arguments =
        ["--attach", attach, "--interface", "s0", "--interface", "x0", "--json", "--duration", "5m"];
    let mut child =
        world.guard(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    // A full pipe would keep the complaints back.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    let mut complaints = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut said = |what: &str| {
        let line = complaints.next().expect("a line").expect("text");
        assert!(line.contains(what), "{line}");
    };
    world.server.ip(&["link", "del", "x0"]).expect("delete");
    said("interface x0 is gone");
    add();
    said("interface x0 is back, and guarded again");
    // Links go along with an interface.
    let other = Namespace::create("other").expect("create other");
    let has_xdp = |namespace| link_details(namespace, "x0").contains("xdp");
    assert!(has_xdp(&world.server) || attach == "auto", "it is there");
    world.server.ip(&["link", "set", "x0", "netns", other.name()]).expect("move");
    said("interface x0 is gone");
    assert!(!has_xdp(&other), "nothing stays on it");
    other.ip(&["link", "set", "x0", "netns", world.server.name()]).expect("move back");
    said("interface x0 is back, and guarded again");
    world.server.ip(&["link", "del", "x1"]).expect("delete");
    said("interface x0 is gone");
    add();
    said("interface x0 is back, and guarded again");
    world.server.ip(&["link", "set", "x0", "name", "y0"]).expect("rename");
    std::thread::sleep(Duration::from_millis(1500));
    // A new name is no reason to end, and another with the old one is what was meant.
    world.server.ip(&["link", "add", "x0", "type", "veth", "peer", "name", "x2"]).expect("add");
    said("interface x0 is another one now, and guarded");
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().expect("wait").success());
}

#[test]
fn root_interfaces_are_followed_unless_others_were_named() {
    let Some(world) = World::create() else { return };
    let ip = |arguments: &[&str]| world.server.ip(arguments).expect("ip");
    let expected = [
        "tidegate: interface x0 has come up, and is guarded, too",
        "tidegate: interface x0 is gone, or down, or without an address: guarded no more",
        "tidegate: interface y0 has come up, and is guarded, too",
        "tidegate: interface y0 is gone, or down, or without an address: guarded no more",
    ];
    for (arguments, is_followed) in [(&[][..], true), (&["--interface", "s0"], false)] {
        let mut command = world.guard(&["--json", "--duration", "5m"]);
        let command = command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("start tidegate");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        assert_eq!(next_event(&mut lines)["event"], "attached");
        // What is said once is said in the next turn, or in the one after it.
        let mut turns = || (0..3).for_each(|_| drop(next_event(&mut lines)));
        ip(&["link", "add", "x0", "type", "veth", "peer", "name", "x1"]);
        ip(&["addr", "add", "10.8.1.2/24", "dev", "x0"]);
        ip(&["link", "set", "x0", "up"]);
        turns();
        ip(&["link", "set", "x0", "down"]);
        turns();
        ip(&["link", "set", "x0", "name", "y0"]);
        ip(&["link", "set", "y0", "up"]);
        turns();
        ip(&["link", "del", "y0"]);
        turns();
        signal(&child, Signal::SIGTERM);
        let output = child.wait_with_output().expect("wait");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let said: Vec<&str> = said.lines().collect();
        assert_eq!(said, if is_followed { &expected[..] } else { &[] });
    }
}

/// Interfaces that get the same frames, and which of them the guard takes.
struct Shared {
    /// Calls of `ip` in the server's namespace. s0 gives its address away after the first.
    made_by: &'static [&'static str],
    /// The same in the client's namespace.
    client: &'static [&'static str],
    /// Those that are named; none for all.
    named: &'static [&'static str],
    guarded: &'static [&'static str],
}

/// Connections are counted once each. The lower interface has an address of its own. The result is
/// what the guard counted, unless there is no such interface here.
#[track_caller]
fn connections_are_counted_once(shared: &Shared) -> Option<Value> {
    const CONNECTIONS: u64 = 20;
    syns_are_counted_once(shared, &[], |world| {
        for _ in 0..CONNECTIONS {
            let client = world.connect(PATIENCE).expect("connect");
            drop((client, world.listener.accept().expect("accept")));
        }
        CONNECTIONS
    })
}

/// The same for SYNs that `send` sends; it gives their number.
#[track_caller]
fn syns_are_counted_once(shared: &Shared, arguments: &[&str], send: impl Fn(&World) -> u64) -> Option<Value> {
    let world = World::create()?;
    let ip = |namespace: &Namespace, line: &str| {
        namespace.ip(&line.split(' ').collect::<Vec<_>>()).expect(line);
    };
    // So that a listener takes what comes by a VRF. A kernel without VRFs has no such switch.
    let _ = world.server.set_sysctl("net.ipv4.tcp_l3mdev_accept", "1");
    // So that none has an address but those given here.
    let _ = world.server.set_sysctl("net.ipv6.conf.default.disable_ipv6", "1");
    let (first, then) = shared.made_by.split_first().expect("a call");
    let gives_away = ["addr del 10.8.0.2/24 dev s0", "addr add 10.8.9.2/24 dev s0"];
    for line in std::iter::once(first).chain(&gives_away).chain(then) {
        match line.split_once(" type ") {
            Some((_, made)) if !world.makes(made.split(' ').next().expect("a kind"), line) => return None,
            Some(_) => {}
            None => ip(&world.server, line),
        }
    }
    shared.client.iter().for_each(|line| ip(&world.client, line));
    let named: Vec<&str> = shared.named.iter().flat_map(|&name| ["--interface", name]).collect();
    let mut child = world
        .guard(&[&["--json", "--duration", "5m"], &named[..], arguments].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let attached = next_event(&mut lines);
    let hooks = attached["hooks"].as_array().expect("a list");
    let hooks: Vec<&str> = hooks.iter().map(|hook| hook["interface"].as_str().expect("a name")).collect();
    let sent = send(&world);
    signal(&child, Signal::SIGTERM);
    let counts = std::iter::repeat_with(|| next_event(&mut lines)).find(|line| line["event"] == "final");
    let said = stderr(&child.wait_with_output().expect("wait"));
    assert_eq!(counts.as_ref().expect("it ends")["syns"]["seen"], sent, "on {hooks:?}: {said}");
    assert_eq!(
        hooks.iter().filter(|&&name| name != "lo").collect::<Vec<_>>(),
        shared.guarded.iter().collect::<Vec<_>>()
    );
    let is_left_out = shared.named.len() > shared.guarded.len();
    assert_eq!(said.contains("is not guarded besides"), is_left_out, "{said}");
    counts
}

#[test]
fn root_port_is_not_guarded_beside_its_bridge() {
    let made_by = &[
        "link add br0 type bridge",
        "link set s0 master br0",
        "addr add 10.8.0.2/24 dev br0",
        "link set br0 up",
    ];
    for (named, guarded) in [(&[][..], &["br0"]), (&["s0", "br0"], &["br0"]), (&["s0"], &["s0"])] {
        connections_are_counted_once(&Shared { made_by, named, guarded, client: &[] });
    }
}

#[test]
fn root_port_is_not_guarded_beside_its_bond() {
    let made_by = &[
        "link add bond0 type bond mode active-backup",
        "link set s0 down",
        "link set s0 master bond0",
        "addr replace 10.8.9.2/24 dev s0",
        "addr add 10.8.0.2/24 dev bond0",
        "link set bond0 up",
    ];
    for (named, guarded) in [(&[][..], &["bond0"]), (&["bond0", "s0"], &["bond0"])] {
        connections_are_counted_once(&Shared { made_by, named, guarded, client: &[] });
    }
}

#[test]
fn root_interface_of_a_vrf_is_guarded_beside_it() {
    let made_by = &[
        "link add vrf0 type vrf table 10",
        "addr add 127.0.0.1/8 dev vrf0",
        "link set vrf0 up",
        "link set s0 master vrf0",
        "addr add 10.8.0.2/24 dev s0",
    ];
    connections_are_counted_once(&Shared { made_by, named: &[], guarded: &["s0", "vrf0"], client: &[] });
}

#[test]
fn root_macvlan_is_guarded_beside_its_lower_interface_only_with_an_address_of_its_own() {
    let with_mode = |made_by, guarded| Shared { made_by, named: &[], guarded, client: &[] };
    connections_are_counted_once(&with_mode(
        &[
            "link add link s0 name m0 type macvlan mode passthru",
            "addr add 10.8.0.2/24 dev m0",
            "link set m0 up",
        ],
        &["s0"],
    ));
    connections_are_counted_once(&with_mode(
        &[
            "link add link s0 name m0 type macvlan mode bridge",
            "addr add 10.8.0.2/24 dev m0",
            "link set m0 up",
        ],
        &["s0", "m0"],
    ));
}

/// Both have frames of their own: s0 those without a tag, br0 those of its other ports.
const BRIDGE_ABOVE_A_VLAN: Shared = Shared {
    made_by: &[
        "link add br0 type bridge",
        "link add link s0 name s0.10 type vlan id 10",
        "link set s0.10 master br0",
        "link set s0.10 up",
        "addr add 10.8.0.2/24 dev br0",
        "link set br0 up",
    ],
    client: &[
        "addr del 10.8.0.1/24 dev c0",
        "link add link c0 name c0.10 type vlan id 10",
        "addr add 10.8.0.1/24 dev c0.10",
        "link set c0.10 up",
    ],
    named: &[],
    guarded: &["br0", "s0"],
};

/// Each frame came to each of the two.
fn comes_again(shared: &Shared) {
    if let Some(counts) = connections_are_counted_once(shared) {
        assert_eq!(counts["passed"]["again"], counts["syns"]["seen"], "{counts}");
    }
}

/// The same frames, where a kernel has no VLANs.
const BRIDGE_ABOVE_A_MACVLAN: Shared = Shared {
    made_by: &[
        "link add m0 link s0 type macvlan mode passthru",
        "link add br0 type bridge",
        "link set m0 master br0",
        "link set m0 up",
        "addr add 10.8.0.2/24 dev br0",
        "link set br0 up",
    ],
    client: &[],
    named: &[],
    guarded: &["br0", "s0"],
};

#[test]
fn root_syn_that_comes_by_a_macvlan_to_a_bridge_is_counted_once() {
    comes_again(&BRIDGE_ABOVE_A_MACVLAN);
    comes_again(&Shared { named: &["br0", "s0"], ..BRIDGE_ABOVE_A_MACVLAN });
}

#[test]
fn root_syn_that_comes_by_a_vlan_to_a_bridge_is_counted_once() {
    comes_again(&BRIDGE_ABOVE_A_VLAN);
    comes_again(&Shared { named: &["br0", "s0"], ..BRIDGE_ABOVE_A_VLAN });
}

#[test]
fn root_syn_that_comes_by_a_bond_and_a_vlan_to_a_bridge_is_counted_once() {
    comes_again(&Shared {
        made_by: &[
            "link add bond0 type bond mode active-backup",
            "link set s0 down",
            "link set s0 master bond0",
            "addr add 10.8.9.3/24 dev bond0",
            "link set bond0 up",
            "link add br0 type bridge",
            "link add link bond0 name bond0.10 type vlan id 10",
            "link set bond0.10 master br0",
            "link set bond0.10 up",
            "addr add 10.8.0.2/24 dev br0",
            "link set br0 up",
        ],
        guarded: &["bond0", "br0"],
        ..BRIDGE_ABOVE_A_VLAN
    });
}

#[test]
fn root_syn_with_two_tags_is_counted_once() {
    comes_again(&Shared {
        made_by: &[
            "link add link s0 name s0.10 type vlan id 10",
            "link set s0.10 up",
            "link add link s0.10 name s0.10.20 type vlan id 20",
            "addr add 10.8.0.2/24 dev s0.10.20",
            "link set s0.10.20 up",
        ],
        client: &[
            "addr del 10.8.0.1/24 dev c0",
            "link add link c0 name c0.10 type vlan id 10",
            "link set c0.10 up",
            "link add link c0.10 name c0.10.20 type vlan id 20",
            "addr add 10.8.0.1/24 dev c0.10.20",
            "link set c0.10.20 up",
        ],
        guarded: &["s0", "s0.10.20"],
        ..BRIDGE_ABOVE_A_VLAN
    });
}

/// In a dry run the kernel drops what finds the queue full, and the client sends it again.
#[test]
fn root_syn_that_the_client_repeats_is_counted_again_below_a_bridge() {
    const REPETITIONS: u64 = 1;
    let counts = syns_are_counted_once(&BRIDGE_ABOVE_A_MACVLAN, &["--dry-run"], |world| {
        world.client.set_sysctl("net.ipv4.tcp_syn_retries", &REPETITIONS.to_string()).expect("sysctl");
        // From Linux 6.5; these come before.
        let _ = world.client.set_sysctl("net.ipv4.tcp_syn_linear_timeouts", "0");
        let mut streams = Vec::new();
        while let Ok(stream) = world.connect(PATIENCE) {
            streams.push(stream);
        }
        streams.len() as u64 + 1 + REPETITIONS
    });
    let Some(counts) = counts else { return };
    assert_eq!(counts["passed"]["again"], counts["syns"]["seen"], "{counts}");
}
