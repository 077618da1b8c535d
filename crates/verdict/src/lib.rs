//! The decisions of `kernel/verdict.h`, called on the host: the very code that the BPF programs run.
//!
//! Not the programs themselves: nothing here sees a packet, a map or a clock.
//!
//! ```
//! use units::Nanos;
//! use verdict::{ListenerLoad, Policy, Verdict};
//!
//! let full = ListenerLoad { accept_qlen: 129, accept_limit: 128, syn_qlen: 0, syn_limit: 128 };
//! assert_eq!(Policy::RST_SYN.admit_syn(&full, Nanos::ZERO), Verdict::Reset);
//! assert_eq!(Policy::DEFAULT.admit_syn(&full, Nanos::ZERO), Verdict::Admit);
//! ```

use units::Nanos;

/// What to do with a segment. The numbers are those of `enum verdict`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Verdict {
    /// Leave it to the kernel.
    Admit = 0,
    /// Say nothing: the client tries again later.
    Drop = 1,
    /// Answer with RST: the client knows at once.
    Reset = 2,
}

/// A listener's two queues, in connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListenerLoad {
    /// Established, waiting for accept(2).
    pub accept_qlen: u32,
    /// `min(listen backlog, somaxconn)`; the queue holds one more.
    pub accept_limit: u32,
    /// Request sockets: handshakes in progress.
    pub syn_qlen: u32,
    /// Where the SYN queue counts as full.
    pub syn_limit: u32,
}

/// One answer for each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Answer to a SYN that finds the accept queue full.
    pub syn_when_accept_full: Verdict,
}

impl Policy {
    /// The stock kernel.
    pub const DEFAULT: Self = Self { syn_when_accept_full: Verdict::Admit };
    /// RST to a SYN that the kernel would drop because the accept queue is full.
    pub const RST_SYN: Self = Self { syn_when_accept_full: Verdict::Reset };
    /// Every policy that has a name, as in DESIGN.md.
    pub const NAMED: [(&'static str, Self); 2] = [("default", Self::DEFAULT), ("rst-syn", Self::RST_SYN)];

    /// The policy with that name.
    pub fn by_name(name: &str) -> Option<Self> {
        let found = Self::NAMED.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, policy)| policy)
    }

    /// SYN stage: may this attempt start? `now` is on any clock that does not step back.
    pub fn admit_syn(&self, load: &ListenerLoad, now: Nanos) -> Verdict {
        // SAFETY: a pure function of six numbers.
        let number = unsafe {
            tidegate_admit_syn(
                self.syn_when_accept_full as u32,
                load.accept_qlen,
                load.accept_limit,
                load.syn_qlen,
                load.syn_limit,
                now.0,
            )
        };
        verdict(number)
    }
}

fn verdict(number: u32) -> Verdict {
    match number {
        0 => Verdict::Admit,
        1 => Verdict::Drop,
        2 => Verdict::Reset,
        _ => unreachable!("verdict.h has no verdict {number}"),
    }
}

unsafe extern "C" {
    fn tidegate_admit_syn(
        when_accept_full: u32,
        accept_qlen: u32,
        accept_limit: u32,
        syn_qlen: u32,
        syn_limit: u32,
        now_ns: u64,
    ) -> u32;
}
