//! `tidegate qdisc` as a process: what it refuses and how, and that what it makes outlives it.

use std::process::Command;

use crate::common::TIDEGATE;
use netns::Lan;
use serde_json::Value;

/// Exit status, and the one line on standard error.
fn refused(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(TIDEGATE).arg("qdisc").args(arguments).output().expect("run");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(text.lines().count(), 1, "{arguments:?}: {text}");
    assert!(output.stdout.is_empty(), "{output:?}");
    (output.status.code().expect("it ended by itself"), text)
}

#[test]
fn words_that_contradict_each_other_are_a_wrong_command_line() {
    let (status, text) = refused(&["add", "lo", "redfavor", "limit", "0"]);
    assert_eq!((status, text.contains("limit=0: nothing could wait")), (2, true), "{text}");
    let (status, text) = refused(&["add", "lo", "redfavor", "min", "15", "max", "5"]);
    assert_eq!((status, text.contains("min=15 is not below max=5")), (2, true), "{text}");
    let (status, text) = refused(&["add", "lo", "lo", "limit", "9"]);
    assert_eq!((status, text.contains("\"lo\" is no queue discipline")), (2, true), "{text}");
}

#[test]
fn interface_and_discipline_that_are_not_there_are_said() {
    let (status, text) = refused(&["add", "no-such-if", "redfavor"]);
    assert_eq!((status, text.contains("no interface \"no-such-if\"")), (1, true), "{text}");
    let (status, text) = refused(&["add", "lo", "codel"]);
    assert_eq!(
        (status, text.contains("codel is no queue discipline that tidegate has for the kernel")),
        (2, true),
        "{text}"
    );
    let (status, text) = refused(&["del", "lo", "--netns", "no-such-netns"]);
    assert_eq!((status, text.contains("network namespace no-such-netns")), (1, true), "{text}");
}

/// What it prints in the client's namespace.
fn run(lan: &Lan, arguments: &[&str]) -> String {
    let output =
        lan.client.command(TIDEGATE).expect("command").arg("qdisc").args(arguments).output().expect("run");
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn root_qdisc_outlives_the_command_and_is_shown_and_removed() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    let lan = Lan::create().expect("two hosts");
    if qdisc::support().is_err() {
        let (status, text) = refused(&["add", "c0", "redfavor", "--netns", lan.client.name()]);
        assert_eq!((status, text.contains("this kernel has no BPF queue disciplines")), (1, true), "{text}");
        return eprintln!("skipped: no BPF qdisc in this kernel (Linux 6.16 and newer)");
    }
    let words =
        ["add", "c0", "redfavor", "limit", "100", "min", "5", "max", "15", "rate", "5Mbit", "--shape"];
    let added = run(&lan, &words);
    assert!(added.starts_with("c0: redfavor:limit=100,min=5,max=15,"), "{added}");
    let shown: Value = serde_json::from_str(&run(&lan, &["show", "--json"])).expect("one line");
    assert_eq!((&shown["interface"], &shown["bits_per_s"]), (&"c0".into(), &5_000_000.into()), "{shown}");
    assert_eq!(shown["dropped"]["pushed-out"], 0, "{shown}");
    let text = run(&lan, &["show", "c0"]);
    assert!(text.contains("  dropped  nothing; 0 protected"), "{text}");
    let (status, text) = refused(&["add", "c0", "redfavor", "--netns", lan.client.name()]);
    assert_eq!((status, text.contains("c0 has redfavor already")), (1, true), "{text}");
    run(&lan, &["del", "c0"]);
    assert_eq!(run(&lan, &["show"]), "no interface has a queue discipline of ours\n");
}
