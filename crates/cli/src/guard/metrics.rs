//! What a guard shows to Prometheus.

use guard::{ListenerSample, Sample};
use watch::Counter;

use crate::exporter::{Labels, Metric, Values};

/// All that there is to show, by listener.
pub fn metrics(sample: &Sample) -> Vec<Metric> {
    let guarded = || sample.listeners.iter().filter(|of| of.observed.is_none());
    let all = || sample.listeners.iter();
    let followed = || sample.listeners.iter().filter_map(|of| Some((of, of.service?)));
    let counter = |name, help, values| Metric { name, help, values: Values::Counter(values) };
    let gauge = |name, help, values| Metric { name, help, values: Values::Gauge(values) };
    let decisions = |of: &ListenerSample, outcome| {
        let dry_run = ("dry_run", of.listener.dry_run.to_string());
        labels(of, Some(("outcome", outcome))).into_iter().chain([dry_run]).collect()
    };
    let syns = guarded().flat_map(|of| {
        let stats = &of.stats;
        let outcomes = [
            ("admitted", stats.admitted),
            ("dropped", stats.dropped),
            ("reset", stats.reset),
            ("cookie", stats.cookies),
            ("unsent", stats.unsent),
        ];
        outcomes.map(|(outcome, count)| (decisions(of, outcome), count as f64))
    });
    let full = guarded().flat_map(|of| {
        let places =
            [("accept", of.stats.accept_full), ("syn", of.stats.syn_full), ("server", of.stats.server_full)];
        places.map(|(place, count)| (labels(of, Some(("place", place))), count as f64))
    });
    let acks = guarded().flat_map(|of| {
        let outcomes = [("dropped", of.stats.acks_dropped), ("reset", of.stats.acks_reset)];
        outcomes.map(|(outcome, count)| (decisions(of, outcome), count as f64))
    });
    let fins = guarded().map(|of| (decisions(of, "reset"), of.stats.fins_reset as f64));
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
    vec![
        counter("guard_syns", "SYNs of guarded listeners, by what became of them", syns.collect()),
        counter(
            "guard_syns_found_full",
            "SYNs that found a queue full, or were refused for the server alone; one may be in both queues' counts",
            full.collect(),
        ),
        counter(
            "guard_returned",
            "Of these SYNs, repetitions by clients that were refused before",
            guarded().map(|of| (labels(of, None), of.stats.returned as f64)).collect(),
        ),
        counter("guard_acks", "Ends of handshakes that were not let through", acks.collect()),
        counter("guard_fins", "FINs whose connection was destroyed", fins.collect()),
        counter(
            "guard_unleased",
            "Segments that were left to the kernel because the guard did not run",
            vec![(vec![], sample.path.unleased as f64)],
        ),
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
            "guard_handshake_slot_seconds",
            "Length of the slots of time by which handshakes under way are counted",
            followed()
                .map(|(of, service)| (labels(of, None), service.handshake_slot.as_secs_f64()))
                .collect(),
        ),
        gauge(
            "guard_completed_ratio",
            "Share of the SYNs let through that is expected to become connections, 0 to 1",
            followed().map(|(of, service)| (labels(of, None), service.completed_share())).collect(),
        ),
        counter(
            "guard_answered",
            "Connections whose response has begun",
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
    ]
}

fn labels(of: &ListenerSample, other: Option<(&'static str, &str)>) -> Labels {
    let listen = ("listen", of.listener.listen.to_string());
    [listen].into_iter().chain(other.map(|(name, value)| (name, value.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use guard::{Listener, ListenerStats, PathStats, Service};

    use super::*;

    #[test]
    fn what_was_found_full_and_what_is_expected_are_shown() {
        let listener =
            Listener::new("192.0.2.1:80".parse().expect("address"), "abort".parse().expect("policy"));
        let stats = ListenerStats { accept_full: 1, syn_full: 2, server_full: 3, ..ListenerStats::default() };
        let service = Service {
            handshake_slot: Duration::from_millis(2),
            completed_ppm: 250_000,
            ..Service::default()
        };
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
        assert_eq!(values("guard_handshake_slot_seconds"), [(String::new(), 0.002)]);
        assert_eq!(values("guard_completed_ratio"), [(String::new(), 0.25)]);
    }
}
