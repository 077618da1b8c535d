//! `tidegate qdisc` as a process: what it refuses and how, and that what it makes outlives it.

use std::process::{Command, Stdio};
use std::time::Duration;

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
    assert_eq!(
        (
            status,
            text.contains(
                "lo is no queue discipline that tidegate has for the kernel; it has redfavor, srpt, las"
            )
        ),
        (2, true),
        "{text}"
    );
    for (words, what) in [
        ("srpt limit 0", "srpt: limit=0: nothing could wait"),
        ("las flow_limit 0", "las: flow_limit=0: nothing could wait"),
        ("srpt limit 10kB", "srpt: limit=10kB: packets, without a unit"),
        ("srpt rate 10mbit", "\"rate\" is no key of it"),
        ("srpt --rate 10", "--rate 10: a number with its unit"),
        ("srpt --rate 0mbit", "--rate 0mbit: a number with its unit"),
    ] {
        let words: Vec<&str> = ["add", "lo"].into_iter().chain(words.split(' ')).collect();
        let output = Command::new(TIDEGATE).arg("qdisc").args(&words).output().expect("run");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), text.contains(what)), (Some(2), true), "{words:?}: {text}");
    }
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
    let words = ["add", "c0", "redfavor", "limit", "100", "min", "5", "max", "15", "--rate", "5mbit"];
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

/// In the client's namespace, where BPF qdiscs are.
fn lan() -> Option<Lan> {
    if let Err(reason) = netns::root_or_reason() {
        eprintln!("{reason}");
        return None;
    }
    if qdisc::support().is_err() {
        eprintln!("skipped: no BPF qdisc in this kernel (Linux 6.16 and newer)");
        return None;
    }
    Some(Lan::create().expect("two hosts"))
}

#[test]
fn root_srpt_is_shown_with_its_sources_and_removed() {
    let Some(lan) = lan() else { return };
    let added = run(&lan, &["add", "c0", "srpt", "limit", "500", "flow_limit", "50", "--rate", "5mbit"]);
    let first = added.lines().next();
    assert_eq!(first, Some("c0: srpt:limit=500,flow_limit=50 at 5000000 bit/s"));
    assert!(added.contains("\n  sizes may be known by "), "{added}");
    let shown: Value = serde_json::from_str(&run(&lan, &["show", "--json"])).expect("one line");
    assert_eq!((&shown["bits_per_s"], &shown["flows"]), (&5_000_000.into(), &0.into()), "{shown}");
    assert_eq!(
        (&shown["sources"][1], &shown["placed_by"]["untold"]),
        (&"content-length".into(), &0.into()),
        "{shown}"
    );
    let text = run(&lan, &["show", "c0"]);
    assert!(
        text.contains("; sizes may be known by told, content-length, sendfile, buffered, attained"),
        "{text}"
    );
    let (status, text) = refused(&["add", "c0", "las", "--netns", lan.client.name()]);
    assert_eq!((status, text.contains("c0 has srpt already")), (1, true), "{text}");
    run(&lan, &["del", "c0"]);
    let added = run(&lan, &["add", "c0", "las"]);
    assert_eq!(added, "c0: las:limit=1000,flow_limit=100\n");
    run(&lan, &["del", "c0"]);
}

#[test]
fn root_add_that_is_killed_leaves_a_whole_qdisc_or_none() {
    let Some(lan) = lan() else { return };
    // Later and later, until one had come to its end.
    let mut killed_after = Duration::from_millis(40);
    let mut is_made = false;
    while !is_made {
        assert!(killed_after < Duration::from_secs(60), "none was ever made");
        let mut adding = lan.client.command(TIDEGATE).expect("command");
        adding.args(["qdisc", "add", "c0", "srpt"]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut adding = adding.spawn().expect("start");
        std::thread::sleep(killed_after);
        adding.kill().expect("kill");
        adding.wait().expect("it ended");
        let output = lan
            .client
            .command(TIDEGATE)
            .expect("command")
            .args(["qdisc", "del", "c0"])
            .output()
            .expect("run");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || text.contains("c0 has no queue discipline of ours"), "{text}");
        is_made = output.status.success();
        let left = std::fs::read_dir("/sys/fs/bpf/tidegate").into_iter().flatten().count();
        assert_eq!(left, 0, "killed after {killed_after:?}");
        killed_after += killed_after / 4;
    }
}
