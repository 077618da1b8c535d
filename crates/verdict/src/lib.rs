//! Policies by name, and their decisions: `kernel/verdict.h`, the same code that the BPF programs
//! run.
//!
//! What it is not: the programs themselves. Nothing here sees a packet, a map or a clock.
//!
//! ```
//! use verdict::{Attempt, ListenerLoad, Policy, Verdict};
//!
//! let full = ListenerLoad { accept_qlen: 129, accept_limit: 128, ..ListenerLoad::default() };
//! assert_eq!(Policy::RST_SYN.admit_syn(&full, &Attempt::default()), Verdict::Reset);
//! assert_eq!(Policy::DEFAULT.admit_syn(&full, &Attempt::default()), Verdict::Admit);
//! ```

pub mod cookie;
mod histogram;
mod mechanism;
mod name;
mod room;

use std::num::NonZeroU32;

use kernel::{ListenerPolicy, Pace, Rate, Service};
use units::Nanos;

pub use histogram::{BUCKETS, Histogram};
pub use kernel::{Fin, ListenerLoad, OnFin, Verdict};
pub use mechanism::{Mechanism, Question};
pub use name::PolicyError;
pub use room::Room;

/// When a listener has all that it should take, besides a full accept queue, with which the kernel
/// takes nobody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Trigger {
    /// No sooner: `[Shu05]`.
    #[default]
    Queue,
    /// So many connections wait for the server; `None` is a limit that is found while it runs.
    Unserved(Option<NonZeroU32>),
    /// They wait longer than this, microseconds.
    Sojourn(NonZeroU32),
}

/// From when on a connection waits for the server; nothing that a SYN is decided by, but how those
/// are counted who wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WaitsFrom {
    /// Its request; its handshake's end where most are answered before one is seen.
    #[default]
    Found,
    /// Its request.
    Request,
    /// Its handshake's end: the server speaks first, or requests cannot be seen.
    Handshake,
}

/// What counts as full at the SYN stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The accept queue has no place now, as in the kernel.
    AcceptQueue,
    /// Every place of the accept queue is taken, or promised to a handshake in progress: reserv of
    /// `[Shu05]` section 4.1.2.
    Reserved {
        /// Promises for 100 places; 100 is exact.
        overbook_percent: u32,
    },
    /// More attempts than a rate: SYN policing by a token bucket (Voigt and others, USENIX 2001).
    Rate {
        /// Attempts/s.
        per_s: NonZeroU32,
        /// Attempts that may come at once.
        burst: NonZeroU32,
    },
    /// The attempt's hash is of a refused class: persistent dropping (Jamjoom and Shin, SIGCOMM
    /// 2003).
    Class {
        /// Share of all attempts, in thousandths.
        refused_permille: u32,
    },
    /// The accept queue or the SYN queue: no-syn-drop of `[Shu05]` section 4.1.5.
    AnyQueue,
}

/// One SYN, as the decision sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Attempt {
    /// On any clock that does not step back.
    pub now: Nanos,
    /// State of the listener's token bucket, zero at first; [`Policy::next_schedule`] moves it.
    pub schedule: Nanos,
    /// Keyed, of addresses and ports: the same for every retransmission.
    pub hash: u32,
    /// From a source that must always get in.
    pub is_reserved: bool,
    /// Its four-tuple is that of a connection in TIME_WAIT here.
    pub is_behind_time_wait: bool,
}

/// What is asked and answered at each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// What counts as full at the SYN stage.
    pub full: Full,
    /// Answer to a SYN that finds it full.
    pub syn_when_full: Verdict,
    /// Answer to one that only the SYN queue has no place for: the kernel's own, or a cookie.
    pub syn_when_syn_queue_full: Verdict,
    /// Answer to the end of a handshake that finds the accept queue full.
    pub ack_when_full: Verdict,
    /// What becomes of a connection whose peer sends FIN.
    pub on_fin: OnFin,
    /// When the listener is full, for whoever asks.
    pub trigger: Trigger,
    /// Who waits for the server, for a trigger that asks.
    pub waits_from: WaitsFrom,
    /// For how long a queue stands before anybody is refused, us, where the limit is found. `None`
    /// is [`Policy::USUAL_BURST_US`].
    pub burst_us: Option<u32>,
    /// Last places of the accept queue that only reserved sources get; not part of its name.
    pub reserved_slots: u32,
    /// Decide nothing, and attach nothing that could: only count. All else is as in
    /// [`Policy::DEFAULT`] then.
    pub only_observes: bool,
}

impl Policy {
    /// As CoDel's interval (RFC 8289, section 4.2).
    pub const USUAL_BURST_US: u32 = 100_000;

    /// The stock kernel.
    pub const DEFAULT: Self = Self {
        full: Full::AcceptQueue,
        syn_when_full: Verdict::Admit,
        syn_when_syn_queue_full: Verdict::Admit,
        ack_when_full: Verdict::Admit,
        on_fin: OnFin::Keep,
        trigger: Trigger::Queue,
        waits_from: WaitsFrom::Found,
        burst_us: None,
        reserved_slots: 0,
        only_observes: false,
    };
    /// The stock kernel, and what it does is counted.
    pub const OBSERVE: Self = Self { only_observes: true, ..Self::DEFAULT };
    /// RST to a SYN that the kernel would drop because the accept queue is full.
    pub const RST_SYN: Self = Self { syn_when_full: Verdict::Reset, ..Self::DEFAULT };
    /// RST to both ends of a handshake that ends when the accept queue is full.
    pub const ABORT: Self = Self { ack_when_full: Verdict::Reset, ..Self::DEFAULT };
    /// RST to a SYN while as many wait for the server as keep it busy, which is found while it
    /// runs, and to whoever all the same ends a handshake when the accept queue is full: what a
    /// guard does that was told nothing else.
    pub const UNSERVED: Self =
        Self { syn_when_full: Verdict::Reset, trigger: Trigger::Unserved(None), ..Self::ABORT };
    /// No SYN/ACK without a place in the accept queue; other SYNs are dropped.
    pub const RESERV: Self = Self {
        full: Full::Reserved { overbook_percent: 100 },
        syn_when_full: Verdict::Drop,
        ..Self::DEFAULT
    };
    /// Every SYN is answered, with a cookie when a queue is full; rejection at the ACK stage only.
    pub const NO_SYN_DROP: Self =
        Self { full: Full::AnyQueue, syn_when_full: Verdict::Cookie, ..Self::ABORT };

    /// SYN stage: may this attempt start?
    pub fn admit_syn(&self, load: &ListenerLoad, attempt: &Attempt) -> Verdict {
        kernel::admit_syn(&self.into(), load, &attempt.into())
    }

    /// Whether a SYN may get this answer.
    pub fn may_answer(&self, verdict: Verdict) -> bool {
        kernel::may_answer(&self.into(), verdict)
    }

    /// SYN stage before a server whose waiting connections are counted. Also gives whether only the
    /// server was in the way.
    pub fn decide_syn(
        &self,
        load: &ListenerLoad,
        attempt: &Attempt,
        service: &mut Service,
        pace: &Pace,
        now: Nanos,
    ) -> (Verdict, bool) {
        service.decide(pace, &self.into(), load, &attempt.into(), now)
    }

    /// Whether it decides about ends of handshakes at all.
    pub fn has_ack_stage(&self) -> bool {
        kernel::has_ack_stage(&self.into())
    }

    /// Whether a handshake of the crowd's that starts now may find no place in the accept queue
    /// when it ends, so that ends of handshakes are to be looked at; handshakes by a cookie of the
    /// kernel's are in no queue.
    pub fn may_overflow(&self, load: &ListenerLoad) -> bool {
        kernel::accept_queue_may_overflow(&self.into(), load)
    }

    /// Free places of the accept queue, for a source that is not reserved.
    pub fn accept_places_left(&self, load: &ListenerLoad) -> u64 {
        kernel::accept_places_left(&self.into(), load)
    }

    /// State of the listener's token bucket after this attempt was admitted; `None` for a policy
    /// without one.
    pub fn next_schedule(&self, attempt: &Attempt) -> Option<Nanos> {
        let Full::Rate { per_s, burst } = self.full else {
            return None;
        };
        let rate = Rate { per_s: per_s.get(), burst: burst.get() };
        Some(Nanos(kernel::next_schedule(&rate, attempt.now.0, attempt.schedule.0)))
    }

    /// ACK stage: may this handshake, of a reserved source or of the crowd, finish?
    pub fn admit_ack(&self, load: &ListenerLoad, is_reserved: bool) -> Verdict {
        kernel::admit_ack(&self.into(), load, is_reserved.into())
    }

    /// FIN stage: may the peer half-close? [`Verdict::Reset`] destroys the connection at both ends.
    pub fn admit_fin(&self, fin: &Fin) -> Verdict {
        kernel::admit_fin(&self.into(), fin)
    }

    /// Whether it acts on segments as only a socket buffer can be acted on: clones them, or has the
    /// kernel take a cookie of ours.
    pub fn needs_socket_buffers(&self) -> bool {
        self.on_fin != OnFin::Keep || self.may_answer(Verdict::Cookie)
    }
}

/// For the programs and for the functions of `kernel/verdict.h`.
impl From<&Policy> for ListenerPolicy {
    fn from(policy: &Policy) -> Self {
        let mut to = Self {
            syn_when_full: policy.syn_when_full,
            syn_when_syn_queue_full: policy.syn_when_syn_queue_full,
            ack_when_full: policy.ack_when_full,
            on_fin: policy.on_fin,
            reserved_slots: policy.reserved_slots,
            ..Self::default()
        };
        to.full = match policy.full {
            Full::AcceptQueue => kernel::Full::AcceptQueue,
            Full::Reserved { overbook_percent } => {
                to.overbook_percent = overbook_percent;
                kernel::Full::Reserved
            }
            Full::Rate { per_s, burst } => {
                to.rate = Rate { per_s: per_s.get(), burst: burst.get() };
                kernel::Full::Rate
            }
            Full::Class { refused_permille } => {
                to.refused_permille = refused_permille;
                kernel::Full::Class
            }
            Full::AnyQueue => kernel::Full::AnyQueue,
        };
        (to.trigger, to.trigger_at) = match policy.trigger {
            Trigger::Queue => (kernel::Trigger::Queue, 0),
            Trigger::Unserved(limit) => (kernel::Trigger::Unserved, limit.map_or(0, NonZeroU32::get)),
            Trigger::Sojourn(target_us) => (kernel::Trigger::Sojourn, target_us.get()),
        };
        to
    }
}

impl From<&Attempt> for kernel::Attempt {
    fn from(attempt: &Attempt) -> Self {
        Self {
            now_ns: attempt.now.0,
            schedule_ns: attempt.schedule.0,
            hash: attempt.hash,
            is_reserved: attempt.is_reserved.into(),
            is_behind_time_wait: attempt.is_behind_time_wait.into(),
            zero: 0,
        }
    }
}
