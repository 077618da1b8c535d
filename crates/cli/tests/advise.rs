//! `tidegate advise` as a process: it changes no packet, and its last line answers.

use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::*;
use netns::Namespace;
use nix::sys::signal::Signal;
use serde_json::Value;

/// Where [`World`] has no listener.
const SERVED: &str = "10.8.0.2:8081";

fn advise(server: &Namespace, arguments: &[&str]) -> Command {
    let mut command = server.command(TIDEGATE).expect("command");
    command.arg("advise").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn root_advise_counts_a_client_once_and_refuses_none() {
    let Some(world) = World::create() else { return };
    let mut child = advise(&world.server, &["--listen", ADDRESS, "--for", "1h"]).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut first = String::new();
    lines.read_line(&mut first).expect("a line");
    assert_eq!(first, "watches 10.8.0.2:8080 for 1h, and changes no packet\n");
    let _waiting: Vec<_> = (0..2).map(|_| world.connect(PATIENCE).expect("there are two places")).collect();
    // The kernel drops its SYN, and the client sends it again after a second.
    let error = world.connect(Duration::from_millis(1_500)).expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "nobody says no");
    signal(&child, Signal::SIGINT);
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("text");
    assert!(child.wait().expect("wait").success(), "{rest}");
    let rest: Vec<&str> = rest.lines().collect();
    assert!(rest[0].starts_with("clients         3 in "), "{rest:?}");
    assert!(rest[0].ends_with(", with 4 SYNs; 0 answered, 3 not"), "{rest:?}");
    assert_eq!(rest[1], "stock Linux     dropped 2 SYNs and ends of handshakes");
    assert_eq!(rest[3], "the server      no queue ever stood; - for an answer when the fewest waited");
    let last = rest.last().expect("lines");
    assert!(
        last.starts_with("not yet: 3 clients came in ") && last.ends_with(" s, too few to tell"),
        "{last}"
    );
}

#[test]
fn root_advise_does_not_judge_a_server_whose_clients_another_guard_refuses() {
    let Some(world) = World::create() else { return };
    let (guard, _lines) = world.start(&[]);
    let mut child = advise(&world.server, &["--listen", ADDRESS, "--for", "1h"]).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    lines.read_line(&mut String::new()).expect("it watches");
    let _waiting = world.fill();
    for _ in 0..10 {
        let error = world.connect(PATIENCE).expect_err("the queue is full");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
    // It looks twenty times a second, and once is not enough.
    std::thread::sleep(Duration::from_secs(1));
    signal(&child, Signal::SIGINT);
    let output = child.wait_with_output().expect("its end");
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("another guard here refuses them"), "{said}");
    ended_in_order(guard, Signal::SIGTERM);
}

#[test]
fn root_advise_says_yes_before_a_server_with_three_times_its_load() {
    let Some(world) = World::create() else { return };
    world.server.ip(&["route", "add", "198.51.100.0/24", "via", "10.8.0.1"]).expect("a way back");
    world.server.set_sysctl("net.core.somaxconn", "128").expect("sysctl");
    let mut serve = world.server.command(TIDEGATE).expect("command");
    serve.args(["serve", "--listen", SERVED, "--cpu-time", "1ms"]).stdout(Stdio::piped());
    let mut serve = Running(serve.spawn().expect("start"));
    BufReader::new(serve.0.stdout.as_mut().expect("piped"))
        .read_line(&mut String::new())
        .expect("it listens");
    let mut advise =
        advise(&world.server, &["--listen", SERVED, "--for", "1h", "--json"]).spawn().expect("start");
    let mut load = world.client.command(TIDEGATE).expect("command");
    load.args([
        "load",
        &format!("http://{SERVED}/"),
        "--rate",
        "3000",
        "--duration",
        "8s",
        "--timeout",
        "3s",
    ]);
    load.args(["--clients", "198.51.100.0/24", "--interface", "c0"]);
    let load = load.output().expect("run");
    assert!(load.status.success(), "{load:?}");
    signal(&advise, Signal::SIGINT);
    let mut said = String::new();
    advise.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(advise.wait().expect("wait").success());
    let said: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(said["answer"], "yes", "{said}");
    assert!(said["sentence"].as_str().is_some_and(|sentence| sentence.starts_with("yes: ")), "{said}");
    assert_eq!(said["next"], format!("tidegate guard --listen {SERVED}"));
    // The server answers 1000 at most, if it has a CPU.
    let rate = said["server"]["answers_per_s"].as_f64().expect("a queue stood");
    assert!(rate < 1250.0, "{said}");
    assert!(said["cost"]["programs"].as_f64().is_some_and(|percent| percent > 0.0), "{said}");
}
