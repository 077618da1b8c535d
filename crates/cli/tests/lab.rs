//! The tools together, as processes: an experiment from file to page, and a guard that is killed
//! under load.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{Over, TIDEGATE, assert_no_namespaces_of, child_of, signal, stderr};
use experiment::{Layout, Receive};
use lab::{CROWD_INTERFACE, SERVER_INTERFACE, Testbed};
use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;
use results::{Answer, Record};
use serde_json::Value;

/// Guards that are killed under load; as many as it says before a release.
const KILLS: usize = 20;
const KILLS_VARIABLE: &str = "TIDEGATE_KILLS";

/// A server that takes 2 ms for a request, so that a few hundred attempts are a crowd on any
/// machine.
const EXPERIMENT: &str = r#"
    name = "small"
    title = "Does every part do its part?"
    [testbed]
    patience = "0s"
    [crowd]
    timeout = "2s"
    close = "rst"
    arrivals = "poisson"
    [grid]
    loads = [0.5]
    warmup = "100ms"
    duration = "300ms"
    [saturation]
    from = 50
    factor = 16
    refinements = 0
    duration = "200ms"
    confirm = "200ms"
    [[server]]
    name = "built-in"
    kind = "built-in"
    backlog = 128
    cpu_time = "2ms"
    [[policy]]
    name = "stock"
    [[policy]]
    name = "rst-syn"
    guard = "rst-syn"
    [[claim]]
    source = "arithmetic"
    text = "no attempt starts without a SYN"
    measure = "syns_per_attempt"
    policy = "stock"
    loads = [0.5]
    holds = { at_least = 1.0 }
    [[claim]]
    source = "wishful thinking"
    text = "a reply takes no time"
    measure = "mean"
    policy = "rst-syn"
    loads = [0.5]
    paper = 0.0
    holds = { at_most = 0.0 }
"#;

/// What stands in for the guard: rules that let a SYN a minute in, and a guard that only counts
/// before clients that reset.
const OTHER_POLICIES: &str = r#"
    [[policy]]
    name = "rules"
    nft = """
    table ip lab {
        chain input {
            type filter hook input priority filter; policy accept;
            tcp dport 80 tcp flags syn limit rate over 1/minute burst 1 packets reject with tcp reset
        }
    }
    """
    [[policy]]
    name = "dry"
    guard = "police:{saturation}"
    dry_run = true
    crowd = { close = "rst" }
    [[policy]]
    name = "flooded"
    guard = "rst-syn"
    crowd = { flood_per_s = 5000 }
    [[policy]]
    name = "held"
    guard = "rst-syn+unserved"
    crowd = { hold = { idle = 20, half_requests = 5 } }
"#;

/// A folder with the experiment file in it.
struct Scratch(tempfile::TempDir);

impl Scratch {
    fn create() -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("small.toml"), EXPERIMENT).expect("write the experiment");
        Some(Self(folder))
    }

    fn lab(&self, experiment: &str) -> Command {
        let mut command = Command::new(TIDEGATE);
        command.args(["lab", "run", experiment]).current_dir(self.0.path());
        command
    }

    fn with(&self, changes: &[(&str, &str)]) -> String {
        let mut text = EXPERIMENT.to_owned();
        for (from, to) in changes {
            assert!(text.contains(from), "the test changes nothing");
            text = text.replace(from, to);
        }
        std::fs::write(self.0.path().join("changed.toml"), text).expect("write");
        "changed.toml".to_owned()
    }

    /// The folder of the only run.
    fn run_folder(&self) -> PathBuf {
        let entries = std::fs::read_dir(self.0.path().join("results")).expect("results");
        entries.map(|entry| entry.expect("an entry").path()).next().expect("a run")
    }
}

fn records(folder: &Path) -> Vec<Record> {
    let text = std::fs::read_to_string(folder.join("results.jsonl")).expect("read the results");
    text.lines().map(|line| serde_json::from_str(line).expect("a record")).collect()
}

#[test]
fn root_experiment_goes_from_file_to_page_and_leaves_nothing() {
    let Some(scratch) = Scratch::create() else { return };
    let child = scratch
        .lab("small.toml")
        .arg("--quick")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let id = child.id();
    let output = child.wait_with_output().expect("wait");
    assert!(output.status.success(), "{}", stderr(&output));
    assert_no_namespaces_of(id);

    let folder = scratch.run_folder();
    let records = records(&folder);
    let [Record::Header(_), Record::Saturation(_), Record::Cell(stock), Record::Cell(guarded), claims @ ..] =
        &records[..]
    else {
        panic!("a header, a saturation, two cells, claims: {records:?}")
    };
    let [Record::Claim(held), Record::Claim(failed)] = claims else { panic!("two claims: {claims:?}") };
    assert_eq!((held.answer, failed.answer), (Answer::Holds, Answer::Fails), "{claims:?}");
    for cell in [stock, guarded] {
        let crowd = &cell.crowd;
        let causes =
            crowd.ok + crowd.refused + crowd.reset + crowd.malformed + crowd.not_sent + crowd.unfinished;
        assert_eq!(
            causes + crowd.aborted + crowd.timed_out_connect + crowd.timed_out_response,
            crowd.offered,
            "{crowd:?}"
        );
        assert!(crowd.ok > 0, "{crowd:?}");
        assert!(crowd.answered_by_syns[0] > 0, "{crowd:?}");
        assert!(cell.kernel["Tcp.PassiveOpens"] > 0, "the kernel saw the crowd, too");
    }
    assert!(stock.guard.is_none());
    let guard = guarded.guard.as_ref().expect("the guard's counters");
    assert!(guard["syns.seen"] >= guarded.crowd.sent, "our program saw every SYN: {guard:?}");

    let page = std::fs::read_to_string(folder.join("report.html")).expect("a page");
    let text = String::from_utf8_lossy(&output.stdout);
    let finding = text.lines().find(|line| line.contains("At 0.5 times saturation")).expect("a finding");
    assert!(page.contains("Does every part do its part?") && !finding.is_empty());
    assert!(text.contains("claims of small, built-in: 1 hold, 1 fail\n"), "{text}");
    assert!(page.contains("a reply takes no time"));
}

#[test]
fn root_quick_run_takes_rules_dry_runs_floods_holders_and_other_clients() {
    let Some(scratch) = Scratch::create() else { return };
    let rules = OTHER_POLICIES.to_owned() + "    [[claim]]\n    source = \"arithmetic\"";
    let file = scratch.with(&[("    [[claim]]\n    source = \"arithmetic\"", &rules)]);
    let output = scratch.lab(&file).arg("--quick").output().expect("run");
    assert!(output.status.success(), "{}", stderr(&output));
    let records = records(&scratch.run_folder());
    let cell = |policy: &str| {
        records.iter().find_map(|record| match record {
            Record::Cell(cell) if cell.policy == policy => Some(cell),
            _ => None,
        })
    };
    let dry = cell("dry").expect("measured");
    assert!(dry.guard_per_s["syns.seen"] > 0.0, "{:?}", dry.guard_per_s);
    assert_eq!(dry.crowd.refused, 0, "it only counts");
    assert_eq!(dry.flood, None);
    let flooded = cell("flooded").expect("measured");
    let flood = flooded.flood.expect("a flood");
    assert!(flood.syns_per_s > flooded.crowd.syns_per_s, "{flood:?}");
    assert!(flood.answers_per_s > 0.0, "by cookies once the SYN queue is full: {flood:?}");
    let (seen, attempts) = (flooded.guard_per_s["syns.seen"], flooded.crowd.syns_per_s);
    assert!(seen > 2.0 * attempts, "the guard sees both ways in: {seen} of which {attempts} the crowd's");
    let held = cell("held").expect("measured");
    assert_eq!(held.held.keys().collect::<Vec<_>>(), ["half_requests", "idle"]);
    assert!(held.held.values().all(|kind| kind.held == kind.asked), "{:?}", held.held);
    let is_quick = |record: &Record| match record {
        Record::Header(header) => header.is_quick,
        Record::Claim(claim) => claim.marks.iter().any(|mark| mark.starts_with("a quick run")),
        _ => true,
    };
    assert!(records.iter().all(is_quick), "a quick run says so");
    match cell("rules") {
        Some(rules) => assert!(rules.crowd.refused > rules.crowd.ok, "{:?}", rules.crowd),
        None => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("note: rules is left out: there is no nft"), "{text}");
            eprintln!("skipped: nft rules in the lab: no nft here");
        }
    }
}

/// With cookies from the driver, and the ends of such handshakes behind it.
#[test]
fn root_quick_run_takes_floods_and_holders_before_a_guard_in_the_driver() {
    let Some(scratch) = Scratch::create() else { return };
    let driver = r#"
    [[policy]]
    name = "both"
    guard = "abort+cookies"
    attach = "xdp"
    crowd = { flood_per_s = 5000, hold = { idle = 20, half_requests = 5 } }
    [[claim]]
    source = "arithmetic""#;
    let file = scratch.with(&[
        ("    [[claim]]\n    source = \"arithmetic\"", driver),
        ("patience", "receive = \"driver\"\n    patience"),
    ]);
    let output = scratch.lab(&file).arg("--quick").output().expect("run");
    assert!(output.status.success(), "{}", stderr(&output));
    let records = records(&scratch.run_folder());
    let both = records.iter().find_map(|record| match record {
        Record::Cell(cell) if cell.policy == "both" => Some(cell),
        _ => None,
    });
    let both = both.expect("measured");
    let flood = both.flood.expect("a flood");
    assert!(flood.syns_per_s > both.crowd.syns_per_s, "{flood:?}");
    assert!(both.guard_per_s["syns.seen"] > 2.0 * both.crowd.syns_per_s, "{:?}", both.guard_per_s);
    for cookies in ["syns.cookies", "acks.cookies_back"] {
        assert!(
            both.guard_per_s[cookies] > 0.0,
            "{cookies}, once the SYN queue is full: {:?}",
            both.guard_per_s
        );
    }
    assert!(both.crowd.ok > 0, "{:?}", both.crowd);
    assert!(both.held.values().all(|kind| kind.held == kind.asked), "{:?}", both.held);
    assert_eq!(both.held.keys().collect::<Vec<_>>(), ["half_requests", "idle"]);
}

#[test]
fn root_packet_scripts_answer_the_claims_in_them() {
    let Some(scratch) = Scratch::create() else { return };
    let file = scratch.0.path().join("trace.toml");
    let trace = "name = \"trace\"\ntitle = \"A figure?\"\n[[trace]]\nsource = \"[Shu05]\"\nscript = \"traces/fig-4.5-rst-syn\"\n";
    std::fs::write(&file, trace).expect("write");
    let output = scratch.lab("trace.toml").output().expect("run");
    assert!(output.status.success(), "{}", stderr(&output));
    let records = records(&scratch.run_folder());
    let [Record::Header(_), Record::Trace(first), Record::Trace(second), Record::Claim(claim)] = &records[..]
    else {
        panic!("a header, one run for each address family, a claim: {records:?}")
    };
    assert_eq!((first.family.as_str(), second.family.as_str()), ("ipv4", "ipv6"));
    assert!(first.transcript.iter().any(|line| line.contains("a: < R. 0:0(0) ack 1")), "{first:?}");
    assert_eq!(claim.answer, Answer::Holds, "{claim:?}");
    std::fs::write(&file, trace.replace("fig-4.5-rst-syn", "fig-9")).expect("write");
    let output = scratch.lab("trace.toml").output().expect("run");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("there is no such packet script; traces are traces/fig-4.11"));
}

#[test]
fn root_flood_leaves_for_no_other_machine() {
    let Some(_scratch) = Scratch::create() else { return };
    let testbed = Testbed::join("10.77.0.0/16".parse().expect("a network")).expect("a testbed");
    let mut command = testbed.crowd.command(TIDEGATE).expect("a command");
    let arguments =
        ["--rate", "10", "--clients", "10.77.0.0/16", "--interface", CROWD_INTERFACE, "--flood", "lo"];
    let output = command.args(["load", "http://10.76.0.1/"]).args(arguments).output().expect("run");
    assert!(stderr(&output).contains("and lo is no veth"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn root_crowd_comes_in_bursts_and_has_the_mean_that_was_asked_for() {
    let Some(_scratch) = Scratch::create() else { return };
    let testbed =
        Testbed::create(&Layout::default(), "10.77.0.0/16".parse().expect("a network")).expect("a testbed");
    let mut command = testbed.crowd.command(TIDEGATE).expect("a command");
    command.args(["load", "http://10.76.0.1/", "--json", "--clients", "10.77.0.0/16"]);
    command.args(["--interface", CROWD_INTERFACE, "--rate", "100", "--duration", "4s", "--drain", "1s"]);
    let output = command.args(["--arrivals", "fixed", "--bursts", "1s/1s"]).output().expect("run");
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let progress = lines.iter().filter(|line| line["event"] == "progress");
    let offered: Vec<f64> = progress.map(|line| line["offered_per_s"].as_f64().expect("a rate")).collect();
    assert!(offered[0] > 140.0 && offered[1] < 60.0 && offered[2] > 140.0, "{offered:?}");
    let summary = lines.last().expect("a summary");
    let [offered, refused] = ["offered", "refused"].map(|key| summary[key].as_u64().expect("a count"));
    assert!(offered.abs_diff(400) <= 1 && refused == offered, "{summary}");
}

#[test]
fn root_experiment_with_bursts_is_measured_by_them_and_its_saturation_without() {
    let Some(scratch) = Scratch::create() else { return };
    let bursts =
        "backlog = 128\ncrowd = { bursts = { on = \"200ms\", off = \"100ms\" } }\nduration = \"900ms\"";
    let other =
        "\n[[server]]\nname = \"other\"\nkind = \"built-in\"\nbacklog = 128\ncpu_time = \"2ms\"\n[[policy]]";
    scratch.with(&[("backlog = 128", bursts)]);
    let file = scratch.0.path().join("changed.toml");
    let text = std::fs::read_to_string(&file).expect("read");
    let text = text
        .replacen("[[policy]]", other, 1)
        .replace("policy = \"stock\"", "policy = \"stock\"\nserver = \"other\"");
    std::fs::write(&file, text).expect("write");
    let output = scratch.lab("changed.toml").arg("--quick").output().expect("run");
    assert!(output.status.success(), "{}", stderr(&output));
    let records = records(&scratch.run_folder());
    let windows: Vec<(&str, f64)> = records
        .iter()
        .filter_map(|record| match record {
            Record::Cell(cell) => Some((cell.server.as_str(), cell.crowd.window_s)),
            _ => None,
        })
        .collect();
    assert_eq!(windows, [("built-in", 0.9), ("built-in", 0.9), ("other", 0.3), ("other", 0.3)]);
    let rates: Vec<f64> = records
        .iter()
        .filter_map(|record| match record {
            Record::Saturation(saturation) => Some(saturation.rate_per_s),
            _ => None,
        })
        .collect();
    assert!(rates.len() == 2 && rates[0] == rates[1], "found once: {rates:?}");
    let claims: Vec<&str> = records
        .iter()
        .filter_map(|record| match record {
            Record::Claim(claim) => Some(claim.server.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(claims, ["built-in", "other", "other"], "one of both, one of the other");
    let Record::Header(header) = &records[0] else { panic!("a header: {records:?}") };
    let says =
        |text: &String| text.contains("The crowd of built-in comes in bursts of 200ms with gaps of 100ms");
    assert_eq!(header.deviations.iter().filter(|text| says(text)).count(), 1, "{:?}", header.deviations);
}

#[test]
fn bursts_that_cannot_be_are_a_usage_error_of_one_line() {
    for (bursts, why) in [
        ("10s", "a burst and a gap with a slash between them, as in 10s/5s"),
        ("10s/0s", "the gap: a time above 0"),
        ("0s/5s", "the burst: a time above 0"),
    ] {
        let mut command = Command::new(TIDEGATE);
        command.args(["load", "http://10.76.0.1/", "--rate", "1k", "--clients", "10.77.0.0/16"]);
        let output = command.args(["--interface", "lo", "--bursts", bursts]).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

fn wait_for_the_grid(lines: &mut impl Iterator<Item = std::io::Result<String>>) {
    let mut lines = lines.map(|line| line.expect("a line"));
    assert!(lines.any(|line| line.contains("saturates at")), "the grid begins");
}

#[test]
fn root_stopped_experiment_keeps_what_was_complete_and_leaves_nothing() {
    let Some(scratch) = Scratch::create() else { return };
    let file = scratch.with(&[("duration = \"300ms\"", "duration = \"60s\"")]);
    let mut child = scratch.lab(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    wait_for_the_grid(&mut lines);
    signal(&child, Signal::SIGINT);
    let rest: Vec<String> = lines.map(|line| line.expect("a line")).collect();
    let id = child.id();
    let output = child.wait_with_output().expect("wait");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("stopped before the end"), "{}", stderr(&output));
    assert!(rest.iter().any(|line| line.starts_with("report ")), "{rest:?}");
    assert_no_namespaces_of(id);
    let records = records(&scratch.run_folder());
    let [Record::Header(header), Record::Saturation(_), claims @ ..] = &records[..] else {
        panic!("a header, a saturation, claims: {records:?}")
    };
    assert_eq!((header.planned, claims.len()), (Some(2), 2));
    let is_open =
        |record: &Record| matches!(record, Record::Claim(claim) if claim.answer == Answer::NotMeasured);
    assert!(claims.iter().all(is_open), "{claims:?}");
}

#[test]
fn root_lab_that_was_killed_is_cleaned_up_by_the_next() {
    let Some(scratch) = Scratch::create() else { return };
    let file = scratch.with(&[("duration = \"200ms\"", "duration = \"60s\"")]);
    let mut child = scratch.lab(&file).stdout(Stdio::null()).spawn().expect("start");
    // In the middle of a crowd. An `ip` that is making a namespace would outlive the lab, and the
    // next one's sweep.
    child_of(&mut child, "load");
    child.kill().expect("kill -9");
    child.wait().expect("wait");
    let next = scratch.lab("small.toml").arg("--quick").output().expect("run");
    assert!(next.status.success(), "{}", stderr(&next));
    assert_no_namespaces_of(child.id());
}

#[test]
fn wrong_experiment_is_a_usage_error_of_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.toml");
    std::fs::write(&file, EXPERIMENT.replace("loads = [0.5]", "loads = [\"fast\"]")).expect("write");
    let output = Command::new(TIDEGATE).args(["lab", "run"]).arg(&file).output().expect("run");
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("expected f64"), "{}", stderr(&output));
    for (no_file, why) in [
        ("no-such.toml", "there is no such file"),
        ("/", "name the files in it"),
        ("/dev/null/x.toml", "there is no such file"),
    ] {
        let output = Command::new(TIDEGATE).args(["lab", "run", no_file]).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(why), "{}", stderr(&output));
    }
}

/// A program whose standard output is JSON lines; it is killed when this is dropped.
struct Json {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Json {
    /// What it says is read all the time: a pipe holds some two hundred samples, and then whoever
    /// writes them waits.
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("start");
        let said = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || said.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines }
    }

    fn wait_for(&mut self, event: &str) -> Value {
        let values = self.lines.iter().map(|line| serde_json::from_str::<Value>(&line).expect("JSON"));
        let is_it = |value: &Value| value["event"] == event;
        values.into_iter().find(is_it).unwrap_or_else(|| panic!("no {event}"))
    }
}

impl Drop for Json {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Answers one request of each connection, until told to stop; what waits then is for the next.
fn serve(listener: &TcpListener, stop: &AtomicBool) {
    listener.set_nonblocking(true).expect("set");
    while !stop.load(Ordering::Relaxed) {
        let Ok((mut client, _)) = listener.accept() else {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        };
        client.set_nonblocking(false).expect("set");
        client.set_read_timeout(Some(Duration::from_secs(5))).expect("set");
        if client.read(&mut [0; 1024]).is_ok_and(|got| got > 0) {
            client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").ok();
            let _closed_by_client = client.read(&mut [0]);
        }
    }
}

/// As servers that get their listener from systemd: it stays while they come and go. (A server that
/// binds anew may lose a connection with every few hundred restarts, with or without a guard:
/// docs/kernel.md.)
fn restart_servers(listener: &TcpListener, is_over: &AtomicBool) -> u32 {
    let mut restarts = 0;
    while !is_over.load(Ordering::Relaxed) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let running = scope.spawn(|| serve(listener, &stop));
            std::thread::sleep(Duration::from_millis(50));
            stop.store(true, Ordering::Relaxed);
            running.join().expect("it ends");
        });
        restarts += 1;
    }
    restarts
}

/// Below saturation every attempt must succeed, whatever happens to guard and server meanwhile.
#[test]
fn root_guards_killed_and_servers_restarted_under_load_lose_no_connection() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    let kills = std::env::var(KILLS_VARIABLE).map_or(KILLS, |text| text.parse().expect("a number"));
    let testbed =
        Testbed::create(&Layout::default(), "10.77.0.0/16".parse().expect("a network")).expect("a testbed");
    let address = testbed.server_address().to_string();
    let is_over = AtomicBool::new(false);
    let bind = || TcpListener::bind(testbed.server_address());
    let listener = testbed.server.enter(bind).expect("enter").expect("bind");
    let (seen, restarts, summary) = std::thread::scope(|scope| {
        let servers = scope.spawn(|| restart_servers(&listener, &is_over));
        let over = Over(&is_over);
        let url = format!("http://{address}/");
        let load = ["load", &url, "--json", "--rate", "400", "--duration", "20min", "--timeout", "10s"];
        let from = ["--clients", "10.77.0.0/16", "--interface", CROWD_INTERFACE];
        let mut crowd = Json::start(testbed.crowd.command(TIDEGATE).expect("command").args(load).args(from));
        crowd.wait_for("started");
        let mut seen = 0;
        for round in 0..kills {
            let policy = ["rst-syn", "abort+rst-syn", "reserv+rst-syn", "no-syn-drop"][round % 4];
            let guard = [
                "guard",
                "--json",
                "--policy",
                policy,
                "--listen",
                &address,
                "--interface",
                SERVER_INTERFACE,
            ];
            let mut guard = Json::start(testbed.server.command(TIDEGATE).expect("command").args(guard));
            guard.wait_for("attached");
            if round % 20 == 0 {
                let sample = guard.wait_for("sample");
                seen += u64::from(sample["syns"]["admitted"].as_u64() > Some(0) && is_guarded(&testbed));
            }
            // SIGKILL, by Json's drop.
        }
        signal(&crowd.child, Signal::SIGINT);
        let summary = crowd.wait_for("summary");
        drop(over);
        (seen, servers.join().expect("servers end"), summary)
    });
    assert!(!is_guarded(&testbed), "the last guard's program is still attached");
    assert_eq!(seen, kills.div_ceil(20) as u64, "every guard that was asked saw the crowd come");
    assert!(restarts >= kills as u32, "{restarts} restarts");
    assert!(summary["offered"].as_u64() > Some(1000), "{summary}");
    // Those under way at the end are no failures.
    let done =
        summary["ok"].as_u64().zip(summary["unfinished"].as_u64()).map(|(ok, unfinished)| ok + unfinished);
    assert_eq!(done, summary["offered"].as_u64(), "{restarts} restarts: {summary}");
}

/// Whether a program is attached at tcx ingress of the server's interface.
fn is_guarded(testbed: &Testbed) -> bool {
    let count = || bpf::count_tcx_ingress(if_nametoindex(SERVER_INTERFACE).expect("the interface"));
    testbed.server.enter(count).expect("enter").expect("ask the kernel") > 0
}

/// A crowd that comes to a full accept queue behind a guard at tcx; how it is received is the
/// argument.
fn crowd_at_a_full_queue(xdp: &str, receive: Receive, attach: &str) -> Option<Value> {
    if let Err(reason) = netns::root_or_reason() {
        eprintln!("{reason}");
        return None;
    }
    let layout = Layout { receive, ..Layout::default() };
    let testbed = Testbed::create(&layout, "10.77.0.0/16".parse().expect("a network")).expect("a testbed");
    let address = testbed.server_address().to_string();
    // Holds one connection, and never accepts it.
    testbed.server.set_sysctl("net.core.somaxconn", "0").expect("sysctl");
    let _listener = testbed.server.enter(|| TcpListener::bind(&address)).expect("enter").expect("bind");
    let guard =
        ["guard", "--json", "--policy", "rst-syn", "--listen", &address, "--interface", SERVER_INTERFACE];
    let mut command = testbed.server.command(TIDEGATE).expect("command");
    let mut guard = Json::start(command.args(guard).args(["--attach", attach]));
    guard.wait_for("attached");
    let url = format!("http://{address}/");
    // Who hears nothing is to give up soon; on a busy machine who is answered hears it late.
    let timeout = if xdp == "generic" { "500ms" } else { "4s" };
    let load =
        ["load", &url, "--json", "--rate", "100", "--duration", "1s", "--timeout", timeout, "--xdp", xdp];
    let from = ["--clients", "10.77.0.0/16", "--interface", CROWD_INTERFACE];
    let mut crowd = Json::start(testbed.crowd.command(TIDEGATE).expect("command").args(load).args(from));
    let summary = crowd.wait_for("summary");
    signal(&guard.child, Signal::SIGTERM);
    let totals = guard.wait_for("final");
    assert!(totals["syns"]["reset"].as_u64() > Some(30), "the guard did refuse: {totals}");
    Some(summary)
}

#[test]
fn root_crowd_hears_the_guards_resets_in_native_xdp() {
    let Some(summary) = crowd_at_a_full_queue("native", Receive::Softirq, "tcx") else { return };
    assert_eq!(summary["timed_out_connect"], 0, "{summary}");
    assert!(summary["refused"].as_u64() > Some(30), "{summary}");
}

#[test]
fn root_crowd_behind_a_relay_is_refused_in_the_driver_and_at_tcx() {
    for attach in ["xdp", "tcx"] {
        let Some(summary) = crowd_at_a_full_queue("native", Receive::Driver, attach) else { return };
        assert_eq!(summary["timed_out_connect"], 0, "{attach}: {summary}");
        assert!(summary["refused"].as_u64() > Some(30), "{attach}: {summary}");
    }
}

/// Why the lab and `auto` are native: see docs/kernel.md.
#[test]
fn root_crowd_in_generic_xdp_misses_what_tc_redirected() {
    let Some(summary) = crowd_at_a_full_queue("generic", Receive::Softirq, "tcx") else { return };
    assert_eq!(summary["refused"], 0, "{summary}");
    assert!(summary["timed_out_connect"].as_u64() > Some(30), "{summary}");
}
