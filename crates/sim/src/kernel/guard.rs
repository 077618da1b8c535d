//! The guard: the decisions of `kernel/verdict.h`, and the counts of `kernel/counters.h`.

use std::collections::HashSet;

use kernel::{ListenerStats, PathStats};
use units::Nanos;
use verdict::{Attempt, Fin, Full, ListenerLoad, OnFin, Policy, Room, Verdict, cookie};
use wire::{Flags, Segment, SeqNumber};

use super::cookies::mix;
use super::follow::Followed;
use super::{Peer, Work};

/// What the guard has counted, of the counters that are simulated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GuardStats {
    /// Of its listener.
    pub listener: ListenerStats,
    /// Of what came.
    pub path: PathStats,
}

/// For so long after a SYN that may find no place when its handshake ends, segments with ACK are
/// looked at (`ARMED_NS` of `kernel/armed.bpf.h`).
const ARMED: Nanos = Nanos::from_secs(2);

/// What the guard's programs look into, as they do for some time from when it was to be seen that a
/// queue may be full. Differs: a FIN is parsed at any time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// There is no guard.
    Nowhere,
    /// SYNs.
    IntoSyns,
    /// And segments with ACK: do they end a handshake?
    IntoAcks,
}

/// Before the listener.
#[derive(Debug)]
pub(super) struct Guard {
    policy: Policy,
    dry_run: bool,
    seed: u64,
    /// Of the token bucket.
    schedule: Nanos,
    armed_until: Nanos,
    room: Room,
    /// SYNs of a dry run. Differs: none is forgotten.
    sent: HashSet<(Peer, SeqNumber)>,
    pub(super) stats: GuardStats,
}

impl Guard {
    pub(super) fn new(policy: Policy, dry_run: bool, seed: u64) -> Self {
        let stats = GuardStats::default();
        Self {
            policy,
            dry_run,
            seed: mix(seed, 4),
            schedule: Nanos::ZERO,
            armed_until: Nanos::ZERO,
            room: Room::default(),
            sent: HashSet::new(),
            stats,
        }
    }

    /// Whether its SYN stage takes a queue for full where the kernel does, as the patches of
    /// `[Shu05]` sections 4.1.2 and 4.1.5 do, which are at the place where 2.4 drops a SYN.
    /// *reserv* and *early-syn-drop* (section 5.4) ask before it.
    pub(super) fn follows_the_kernel(&self) -> bool {
        self.policy.full == Full::AcceptQueue && self.policy.syn_when_full != Verdict::Drop
    }

    /// What it looks into, for this segment: at tc, and not where the accept queue has room for
    /// sure.
    pub(super) fn looks(&mut self, work: Work, now: Nanos) -> Looks {
        match self.policy {
            Policy::DEFAULT | Policy::OBSERVE => Looks::Nowhere,
            // A FIN is always looked at there, and takes no place.
            _ if work.is_acknowledgment()
                && now < self.armed_until
                && (work == Work::Fin || !self.room.take(true, now)) =>
            {
                Looks::IntoAcks
            }
            _ => Looks::IntoSyns,
        }
    }

    fn arm(&mut self, until: Nanos) {
        self.armed_until = self.armed_until.max(until);
    }

    /// A segment of a client that the kernel knows.
    pub(super) fn known(&mut self, segment: &Segment<'_>) {
        self.stats.path.known += u64::from(segment.flags == Flags::SYN);
    }

    /// A SYN of one that it does not: `decide()` of `kernel/syn_stage.bpf.h`. Differs: refusals
    /// have no budget (`kernel/syn_stage.bpf.h`), and no source is reserved.
    pub(super) fn on_syn(
        &mut self,
        (from, number): (Peer, SeqNumber),
        is_behind_time_wait: bool,
        load: &ListenerLoad,
        now: Nanos,
        followed: &mut Option<Followed>,
    ) -> Verdict {
        if self.policy.has_ack_stage() && self.policy.may_overflow(load) {
            self.arm(now + ARMED);
        }
        if now < self.armed_until {
            let is_for_cookies = self.policy.may_answer(Verdict::Cookie);
            self.room.note(0, is_for_cookies, self.policy.accept_places_left(load), now);
        }
        let hash = mix(self.seed, from.0) as u32;
        let attempt = Attempt { now, schedule: self.schedule, hash, is_reserved: false, is_behind_time_wait };
        let (verdict, is_by_server) = match followed {
            Some(followed) => followed.decide(&self.policy, load, &attempt, now),
            None => (self.policy.admit_syn(load, &attempt), false),
        };
        self.stats.listener.server_full += u64::from(is_by_server);
        if verdict == Verdict::Admit
            && let Some(schedule) = self.policy.next_schedule(&attempt)
        {
            self.schedule = schedule;
        }
        self.count_syn(verdict, load);
        self.stats.listener.first += u64::from(self.dry_run && self.sent.insert((from, number)));
        let verdict = if self.dry_run { Verdict::Admit } else { verdict };
        if matches!(verdict, Verdict::Cookie | Verdict::KernelCookie) {
            self.arm(now + cookie::LIFE);
        }
        verdict
    }

    fn count_syn(&mut self, verdict: Verdict, load: &ListenerLoad) {
        let stats = &mut self.stats.listener;
        stats.seen += 1;
        stats.accept_full += u64::from(load.is_accept_queue_full());
        stats.syn_full += u64::from(load.is_syn_queue_full());
        match verdict {
            Verdict::Admit => stats.admitted += 1,
            Verdict::Drop => stats.dropped += 1,
            Verdict::Reset => stats.reset += 1,
            Verdict::Cookie | Verdict::KernelCookie => stats.cookies += 1,
        }
    }

    /// The end of a handshake: `finish()` of `kernel/later_stages.bpf.h`. Differs: it is decided
    /// about after a long handshake, too, when nothing is looked at any more.
    pub(super) fn on_end(
        &mut self,
        segment: &Segment<'_>,
        load: &ListenerLoad,
        leaves_to_kernel: bool,
        now: Nanos,
    ) -> Verdict {
        if !self.policy.has_ack_stage() || leaves_to_kernel {
            return Verdict::Admit;
        }
        let verdict = self.policy.admit_ack(load, false);
        if !load.is_accept_queue_full() && verdict == Verdict::Admit {
            return Verdict::Admit;
        }
        self.stats.listener.acks_full += 1;
        self.arm(now + ARMED);
        self.stats.listener.acks_implied +=
            u64::from(!segment.payload.is_empty() || segment.flags.has(Flags::FIN));
        match verdict {
            Verdict::Drop => self.stats.listener.acks_dropped += 1,
            Verdict::Reset => self.stats.listener.acks_reset += 1,
            _ => {}
        }
        // What would have been dropped is, in a dry run, the kernel's.
        if self.dry_run { Verdict::Admit } else { verdict }
    }

    /// A cookie of the guard's came back, and there is a place.
    pub(super) fn took_cookie(&mut self) {
        self.stats.listener.cookies_back += 1;
    }

    /// A FIN of an established connection. Whether both ends are reset.
    pub(super) fn on_fin(&mut self, fin: &Fin) -> bool {
        if self.policy.on_fin == OnFin::Keep {
            return false;
        }
        self.stats.listener.fins += 1;
        let is_reset = self.policy.admit_fin(fin) == Verdict::Reset;
        self.stats.listener.fins_reset += u64::from(is_reset);
        is_reset && !self.dry_run
    }
}

#[cfg(test)]
mod tests {
    use wire::{Options, SeqNumber};

    use super::*;

    fn segment(flags: Flags) -> Segment<'static> {
        Segment {
            seq: SeqNumber(1),
            ack: SeqNumber(1),
            flags,
            window: 0,
            options: Options::NONE,
            payload: &[],
        }
    }

    #[test]
    fn segments_with_ack_are_looked_into_for_two_seconds_after_a_queue_may_be_full_and_as_long_as_a_cookie_is_good()
     {
        let at = |ms: u64| Nanos::from_millis(10_000 + ms);
        let guard = |policy: &str| Guard::new(policy.parse().expect("a policy"), false, 1);
        let load = |accept_qlen| ListenerLoad {
            accept_qlen,
            accept_limit: 128,
            syn_limit: 128,
            ..ListenerLoad::default()
        };
        let syn = |guard: &mut Guard, accept_qlen, ms| {
            guard.on_syn((Peer::new(1, 1), SeqNumber(1)), false, &load(accept_qlen), at(ms), &mut None)
        };
        let mut abort = guard("abort");
        syn(&mut abort, 127, 0);
        assert_eq!(abort.looks(Work::Ack, at(0)), Looks::IntoSyns, "there is room for it");
        syn(&mut abort, 128, 1);
        assert_eq!([2000, 2001].map(|ms| abort.looks(Work::Ack, at(ms))), [Looks::IntoAcks, Looks::IntoSyns]);
        assert_eq!(abort.on_end(&segment(Flags::ACK), &load(129), false, at(1500)), Verdict::Reset);
        assert_eq!(
            [3499, 3500].map(|ms| abort.looks(Work::Ack, at(ms))),
            [Looks::IntoAcks, Looks::IntoSyns],
            "once more"
        );
        let mut cookies = guard("no-syn-drop");
        assert_eq!(syn(&mut cookies, 129, 0), Verdict::Cookie);
        assert_eq!(
            [137_438, 137_439].map(|ms| cookies.looks(Work::Ack, at(ms))),
            [Looks::IntoAcks, Looks::IntoSyns]
        );
        let mut rst_syn = guard("rst-syn");
        syn(&mut rst_syn, 129, 0);
        assert_eq!(rst_syn.looks(Work::Ack, at(0)), Looks::IntoSyns, "it has nothing to say of them");
        assert_eq!(guard("default").looks(Work::Ack, at(0)), Looks::Nowhere);
        // Of 129 places the last SYN has seen 35 that nobody has, and 32 are taken on nobody's
        // word.
        let mut roomy = guard("abort");
        syn(&mut roomy, 128, 0);
        syn(&mut roomy, 94, 1);
        assert_eq!(roomy.looks(Work::Reset, at(1)), Looks::IntoSyns);
        assert_eq!(
            [1, 1, 1, 1].map(|ms| roomy.looks(Work::Data, at(ms))),
            [Looks::IntoSyns, Looks::IntoSyns, Looks::IntoSyns, Looks::IntoAcks]
        );
        syn(&mut roomy, 94, 2);
        assert_eq!([2, 9].map(|ms| roomy.looks(Work::Ack, at(ms))), [Looks::IntoSyns, Looks::IntoAcks]);
    }
}
