//! `--fail-if`: what makes a run a failure, for scripts.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use results::CrowdSummary;

/// A bound that the result of a run must not be beyond, as `p99>50ms`, `refused>1%`, `goodput<20k`.
#[derive(Debug, Clone)]
pub struct FailIf {
    metric: &'static Metric,
    is_above: bool,
    bound: f64,
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
}

fn share(summary: &CrowdSummary, count: u64) -> Option<f64> {
    (summary.offered > 0).then(|| count as f64 / summary.offered as f64)
}

fn of_replies(summary: &CrowdSummary, value: f64) -> Option<f64> {
    (summary.response_ms.count > 0).then_some(value)
}

static METRICS: [Metric; 15] = [
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
];

impl FailIf {
    /// What is beyond the bound, in one line; none when nothing is. What cannot be measured is beyond every bound.
    pub fn complaint(&self, summary: &CrowdSummary) -> Option<String> {
        let Some(value) = (self.metric.value)(summary) else {
            return Some(format!("{self}: nothing was measured that has a {}", self.metric.name));
        };
        let is_beyond = if self.is_above { value > self.bound } else { value < self.bound };
        is_beyond.then(|| {
            let value = match self.metric.unit {
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
            format!("{name:?} is none of {}", names.join(", "))
        })?;
        let wanted = match metric.unit {
            Unit::Time => "a time, as in 50ms",
            Unit::Share => "a share of the attempts from 0% to 100%, as in 1%",
            Unit::Rate => "a rate per second, as in 20k",
        };
        let value = match metric.unit {
            Unit::Time => {
                humantime::parse_duration(bound).ok().map(|time: Duration| 1e3 * time.as_secs_f64())
            }
            Unit::Share => bound
                .strip_suffix('%')
                .and_then(|number| number.trim().parse().ok())
                .map(|share: f64| share / 100.0),
            Unit::Rate => super::parse_rate(bound).ok(),
        };
        let bound = value
            .filter(|value| *value >= 0.0 && value.is_finite())
            .filter(|value| metric.unit != Unit::Share || *value <= 1.0)
            .ok_or_else(|| format!("{bound:?} is not {wanted}"))?;
        Ok(Self { metric, is_above: text.as_bytes()[at] == b'>', bound, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use results::LatencySummary;

    use super::*;

    fn run() -> CrowdSummary {
        let response_ms = LatencySummary { count: 90, p99: 83.1, ..LatencySummary::default() };
        CrowdSummary {
            offered: 100,
            sent: 100,
            ok: 90,
            refused: 8,
            goodput_per_s: 900.0,
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
        for kept in ["p99>100ms", "refused>8%", "goodput<900", "reset>0%", "late>5%", "p99<83ms"] {
            assert_eq!(complaint(kept), None, "{kept}");
        }
    }

    #[test]
    fn what_was_not_measured_is_a_failure() {
        for text in ["p99>50ms", "goodput>1", "late>5%", "refused>1%"] {
            let fail_if: FailIf = text.parse().expect("a bound");
            let complaint = fail_if.complaint(&CrowdSummary::default()).expect("no attempt is no success");
            assert!(complaint.contains("nothing was measured"), "{complaint}");
        }
    }

    #[test]
    fn what_is_no_bound_is_named() {
        for (text, why) in [
            ("p99", "no bound in it"),
            ("p98>5ms", "\"p98\" is none of mean, p50"),
            ("p99>5", "\"5\" is not a time"),
            ("refused>0.1", "is not a share"),
            ("goodput<fast", "is not a rate"),
            ("refused>-1%", "is not a share"),
            ("ok>101%", "\"101%\" is not a share of the attempts from 0% to 100%, as in 1%"),
            ("late<1e3%", "is not a share"),
            ("p99>", "\"\" is not a time"),
        ] {
            let error = text.parse::<FailIf>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
