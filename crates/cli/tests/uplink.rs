//! `tidegate uplink` as a process: what it refuses and how, what it says, and that nothing stays.

use std::io::BufReader;
use std::process::{Command, Stdio};

use netns::Lan;
use nix::sys::signal::Signal;

use crate::common::{TIDEGATE, next_event, signal};

#[test]
fn words_that_cannot_be_are_a_wrong_command_line() {
    for (words, what) in [
        ("lo", "--rate is missing: packets can only be put in order where they wait"),
        ("lo --rate 0mbit", "--rate 0mbit: a number with its unit"),
        ("lo --rate 10Mbps", "--rate 10Mbps: a number with its unit"),
        ("lo --rate 10mbit --cutoffs 2000,1000", "2000"),
        ("lo --rate 10mbit --floor 60%", "from 0% to 50%"),
        ("lo --rate 10mbit --order shortest", "srpt"),
        ("lo --rate 10mbit --order fair --cutoffs 1000", "order fair has one band"),
        ("lo --rate 10mbit --order las --source buffered", "needs no source"),
    ] {
        let output = Command::new(TIDEGATE).arg("uplink").args(words.split(' ')).output().expect("run");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), text.contains(what)), (Some(2), true), "{words}: {text}");
        assert!(output.stdout.is_empty(), "{words}: {output:?}");
    }
}

#[test]
fn root_two_interrupts_at_once_leave_nothing_behind() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    let lan = Lan::create().expect("two hosts");
    let qdiscs = || {
        let mut command = lan.client.command("tc").expect("command");
        let output = command.args(["qdisc", "show", "dev", "c0"]).output().expect("run tc");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let before = qdiscs();
    let mut command = lan.client.command(TIDEGATE).expect("command");
    command.args(["uplink", "c0", "--rate", "10mbit", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let started = next_event(&mut lines);
    assert_eq!((&started["event"], &started["rate_bps"]), (&"started".into(), &10_000_000.into()));
    assert!(qdiscs().contains("qdisc tbf 7466: root"), "{}", qdiscs());
    signal(&child, Signal::SIGINT);
    signal(&child, Signal::SIGINT);
    let last = std::iter::from_fn(|| Some(next_event(&mut lines))).find(|event| event["event"] == "final");
    let bands = last.expect("the last line")["bands"].as_array().map(Vec::len);
    assert_eq!((bands, child.wait().expect("its end").success()), (Some(8), true));
    assert_eq!(qdiscs(), before);
}
