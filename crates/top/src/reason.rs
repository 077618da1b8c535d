//! Why clients were turned away.

use watch::Counter;

use crate::reading::Reading;

/// Why most of those of a second were.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// As many waited for the server as may.
    Limit,
    AcceptQueue,
    SynQueue,
    /// The places left were kept for others.
    Reserved,
    /// More than may be reset in a second.
    Budget,
    /// The policy refuses by rate or by chance.
    Policy,
    /// The kernel: no memory, no route, a security module.
    Other,
}

impl Reason {
    pub const ALL: [Self; 7] = [
        Self::Limit,
        Self::AcceptQueue,
        Self::SynQueue,
        Self::Reserved,
        Self::Budget,
        Self::Policy,
        Self::Other,
    ];

    /// By the counter that grew most. One SYN may be in several: the first of these is the reason.
    pub fn between(before: &Reading, now: &Reading) -> Self {
        let grown = |names: &[&str]| -> u64 {
            let grown = |name: &&str| Some(now.get(name)?.saturating_sub(before.get(name)?));
            names.iter().filter_map(grown).sum()
        };
        let known = if now.is_guarded {
            [
                (Self::Budget, 2 * grown(&["syns.over_budget"])),
                (Self::Limit, grown(&["syns.server_full"])),
                (Self::AcceptQueue, grown(&["syns.accept_full", "acks.reset"])),
                (Self::SynQueue, grown(&["syns.syn_full"])),
                (Self::Reserved, grown(&["syns.late", "acks.dropped"])),
            ]
        } else {
            let of = |counters: &[Counter]| grown(&counters.iter().map(|of| of.name()).collect::<Vec<_>>());
            [
                (Self::AcceptQueue, of(&[Counter::ListenQFullAtSyn, Counter::ListenQOverflowAcks])),
                (Self::SynQueue, of(&[Counter::SynQFullDropped, Counter::SynQ34Full])),
                (Self::Other, of(&[Counter::SynsDroppedOtherwise])),
                (Self::Other, 0),
                (Self::Other, 0),
            ]
        };
        let most = known.into_iter().rev().max_by_key(|(_, grown)| *grown);
        let unknown = if now.is_guarded { Self::Policy } else { Self::Other };
        most.filter(|(_, grown)| *grown > 0).map_or(unknown, |(reason, _)| reason)
    }

    /// Six characters at most.
    pub fn short(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::AcceptQueue => "accept",
            Self::SynQueue => "SYN",
            Self::Reserved => "kept",
            Self::Budget => "budget",
            Self::Policy => "policy",
            Self::Other => "other",
        }
    }

    /// Seventeen at most.
    pub fn long(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::AcceptQueue => "accept queue full",
            Self::SynQueue => "SYN queue full",
            Self::Reserved => "reserved places",
            Self::Budget => "refusal budget",
            Self::Policy => "policy",
            Self::Other => "other",
        }
    }

    /// In a sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Limit => "as many waited for the server as may",
            Self::AcceptQueue => "the accept queue was full",
            Self::SynQueue => "the SYN queue was full",
            Self::Reserved => "the places left were kept for others",
            Self::Budget => "more than may be reset in a second, so dropped",
            Self::Policy => "the policy refuses by rate or by chance",
            Self::Other => "no memory, no route, or a security module",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::tests::{line, reading};

    #[test]
    fn reason_is_the_counter_that_grew_most() {
        for (grown, reason) in [
            (&[("syns", "server_full", 9)][..], Reason::Limit),
            (&[("syns", "server_full", 9), ("syns", "accept_full", 10)], Reason::AcceptQueue),
            (&[("syns", "server_full", 9), ("syns", "over_budget", 4)], Reason::Limit),
            (&[("syns", "server_full", 9), ("syns", "over_budget", 5)], Reason::Budget),
            (&[("acks", "reset", 2), ("syns", "syn_full", 1)], Reason::AcceptQueue),
            (&[("syns", "syn_full", 3)], Reason::SynQueue),
            (&[("syns", "accept_full", 3), ("syns", "syn_full", 3)], Reason::AcceptQueue),
            (&[("syns", "late", 1)], Reason::Reserved),
            (&[], Reason::Policy),
        ] {
            let with = |of: u64| {
                reading(line(1.0, |line| {
                    line["syns"]["server_full"] = 0.into();
                    for (group, name, count) in grown {
                        line[*group][*name] = (of * count).into();
                    }
                }))
            };
            assert_eq!(Reason::between(&with(0), &with(1)), reason, "{grown:?}");
        }
    }

    #[test]
    fn words_fit_their_columns() {
        assert!(Reason::ALL.iter().all(|reason| reason.short().len() <= 6 && reason.long().len() <= 17));
    }
}
