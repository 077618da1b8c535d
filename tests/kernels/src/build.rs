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

/// Builds every test of the workspace; those that need no kernel are filtered out when they run.
pub fn build(root: &Path) -> Result<Built> {
    let output = Command::new("cargo")
        .args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .context("start cargo")?;
    ensure!(output.status.success(), "cargo could not build the tests");
    let text = String::from_utf8_lossy(&output.stdout);
    let messages: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let tests = messages.iter().filter(|message| message["profile"]["test"] == true);
    let mut tests: Vec<_> = tests.filter_map(test).collect();
    tests.sort();
    let tidegate = messages
        .iter()
        .find(|message| message["target"]["name"] == "tidegate" && message["profile"]["test"] == false)
        .and_then(executable)
        .context("cargo built no tidegate")?;
    Ok(Built { tests, tidegate })
}

fn test(message: &Value) -> Option<(String, PathBuf)> {
    // path+file:///home/me/tidegate/crates/guard#0.1.0, or with the name after the # if the folder has another
    let id = message["package_id"].as_str()?;
    let folder = id.split('#').next()?.rsplit('/').next()?;
    let name = format!("{folder}-{}", message["target"]["name"].as_str()?);
    Some((name, executable(message)?))
}

fn executable(message: &Value) -> Option<PathBuf> {
    message["executable"].as_str().map(PathBuf::from)
}
