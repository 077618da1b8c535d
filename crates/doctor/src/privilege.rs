//! What the caller may do.

use bpf::{Capabilities, Capability};
use serde::Serialize;

/// A capability and whether the process has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Privilege {
    /// As capabilities(7) names it.
    pub name: &'static str,
    /// In the effective set.
    pub is_held: bool,
    /// What needs it.
    pub enables: &'static str,
}

/// And what needs it.
const ALL: [(Capability, &str); 5] = [
    (Capability::NetAdmin, "guard, load, lab"),
    (Capability::Bpf, "guard, load, lab"),
    (Capability::Perfmon, "guard, load, lab: reading kernel structs"),
    (Capability::NetRaw, "load: AF_XDP"),
    (Capability::SysAdmin, "lab and most probes: network namespaces"),
];

pub(crate) fn all() -> Vec<Privilege> {
    let held = effective();
    ALL.into_iter()
        .map(|(capability, enables)| Privilege {
            name: capability.name(),
            is_held: held.has(capability),
            enables,
        })
        .collect()
}

/// The reason why no program can be loaded, if there is one.
pub(crate) fn to_load() -> Result<(), String> {
    require(&[Capability::NetAdmin, Capability::Bpf, Capability::Perfmon])
}

/// The reason why no namespace can be made, if there is one.
pub(crate) fn to_make_namespaces() -> Result<(), String> {
    require(&[Capability::NetAdmin, Capability::SysAdmin])
}

fn require(wanted: &[Capability]) -> Result<(), String> {
    let missing = effective().missing(wanted);
    if missing.is_empty() { Ok(()) } else { Err(format!("needs {}", missing.join(", "))) }
}

/// Without /proc nothing is known to be allowed.
fn effective() -> Capabilities {
    Capabilities::effective().unwrap_or_default()
}
