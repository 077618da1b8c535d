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

mod name;

use units::Nanos;

pub use name::PolicyError;

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

/// What counts as full at the SYN stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The accept queue has no place now, as in the kernel.
    AcceptQueue,
    /// Every place of the accept queue is taken, or promised to a handshake in progress: reserv of `[Shu05]` section 4.1.2.
    Reserved {
        /// Promises for 100 places; 100 is exact.
        overbook_percent: u32,
    },
}

/// What is asked and answered at each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What counts as full at the SYN stage.
    pub full: Full,
    /// Answer to a SYN that finds it full.
    pub syn_when_full: Verdict,
    /// Answer to the end of a handshake that finds the accept queue full.
    pub ack_when_full: Verdict,
}

impl Policy {
    /// The stock kernel.
    pub const DEFAULT: Self =
        Self { full: Full::AcceptQueue, syn_when_full: Verdict::Admit, ack_when_full: Verdict::Admit };
    /// RST to a SYN that the kernel would drop because the accept queue is full.
    pub const RST_SYN: Self = Self { syn_when_full: Verdict::Reset, ..Self::DEFAULT };
    /// RST to both ends of a handshake that ends when the accept queue is full.
    pub const ABORT: Self = Self { ack_when_full: Verdict::Reset, ..Self::DEFAULT };
    /// No SYN/ACK without a place in the accept queue; other SYNs are dropped.
    pub const RESERV: Self = Self {
        full: Full::Reserved { overbook_percent: 100 },
        syn_when_full: Verdict::Drop,
        ..Self::DEFAULT
    };

    /// SYN stage: may this attempt start? `now` is on any clock that does not step back.
    pub fn admit_syn(&self, load: &ListenerLoad, now: Nanos) -> Verdict {
        let [full, overbook, syn, ack] = self.numbers();
        let [accept_qlen, accept_limit, syn_qlen, syn_limit] = load.numbers();
        // SAFETY: a pure function of numbers.
        verdict(unsafe {
            tidegate_admit_syn(
                full,
                overbook,
                syn,
                ack,
                accept_qlen,
                accept_limit,
                syn_qlen,
                syn_limit,
                now.0,
            )
        })
    }

    /// ACK stage: may this handshake finish?
    pub fn admit_ack(&self, load: &ListenerLoad) -> Verdict {
        let [full, overbook, syn, ack] = self.numbers();
        let [accept_qlen, accept_limit, syn_qlen, syn_limit] = load.numbers();
        // SAFETY: a pure function of numbers.
        verdict(unsafe {
            tidegate_admit_ack(full, overbook, syn, ack, accept_qlen, accept_limit, syn_qlen, syn_limit)
        })
    }

    /// The fields of `struct listener_policy`, in its order.
    pub fn numbers(&self) -> [u32; 4] {
        let (full, overbook_percent) = match self.full {
            Full::AcceptQueue => (0, 0),
            Full::Reserved { overbook_percent } => (1, overbook_percent),
        };
        [full, overbook_percent, self.syn_when_full as u32, self.ack_when_full as u32]
    }
}

impl ListenerLoad {
    /// The fields of `struct listener_load`, in its order.
    pub fn numbers(&self) -> [u32; 4] {
        [self.accept_qlen, self.accept_limit, self.syn_qlen, self.syn_limit]
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
        full: u32,
        overbook_percent: u32,
        syn_when_full: u32,
        ack_when_full: u32,
        accept_qlen: u32,
        accept_limit: u32,
        syn_qlen: u32,
        syn_limit: u32,
        now_ns: u64,
    ) -> u32;
    fn tidegate_admit_ack(
        full: u32,
        overbook_percent: u32,
        syn_when_full: u32,
        ack_when_full: u32,
        accept_qlen: u32,
        accept_limit: u32,
        syn_qlen: u32,
        syn_limit: u32,
    ) -> u32;
}
