//! How a run of `tidegate sim` ends before its time: refused, interrupted, out of room. And what it
//! shows and keeps meanwhile.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::TIDEGATE;
use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::unistd::Pid;

/// An experiment with two policies at two loads, so often, and so much of it written to a folder.
fn experiment(folder: &Path, repetitions: u32) -> PathBuf {
    let path = folder.join("small.toml");
    let text = format!(
        r#"
name = "small"
title = "What is left of it?"
[crowd]
timeout = "2s"
close = "fin"
arrivals = "poisson"
[grid]
loads = [0.5, 0.8]
warmup = "100ms"
duration = "200ms"
repetitions = {repetitions}
[saturation]
duration = "100ms"
refinements = 1
[[server]]
name = "built-in"
kind = "built-in"
backlog = 64
[[policy]]
name = "stock"
[[policy]]
name = "abort"
guard = "abort"
[[claim]]
source = "nobody"
text = "everything is answered"
measure = "error_share"
policy = "stock"
loads = [0.5]
holds = {{ at_most = 1.0 }}
"#
    );
    fs::write(&path, text).expect("write");
    path
}

fn sim(folder: &Path, file: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(TIDEGATE);
    command.current_dir(folder).arg("sim").arg(file).args(["--profile", "round-numbers"]).args(args);
    command
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The folder of the only run, and the names in it.
fn results(folder: &Path) -> (PathBuf, Vec<String>) {
    let list = |folder: &Path| -> Vec<PathBuf> {
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
    };
    let runs = list(&folder.join("results"));
    assert_eq!(runs.len(), 1, "{runs:?}");
    let name = |path: &PathBuf| path.file_name().expect("a name").to_string_lossy().into_owned();
    let mut names: Vec<String> = list(&runs[0]).iter().map(name).collect();
    names.sort();
    (runs[0].clone(), names)
}

fn count_cells(lines: &str) -> usize {
    lines.lines().filter(|line| line.starts_with("{\"record\":\"cell\"")).count()
}

#[test]
fn grid_that_would_run_for_years_is_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 250_000_000);
    let mut lab = Command::new(TIDEGATE);
    lab.current_dir(folder.path()).args(["lab", "run"]).arg(&file);
    for mut command in [sim(folder.path(), &file, &[]), lab] {
        let output = command.output().expect("it runs");
        let (out, error) = said(&output);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("1000000000 cells would take 10 years in the lab"), "{error}");
        assert!(error.contains("in virtual time") && error.contains("lower grid.repetitions"), "{error}");
        assert_eq!((error.trim_end().lines().count(), out.as_str()), (1, ""));
    }
    assert!(!folder.path().join("results").exists());
}

#[test]
fn full_disk_is_one_line_and_leaves_no_results_that_look_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 50);
    // Files of 64 KiB at most: writing beyond fails as on a full disk, after a part was written.
    let mut command = Command::new("sh");
    command.current_dir(folder.path()).args(["-c", "ulimit -f 128; exec \"$@\"", "sh"]);
    command.arg(TIDEGATE).arg("sim").arg(&file).args(["--profile", "round-numbers"]);
    let output = command.output().expect("it runs");
    let (_, error) = said(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("write to results/small-") && error.contains("File too large"), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    let (run, names) = results(folder.path());
    assert_eq!(names, ["results.jsonl.part"]);
    let lines = fs::read_to_string(run.join(&names[0])).expect("text");
    assert!(lines.ends_with("}\n") && count_cells(&lines) > 0, "whole records only");
    assert!(error.contains(&format!("which has the {} records before", lines.lines().count())), "{error}");
}

#[test]
fn results_that_cannot_be_begun_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 1);
    let output = sim(folder.path(), &file, &["--results", "/dev/full"]).output().expect("it runs");
    let (_, error) = said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("make the results folder /dev/full/small-"), "{error}");
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
}

#[test]
fn book_on_a_full_device_says_so_and_the_device_stays() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 1);
    let output = sim(folder.path(), &file, &["--book", "/dev/full"]).output().expect("it runs");
    let (_, error) = said(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("write /dev/full: No space left on device"), "{error}");
    assert!(fs::metadata("/dev/full").expect("a device").file_type().is_char_device());
}

/// Sends a run a signal at the first line that has a word, and gives what it said from there on,
/// and its end.
fn interrupted(mut command: Command, at: &str, by: Signal) -> (String, String, Option<i32>) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains(at) {
        line.clear();
        assert!(lines.read_line(&mut line).expect("text") > 0, "it ended before {at:?}");
    }
    kill(Pid::from_raw(child.id().cast_signed()), by).expect("it is there");
    let (mut out, mut error) = (line, String::new());
    lines.read_to_string(&mut out).expect("text");
    child.stderr.take().expect("piped").read_to_string(&mut error).expect("text");
    (out, error, child.wait().expect("it ends").code())
}

#[test]
fn interrupted_run_has_every_cell_that_was_complete_and_says_how_many() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 20_000);
    let command = sim(folder.path(), &file, &["--threads", "2"]);
    let (out, error, status) = interrupted(command, "[3/80000]", Signal::SIGINT);
    assert_eq!(status, Some(1), "{error}");
    let (run, names) = results(folder.path());
    assert_eq!(names, ["report.html", "results.jsonl"], "each under its name");
    let lines = fs::read_to_string(run.join("results.jsonl")).expect("text");
    let cells = count_cells(&lines);
    assert!((3..80_000).contains(&cells), "{cells}");
    assert_eq!(out.matches("/80000]").count(), cells - 2, "those that were said");
    assert!(
        error.contains(&format!("stopped before the end; the report has {cells} of 80000 cells")),
        "{error}"
    );
    let missing = "of its 80,000 cells are missing (";
    let page = fs::read_to_string(run.join("report.html")).expect("text");
    assert!(page.contains(missing) && out.contains("The run ended early"), "{out}");
    assert!(lines.lines().next().expect("a header").contains("\"planned\":80000"), "{lines}");
    assert!(
        lines.contains("\"answer\":\"undecided\"") && lines.contains("the run ended early\"]"),
        "{lines}"
    );
}

#[test]
fn run_that_is_interrupted_in_its_search_ends_at_once_and_has_no_cells() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 1);
    // A probe of an hour.
    let text =
        fs::read_to_string(&file).expect("text").replacen("duration = \"100ms\"", "duration = \"1h\"", 1);
    fs::write(&file, text).expect("write");
    let command = sim(folder.path(), &file, &[]);
    let (out, error, status) = interrupted(command, "small: What is left of it?", Signal::SIGINT);
    assert_eq!(status, Some(1), "{error}");
    assert!(error.contains("the report has 0 of 4 cells"), "{error}");
    assert!(!out.contains("saturates at"), "{out}");
    assert_eq!(results(folder.path()).1, ["report.html", "results.jsonl"]);
}

#[test]
fn run_whose_terminal_goes_keeps_what_was_complete_and_one_under_nohup_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 20_000);
    let mut command = sim(folder.path(), &file, &["--results", "results/gone"]);
    // Whoever runs the tests may have it ignored.
    // SAFETY: signal(2) is async-signal-safe.
    unsafe { command.pre_exec(|| Ok(signal(Signal::SIGHUP, SigHandler::SigDfl).map(drop)?)) };
    let (_, error, status) = interrupted(command, "[1/80000]", Signal::SIGHUP);
    assert!(status == Some(1) && error.contains("stopped before the end"), "{status:?}: {error}");
    let file = experiment(folder.path(), 10);
    let mut command = Command::new("nohup");
    command.current_dir(folder.path()).arg(TIDEGATE).arg("sim").arg(&file);
    command.args(["--profile", "round-numbers", "--results", "results/stays"]).stdin(Stdio::null());
    let (out, error, status) = interrupted(command, "[1/40]", Signal::SIGHUP);
    assert!(status == Some(0) && out.contains("[40/40]"), "{status:?}: {error}");
}

#[test]
fn terminal_has_a_bar_and_a_pipe_has_lines_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 1);
    let output = sim(folder.path(), &file, &[]).output().expect("it runs");
    assert_eq!(said(&output).1, "", "nothing on standard error");
    let file = experiment(folder.path(), 15);
    // util-linux' script(1), which every Debian has, runs a command on a terminal of its own.
    let line = format!("{TIDEGATE} sim {} --profile round-numbers", file.display());
    let mut command = Command::new("script");
    command.current_dir(folder.path()).args(["-qec", &line, "/dev/null"]).stdin(Stdio::null());
    // A terminal of a kind that has a bar, whatever the caller's is.
    command.env("TERM", "xterm").env_remove("NO_COLOR");
    let output = command.output().expect("script(1)");
    assert!(output.status.success(), "{output:?}");
    let (out, _) = said(&output);
    for word in ["searching", "/60 cells", "simulated", "million events/s", "left", "[60/60] built-in at"] {
        assert!(out.contains(word), "{word} is not in {out}");
    }
}

#[test]
fn trace_keeps_a_capture_of_each_cell_and_of_no_more_than_asked() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 1);
    let output =
        sim(folder.path(), &file, &["--trace", "frames", "--trace-frames", "7"]).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    for policy in ["stock", "abort"] {
        for load in ["0.5", "0.8"] {
            let path = folder.path().join(format!("frames/small/built-in/{policy}-{load}x-1.pcap"));
            let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_be_bytes(), "a capture with nanoseconds");
            let mut rest = &bytes[24..];
            let mut frames = 0;
            while let Some((header, more)) = rest.split_at_checked(16) {
                let len = u32::from_be_bytes(header[8..12].try_into().expect("four bytes")) as usize;
                rest = &more[len..];
                frames += 1;
            }
            assert_eq!((frames, rest.len()), (7, 0), "{}", path.display());
        }
    }
}

#[test]
fn trace_that_could_fill_the_disk_or_has_nothing_to_keep_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 20_000);
    let output = sim(folder.path(), &file, &["--trace", "frames", "--trace-frames", "1000000"]).output();
    let (_, error) = said(&output.expect("it runs"));
    assert!(error.contains("captures of 80000 cells with up to 1000000 frames each could take 122400.0 GB"));
    assert!(error.contains("keep fewer frames by --trace-frames"), "{error}");
    let small = experiment(folder.path(), 1);
    for nowhere in ["/proc/frames", "/dev/full"] {
        let arguments = ["--trace", nowhere, "--trace-frames", "7"];
        let output = sim(folder.path(), &small, &arguments).output().expect("it runs");
        let (_, error) = said(&output);
        assert!(error.contains("folder for captures") && error.contains(nowhere), "{error}");
        assert!(!error.contains("incomplete"), "before anything is measured: {error}");
    }
    let dumbbell = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/syn-protection/paper.toml");
    let output = sim(folder.path(), Path::new(dumbbell), &["--trace", "frames"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).1.contains("--trace is for experiments with a server"), "{output:?}");
    assert!(!folder.path().join("frames").exists() && !folder.path().join("results").exists());
}

#[test]
fn apache_is_simulated_where_the_profile_has_a_process_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path(), 1);
    let text = fs::read_to_string(&file).expect("text").replace("kind = \"built-in\"", "kind = \"apache\"");
    fs::write(&file, text.replace("[saturation]", "[saturation]\nfrom = 1000")).expect("write");
    let output = sim(folder.path(), &file, &[]).output().expect("it runs");
    let (out, _) = said(&output);
    assert!(output.status.success() && out.contains("a pool of 150 processes"), "{output:?}");
    let profile = folder.path().join("without.toml");
    let text = include_str!("../../sim/profiles/round-numbers.toml");
    let (before, rest) = text.split_once("[process_pool]").expect("it has one");
    let (_, after) = rest.split_once("[receive]").expect("it has one");
    fs::write(&profile, format!("{before}[receive]{after}")).expect("write");
    let mut command = Command::new(TIDEGATE);
    command.current_dir(folder.path()).arg("sim").arg(&file).arg("--profile").arg(&profile);
    let output = command.output().expect("it runs");
    assert!(
        said(&output).0.contains("the profile round-numbers has no costs of a process pool"),
        "{output:?}"
    );
    assert!(!output.status.success());
}
