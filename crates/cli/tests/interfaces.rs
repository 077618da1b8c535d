//! Which interfaces `tidegate guard` keeps to while they come and go.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
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

#[test]
fn root_full_queue_without_a_syn_says_that_clients_come_elsewhere() {
    let Some(world) = World::create() else { return };
    world.server.ip(&["link", "add", "x0", "type", "veth", "peer", "name", "x1"]).expect("add");
    // Ends by itself if the note never comes.
    let mut child = world
        .guard(&["--interface", "x0", "--json", "--duration", "5m"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start tidegate");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    let _waiting: Vec<TcpStream> = (0..2).map(|_| world.connect(PATIENCE).expect("there is room")).collect();
    let mut errors = BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("read a line");
    assert!(line.contains("no SYN for it has come by x0"), "{line}");
    ended_in_order(child, Signal::SIGTERM);
}
