//! Settings of the host that change what a guard does.

use std::fs;

use serde::Serialize;

/// A sysctl of the caller's network namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sysctl {
    /// By its dotted name.
    pub name: &'static str,
    /// What it is set to; `None` if it cannot be read.
    pub value: Option<String>,
    /// What it changes.
    pub effect: &'static str,
}

/// Sources: `Documentation/networking/ip-sysctl.rst`, `tcp_conn_request()`,
/// `tcp_timewait_state_process()`.
const ALL: [(&str, &str); 5] = [
    (
        "net.ipv4.tcp_syncookies",
        "0: a full SYN queue drops; 1: it answers with cookies; 2: every SYN is answered so",
    ),
    ("net.ipv4.tcp_abort_on_overflow", "1: as abort, for every listener of the host, and silent to cookies"),
    ("net.ipv4.tcp_max_syn_backlog", "without cookies, SYNs are dropped from three quarters of it on"),
    ("net.core.somaxconn", "no accept queue is longer, whatever listen(2) asks for"),
    ("net.ipv4.tcp_rfc1337", "0: a RST ends TIME_WAIT; 1: it does not"),
];

pub(crate) fn all() -> Vec<Sysctl> {
    ALL.into_iter().map(|(name, effect)| Sysctl { name, value: read(name), effect }).collect()
}

fn read(name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).ok()?;
    Some(text.trim().to_owned())
}
