//! A guard that takes the place of another, on a real kernel.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::common::frame::{Segment, is_reset_to};
use crate::common::*;
use bpf::{AttachError, Hook, Link};
use guard::{Attach, Config, Guard, Listener, Succession};

const LISTEN: &str = "10.9.0.2:8080";

/// One at a time: every guard of this process is what a process is taken over from.
static PROCESS: Mutex<()> = Mutex::new(());

fn the_process() -> MutexGuard<'static, ()> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn config(policy: &str, attach: Attach, take_over: Option<u32>) -> Config {
    Config {
        listeners: vec![Listener::new(LISTEN.parse().expect("address"), policy.parse().expect("policy"))],
        interfaces: vec!["s0".to_owned()],
        attach,
        must_listen: true,
        take_over,
        ..Config::default()
    }
}

#[test]
fn root_new_guard_takes_over_without_letting_a_syn_pass() {
    let _alone = the_process();
    for attach in [Attach::Tcx, Attach::Xdp, Attach::XdpGeneric] {
        let Some(world) = World::create_for(attach) else { return };
        let _peer = world.peer_for(attach);
        let _listener = world.listen(LISTEN);
        let old = world.guard_with(&config("rst-syn", attach, None)).expect("start");
        let _streams = world.fill(&old);
        let before = old.sample().stats;
        let start = || Guard::start(&config("abort+rst-syn", attach, Some(std::process::id())));
        const SYNS: u16 = 2000;
        let new = std::thread::scope(|scope| {
            let taker = scope.spawn(|| world.server.enter(start).expect("enter").expect("take over"));
            let tap = world.tap();
            for port in 0..SYNS {
                let syn = Segment::syn("one of many", GHOST4, SERVER4, PORT);
                tap.send(&syn.with("one of many", |syn| syn.source_port = 1000 + port).to_bytes());
            }
            taker.join().expect("it started")
        });
        assert!(old.guard.is_taken_over() && !new.is_taken_over(), "{attach:?}");
        let sample =
            || world.server.enter(|| new.sample()).expect("enter").expect("sample").listeners[0].stats;
        let total = old.wait("all SYNs", |sample_of_old| {
            sample_of_old.stats.reset - before.reset + sample().reset >= u64::from(SYNS)
        });
        assert_eq!(total.stats.reset - before.reset + sample().reset, u64::from(SYNS), "{attach:?}");
        drop(old);
        let seen = sample().reset;
        let tap = world.tap();
        tap.send(&Segment::syn("after the old one ended", GHOST4, SERVER4, PORT).to_bytes());
        let start = std::time::Instant::now();
        while sample().reset == seen {
            assert!(start.elapsed().as_secs() < 60, "{attach:?}: the new guard is still there");
        }
    }
}

/// Whether a SYN gets a RST. Nothing listens at the marker's port: its RST comes after any other.
fn is_reset(world: &World, source_port: u16) -> bool {
    let tap = world.tap();
    let syn =
        Segment::syn("attempt", GHOST4, SERVER4, PORT).with("attempt", |syn| syn.source_port = source_port);
    let marker = syn.clone().with("marker", |marker| marker.destination_port = CLOSED_PORT);
    tap.send(&syn.to_bytes());
    tap.send(&marker.to_bytes());
    let first = tap.receive("a RST", |frame| is_reset_to(frame, &syn) || is_reset_to(frame, &marker));
    is_reset_to(&first, &syn)
}

fn on(interfaces: &[&str], attach: Attach, take_over: bool) -> Config {
    let interfaces = interfaces.iter().map(|&name| name.to_owned()).collect();
    Config { interfaces, ..config("rst-syn", attach, take_over.then(std::process::id)) }
}

#[test]
fn root_interfaces_may_be_others_or_in_another_order() {
    let _alone = the_process();
    for (before, after) in [(["lo", "s0"], &["s0"][..]), (["s0", "lo"], &["lo", "s0"])] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let _listener = world.listen(LISTEN);
        let old = world.guard_with(&on(&before, Attach::Tcx, false)).expect("start");
        let _streams = world.fill(&old);
        let new = world.guard_with(&on(after, Attach::Tcx, true)).expect("take over");
        assert!(old.guard.is_taken_over(), "{after:?}");
        drop(old);
        assert!(is_reset(&world, 1001), "{after:?}");
        assert_eq!(new.sample().stats.reset, 1, "{after:?}");
    }
}

#[test]
fn root_guard_that_cannot_take_over_leaves_the_other_as_it_was() {
    let _alone = the_process();
    let Some(world) = World::create_for(Attach::Xdp) else { return };
    let _peer = world.peer_for(Attach::Xdp);
    let _listener = world.listen(LISTEN);
    let old = world.guard_with(&on(&["s0"], Attach::Xdp, false)).expect("start");
    let _streams = world.fill(&old);
    // The loopback comes second and has no native XDP.
    let error = world.guard_with(&on(&["s0", "lo"], Attach::Xdp, true)).err().expect("refused");
    assert!(format!("{error:#}").contains("a loopback has no native XDP"), "{error:#}");
    assert!(!old.guard.is_taken_over());
    let before = old.sample().stats.reset;
    assert!(is_reset(&world, 1001));
    assert_eq!(old.sample().stats.reset, before + 1);
}

#[test]
fn root_guard_that_takes_over_and_dies_gives_its_place_back() {
    let _alone = the_process();
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let _listener = world.listen(LISTEN);
    let lease = Some(std::time::Duration::from_secs(3));
    let old = world.guard_with(&on(&["s0"], Attach::Tcx, false)).expect("start");
    let _streams = world.fill(&old);
    let new = world.guard_with(&Config { lease, ..on(&["s0"], Attach::Tcx, true) }).expect("take over");
    let succession = || world.server.enter(|| old.guard.succession()).expect("enter").expect("look");
    assert!(old.guard.is_taken_over() && succession() == Succession::Gone, "it is alive");
    drop(new);
    let start = std::time::Instant::now();
    while succession() != Succession::Back {
        assert!(start.elapsed() < PATIENCE, "its lease never ends");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!old.guard.is_taken_over());
    assert!(is_reset(&world, 1001));
}

#[test]
fn root_hook_may_be_another() {
    let _alone = the_process();
    for (before, after) in [(Attach::Tcx, Attach::XdpGeneric), (Attach::XdpGeneric, Attach::Auto)] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let _listener = world.listen(LISTEN);
        let old = world.guard_with(&on(&["s0"], before, false)).expect("start");
        let _streams = world.fill(&old);
        let new = world.guard_with(&on(&["s0"], after, true)).expect("take over");
        assert!(old.guard.is_taken_over(), "{before:?}");
        assert_eq!(new.guard.attached()[0].before(), [], "{before:?}: the old one is no other program");
        drop(old);
        assert!(is_reset(&world, 1001), "{before:?}");
        assert_eq!(new.sample().stats.reset, 1, "{before:?}");
    }
}

#[test]
fn root_new_guard_has_the_place_of_the_old_one_among_other_programs() {
    let _alone = the_process();
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let _listener = world.listen(LISTEN);
    // On to the next.
    let other =
        |name: &CStr| bpf::program(Hook::TcxIngress, name, &[0xffff_ffff_0000_00b7, 0x95]).expect("load");
    let (first, last) = (other(c"comes_first"), other(c"comes_last"));
    let attach = |attach: fn(BorrowedFd<'_>, u32, Hook) -> Result<Link, AttachError>, program: &OwnedFd| {
        let attach = || attach(program.as_fd(), world.s0.ifindex, Hook::TcxIngress);
        world.server.enter(attach).expect("enter").expect("attach")
    };
    let _last = attach(Link::attach, &last);
    let old = world.guard_with(&on(&["s0"], Attach::Tcx, false)).expect("start");
    let _streams = world.fill(&old);
    assert_eq!(old.guard.attached()[0].before(), []);
    let _first = attach(Link::attach_first, &first);
    let new = world.guard_with(&on(&["s0"], Attach::Tcx, true)).expect("take over");
    let names: Vec<_> = new.guard.attached()[0].before().iter().map(|other| other.name.as_deref()).collect();
    assert_eq!(names, [Some("comes_first")]);
    assert!(
        new.guard.warnings().iter().any(|note| note.contains("comes_first")),
        "{:?}",
        new.guard.warnings()
    );
    drop(old);
    assert!(is_reset(&world, 1001));
    assert_eq!(new.sample().stats.reset, 1);
}

#[test]
fn root_cookies_of_the_guard_before_are_taken_back() {
    let _alone = the_process();
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    if !guard::takes_own_cookies() {
        return eprintln!("skipped: no bpf_sk_assign_tcp_reqsk in this kernel (Linux 6.9 and newer)");
    }
    let listener = world.listen(LISTEN);
    let old = world.guard_with(&config("no-syn-drop", Attach::Tcx, None)).expect("start");
    let streams = world.fill(&old);
    let tap = world.tap();
    let handshake = Handshake::begin(&tap, LISTEN);
    // The process may guard another namespace, too, with keys of its own.
    let elsewhere = World::create().expect("it was created once");
    let _listener = elsewhere.listen(LISTEN);
    let _other = elsewhere.guard_with(&config("no-syn-drop", Attach::Tcx, None)).expect("start");
    let new =
        world.guard_with(&config("no-syn-drop", Attach::Tcx, Some(std::process::id()))).expect("take over");
    drop(old);
    for _ in &streams {
        listener.accept().expect("it waits");
    }
    tap.send(&handshake.end(b"").to_bytes());
    new.wait("the handshake", |sample| sample.stats.cookies_back == 1);
    assert_eq!(listener.accept().expect("it is there").1.ip().to_string(), GHOST4);
}

#[test]
fn root_process_that_is_no_guard_cannot_be_taken_over() {
    let _alone = the_process();
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN);
    let refused = |pid: u32| {
        let error = world.guard_with(&config("rst-syn", Attach::Auto, Some(pid))).err().expect("refused");
        format!("{error:#}")
    };
    let mut other = std::process::Command::new("sleep").arg("60").spawn().expect("start another process");
    let error = refused(other.id());
    other.kill().expect("end it");
    other.wait().expect("it ends");
    assert!(error.contains("it has no programs of a guard at any interface; is it one,"), "{error}");
    assert!(refused(u32::MAX).contains("take over from process 4294967295"));
}
