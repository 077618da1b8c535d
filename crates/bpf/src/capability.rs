//! What a process may do, capabilities(7), as far as it matters here.

use procfs::ProcError;
use procfs::process::Process;

/// One of them; its number is that of include/uapi/linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capability {
    /// Attaches to interfaces.
    NetAdmin = 12,
    /// Opens AF_XDP and raw sockets.
    NetRaw = 13,
    /// Makes and enters network namespaces, opens others' programs; stands for the two below, too.
    SysAdmin = 21,
    /// Lets a program read kernel structs.
    Perfmon = 38,
    /// Loads programs.
    Bpf = 39,
}

impl Capability {
    /// As capabilities(7) has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Perfmon => "CAP_PERFMON",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// A set of them; by default none.
#[derive(Debug, Clone, Copy, Default)]
pub struct Capabilities(u64);

impl Capabilities {
    /// Those in effect for this process.
    ///
    /// # Errors
    ///
    /// /proc is not mounted, or hidden from us.
    pub fn effective() -> Result<Self, ProcError> {
        Ok(Self(Process::myself()?.status()?.capeff))
    }

    /// Whether it is allowed.
    pub fn has(self, capability: Capability) -> bool {
        let bit = |capability| self.0 >> (capability as u32) & 1 == 1;
        let is_newer = matches!(capability, Capability::Perfmon | Capability::Bpf);
        bit(capability) || (is_newer && bit(Capability::SysAdmin))
    }

    /// Names of those that are not.
    pub fn missing(self, wanted: &[Capability]) -> Vec<&'static str> {
        wanted
            .iter()
            .filter(|&&capability| !self.has(capability))
            .map(|capability| capability.name())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sys_admin_stands_for_the_newer_ones_only() {
        use Capability::{Bpf, NetAdmin, Perfmon};
        let all = [NetAdmin, Perfmon, Bpf];
        let missing = |held: u64| Capabilities(held).missing(&all);
        assert!(missing(u64::MAX).is_empty());
        assert_eq!(missing(1 << 12 | 1 << 39), ["CAP_PERFMON"]);
        assert_eq!(missing(1 << 21), ["CAP_NET_ADMIN"]);
        assert_eq!(missing(0), ["CAP_NET_ADMIN", "CAP_PERFMON", "CAP_BPF"]);
    }
}
