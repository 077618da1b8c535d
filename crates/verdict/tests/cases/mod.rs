//! One table of cases for the SYN stage, for the host and for the kernel.

use verdict::{ListenerLoad, Policy, Verdict};

/// One row.
pub struct SynCase {
    /// What the row is about.
    pub name: &'static str,
    /// The policy asked.
    pub policy: Policy,
    /// The queues.
    pub load: ListenerLoad,
    /// The time.
    pub now_ns: u64,
    /// What must come out.
    pub verdict: Verdict,
}

const fn row(
    name: &'static str,
    policy: Policy,
    accept: (u32, u32),
    syn: (u32, u32),
    verdict: Verdict,
) -> SynCase {
    SynCase {
        name,
        policy,
        load: ListenerLoad {
            accept_qlen: accept.0,
            accept_limit: accept.1,
            syn_qlen: syn.0,
            syn_limit: syn.1,
        },
        now_ns: 1_000_000_007,
        verdict,
    }
}

const DROP: Policy = Policy { syn_when_accept_full: Verdict::Drop };

/// Queues are (length, limit).
pub const SYN_STAGE: [SynCase; 13] = [
    row("idle", Policy::RST_SYN, (0, 128), (0, 128), Verdict::Admit),
    row("one below the limit", Policy::RST_SYN, (127, 128), (0, 128), Verdict::Admit),
    row("at the limit there is one place left", Policy::RST_SYN, (128, 128), (0, 128), Verdict::Admit),
    row("accept queue full", Policy::RST_SYN, (129, 128), (0, 128), Verdict::Reset),
    row("accept queue overfull", Policy::RST_SYN, (500, 128), (0, 128), Verdict::Reset),
    row("SYN queue full alone", Policy::RST_SYN, (0, 128), (128, 128), Verdict::Admit),
    row("SYN queue overfull alone", Policy::RST_SYN, (128, 128), (5000, 128), Verdict::Admit),
    row("both full", Policy::RST_SYN, (129, 128), (128, 128), Verdict::Reset),
    row("backlog 0 holds one", Policy::RST_SYN, (0, 0), (0, 0), Verdict::Admit),
    row("backlog 0, full", Policy::RST_SYN, (1, 0), (0, 0), Verdict::Reset),
    row("largest numbers", Policy::RST_SYN, (u32::MAX, u32::MAX - 1), (u32::MAX, 0), Verdict::Reset),
    row("stock kernel, both full", Policy::DEFAULT, (129, 128), (128, 128), Verdict::Admit),
    row("drop when full", DROP, (129, 128), (0, 128), Verdict::Drop),
];
