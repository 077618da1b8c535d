//! Where the programs of `tidegate guard` hang, and which others come before them.

use std::ffi::CStr;
use std::io::{BufRead, BufReader};
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
