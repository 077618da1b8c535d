//! What Prometheus' own tool says of our page and of our alerts, where it is installed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/prometheus");

/// `None` where there is none.
fn promtool(arguments: &[&str], input: &str) -> Option<Output> {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(Path::new(RULES));
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let Ok(mut child) = spawned else {
        eprintln!("skipped: no promtool here");
        return None;
    };
    // It may have ended already, and says why.
    child.stdin.take().expect("piped").write_all(input.as_bytes()).ok();
    Some(child.wait_with_output().expect("its end"))
}

/// Of a page in Prometheus' text format.
///
/// # Panics
///
/// When it has something to say.
#[track_caller]
pub fn assert_clean(page: &str) {
    if let Some(output) = promtool(&["check", "metrics"], page) {
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.is_empty(), "{said}\n{page}");
    }
}

#[test]
fn alerts_are_rules_and_fire_when_their_tests_say() {
    for arguments in [["check", "rules", "tidegate.rules.yml"], ["test", "rules", "tidegate.test.yml"]] {
        let Some(output) = promtool(&arguments, "") else { return };
        assert!(output.status.success(), "{output:?}");
    }
}
