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

/// It needs no profile: there is no server's kernel in it.
#[test]
fn dumbbell_comes_out_the_same_on_any_number_of_threads() {
    let text = r#"
name = "pipe"
title = "Which queue?"
topology = "dumbbell"
[network]
hosts = 3
link = "rate 2mbit delay 5ms"
access_mbit = 100
round_trips = ["20ms", "40ms"]
[tcp]
stack = "linux"
algorithm = "reno"
mss = 1000
[grid]
warmup = "2s"
duration = "10s"
repetitions = 2
[[scenario]]
name = "users"
bulk = 3
sessions = 20
[[aqm]]
name = "droptail"
queue = "droptail:limit=50"
[[aqm]]
name = "redfavor"
queue = "redfavor:limit=50,min=5,max=15"
[[claim]]
source = "nobody"
text = "the link is used"
measure = "utilisation"
aqm = "droptail"
holds = { at_least = 0.9 }
"#;
    let run = |threads: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pipe.toml");
        fs::write(&file, text).expect("write");
        let book = folder.path().join("book.html");
        let arguments = [&file, &book].map(|path| path.to_str().expect("text"));
        let output = sim(&[arguments[0], "--threads", threads, "--book", arguments[1]], folder.path());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert!(said.contains("users: median of 2 seeds") && said.contains("holds"), "{said}");
        let page = fs::read_to_string(book).expect("a book");
        assert!(
            page.contains("Scenario: users") && !page.contains("Server: users"),
            "a chapter of a bottleneck"
        );
        records(folder.path())
    };
    let one = run("1");
    assert_eq!(one.len(), 4 + 1, "two disciplines and seeds, and a claim");
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
        (whole.replace("poll = ", "pol = "), "column 1: unknown field `pol`"),
        (whole.replace("longest = 0.0", "longest = 5.0"), "receive.turn = 0 gives programs no turn"),
    ] {
        let output = sim(&[file, "--profile", &profile(&text)], folder.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.trim_end().lines().count() == 1, "{said}");
    }
    fs::write(folder.path().join("results"), "").expect("write");
    let output = sim(&[file, "--profile", "round-numbers"], folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("results: it is a file, and no folder") && said.trim_end().lines().count() == 1,
        "{said}"
    );
    fs::remove_file(folder.path().join("results")).expect("it is there");
    let output = sim(&[file, "--profile", "/nowhere.toml"], folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains(
            "profile /nowhere.toml: no file, and none of those that come along; those are xeon-2005, itanium-2005"
        ),
        "{said}"
    );
    let output = sim(&[file], folder.path());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("it names no profile: give --profile a name or a file"), "{said}");
    assert!(!folder.path().join("results").exists(), "nothing is left behind");
}

#[test]
fn program_that_answers_nobody_is_marked_unless_its_descriptors_are_bounded() {
    let text = fs::read_to_string(PROFILE).expect("a profile");
    let bounded = format!("{text}\n[system]\ndescriptors = 100\n");
    for (profile, answers_nobody) in [(text, true), (bounded, false)] {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = folder.path().join("machine.toml");
        fs::write(&machine, profile).expect("write");
        let file = changed(folder.path(), "loads = [0.8, 1.5]", "loads = [1.5, 6.0]", "far-over.toml");
        let output = sim(&[&file, "--profile", machine.to_str().expect("text")], folder.path());
        assert!(output.status.success(), "{output:?}");
        let lines = fs::read_to_string(results(folder.path())).expect("records");
        assert_eq!(lines.contains("of the CPU and answered nobody"), answers_nobody);
    }
}

/// The experiment with another server, machine or claim.
fn changed(folder: &Path, from: &str, to: &str, name: &str) -> String {
    let text = fs::read_to_string(experiment(folder)).expect("an experiment");
    assert!(text.contains(from), "{from} is not in it");
    let path = folder.join(name);
    fs::write(&path, text.replacen(from, to, 1)).expect("write");
    path.to_str().expect("text").to_owned()
}

#[test]
fn book_has_every_run_and_says_why_a_claim_does_not_hold() {
    let folder = tempfile::tempdir().expect("a folder");
    let bounds = "holds = { at_least = 1.0 }";
    let never = "holds = { at_least = 99.0 }\nwhy = \"nothing answers a hundred times as much\"";
    let files = [
        changed(
            folder.path(),
            bounds,
            "holds = { at_least = 0.0 }\nwhy = \"this is not said\"",
            "holds.toml",
        ),
        changed(folder.path(), bounds, never, "fails.toml"),
    ];
    let book = folder.path().join("book.html");
    let book = book.to_str().expect("text");
    let output = sim(&[&files[0], &files[1], "--profile", "xeon-2005", "--book", book], folder.path());
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(book).expect("a book");
    assert!(page.contains("Of 2 claims 1 hold, 1 fail."), "the claims are summed up");
    assert!(page.contains("Why not: nothing answers a hundred times as much"));
    assert!(!page.contains("Why not: this is not said"), "a claim that holds has no reason not to");
    assert!(page.contains("id=\"chapter-2\"") && !page.contains("id=\"chapter-3\""));
}

#[test]
fn book_that_cannot_be_written_is_refused_before_anything_is_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path());
    let book = folder.path().join("no-such-folder").join("book.html");
    let book = book.to_str().expect("text");
    let output = sim(
        &[file.to_str().expect("text"), "--profile", "round-numbers", "--quick", "--book", book],
        folder.path(),
    );
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("write ") && said.contains("book.html"), "{said}");
    assert_eq!((said.trim_end().lines().count(), output.stdout.len()), (1, 0), "{said}");
    assert!(!folder.path().join("results").exists());
}

#[test]
fn book_in_the_place_of_an_experiment_is_a_mistake() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = experiment(folder.path());
    let before = fs::read(&file).expect("an experiment");
    let link = folder.path().join("page");
    std::os::unix::fs::symlink(&file, &link).expect("a link");
    for book in [file.as_path(), &link, &folder.path().join("next.toml")] {
        let book = book.to_str().expect("text");
        let output = sim(
            &[file.to_str().expect("text"), "--profile", "round-numbers", "--quick", "--book", book],
            folder.path(),
        );
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains("would take the place of"), "{said}");
    }
    assert_eq!(fs::read(&file).expect("it is still there"), before);
}

#[test]
fn experiment_that_names_its_machine_runs_on_it_whatever_the_command_line_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let title = "title = \"Does the same come out again?\"";
    let rate = |profile: &str| {
        let file = changed(folder.path(), title, &format!("{title}\n{profile}"), "machine.toml");
        let output = sim(&[&file, "--profile", "xeon-2005", "--quick"], folder.path());
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let probes: Vec<&str> = said.lines().filter(|line| line.contains(": offered ")).collect();
        assert!(probes.len() > 3 && probes.windows(2).all(|pair| pair[0] != pair[1]), "none twice: {said}");
        let is_told = said.contains("the machine is itanium-2005, as the file says, and not xeon-2005");
        assert_eq!(is_told, !profile.is_empty(), "{said}");
        let line = said.lines().find(|line| line.contains("saturates at")).expect("a saturation").to_owned();
        line.split_whitespace().nth(3).expect("a rate").parse::<f64>().expect("a number")
    };
    let (xeon, itanium) = (rate(""), rate("profile = \"itanium-2005\""));
    assert!((0.55..0.7).contains(&(itanium / xeon)), "{itanium} against {xeon}");
    let file = changed(folder.path(), title, &format!("{title}\nprofile = \"z80\""), "machine.toml");
    let output = sim(&[&file], folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("profile = \"z80\" does not come along"),
        "{output:?}"
    );
}

#[test]
fn server_in_the_kernel_runs_where_the_profile_has_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = changed(folder.path(), "kind = \"built-in\"", "kind = \"in-kernel\"", "in-kernel.toml");
    let output = sim(&[&file, "--profile", "xeon-2005", "--quick"], folder.path());
    assert!(output.status.success(), "{output:?}");
    let output = sim(&[&file, "--profile", "round-numbers", "--quick"], folder.path());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success());
    assert!(said.contains("round-numbers has no costs of a server in the kernel"), "{said}");
}

/// The results of the only run in a folder.
fn results(folder: &Path) -> PathBuf {
    let mut runs = fs::read_dir(folder.join("results")).expect("results");
    runs.next().expect("a run").expect("a folder").path().join("results.jsonl")
}

fn compare(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let output = command.arg("compare").args(args).output().expect("tidegate runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// One on a machine, the other on a slower one: at the same rates, and not at the same multiples of
/// what each can do.
#[test]
fn crowds_of_a_prediction_come_as_those_came_that_it_is_held_against() {
    let [measured, predicted] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let file = experiment(measured.path());
    let file = file.to_str().expect("text");
    let run = |folder: &Path, args: &[&str]| {
        let output = sim(&[&[file], args].concat(), folder);
        assert!(output.status.success(), "{output:?}");
        let path = results(folder);
        (
            path.to_str().expect("text").to_owned(),
            report::Run::from_json_lines(&fs::read_to_string(path).expect("records")).expect("a run"),
        )
    };
    let (a, one) = run(measured.path(), &["--profile", PROFILE]);
    let (b, other) = run(predicted.path(), &["--profile", "itanium-2005", "--rates-of", &a]);
    assert_eq!(one.cells.len(), other.cells.len());
    for (came, comes) in one.cells.iter().zip(&other.cells) {
        assert_eq!((&came.policy, came.load, came.repetition), (&comes.policy, comes.load, comes.repetition));
        let ratio = comes.crowd.offered_per_s / came.crowd.offered_per_s;
        assert!((0.95..1.05).contains(&ratio), "{ratio}: by chance alone it is 1% here");
    }
    let (slower, faster) = (other.saturations[0].rate_per_s, one.saturations[0].rate_per_s);
    assert!(slower < 0.8 * faster, "{slower} and {faster}: at multiples of these it would be another crowd");

    assert_eq!(compare(&[&a, &a, "--at-most", "0"]).0, Some(0));
    let page = predicted.path().join("both.html");
    let (status, said) = compare(&[&a, &b, "--page", page.to_str().expect("text")]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("of A's") && fs::read_to_string(&page).expect("a page").contains("of A's"),
        "{said}"
    );
    let (status, said) = compare(&[&a, &b, "--page", &b]);
    assert!(status == Some(2) && said.contains("would take the place of results"), "{said}");
    let obeyed = fs::read_to_string(&a).expect("records").replace("\"built-in\"", "\"built\\u001b[2Jin\"");
    let hostile = predicted.path().join("hostile.jsonl");
    fs::write(&hostile, obeyed).expect("write");
    let hostile = hostile.to_str().expect("text");
    let (status, said) = compare(&[hostile, hostile]);
    assert!(status == Some(0) && said.contains("built\\u{1b}[2Jin") && !said.contains('\u{1b}'), "{said}");
    let (status, said) = compare(&[&a, &b, "--at-most", "0.01"]);
    assert!(status == Some(1) && said.contains("too far apart"), "{said}");
}

/// What a run that measured them would say of the machine's speed: a CPU that took so long for a
/// small datagram.
fn with_speeds(lines: &str, round_trip_us: f64) -> String {
    let told = |line: &str| {
        let mut record: serde_json::Value = serde_json::from_str(line).expect("a record");
        match record["record"].as_str() {
            Some("saturation") => record["round_trip_us"] = 1.0.into(),
            Some("cell") => record["machine_speed"] = (1.0 / round_trip_us).into(),
            _ => {}
        }
        format!("{record}\n")
    };
    lines.lines().map(told).collect()
}

#[test]
fn prediction_is_of_a_machine_as_fast_as_the_one_that_it_is_held_against() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = changed(folder.path(), "repetitions = 2", "repetitions = 1", "once.toml");
    assert!(sim(&[&file, "--profile", PROFILE], folder.path()).status.success());
    let lines = fs::read_to_string(results(folder.path())).expect("records");
    let profile = fs::read_to_string(PROFILE).expect("a profile");
    let overloaded = |told: &str, round_trip_us: f64| {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
        fs::write(path("machine.toml"), format!("{told}\n{profile}")).expect("write");
        fs::write(path("measured.jsonl"), with_speeds(&lines, round_trip_us)).expect("write");
        let (machine, measured) = (path("machine.toml"), path("measured.jsonl"));
        let output = sim(&[&file, "--profile", &machine, "--rates-of", &measured], folder.path());
        assert!(output.status.success(), "{output:?}");
        let text = fs::read_to_string(results(folder.path())).expect("records");
        let run = report::Run::from_json_lines(&text).expect("a run");
        let guarded = |cell: &&results::Cell| cell.policy == "default" && cell.load == 1.5;
        let cell = run.cells.iter().find(guarded).expect("it was simulated");
        let said = run.header.deviations.join(" ");
        (cell.machine_speed, cell.crowd.goodput_per_s, said)
    };
    let (speed, as_measured, said) = overloaded("", 4.0);
    assert!(speed.is_none() && said.contains("as fast as the profile's"), "{speed:?}: {said}");
    let (speed, half, said) = overloaded("round_trip_us = 2.0", 4.0);
    assert!(speed == Some(0.5) && said.contains("as fast in each cell as that run's"), "{speed:?}: {said}");
    let ratio = half / as_measured;
    assert!((0.3..0.55).contains(&ratio), "{ratio}: half the CPU, and refusals take their part of it first");
}

#[test]
fn rates_of_another_experiment_are_a_mistake_and_nothing_is_left_behind() {
    let [one, other] = [0, 1].map(|_| tempfile::tempdir().expect("a folder"));
    let file = changed(one.path(), "repetitions = 2", "repetitions = 1", "once");
    assert!(sim(&[&file, "--profile", PROFILE], one.path()).status.success());
    let rates = results(one.path());
    let file = experiment(other.path());
    let renamed = fs::read_to_string(&file).expect("text").replace("name = \"small\"", "name = \"large\"");
    fs::write(&file, renamed).expect("write");
    let args = [file.to_str().expect("text"), "--profile", PROFILE, "--rates-of"];
    for (rates, why) in [
        (rates.to_str().expect("text"), "of a run of \"small\", and this is \"large\""),
        ("/nosuch", "read /nosuch"),
    ] {
        let output = sim(&[&args[..], &[rates]].concat(), other.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(why) && said.trim_end().lines().count() == 1, "{said}");
        assert!(!other.path().join("results").exists(), "nothing is left behind");
    }
}
