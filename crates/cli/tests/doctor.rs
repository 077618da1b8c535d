//! `tidegate doctor` as a process: with privileges, and without.

use std::process::{Command, Output};

use crate::common::TIDEGATE;
use serde_json::Value;

/// Nobody, without any privilege.
const NOBODY: &str = "65534";

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

/// As root or not, it says what it found out, and ends well.
#[test]
fn doctor_prints_a_line_for_every_probe() {
    let diagnosis = json(&Command::new(TIDEGATE).args(["doctor", "--json"]).output().expect("run"));
    let output = Command::new(TIDEGATE).arg("doctor").output().expect("run");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("Linux "), "{text}");
    for probe in diagnosis["probes"].as_array().expect("a list") {
        let name = probe["name"].as_str().expect("a name");
        assert!(text.lines().any(|line| line.trim_start().starts_with(name)), "{name} is missing: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
}

#[test]
fn root_doctor_without_privileges_says_what_it_could_not_try_and_why() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    // Nobody may not be allowed to read the build's directory.
    let copy = std::env::temp_dir().join(format!("tidegate-doctor-{}", std::process::id()));
    std::fs::copy(TIDEGATE, &copy).expect("copy the program");
    let output = Command::new("setpriv")
        .args(["--reuid", NOBODY, "--clear-groups"])
        .arg(&copy)
        .args(["doctor", "--json"])
        .output();
    std::fs::remove_file(&copy).expect("remove the copy");
    let diagnosis = json(&output.expect("run"));
    let probes = diagnosis["probes"].as_array().expect("a list");
    let tcx = probes.iter().find(|probe| probe["name"] == "tcx").expect("it is asked for");
    assert_eq!(tcx["answer"], "unknown");
    assert_eq!(tcx["because"], "needs CAP_NET_ADMIN, CAP_SYS_ADMIN");
    for program in diagnosis["programs"].as_array().expect("a list") {
        assert_eq!(program["unknown"], "needs CAP_NET_ADMIN, CAP_BPF, CAP_PERFMON", "{program}");
    }
}
