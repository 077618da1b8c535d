//! One table of cases for each stage, for the host and for the kernel.

use std::num::NonZeroU32;

use units::Nanos;
use verdict::{Attempt, Fin, Full, ListenerLoad, OnFin, Policy, Trigger, Verdict};

/// One row.
pub struct Case {
    /// What the row is about.
    pub name: &'static str,
    /// The policy asked.
    pub policy: Policy,
    /// The queues.
    pub load: ListenerLoad,
    /// The SYN.
    pub attempt: Attempt,
    /// What must come out.
    pub verdict: Verdict,
}

const fn row(
    name: &'static str,
    policy: Policy,
    accept: (u32, u32),
    syn: (u32, u32),
    verdict: Verdict,
) -> Case {
    Case {
        name,
        policy,
        load: ListenerLoad {
            accept_qlen: accept.0,
            accept_limit: accept.1,
            syn_qlen: syn.0,
            syn_limit: syn.1,
            unserved: 0,
            unserved_limit: 0,
            sojourn_us: 0,
            answers_per_s: 0,
        },
        attempt: NOW,
        verdict,
    }
}

const NOW: Attempt = Attempt {
    now: Nanos(1_000_000_007),
    schedule: Nanos::ZERO,
    hash: 0,
    is_reserved: false,
    is_behind_time_wait: false,
};
/// 1000 attempts/s, three at once.
const POLICE: Policy = Policy {
    full: Full::Rate {
        per_s: NonZeroU32::new(1000).expect("not zero"),
        burst: NonZeroU32::new(3).expect("not zero"),
    },
    syn_when_full: Verdict::Drop,
    ..Policy::DEFAULT
};
const PERSISTENT_DROP: Policy =
    Policy { full: Full::Class { refused_permille: 250 }, syn_when_full: Verdict::Reset, ..Policy::DEFAULT };

/// The queues full or empty, which is not asked; the bucket is full again so many ns from now.
const fn policed(name: &'static str, ahead_ns: u64, verdict: Verdict) -> Case {
    let attempt = Attempt { schedule: Nanos(NOW.now.0 + ahead_ns), ..NOW };
    Case { attempt, ..row(name, POLICE, (129, 128), (128, 128), verdict) }
}

const fn hashed(name: &'static str, hash: u32, verdict: Verdict) -> Case {
    let attempt = Attempt { hash, ..NOW };
    Case { attempt, ..row(name, PERSISTENT_DROP, (129, 128), (128, 128), verdict) }
}

/// The same row for a source that must always get in.
const fn reserved(case: Case) -> Case {
    Case { attempt: Attempt { is_reserved: true, ..case.attempt }, ..case }
}

/// The same row for one whose four-tuple is in TIME_WAIT here.
const fn behind_time_wait(case: Case) -> Case {
    Case { attempt: Attempt { is_behind_time_wait: true, ..case.attempt }, ..case }
}

/// With the last 28 of 129 places for reserved sources.
const fn keep_28(policy: Policy) -> Policy {
    Policy { reserved_slots: 28, ..policy }
}

const DROP: Policy = Policy { syn_when_full: Verdict::Drop, ..Policy::DEFAULT };
const OVERBOOKED: Policy = Policy { full: Full::Reserved { overbook_percent: 150 }, ..Policy::RESERV };
const RESERV_RST_SYN: Policy = Policy { syn_when_full: Verdict::Reset, ..Policy::RESERV };

/// So many connections wait, for so many microseconds, and so many may by what the agent has found;
/// the queues are empty.
const fn waiting(
    name: &'static str,
    policy: Policy,
    (unserved, sojourn_us): (u32, u32),
    unserved_limit: u32,
    verdict: Verdict,
) -> Case {
    let case = row(name, policy, (0, 128), (0, 128), verdict);
    Case { load: ListenerLoad { unserved, unserved_limit, sojourn_us, ..case.load }, ..case }
}

/// The same row at a server that gives 10,000 answers/s.
const fn busy(case: Case) -> Case {
    Case { load: ListenerLoad { answers_per_s: 10_000, ..case.load }, ..case }
}

/// RST once the trigger says full.
const fn reset_at(trigger: Trigger) -> Policy {
    Policy { trigger, ..Policy::RST_SYN }
}

const SIXTY_FOUR: Option<NonZeroU32> = NonZeroU32::new(64);
const FIXED: Policy = reset_at(Trigger::Unserved(SIXTY_FOUR));
const AUTO: Policy = reset_at(Trigger::Unserved(None));
const IN_5_MS: Policy = reset_at(Trigger::Sojourn(NonZeroU32::new(5000).expect("not zero")));

const ONLY_COOKIES: Policy = Policy { syn_when_syn_queue_full: Verdict::Cookie, ..Policy::DEFAULT };
const COOKIES: Policy = Policy { syn_when_syn_queue_full: Verdict::Cookie, ..Policy::RST_SYN };
const AUTO_COOKIES: Policy = Policy { syn_when_syn_queue_full: Verdict::Cookie, ..AUTO };

/// The same row with the SYN queue full.
const fn waiting_behind(case: Case) -> Case {
    Case { load: ListenerLoad { syn_qlen: 128, syn_limit: 128, ..case.load }, ..case }
}

/// Queues are (length, limit).
pub const SYN_STAGE: [Case; 79] = [
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
    row("abort leaves SYNs to the kernel", Policy::ABORT, (129, 128), (128, 128), Verdict::Admit),
    row("reserv: one place left to promise", Policy::RESERV, (100, 128), (28, 128), Verdict::Admit),
    row("reserv: every place is promised", Policy::RESERV, (100, 128), (29, 128), Verdict::Drop),
    row("reserv: promises alone", Policy::RESERV, (0, 128), (129, 128), Verdict::Drop),
    row("reserv: accept queue alone", Policy::RESERV, (129, 128), (0, 128), Verdict::Drop),
    row("reserv: backlog 0 has one place", Policy::RESERV, (0, 0), (0, 0), Verdict::Admit),
    row("reserv: backlog 0, promised", Policy::RESERV, (0, 0), (1, 0), Verdict::Drop),
    row("reserv: largest numbers", Policy::RESERV, (u32::MAX, u32::MAX), (u32::MAX, 0), Verdict::Drop),
    row("overbooked: 193 promises for 129 places", OVERBOOKED, (64, 128), (129, 128), Verdict::Admit),
    row("overbooked: 194 of 193.5", OVERBOOKED, (64, 128), (130, 128), Verdict::Drop),
    row("reserv with rst-syn", RESERV_RST_SYN, (100, 128), (29, 128), Verdict::Reset),
    row("police: the first attempt", POLICE, (0, 128), (0, 128), Verdict::Admit),
    policed("police: full bucket", 0, Verdict::Admit),
    policed("police: the third at once", 2_000_000, Verdict::Admit),
    policed("police: the fourth at once", 3_000_000, Verdict::Drop),
    policed("police: 1 ns before a token", 2_000_001, Verdict::Drop),
    policed("police: what a slower rate left behind is an empty bucket", u64::MAX / 2, Verdict::Drop),
    hashed("persistent drop: lowest hash", 0, Verdict::Reset),
    hashed("persistent drop: last of a quarter", 0x3fff_ffff, Verdict::Reset),
    hashed("persistent drop: first of the rest", 0x4000_0000, Verdict::Admit),
    row("no-syn-drop: idle", Policy::NO_SYN_DROP, (128, 128), (127, 128), Verdict::Admit),
    row("no-syn-drop: accept queue full", Policy::NO_SYN_DROP, (129, 128), (0, 128), Verdict::Cookie),
    row("no-syn-drop: SYN queue full", Policy::NO_SYN_DROP, (0, 128), (128, 128), Verdict::Cookie),
    row("cookies: room in both", COOKIES, (128, 128), (127, 128), Verdict::Admit),
    row("cookies: SYN queue full", COOKIES, (0, 128), (128, 128), Verdict::Cookie),
    row("cookies: accept queue full", COOKIES, (129, 128), (128, 128), Verdict::Reset),
    row("cookies: places kept", keep_28(COOKIES), (101, 128), (128, 128), Verdict::Reset),
    row(
        "cookies without an answer to a full accept queue",
        ONLY_COOKIES,
        (129, 128),
        (128, 128),
        Verdict::Admit,
    ),
    waiting_behind(waiting("cookies: at the limit", AUTO_COOKIES, (10, 0), 10, Verdict::Reset)),
    waiting_behind(waiting("cookies: below it", AUTO_COOKIES, (9, 0), 10, Verdict::Cookie)),
    behind_time_wait(row("cookies: none behind TIME_WAIT", COOKIES, (0, 128), (128, 128), Verdict::Admit)),
    behind_time_wait(row(
        "no-syn-drop: no cookie behind TIME_WAIT",
        Policy::NO_SYN_DROP,
        (129, 128),
        (128, 128),
        Verdict::Admit,
    )),
    behind_time_wait(row(
        "places kept: no cookie behind TIME_WAIT",
        keep_28(Policy::NO_SYN_DROP),
        (101, 128),
        (0, 128),
        Verdict::Admit,
    )),
    behind_time_wait(row("RST behind TIME_WAIT", Policy::RST_SYN, (129, 128), (0, 128), Verdict::Reset)),
    row("places kept: the crowd's last", keep_28(Policy::DEFAULT), (100, 128), (0, 128), Verdict::Admit),
    row("places kept: the first of 28", keep_28(Policy::DEFAULT), (101, 128), (0, 128), Verdict::Drop),
    row(
        "places kept: all full is the kernel's",
        keep_28(Policy::DEFAULT),
        (129, 128),
        (0, 128),
        Verdict::Admit,
    ),
    row("places kept: the crowd is told", keep_28(Policy::RST_SYN), (101, 128), (0, 128), Verdict::Reset),
    row("places kept: abort leaves SYNs", keep_28(Policy::ABORT), (101, 128), (0, 128), Verdict::Drop),
    row("places kept: cookie", keep_28(Policy::NO_SYN_DROP), (101, 128), (0, 128), Verdict::Cookie),
    row(
        "places kept: more than there are, but one",
        keep_28(Policy::DEFAULT),
        (0, 10),
        (0, 10),
        Verdict::Admit,
    ),
    row("places kept: more than there are", keep_28(Policy::DEFAULT), (1, 10), (0, 10), Verdict::Drop),
    reserved(row("reserved source", keep_28(Policy::RST_SYN), (128, 128), (0, 128), Verdict::Admit)),
    reserved(row(
        "reserved source, no place",
        keep_28(Policy::RST_SYN),
        (129, 128),
        (0, 128),
        Verdict::Reset,
    )),
    row(
        "places kept: reserv promises the rest",
        keep_28(Policy::RESERV),
        (50, 128),
        (51, 128),
        Verdict::Drop,
    ),
    row(
        "places kept: reserv, the last promise",
        keep_28(Policy::RESERV),
        (50, 128),
        (50, 128),
        Verdict::Admit,
    ),
    reserved(row("reserved source, reserv", keep_28(Policy::RESERV), (50, 128), (78, 128), Verdict::Admit)),
    reserved(policed("reserved sources are not policed", 3_000_000, Verdict::Admit)),
    reserved(hashed("reserved sources have no class", 0, Verdict::Admit)),
    waiting("unserved: one below the limit", FIXED, (63, 0), 0, Verdict::Admit),
    waiting("unserved: at the limit", FIXED, (64, 0), 0, Verdict::Reset),
    waiting("unserved: its own limit goes before one that was found", FIXED, (63, 0), 10, Verdict::Admit),
    waiting("unserved: found", AUTO, (10, 0), 10, Verdict::Reset),
    waiting("unserved: below what was found", AUTO, (9, 0), 10, Verdict::Admit),
    waiting("unserved: nothing found yet", AUTO, (u32::MAX, 0), 0, Verdict::Admit),
    row("unserved: the accept queue is full all the same", AUTO, (129, 128), (0, 128), Verdict::Reset),
    waiting("unserved: nobody asks", Policy::RST_SYN, (u32::MAX, u32::MAX), 1, Verdict::Admit),
    waiting("sojourn: at the target", IN_5_MS, (9, 5000), 0, Verdict::Admit),
    waiting("sojourn: above it", IN_5_MS, (9, 5001), 0, Verdict::Reset),
    waiting("sojourn: one alone may wait", IN_5_MS, (1, 5001), 0, Verdict::Admit),
    waiting("sojourn: two are enough where nothing is known", IN_5_MS, (2, 5001), 0, Verdict::Reset),
    busy(waiting("sojourn: fewer than half of what 5 ms take", IN_5_MS, (24, 5001), 0, Verdict::Admit)),
    busy(waiting("sojourn: half of them", IN_5_MS, (25, 5001), 0, Verdict::Reset)),
    reserved(waiting(
        "reserved source, as many more as it has slots",
        keep_28(FIXED),
        (91, 0),
        0,
        Verdict::Admit,
    )),
    reserved(waiting("reserved source, no place in the server", keep_28(FIXED), (92, 0), 0, Verdict::Reset)),
    waiting(
        "no-syn-drop: a cookie when the server is full",
        Policy { trigger: Trigger::Unserved(SIXTY_FOUR), ..Policy::NO_SYN_DROP },
        (64, 0),
        0,
        Verdict::Cookie,
    ),
];

/// The same for the end of a handshake.
pub const ACK_STAGE: [Case; 12] = [
    row("abort: one place left", Policy::ABORT, (128, 128), (128, 128), Verdict::Admit),
    row("abort: full", Policy::ABORT, (129, 128), (1, 128), Verdict::Reset),
    row("abort: backlog 0, full", Policy::ABORT, (1, 0), (0, 0), Verdict::Reset),
    row("stock kernel, full", Policy::DEFAULT, (129, 128), (128, 128), Verdict::Admit),
    row("rst-syn alone, full", Policy::RST_SYN, (129, 128), (0, 128), Verdict::Admit),
    row("reserv, full", Policy::RESERV, (129, 128), (0, 128), Verdict::Admit),
    row("no-syn-drop, full", Policy::NO_SYN_DROP, (129, 128), (0, 128), Verdict::Reset),
    row("places kept: the crowd's last", keep_28(Policy::DEFAULT), (100, 128), (0, 128), Verdict::Admit),
    row("places kept: in silence", keep_28(Policy::RST_SYN), (101, 128), (0, 128), Verdict::Drop),
    row("places kept: abort", keep_28(Policy::ABORT), (101, 128), (0, 128), Verdict::Reset),
    reserved(row("reserved source", keep_28(Policy::ABORT), (128, 128), (0, 128), Verdict::Admit)),
    reserved(row("reserved source, no place", keep_28(Policy::ABORT), (129, 128), (0, 128), Verdict::Reset)),
];

/// One row of the FIN stage.
pub struct FinCase {
    /// What the row is about.
    pub name: &'static str,
    /// The policy asked.
    pub policy: Policy,
    /// The FIN and its connection.
    pub fin: Fin,
    /// What must come out.
    pub verdict: Verdict,
}

const RST_FIN: Policy = Policy { on_fin: OnFin::ResetIdle, ..Policy::DEFAULT };
const RST_FIN_ALWAYS: Policy = Policy { on_fin: OnFin::Reset, ..Policy::DEFAULT };
const IDLE: Fin = Fin { payload: 0, ahead: 0, unread: 0, unacknowledged: 0 };

const fn fin(name: &'static str, policy: Policy, fin: Fin, verdict: Verdict) -> FinCase {
    FinCase { name, policy, fin, verdict }
}

/// FINs of established connections.
pub const FIN_STAGE: [FinCase; 9] = [
    fin("stock kernel", Policy::DEFAULT, IDLE, Verdict::Admit),
    fin("idle", RST_FIN, IDLE, Verdict::Reset),
    fin("with data", RST_FIN, Fin { payload: 1, ..IDLE }, Verdict::Admit),
    fin("a byte is missing before it", RST_FIN, Fin { ahead: 1, ..IDLE }, Verdict::Admit),
    fin("a retransmission", RST_FIN, Fin { ahead: u32::MAX, ..IDLE }, Verdict::Admit),
    fin("the request is not read", RST_FIN, Fin { unread: 1, ..IDLE }, Verdict::Admit),
    fin("the response is under way", RST_FIN, Fin { unacknowledged: 1, ..IDLE }, Verdict::Admit),
    fin(
        "always: whatever is under way",
        RST_FIN_ALWAYS,
        Fin { unread: 1, unacknowledged: 1, ..IDLE },
        Verdict::Reset,
    ),
    fin("always, with data", RST_FIN_ALWAYS, Fin { payload: 1, ..IDLE }, Verdict::Admit),
];
