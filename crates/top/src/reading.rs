//! What is known of a listener at one moment, whoever says so, and what came between two moments.

use std::borrow::Cow;

use watch::{Counter, Counters, Entry};

use crate::line::{Sample, Service};
use crate::reason::Reason;

/// A listener at one moment; counts are since something began, so only differences say much.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Reading {
    /// By the clock of whoever counted, seconds.
    pub at_s: f64,
    /// `None` when nothing listens.
    pub accept: Option<Queue>,
    pub syn: Option<Queue>,
    /// Whether a guard decides here.
    pub is_guarded: bool,
    /// Whether clients come of which the guard sees no SYN.
    pub is_blind: bool,
    pub is_learning: bool,
    /// Connections that wait for the server, or where that is not known, for accept(2).
    pub waiting: Option<Queue>,
    /// Of a guarded listener clients whose answer began, of another those that accept(2) took.
    pub answered: Option<u64>,
    /// New SYNs.
    pub offered: Option<u64>,
    /// Clients that were turned away, by the guard or else by the kernel.
    pub refused: u64,
    /// Frames that the guard would have acted on, had its process run.
    pub unleased: u64,
    /// Of a guarded listener from request to answer, of another from the handshake to accept(2).
    pub times: Option<Times>,
    /// All that is counted, by name.
    pub counts: Vec<(Cow<'static, str>, u64)>,
    pub service: Option<Service>,
}

/// Connections, of how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Queue {
    pub length: u64,
    pub limit: Option<u64>,
}

/// How long clients waited.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Times {
    pub count: u64,
    pub sum_s: f64,
    /// How many took up to a bound in seconds; longer ones are in `count` alone.
    pub below: Vec<(f64, u64)>,
}

/// What came between two readings; rates are per second.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Second {
    pub span_s: f64,
    pub answered: Option<f64>,
    pub offered: Option<f64>,
    pub refused: f64,
    /// Of the offered, 0 to 1.
    pub refused_share: Option<f64>,
    pub times: Option<Times>,
    pub is_unleased: bool,
    /// Why most were refused.
    pub reason: Option<Reason>,
}

impl Reading {
    /// As a guard says.
    pub fn of_guard(sample: Sample) -> Self {
        let Sample { head, accept_qlen, accept_limit, syn_qlen, syn_limit, service, drops, counters, .. } =
            sample;
        let queue = |length: Option<u64>, limit| length.map(|length| Queue { length, limit });
        let accept = queue(accept_qlen, accept_limit);
        let base = Self {
            at_s: head.elapsed_s,
            accept,
            syn: queue(syn_qlen, syn_limit),
            waiting: accept,
            ..Self::default()
        };
        if let Some(counters) = counters {
            let count = |(name, value): (String, serde_json::Value)| Some((name.into(), value.as_u64()?));
            let counts = counters.into_iter().filter_map(count).collect();
            return base.with_kernel(counts, drops);
        }
        let groups =
            [("syns", sample.syns), ("acks", sample.acks), ("fins", sample.fins), ("passed", sample.passed)];
        let in_group = |(group, counts): (&'static str, std::collections::BTreeMap<String, u64>)| {
            counts.into_iter().map(move |(name, count)| (Cow::from(format!("{group}.{name}")), count))
        };
        let counts: Vec<_> = groups.into_iter().flat_map(in_group).collect();
        let get = |name| get(&counts, name);
        let waits = service.as_ref().and_then(|of| queue(of.counted, of.limit));
        Self {
            is_guarded: true,
            is_blind: sample.blind,
            is_learning: service.as_ref().is_some_and(|service| service.learning),
            waiting: waits.or(accept),
            answered: service.as_ref().map_or_else(|| get("syns.admitted"), |service| service.answered),
            offered: get("syns.seen"),
            refused: telemetry::REFUSALS.into_iter().filter_map(get).sum(),
            unleased: get("passed.unleased").unwrap_or(0),
            times: service.as_ref().and_then(Times::of_service),
            counts,
            service,
            ..base
        }
    }

    /// As the kernel says, at `at_s`.
    pub fn of_kernel(entry: &Entry, at_s: f64) -> Self {
        let queues = entry.listener.queues;
        let limit = queues.and_then(|queues| queues.accept_limit).map(u64::from);
        let queue = |length: Option<u32>| length.map(|length| Queue { length: length.into(), limit });
        let accept = queue(queues.map(|queues| queues.accept_qlen));
        let base = Self {
            at_s,
            accept,
            syn: queue(queues.and_then(|queues| queues.syn_qlen)),
            waiting: accept,
            times: entry.counters.as_ref().and_then(Times::of_kernel),
            ..Self::default()
        };
        let counts = Counter::ALL
            .into_iter()
            .filter_map(|counter| Some((counter.name().into(), entry.counters.as_ref()?.get(counter)?)));
        base.with_kernel(counts.collect(), entry.listener.drops.map(u64::from))
    }

    fn with_kernel(self, counts: Vec<(Cow<'static, str>, u64)>, drops: Option<u64>) -> Self {
        let get = |counter: Counter| get(&counts, counter.name());
        // One client's handshake may end in several segments.
        let refusals = [
            Counter::ListenQFullAtSyn,
            Counter::SynQFullDropped,
            Counter::SynQ34Full,
            Counter::SynsDroppedOtherwise,
            Counter::ListenQOverflowAcks,
        ];
        let refused = refusals.into_iter().filter_map(get).reduce(|one, other| one + other);
        Self {
            answered: get(Counter::Accepted),
            offered: get(Counter::Syns),
            refused: refused.or(drops).unwrap_or(0),
            counts,
            ..self
        }
    }

    /// Whether as many wait as may: the accept queue holds one more than its limit.
    pub fn is_full(&self) -> bool {
        let above = |queue: Option<Queue>, more: u64| {
            queue.is_some_and(|queue| queue.limit.is_some_and(|limit| queue.length >= limit + more))
        };
        let is_followed = self.service.as_ref().is_some_and(|service| service.counted.is_some());
        above(self.waiting, u64::from(!is_followed))
    }

    /// A count by its name.
    pub fn get(&self, name: &str) -> Option<u64> {
        get(&self.counts, name)
    }
}

fn get(counts: &[(Cow<'static, str>, u64)], name: &str) -> Option<u64> {
    counts.iter().find(|(known, _)| known == name).map(|(_, count)| *count)
}

impl Times {
    fn of_service(service: &Service) -> Option<Self> {
        Some(Self {
            count: service.answered_in_turn?,
            sum_s: service.response_time_s?,
            below: service.response_buckets.iter().map(|bucket| (bucket.le_s, bucket.count)).collect(),
        })
    }

    fn of_kernel(counters: &Counters) -> Option<Self> {
        let sojourns = counters.sojourns_us()?;
        let mut seen = 0;
        let below = |(bucket, count): (usize, &u64)| {
            seen += count;
            ((1_u64 << bucket) as f64 / 1e6, seen)
        };
        let used = sojourns.0.len() - 1;
        let below = sojourns.0[..used].iter().enumerate().map(below).collect();
        Some(Self { count: sojourns.count(), sum_s: counters.sojourn_sum_us()? as f64 / 1e6, below })
    }

    /// What came after `before`; all of it if that is of other buckets.
    pub fn since(&self, before: &Self) -> Self {
        let is_same = self.below.len() == before.below.len();
        let pairs = self.below.iter().zip(before.below.iter().filter(|_| is_same));
        let below = match is_same {
            true => pairs.map(|((bound, now), (_, before))| (*bound, now.saturating_sub(*before))).collect(),
            false => self.below.clone(),
        };
        Self {
            count: self.count.saturating_sub(before.count),
            sum_s: (self.sum_s - before.sum_s).max(0.0),
            below,
        }
    }

    /// `None` of nothing.
    pub fn mean_s(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_s / self.count as f64)
    }

    /// A bound that `share` of them are below, as `<66ms`: it errs to the large side, by less than
    /// a factor of two. `None` of nothing, and where no buckets are known.
    pub fn quantile(&self, share: f64) -> Option<String> {
        let last = self.below.last().filter(|_| self.count > 0)?;
        let wanted = (self.count as f64 * share).ceil() as u64;
        Some(match self.below.iter().find(|(_, count)| *count >= wanted) {
            Some((bound_s, _)) => format!("<{}", crate::words::seconds(*bound_s)),
            None => format!(">{}", crate::words::seconds(last.0)),
        })
    }
}

impl Second {
    /// Rates over the time between them, which is longer than a second when a line came late.
    pub fn between(before: &Reading, now: &Reading) -> Self {
        let span_s = (now.at_s - before.at_s).max(1e-3);
        let grown = |count: fn(&Reading) -> Option<u64>| Some(count(now)?.saturating_sub(count(before)?));
        let rate = |count| Some(grown(count)? as f64 / span_s);
        let offered = grown(|reading| reading.offered);
        let refused = now.refused.saturating_sub(before.refused);
        let times = now.times.as_ref().zip(before.times.as_ref());
        Self {
            span_s,
            answered: rate(|reading| reading.answered),
            offered: rate(|reading| reading.offered),
            refused: refused as f64 / span_s,
            // An end of a handshake may be refused whose SYN came a second before.
            refused_share: offered
                .map(|offered| if refused == 0 { 0.0 } else { refused as f64 / offered.max(refused) as f64 }),
            times: times.map(|(now, before)| now.since(before)),
            is_unleased: now.unleased > before.unleased,
            reason: if refused > 0 { Some(Reason::between(before, now)) } else { None },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A guard's line, with what a test wants to be other.
    pub(crate) fn line(at_s: f64, change: impl FnOnce(&mut serde_json::Value)) -> serde_json::Value {
        let bucket = |(index, count): (i32, u64)| serde_json::json!({ "le_s": 1.6e-5 * 2_f64.powi(index), "count": count });
        let mut line = serde_json::json!({
            "event": "sample", "elapsed_s": at_s, "listen": "192.0.2.1:443",
            "policy": "abort+rst-syn+unserved", "reserved_slots": 0, "dry_run": false,
            "accept_qlen": 3, "accept_limit": 128, "syn_qlen": 1, "syn_limit": 128,
            "service": {
                "silent": 2, "waiting": 5, "counted": 4, "limit": 57, "learning": false,
                "follows_one_in": 1, "established": 1000, "answered": 1000, "answered_in_turn": 1000,
                "ended": 3, "idle_time_s": 1.0, "response_time_s": 10.0, "response_floor_s": 0.004,
                "handshake_median_s": 0.001, "completed_share": 1.0,
                "response_buckets": (0..23).map(|index| bucket((index, if index < 9 { 0 } else { 1000 }))).collect::<Vec<_>>(),
            },
            "syns": { "seen": 2000, "admitted": 1000, "dropped": 0, "reset": 1000, "server_full": 1000 },
            "acks": { "reset": 0 }, "fins": { "seen": 0 }, "passed": { "frames": 9000, "unleased": 0 },
        });
        change(&mut line);
        line
    }

    pub(crate) fn reading(line: serde_json::Value) -> Reading {
        Reading::of_guard(serde_json::from_value(line).expect("a sample"))
    }

    #[test]
    fn second_between_two_lines_has_rates_share_mean_and_bound() {
        let before = reading(line(1.0, |_| {}));
        let now = reading(line(3.0, |line| {
            line["service"]["answered"] = 3000.into();
            line["service"]["answered_in_turn"] = 3000.into();
            line["service"]["response_time_s"] = 30.0.into();
            for index in 9..23 {
                // 1980 of them within 8 ms, the others within 16 ms.
                let count = if index == 9 { 1000 + 1980 } else { 3000 };
                line["service"]["response_buckets"][index]["count"] = count.into();
            }
            line["syns"]["seen"] = 6000.into();
            line["syns"]["reset"] = 2000.into();
            line["syns"]["server_full"] = 2000.into();
        }));
        let second = Second::between(&before, &now);
        assert_eq!((second.answered, second.offered, second.refused), (Some(1000.0), Some(2000.0), 500.0));
        assert_eq!((second.refused_share, second.reason), (Some(0.25), Some(Reason::Limit)));
        let times = second.times.expect("times");
        assert_eq!(times.mean_s(), Some(0.01));
        assert_eq!(
            (times.quantile(0.5), times.quantile(0.99)),
            (Some("<8.2ms".into()), Some("<8.2ms".into()))
        );
        assert_eq!(times.quantile(0.999), Some("<16ms".into()));
    }

    #[test]
    fn time_beyond_the_last_bucket_is_above_its_bound() {
        let times = Times { count: 2, sum_s: 200.0, below: vec![(1.0, 1), (67.1, 1)] };
        assert_eq!(
            (times.quantile(0.5), times.quantile(0.99)),
            (Some("<1.00s".into()), Some(">67.1s".into()))
        );
        assert_eq!(Times::default().quantile(0.99), None);
    }

    #[test]
    fn guard_of_another_version_shows_what_it_says_and_no_more() {
        let old = reading(serde_json::json!({
            "event": "sample", "listen": "192.0.2.1:443", "elapsed_s": 1.0, "news": { "of": 2031 },
            "service": { "answered": 5, "counted": 2, "other": [] }, "syns": { "seen": 9 },
        }));
        assert_eq!((old.answered, old.offered), (Some(5), Some(9)));
        assert_eq!((old.accept, old.times.clone()), (None, None));
        assert_eq!(old.waiting, Some(Queue { length: 2, limit: None }));
        assert_eq!(Second::between(&old, &old).times, None);
    }

    #[test]
    fn whatever_turns_a_client_away_is_a_refusal() {
        let refused = |group: &str, name: &str| {
            let refused = |count: u64| reading(line(1.0, |line| line[group][name] = count.into())).refused;
            refused(7) - refused(0)
        };
        for name in telemetry::REFUSALS {
            let (group, name) = name.split_once('.').expect("a group");
            assert_eq!(refused(group, name), 7, "{group}.{name}");
        }
        assert_eq!(refused("syns", "admitted"), 0);
    }

    #[test]
    fn observed_listener_is_refused_by_the_kernel() {
        let observed = |drops: u64, overflows: u64| {
            reading(serde_json::json!({
                "event": "sample", "listen": "192.0.2.1:443", "elapsed_s": drops as f64, "drops": drops,
                "accept_qlen": 3, "accept_limit": 2,
                "counters": { "syns": 100 + drops, "accepted": 7, "listenq_overflow": 2 * overflows,
                              "listenq_overflow_acks": overflows, "sojourn_us_mean": null },
            }))
        };
        let (before, now) = (observed(0, 0), observed(1, 4));
        let second = Second::between(&before, &now);
        assert!(!now.is_guarded);
        assert_eq!((second.refused, second.refused_share), (4.0, Some(1.0)));
        assert_eq!(second.reason, Some(Reason::AcceptQueue));
    }
}
