//! A guard that takes the place of another, on a real kernel.

mod common;

use common::frame::Segment;
use common::*;
use guard::{Attach, Config, Guard, Listener};

const LISTEN: &str = "10.9.0.2:8080";

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
            assert!(start.elapsed().as_secs() < 5, "{attach:?}: the new guard is still there");
        }
    }
}

#[test]
fn root_process_that_is_no_guard_cannot_be_taken_over() {
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
    assert!(error.contains("holds no BPF links; is it a guard?"), "{error}");
    assert!(refused(u32::MAX).contains("take over from process 4294967295"));
}
