//! Where the programs of `tidegate guard` hang, and which others come before them.

use std::ffi::CStr;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::common::*;
use bpf::{Hook, Link};
use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;
use serde_json::Value;

/// To the kernel, past every later program at tcx.
const TCX_PASS: u64 = 0;
const XDP_PASS: u64 = 2;

/// A program of this name that does the same with every frame.
fn constant(hook: Hook, name: &CStr, value: u64) -> std::os::fd::OwnedFd {
    bpf::program(hook, name, &[value << 32 | 0xb7, 0x95]).expect("load a program")
}

impl World {
    fn index_of_s0(&self) -> u32 {
        self.server.enter(|| if_nametoindex("s0")).expect("enter").expect("s0")
    }

    /// `None`, with the reason printed, where the kernel has no tcx.
    fn with_tcx() -> Option<Self> {
        let world = Self::create()?;
        let s0 = world.index_of_s0();
        if world.server.enter(|| bpf::count_tcx_ingress(s0)).expect("enter").is_err() {
            eprintln!("skipped: no tcx in this kernel (Linux 6.6 and newer)");
            return None;
        }
        Some(world)
    }

    /// Attaches it to s0 by `attach`.
    fn attach<E: std::fmt::Debug + Send>(&self, attach: impl FnOnce(u32) -> Result<Link, E> + Send) -> Link {
        let s0 = self.index_of_s0();
        self.server.enter(|| attach(s0)).expect("enter").expect("attach")
    }

    /// A client that comes and goes.
    fn visit(&self) {
        let client = self.connect(PATIENCE).expect("connect");
        drop((client, self.listener.accept().expect("accept")));
    }
}

fn start(mut guard: Command) -> (Child, BufReader<ChildStdout>, impl Iterator<Item = String>) {
    let mut child = guard
        .args(["--json", "--duration", "5m"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let lines = BufReader::new(child.stdout.take().expect("piped"));
    let said = BufReader::new(child.stderr.take().expect("piped")).lines();
    (child, lines, said.map(|line| line.expect("text")))
}

fn next_attached(lines: &mut BufReader<ChildStdout>) -> Value {
    std::iter::repeat_with(|| next_event(lines))
        .find(|line| line["event"] == "attached")
        .expect("it is there")
}

#[test]
fn root_hook_is_tcx_unless_another_is_named() {
    let Some(world) = World::with_tcx() else { return };
    // Its driver has native XDP, and is no veth.
    if !world.makes("tap", "tuntap add mode tap name t0") {
        return;
    }
    world.server.ip(&["link", "set", "t0", "up"]).expect("up");
    for (arguments, hook) in [(&[][..], "tcx"), (&["--attach", "xdp"], "xdp")] {
        let guard = world.guard(&[&["--interface", "t0"], arguments].concat());
        let (child, mut lines, _) = start(guard);
        assert_eq!(next_event(&mut lines)["hooks"][0]["hook"], hook, "{arguments:?}");
        ended_in_order(child, Signal::SIGTERM);
    }
}

#[test]
fn root_guard_comes_first_and_says_who_comes_before_it() {
    let Some(world) = World::with_tcx() else { return };
    let tcx = Hook::TcxIngress;
    let [first, later] = [c"was_there", c"cuts_in"].map(|name| constant(tcx, name, TCX_PASS));
    let xdp = constant(Hook::XdpNative, c"in_the_driver", XDP_PASS);
    let _first = world.attach(|s0| Link::attach(first.as_fd(), s0, tcx));
    let (child, mut lines, mut said) = start(world.guard(&["--interface", "s0"]));
    let nobody = next_attached(&mut lines);
    drop(world.fill());
    assert_eq!(nobody["hooks"][0]["before"], Value::Array(Vec::new()));

    let later_link = world.attach(|s0| Link::attach_first(later.as_fd(), s0, tcx));
    let id = bpf::program_id(later.as_fd()).expect("its number");
    let line = said.next().expect("a line");
    assert!(line.contains(&format!("before the guard's program at s0: cuts_in (id {id}, tcx)")), "{line}");
    let one = serde_json::json!({ "hook": "tcx", "id": id, "name": "cuts_in" });
    assert_eq!(next_attached(&mut lines)["hooks"][0]["before"], Value::Array(vec![one.clone()]));

    let _xdp_link = world.attach(|s0| Link::attach(xdp.as_fd(), s0, Hook::XdpNative));
    let line = said.next().expect("a line");
    assert!(line.contains("at s0: in_the_driver (id ") && line.contains(", xdp), cuts_in"), "{line}");
    let both = next_attached(&mut lines);
    assert_eq!(
        (&both["hooks"][0]["before"][0]["hook"], &both["hooks"][0]["before"][1]),
        (&"xdp".into(), &one)
    );

    drop((later_link, _xdp_link));
    let line = said.next().expect("a line");
    assert!(line.contains("no other program is before the guard's at s0 any more"), "{line}");
    ended_in_order(child, Signal::SIGTERM);
}

#[test]
fn root_connections_that_the_guard_does_not_see_are_said_once_and_others_are_not_taken_for_them() {
    let Some(world) = World::with_tcx() else { return };
    let other_port = world.server.enter(|| TcpListener::bind("10.8.0.2:8081")).expect("enter").expect("bind");
    let cuts_in = constant(Hook::TcxIngress, c"cuts_in", TCX_PASS);
    let (child, mut lines, mut said) = start(world.guard(&["--interface", "s0"]));
    next_attached(&mut lines);
    let mut looks = |count: u32| (0..count).for_each(|_| drop(next_event(&mut lines)));
    // By the loopback, which is not guarded; to another port; and as it should be.
    let mut kept = Vec::new();
    for _ in 0..5 {
        let from_here = || TcpStream::connect(ADDRESS).expect("connect");
        kept.push(world.server.enter(from_here).expect("enter"));
        kept.push(world.listener.accept().expect("accept").0);
        let to_other = || TcpStream::connect("10.8.0.2:8081").expect("connect");
        kept.push(world.client.enter(to_other).expect("enter"));
        kept.push(other_port.accept().expect("accept").0);
        looks(1);
    }
    world.visit();
    looks(2);
    let _cuts_in = world.attach(|s0| Link::attach_first(cuts_in.as_fd(), s0, Hook::TcxIngress));
    let line = said.next().expect("a line");
    assert!(line.contains("before the guard's program at s0: cuts_in"), "nothing before it: {line}");
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| {
            let mut kept = Vec::new();
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                kept.push((world.connect(PATIENCE), world.listener.accept().expect("accept")));
                std::thread::sleep(std::time::Duration::from_millis(300));
            }
        });
        let line = said.next().expect("a line");
        assert!(
            line.contains("connections have come to 10.8.0.2:8080, one of them from 10.8.0.1, and no SYN of theirs by s0"),
            "{line}"
        );
        looks(5);
    });
    ended_in_order(child, Signal::SIGTERM);
    assert_eq!(said.next(), None, "once");
}

#[test]
fn root_clients_that_come_by_another_interface_are_said() {
    let Some(world) = World::create() else { return };
    world.server.ip(&["link", "add", "x0", "type", "veth", "peer", "name", "x1"]).expect("add");
    let (child, mut lines, mut said) = start(world.guard(&["--interface", "x0"]));
    next_attached(&mut lines);
    // A look, so that those that come are new.
    next_event(&mut lines);
    // They fill the queue, and nobody takes them.
    let _waiting: Vec<TcpStream> = (0..2).map(|_| world.connect(PATIENCE).expect("there is room")).collect();
    let line = said.next().expect("a line");
    assert!(line.contains("2 connections have come to 10.8.0.2:8080") && line.contains("by x0"), "{line}");
    let mut looks = std::iter::repeat_with(|| next_event(&mut lines));
    assert!(looks.any(|line| line["blind"] == true), "the lines end if it never is");
    ended_in_order(child, Signal::SIGTERM);
}
