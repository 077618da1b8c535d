//! `--fail-if`: what makes a run a failure, for scripts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use results::CrowdSummary;

/// A bound that the result of a run must not be beyond, as `p99>50ms`, `refused>1%`, `goodput<20k`,
/// `non-2xx>0`.
#[derive(Debug, Clone)]
pub struct FailIf {
    metric: &'static Metric,
    is_above: bool,
    /// In the metric's unit; of [`Unit::Replies`] a share if `is_share`, else a count.
    bound: f64,
    is_share: bool,
    text: String,
}

#[derive(Debug)]
struct Metric {
    name: &'static str,
    unit: Unit,
    /// None where there is nothing to measure it by.
    value: fn(&CrowdSummary) -> Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Unit {
    /// Milliseconds.
    Time,
    /// Of all attempts, 0 to 1.
    Share,
    /// Per second.
    Rate,
    /// So many of the complete replies, which a bound may also ask for as a share of them.
    Replies,
}

fn share(summary: &CrowdSummary, count: u64) -> Option<f64> {
    (summary.offered > 0).then(|| count as f64 / summary.offered as f64)
}

fn of_replies(summary: &CrowdSummary, value: f64) -> Option<f64> {
    (summary.response_ms.count > 0).then_some(value)
}

/// Replies of some classes; none where no reply is complete.
fn of_statuses(run: &CrowdSummary, count: u64) -> Option<f64> {
    run.statuses.replies().filter(|replies| *replies > 0).map(|_| count as f64)
}

static METRICS: [Metric; 20] = [
    Metric { name: "mean", unit: Unit::Time, value: |run| of_replies(run, run.response_ms.mean) },
    Metric { name: "p50", unit: Unit::Time, value: |run| of_replies(run, run.response_ms.p50) },
    Metric { name: "p90", unit: Unit::Time, value: |run| of_replies(run, run.response_ms.p90) },
    Metric { name: "p99", unit: Unit::Time, value: |run| of_replies(run, run.response_ms.p99) },
    Metric { name: "p99.9", unit: Unit::Time, value: |run| of_replies(run, run.response_ms.p999) },
    Metric { name: "max", unit: Unit::Time, value: |run| of_replies(run, run.response_ms.max) },
    Metric { name: "ok", unit: Unit::Share, value: |run| share(run, run.ok) },
    Metric { name: "refused", unit: Unit::Share, value: |run| share(run, run.refused) },
    Metric { name: "reset", unit: Unit::Share, value: |run| share(run, run.reset) },
    Metric {
        name: "timed-out",
        unit: Unit::Share,
        value: |run| share(run, run.timed_out_connect + run.timed_out_response),
    },
    Metric { name: "aborted", unit: Unit::Share, value: |run| share(run, run.aborted) },
    Metric { name: "malformed", unit: Unit::Share, value: |run| share(run, run.malformed) },
    Metric { name: "failed", unit: Unit::Share, value: |run| share(run, run.offered - run.ok) },
    Metric { name: "goodput", unit: Unit::Rate, value: |run| (run.offered > 0).then_some(run.goodput_per_s) },
    Metric {
        name: "late",
        unit: Unit::Share,
        value: |run| (run.sent > 0).then_some(run.generator.late_share),
    },
    Metric { name: "2xx", unit: Unit::Replies, value: |run| of_statuses(run, run.statuses.successful) },
    Metric { name: "3xx", unit: Unit::Replies, value: |run| of_statuses(run, run.statuses.redirection) },
    Metric { name: "4xx", unit: Unit::Replies, value: |run| of_statuses(run, run.statuses.client_error) },
    Metric { name: "5xx", unit: Unit::Replies, value: |run| of_statuses(run, run.statuses.server_error) },
    Metric {
        name: "non-2xx",
        unit: Unit::Replies,
        value: |run| run.statuses.non_2xx().and_then(|count| of_statuses(run, count)),
    },
];

impl FailIf {
    /// What is beyond the bound, in one line; none when nothing is. What cannot be measured is
    /// beyond every bound.
    pub fn complaint(&self, summary: &CrowdSummary) -> Option<String> {
        let Some(value) = (self.metric.value)(summary) else {
            return Some(format!("{self}: nothing was measured that has a {}", self.metric.name));
        };
        let replies = summary.statuses.replies().unwrap_or(0);
        let compared = if self.is_share { value / replies as f64 } else { value };
        let is_beyond = if self.is_above { compared > self.bound } else { compared < self.bound };
        is_beyond.then(|| {
            let value = match self.metric.unit {
                Unit::Replies => format!("{value:.0} of {replies} replies"),
                Unit::Time => format!("{value:.2} ms"),
                Unit::Share => format!("{:.2}%", 100.0 * value),
                Unit::Rate => format!("{value:.0} per second"),
            };
            format!("{self}: it is {value}")
        })
    }
}

impl fmt::Display for FailIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for FailIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = text.find(['<', '>']).ok_or("no bound in it, as in p99>50ms or goodput<20k")?;
        let (name, bound) = (text[..at].trim(), text[at + 1..].trim());
        let metric = METRICS.iter().find(|metric| metric.name == name).ok_or_else(|| {
            let names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
            let known = format!("there are {}", names.join(", "));
            format!("{name:?} is no measure{}", spelling::did_you_mean(name, names, &known))
        })?;
        let wanted = match metric.unit {
            Unit::Time => "a time, as in 50ms",
            Unit::Share => "a share of the attempts from 0% to 100%, as in 1%",
            Unit::Rate => "a rate per second, as in 20k",
            Unit::Replies => "a number of replies or a share of them, as in 0 or 1%",
        };
        let is_share = metric.unit == Unit::Share || (metric.unit == Unit::Replies && bound.ends_with('%'));
        let value = match metric.unit {
            Unit::Time => spelling::time(bound).ok().map(|time: Duration| 1e3 * time.as_secs_f64()),
            _ if is_share => bound
                .strip_suffix('%')
                .and_then(|number| number.trim().parse().ok())
                .map(|share: f64| share / 100.0),
            Unit::Rate => super::parse_rate(bound).ok(),
            _ => bound.parse().ok().map(|replies: u64| replies as f64),
        };
        let bound = value
            .filter(|value| *value >= 0.0 && value.is_finite())
            .filter(|value| !is_share || *value <= 1.0)
            .ok_or_else(|| format!("{bound:?} is not {wanted}"))?;
        let is_above = text.as_bytes()[at] == b'>';
        let is_share = is_share && metric.unit == Unit::Replies;
        Ok(Self { metric, is_above, bound, is_share, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use results::{LatencySummary, Statuses};

    use super::*;

    fn run() -> CrowdSummary {
        let response_ms = LatencySummary { count: 90, p99: 83.1, ..LatencySummary::default() };
        CrowdSummary {
            offered: 100,
            sent: 100,
            ok: 90,
            refused: 8,
            goodput_per_s: 900.0,
            statuses: Statuses { successful: 80, client_error: 9, server_error: 1, ..Statuses::default() },
            response_ms,
            ..CrowdSummary::default()
        }
    }

    #[track_caller]
    fn complaint(text: &str) -> Option<String> {
        text.parse::<FailIf>().expect(text).complaint(&run())
    }

    #[test]
    fn bound_is_crossed_or_not() {
        assert_eq!(complaint("p99>50ms"), Some("p99>50ms: it is 83.10 ms".to_owned()));
        assert_eq!(complaint("refused > 5%"), Some("refused > 5%: it is 8.00%".to_owned()));
        assert_eq!(complaint("goodput<1k"), Some("goodput<1k: it is 900 per second".to_owned()));
        assert_eq!(complaint("failed>9.9%"), Some("failed>9.9%: it is 10.00%".to_owned()));
        assert_eq!(complaint("non-2xx>0"), Some("non-2xx>0: it is 10 of 90 replies".to_owned()));
        assert_eq!(complaint("non-2xx>11%"), Some("non-2xx>11%: it is 10 of 90 replies".to_owned()));
        assert_eq!(complaint("5xx > 0"), Some("5xx > 0: it is 1 of 90 replies".to_owned()));
        assert_eq!(complaint("2xx<90%"), Some("2xx<90%: it is 80 of 90 replies".to_owned()));
        for kept in ["non-2xx>10", "non-2xx>12%", "4xx>9", "4xx<9", "3xx>0", "2xx<88%", "2xx<80"] {
            assert_eq!(complaint(kept), None, "{kept}");
        }
        for kept in ["p99>100ms", "refused>8%", "goodput<900", "reset>0%", "late>5%", "p99<83ms"] {
            assert_eq!(complaint(kept), None, "{kept}");
        }
    }

    #[test]
    fn what_was_not_measured_is_a_failure() {
        for text in ["p99>50ms", "goodput>1", "late>5%", "refused>1%", "non-2xx>0", "2xx<1", "4xx>1%"] {
            let fail_if: FailIf = text.parse().expect("a bound");
            let complaint = fail_if.complaint(&CrowdSummary::default()).expect("no attempt is no success");
            assert!(complaint.contains("nothing was measured"), "{complaint}");
        }
    }

    #[test]
    fn what_is_no_bound_is_named() {
        for (text, why) in [
            ("p99", "no bound in it"),
            ("p98>5ms", "\"p98\" is no measure; did you mean p90? there are mean, p50"),
            ("p99>5", "\"5\" is not a time"),
            ("refused>0.1", "is not a share"),
            ("goodput<fast", "is not a rate"),
            ("refused>-1%", "is not a share"),
            ("ok>101%", "\"101%\" is not a share of the attempts from 0% to 100%, as in 1%"),
            ("late<1e3%", "is not a share"),
            ("p99>", "\"\" is not a time"),
            ("non-2xx>0.5", "\"0.5\" is not a number of replies or a share of them, as in 0 or 1%"),
            ("4xx>101%", "is not a number of replies or a share"),
            ("5xx>-1", "is not a number of replies"),
            ("1xx>0", "\"1xx\" is no measure"),
        ] {
            let error = text.parse::<FailIf>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
