//! What a guard shows to Prometheus.

use std::time::SystemTime;

use guard::{ListenerLoad, ListenerSample, Sample, ServerSample};
use telemetry::Family;
use top::State;
use watch::Counter;

use super::event::Place;
use super::status::ListenerStatus;
use crate::exporter::{Distribution, Labels, Metric, Values, unix_s};

/// Bounds of the histogram of waiting connections: 0, 1, 3, 7 and so on to 65,535.
const WAITING_BOUNDS: usize = 17;

/// All that there is to show. `listeners` is of the last second; `hooks` are interfaces with the
/// hook there; at `lease_end` the kernel decides alone, unless the lease is renewed before.
pub fn metrics(
    sample: &Sample,
    listeners: &[ListenerStatus],
    hooks: &[Place],
    lease_end: SystemTime,
) -> Vec<Metric> {
    let families = telemetry::FAMILIES.iter().map(|family| counters(family, sample));
    families
        .chain(of_queues(sample))
        .chain(of_servers(sample))
        .chain(of_guard(listeners, hooks, lease_end))
        .collect()
}

fn counter(name: &'static str, unit: &'static str, help: &'static str, values: Vec<(Labels, f64)>) -> Metric {
    Metric { name, unit, help, values: Values::Counter(values) }
}

fn gauge(name: &'static str, unit: &'static str, help: &'static str, values: Vec<(Labels, f64)>) -> Metric {
    Metric { name, unit, help, values: Values::Gauge(values) }
}

fn histogram(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    values: Vec<(Labels, Distribution)>,
) -> Metric {
    Metric { name, unit, help, values: Values::Histogram(values) }
}

fn of_queues(sample: &Sample) -> [Metric; 3] {
    let queues = |value: fn(ListenerLoad) -> [(&'static str, u32); 2]| {
        let loads = sample.listeners.iter().filter_map(|of| Some((of, of.load?)));
        let values = loads.flat_map(|(of, load)| {
            value(load).map(|(queue, value)| (labels(of, Some(("queue", queue))), f64::from(value)))
        });
        values.collect::<Vec<_>>()
    };
    let observed = sample.listeners.iter().filter_map(|of| Some((of, of.observed.as_ref()?)));
    let kernels = observed.flat_map(|(of, observed)| {
        let count = |counter: Counter| Some((counter.title(), observed.counters.get(counter)?));
        let causes = Counter::ALL.into_iter().filter_map(count);
        causes.map(|(cause, count)| (labels(of, Some(("counter", cause))), count as f64)).collect::<Vec<_>>()
    });
    [
        gauge(
            "guard_queue_length",
            "connections",
            "Length of a listener's queue",
            queues(|load| [("accept", load.accept_qlen), ("syn", load.syn_qlen)]),
        ),
        gauge(
            "guard_queue_limit",
            "connections",
            "How many a listener's queue holds",
            queues(|load| [("accept", load.accept_limit), ("syn", load.syn_limit)]),
        ),
        counter(
            "kernel_events",
            "events",
            "What the kernel did with SYNs and handshakes of observed listeners",
            kernels.collect(),
        ),
    ]
}

/// Of servers that are followed.
fn of_servers(sample: &Sample) -> [Metric; 6] {
    fn each<T>(sample: &Sample, value: impl Fn(ServerSample) -> Option<T>) -> Vec<(Labels, T)> {
        let followed = sample.listeners.iter().filter_map(|of| Some((of, of.service?)));
        followed.filter_map(|(of, service)| Some((labels(of, None), value(service)?))).collect()
    }
    [
        gauge(
            "guard_waiting",
            "connections",
            "Those that wait for the server",
            each(sample, |service| Some(service.counted as f64)),
        ),
        gauge(
            "guard_waiting_limit",
            "connections",
            "How many may wait for the server",
            each(sample, |service| service.limit.map(f64::from)),
        ),
        histogram(
            "guard_waiting_connections",
            "connections",
            "How many waited for the server, at each of twenty looks a second",
            each(sample, |service| Some(waiting(&service))),
        ),
        gauge(
            "guard_completed_ratio",
            "ratio",
            "Share of the SYNs let through that is expected to become connections, 0 to 1",
            each(sample, |service| Some(service.completed_share())),
        ),
        counter(
            "guard_answered",
            "connections",
            "Those whose response has begun; an estimate while one in four is followed",
            each(sample, |service| Some(service.answered as f64)),
        ),
        histogram(
            "guard_response_seconds",
            "seconds",
            "From the request to the beginning of the response, of those that many later ones did not overtake",
            each(sample, |service| Some(responses(&service))),
        ),
    ]
}

fn waiting(service: &ServerSample) -> Distribution {
    let looks = service.waited.looks;
    // A bucket that ends below 2^k has whole numbers up to 2^k - 1.
    let up_to = looks.cumulative().into_iter().take(WAITING_BOUNDS);
    let up_to = up_to.map(|(end, looks)| ((end - 1) as f64, looks));
    Distribution::cumulative(&up_to.collect::<Vec<_>>(), looks.count(), service.waited.sum as f64)
}

fn responses(service: &ServerSample) -> Distribution {
    let sum = service.response_time.as_secs_f64();
    Distribution::cumulative(&service.response_buckets(), service.answered_in_turn, sum)
}

/// Of the guard itself, and what it makes of each listener.
fn of_guard(listeners: &[ListenerStatus], hooks: &[Place], lease_end: SystemTime) -> [Metric; 5] {
    let listen = |of: &ListenerStatus| ("listen", of.listen.to_string());
    let each = |value: fn(&ListenerStatus) -> Option<f64>| {
        listeners.iter().filter_map(|of| Some((vec![listen(of)], value(of)?))).collect::<Vec<_>>()
    };
    let states = listeners.iter().flat_map(|of| {
        let is = |state: State| {
            (vec![listen(of), ("state", state.name())], f64::from(u8::from(of.state == state)))
        };
        State::ALL.map(is)
    });
    let places = hooks.iter().map(|Place { interface, hook, .. }| {
        (vec![("interface", interface.clone()), ("hook", (*hook).to_owned())], 1.0)
    });
    [
        gauge(
            "guard_state",
            "truth value",
            "1 for the state that a listener was in during the last second, 0 for all others",
            states.collect(),
        ),
        gauge(
            "guard_utilisation_ratio",
            "ratio",
            "Connections that waited in the last second, of how many may; of a server that is not followed, its accept queue's",
            each(|of| of.utilisation),
        ),
        gauge(
            "guard_weight_ratio",
            "ratio",
            "What a balancer should send the server, of its usual share",
            each(|of| Some(if of.drain { 0.0 } else { f64::from(of.weight_percent) / 100.0 })),
        ),
        gauge("guard_hook", "truth value", "1 where the guard is attached", places.collect()),
        gauge(
            "guard_lease_end_timestamp_seconds",
            "seconds",
            "Since the Unix epoch: when the kernel decides alone, unless the guard renews its lease as it does 20 times a second",
            vec![(Vec::new(), unix_s(lease_end))],
        ),
    ]
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
    Metric { name: family.name, unit: telemetry::unit_of(family), help: family.help, values }
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
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;
    use std::time::{Duration, UNIX_EPOCH};

    use guard::{Listener, ListenerStats, PathStats, Waiting};

    use serde_json::Value;

    use super::super::status::Seconds;
    use super::*;
    use crate::exporter::page;

    /// Files for those who watch guards.
    const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy");
    const DASHBOARD: &str = "grafana/tidegate.json";

    /// Of a guard that has a followed listener at a hook.
    fn shown(stats: ListenerStats, service: ServerSample) -> Vec<Metric> {
        let listener =
            Listener::new("192.0.2.1:80".parse().expect("address"), "abort".parse().expect("policy"));
        let load = Some(ListenerLoad { accept_qlen: 3, accept_limit: 128, ..ListenerLoad::default() });
        let service = Some(service);
        let of = ListenerSample { listener, load, stats, service, observed: None, is_blind: false };
        let sample = Sample { listeners: vec![of], path: PathStats::default(), away: BTreeSet::new() };
        let hook = Place { interface: "eth0".to_owned(), hook: "tcx", before: Vec::new() };
        let listeners = Seconds::default().next(&sample, std::time::Instant::now(), true);
        metrics(&sample, &listeners, &[hook], UNIX_EPOCH + Duration::from_secs(7))
    }

    fn values_of<'a>(metrics: &'a [Metric], name: &str) -> Vec<(&'a str, f64)> {
        let metric = metrics.iter().find(|metric| metric.name == name).expect("it is shown");
        let (Values::Counter(values) | Values::Gauge(values)) = &metric.values else { panic!("{name}") };
        let label = |labels: &'a Labels| labels.get(1).map_or("", |(_, value)| &value[..]);
        values.iter().map(|(labels, value)| (label(labels), *value)).collect()
    }

    #[test]
    fn what_was_found_full_and_what_is_expected_are_shown() {
        let stats = ListenerStats {
            accept_full: 1,
            syn_full: 2,
            server_full: 3,
            over_budget: 4,
            late: 5,
            ..ListenerStats::default()
        };
        let service = ServerSample { completed_ppm: 250_000, ..ServerSample::default() };
        let metrics = shown(stats, service);
        let full = [("accept", 1.0), ("syn", 2.0), ("server", 3.0)];
        assert_eq!(values_of(&metrics, "guard_syns_found_full"), full);
        assert_eq!(values_of(&metrics, "guard_completed_ratio"), [("", 0.25)]);
        assert_eq!(values_of(&metrics, "guard_syns_over_budget"), [("", 4.0)]);
        assert_eq!(values_of(&metrics, "guard_syns_late"), [("", 5.0)]);
    }

    #[test]
    fn guards_own_health_is_shown() {
        let metrics = shown(ListenerStats::default(), ServerSample::default());
        assert_eq!(values_of(&metrics, "guard_hook"), [("tcx", 1.0)]);
        assert_eq!(values_of(&metrics, "guard_lease_end_timestamp_seconds"), [("", 7.0)]);
        let states = values_of(&metrics, "guard_state");
        assert_eq!((states.len(), states[0]), (State::ALL.len(), ("idle", 1.0)));
        assert_eq!(states.iter().map(|(_, value)| value).sum::<f64>(), 1.0);
        assert_eq!(values_of(&metrics, "guard_weight_ratio"), [("", 1.0)]);
    }

    #[test]
    fn times_and_waiting_connections_are_spread_over_buckets() {
        let mut waited = Waiting { sum: 100_004, ..Waiting::default() };
        [0, 1, 3, 100_000].into_iter().for_each(|waiting| waited.looks.add(waiting));
        let mut service = ServerSample { waited, answered_in_turn: 2, ..ServerSample::default() };
        service.responses_us.add(1000);
        service.response_time = Duration::from_millis(61);
        let metrics = shown(ListenerStats::default(), service);
        let of = |name: &str| {
            let metric = metrics.iter().find(|metric| metric.name == name).expect("it is shown");
            let Values::Histogram(values) = &metric.values else { panic!("{name}") };
            values[0].1.clone()
        };
        let waiting = of("guard_waiting_connections");
        assert_eq!(waiting.buckets[..4], [(0.0, 1), (1.0, 1), (3.0, 1), (7.0, 0)]);
        assert_eq!((waiting.buckets[17], waiting.count, waiting.sum), ((f64::MAX, 1), 4, 100_004.0));
        let responses = of("guard_response_seconds");
        assert!(responses.buckets.contains(&(0.001024, 1)), "{responses:?}");
        assert_eq!((responses.count, responses.sum), (2, 0.061));
    }

    fn read(file: &str) -> String {
        std::fs::read_to_string(Path::new(DEPLOY).join(file)).expect(file)
    }

    /// Words that begin as our metrics do.
    fn names_in(text: &str) -> BTreeSet<&str> {
        let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
        let words = text.split(|c| !is_of_name(c));
        words.filter(|word| word.starts_with("tidegate_") || word.starts_with("process_")).collect()
    }

    #[test]
    fn dashboard_and_alerts_ask_for_what_is_shown() {
        let mut all = shown(ListenerStats::default(), ServerSample::default());
        all.push(Metric {
            name: "build_info",
            unit: "constant",
            help: "Of every program",
            values: Values::Gauge(Vec::new()),
        });
        let page = page(&all);
        let kinds = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let names: BTreeSet<String> = kinds
            .flat_map(|(name, kind)| match kind {
                "histogram" => ["_bucket", "_sum", "_count"].map(|end| format!("{name}{end}")).to_vec(),
                _ => vec![name.to_owned()],
            })
            .collect();
        for file in [DASHBOARD, "prometheus/tidegate.rules.yml", "prometheus/tidegate.test.yml"] {
            let text = read(file);
            let asked = names_in(&text);
            assert!(asked.len() > 3, "{file}");
            for name in asked {
                assert!(names.contains(name), "{file} asks for {name}, which is not among {names:?}");
            }
        }
    }

    #[test]
    fn panel_without_data_says_why() {
        let dashboard: Value = serde_json::from_str(&read(DASHBOARD)).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let mut ids = BTreeMap::new();
        for panel in panels {
            let title = panel["title"].as_str().expect("a title");
            assert_eq!(ids.insert(panel["id"].as_u64(), title), None, "{title}");
            let said = panel["fieldConfig"]["defaults"]["noValue"].as_str().expect(title);
            assert!(said.starts_with("no data: "), "{title}: {said}");
            assert_eq!(panel["datasource"]["uid"], "${datasource}", "{title}");
            assert!(panel["targets"].as_array().is_some_and(|targets| !targets.is_empty()), "{title}");
        }
        assert!(panels.len() >= 8, "{ids:?}");
    }

    #[test]
    fn every_family_has_its_unit_and_its_help() {
        for Metric { name, unit, help, .. } in shown(ListenerStats::default(), ServerSample::default()) {
            assert!(!unit.is_empty() && help.len() > 10, "{name}");
            let measured = ["seconds", "bytes", "ratio"].into_iter().find(|unit| name.ends_with(unit));
            assert_eq!(
                measured,
                Some(unit).filter(|unit| ["seconds", "bytes", "ratio"].contains(unit)),
                "{name}"
            );
        }
    }
}
