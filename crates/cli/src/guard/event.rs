//! The lines of `tidegate guard --json`. docs/guard.md says more of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use guard::{Listener, ListenerSample, PathStats};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value, json};
use telemetry::Reading;

/// A line, told apart by its `event` key. There is one for each listener.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum GuardEvent {
    /// At the start, and when the interfaces change, or the programs before the guard's.
    Attached(Attached),
    /// Once in each `--interval`.
    Sample(ListenerCounts),
    /// The last line.
    Final(ListenerCounts),
}

/// A listener as it is configured.
#[derive(Debug, Serialize, JsonSchema)]
struct Head {
    /// Since the start, seconds.
    elapsed_s: f64,
    /// Address and port.
    listen: String,
    /// By its name.
    policy: String,
    /// Last places of the accept queue, which only reserved sources get.
    reserved_slots: u32,
    /// Whether every count is of what would have been done.
    dry_run: bool,
}

/// Where it is guarded.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Attached {
    #[serde(flatten)]
    head: Head,
    /// On which interfaces.
    hooks: Vec<Place>,
}

/// An interface, and where on it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Place {
    /// Its name.
    pub interface: String,
    /// Where on it.
    pub hook: &'static str,
    /// Other programs that see each frame first, in their order.
    pub before: Vec<Other>,
}

/// A program of somebody else's.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Other {
    /// Where on the interface.
    hook: &'static str,
    /// Its number, as `bpftool prog` shows it.
    id: u32,
    /// Its name, at most 15 characters; null without CAP_SYS_ADMIN.
    name: Option<String>,
}

impl From<&guard::Other> for Other {
    fn from(guard::Other { hook, id, name }: &guard::Other) -> Self {
        Self { hook, id: *id, name: name.clone() }
    }
}

/// What was counted since it is guarded. The queues are as of now, in connections; null when
/// nothing listens.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ListenerCounts {
    #[serde(flatten)]
    head: Head,
    /// Established, waiting for accept(2).
    accept_qlen: Option<u32>,
    /// Above it the accept queue is full.
    accept_limit: Option<u32>,
    /// Handshakes in progress.
    syn_qlen: Option<u32>,
    /// At it the SYN queue is full.
    syn_limit: Option<u32>,
    /// Whether connections of other hosts come, of which the guard sees no SYN.
    blind: bool,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum Counts {
    /// Of a guarded listener.
    Guarded {
        /// Connections that wait for the server; null unless the policy asks. Listeners whose
        /// sockets one process holds share it.
        service: Option<ServerCounts>,
        #[serde(flatten)]
        counters: Groups,
    },
    /// Of one that is only observed.
    Observed {
        /// SYNs and ends of handshakes that the kernel dropped since the sockets of now listen.
        drops: u64,
        /// What the kernel did, by cause; null what this kernel cannot count.
        counters: Value,
    },
}

/// Connections of a server, and sums since it is followed.
#[derive(Debug, Serialize, JsonSchema)]
struct ServerCounts {
    /// Connections now of which no byte of a request was seen.
    silent: u64,
    /// Connections now with a request, and without the beginning of an answer.
    waiting: u64,
    /// Of those, connections that wait for the server and not for something else.
    counted: u64,
    /// How many may wait; null for `sojourn`, and while it learns.
    limit: Option<u32>,
    /// Whether too few answers were seen to know the usual one: the accept queue alone shows a
    /// crowd.
    learning: bool,
    /// One connection in so many is followed while few wait; above 1 the numbers here are
    /// estimates.
    follows_one_in: u16,
    /// Handshakes that ended.
    established: u64,
    /// Answers that began.
    answered: u64,
    /// Of `answered`: before they were overtaken by many who came later.
    answered_in_turn: u64,
    /// Of `answered`: before a byte of a request was seen.
    answered_silent: u64,
    /// Time in which nobody waited, up to the last request.
    idle_time_s: f64,
    /// Connections that ended without an answer.
    ended: u64,
    /// From the request to the beginning of the answer, the sum over `answered_in_turn`.
    response_time_s: f64,
    /// How the same times are spread.
    response_buckets: Vec<ResponseBucket>,
    /// What all but one answer in twenty took at least, within a factor of two.
    response_floor_s: f64,
    /// What half of the handshakes took at most, within a factor of two.
    handshake_median_s: f64,
    /// Expected share of the SYNs let through that become connections, 0 to 1.
    completed_share: f64,
}

/// Answers that took up to a bound; those above the last one are in `answered_in_turn` alone.
#[derive(Debug, Serialize, JsonSchema)]
struct ResponseBucket {
    /// Bound, seconds. Each is twice the one before.
    le_s: f64,
    /// Of `answered_in_turn`: up to this bound, so with those of the buckets before.
    count: u64,
}

/// The counters of `kernel/counters.h` in their groups; `passed` is of all listeners together.
#[derive(Debug, Serialize)]
struct Groups(BTreeMap<String, BTreeMap<String, u64>>);

impl JsonSchema for Groups {
    fn schema_name() -> Cow<'static, str> {
        "Groups".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut groups = BTreeMap::<&str, Map<String, Value>>::new();
        for entry in telemetry::catalogue() {
            let (group, name) = in_group(entry.name);
            let description = format!("{}: {}", entry.unit, entry.help);
            let count = json!({ "type": "integer", "minimum": 0, "description": description });
            groups.entry(group).or_default().insert(name.to_owned(), count);
        }
        let schema = |properties: Map<String, Value>| {
            let required: Vec<&String> = properties.keys().collect();
            json!({ "type": "object", "required": required, "properties": properties })
        };
        let required: Vec<&str> = groups.keys().copied().collect();
        let properties: BTreeMap<&str, Value> =
            groups.clone().into_iter().map(|(group, properties)| (group, schema(properties))).collect();
        json_schema!({ "type": "object", "required": required, "properties": properties })
    }
}

impl GuardEvent {
    /// Of interfaces, and where on them.
    pub fn attached(listener: &Listener, hooks: &[Place]) -> Self {
        Self::Attached(Attached { head: Head::new(Duration::ZERO, listener), hooks: hooks.to_vec() })
    }
}

impl ListenerCounts {
    /// Of one listener, and of the frames of all.
    pub fn new(elapsed: Duration, of: &ListenerSample, path: &PathStats) -> Self {
        let ListenerSample { listener, load, stats, service, observed, is_blind } = of;
        let counts = match observed {
            Some(observed) => Counts::Observed {
                drops: observed.drops,
                counters: crate::output::counters(&observed.counters),
            },
            None => Counts::Guarded {
                service: service.as_ref().map(ServerCounts::new),
                counters: Groups::new(Reading::at(elapsed).with(stats, |_| true).with(path, |_| true)),
            },
        };
        Self {
            head: Head::new(elapsed, listener),
            accept_qlen: load.map(|load| load.accept_qlen),
            accept_limit: load.map(|load| load.accept_limit),
            syn_qlen: load.map(|load| load.syn_qlen),
            syn_limit: load.map(|load| load.syn_limit),
            blind: *is_blind,
            counts,
        }
    }
}

impl Head {
    fn new(elapsed: Duration, listener: &Listener) -> Self {
        Self {
            elapsed_s: (elapsed.as_secs_f64() * 1e3).round() / 1e3,
            listen: listener.listen.to_string(),
            policy: listener.policy.to_string(),
            reserved_slots: listener.policy.reserved_slots,
            dry_run: listener.dry_run,
        }
    }
}

impl Groups {
    fn new(reading: Reading) -> Self {
        let mut groups = BTreeMap::<String, BTreeMap<String, u64>>::new();
        for (name, count) in reading.counts {
            let (group, name) = in_group(&name);
            groups.entry(group.to_owned()).or_default().insert(name.to_owned(), count);
        }
        Self(groups)
    }
}

fn in_group(name: &str) -> (&str, &str) {
    name.split_once('.').expect("a counter's name has a group, as a test of crates/kernel sees to")
}

impl ServerCounts {
    fn new(service: &guard::ServerSample) -> Self {
        Self {
            silent: service.silent,
            waiting: service.waiting,
            counted: service.counted,
            limit: service.limit,
            learning: service.is_learning,
            follows_one_in: service.follows_one_in,
            established: service.established,
            answered: service.answered,
            answered_in_turn: service.answered_in_turn,
            answered_silent: service.answered_silent,
            idle_time_s: service.idle_time.as_secs_f64(),
            ended: service.ended,
            response_time_s: service.response_time.as_secs_f64(),
            response_buckets: service
                .response_buckets()
                .into_iter()
                .map(|(le_s, count)| ResponseBucket { le_s, count })
                .collect(),
            response_floor_s: service.response_floor.as_secs_f64(),
            handshake_median_s: service.handshake_median.as_secs_f64(),
            completed_share: service.completed_share(),
        }
    }
}

#[cfg(test)]
mod tests {
    use guard::ListenerStats;
    use schemars::schema_for;

    use super::*;

    #[test]
    fn line_has_what_its_schema_says() {
        let listener =
            Listener::new("192.0.2.1:80".parse().expect("address"), "abort".parse().expect("policy"));
        let stats = ListenerStats { acks_implied: 7, ..ListenerStats::default() };
        let of = ListenerSample {
            listener,
            load: None,
            stats,
            service: Some(guard::ServerSample::default()),
            observed: None,
            is_blind: true,
        };
        let path = PathStats { had_room: 3, ..PathStats::default() };
        let event = GuardEvent::Sample(ListenerCounts::new(Duration::from_micros(1_234_567), &of, &path));
        let line = serde_json::to_value(event).expect("JSON");
        assert_eq!((&line["event"], &line["elapsed_s"]), (&"sample".into(), &1.235.into()));
        assert_eq!((&line["acks"]["implied"], &line["passed"]["had_room"]), (&7.into(), &3.into()));
        assert_eq!((&line["accept_qlen"], &line["blind"]), (&Value::Null, &true.into()));
        let bucket = &line["service"]["response_buckets"][6];
        assert_eq!((&bucket["le_s"], &bucket["count"]), (&0.001024.into(), &0.into()));
        let schema = schema_for!(GuardEvent).to_value().to_string();
        for group in ["syns", "acks", "fins", "passed", "service"] {
            for name in line[group].as_object().expect("a group").keys() {
                assert!(schema.contains(&format!("\"{name}\":")), "{group}.{name} in {schema}");
            }
        }
        assert!(schema.contains("segments: of full: data or FIN"), "{schema}");
    }
}
