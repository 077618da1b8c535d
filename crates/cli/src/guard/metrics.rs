//! What a guard shows to Prometheus.

use guard::{ListenerSample, Sample};
use telemetry::Family;
use watch::Counter;

use crate::exporter::{Labels, Metric, Values};

/// All that there is to show, by listener.
pub fn metrics(sample: &Sample) -> Vec<Metric> {
    let all = || sample.listeners.iter();
    let followed = || sample.listeners.iter().filter_map(|of| Some((of, of.service?)));
    let counter = |name, help, values| Metric { name, help, values: Values::Counter(values) };
    let gauge = |name, help, values| Metric { name, help, values: Values::Gauge(values) };
    let queues = all().filter_map(|of| Some((of, of.load?))).flat_map(|(of, load)| {
        let queues = [("accept", load.accept_qlen), ("syn", load.syn_qlen)];
        queues.map(|(queue, length)| (labels(of, Some(("queue", queue))), f64::from(length)))
    });
    let limits = all().filter_map(|of| Some((of, of.load?))).flat_map(|(of, load)| {
        let queues = [("accept", load.accept_limit), ("syn", load.syn_limit)];
        queues.map(|(queue, limit)| (labels(of, Some(("queue", queue))), f64::from(limit)))
    });
    let observed = || sample.listeners.iter().filter_map(|of| Some((of, of.observed.as_ref()?)));
    let kernels = observed().flat_map(|(of, observed)| {
        let count = |counter: Counter| Some((counter.title(), observed.counters.get(counter)?));
        let causes = Counter::ALL.into_iter().filter_map(count);
        causes.map(|(cause, count)| (labels(of, Some(("counter", cause))), count as f64)).collect::<Vec<_>>()
    });
    let others = [
        gauge("guard_queue_length", "Connections in a listener's queues", queues.collect()),
        gauge("guard_queue_limit", "How many a listener's queues hold", limits.collect()),
        gauge(
            "guard_waiting",
            "Connections that wait for the server",
            followed().map(|(of, service)| (labels(of, None), service.waiting as f64)).collect(),
        ),
        gauge(
            "guard_waiting_limit",
            "How many may wait for the server",
            followed()
                .filter_map(|(of, service)| Some((labels(of, None), f64::from(service.limit?))))
                .collect(),
        ),
        gauge(
            "guard_completed_ratio",
            "Share of the SYNs let through that is expected to become connections, 0 to 1",
            followed().map(|(of, service)| (labels(of, None), service.completed_share())).collect(),
        ),
        counter(
            "guard_answered",
            "Connections whose response has begun; an estimate while one connection in four is followed",
            followed().map(|(of, service)| (labels(of, None), service.answered as f64)).collect(),
        ),
        counter(
            "guard_answered_in_turn",
            "Of these, those that were not overtaken by many who came later",
            followed().map(|(of, service)| (labels(of, None), service.answered_in_turn as f64)).collect(),
        ),
        counter(
            "guard_response_seconds",
            "Sum of their times from the request to the beginning of the response",
            followed().map(|(of, service)| (labels(of, None), service.response_time.as_secs_f64())).collect(),
        ),
        counter(
            "kernel_events",
            "What the kernel did with SYNs and handshakes of observed listeners",
            kernels.collect(),
        ),
    ];
    telemetry::FAMILIES.iter().map(|family| counters(family, sample)).chain(others).collect()
}

/// What the guard counts of one family: at each listener, or over all.
fn counters(family: &'static Family, sample: &Sample) -> Metric {
    let guarded = sample.listeners.iter().filter(|of| of.observed.is_none());
    let of_listeners = guarded.flat_map(|of| {
        let shown = telemetry::shown(family, &of.stats);
        shown.map(move |(value, count)| (counter_labels(family, of, value), count as f64))
    });
    let of_all = telemetry::shown(family, &sample.path).map(|(value, count)| {
        let label = own_label(family, value).map(|(name, value)| (name, value.to_owned()));
        (label.into_iter().collect(), count as f64)
    });
    let values = Values::Counter(of_listeners.chain(of_all).collect());
    Metric { name: family.name, help: family.help, values }
}

/// Decisions are counted in a dry run, too.
fn counter_labels(family: &Family, of: &ListenerSample, value: &str) -> Labels {
    let is_decision = family.label == "outcome";
    let dry_run = is_decision.then(|| ("dry_run", of.listener.dry_run.to_string()));
    labels(of, own_label(family, value)).into_iter().chain(dry_run).collect()
}

/// What tells a counter from the others of its family; nothing if there is one only.
fn own_label<'a>(family: &Family, value: &'a str) -> Option<(&'static str, &'a str)> {
    (!family.label.is_empty()).then_some((family.label, value))
}

fn labels(of: &ListenerSample, other: Option<(&'static str, &str)>) -> Labels {
    let listen = ("listen", of.listener.listen.to_string());
    [listen].into_iter().chain(other.map(|(name, value)| (name, value.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use guard::{Listener, ListenerStats, PathStats, ServerSample};

    use super::*;

    #[test]
    fn what_was_found_full_and_what_is_expected_are_shown() {
        let listener =
            Listener::new("192.0.2.1:80".parse().expect("address"), "abort".parse().expect("policy"));
        let stats = ListenerStats { accept_full: 1, syn_full: 2, server_full: 3, ..ListenerStats::default() };
        let service = ServerSample { completed_ppm: 250_000, ..ServerSample::default() };
        let of = ListenerSample { listener, load: None, stats, service: Some(service), observed: None };
        let sample = Sample { listeners: vec![of], path: PathStats::default(), away: BTreeSet::new() };
        let values = |name| {
            let metrics = metrics(&sample);
            let metric = metrics.iter().find(|metric| metric.name == name).expect("it is shown");
            let (Values::Counter(values) | Values::Gauge(values)) = &metric.values else { panic!("{name}") };
            let label = |labels: &Labels| labels.get(1).map_or(String::new(), |(_, value)| value.clone());
            values.iter().map(|(labels, value)| (label(labels), *value)).collect::<Vec<_>>()
        };
        let full = [("accept", 1.0), ("syn", 2.0), ("server", 3.0)];
        assert_eq!(values("guard_syns_found_full"), full.map(|(place, count)| (place.to_owned(), count)));
        assert_eq!(values("guard_completed_ratio"), [(String::new(), 0.25)]);
    }
}
