//! `tidegate ports` and `tidegate close` as programs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
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

/// kill -9 at any moment: no connection hangs, no end of file is lost, and nothing stays.
#[test]
fn root_close_that_is_killed_loses_no_end_of_file() {
    let Some(world) = World::create() else { return };
    world.server.set_sysctl("net.core.somaxconn", "128").expect("sysctl");
    let listener = world.server.enter(|| TcpListener::bind("10.8.0.2:8081")).expect("enter").expect("bind");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            connection.write_all(&[b'.'; 3000]).ok();
        }
    });
    for way in ["hold", "swap"] {
        for turn in 0..10_u64 {
            let mut command = world.client.command(TIDEGATE).expect("command");
            command.args(["close", "--json", "--to", "10.8.0.2:8081", "--way", way]);
            let mut closing = command.stdout(Stdio::piped()).spawn().expect("start tidegate");
            let stdout = closing.stdout.take().expect("piped");
            let mut lines = std::io::BufReader::new(stdout);
            assert_eq!(next_event(&mut lines)["event"], "started");
            let connect = || TcpStream::connect("10.8.0.2:8081").expect("connect");
            let mut streams: Vec<TcpStream> =
                (0..20).map(|_| world.client.enter(connect).expect("enter")).collect();
            std::thread::sleep(Duration::from_millis(3 * turn));
            if turn % 2 == 0 {
                closing.kill().expect("kill -9");
            } else {
                signal(&closing, Signal::SIGTERM);
            }
            for stream in &mut streams {
                stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
                let mut all = Vec::new();
                stream.read_to_end(&mut all).expect("the end");
                assert_eq!(all.len(), 3000, "{way}, {turn}");
            }
            closing.wait().expect("wait");
        }
    }
}
