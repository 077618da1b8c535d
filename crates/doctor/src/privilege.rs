//! What the caller may do.

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

/// Name, number of include/uapi/linux/capability.h, what needs it.
const ALL: [(&str, u32, &str); 5] = [
    ("CAP_NET_ADMIN", NET_ADMIN, "guard, load, lab"),
    ("CAP_BPF", BPF, "guard, load, lab"),
    ("CAP_PERFMON", PERFMON, "guard, load, lab: reading kernel structs"),
    ("CAP_NET_RAW", 13, "load: AF_XDP"),
    ("CAP_SYS_ADMIN", SYS_ADMIN, "lab and most probes: network namespaces"),
];
const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

pub(crate) fn all() -> Vec<Privilege> {
    let held = effective();
    ALL.into_iter()
        .map(|(name, number, enables)| Privilege { name, is_held: has(held, number), enables })
        .collect()
}

/// The reason why no program can be loaded, if there is one.
pub(crate) fn to_load() -> Result<(), String> {
    require(&[NET_ADMIN, BPF, PERFMON])
}

/// The reason why no namespace can be made, if there is one.
pub(crate) fn to_make_namespaces() -> Result<(), String> {
    require(&[NET_ADMIN, SYS_ADMIN])
}

fn require(numbers: &[u32]) -> Result<(), String> {
    let held = effective();
    let missing: Vec<&str> = ALL
        .into_iter()
        .filter(|(_, number, _)| numbers.contains(number) && !has(held, *number))
        .map(|(name, ..)| name)
        .collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("needs {}", missing.join(", "))) }
}

/// CAP_SYS_ADMIN stands for the two newer ones as well.
fn has(held: u64, number: u32) -> bool {
    let bit = |number: u32| held >> number & 1 == 1;
    bit(number) || ([PERFMON, BPF].contains(&number) && bit(SYS_ADMIN))
}

/// Without /proc nothing is known to be allowed.
fn effective() -> u64 {
    let status = procfs::process::Process::myself().and_then(|process| process.status());
    status.map_or(0, |status| status.capeff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sys_admin_stands_for_the_newer_capabilities_only() {
        let held = 1 << SYS_ADMIN;
        assert!(has(held, BPF) && has(held, PERFMON));
        assert!(!has(held, NET_ADMIN));
    }
}
