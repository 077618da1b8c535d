//! `tidegate load` as a process, before `tidegate serve`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{PATIENCE, Running, TIDEGATE, get, stderr};
use experiment::Layout;
use lab::{CROWD_INTERFACE, SERVER_INTERFACE, Testbed};
use serde_json::Value;

const SYSTEMS: [&str; 12] = [
    "linux",
    "linux-6.4",
    "linux-2.4",
    "linux-2.2",
    "win-emu",
    "windows-10",
    "windows-xp",
    "windows-nt",
    "freebsd",
    "freebsd-5.3",
    "macos",
    "macos-10.3",
];

/// A server, and where the crowd comes from.
struct World {
    testbed: Testbed,
    serve: Running,
}

impl World {
    fn create() -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let clients = "10.77.0.0/16".parse().expect("a network");
        let testbed = Testbed::create(&Layout::default(), clients).expect("a testbed");
        let address = testbed.server_address().to_string();
        let mut command = testbed.server.command(TIDEGATE).expect("a command");
        command.args(["serve", "--json", "--listen", &address, "--backlog", "512"]).stdout(Stdio::piped());
        let mut serve = Running(command.spawn().expect("start the server"));
        let mut line = String::new();
        let stdout = serve.0.stdout.as_mut().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("a line");
        Some(Self { testbed, serve })
    }

    fn load(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("run")
    }

    fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).spawn().expect("start")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_to(self.testbed.server_address(), arguments)
    }

    fn command_to(&self, server: SocketAddr, arguments: &[&str]) -> Command {
        let mut command = self.testbed.crowd.command(TIDEGATE).expect("a command");
        let url = format!("http://{server}/");
        command.args(["load", &url, "--json", "--interface", CROWD_INTERFACE]);
        if !arguments.contains(&"--clients") {
            command.args(["--clients", "10.77.0.0/16"]);
        }
        for default in [["--rate", "200"], ["--duration", "1s"], ["--timeout", "5s"]] {
            let has_no_rate = arguments.contains(&"--replay") || arguments.contains(&"--users");
            let is_replay = has_no_rate && default[0] == "--rate";
            if !arguments.contains(&default[0]) && !is_replay {
                command.args(default);
            }
        }
        command.args(arguments);
        command
    }

    fn summary(&self, arguments: &[&str]) -> Value {
        let output = self.load(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        last_line(&output)
    }
}

fn last_line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

/// Replies that came within the window; a busy machine may have the last come after it.
fn replies(summary: &Value) -> u64 {
    let [per_s, window_s] = ["goodput_per_s", "window_s"].map(|key| summary[key].as_f64().expect("a number"));
    (per_s * window_s).round() as u64
}

fn count(summary: &Value, key: &str) -> u64 {
    summary[key].as_u64().unwrap_or_else(|| panic!("{key} in {summary}"))
}

#[test]
fn root_every_workload_is_answered_whole() {
    let Some(world) = World::create() else { return };
    for workload in ["one-packet", "specweb99", "specweb99-7.2", "world-cup-5", "nasa", "redfavor"] {
        let summary = world.summary(&["--workload", workload]);
        assert_eq!(count(&summary, "ok"), count(&summary, "offered"), "{workload}: {summary}");
        let replies = summary["goodput_per_s"].as_f64().expect("a rate");
        let per_attempt = replies / summary["offered_per_s"].as_f64().expect("a rate");
        let expected = match workload {
            "specweb99-7.2" => 5.5..9.0,
            "world-cup-5" => 3.5..6.5,
            _ => 0.8..1.1,
        };
        assert!(expected.contains(&per_attempt), "{workload}: {per_attempt} replies per connection");
    }
}

/// Means of two pages and two objects, rounded up: 6.5 objects for each user who has the time.
#[test]
fn root_users_of_sessions_ask_for_more_than_one_object() {
    let Some(world) = World::create() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let csv = folder.path().join("attempts.csv");
    let csv = csv.to_str().expect("text");
    let sessions = "{ pages = 2, objects = 2, think = \"200ms\", between_objects = \"20ms\" }";
    let summary = world.summary(&["--sessions", sessions, "--rate", "50", "--duration", "4s", "--csv", csv]);
    assert_eq!(count(&summary, "ok"), count(&summary, "offered"), "{summary}");
    let text = std::fs::read_to_string(csv).expect("the file");
    let users: BTreeSet<&str> = text.lines().skip(1).filter_map(|line| line.split(',').next()).collect();
    let per_user = count(&summary, "offered") as f64 / users.len() as f64;
    assert!((3.5..7.0).contains(&per_user), "{per_user} attempts for each of {} users", users.len());
}

#[test]
fn root_clients_of_every_system_are_answered_and_each_attempt_has_its_line() {
    let Some(world) = World::create() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let csv = folder.path().join("attempts.csv");
    let csv = csv.to_str().expect("text");
    let share = 1.0 / SYSTEMS.len() as f64;
    let stacks: Vec<String> = SYSTEMS.iter().map(|name| format!("{name}:{share}")).collect();
    let summary = world.summary(&["--stacks", &stacks.join(","), "--csv", csv, "--rate", "400"]);
    assert_eq!(count(&summary, "ok"), count(&summary, "offered"), "{summary}");
    let text = std::fs::read_to_string(csv).expect("the file");
    let mut lines = text.lines();
    let header = lines.next().expect("a header");
    assert_eq!(header.split(',').nth(2), Some("stack"));
    let mut attempts: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        assert_eq!((fields.len(), fields[7], fields[12]), (13, "ok", "200"), "{line}");
        *attempts.entry(fields[2]).or_default() += 1;
    }
    assert_eq!(attempts.values().sum::<u64>(), count(&summary, "offered"));
    assert_eq!(attempts.len(), SYSTEMS.len(), "{attempts:?}");
}

#[test]
fn root_parts_of_a_crowd_add_up_to_it() {
    let Some(world) = World::create() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let whole = world.summary(&[]);
    let files = ["1/2", "2/2"].map(|shard| {
        let file = folder.path().join(shard.replace('/', "-of-"));
        let output = world.load(&["--shard", shard]);
        std::fs::write(&file, &output.stdout).expect("write");
        file
    });
    let merge = |arguments: &[&Path]| {
        let mut command = Command::new(TIDEGATE);
        command.args(["merge", "--json"]).args(arguments).output().expect("run")
    };
    let merged = last_line(&merge(&[&files[0], &files[1]]));
    assert_eq!(count(&merged, "offered"), count(&whole, "offered"));
    assert_eq!(count(&merged, "ok"), count(&whole, "offered"), "{merged}");
    assert_eq!(count(&merged["response_ms"], "count"), replies(&merged));
    let output = merge(&[&files[1]]);
    assert!(output.status.success() && count(&last_line(&output), "ok") > 0, "{output:?}");
    assert!(stderr(&output).contains("part 1/2 of this crowd is missing"), "{}", stderr(&output));
    let output = merge(&[&files[1], &files[0], &files[1]]);
    assert_eq!(output.status.code(), Some(2));
    let named = format!("part 2/2 is there twice, in {0} and in {0}", files[1].display());
    assert!(stderr(&output).contains(&named), "{}", stderr(&output));
    let output = merge(&[Path::new("/dev/null")]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("/dev/null: there is no summary in it"), "{}", stderr(&output));
}

#[test]
fn root_run_beyond_a_bound_fails_and_says_by_how_much() {
    let Some(world) = World::create() else { return };
    let output = world.load(&["--fail-if", "goodput<1", "--fail-if", "goodput<20k", "--fail-if", "ok<1%"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("failed by --fail-if goodput<20k: it is "), "{}", stderr(&output));
    assert_eq!(last_line(&output)["event"], "summary", "the result is there all the same");
    // Nobody reads what it prints: the verdict is the same.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = world.command(&["--fail-if", "ok>1%"]);
    let output = command.stdout(writer).stderr(Stdio::piped()).output().expect("run");
    assert!(!output.status.success(), "{output:?}");
    let output = world.load(&["--fail-if", "p99"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

/// A server that has nothing: every reply is complete, and none is what was asked for.
#[test]
fn root_not_found_is_counted_apart_and_can_fail_a_run() {
    let Some(world) = World::create() else { return };
    let server = SocketAddr::new(world.testbed.server_address().ip(), 8404);
    let listener = world.testbed.server.enter(|| TcpListener::bind(server).expect("listen"));
    let listener = listener.expect("enter a namespace");
    // It ends with the test's process, which each test has of its own.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accept");
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
        }
    });
    let load = |arguments: &[&str]| world.command_to(server, arguments).output().expect("run");
    let output = load(&["--fail-if", "non-2xx>0", "--fail-if", "5xx>0"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let summary = last_line(&output);
    let replies = count(&summary, "ok");
    assert!(replies > 100, "{summary}");
    assert_eq!(count(&summary["statuses"], "4xx"), replies, "{summary}");
    assert_eq!(count(&summary["statuses"], "2xx"), 0, "{summary}");
    let complaint = format!("failed by --fail-if non-2xx>0: it is {replies} of {replies} replies");
    assert!(stderr(&output).contains(&complaint), "{}", stderr(&output));
    assert!(!stderr(&output).contains("5xx>0"), "{}", stderr(&output));
    let output = world.load(&["--fail-if", "non-2xx>0", "--fail-if", "2xx<1"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn root_histograms_of_each_second_are_kept_and_old_ones_too() {
    let Some(world) = World::create() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("run.hlog");
    let log = log.to_str().expect("text");
    world.summary(&["--hdr-log", log, "--duration", "2s"]);
    let text = std::fs::read_to_string(log).expect("the file");
    assert!(text.lines().filter(|line| line.contains("HISTF")).count() >= 1, "{text}");
    let output = world.load(&["--hdr-log", log]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("an old file is never written over"), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(log).expect("the file"), text);
}

#[test]
fn root_log_is_repeated_with_its_times_and_sizes() {
    let Some(world) = World::create() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (log, csv) = (folder.path().join("access.log"), folder.path().join("attempts.csv"));
    let lines: String = (0..40)
        .map(|n| {
            format!("h - - [01/Jul/1995:00:00:{:02} -0400] \"GET /{n} HTTP/1.0\" 200 {}\n", n / 10, 1000 * n)
        })
        .collect();
    std::fs::write(&log, lines + "what is this?\n").expect("write");
    let arguments = ["--replay", log.to_str().expect("text"), "--speed", "2", "--duration", "5s"];
    let output = world.load(&[&arguments[..], &["--csv", csv.to_str().expect("text")]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("40 requests in 2 s at this speed; 1 line is none"),
        "{}",
        stderr(&output)
    );
    assert_eq!(count(&last_line(&output), "ok"), 40);
    let text = std::fs::read_to_string(&csv).expect("the file");
    let start =
        |line: &str| line.split(',').nth(4).and_then(|start| start.parse::<f64>().ok()).expect("a start");
    let mut starts: Vec<f64> = text.lines().skip(1).map(start).collect();
    starts.sort_by(f64::total_cmp);
    let expected = (0..40).map(|n| f64::from(n) / 20.0);
    assert!(
        starts.iter().zip(expected).all(|(start, expected)| (start - expected).abs() < 1e-6),
        "{starts:?}"
    );
    std::fs::write(&log, "what is this?\n").expect("write");
    let output = world.load(&arguments);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("the first is line 1: there is no time in brackets"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn root_packet_socket_does_where_af_xdp_is_not_to_be_had() {
    let Some(world) = World::create() else { return };
    let summary = world.summary(&["--xdp", "off"]);
    assert_eq!(summary["generator"]["receive_mode"], "af-packet");
    assert_eq!(count(&summary, "ok"), count(&summary, "offered"), "{summary}");
    assert_eq!(summary["generator"]["receive_fallback"], Value::Null, "it was asked for");
    // What goes on beside it is none of the crowd's.
    let is_over = AtomicBool::new(false);
    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            let address = world.testbed.server_address();
            while !is_over.load(Ordering::Relaxed) {
                world.testbed.crowd.enter(|| TcpStream::connect(address).map(drop)).expect("enter").ok();
            }
        });
        let summary = world.summary(&["--xdp", "off"]);
        is_over.store(true, Ordering::Relaxed);
        summary
    });
    let received = summary["generator"]["frames_received"].as_u64().expect("a count");
    assert!(received <= 5 * count(&summary, "offered"), "{summary}");
    let output = world.load(&["--xdp", "off", "--clients", "10.76.0.0/30"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("10.76.0.2 is among the clients 10.76.0.0/30"), "{}", stderr(&output));
    // Frames that AF_XDP has no room for.
    world.testbed.server.ip(&["link", "set", SERVER_INTERFACE, "mtu", "9000"]).expect("a larger MTU");
    world.testbed.crowd.ip(&["link", "set", CROWD_INTERFACE, "mtu", "9000"]).expect("a larger MTU");
    let summary = world.summary(&[]);
    let why = summary["generator"]["receive_fallback"].as_str().expect("a reason");
    assert!(why.contains("MTU 9000 is too large"), "{why}");
    assert_eq!(count(&summary, "ok"), count(&summary, "offered"), "{summary}");
    let output = world.load(&["--xdp", "native"]);
    assert_eq!(output.status.code(), Some(1), "what was asked for is not there: {}", stderr(&output));
}

/// Over AF_XDP each worker has a queue, of which this interface has one; packet sockets need none.
/// The threads' own tests are in crates/load.
#[test]
fn root_several_workers_are_one_crowd_in_every_output() {
    let Some(world) = World::create() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let csv = folder.path().join("attempts.csv");
    let csv = csv.to_str().expect("text");
    let summary = world.summary(&["--xdp", "off", "--workers", "2", "--cpu", "0-1", "--csv", csv]);
    assert_eq!(count(&summary, "ok"), count(&summary, "offered"), "{summary}");
    assert_eq!((&summary["generator"]["workers"], &summary["shards"]), (&2.into(), &Value::Array(vec![])));
    assert_eq!(count(&summary["response_ms"], "count"), replies(&summary));
    let lines = std::fs::read_to_string(csv).expect("the file").lines().count() as u64;
    assert_eq!(lines, 1 + count(&summary, "offered"));
    for (arguments, why) in [
        (["--workers", "2", "--xdp", "generic"], "tgc0 has 1 receive queue, so at most 1 worker; "),
        (["--workers", "2", "--cpu", "1"], "2 workers need as many CPUs, and the list has 1; "),
    ] {
        let output = world.load(&arguments);
        let error = stderr(&output);
        assert!(output.status.code() == Some(1) && error.contains(why), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Who closes first keeps TIME_WAIT, here or at the server's kernel; and replies in chunks end
/// without a close.
#[test]
fn root_time_wait_is_where_the_crowd_says() {
    let Some(world) = World::create() else { return };
    let chunks = SocketAddr::new(world.testbed.server_address().ip(), 8081);
    let mut serve = world.testbed.server.command(TIDEGATE).expect("a command");
    serve.args(["serve", "--chunks", "--listen", &chunks.to_string()]).stdout(Stdio::piped());
    let mut serve = Running(serve.spawn().expect("start"));
    let stdout = serve.0.stdout.as_mut().expect("piped");
    BufReader::new(stdout).read_line(&mut String::new()).expect("it listens");
    let users = ["--users", "5", "--think", "20ms", "--clients", "10.77.0.0/29", "--ports", "20"];
    let mut kept = 0;
    for (first, close, has_ports, at_server) in [
        ("server", "fin", true, true),
        ("server", "swap", false, false),
        ("client", "fin", false, false),
        ("client-close", "fin", false, false),
        ("client", "rst", true, false),
    ] {
        let arguments = [&users[..], &["--first", first, "--close", close]].concat();
        let output = world.command_to(chunks, &arguments).output().expect("run");
        assert!(output.status.success(), "{first}, {close}: {}", stderr(&output));
        let summary = last_line(&output);
        let (ok, no_port) = (count(&summary, "ok"), count(&summary, "no_port"));
        assert_eq!(ok + no_port, count(&summary, "offered"), "{first}, {close}: {summary}");
        assert_eq!((ok > 100, no_port == 0), (has_ports, has_ports), "{first}, {close}: {summary}");
        let time_waits = netns::time_waits(&world.testbed.server).expect("count");
        assert_eq!(time_waits > kept, at_server, "{first}, {close}: {time_waits}, and {kept} before");
        kept = time_waits;
    }
    for (arguments, why) in [
        (["--close", "swap"], "(--first server)"),
        (["--workers", "2"], "one generator with one worker"),
        (["--tw-reuse-after", "90s"], "--tw-reuse-after is shorter than --time-wait"),
    ] {
        let output = world.load(&[&users[..], &arguments].concat());
        let error = stderr(&output);
        assert!(output.status.code() == Some(1) && error.contains(why), "{arguments:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn root_ipv6_crowd_is_answered_like_any_other() {
    let Some(world) = World::create() else { return };
    let Testbed { server, crowd, .. } = &world.testbed;
    server.ip(&["address", "add", "fd76::1/64", "dev", SERVER_INTERFACE, "nodad"]).expect("an address");
    crowd.ip(&["address", "add", "fd76::2/64", "dev", CROWD_INTERFACE, "nodad"]).expect("an address");
    server.ip(&["route", "add", "fd77::/112", "via", "fd76::2"]).expect("a route");
    // As any traffic does, it finds the neighbours' addresses.
    let mut serve = server.command(TIDEGATE).expect("a command");
    let serve = serve.args(["serve", "--listen", "[fd76::1]:80"]).stdout(Stdio::null()).spawn();
    let _serve = Running(serve.expect("start"));
    let address = "[fd76::1]:80".parse().expect("an address");
    let reach = || crowd.enter(|| TcpStream::connect_timeout(&address, PATIENCE)).expect("enter").is_ok();
    assert!((0..1200).any(|_| reach() || a_moment_later()), "the server never listens");
    for receive in ["auto", "off"] {
        let mut load = crowd.command(TIDEGATE).expect("a command");
        load.args(["load", "http://[fd76::1]/", "--json", "--clients", "fd77::/112", "--xdp", receive]);
        load.args(["--interface", CROWD_INTERFACE, "--rate", "200", "--duration", "1s"]);
        let output = load.output().expect("run");
        assert!(output.status.success(), "{receive}: {}", stderr(&output));
        let summary = last_line(&output);
        assert_eq!(count(&summary, "ok"), count(&summary, "offered"), "{receive}: {summary}");
    }
}

#[test]
fn root_second_crowd_on_an_interface_is_refused_and_the_first_goes_on() {
    let Some(world) = World::create() else { return };
    let mut first = Running(world.start(&["--duration", "60s"]));
    let mut lines = progress_of(&mut first);
    lines.next().expect("a second has passed");
    let output = world.load(&[]);
    assert_eq!(output.status.code(), Some(1));
    let error = stderr(&output);
    assert!(error.contains("attach steer to interface tgc0") && error.lines().count() == 1, "{error}");
    let line = lines.next().expect("another second has passed");
    assert!(line["replies_per_s"].as_f64() > Some(100.0), "{line}");
}

#[test]
fn root_prometheus_sees_the_counts_while_the_crowd_comes() {
    let Some(world) = World::create() else { return };
    let mut load = Running(world.start(&["--duration", "60s", "--prometheus", "127.0.0.1:9464"]));
    progress_of(&mut load).next().expect("a second has passed");
    let page = |path| world.testbed.crowd.enter(|| get("127.0.0.1:9464", path)).expect("enter");
    let metrics = page("/metrics");
    let value = |name: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.parse::<f64>().ok()).unwrap_or_else(|| panic!("no {name} in {metrics}"))
    };
    assert!(value("tidegate_load_offered_total") > 100.0);
    assert!(value("tidegate_load_response_seconds_count") > 100.0);
    assert_eq!(
        value("tidegate_load_response_seconds_bucket{le=\"+Inf\"}"),
        value("tidegate_load_replies_total")
    );
    let class = |class: &str| value(&format!("tidegate_load_statuses_total{{class=\"{class}\"}}"));
    assert_eq!((class("2xx"), class("4xx")), (value("tidegate_load_replies_total"), 0.0));
    assert!(page("/").starts_with("HTTP/1.1 404"));
}

/// The lines of a crowd, once a second.
fn progress_of(load: &mut Running) -> impl Iterator<Item = Value> {
    let lines = BufReader::new(load.0.stdout.take().expect("piped")).lines();
    let values = lines.map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
    values.filter(|value| value["event"] == "progress")
}

/// For conditions that are asked again.
fn a_moment_later() -> bool {
    std::thread::sleep(Duration::from_millis(50));
    false
}

/// The server's own record.
#[test]
fn root_every_reply_that_is_counted_is_in_the_log_of_nginx() {
    const NGINX: &str = "/usr/sbin/nginx";
    if !Path::new(NGINX).exists() {
        return eprintln!("skipped: no nginx here");
    }
    let folder = tempfile::tempdir().expect("a folder"); // which goes after the server that writes there
    let Some(mut world) = World::create() else { return };
    world.serve.0.kill().ok();
    world.serve.0.wait().ok();
    let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    let config = format!(
        "pid {}; daemon off; worker_processes 1; error_log stderr crit; events {{ worker_connections 1024; }} \
         http {{ access_log {}; server {{ listen 80 backlog=511; location / {{ return 200 ok; }} }} }}",
        path("pid"),
        path("access.log")
    );
    std::fs::write(path("nginx.conf"), config).expect("write");
    let mut nginx = world.testbed.server.command(NGINX).expect("a command");
    world.serve.0 = nginx.args(["-c", &path("nginx.conf"), "-e", "stderr"]).spawn().expect("start");
    let address = world.testbed.server_address();
    let reach = || world.testbed.crowd.enter(|| TcpStream::connect(address)).expect("enter").is_ok();
    assert!((0..1200).any(|_| reach() || a_moment_later()));
    let summary = world.summary(&["--rate", "1000", "--duration", "2s"]);
    // It writes a line when it has answered, which may be a moment after the client has heard.
    let logged = || {
        let log = std::fs::read_to_string(path("access.log")).expect("a log");
        log.lines().filter(|line| line.starts_with("10.77.") && line.contains("\" 200 ")).count() as u64
    };
    let ok = count(&summary, "ok");
    let is_same = (0..1200).any(|_| logged() == ok || a_moment_later());
    assert!(is_same, "{} in the log: {summary}", logged());
}

/// A log may be a pipe to which nobody writes.
#[test]
fn signal_ends_the_wait_for_a_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("log");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    let mut crowd = Command::new(TIDEGATE);
    crowd.args(["load", "http://10.0.0.1/", "--clients", "10.9.0.0/24", "--interface", "none", "--replay"]);
    let mut crowd = crowd.arg(&pipe).spawn().expect("start");
    // Long enough for it to wait there; if it does not yet, the signal ends it, too.
    std::thread::sleep(Duration::from_millis(300));
    let pid = nix::unistd::Pid::from_raw(crowd.id().try_into().expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    let start = std::time::Instant::now();
    while crowd.try_wait().expect("a child").is_none() {
        if start.elapsed() > PATIENCE {
            crowd.kill().expect("it runs");
            panic!("it waits on");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A server that takes nothing: users come again, and give up at last.
#[test]
fn root_users_reload_and_give_up() {
    let Some(world) = World::create() else { return };
    let mut crowd = world.testbed.crowd.command(TIDEGATE).expect("a command");
    // Nobody answers there: the route leads to the server, which has no such address.
    world.testbed.server.ip(&["route", "add", "blackhole", "10.76.0.99/32"]).expect("a route");
    let neighbour = world.testbed.crowd.ip(&[
        "neigh",
        "replace",
        "10.76.0.99",
        "lladdr",
        "02:00:00:00:00:99",
        "dev",
        CROWD_INTERFACE,
    ]);
    neighbour.expect("a neighbour");
    crowd.args(["load", "http://10.76.0.99/", "--json", "--clients", "10.77.0.0/16"]);
    crowd.args(["--interface", CROWD_INTERFACE, "--rate", "50", "--duration", "2s", "--timeout", "5s"]);
    let output = crowd.args(["--abort-after", "300ms", "--reloads", "2"]).output().expect("run");
    let summary = last_line(&output);
    assert_eq!(count(&summary, "aborted"), count(&summary, "offered"), "{summary}");
    let (offered, reloads) = (count(&summary, "offered"), count(&summary, "reloads"));
    assert!(reloads > offered / 2 && reloads < offered, "{reloads} of {offered} are reloads");
    assert!(count(&summary, "gave_up") >= 50, "{summary}");
    assert!(stderr(&output).contains("nothing came back at all"), "{}", stderr(&output));
}
