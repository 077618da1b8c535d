//! Several generators' summaries of one crowd, added exactly.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Cursor;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{BySize, CrowdSummary, GeneratorHealth, GroupCount, LatencySummary, Seconds, Statuses};

/// Histograms of microseconds in HdrHistogram's compressed encoding (V2), as base64; empty where
/// there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Histograms {
    /// Behind [`CrowdSummary::response_ms`].
    pub response_us: String,
    /// Behind [`CrowdSummary::user_ms`].
    pub user_us: String,
    /// Behind [`CrowdSummary::refusal_ms`].
    pub refusal_us: String,
    /// Behind [`CrowdSummary::first_byte_ms`].
    #[serde(default)]
    pub first_byte_us: String,
}

impl Histograms {
    /// Of response times, users' times, refusals and times to the first byte, microseconds.
    pub fn of(
        response: &Histogram<u64>,
        user: &Histogram<u64>,
        refusal: &Histogram<u64>,
        first_byte: &Histogram<u64>,
    ) -> Self {
        Self {
            response_us: encode(response),
            user_us: encode(user),
            refusal_us: encode(refusal),
            first_byte_us: encode(first_byte),
        }
    }

    /// The complementary distribution of users' times: each time that there was, milliseconds, and
    /// the share that took longer, falling to 0. Times have three digits. Empty where there is
    /// none, or no histogram that can be read.
    pub fn user_times_above(&self) -> Vec<(f64, f64)> {
        let Some(histogram) = decode(&self.user_us) else { return Vec::new() };
        let all = histogram.len() as f64;
        let mut left = histogram.len();
        let point = |value: hdrhistogram::iterators::IterationValue<u64>| {
            left -= value.count_since_last_iteration();
            (value.value_iterated_to() as f64 / 1e3, left as f64 / all)
        };
        histogram.iter_recorded().map(point).collect()
    }
}

/// Why summaries cannot be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeError {
    /// There is none.
    Nothing,
    /// One has no histograms, or what it has is none.
    Histogram(usize),
    /// The window of this one differs from the first's: they are not of one crowd.
    Windows(usize),
    /// This part is there twice, in these two, which may be one.
    Twice(String, [usize; 2]),
    /// The causes of one do not sum to what it offered, or a number is none.
    Inconsistent(usize),
}

impl MergeError {
    /// What is wrong, in one line, with each summary by the name that its place among them has,
    /// from 0.
    pub fn said_of(&self, name: impl Fn(usize) -> String) -> String {
        match self {
            Self::Nothing => "there is nothing to add".to_owned(),
            Self::Histogram(which) => format!(
                "{} has times and no histogram that can be read; it is of an older version, or cut",
                name(*which)
            ),
            Self::Inconsistent(which) => format!(
                "{} contradicts itself: its causes do not sum to what was offered, or a rate is none",
                name(*which)
            ),
            Self::Twice(shard, [first, second]) => format!(
                "part {shard} is there twice, in {} and in {}; name each once",
                name(*first),
                name(*second)
            ),
            Self::Windows(which) => format!(
                "the measured windows of {} and {} differ; parts of one crowd have the same",
                name(0),
                name(*which)
            ),
        }
    }
}

impl fmt::Display for MergeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said_of(|which| format!("summary {}", which + 1)))
    }
}

impl std::error::Error for MergeError {}

/// Adds the summaries of generators that sent parts of one crowd in one window. Counts and
/// histograms are exact; the generator was the limit if one of them was.
///
/// # Errors
///
/// See [`MergeError`].
pub fn merge(parts: &[CrowdSummary]) -> Result<CrowdSummary, MergeError> {
    let first = parts.first().ok_or(MergeError::Nothing)?;
    let is_other =
        |part: &CrowdSummary| (part.window_s - first.window_s).abs() > 1e-3 * first.window_s.max(1e-3);
    if let Some(which) = parts.iter().position(is_other) {
        return Err(MergeError::Windows(which));
    }
    let of_part = |(which, part): (usize, &CrowdSummary)| {
        part.shards.iter().map(|shard| (shard.clone(), which)).collect::<Vec<_>>()
    };
    let mut shards: Vec<(String, usize)> = parts.iter().enumerate().flat_map(of_part).collect();
    shards.sort();
    if let Some(pair) = shards.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(MergeError::Twice(pair[0].0.clone(), [pair[0].1, pair[1].1]));
    }
    let shards = shards.into_iter().map(|(shard, _)| shard).collect();
    if let Some(which) = parts.iter().position(|part| !is_consistent(part)) {
        return Err(MergeError::Inconsistent(which));
    }
    let sum = |value: fn(&CrowdSummary) -> u64| parts.iter().map(value).sum::<u64>();
    let add = |value: fn(&CrowdSummary) -> f64| parts.iter().map(value).sum::<f64>();
    let syns = add(|part| part.syns_per_s * part.window_s);
    let starts = add(|part| {
        if part.syns_per_attempt > 0.0 {
            part.syns_per_s * part.window_s / part.syns_per_attempt
        } else {
            0.0
        }
    });
    let response = add_histograms(parts, |part| (&part.histograms.response_us, part.response_ms.count))?;
    let user = add_histograms(parts, |part| (&part.histograms.user_us, part.user_ms.count))?;
    let refusal = add_histograms(parts, |part| (&part.histograms.refusal_us, part.refusal_ms.count))?;
    let first_byte =
        add_histograms(parts, |part| (&part.histograms.first_byte_us, part.first_byte_ms.count))?;
    let (mut sizes, mut seconds) = (BySize::default(), Seconds::default());
    let mut groups: Vec<GroupCount> = Vec::new();
    for part in parts {
        groups.resize(groups.len().max(part.groups.len()), GroupCount::default());
        for (sum, group) in groups.iter_mut().zip(&part.groups) {
            sum.replies += group.replies;
            sum.user_us += group.user_us;
        }
        sizes.add(&part.sizes);
        seconds.add(&part.seconds);
    }
    Ok(CrowdSummary {
        window_s: first.window_s,
        offered_per_s: add(|part| part.offered_per_s),
        goodput_per_s: add(|part| part.goodput_per_s),
        syns_per_s: add(|part| part.syns_per_s),
        offered: sum(|part| part.offered),
        sent: sum(|part| part.sent),
        ok: sum(|part| part.ok),
        refused: sum(|part| part.refused),
        reset: sum(|part| part.reset),
        timed_out_connect: sum(|part| part.timed_out_connect),
        timed_out_response: sum(|part| part.timed_out_response),
        aborted: sum(|part| part.aborted),
        malformed: sum(|part| part.malformed),
        no_port: sum(|part| part.no_port),
        not_sent: sum(|part| part.not_sent),
        unfinished: sum(|part| part.unfinished),
        statuses: parts.iter().fold(Statuses::default(), |mut sum, part| {
            sum += part.statuses;
            sum
        }),
        syns_per_attempt: if starts > 0.0 { syns / starts } else { 0.0 },
        ended_by_syns: add_by_place(parts, |part| &part.ended_by_syns),
        answered_by_syns: add_by_place(parts, |part| &part.answered_by_syns),
        reloads: sum(|part| part.reloads),
        gave_up: sum(|part| part.gave_up),
        user_ms: LatencySummary::from_micros(&user),
        response_ms: LatencySummary::from_micros(&response),
        refusal_ms: LatencySummary::from_micros(&refusal),
        first_byte_ms: LatencySummary::from_micros(&first_byte),
        bytes_per_s: add(|part| part.bytes_per_s),
        sizes,
        seconds,
        groups,
        histograms: Histograms::of(&response, &user, &refusal, &first_byte),
        shards,
        generator: merge_health(parts),
    })
}

/// Of the parts `i/n` of a crowd those that are not there, each as it would be named. None where
/// there are no parts.
pub fn missing_parts(shards: &[String]) -> Vec<String> {
    let read = |shard: &String| {
        let (index, count) = shard.split_once('/')?;
        Some((count.parse::<u32>().ok()?, index.parse::<u32>().ok()?))
    };
    let parts: BTreeSet<(u32, u32)> = shards.iter().filter_map(read).collect();
    let counts: BTreeSet<u32> = parts.iter().map(|(count, _)| *count).filter(|n| *n <= MOST_PARTS).collect();
    let of_count = |count: u32| (1..=count).map(move |index| (count, index));
    let missing = counts.into_iter().flat_map(of_count).filter(|part| !parts.contains(part));
    missing.map(|(count, index)| format!("{index}/{count}")).collect()
}

/// More than there are hosts.
const MOST_PARTS: u32 = 1 << 20;

/// As every run leaves it: nothing that a sum could overflow by.
fn is_consistent(part: &CrowdSummary) -> bool {
    let causes = [
        part.ok,
        part.refused,
        part.reset,
        part.timed_out_connect,
        part.timed_out_response,
        part.aborted,
        part.malformed,
        part.no_port,
        part.not_sent,
        part.unfinished,
    ];
    let sum = causes.iter().try_fold(0_u64, |sum, cause| sum.checked_add(*cause));
    let rates =
        [part.offered_per_s, part.goodput_per_s, part.syns_per_s, part.syns_per_attempt, part.window_s];
    // A million runs of such a size fit.
    let are_replies = part.statuses.by_class().iter().all(|(_, replies)| *replies < 1 << 44);
    sum == Some(part.offered)
        && part.offered < 1 << 44
        && are_replies
        && rates.iter().all(|rate| (0.0..1e12).contains(rate))
}

fn merge_health(parts: &[CrowdSummary]) -> GeneratorHealth {
    let sum =
        |value: fn(&GeneratorHealth) -> u64| parts.iter().map(|part| value(&part.generator)).sum::<u64>();
    let most = |value: fn(&GeneratorHealth) -> f64| {
        parts.iter().map(|part| value(&part.generator)).fold(0.0, f64::max)
    };
    let sent: u64 = parts.iter().map(|part| part.sent).sum();
    let late: f64 = parts.iter().map(|part| part.generator.late_share * part.sent as f64).sum();
    let mut modes: Vec<&str> = parts.iter().map(|part| part.generator.receive_mode.as_str()).collect();
    modes.dedup();
    GeneratorHealth {
        limited: parts.iter().any(|part| part.generator.limited),
        reasons: (1..)
            .zip(parts)
            .flat_map(|(which, part)| {
                part.generator.reasons.iter().map(move |reason| format!("part {which}: {reason}"))
            })
            .collect(),
        late_share: if sent > 0 { late / sent as f64 } else { 0.0 },
        late_max_ms: most(|health| health.late_max_ms),
        workers: parts.iter().map(|part| part.generator.workers).sum(),
        frames_lost: sum(|health| health.frames_lost),
        frames_unsent: sum(|health| health.frames_unsent),
        frames_sent: sum(|health| health.frames_sent),
        frames_received: sum(|health| health.frames_received),
        frames_handed_over: sum(|health| health.frames_handed_over),
        cpu_share: most(|health| health.cpu_share),
        turns: sum(|health| health.turns),
        busy_share: most(|health| health.busy_share),
        peak_connections: sum(|health| health.peak_connections),
        bytes_per_connection: parts.iter().map(|part| part.generator.bytes_per_connection).max().unwrap_or(0),
        receive_mode: modes.join(", "),
        receive_fallback: parts.iter().find_map(|part| part.generator.receive_fallback.clone()),
    }
}

fn add_by_place(parts: &[CrowdSummary], counts: fn(&CrowdSummary) -> &Vec<u64>) -> Vec<u64> {
    let mut sums = Vec::new();
    for part in parts {
        let counts = counts(part);
        sums.resize(sums.len().max(counts.len()), 0);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    sums
}

fn add_histograms(
    parts: &[CrowdSummary],
    of: fn(&CrowdSummary) -> (&String, u64),
) -> Result<Histogram<u64>, MergeError> {
    let mut sum = Histogram::new(3).expect("3 significant digits are supported");
    for (which, part) in parts.iter().enumerate() {
        let (text, count) = of(part);
        if count == 0 {
            continue;
        }
        let histogram = decode(text).filter(|histogram| histogram.len() == count);
        let histogram = histogram.ok_or(MergeError::Histogram(which))?;
        sum.add(&histogram).map_err(|_| MergeError::Histogram(which))?;
    }
    Ok(sum)
}

fn encode(histogram: &Histogram<u64>) -> String {
    if histogram.is_empty() {
        return String::new();
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).expect("a Vec takes all");
    STANDARD.encode(bytes)
}

fn decode(text: &str) -> Option<Histogram<u64>> {
    Deserializer::new().deserialize(&mut Cursor::new(STANDARD.decode(text).ok()?)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies that took so many microseconds each.
    fn part(times_us: &[u64], refused: u64) -> CrowdSummary {
        let histogram = |times: &[u64]| {
            let mut histogram = Histogram::new(3).expect("digits");
            times.iter().for_each(|time| histogram.record(*time).expect("a time"));
            histogram
        };
        let (response, none) = (histogram(times_us), histogram(&[]));
        let ok = times_us.len() as u64;
        CrowdSummary {
            window_s: 10.0,
            offered: ok + refused,
            sent: ok + refused,
            ok,
            refused,
            syns_per_s: (ok + 2 * refused) as f64 / 10.0,
            syns_per_attempt: (ok + 2 * refused) as f64 / (ok + refused) as f64,
            statuses: Statuses { successful: ok, informational: refused, ..Statuses::default() },
            ended_by_syns: vec![ok, refused],
            response_ms: LatencySummary::from_micros(&response),
            histograms: Histograms::of(&response, &none, &none, &none),
            ..CrowdSummary::default()
        }
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (a, b) = (part(&[100, 200, 300], 1), part(&[400; 97], 0));
        let merged = merge(&[a, b]).expect("parts of one crowd");
        let times: Vec<u64> = [100, 200, 300].into_iter().chain([400; 97]).collect();
        assert_eq!(merged, merge(&[part(&times, 1)]).expect("the whole"));
        assert_eq!((merged.offered, merged.ok, merged.refused), (101, 100, 1));
        assert_eq!((merged.statuses.replies(), merged.statuses.informational), (Some(100), 1));
        assert_eq!(merged.response_ms.p50, 0.4);
        assert_eq!(merged.ended_by_syns, [100, 1]);
        assert!((merged.syns_per_attempt - 102.0 / 101.0).abs() < 1e-9);
    }

    #[test]
    fn share_of_longer_times_falls_to_zero() {
        let mut times = Histogram::new(3).expect("digits");
        for us in [1000, 1000, 2000, 4000] {
            times.record(us).expect("a time");
        }
        let none = Histogram::new(3).expect("digits");
        let above = Histograms::of(&none, &times, &none, &none).user_times_above();
        let expected = [(1.0, 0.5), (2.0, 0.25), (4.0, 0.0)];
        assert_eq!(above.len(), expected.len(), "{above:?}");
        for ((ms, share), (expected_ms, expected)) in above.into_iter().zip(expected) {
            assert!((ms - expected_ms).abs() <= 0.002 && share == expected, "{ms} ms: {share}");
        }
        assert_eq!(Histograms::default().user_times_above(), []);
    }

    #[test]
    fn generator_was_the_limit_if_one_was() {
        let mut slow = part(&[1], 0);
        slow.generator = GeneratorHealth {
            limited: true,
            reasons: vec!["late".to_owned()],
            late_share: 0.5,
            turns: 7,
            busy_share: 0.9,
            ..GeneratorHealth::default()
        };
        let mut quick = part(&[1], 0);
        quick.generator = GeneratorHealth { turns: 4, busy_share: 0.2, ..GeneratorHealth::default() };
        let merged = merge(&[quick, slow]).expect("parts").generator;
        assert_eq!((merged.limited, merged.late_share), (true, 0.25));
        assert_eq!((merged.turns, merged.busy_share), (11, 0.9));
        assert_eq!(merged.reasons, ["part 2: late"]);
    }

    #[test]
    fn what_cannot_be_added_is_refused() {
        assert_eq!(merge(&[]), Err(MergeError::Nothing));
        let other = CrowdSummary { window_s: 11.0, ..part(&[1], 0) };
        assert_eq!(merge(&[part(&[1], 0), other]), Err(MergeError::Windows(1)));
        let shard = |shard: &str| CrowdSummary { shards: vec![shard.to_owned()], ..part(&[1], 0) };
        let twice = merge(&[shard("2/2"), shard("1/2"), shard("1/2")]).expect_err("twice");
        assert_eq!(twice, MergeError::Twice("1/2".to_owned(), [1, 2]));
        assert_eq!(
            twice.to_string(),
            "part 1/2 is there twice, in summary 2 and in summary 3; name each once"
        );
        assert_eq!(
            MergeError::Windows(1).said_of(|which| format!("{which}.json")),
            "the measured windows of 0.json and 1.json differ; parts of one crowd have the same"
        );
        assert_eq!(merge(&[shard("2/2"), shard("1/2")]).expect("both").shards, ["1/2", "2/2"]);
        let mut endless = part(&[1], 0);
        endless.statuses.client_error = u64::MAX;
        assert_eq!(merge(&[part(&[1], 0), endless]), Err(MergeError::Inconsistent(1)));
        let mut old = part(&[1], 0);
        old.histograms = Histograms::default();
        assert_eq!(merge(&[part(&[1], 0), old]), Err(MergeError::Histogram(1)));
        let mut cut = part(&[1, 2, 3], 0);
        cut.histograms.response_us.truncate(10);
        assert_eq!(merge(&[cut]), Err(MergeError::Histogram(0)));
    }

    #[test]
    fn parts_that_are_not_there_are_named() {
        let missing =
            |shards: &[&str]| missing_parts(&shards.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(missing(&[]), [""; 0]);
        assert_eq!(missing(&["1/3", "2/3", "3/3"]), [""; 0]);
        assert_eq!(missing(&["1/3", "3/3"]), ["2/3"]);
        assert_eq!(missing(&["1/2", "1/3"]), ["2/2", "2/3", "3/3"], "of two crowds, it seems");
        assert_eq!(missing(&["what", "1/4000000000"]), [""; 0], "written by nobody we know");
    }
}
