//! Rules of nftables in a server's namespace; they go with it.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use netns::Namespace;

/// As Debian's package nftables has it.
const PROGRAM: &str = "nft";

/// Version, as it prints it; `None` where it is not installed.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(PROGRAM).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.strip_prefix("nftables ").map(str::to_owned)
}

/// Loads rules, all or none.
///
/// # Errors
///
/// When nft does not take them: one line with its own first one.
pub(crate) fn load(namespace: &Namespace, rules: &str) -> Result<()> {
    let mut child = namespace
        .command(PROGRAM)?
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start nft; is nftables installed?")?;
    // One that ends early closes its end, and its own message says why.
    let _ = child.stdin.take().expect("standard input is a pipe").write_all(rules.as_bytes());
    let output = child.wait_with_output().context("wait for nft")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = stderr.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
    ensure!(output.status.success(), "load nft rules: {reason}");
    Ok(())
}
