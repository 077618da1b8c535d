//! What a user wrote wrongly ends in one line and with exit status 2, before anything is run.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::TIDEGATE;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/demo.toml");
const SCRIPTS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/connection-management/fig-4.2.toml");

/// Exit status and the only line on standard error.
#[track_caller]
fn refused(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(TIDEGATE).current_dir(folder).args(arguments).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((said.trim_end().lines().count(), output.stdout.len()), (1, 0), "{arguments:?}: {said}");
    assert!(!folder.join("results").exists(), "{arguments:?}");
    (output.status.code(), said)
}

#[test]
fn what_was_written_wrongly_has_exit_status_2_and_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("binary"), b"\xff\xfe\xfd").expect("write");
    fs::write(folder.path().join("slip"), "[[listener]]\nlisen = \"10.0.0.1:80\"\n").expect("write");
    fs::write(folder.path().join("text"), "what is this?\n").expect("write");
    let crowd = ["http://10.0.0.1/", "--clients", "10.9.0.0/24", "--interface", "none"];
    let load = |more: [&'static str; 2]| [&["load"], &crowd[..], &more[..]].concat();
    for (arguments, why) in [
        (vec!["sim", "none.toml"], "read experiment none.toml: there is no such file"),
        (vec!["sim", "binary"], "read experiment binary: it is not UTF-8"),
        (vec!["sim", SCRIPTS, "--trace", "frames"], "--trace is for experiments with a crowd"),
        (
            vec!["sim", DEMO, DEMO, "--profile", "round-numbers", "--trace", "frames"],
            "two of the files have the name \"demo\"",
        ),
        (vec!["sim", SCRIPTS, "--rates-of", "text"], "--rates-of is for experiments with a crowd"),
        (vec!["sim", DEMO], "it names no profile: give --profile a name or a file"),
        (
            vec!["sim", DEMO, "--profile", "nope"],
            "profile nope: no file, and none of those that come along; those are xeon",
        ),
        (vec!["sim", DEMO, "--profile", "xeon"], "did you mean xeon-2005? those are xeon-2005, itanium"),
        (vec!["guard", "--config", "slip"], "unknown field `lisen`; did you mean listen? expected one of"),
        (vec!["guard", "--lisen", "10.0.0.1:80"], "a similar argument exists: '--listen'"),
        (vec!["guard", "--listen", "10.0.0.1:80", "--attach", "tcxx"], "a similar value exists: 'tcx'"),
        (vec!["gaurd"], "unrecognized subcommand 'gaurd'; tip: a similar subcommand exists: 'guard'"),
        (
            vec!["guard", "--listen", "10.0.0.1:80", "--policy", "abrot+rst-syn"],
            "\"abrot\" is no mechanism; did you mean abort? tidegate policies lists them",
        ),
        (load(["--stacks", "linx"]), "\"linx\" is no client stack; did you mean linux? there are linux,"),
        (load(["--workload", "specweb"]), "\"specweb\" is no workload; did you mean specweb99? there are"),
        (load(["--fail-if", "p98>5ms"]), "\"p98\" is no measure; did you mean p90? there are mean,"),
        (vec!["qdisc", "add", "va", "redfvor"], "did you mean redfavor? it has redfavor,"),
        (vec!["sim", DEMO, "--profile", "binary"], "profile binary: it is not UTF-8"),
        (vec!["lab", "run", "binary"], "read experiment binary: it is not UTF-8"),
        (vec!["compare", "none", "text"], "read none: there is no such file"),
        (vec!["compare", "text", "text"], "it should be the results.jsonl of a run: line 1: expected value"),
        (vec!["compare", "/dev/null", "text"], "no header record"),
        (vec!["merge", "none"], "read none: there is no such file"),
        (vec!["merge", "text"], "text: there is no summary in it"),
        (vec!["link", "va", "va"], "interface va is given twice"),
        (vec!["guard", "--config", "none"], "configuration none: there is no such file"),
        (
            vec!["advise", "--listen", "10.0.0.1:80", "--policy", "rst-syn"],
            "--policy rst-syn: advise knows what the guard does where it finds the limit itself; name one with",
        ),
        (vec!["guard"], "<--listen <ADDR:PORT>|--config <FILE>>"),
        (vec!["guard", "--config", "x", "--listen", "10.0.0.1:80"], "cannot be used with"),
        (
            vec!["guard", "--listen", "10.0.0.1:80", "--netns", ""],
            "a value is required for '--netns <NETNS>'",
        ),
        (vec!["guard", "--listen", "10.0.0.1:80", "--policy", "rst-syn+unserved:0"], "from 1 to 1000000"),
        (vec!["qdisc", "del", "va", "--netns", ""], "a value is required for '--netns <NETNS>'"),
        (vec!["qdisc", "add", "va", "codel"], "no queue discipline that tidegate has for the kernel"),
        (load(["--replay", "none"]), "read the log none: No such file"),
        (load(["--replay", "text"]), "the first is line 1"),
        ([load(["--rate", "1"]), vec!["--csv", "x", "--hdr-log", "x"]].concat(), "x cannot be both"),
        (load(["--rate", "-5"]), "invalid value '-5' for '--rate <R>'"),
    ] {
        let (status, said) = refused(folder.path(), &arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert_eq!(status, Some(2), "{arguments:?}: {said}");
    }
}

#[test]
fn file_without_an_end_is_refused_by_whoever_reads_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let large = folder.path().join("large.toml");
    fs::File::create(&large).and_then(|file| file.set_len(10 << 30)).expect("a file with a hole");
    let crowd = ["load", "http://10.0.0.1/", "--clients", "10.9.0.0/24", "--interface", "none"];
    let workload = |file| [&crowd[..], &["--rate", "1", "--workload", file]].concat();
    let replay = |file| [&crowd[..], &["--replay", file]].concat();
    for (arguments, why) in [
        (vec!["sim", "/dev/zero"], "read experiment /dev/zero: it is longer than 1 MiB"),
        (vec!["sim", "/dev/full"], "read experiment /dev/full: it is longer than 1 MiB"),
        (vec!["sim", "large.toml"], "read experiment large.toml: it is longer than 1 MiB"),
        (vec!["lab", "run", "/dev/zero"], "read experiment /dev/zero: it is longer than 1 MiB"),
        (vec!["sim", DEMO, "--profile", "/dev/zero"], "profile /dev/zero: it is longer than 1 MiB"),
        (workload("large.toml"), "read large.toml: it is longer than 1 MiB"),
        (vec!["guard", "--config", "large.toml"], "configuration large.toml: it is longer than 1 MiB"),
        (
            vec!["compare", "/dev/zero", "x"],
            "read /dev/zero; it should be the results.jsonl of a run: line 1 is longer",
        ),
        (vec!["merge", "/dev/zero"], "read /dev/zero: line 1 is longer than 64 MiB"),
        (replay("/dev/zero"), "read the log /dev/zero: line 1 has no end; is it a log?"),
    ] {
        let (status, said) = refused(folder.path(), &arguments);
        assert!(said.contains(why), "{arguments:?}: {said}");
        assert_eq!(status, Some(2), "{arguments:?}: {said}");
    }
}

#[test]
fn number_of_hundreds_of_digits_is_said_in_a_few() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(DEMO).expect("an experiment");
    let loads = text.lines().find(|line| line.starts_with("loads")).expect("it has loads");
    fs::write(folder.path().join("far.toml"), text.replace(loads, "loads = [1e308]")).expect("write");
    let (status, said) = refused(folder.path(), &["sim", "far.toml", "--profile", "round-numbers"]);
    assert!(status == Some(2) && said.contains("grid.loads has 1e308:"), "{said}");
}

#[test]
fn what_is_wrong_is_found_in_the_kind_of_file_that_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let experiments = concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments");
    for (file, from, to, why) in [
        // TOML itself has no number so large, which is no reason to take it for another kind of
        // experiment.
        (
            "syn-protection/kernels.toml",
            "hosts = ",
            "hosts = 9223372036854775808 #",
            "integer `9223372036854775808`, expected",
        ),
        (
            "admission/holders.toml",
            "duration = ",
            "repetitions = 1500\nduration = \"1h\" #",
            "30 days are the most",
        ),
        ("admission/holders.toml", "\ntext = \"", "\ntext = \"\\u001b[31m", "is no line of text"),
        (
            "connection-management/fig-4.3.toml",
            "\npaper = ",
            "\npaper = nan #",
            "no number that a paper prints",
        ),
    ] {
        let text = fs::read_to_string(format!("{experiments}/{file}")).expect("an experiment");
        assert!(text.contains(from), "{file} has no {from:?}");
        fs::write(folder.path().join("wrong.toml"), text.replacen(from, to, 1)).expect("write");
        let (status, said) = refused(folder.path(), &["sim", "wrong.toml", "--profile", "round-numbers"]);
        assert!(status == Some(2) && said.contains(why), "{file}: {said}");
    }
}

#[test]
fn run_that_takes_more_memory_than_there_is_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = fs::read_to_string(DEMO).expect("an experiment");
    let longer = text
        .lines()
        .map(|line| match line.split_once(" = ") {
            Some((key @ ("timeout" | "duration"), _)) => format!("{key} = \"1h\"\n"),
            Some(("loads", _)) => "loads = [100.0]\n".to_owned(),
            _ => format!("{line}\n"),
        })
        .collect::<String>();
    fs::write(folder.path().join("large.toml"), longer).expect("write");
    let (status, said) = refused(folder.path(), &["sim", "large.toml", "--profile", "round-numbers"]);
    assert!(status == Some(2) && said.contains("GiB of memory, of which"), "{said}");
}

#[test]
fn profile_that_a_terminal_would_obey_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/profiles/round-numbers.toml");
    let text = fs::read_to_string(profile).expect("a profile");
    let wrong = text.replacen("\nabout = \"", "\nabout = \"\\u001b[31m", 1);
    assert_ne!(wrong, text);
    fs::write(folder.path().join("wrong.toml"), wrong).expect("write");
    let (status, said) = refused(folder.path(), &["sim", DEMO, "--profile", "wrong.toml"]);
    assert!(status == Some(2) && said.contains("is no line of text"), "{said}");
}

#[test]
fn page_that_would_take_the_place_of_what_is_read_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("measured"), "what took an hour\n").expect("write");
    let sim = ["sim", DEMO, "--profile", "round-numbers"];
    for more in
        [["--rates-of", "measured", "--book", "measured"], ["--threads", "1", "--book", "results.jsonl"]]
    {
        let (status, said) = refused(folder.path(), &[&sim[..], &more[..]].concat());
        assert!(status == Some(2) && said.contains("the page would take the place of"), "{said}");
    }
    assert_eq!(
        fs::read_to_string(folder.path().join("measured")).expect("it is there"),
        "what took an hour\n"
    );
    let (status, said) = refused(folder.path(), &[&sim[..], &["--trace", "measured"]].concat());
    assert!(status == Some(2) && said.contains("--trace measured: it is a file, and no folder"), "{said}");
}

#[test]
fn what_the_world_refuses_has_exit_status_1() {
    let folder = tempfile::tempdir().expect("a folder");
    let book = ["sim", DEMO, "--profile", "round-numbers", "--book", "none/book.html"];
    let (status, said) = refused(folder.path(), &book);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("write none/book.html: No such file or directory"), "{said}");
}
