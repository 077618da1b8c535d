//! A dumbbell on the running kernel, from file to comparison.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{TIDEGATE, assert_no_namespaces_of, child_of, signal};
use nix::sys::signal::Signal;
use results::{BottleneckSummary, Cell, Record};
use tempfile::TempDir;

/// Three hosts on each side, with 20 users and three bulk flows, so that there are drops within
/// seconds.
const DUMBBELL: &str = r#"
    name = "small"
    title = "Do replies come through the bottleneck?"
    topology = "dumbbell"
    [network]
    hosts = 3
    link = "rate 5mbit delay 1ms"
    access_mbit = 100
    round_trips = ["5ms", "20ms"]
    [tcp]
    stack = "linux"
    algorithm = "reno"
    mss = 1000
    [grid]
    warmup = "1s"
    duration = "4s"
    repetitions = 1
    [[scenario]]
    name = "users"
    bulk = 2
    reverse = 1
    sessions = 20
    [[scenario]]
    name = "flooded"
    bulk = 1
    flood_per_s = 100
    [[aqm]]
    name = "red"
    queue = "red:limit=20,min=2,max=6,w=0.02"
"#;

fn scratch() -> Option<TempDir> {
    if let Err(reason) = netns::root_or_reason() {
        eprintln!("{reason}");
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("small.toml"), DUMBBELL).expect("write the experiment");
    Some(folder)
}

fn tidegate(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(TIDEGATE);
    command.args(arguments).current_dir(folder);
    command
}

/// The results of the only run in a folder.
fn results(folder: &Path) -> PathBuf {
    let mut runs = std::fs::read_dir(folder).expect("results").map(|entry| entry.expect("an entry").path());
    runs.next().expect("a run").join("results.jsonl")
}

fn cells(results: &Path) -> Vec<Cell> {
    let text = std::fs::read_to_string(results).expect("read the results");
    let records = text.lines().map(|line| serde_json::from_str(line).expect("a record"));
    let cell = |record| if let Record::Cell(cell) = record { Some(*cell) } else { None };
    records.filter_map(cell).collect()
}

fn text(output: &Output) -> String {
    let [out, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    out + &error
}

#[test]
fn root_replies_come_through_a_bottleneck_between_real_kernels_and_nothing_is_left() {
    let Some(folder) = scratch() else { return };
    let mut command = tidegate(folder.path(), &["lab", "run", "small.toml"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let id = child.id();
    let output = child.wait_with_output().expect("wait");
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("flooded is left out: floods are simulated only"), "{}", text(&output));
    assert_no_namespaces_of(id);
    let real = results(&folder.path().join("results"));
    let [cell] = &cells(&real)[..] else { panic!("one cell: {}", text(&output)) };
    assert_eq!((cell.server.as_str(), cell.policy.as_str()), ("users", "red"));
    let link: &BottleneckSummary = cell.link.as_deref().expect("of a bottleneck");
    assert!(link.objects_done > 0 && link.objects_done <= link.objects, "{link:?}");
    assert_eq!(link.drops, link.drops_by_reason.values().sum::<u64>(), "{link:?}");
    assert!(link.drops > 0 && link.drops < link.packets, "{link:?}");
    // Each object has a SYN/ACK, at least.
    assert!(link.opening >= link.objects_done && link.opening_drops < link.opening, "{link:?}");
    assert!(link.utilisation > 0.1 && link.utilisation <= 1.01, "{link:?}");
    // One of them may wait for a timeout that was doubled, for as long as is measured.
    assert!(
        link.bulk_bytes_per_s.len() == 2 && link.bulk_bytes_per_s.iter().any(|rate| *rate > 0.0),
        "{link:?}"
    );
    // What receivers got came through the link, in frames of 1054 bytes for 1000.
    assert!(link.goodput_bytes_per_s * 1.054 <= link.utilisation * 5e6 / 8.0 * 1.05, "{link:?}");
    assert!(link.goodput_bytes_per_s >= link.bulk_bytes_per_s.iter().sum(), "{link:?}");

    let simulated =
        tidegate(folder.path(), &["sim", "small.toml", "--results", "simulated"]).output().expect("run");
    assert!(simulated.status.success(), "{}", text(&simulated));
    let simulated = results(&folder.path().join("simulated"));
    let files = [real, simulated].map(|file| file.to_str().expect("text").to_owned());
    let same =
        tidegate(folder.path(), &["compare", &files[0], &files[0], "--at-most", "0"]).output().expect("run");
    assert!(same.status.success() && text(&same).contains("0.000"), "{}", text(&same));
    let compared =
        tidegate(folder.path(), &["compare", &files[0], &files[1], "--at-most", "1"]).output().expect("run");
    assert!(compared.status.success() && text(&compared).contains("in virtual time"), "{}", text(&compared));
    let strict =
        tidegate(folder.path(), &["compare", &files[0], &files[1], "--at-most", "0"]).output().expect("run");
    assert!(!strict.status.success() && text(&strict).contains("more than 0"), "{}", text(&strict));
}

#[test]
fn root_dumbbell_that_is_stopped_leaves_nothing() {
    let Some(folder) = scratch() else { return };
    let long = DUMBBELL.replace("duration = \"4s\"", "duration = \"60s\"");
    std::fs::write(folder.path().join("long.toml"), long).expect("write");
    let mut command = tidegate(folder.path(), &["lab", "run", "long.toml"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    assert!(lines.any(|line| line.expect("a line").contains("left out")), "it begins");
    // In the middle of a cell.
    child_of(&mut child, "link");
    signal(&child, Signal::SIGINT);
    for line in lines {
        line.expect("a line");
    }
    let id = child.id();
    let output = child.wait_with_output().expect("wait");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("stopped before the end"), "{}", text(&output));
    assert_no_namespaces_of(id);
    assert!(cells(&results(&folder.path().join("results"))).is_empty());
}

#[test]
fn results_that_have_nothing_in_common_are_refused_in_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = tidegate(folder.path(), &["compare", "one", "other"]).output().expect("run");
    let said = text(&missing);
    assert!(!missing.status.success() && said.lines().count() == 1 && said.contains("read one"), "{said}");
    std::fs::write(folder.path().join("empty"), "").expect("write");
    let empty = tidegate(folder.path(), &["compare", "empty", "empty"]).output().expect("run");
    let said = text(&empty);
    assert!(!empty.status.success() && said.lines().count() == 1 && said.contains("results.jsonl"), "{said}");
}
