//! What was counted at a listener.

use std::collections::BTreeSet;

use crate::program::Raw;
use crate::{Histogram, Hook};

/// One count. Those of drops are the causes of `[Shu05]` section 2.1.1, as today's kernel decides
/// them.
///
/// `Syns` = `Answered` + `Cookies` + the drops at the SYN stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// SYNs for a new handshake.
    Syns,
    /// Of `Syns`: answered with SYN/ACK, and kept as a request socket.
    Answered,
    /// Of `Syns`: answered with a SYN cookie.
    Cookies,
    /// Of `Syns`, dropped: the accept queue was full.
    ListenQFullAtSyn,
    /// Of `Syns`, dropped: the SYN queue was full, and cookies are off.
    SynQFullDropped,
    /// Of `Cookies`: the SYN queue was full.
    SynQFullCookie,
    /// Of `Syns`, dropped: less than a quarter of `tcp_max_syn_backlog` was left, and cookies are
    /// off.
    SynQ34Full,
    /// Of `Syns`, dropped for another reason: no memory, no route, a security module.
    SynsDroppedOtherwise,
    /// Of `Syns`: an earlier one was dropped, or answered with a cookie. As far as the last 32,768
    /// of those are remembered.
    SynsRepeated,
    /// Beside `Syns`: repeated in a handshake whose request socket is there.
    SynsOfRequests,
    /// Segments that would have ended a handshake, dropped: the accept queue was full. One client
    /// may send several.
    ListenQOverflow,
    /// Of `ListenQOverflow`: without data and FIN, which a client sends once (`[Shu05]` table 4.1).
    ListenQOverflowAcks,
    /// The same, dropped for another reason.
    EndsDroppedOtherwise,
    /// Connections that came into the accept queue.
    Enqueued,
    /// Connections that accept(2) took out of it.
    Accepted,
    /// Of `Accepted`: came into the queue before it was watched, or were forgotten.
    SojournUnknown,
}

impl Counter {
    /// Each once.
    pub const ALL: [Self; 16] = [
        Self::Syns,
        Self::Answered,
        Self::Cookies,
        Self::ListenQFullAtSyn,
        Self::SynQFullDropped,
        Self::SynQFullCookie,
        Self::SynQ34Full,
        Self::SynsDroppedOtherwise,
        Self::SynsRepeated,
        Self::SynsOfRequests,
        Self::ListenQOverflow,
        Self::ListenQOverflowAcks,
        Self::EndsDroppedOtherwise,
        Self::Enqueued,
        Self::Accepted,
        Self::SojournUnknown,
    ];

    /// Why clients were not served at once: with the paper's names, `synq_full` in its two forms.
    pub const CAUSES: [Self; 7] = [
        Self::ListenQFullAtSyn,
        Self::ListenQOverflow,
        Self::SynQ34Full,
        Self::SynQFullDropped,
        Self::SynQFullCookie,
        Self::SynsDroppedOtherwise,
        Self::EndsDroppedOtherwise,
    ];

    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syns => "syns",
            Self::Answered => "answered",
            Self::Cookies => "cookies",
            Self::ListenQFullAtSyn => "listenq_full_at_syn",
            Self::SynQFullDropped => "synq_full_dropped",
            Self::SynQFullCookie => "synq_full_cookie",
            Self::SynQ34Full => "synq_3_4_full",
            Self::SynsDroppedOtherwise => "syns_dropped_otherwise",
            Self::SynsRepeated => "syns_repeated",
            Self::SynsOfRequests => "syns_of_requests",
            Self::ListenQOverflow => "listenq_overflow",
            Self::ListenQOverflowAcks => "listenq_overflow_acks",
            Self::EndsDroppedOtherwise => "ends_dropped_otherwise",
            Self::Enqueued => "enqueued",
            Self::Accepted => "accepted",
            Self::SojournUnknown => "sojourn_unknown",
        }
    }

    /// As a person reads it: the paper's name, where it has one.
    pub fn title(self) -> &'static str {
        match self {
            Self::ListenQFullAtSyn => "ListenQFullAtSyn",
            Self::ListenQOverflow => "ListenQOverflow",
            Self::SynQ34Full => "SynQ3/4Full",
            Self::SynQFullDropped => "SynQFull",
            Self::SynQFullCookie => "SynQFull(cookie)",
            Self::SynsDroppedOtherwise => "SYN-other",
            Self::EndsDroppedOtherwise => "ACK-other",
            other => other.name(),
        }
    }

    /// What it counts, in a phrase.
    pub fn help(self) -> &'static str {
        match self {
            Self::Syns => "SYNs for a new handshake",
            Self::Answered => "of syns: answered with SYN/ACK",
            Self::Cookies => "of syns: answered with a SYN cookie",
            Self::ListenQFullAtSyn => "SYNs dropped: the accept queue was full",
            Self::SynQFullDropped => "SYNs dropped: the SYN queue was full",
            Self::SynQFullCookie => "of cookies: the SYN queue was full",
            Self::SynQ34Full => "SYNs dropped: tcp_max_syn_backlog was three quarters full",
            Self::SynsDroppedOtherwise => "SYNs dropped: no memory, no route, a security module",
            Self::SynsRepeated => "of syns: after one that was dropped or got a cookie",
            Self::SynsOfRequests => "SYNs repeated in a handshake under way",
            Self::ListenQOverflow => "ends of handshakes dropped: the accept queue was full",
            Self::ListenQOverflowAcks => "of these: without data and FIN, once a client",
            Self::EndsDroppedOtherwise => "ends of handshakes dropped for another reason",
            Self::Enqueued => "connections that came into the accept queue",
            Self::Accepted => "connections that accept(2) took",
            Self::SojournUnknown => "of accepted: it is not known how long they waited",
        }
    }

    fn of(self, raw: &Raw) -> u64 {
        match self {
            Self::Syns => raw.syns,
            Self::Answered => raw.answered,
            Self::Cookies => raw.cookies,
            Self::ListenQFullAtSyn => raw.listenq_full_at_syn,
            Self::SynQFullDropped => raw.synq_full_dropped,
            Self::SynQFullCookie => raw.synq_full_cookie,
            Self::SynQ34Full => raw.synq_3_4_full,
            Self::SynsDroppedOtherwise => raw.syns_dropped_otherwise,
            Self::SynsRepeated => raw.syns_repeated,
            Self::SynsOfRequests => raw.syns_of_requests,
            Self::ListenQOverflow => raw.listenq_overflow,
            Self::ListenQOverflowAcks => raw.listenq_overflow_acks,
            Self::EndsDroppedOtherwise => raw.ends_dropped_otherwise,
            Self::Enqueued => raw.enqueued,
            Self::Accepted => raw.accepted,
            Self::SojournUnknown => raw.sojourn_unknown,
        }
    }

    fn hooks(self) -> &'static [Hook] {
        match self {
            Self::SynsOfRequests => &[Hook::Request],
            Self::ListenQOverflow | Self::ListenQOverflowAcks | Self::EndsDroppedOtherwise => {
                &[Hook::EndV4, Hook::EndV6]
            }
            Self::Enqueued => &[Hook::Enqueue],
            Self::Accepted => &[Hook::Accept],
            Self::SojournUnknown => &[Hook::Enqueue, Hook::Accept],
            _ => &[Hook::Syn],
        }
    }
}

/// The counts of one listener, or of several together.
#[derive(Debug, Clone)]
pub struct Counters {
    raw: Raw,
    /// That counted at all of them.
    hooks: BTreeSet<Hook>,
}

impl Counters {
    /// Of a listener that nothing has come to, watched by these hooks.
    pub(crate) fn none(hooks: &BTreeSet<Hook>) -> Self {
        Self::new(Raw::default(), hooks, true)
    }

    /// An IPv4 listener has no use for [`Hook::EndV6`].
    pub(crate) fn new(raw: Raw, hooks: &BTreeSet<Hook>, is_ipv6: bool) -> Self {
        let mut hooks = hooks.clone();
        if !is_ipv6 {
            hooks.insert(Hook::EndV6);
        }
        Self { raw, hooks }
    }

    /// One count; `None` if this kernel lacks the hook for it.
    pub fn get(&self, counter: Counter) -> Option<u64> {
        self.has(counter.hooks()).then(|| counter.of(&self.raw))
    }

    /// Every SYN that came, new or repeated in a handshake.
    pub fn all_syns(&self) -> Option<u64> {
        Some(self.get(Counter::Syns)? + self.get(Counter::SynsOfRequests)?)
    }

    /// Every SYN that was a repetition.
    pub fn all_repeated(&self) -> Option<u64> {
        Some(self.get(Counter::SynsRepeated)? + self.get(Counter::SynsOfRequests)?)
    }

    /// Lengths of the accept queue that connections met as they came into it, in connections.
    pub fn lengths(&self) -> Option<Histogram> {
        self.has(&[Hook::Enqueue]).then_some(Histogram(self.raw.lengths))
    }

    /// Times in the accept queue until accept(2), us; of those that were accepted, without
    /// [`Counter::SojournUnknown`].
    pub fn sojourns_us(&self) -> Option<Histogram> {
        self.has(&[Hook::Enqueue, Hook::Accept]).then_some(Histogram(self.raw.sojourns_us))
    }

    /// Sum of the same, us.
    pub fn sojourn_sum_us(&self) -> Option<u64> {
        self.has(&[Hook::Enqueue, Hook::Accept]).then_some(self.raw.sojourn_sum_us)
    }

    /// Mean of the same, us; `None` of nothing, too.
    pub fn mean_sojourn_us(&self) -> Option<f64> {
        let count = self.sojourns_us()?.count();
        (count > 0).then(|| self.raw.sojourn_sum_us as f64 / count as f64)
    }

    /// What came after `before`, which is an earlier reading of the same listener.
    pub fn since(&self, before: &Self) -> Self {
        Self { raw: self.raw.zip(&before.raw, u64::saturating_sub), hooks: self.hooks.clone() }
    }

    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        let hooks = self.hooks.intersection(&other.hooks).copied().collect();
        Self { raw: self.raw.zip(&other.raw, |one, other| one + other), hooks }
    }

    fn has(&self, hooks: &[Hook]) -> bool {
        hooks.iter().all(|hook| self.hooks.contains(hook))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_hook_counts_is_unknown_and_not_zero() {
        let all = BTreeSet::from(Hook::ALL);
        let without = |hook: Hook| {
            let hooks: BTreeSet<Hook> = all.iter().copied().filter(|&other| other != hook).collect();
            Counters::new(Raw::default(), &hooks, true)
        };
        let none = Counters::none(&all);
        assert!(Counter::ALL.iter().all(|&counter| none.get(counter) == Some(0)));
        assert_eq!(without(Hook::Syn).get(Counter::ListenQFullAtSyn), None);
        assert_eq!(without(Hook::Syn).get(Counter::ListenQOverflow), Some(0));
        assert_eq!(without(Hook::Request).all_syns(), None);
        assert_eq!(without(Hook::Enqueue).sojourns_us(), None);
        assert_eq!(without(Hook::Accept).lengths(), Some(Histogram([0; verdict::BUCKETS])));
        assert_eq!(without(Hook::EndV6).get(Counter::ListenQOverflow), None, "it has an IPv6 address");
        assert_eq!(none.plus(&without(Hook::Syn)).get(Counter::Syns), None, "a sum needs all its parts");
    }

    #[test]
    fn difference_and_sum_are_of_every_counter() {
        let hooks = BTreeSet::from(Hook::ALL);
        let with = |syns: u64, sojourns: u64| {
            let mut raw = Raw { syns, ..Raw::default() };
            raw.sojourns_us[31] = sojourns;
            Counters::new(raw, &hooks, false)
        };
        let later = with(9, 5).since(&with(4, 3));
        assert_eq!(
            (later.get(Counter::Syns), later.sojourns_us().map(|all| all.count())),
            (Some(5), Some(2))
        );
        assert_eq!(later.plus(&later).get(Counter::Syns), Some(10));
    }
}
