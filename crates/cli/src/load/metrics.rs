//! What a crowd shows to Prometheus.

use hdrhistogram::Histogram;
use load::{Progress, Totals};

use crate::exporter::{Distribution, Metric, Values};

/// Upper bounds of the buckets of response times, seconds.
const BOUNDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, f64::MAX];

/// Response times since the start, as Prometheus wants them.
#[derive(Debug, Default)]
pub struct Responses {
    counts: [u64; BOUNDS.len()],
}

impl Responses {
    /// Adds those of an interval, microseconds.
    pub fn add(&mut self, interval: &Histogram<u64>) {
        for recorded in interval.iter_recorded() {
            let seconds = recorded.value_iterated_to() as f64 / 1e6;
            let bucket = BOUNDS.partition_point(|bound| *bound < seconds);
            self.counts[bucket] += recorded.count_at_value();
        }
    }

    /// All that there is to show.
    pub fn metrics(&self, progress: &Progress<'_>) -> Vec<Metric> {
        let Totals { offered, syns, ok, replies, statuses, refused, reset, timed_out, failed, response_us } =
            progress.totals;
        let ended = [
            ("ok", ok),
            ("refused", refused),
            ("reset", reset),
            ("timed_out", timed_out),
            ("failed", failed),
        ];
        let by_cause = ended
            .into_iter()
            .map(|(cause, count)| (vec![("cause", cause.to_owned())], count as f64))
            .collect();
        let by_class = statuses
            .by_class()
            .into_iter()
            .map(|(class, count)| (vec![("class", class.to_owned())], count as f64))
            .collect();
        let counter = |name, unit, help, value: u64| Metric {
            name,
            unit,
            help,
            values: Values::Counter(vec![(vec![], value as f64)]),
        };
        let buckets = BOUNDS.into_iter().zip(self.counts).collect();
        let responses =
            Distribution { buckets, count: self.counts.iter().sum(), sum: response_us as f64 / 1e6 };
        vec![
            counter("load_offered", "attempts", "Attempts whose time to start has come", offered),
            Metric {
                name: "load_ended",
                unit: "attempts",
                help: "Attempts that have ended, by cause",
                values: Values::Counter(by_cause),
            },
            counter("load_replies", "replies", "Complete replies", replies),
            Metric {
                name: "load_statuses",
                unit: "replies",
                help: "Complete replies by the class of their status; 1xx are interim ones before them",
                values: Values::Counter(by_class),
            },
            counter("load_syns", "syns", "SYNs sent, with retransmissions", syns),
            Metric {
                name: "load_response_seconds",
                unit: "seconds",
                help: "Response times, from the intended start",
                values: Values::Histogram(vec![(vec![], responses)]),
            },
            Metric {
                name: "load_connections",
                unit: "connections",
                help: "Connections that are open",
                values: Values::Gauge(vec![(vec![], progress.live as f64)]),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_response_is_in_one_bucket() {
        let mut interval = Histogram::new(3).expect("three digits");
        for micros in [100, 499, 900, 20_000_000] {
            interval.record(micros).expect("recorded");
        }
        let mut responses = Responses::default();
        responses.add(&interval);
        responses.add(&interval);
        assert_eq!((responses.counts[0], responses.counts[1], responses.counts[BOUNDS.len() - 1]), (4, 2, 2));
        assert_eq!(responses.counts.iter().sum::<u64>(), 8);
    }
}
