//! `tidegate ports` and `tidegate close` as programs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Status and what it says on standard error.
fn refused(arguments: &str) -> (Option<i32>, String) {
    let output = Command::new(TIDEGATE).args(arguments.split(' ')).output().expect("run");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.trim_end().lines().count(), 1, "one line: {text}");
    (output.status.code(), text)
}

#[test]
fn destination_that_cannot_be_is_one_line() {
    for (arguments, what) in [
        ("close --to 10.0.0.0/8", "no port"),
        ("close --to 0.0.0.0/0:80", "it has the loopback in it"),
        ("close --to 10.0.0.0/8:0", "nobody listens at port 0"),
        ("close --to example.com:80", "is no network"),
        ("close --to 10.0.0.0/8:80 --way lifo", "lifo"),
        ("close --to 10.0.0.0/8:80 --quarantine fast", "fast"),
        ("close --to 127.0.0.1:80 --way swap --quarantine 10ms", "say 1s to 240s"),
        ("ports --netns", "netns"),
    ] {
        let (status, text) = refused(arguments);
        assert_eq!((status, text.contains(what)), (Some(2), true), "{arguments}: {text}");
    }
    for (arguments, what) in [
        ("close --to 10.0.0.0/8:80 --interface no-such-if", "no-such-if: no such interface"),
        ("ports --netns no-such-netns", "no-such-netns"),
    ] {
        let (status, text) = refused(arguments);
        assert_eq!((status, text.contains(what)), (Some(1), true), "{arguments}: {text}");
    }
}

#[test]
fn ports_of_this_host_are_said_without_a_privilege() {
    let output = Command::new(TIDEGATE).args(["ports", "--json"]).output().expect("run");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let first: Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["event"], "ports");
    assert!(first["ports"].as_u64().is_some_and(|ports| ports > 0), "{first}");
}

/// Agents that are killed under load; as many as it says before a release.
const KILLS: u64 = 20;
const KILLS_VARIABLE: &str = "TIDEGATE_KILLS";
const RESPONSE: usize = 3000;

/// kill -9 and SIGTERM at any moment under load: no connection hangs, no end of file is lost, and
/// nothing stays.
#[test]
fn root_close_that_is_killed_under_load_loses_no_end_of_file() {
    let Some(world) = World::create() else { return };
    let listener = world.server.enter(|| TcpListener::bind("10.8.0.2:8081")).expect("enter").expect("bind");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            connection.write_all(&[b'.'; RESPONSE]).ok();
        }
    });
    let kills = std::env::var(KILLS_VARIABLE).map_or(KILLS, |text| text.parse().expect("a number"));
    for way in ["hold", "swap"] {
        let stop = AtomicBool::new(false);
        let read = std::thread::scope(|scope| {
            let (world, stop) = (&world, &stop);
            let reader = |n| scope.spawn(move || read_until(world, stop, n % 2 == 0));
            let readers: Vec<_> = (0..4).map(reader).collect();
            let over = Over(stop);
            for turn in 0..kills / 2 {
                let mut command = world.client.command(TIDEGATE).expect("command");
                command.args(["close", "--json", "--to", "10.8.0.2:8081", "--way", way]);
                let mut closing = command.stdout(Stdio::piped()).spawn().expect("start tidegate");
                let stdout = closing.stdout.take().expect("piped");
                assert_eq!(next_event(&mut std::io::BufReader::new(stdout))["event"], "started");
                // Spread over the time between two closes of a reader, and over several of them.
                std::thread::sleep(Duration::from_micros(turn * 7919 % 60_000));
                if turn % 5 == 4 {
                    signal(&closing, Signal::SIGTERM);
                } else {
                    closing.kill().expect("kill -9");
                }
                closing.wait().expect("wait");
            }
            drop(over);
            readers.into_iter().map(|reader| reader.join().expect("no panic")).sum::<u64>()
        });
        assert!(read > kills, "{way}: {read} responses");
        let interface = || nix::net::if_::if_nametoindex("c0").expect("the interface");
        let attached = world.client.enter(|| bpf::count_tcx_ingress(interface())).expect("enter");
        assert!(attached.is_err() || attached.is_ok_and(|count| count == 0), "{way}: a program stays");
    }
}

/// Reads responses, to the end of the connection or to their own; gives how many.
fn read_until(world: &World, stop: &AtomicBool, to_the_end: bool) -> u64 {
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let connect = || TcpStream::connect("10.8.0.2:8081").expect("connect");
        let mut stream = world.client.enter(connect).expect("enter");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        let mut response = vec![0; RESPONSE];
        stream.read_exact(&mut response).expect("all of it");
        if to_the_end {
            assert_eq!(stream.read(&mut [0; 9]).expect("the end"), 0);
        }
        count += 1;
    }
    count
}
