//! The test programs, built once, on the host.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Programs for all kernels.
pub struct Built {
    /// Test programs, each with its crate and target as its name.
    pub tests: Vec<(String, PathBuf)>,
    /// `tidegate` itself.
    pub tidegate: PathBuf,
}

/// Builds the tests of these crates, or every one of the workspace if none is named; those that
/// need no kernel are filtered out when they run.
pub fn build(root: &Path, crates: &[&str]) -> Result<Built> {
    let of_crates = crates.iter().flat_map(|name| ["--package", name]);
    let what: Vec<&str> = if crates.is_empty() {
        vec!["--workspace"]
    } else {
        // tidegate itself is built with the tests of cli.
        of_crates.chain(["--package", "cli"]).collect()
    };
    let output = Command::new("cargo")
        .args(["test", "--no-run", "--message-format=json-render-diagnostics"])
        .args(what)
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    ensure!(output.status.success(), "cargo could not build the tests");
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let tests = messages.iter().filter(|message| message["profile"]["test"] == true);
    let is_wanted = |name: &str| {
        let of = |wanted: &&str| name.strip_prefix(*wanted).is_some_and(|rest| rest.starts_with('-'));
        crates.is_empty() || crates.iter().any(of)
    };
    let mut tests: Vec<_> = tests.filter_map(test).filter(|(name, _)| is_wanted(name)).collect();
    tests.sort();
    let tidegate = messages
        .iter()
        .find(|message| message["target"]["name"] == "tidegate" && message["profile"]["test"] == false)
        .and_then(executable)
        .context("cargo built no tidegate")?;
    Ok(Built { tests, tidegate })
}

fn test(message: &Value) -> Option<(String, PathBuf)> {
    // path+file:///home/me/tidegate/crates/guard#0.1.0, or with the name after the # if the folder
    // has another
    let id = message["package_id"].as_str()?;
    let folder = id.split('#').next()?.rsplit('/').next()?;
    let name = format!("{folder}-{}", message["target"]["name"].as_str()?);
    Some((name, executable(message)?))
}

fn executable(message: &Value) -> Option<PathBuf> {
    message["executable"].as_str().map(PathBuf::from)
}
