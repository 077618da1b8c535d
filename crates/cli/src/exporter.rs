//! What was counted, for a Prometheus server that asks for it: its text format, or OpenMetrics 1.0.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::answerer::{Answerer, PATIENCE, hang_up};

/// Of a request, bytes.
const MAX_HEAD: usize = 8192;
/// How long a client may take for its page: one of 64 listeners has half a megabyte.
const TAKES_WITHIN: Duration = Duration::from_secs(2);

/// Names and values of a metric's labels.
pub type Labels = Vec<(&'static str, String)>;

/// One metric at one moment.
#[derive(Debug, Clone)]
pub struct Metric {
    /// Its name, behind `tidegate_` unless it is a `process_`. A counter's gets `_total` behind it.
    pub name: &'static str,
    /// What its values count or measure: `seconds`, `bytes`, `ratio`, `connections`. The help says
    /// it where the name does not end with it.
    pub unit: &'static str,
    /// What it is, in a phrase.
    pub help: &'static str,
    /// What it shows.
    pub values: Values,
}

/// What a metric shows.
#[derive(Debug, Clone)]
pub enum Values {
    /// Since the start.
    Counter(Vec<(Labels, f64)>),
    /// Now.
    Gauge(Vec<(Labels, f64)>),
    /// Since the start.
    Histogram(Vec<(Labels, Distribution)>),
}

/// Values by size.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Distribution {
    /// Upper bound, and how many values up to it and beyond the one before. The last bound is
    /// `f64::MAX`.
    pub buckets: Vec<(f64, u64)>,
    /// Number of all values.
    pub count: u64,
    /// Sum of all values.
    pub sum: f64,
}

impl Distribution {
    /// From bounds with how many values are up to each; all others are beyond the last.
    pub fn cumulative(up_to: &[(f64, u64)], count: u64, sum: f64) -> Self {
        let mut before = 0;
        let all = up_to.iter().copied().chain([(f64::MAX, count)]);
        let own = |(bound, up_to): (f64, u64)| {
            let own = up_to.saturating_sub(before);
            before = before.max(up_to);
            (bound, own)
        };
        Self { buckets: all.map(own).collect(), count, sum }
    }
}

impl Metric {
    fn full_name(&self) -> String {
        if self.name.starts_with("process_") {
            self.name.to_owned()
        } else {
            format!("tidegate_{}", self.name)
        }
    }

    /// The name without its unit, and that unit; the whole name if it does not end with one.
    fn split_unit(&self) -> (String, Option<Unit>) {
        let (name, unit) = (self.full_name(), self.unit.to_ascii_lowercase());
        match name.strip_suffix(&unit).and_then(|name| name.strip_suffix('_')) {
            Some(stem) => (stem.to_owned(), Some(Unit::Other(unit))),
            None => (name, None),
        }
    }
}

/// Metrics of one moment.
#[derive(Debug)]
struct Snapshot(Vec<Metric>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for metric in &self.0 {
            let Metric { help, unit, values, .. } = metric;
            let kind = match values {
                Values::Counter(_) => MetricType::Counter,
                Values::Gauge(_) => MetricType::Gauge,
                Values::Histogram(_) => MetricType::Histogram,
            };
            let (name, in_name) = metric.split_unit();
            let help = if in_name.is_some() { (*help).to_owned() } else { format!("{help} ({unit})") };
            let mut metric = encoder.encode_descriptor(&name, &help, in_name.as_ref(), kind)?;
            match values {
                Values::Counter(values) => with_each(&mut metric, values, |metric, value| {
                    metric.encode_counter::<NoLabelSet, f64, f64>(value, None)
                }),
                Values::Gauge(values) => {
                    with_each(&mut metric, values, |metric, value| metric.encode_gauge(value))
                }
                Values::Histogram(values) => {
                    with_each(&mut metric, values, |metric, Distribution { buckets, count, sum }| {
                        metric.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
                    })
                }
            }?;
        }
        Ok(())
    }
}

/// Encodes values, each with its labels if it has some.
fn with_each<T>(
    metric: &mut MetricEncoder<'_>,
    values: &[(Labels, T)],
    encode: impl Fn(&mut MetricEncoder<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    values.iter().try_for_each(|(labels, value)| {
        if labels.is_empty() {
            encode(metric, value)
        } else {
            encode(&mut metric.encode_family(&escaped(labels))?, value)
        }
    })
}

/// An interface's name may have what ends a value. `prometheus_client` 0.24 writes values as they
/// are, and one line that cannot be read costs Prometheus the whole page.
fn escaped(labels: &Labels) -> Labels {
    let escape = |value: &str| value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
    labels.iter().map(|(name, value)| (*name, escape(value))).collect()
}

/// Answers `GET /metrics` with what was published last, and `GET /status` where a status was; see
/// [`Answerer`].
pub struct Exporter {
    shown: Arc<Shown>,
    began: SystemTime,
    _answerer: Answerer,
}

#[derive(Default)]
struct Shown {
    /// Replaced as a whole: publishing must not wait for a page that is being written.
    metrics: Mutex<Arc<Vec<Metric>>>,
    /// JSON.
    status: Mutex<Option<Arc<str>>>,
}

impl Exporter {
    /// Listens at an address. `may_wait`: or once it is free.
    ///
    /// # Errors
    ///
    /// Those of [`Answerer::bind`].
    pub fn bind(address: SocketAddr, may_wait: bool) -> Result<Self> {
        let shown = Arc::<Shown>::default();
        let of_thread = Arc::clone(&shown);
        let answer = move |client| answer(client, &of_thread);
        let answerer = Answerer::bind("--prometheus", address, may_wait, answer)?;
        Ok(Self { shown, began: SystemTime::now(), _answerer: answerer })
    }

    /// Shows these metrics from now on, and what every program shows.
    pub fn publish(&self, mut metrics: Vec<Metric>) {
        metrics.extend(of_process(self.began));
        *self.shown.metrics.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(metrics);
    }

    /// Shows this JSON from now on.
    pub fn publish_status(&self, status: &str) {
        *self.shown.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::from(status));
    }
}

/// Which program, and since when.
fn of_process(began: SystemTime) -> [Metric; 2] {
    let version = vec![("version", experiment::version().to_owned())];
    [
        Metric {
            name: "build_info",
            unit: "constant",
            help: "1, with the version of the program as a label",
            values: Values::Gauge(vec![(version, 1.0)]),
        },
        Metric {
            name: "process_start_time_seconds",
            unit: "seconds",
            help: "Start of the process since the Unix epoch",
            values: Values::Gauge(vec![(Vec::new(), unix_s(began))]),
        },
    ]
}

/// Seconds since the Unix epoch.
pub fn unix_s(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

fn answer(mut client: TcpStream, shown: &Shown) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let head = read_head(&mut client, deadline)?;
    let Some((line, fields)) = head.split_once("\r\n") else { return Ok(()) };
    let path = line.strip_prefix("GET ").and_then(|rest| rest.split([' ', '?']).next());
    let status = shown.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (code, kind, page) = match (path, status) {
        (Some("/metrics"), _) => {
            let metrics = Arc::clone(&shown.metrics.lock().unwrap_or_else(PoisonError::into_inner));
            let format = Format::wanted(fields);
            ("200 OK", format.content_type(), text(&metrics, format))
        }
        (Some("/status"), Some(status)) => ("200 OK", "application/json", format!("{status}\n")),
        (_, Some(_)) => {
            ("404 Not Found", "text/plain", "GET /metrics and GET /status are all there is\n".to_owned())
        }
        (_, None) => ("404 Not Found", "text/plain", "GET /metrics is all there is\n".to_owned()),
    };
    let length = page.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    write_page(&mut client, &(head + &page))?;
    hang_up(client, deadline)
}

/// A client that takes a little now and then is let go, too: others wait for it, and the program's
/// end does.
fn write_page(client: &mut TcpStream, page: &str) -> io::Result<()> {
    let deadline = Instant::now() + TAKES_WITHIN;
    let mut left = page.as_bytes();
    while !left.is_empty() {
        if Instant::now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match client.write(left)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => left = &left[written..],
        }
    }
    Ok(())
}

/// What there is of a request's head by a deadline, up to [`MAX_HEAD`] bytes.
fn read_head(client: &mut TcpStream, deadline: Instant) -> io::Result<String> {
    let mut head = [0; MAX_HEAD];
    let mut len = 0;
    while len < head.len() && !head[..len].windows(4).any(|end| end == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        client.set_read_timeout(Some(left))?;
        match client.read(&mut head[len..]) {
            Ok(0) => break,
            Ok(got) => len += got,
            // A client that says no more than its first line gets its page, too.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&head[..len]).into_owned())
}

/// How metrics are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    OpenMetrics,
}

impl Format {
    /// What the fields of a request's head ask for. OpenMetrics must be named; among equals it goes
    /// first, because it has units.
    fn wanted(fields: &str) -> Self {
        let accept = fields.split("\r\n").filter_map(|field| {
            let (name, value) = field.split_once(':')?;
            name.eq_ignore_ascii_case("accept").then_some(value)
        });
        let (mut open, mut text) = (0.0, 0.0);
        for range in accept.flat_map(|value| value.split(',')) {
            let mut words = range.split(';').map(|word| word.trim().to_ascii_lowercase());
            let kind = words.next().unwrap_or_default();
            let quality = words.find_map(|word| word.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
            match &kind[..] {
                "application/openmetrics-text" => open = f64::max(open, quality),
                "text/plain" => text = f64::max(text, quality),
                _ => {}
            }
        }
        if open > 0.0 && open >= text { Self::OpenMetrics } else { Self::Text }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The page that Prometheus gets, in its text format.
#[cfg(test)]
pub fn page(metrics: &[Metric]) -> String {
    text(metrics, Format::Text)
}

fn text(metrics: &[Metric], format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(metrics.to_vec())));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes all");
    match format {
        Format::OpenMetrics => text,
        Format::Text => older(&text, metrics),
    }
}

/// OpenMetrics as the text format has it: no units and no end, and what describes a counter has the
/// name of its series.
fn older(text: &str, metrics: &[Metric]) -> String {
    let counters: BTreeSet<String> = metrics
        .iter()
        .filter(|metric| matches!(metric.values, Values::Counter(_)))
        .map(Metric::full_name)
        .collect();
    let line = |line: &str| {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => None,
            (Some("#"), Some(what), Some(name), Some(rest)) if counters.contains(name) => {
                Some(format!("# {what} {name}_total {rest}\n"))
            }
            _ => Some(format!("{line}\n")),
        }
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::slice;

    use nix::sys::socket::sockopt::{RcvBuf, TcpMaxSeg};
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket};

    use super::*;
    use crate::answerer::tests::free;

    fn of_each_kind() -> Vec<Metric> {
        fn one<T>(value: T) -> Vec<(Labels, T)> {
            vec![(vec![("listen", "10.0.0.1:80".to_owned())], value)]
        }
        let metric = |name, unit, values| Metric { name, unit, help: "Help", values };
        let distribution = Distribution::cumulative(&[(0.1, 2)], 3, 1.5);
        vec![
            metric("guard_syns", "syns", Values::Counter(one(3.0))),
            metric("limit", "connections", Values::Gauge(one(0.5))),
            metric("live", "connections", Values::Gauge(vec![(vec![], 7.0)])),
            metric("spent_seconds", "seconds", Values::Histogram(vec![(vec![], distribution.clone())])),
            metric("by_listener_seconds", "seconds", Values::Histogram(one(distribution))),
        ]
    }

    #[track_caller]
    fn assert_lines(text: &str, wanted: &[&str]) {
        for line in wanted {
            assert!(text.lines().any(|of| of == *line), "no {line} in:\n{text}");
        }
    }

    #[test]
    fn metrics_are_openmetrics_text_with_their_units() {
        let text = text(&of_each_kind(), Format::OpenMetrics);
        assert_lines(
            &text,
            &[
                "# TYPE tidegate_guard_syns counter",
                "# UNIT tidegate_guard_syns syns",
                "tidegate_guard_syns_total{listen=\"10.0.0.1:80\"} 3.0",
                "# HELP tidegate_limit Help (connections)",
                "tidegate_limit{listen=\"10.0.0.1:80\"} 0.5",
                "tidegate_live 7.0",
                "# UNIT tidegate_spent_seconds seconds",
                "tidegate_spent_seconds_bucket{le=\"0.1\"} 2",
                "tidegate_spent_seconds_bucket{le=\"+Inf\"} 3",
                "tidegate_spent_seconds_sum 1.5",
                "tidegate_by_listener_seconds_bucket{le=\"0.1\",listen=\"10.0.0.1:80\"} 2",
                "# EOF",
            ],
        );
    }

    #[test]
    fn metrics_are_prometheus_text_with_one_name_per_counter() {
        let text = text(&of_each_kind(), Format::Text);
        assert_lines(
            &text,
            &[
                "# HELP tidegate_guard_syns_total Help",
                "# TYPE tidegate_guard_syns_total counter",
                "tidegate_guard_syns_total{listen=\"10.0.0.1:80\"} 3.0",
                "# TYPE tidegate_live gauge",
                "# TYPE tidegate_spent_seconds histogram",
                "tidegate_spent_seconds_count 3",
            ],
        );
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn format_is_the_one_that_is_asked_for() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            (prometheus, Format::OpenMetrics),
            ("text/plain;version=0.0.4;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5", Format::Text),
            ("application/openmetrics-text; q=0", Format::Text),
            ("*/*", Format::Text),
        ] {
            assert_eq!(Format::wanted(&format!("Host: x\r\naccept: {accept}\r\n\r\n")), format, "{accept}");
        }
        assert_eq!(Format::wanted(""), Format::Text);
    }

    #[test]
    fn values_beyond_the_last_bound_are_in_a_bucket_without_one() {
        let of = Distribution::cumulative(&[(1.0, 4), (2.0, 9)], 10, 12.5);
        assert_eq!(of.buckets, [(1.0, 4), (2.0, 5), (f64::MAX, 1)]);
    }

    fn ask(address: SocketAddr, question: &str) -> String {
        let mut client = TcpStream::connect(address).expect("connect");
        // One that says too much may be cut off meanwhile.
        client.write_all(question.as_bytes()).ok();
        let mut reply = String::new();
        client.read_to_string(&mut reply).ok();
        reply
    }

    #[test]
    fn clients_that_announce_much_or_say_nothing_stop_nobody() {
        let address = free();
        let exporter = Exporter::bind(address, false).expect("bind");
        exporter.publish(of_each_kind());
        let _silent = TcpStream::connect(address).expect("connect");
        let huge =
            "POST /metrics HTTP/1.1\r\nContent-Length: 18446744073709551615\r\nExpect: 100-continue\r\n\r\n";
        assert!(ask(address, huge).starts_with("HTTP/1.1 404"));
        assert_eq!(ask(address, &"x".repeat(100_000)), "", "no line");
        let start = Instant::now();
        assert!(ask(address, "GET /metrics HTTP/1.1\r\n").contains("tidegate_live 7.0\n"), "no more is said");
        assert!(start.elapsed() < 10 * PATIENCE);
        let open = ask(address, "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text\r\n\r\n");
        assert!(open.ends_with("# EOF\n") && open.contains("openmetrics-text; version=1.0.0"), "{open}");
        let version = format!("tidegate_build_info{{version=\"{}\"}} 1.0\n", experiment::version());
        assert!(open.contains(&version) && open.contains("\nprocess_start_time_seconds "), "{open}");
        drop(exporter);
        assert!(TcpStream::connect(address).is_err(), "nothing stays");
    }

    #[test]
    fn value_of_a_label_may_have_any_character() {
        let labels = vec![("interface", "a\"b\\\n".to_owned())];
        let hook = Metric {
            name: "guard_hook",
            unit: "truth value",
            help: "Help",
            values: Values::Gauge(vec![(labels, 1.0)]),
        };
        for format in [Format::Text, Format::OpenMetrics] {
            assert_lines(
                &text(slice::from_ref(&hook), format),
                &[r#"tidegate_guard_hook{interface="a\"b\\\n"} 1.0"#],
            );
        }
    }

    #[test]
    fn client_that_takes_its_page_little_by_little_is_let_go() {
        let address = free();
        let exporter = Exporter::bind(address, false).expect("bind");
        let value = |number: u32| (vec![("listen", number.to_string())], 1.0);
        let values = Values::Gauge((0..200_000).map(value).collect());
        exporter.publish(vec![Metric { name: "live", unit: "connections", help: "Help", values }]);
        let client =
            socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("socket");
        setsockopt(&client, RcvBuf, &2304).expect("set");
        setsockopt(&client, TcpMaxSeg, &536).expect("set");
        connect(client.as_raw_fd(), &SockaddrStorage::from(address)).expect("connect");
        let mut client = TcpStream::from(client);
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("ask");
        let reader = std::thread::spawn(move || {
            let (mut some, start) = ([0; 1500], Instant::now());
            while start.elapsed() < 3 * TAKES_WITHIN && client.read(&mut some).is_ok_and(|length| length > 0)
            {
                std::thread::sleep(PATIENCE / 4);
            }
        });
        std::thread::sleep(PATIENCE);
        let start = Instant::now();
        drop(exporter);
        assert!(start.elapsed() < 2 * TAKES_WITHIN, "its end waits for nobody: {:?}", start.elapsed());
        reader.join().expect("it ends");
    }

    #[test]
    fn status_is_there_once_it_is_published() {
        let address = free();
        let exporter = Exporter::bind(address, false).expect("bind");
        let status = || ask(address, "GET /status HTTP/1.1\r\n\r\n");
        assert!(status().ends_with("GET /metrics is all there is\n"));
        exporter.publish_status("{}");
        let page = status();
        assert!(
            page.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                && page.ends_with("{}\n")
        );
    }
}
