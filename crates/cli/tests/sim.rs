//! `tidegate sim` as a user runs it; needs no privileges.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROFILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/profiles/round-numbers.toml");

fn sim(args: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("sim").args(args).arg("--results").arg(folder.join("results"));
    command.output().expect("tidegate runs")
}

fn experiment(folder: &Path) -> PathBuf {
    let path = folder.join("small.toml");
    let text = r#"
name = "small"
title = "Does the same come out again?"
[crowd]
timeout = "2s"
close = "fin"
arrivals = "poisson"
[grid]
loads = [0.8, 1.5]
warmup = "200ms"
duration = "500ms"
repetitions = 2
[saturation]
duration = "200ms"
refinements = 2
[[server]]
name = "built-in"
kind = "built-in"
backlog = 64
[[policy]]
name = "stock"
[[policy]]
name = "default"
guard = "abort+rst-syn+unserved"
[[policy]]
name = "limited"
nft = "table ip lab { }"
[[claim]]
source = "nobody"
text = "the guard answers more"
measure = "goodput"
policy = "default"
against = "stock"
loads = [1.5]
holds = { at_least = 1.0 }
"#;
    fs::write(&path, text).expect("write");
    path
}

/// Its records but the header, which has the time of day.
fn records(folder: &Path) -> Vec<String> {
    let run =
        fs::read_dir(folder.join("results")).expect("results").next().expect("a run").expect("a folder");
    let text = fs::read_to_string(run.path().join("results.jsonl")).expect("records");
    assert!(run.path().join("report.html").exists());
    text.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn same_comes_out_on_any_number_of_threads() {
    let run = |threads: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = experiment(folder.path());
        let file = file.to_str().expect("text");
        let output = sim(&[file, "--profile", PROFILE, "--threads", threads], folder.path());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert!(said.contains("limited is left out: nft is not simulated"), "{said}");
        records(folder.path())
    };
    let one = run("1");
    assert_eq!(one.len(), 1 + 8 + 1, "a saturation, two loads, policies and repetitions, and a claim");
    assert_eq!(one, run("2"));
}

#[test]
fn what_cannot_be_simulated_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path());
    let file = file.to_str().expect("text");
    let profile = |text: &str| {
        let path = folder.path().join("machine.toml");
        fs::write(&path, text).expect("write");
        path.to_str().expect("text").to_owned()
    };
    let whole = fs::read_to_string(PROFILE).expect("a profile");
    for (text, why) in [
        (whole.replace("poll = 1.0", "poll = -1.0"), "server.poll = -1 us is no cost"),
        (whole.replace("ring = 256", "ring = 0"), "receive.ring = 0 holds no frame"),
        (whole.replace("poll = ", "pol = "), "unknown field `pol`"),
        (whole.replace("longest = 0.0", "longest = 5.0"), "receive.turn = 0 gives programs no turn"),
    ] {
        let output = sim(&[file, "--profile", &profile(&text)], folder.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why) && said.trim_end().lines().count() == 1, "{said}");
    }
    let output = sim(&[file, "--profile", "/nowhere.toml"], folder.path());
    assert!(String::from_utf8_lossy(&output.stderr).contains("profile /nowhere.toml"), "{output:?}");
    assert!(!folder.path().join("results").exists(), "nothing is left behind");
}
