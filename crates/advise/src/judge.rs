//! Yes, no or not yet, and why.

use schemars::JsonSchema;
use serde::Serialize;
use units::Nanos;
use verdict::Policy;

use crate::SOON;
use crate::record::{Bin, Record};
use crate::replay::{Fate, replay};
use crate::server::{Server, together};

/// Clients and answers without which nothing is said.
pub(crate) const FEWEST: u64 = 100;
/// A server that was busy for less of its busiest second was not tried.
pub(crate) const LEAST_BUSY: f64 = 0.05;
/// The guard helps if it refuses this share of the clients at least, and this share more of them
/// has an answer soon.
const FEWEST_REFUSED: f64 = 0.005;
const HELPS: f64 = 0.01;
/// A queue stood if an answer took this many times as long as in the replay.
const SLOWER: f64 = 3.0;

/// Would the guard help?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// More clients would have an answer within a second.
    Yes,
    /// It would refuse as good as nobody, or as many as it helps.
    No,
    /// Too little was seen, or a server at its limit.
    NotYet,
}

/// The answer, and all that it stands on. Its `Display` is one sentence.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    /// Would the guard help?
    pub answer: Answer,
    /// For how long was looked, seconds.
    pub seconds: f64,
    /// What came, and what became of it.
    pub seen: Seen,
    /// Where connections waited.
    pub waiting: Waiting,
    /// What the server can do.
    pub server: Capacity,
    /// What becomes of the clients without a guard, as measured.
    pub without: Outlook,
    /// And with one, as predicted. The same, if it refuses as good as nobody.
    pub with: Outlook,
}

/// Counts of the time in which was looked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Seen {
    /// First SYNs of connections.
    pub clients: u64,
    /// All SYNs, with those that were sent again.
    pub syns: u64,
    /// Of `syns`: found the accept queue full, and were dropped by the kernel.
    pub syns_dropped: u64,
    /// Responses that began.
    pub answered: u64,
    /// Connections that ended without a response.
    pub ended: u64,
}

/// Connections, in the mean over time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Waiting {
    /// For the end of their handshake.
    pub syn_queue: f64,
    /// For accept(2).
    pub accept_queue: f64,
    /// The most that were seen there.
    pub accept_queue_most: u32,
    /// How many it takes.
    pub accept_queue_limit: u32,
    /// For a response, after accept(2).
    pub inside: f64,
}

/// What the server can do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Capacity {
    /// Answers in a second while a queue stood before it; `None` if none ever stood.
    pub answers_per_s: Option<f64>,
    /// How long its answers took when the fewest waited, ms.
    pub answer_ms: f64,
    /// In its busiest second: the share of the time in which a connection waited, 0 to 1.
    pub busiest: f64,
}

/// What becomes of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Outlook {
    /// Clients that the guard refuses.
    pub refused: u64,
    /// Of all clients, the share that has an answer within a second (2^20 us) of its first SYN,
    /// 0 to 1.
    pub soon: f64,
    /// From the handshake's end to the response, in the mean, ms; with a guard from the first SYN.
    pub wait_ms: f64,
}

impl Advice {
    /// By what was seen, for a guard with this policy.
    pub fn new(record: &Record, policy: Policy) -> Self {
        let of = |of: fn(&Bin) -> u64| record.sum(of);
        let seen = Seen {
            clients: of(|bin| bin.first),
            syns: of(|bin| bin.syns),
            syns_dropped: of(|bin| bin.syns_full),
            answered: of(|bin| bin.answered),
            ended: of(|bin| bin.ended),
        };
        let server = Server::measured(record);
        let fate = replay(record, &server, policy);
        let without = without(record, &seen);
        let with = with(&fate, seen.clients);
        let busiest = busiest(&record.bins);
        let server =
            Capacity { answers_per_s: server.per_s, answer_ms: server.answer.as_millis_f64(), busiest };
        let seconds = record.span().as_secs_f64();
        let waiting = waiting(record);
        let mut advice = Self { answer: Answer::NotYet, seconds, seen, waiting, server, without, with };
        if seen.clients >= FEWEST && seen.answered >= FEWEST && busiest >= LEAST_BUSY {
            advice.answer = match advice.refuses() {
                true if with.soon > without.soon + HELPS => Answer::Yes,
                false if advice.is_at_limit() => Answer::NotYet,
                _ => Answer::No,
            };
        }
        if !advice.refuses() {
            advice.with = Outlook { refused: with.refused, ..without };
        }
        advice
    }

    /// A replay that refuses nobody is stock Linux once more. But here it does not show what was
    /// seen: the server is a little faster in it.
    fn is_at_limit(&self) -> bool {
        let dropped = self.seen.syns_dropped as f64 / self.seen.clients as f64;
        let stood = self.server.answers_per_s.is_some() && self.without.wait_ms > SLOWER * self.with.wait_ms;
        dropped >= FEWEST_REFUSED || stood
    }

    /// Whether it is no because more clients are answered in time where nobody is refused: a policy
    /// that waits for longer may be better.
    pub fn is_for_short_crowds(&self) -> bool {
        self.answer == Answer::No && self.refuses() && self.without.soon > self.with.soon
    }

    pub(crate) fn refuses(&self) -> bool {
        self.refused_share() >= FEWEST_REFUSED
    }

    pub(crate) fn refused_share(&self) -> f64 {
        self.with.refused as f64 / self.seen.clients.max(1) as f64
    }
}

/// As measured. A client whose first SYN is dropped waits for longer than [`SOON`] in any case. Of
/// the SYNs that found room some were sent again; so many of the answers were late.
fn without(record: &Record, seen: &Seen) -> Outlook {
    let entered = |bin: &Bin| bin.syns.saturating_sub(bin.syns_full);
    let first_entered = |bin: &Bin| bin.first as f64 * entered(bin) as f64 / bin.syns.max(1) as f64;
    let firsts: f64 = record.bins.iter().map(first_entered).sum();
    let at_once = firsts / record.sum(entered).max(1) as f64;
    let soon = seen.answered as f64 * record.answered_within(SOON.as_micros()) * at_once;
    let wait_s = record.sum(|bin| bin.response.0) as f64 / record.sum(|bin| bin.timed).max(1) as f64 / 1e9;
    Outlook { refused: 0, soon: (soon / seen.clients.max(1) as f64).min(1.0), wait_ms: 1e3 * wait_s }
}

fn with(fate: &Fate, clients: u64) -> Outlook {
    Outlook {
        refused: fate.refused,
        soon: fate.soon as f64 / clients.max(1) as f64,
        wait_ms: fate.waited.as_millis_f64() / fate.answered.max(1) as f64,
    }
}

fn waiting(record: &Record) -> Waiting {
    let mean = |of: fn(&Bin) -> u32| {
        let sum: u64 = record.sum(|bin| of(bin).into());
        sum as f64 / record.bins.len().max(1) as f64
    };
    Waiting {
        syn_queue: mean(|bin| bin.syn_qlen),
        accept_queue: mean(|bin| bin.accept_qlen),
        accept_queue_most: record.bins.iter().map(|bin| bin.accept_qlen).max().unwrap_or(0),
        accept_queue_limit: record.accept_limit,
        inside: mean(Bin::inside),
    }
}

fn busiest(bins: &[Bin]) -> f64 {
    let seconds = together(bins, |sum| sum.span >= Nanos::from_secs(1));
    let busy = |sum: &Bin| 1.0 - sum.idle.as_secs_f64() / sum.span.as_secs_f64();
    seconds.iter().map(busy).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 clients come in 50 ms. At the end there is a queue, from which it answers 1000/s.
    fn advice(syns_full: u64, wait: Nanos) -> Advice {
        let bin = |answered: u64, wait: Nanos, waiting: u32| Bin {
            span: Nanos::from_millis(50),
            first: 40,
            syns: 40,
            answered,
            timed: answered,
            response: Nanos(answered * wait.0),
            waiting,
            accept_qlen: waiting,
            ..Bin::default()
        };
        let mut bins = vec![bin(40, Nanos::from_millis(1), 0); 300];
        bins.extend([bin(50, wait, 300); 40]);
        bins[320].syns_full = syns_full;
        Advice::new(&Record::of(bins), Policy::UNSERVED)
    }

    #[test]
    fn server_at_its_limit_is_no_reason_to_say_no_where_nobody_would_be_refused() {
        let (short, long) = (Nanos::from_millis(1), Nanos::from_millis(300));
        for (syns_full, wait, answer) in
            [(0, short, Answer::No), (683, short, Answer::NotYet), (0, long, Answer::NotYet)]
        {
            let advice = advice(syns_full, wait);
            assert_eq!((advice.answer, advice.with), (answer, advice.without), "{advice}");
        }
    }
}
