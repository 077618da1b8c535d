//! The decisions of `kernel/verdict.h`, called on the host: the very code that the BPF programs run.
//!
//! Not the programs themselves: nothing here sees a packet, a map or a clock.
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
mod name;
mod room;

use std::num::NonZeroU32;

use units::Nanos;

pub use histogram::{BUCKETS, Histogram};
pub use name::PolicyError;
pub use room::Room;

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
    /// SYN stage: answer with SYN/ACK and a cookie of ours, which keeps the client's options.
    Cookie = 3,
    /// The same with a cookie that the kernel itself can take back, without options.
    KernelCookie = 4,
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
    /// Wait for the server, or will when their handshake has ended.
    pub unserved: u32,
    /// Limit of these that was found; 0 is none yet.
    pub unserved_limit: u32,
    /// Handshakes under way that will end here, as far as is known.
    pub promised: u32,
    /// How long they wait, microseconds.
    pub sojourn_us: u32,
    /// That the server can give, as far as is known.
    pub answers_per_s: u32,
}

/// When a listener has all that it should take, besides a full accept queue, with which the kernel takes nobody.
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

/// From when on a connection waits for the server; nothing that a SYN is decided by, but how those are counted who wait.
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
    /// Every place of the accept queue is taken, or promised to a handshake in progress: reserv of `[Shu05]` section 4.1.2.
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
    /// The attempt's hash is of a refused class: persistent dropping (Jamjoom and Shin, SIGCOMM 2003).
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

/// What becomes of a connection whose peer sends FIN. The numbers are those of `enum on_fin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum OnFin {
    /// Half-closed, as TCP has it.
    Keep = 0,
    /// rst-fin of `[Shu05]` section 4.2, but never with bytes that were not read or not acknowledged.
    ResetIdle = 1,
    /// rst-fin: the peer is gone, whatever was under way.
    Reset = 2,
}

/// A FIN, and the established connection that it is for. All in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fin {
    /// That come with it.
    pub payload: u32,
    /// Of what was received so far: 0 is in order.
    pub ahead: u32,
    /// Received, and not read by the server.
    pub unread: u32,
    /// Written by the server, and not acknowledged up to this FIN.
    pub unacknowledged: u32,
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
    /// How much of the server's time a burst may take beyond what is answered meanwhile, us, where the limit is found; `None` is [`Policy::USUAL_BURST_US`].
    pub burst_us: Option<u32>,
    /// Last places of the accept queue that only reserved sources get; not part of its name.
    pub reserved_slots: u32,
    /// Decide nothing, and attach nothing that could: only count. All else is as in [`Policy::DEFAULT`] then.
    pub only_observes: bool,
}

impl Policy {
    /// Who is left unanswered comes back after one, two, three and four seconds, or one and three.
    pub const USUAL_BURST_US: u32 = 4_000_000;

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
    /// RST to a SYN while as many wait for the server as keep it busy, which is found while it runs, and to whoever all the same ends a handshake
    /// when the accept queue is full: what a guard does that was told nothing else.
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
        let (policy, load) = (self.numbers(), load.numbers());
        let Attempt { now, schedule, hash, is_reserved, is_behind_time_wait } = *attempt;
        let (is_reserved, is_behind) = (u32::from(is_reserved), u32::from(is_behind_time_wait));
        // SAFETY: reads as many numbers as the arrays have, and writes nothing.
        verdict(unsafe {
            tidegate_admit_syn(
                policy.as_ptr(),
                load.as_ptr(),
                now.0,
                schedule.0,
                hash,
                is_reserved,
                is_behind,
            )
        })
    }

    /// The same where nothing is in the way but, it may be, a full SYN queue.
    pub fn enter_syn_queue(&self, load: &ListenerLoad, attempt: &Attempt) -> Verdict {
        let (policy, load) = (self.numbers(), load.numbers());
        // SAFETY: reads as many numbers as the arrays have, and writes nothing.
        verdict(unsafe {
            tidegate_enter_syn_queue(policy.as_ptr(), load.as_ptr(), attempt.is_behind_time_wait.into())
        })
    }

    /// Whether a SYN may get this answer.
    pub fn may_answer(&self, verdict: Verdict) -> bool {
        // SAFETY: reads as many numbers as the array has, and writes nothing.
        unsafe { tidegate_may_answer(self.numbers().as_ptr(), verdict as u32) != 0 }
    }

    /// Whether nothing but the server is in the way of an attempt that was refused.
    pub fn is_refused_by_server_alone(&self, load: &ListenerLoad, is_reserved: bool) -> bool {
        let (policy, load) = (self.numbers(), load.numbers());
        // SAFETY: reads as many numbers as the arrays have, and writes nothing.
        let is = unsafe {
            tidegate_is_refused_by_server_alone(policy.as_ptr(), load.as_ptr(), is_reserved.into())
        };
        is != 0
    }

    /// Whether it decides about ends of handshakes at all: `has_ack_stage()` of `kernel/verdict.h`.
    pub fn has_ack_stage(&self) -> bool {
        // SAFETY: reads as many numbers as the array has, and writes nothing.
        unsafe { tidegate_has_ack_stage(self.numbers().as_ptr()) != 0 }
    }

    /// Whether a handshake of the crowd's that starts now may find no place in the accept queue when it ends, so that ends of handshakes are to be looked at (`accept_queue_may_overflow()` of `kernel/verdict.h`); handshakes by a cookie of the kernel's are in no queue.
    pub fn may_overflow(&self, load: &ListenerLoad) -> bool {
        let (policy, load) = (self.numbers(), load.numbers());
        // SAFETY: reads as many numbers as the arrays have, and writes nothing.
        unsafe { tidegate_accept_queue_may_overflow(policy.as_ptr(), load.as_ptr()) != 0 }
    }

    /// Free places of the accept queue, for a source that is not reserved (`accept_places_left()` of `kernel/verdict.h`).
    pub fn accept_places_left(&self, load: &ListenerLoad) -> u64 {
        let (policy, load) = (self.numbers(), load.numbers());
        // SAFETY: reads as many numbers as the arrays have, and writes nothing.
        unsafe { tidegate_accept_places_left(policy.as_ptr(), load.as_ptr()) }
    }

    /// State of the listener's token bucket after this attempt was admitted; `None` for a policy without one.
    pub fn next_schedule(&self, attempt: &Attempt) -> Option<Nanos> {
        let Full::Rate { per_s, burst } = self.full else {
            return None;
        };
        // SAFETY: numbers in, a number out; the rate is not zero.
        Some(Nanos(unsafe {
            tidegate_next_schedule(per_s.get(), burst.get(), attempt.now.0, attempt.schedule.0)
        }))
    }

    /// ACK stage: may this handshake, of a reserved source or of the crowd, finish?
    pub fn admit_ack(&self, load: &ListenerLoad, is_reserved: bool) -> Verdict {
        let (policy, load) = (self.numbers(), load.numbers());
        // SAFETY: reads as many numbers as the arrays have, and writes nothing.
        verdict(unsafe { tidegate_admit_ack(policy.as_ptr(), load.as_ptr(), is_reserved.into()) })
    }

    /// FIN stage: may the peer half-close? [`Verdict::Reset`] destroys the connection at both ends.
    pub fn admit_fin(&self, fin: &Fin) -> Verdict {
        let (policy, Fin { payload, ahead, unread, unacknowledged }) = (self.numbers(), *fin);
        // SAFETY: reads as many numbers as the array has, and writes nothing.
        verdict(unsafe { tidegate_admit_fin(policy.as_ptr(), payload, ahead, unread, unacknowledged) })
    }

    /// Whether it acts on segments as only a socket buffer can be acted on: clones them, or has the kernel take a cookie of ours.
    pub fn needs_socket_buffers(&self) -> bool {
        self.on_fin != OnFin::Keep || self.may_answer(Verdict::Cookie)
    }

    /// The fields of `struct listener_policy`, in its order.
    pub fn numbers(&self) -> [u32; 12] {
        let [full, overbook_percent, rate_per_s, burst, refused_permille] = match self.full {
            Full::AcceptQueue => [0; 5],
            Full::Reserved { overbook_percent } => [1, overbook_percent, 0, 0, 0],
            Full::Rate { per_s, burst } => [2, 0, per_s.get(), burst.get(), 0],
            Full::Class { refused_permille } => [3, 0, 0, 0, refused_permille],
            Full::AnyQueue => [4, 0, 0, 0, 0],
        };
        let (syn, ack, fin) = (self.syn_when_full as u32, self.ack_when_full as u32, self.on_fin as u32);
        let (trigger, at) = match self.trigger {
            Trigger::Queue => (0, 0),
            Trigger::Unserved(limit) => (1, limit.map_or(0, NonZeroU32::get)),
            Trigger::Sojourn(target_us) => (2, target_us.get()),
        };
        let (slots, queued) = (self.reserved_slots, self.syn_when_syn_queue_full as u32);
        [
            full,
            overbook_percent,
            rate_per_s,
            burst,
            refused_permille,
            syn,
            ack,
            fin,
            slots,
            trigger,
            at,
            queued,
        ]
    }
}

impl ListenerLoad {
    /// Whether the accept queue holds as many as it may: one more than the limit, as `sk_acceptq_is_full()` has it.
    pub fn is_accept_queue_full(&self) -> bool {
        // SAFETY: reads as many numbers as the array has, and keeps nothing.
        unsafe { tidegate_accept_queue_is_full(self.numbers().as_ptr()) != 0 }
    }

    /// Whether the SYN queue is at its limit.
    pub fn is_syn_queue_full(&self) -> bool {
        // SAFETY: as above.
        unsafe { tidegate_syn_queue_is_full(self.numbers().as_ptr()) != 0 }
    }

    /// The fields of `struct listener_load`, in its order.
    pub fn numbers(&self) -> [u32; 9] {
        [
            self.accept_qlen,
            self.accept_limit,
            self.syn_qlen,
            self.syn_limit,
            self.unserved,
            self.unserved_limit,
            self.promised,
            self.sojourn_us,
            self.answers_per_s,
        ]
    }

    /// From its fields in that order.
    pub fn of(numbers: [u32; 9]) -> Self {
        let [
            accept_qlen,
            accept_limit,
            syn_qlen,
            syn_limit,
            unserved,
            unserved_limit,
            promised,
            sojourn_us,
            answers_per_s,
        ] = numbers;
        Self {
            accept_qlen,
            accept_limit,
            syn_qlen,
            syn_limit,
            unserved,
            unserved_limit,
            promised,
            sojourn_us,
            answers_per_s,
        }
    }
}

fn verdict(number: u32) -> Verdict {
    match number {
        0 => Verdict::Admit,
        1 => Verdict::Drop,
        2 => Verdict::Reset,
        3 => Verdict::Cookie,
        4 => Verdict::KernelCookie,
        _ => unreachable!("verdict.h has no verdict {number}"),
    }
}

unsafe extern "C" {
    fn tidegate_admit_syn(
        policy: *const u32,
        load: *const u32,
        now_ns: u64,
        schedule_ns: u64,
        hash: u32,
        is_reserved: u32,
        is_behind_time_wait: u32,
    ) -> u32;
    fn tidegate_enter_syn_queue(policy: *const u32, load: *const u32, is_behind_time_wait: u32) -> u32;
    fn tidegate_may_answer(policy: *const u32, verdict: u32) -> u32;
    fn tidegate_accept_queue_is_full(load: *const u32) -> u32;
    fn tidegate_syn_queue_is_full(load: *const u32) -> u32;
    fn tidegate_has_ack_stage(policy: *const u32) -> u32;
    fn tidegate_accept_places_left(policy: *const u32, load: *const u32) -> u64;
    fn tidegate_accept_queue_may_overflow(policy: *const u32, load: *const u32) -> u32;
    fn tidegate_is_refused_by_server_alone(policy: *const u32, load: *const u32, is_reserved: u32) -> u32;
    fn tidegate_next_schedule(per_s: u32, burst: u32, now_ns: u64, schedule_ns: u64) -> u64;
    fn tidegate_admit_ack(policy: *const u32, load: *const u32, is_reserved: u32) -> u32;
    fn tidegate_admit_fin(
        policy: *const u32,
        payload: u32,
        ahead: u32,
        unread: u32,
        unacknowledged: u32,
    ) -> u32;
}
