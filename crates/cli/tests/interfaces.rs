//! Which interfaces `tidegate guard` keeps to while they come and go.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use crate::common::*;
use netns::Namespace;
use nix::sys::signal::Signal;

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
    /// As what the upper one is made.
    kind: &'static str,
    /// Calls of `ip` in the server's namespace. The first makes it; then s0 gives its address away.
    made_by: &'static [&'static str],
    /// Those that are named; none for all.
    named: &'static [&'static str],
    guarded: &'static [&'static str],
}

/// Connections are counted once each. The lower interface has an address of its own.
#[track_caller]
fn connections_are_counted_once(shared: &Shared) {
    const CONNECTIONS: u64 = 20;
    let Some(world) = World::create() else { return };
    let ip = |line: &str| world.server.ip(&line.split(' ').collect::<Vec<_>>());
    // So that a listener takes what comes by a VRF. A kernel without VRFs has no such switch.
    let _ = world.server.set_sysctl("net.ipv4.tcp_l3mdev_accept", "1");
    if !world.makes(shared.kind, shared.made_by[0]) {
        return;
    }
    let steps = ["addr del 10.8.0.2/24 dev s0", "addr add 10.8.9.2/24 dev s0"];
    steps.iter().chain(&shared.made_by[1..]).for_each(|line| ip(line).expect(line));
    let named: Vec<&str> = shared.named.iter().flat_map(|&name| ["--interface", name]).collect();
    let mut child = world
        .guard(&[&["--json", "--duration", "5m"], &named[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let attached = next_event(&mut lines);
    let hooks = attached["hooks"].as_array().expect("a list");
    let hooks: Vec<&str> = hooks.iter().map(|hook| hook["interface"].as_str().expect("a name")).collect();
    for _ in 0..CONNECTIONS {
        let client = world.connect(PATIENCE).expect("connect");
        drop((client, world.listener.accept().expect("accept")));
    }
    signal(&child, Signal::SIGTERM);
    let counts = std::iter::repeat_with(|| next_event(&mut lines)).find(|line| line["event"] == "final");
    let said = stderr(&child.wait_with_output().expect("wait"));
    assert_eq!(counts.expect("it ends")["syns"]["seen"], CONNECTIONS, "on {hooks:?}: {said}");
    assert_eq!(
        hooks.iter().filter(|&&name| name != "lo").collect::<Vec<_>>(),
        shared.guarded.iter().collect::<Vec<_>>()
    );
    let is_left_out = shared.named.len() > shared.guarded.len();
    assert_eq!(said.contains("is not guarded besides"), is_left_out, "{said}");
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
        connections_are_counted_once(&Shared { kind: "bridge", made_by, named, guarded });
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
        connections_are_counted_once(&Shared { kind: "bond", made_by, named, guarded });
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
    connections_are_counted_once(&Shared { kind: "vrf", made_by, named: &[], guarded: &["s0", "vrf0"] });
}

#[test]
fn root_macvlan_is_guarded_beside_its_lower_interface_only_with_an_address_of_its_own() {
    let with_mode = |made_by, guarded| Shared { kind: "macvlan", made_by, named: &[], guarded };
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
        &["m0", "s0"],
    ));
}
