//! Root qdiscs, by iproute2's `tc`: what it did can be read back and repeated by hand.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::Act;
use crate::{Error, Result};

/// The qdisc that an interface sends by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// As tc calls it.
    pub kind: String,
    /// `8001:`.
    pub handle: String,
    /// tc's line on it.
    pub text: String,
}

impl Root {
    /// Made by the kernel, and not by anybody: these have no handle.
    pub fn is_default(&self) -> bool {
        self.handle == "0:"
    }
}

#[derive(Deserialize)]
struct Listed {
    kind: String,
    handle: String,
    #[serde(default)]
    root: bool,
    parent: Option<String>,
}

/// The queue discipline at the root; `None` for an interface that sends without one.
///
/// # Errors
///
/// When tc is not there, or the interface is not.
pub fn root(interface: &str) -> Result<Option<Root>> {
    let listed = tc(&["-j", "qdisc", "show", "dev", interface])?;
    let lines = tc(&["qdisc", "show", "dev", interface])?;
    find_root(&listed, &lines).act_with(|| format!("read what tc says of {interface}"))
}

fn find_root(listed: &str, lines: &str) -> serde_json::Result<Option<Root>> {
    let listed: Vec<Listed> = serde_json::from_str(listed)?;
    Ok(listed.into_iter().find(|one| one.root).map(|Listed { kind, handle, .. }| {
        let start = format!("qdisc {kind} {handle} root");
        let text = lines.lines().map(str::trim).find(|line| line.starts_with(&start));
        Root { text: text.unwrap_or(&start).to_owned(), kind, handle }
    }))
}

/// The queue discipline below a class, as tc writes that; `None` if there is none that somebody
/// made.
///
/// # Errors
///
/// As [`root`].
pub fn below(interface: &str, class: &str) -> Result<Option<Root>> {
    let listed = tc(&["-j", "qdisc", "show", "dev", interface])?;
    let listed: Vec<Listed> =
        serde_json::from_str(&listed).act_with(|| format!("read what tc says of {interface}"))?;
    let found = listed.into_iter().find(|one| one.parent.as_deref() == Some(class) && one.handle != "0:");
    Ok(found.map(|Listed { kind, handle, .. }| Root {
        text: format!("{kind} {handle} below {class}"),
        kind,
        handle,
    }))
}

/// Puts a qdisc in the place of any other at once; if the kernel refuses it, the other one stays.
pub(crate) fn replace_root(interface: &str, kind: &str) -> Result<()> {
    tc(&["qdisc", "replace", "dev", interface, "root", kind]).map(drop)
}

pub(crate) fn delete_root(interface: &str) -> Result<()> {
    tc(&["qdisc", "del", "dev", interface, "root"]).map(drop)
}

/// Runs commands of tc one after the other, as one would type them, until one fails.
///
/// # Errors
///
/// What tc says, and of which command.
pub fn run<S: AsRef<str>>(commands: &[S]) -> Result<()> {
    let lines: Vec<&str> = commands.iter().map(AsRef::as_ref).collect();
    let mut tc = Command::new("tc");
    tc.args(["-batch", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = tc.spawn().act("start tc; is iproute2 installed?")?;
    let mut input = child.stdin.take().expect("piped");
    // A tc that has ended says why below.
    let _ = input.write_all(lines.join("\n").as_bytes());
    drop(input);
    let output = child.wait_with_output().act("wait for tc")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // `Command failed -:3` at the end has the number of the line.
    let number = said.rsplit(':').next().and_then(|number| number.trim().parse::<usize>().ok());
    let which = number.and_then(|number| lines.get(number.wrapping_sub(1))).unwrap_or(&"-batch");
    let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    Err(Error::Refused(format!("tc {which}: {}", said.join("; "))))
}

fn tc(arguments: &[&str]) -> Result<String> {
    let output = Command::new("tc").args(arguments).output().act("start tc; is iproute2 installed?")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        return Err(Error::Refused(format!("tc {}: {}", arguments.join(" "), said.join("; "))));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qdisc_at_the_root_is_found_among_what_tc_lists() {
        let listed = r#"[{"kind":"ingress","handle":"ffff:","parent":"ffff:fff1","options":{}},
            {"kind":"fq_codel","handle":"8001:","root":true,"refcnt":2,"options":{"limit":10240}}]"#;
        let lines = "qdisc ingress ffff: parent ffff:fff1 ----------------\n\
                     qdisc fq_codel 8001: root refcnt 2 limit 10240p flows 1024\n";
        let root = find_root(listed, lines).expect("well formed").expect("there is one");
        assert_eq!(root.text, "qdisc fq_codel 8001: root refcnt 2 limit 10240p flows 1024");
        assert!(!root.is_default());
        let default = r#"[{"kind":"noqueue","handle":"0:","root":true,"refcnt":2,"options":{}}]"#;
        assert!(find_root(default, "").expect("well formed").expect("there is one").is_default());
        assert_eq!(find_root("[]", "").expect("well formed"), None);
    }
}
