//! Experiments whose clients are far from the server, in virtual time and on the running kernel.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::common::{TIDEGATE, assert_no_namespaces_of, child_of, signal};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use results::{Cell, Record};
use tempfile::TempDir;

/// A server that takes 2 ms for a request, with clients beside it, and 40 ms away.
const EXPERIMENT: &str = r#"
    name = "far"
    title = "Does the way between clients and server take its time and its toll?"
    [testbed]
    patience = "0s"
    [crowd]
    timeout = "5s"
    close = "fin"
    arrivals = "fixed"
    [path]
    delay = ["0ms", "20ms"]
    loss = "5%"
    [grid]
    loads = [1.0]
    warmup = "300ms"
    duration = "2s"
    [saturation]
    from = 50
    factor = 4
    refinements = 0
    duration = "200ms"
    confirm = "200ms"
    [[server]]
    name = "s"
    kind = "built-in"
    backlog = 128
    cpu_time = "2ms"
    [[policy]]
    name = "stock"
    [[policy]]
    name = "rst-syn"
    guard = "rst-syn"
"#;

fn scratch() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("far.toml"), EXPERIMENT).expect("write the experiment");
    folder
}

fn root_scratch() -> Option<TempDir> {
    if let Err(reason) = netns::root_or_reason() {
        eprintln!("{reason}");
        return None;
    }
    Some(scratch())
}

fn tidegate(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(TIDEGATE);
    command.args(arguments).current_dir(folder);
    command
}

fn text(output: &Output) -> String {
    let [out, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    out + &error
}

/// The lines of the only run in a folder, without its header, which has the time of day.
fn lines(folder: &Path) -> Vec<String> {
    let mut runs = std::fs::read_dir(folder).expect("results").map(|entry| entry.expect("an entry").path());
    let results = runs.next().expect("a run").join("results.jsonl");
    let text = std::fs::read_to_string(results).expect("read the results");
    text.lines().skip(1).map(str::to_owned).collect()
}

fn cells(folder: &Path) -> Vec<Cell> {
    let records = lines(folder);
    let records = records.iter().map(|line| serde_json::from_str(line).expect("a record"));
    let cell = |record| if let Record::Cell(cell) = record { Some(*cell) } else { None };
    records.filter_map(cell).collect()
}

/// What holds of such cells wherever they were measured.
#[track_caller]
fn assert_far(cells: &[Cell]) {
    let names: Vec<_> = cells.iter().map(|cell| (cell.server.as_str(), cell.policy.as_str())).collect();
    let expected = [("s-0ms", "stock"), ("s-0ms", "rst-syn"), ("s-20ms", "stock"), ("s-20ms", "rst-syn")];
    assert_eq!(names, expected);
    for cell in cells {
        let path = cell.path.as_deref().expect("a way");
        let count = |name: &str| path.counters[name];
        assert!(path.to_server.contains("loss 0.05") && path.to_server == path.to_clients, "{path:?}");
        assert!(count("to_server.opening") > 50 && count("to_clients.opening") > 50, "{path:?}");
        for way in ["to_server", "to_clients"] {
            let share = count(&format!("{way}.lost")) as f64 / count(&format!("{way}.arrived")) as f64;
            assert!((0.02..0.09).contains(&share), "{way} lost {share}: {path:?}");
        }
        assert!(cell.crowd.syns_per_attempt > 1.0, "lost SYNs are sent again: {:?}", cell.crowd);
        // Two round trips, and the 2 ms of the request.
        let least_ms = if cell.server == "s-20ms" { 80.0 } else { 0.0 } + 2.0;
        assert!(cell.crowd.response_ms.p50 >= 0.99 * least_ms, "{:?}", cell.crowd.response_ms);
        assert!(cell.crowd.ok > 0, "{:?}", cell.crowd);
    }
}

#[test]
fn way_is_simulated_the_same_on_any_number_of_threads() {
    let folder = scratch();
    let run = |threads: &str| {
        let arguments =
            ["sim", "far.toml", "--profile", "round-numbers", "--threads", threads, "--results", threads];
        let output = tidegate(folder.path(), &arguments).output().expect("run");
        assert!(output.status.success(), "{}", text(&output));
        let said = text(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("clients are behind a path each way: delay 20ms loss 0.05"), "{said}");
        folder.path().join(threads)
    };
    let one = run("1");
    assert_far(&cells(&one));
    assert_eq!(lines(&one), lines(&run("2")));
}

#[test]
fn way_that_cannot_be_is_a_usage_error_of_one_line() {
    let folder = scratch();
    for (from, to, expected) in [
        ("\"20ms\"", "\"20\"", "path: delay 20: a time with its unit"),
        ("\"5%\"", "\"105%\"", "path: loss 1.05: a probability from 0 to 1"),
        (
            "\"20ms\"",
            "\"2s\"",
            "path.delay: a reply takes two round trips, 8s, and nobody waits longer than 5s",
        ),
        ("\"20ms\"", "\"0ms\"", "\"0ms\" is there twice"),
        ("loss =", "losses =", "unknown field `losses`"),
    ] {
        assert!(EXPERIMENT.contains(from), "the test changes nothing");
        std::fs::write(folder.path().join("wrong.toml"), EXPERIMENT.replace(from, to)).expect("write");
        for arguments in [&["sim", "wrong.toml"][..], &["lab", "run", "wrong.toml"]] {
            let output = tidegate(folder.path(), arguments).output().expect("run");
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains(expected) && said.lines().count() == 1, "{said}");
        }
    }
}

#[test]
fn root_crowd_comes_through_a_link_and_nothing_is_left() {
    let Some(folder) = root_scratch() else { return };
    let mut command = tidegate(folder.path(), &["lab", "run", "far.toml"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let id = child.id();
    let output = child.wait_with_output().expect("wait");
    assert!(output.status.success(), "{}", text(&output));
    assert_no_namespaces_of(id);
    let cells = cells(&folder.path().join("results"));
    assert_far(&cells);
    let guard = cells[1].guard.as_ref().expect("a guard");
    assert!(guard["syns.seen"] > 0, "it is behind the link: {guard:?}");
    for way in ["to_server", "to_clients"] {
        // What the link was not told to do is a mark.
        let path = cells[0].path.as_deref().expect("a way");
        assert_eq!(path.counters[&format!("{way}.dropped")], 0, "{path:?}");
    }
}

/// Begins a run with windows of a minute, and ends it or its link by a signal in the middle of a
/// cell.
fn root_run_that_ends_early(folder: &Path, end: impl FnOnce(&Child, Pid)) -> Output {
    let long = EXPERIMENT.replace("duration = \"2s\"", "duration = \"60s\"");
    std::fs::write(folder.join("far.toml"), long).expect("write");
    let mut command = tidegate(folder, &["lab", "run", "far.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let link = child_of(&mut child, "link");
    child_of(&mut child, "load");
    end(&child, link);
    let id = child.id();
    let output = child.wait_with_output().expect("wait");
    assert_no_namespaces_of(id);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    output
}

#[test]
fn root_run_with_a_link_that_is_stopped_leaves_nothing() {
    let Some(folder) = root_scratch() else { return };
    let output = root_run_that_ends_early(folder.path(), |run, _| signal(run, Signal::SIGINT));
    assert!(text(&output).contains("stopped before the end"), "{}", text(&output));
    assert!(cells(&folder.path().join("results")).is_empty());
}

#[test]
fn root_run_whose_link_is_killed_ends_with_the_reason_and_leaves_nothing() {
    let Some(folder) = root_scratch() else { return };
    let output = root_run_that_ends_early(folder.path(), |_, link| {
        kill(link, Signal::SIGKILL).expect("it runs");
    });
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("s-0ms under stock at 1 times saturation"), "{said}");
    assert!(said.contains("tidegate link ended before its time"), "{said}");
}
