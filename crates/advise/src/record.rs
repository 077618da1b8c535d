//! What was seen of a listener and its server, look by look.

use std::time::Duration;

use kernel::ListenerStats;
use pacer::{SILENT, Service, WAITING};
use units::Nanos;
use verdict::{BUCKETS, Histogram, ListenerLoad};

/// So many answers are no chance.
const QUICKEST: u64 = 16;

/// What a dry run of the guard has counted at a moment.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// By the clock of `service`.
    pub at: Nanos,
    /// The listener's queues now.
    pub load: ListenerLoad,
    /// The listener's counters.
    pub stats: ListenerStats,
    /// Connections that wait for the server, and sums.
    pub service: Service,
}

/// All that was seen. A look adds some 100 bytes.
#[derive(Debug, Clone, Default)]
pub struct Record {
    last: Option<Look>,
    pub(crate) bins: Vec<Bin>,
    pub(crate) accept_limit: u32,
    responses_us: [u64; BUCKETS],
    handshakes_us: [u64; BUCKETS],
}

/// What happened between two looks.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bin {
    pub(crate) span: Nanos,
    /// SYNs of new clients, and all that the kernel did not know.
    pub(crate) first: u64,
    pub(crate) syns: u64,
    /// Of `syns`, those that found the accept queue full. The kernel drops them.
    pub(crate) syns_full: u64,
    pub(crate) answered: u64,
    /// Connections that ended without an answer.
    pub(crate) ended: u64,
    /// Time in which no connection waited.
    pub(crate) idle: Nanos,
    /// Answers with a known response time, and the sum of these times.
    pub(crate) timed: u64,
    pub(crate) response: Nanos,
    /// At the end: connections that wait for an answer, those of them in the accept queue, and
    /// handshakes in the SYN queue.
    pub(crate) waiting: u32,
    pub(crate) accept_qlen: u32,
    pub(crate) syn_qlen: u32,
}

impl Record {
    /// Goes on by what is there now. The first look only begins the record.
    pub fn add(&mut self, look: Look) {
        self.accept_limit = look.load.accept_limit;
        let Some(last) = self.last.replace(look) else { return };
        self.bins.push(between(&last, &look));
        grow(&mut self.responses_us, &last.service.responses_us, &look.service.responses_us);
        grow(&mut self.handshakes_us, &last.service.handshakes_us, &look.service.handshakes_us);
    }

    /// How long was looked.
    pub fn span(&self) -> Duration {
        Duration::from_nanos(self.sum(|bin| bin.span.0))
    }

    #[cfg(test)]
    pub(crate) fn of(bins: Vec<Bin>) -> Self {
        Self { bins, accept_limit: 511, ..Self::default() }
    }

    pub(crate) fn sum(&self, of: impl Fn(&Bin) -> u64) -> u64 {
        self.bins.iter().map(of).sum()
    }

    /// Share of the answers that took no longer than this many microseconds, a power of two.
    pub(crate) fn answered_within(&self, us: u64) -> f64 {
        let counts = self.responses_us.iter().enumerate();
        let within: u64 = counts.filter(|(bucket, _)| 1 << bucket <= us).map(|(_, count)| count).sum();
        within as f64 / self.responses_us.iter().sum::<u64>().max(1) as f64
    }

    /// How long the quickest answers took, within a factor of 1.5.
    pub(crate) fn quickest(&self) -> Nanos {
        let mut left = QUICKEST;
        let is_last = |count: &u64| {
            left = left.saturating_sub(*count);
            left == 0
        };
        let bucket = self.responses_us.iter().position(is_last);
        bucket.map_or(Nanos::MAX, |bucket| Nanos(750 << bucket))
    }

    /// The usual handshake, within a factor of 1.5.
    pub(crate) fn round_trip(&self) -> Nanos {
        Nanos::from_micros(Histogram(self.handshakes_us).below(0.5).unwrap_or(0) * 3 / 4)
    }
}

impl Bin {
    /// With what was counted after it.
    pub(crate) fn with(self, later: &Self) -> Self {
        Self {
            span: self.span + later.span,
            first: self.first + later.first,
            syns: self.syns + later.syns,
            syns_full: self.syns_full + later.syns_full,
            answered: self.answered + later.answered,
            ended: self.ended + later.ended,
            idle: self.idle + later.idle,
            timed: self.timed + later.timed,
            response: self.response + later.response,
            ..*later
        }
    }

    /// Connections that the server has accepted, and not answered.
    pub(crate) fn inside(&self) -> u32 {
        self.waiting.saturating_sub(self.accept_qlen)
    }

    pub(crate) fn response_s(&self) -> Option<f64> {
        (self.timed > 0).then(|| self.response.as_secs_f64() / self.timed as f64)
    }
}

fn between(last: &Look, now: &Look) -> Bin {
    let stats = |of: fn(&ListenerStats) -> u64| of(&now.stats).saturating_sub(of(&last.stats));
    let service = |of: fn(&Service) -> u64| of(&now.service).saturating_sub(of(&last.service));
    let span = now.at.since(last.at);
    Bin {
        span,
        first: stats(|stats| stats.first),
        syns: stats(|stats| stats.seen),
        syns_full: stats(|stats| stats.accept_full),
        answered: service(|service| service.answered),
        ended: service(|service| service.ended),
        idle: Nanos(idle_ns(now).saturating_sub(idle_ns(last)).min(span.0)),
        timed: service(|service| service.answered_in_turn),
        response: Nanos(service(|service| service.response_ns)),
        waiting: now.service.in_stage[SILENT] + now.service.in_stage[WAITING],
        accept_qlen: now.load.accept_qlen,
        syn_qlen: now.load.syn_qlen,
    }
}

/// With the idle time that goes on at that moment.
fn idle_ns(look: &Look) -> u64 {
    match look.service.idle_since_ns {
        0 => look.service.idle_ns,
        since => look.service.idle_ns + look.at.0.saturating_sub(since),
    }
}

fn grow(sum: &mut [u64; BUCKETS], before: &[u64; BUCKETS], now: &[u64; BUCKETS]) {
    for (sum, (now, before)) in sum.iter_mut().zip(now.iter().zip(before)) {
        *sum += now.saturating_sub(*before);
    }
}
