//! What was counted, for a Prometheus server that asks for it (OpenMetrics 1.0).

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

/// Of a request, bytes.
const MAX_LINE: usize = 2048;
/// How long a client may take.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two looks whether somebody asks.
const NAP: Duration = Duration::from_millis(20);
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Names and values of a metric's labels.
pub type Labels = Vec<(&'static str, String)>;

/// One metric at one moment.
#[derive(Debug)]
pub struct Metric {
    /// Its name, behind `tidegate_`. A counter's gets `_total` behind it.
    pub name: &'static str,
    /// What it is, in a phrase.
    pub help: &'static str,
    /// What it shows.
    pub values: Values,
}

/// What a metric shows.
#[derive(Debug)]
pub enum Values {
    /// Since the start.
    Counter(Vec<(Labels, f64)>),
    /// Now.
    Gauge(Vec<(Labels, f64)>),
    /// Since the start: how many up to each bound and beyond the one before, and how many and how
    /// much in all.
    Histogram {
        /// Upper bound and count, by bound.
        buckets: Vec<(f64, u64)>,
        /// Of all.
        count: u64,
        /// Of all.
        sum: f64,
    },
}

/// Metrics of one moment.
#[derive(Debug)]
struct Snapshot(Arc<Vec<Metric>>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Metric { name, help, values } in self.0.iter() {
            let kind = match values {
                Values::Counter(_) => MetricType::Counter,
                Values::Gauge(_) => MetricType::Gauge,
                Values::Histogram { .. } => MetricType::Histogram,
            };
            let mut metric = encoder.encode_descriptor(name, help, None, kind)?;
            match values {
                Values::Counter(values) => {
                    for (labels, value) in values {
                        with(&mut metric, labels, |metric| {
                            metric.encode_counter::<NoLabelSet, f64, f64>(value, None)
                        })?;
                    }
                }
                Values::Gauge(values) => {
                    for (labels, value) in values {
                        with(&mut metric, labels, |metric| metric.encode_gauge(value))?;
                    }
                }
                Values::Histogram { buckets, count, sum } => {
                    metric.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// Encodes one value, with its labels if it has some.
fn with(
    metric: &mut MetricEncoder<'_>,
    labels: &Labels,
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    if labels.is_empty() { encode(metric) } else { encode(&mut metric.encode_family(labels)?) }
}

/// Answers `GET /metrics` with what was published last, from a thread of its own, until it is
/// dropped.
///
/// One client at a time, and each has a fifth of a second. No more is read than the first line:
/// whoever may connect must not stop the process, nor fill it. The small HTTP libraries do not keep
/// to that. `tiny_http` 0.12 has no time limit, starts a thread for each silent client, reads a
/// line of any length, and never listens again once the host had no file descriptor left. `oxhttp`
/// 0.3 cannot be stopped, and reads as much as a client announces.
pub struct Exporter {
    shown: Arc<Shown>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shown {
    /// Replaced as a whole: publishing must not wait for a page that is being written.
    metrics: Mutex<Arc<Vec<Metric>>>,
    is_over: AtomicBool,
}

impl Exporter {
    /// Listens at an address.
    ///
    /// # Errors
    ///
    /// One line: who listens there already, or what else the system says.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let listener = listen(address).map_err(|error| cannot_listen(address, &error))?;
        Ok(Self::start(move |shown| answer_all(&listener, shown)))
    }

    /// Listens at an address, or once it is free: somebody whose place we take may have it still.
    ///
    /// # Errors
    ///
    /// As [`Exporter::bind`], but for one that is in use.
    pub fn bind_when_free(address: SocketAddr) -> Result<Self> {
        match listen(address) {
            Ok(listener) => return Ok(Self::start(move |shown| answer_all(&listener, shown))),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(cannot_listen(address, &error)),
        }
        Ok(Self::start(move |shown| {
            while !shown.is_over.load(Ordering::Relaxed) {
                match listen(address) {
                    Ok(listener) => return answer_all(&listener, shown),
                    Err(_) => sleep(NAP),
                }
            }
        }))
    }

    fn start(run: impl FnOnce(&Shown) + Send + 'static) -> Self {
        let shown = Arc::new(Shown::default());
        let of_thread = Arc::clone(&shown);
        let thread = std::thread::spawn(move || run(&of_thread));
        Self { shown, thread: Some(thread) }
    }

    /// Shows these metrics from now on.
    pub fn publish(&self, metrics: Vec<Metric>) {
        *self.shown.metrics.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(metrics);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.shown.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Where to listen, as it is asked for.
pub fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    let address = text.parse().ok().filter(|address: &SocketAddr| address.port() > 0);
    address.ok_or("an address and a port above 0 are wanted, as in 127.0.0.1:9464 or [::1]:9464")
}

fn cannot_listen(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    anyhow!("--prometheus {address}: {error}; name another address and port")
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn answer_all(listener: &TcpListener, shown: &Shown) {
    while !shown.is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            // Whoever asked may be gone.
            Ok((client, _)) => drop(answer(client, shown)),
            Err(_) => sleep(NAP), // nobody, or no descriptor just now
        }
    }
}

fn answer(mut client: TcpStream, shown: &Shown) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    client.set_nonblocking(false)?;
    client.set_write_timeout(Some(PATIENCE))?;
    let mut head = [0; MAX_LINE];
    let mut len = 0;
    let line = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if len == head.len() || left.is_zero() {
            return Ok(());
        }
        client.set_read_timeout(Some(left))?;
        let got = client.read(&mut head[len..])?;
        if got == 0 {
            return Ok(());
        }
        len += got;
        if let Some(end) = head[..len].windows(2).position(|pair| pair == b"\r\n") {
            break &head[..end];
        }
    };
    let is_ours = line.starts_with(b"GET /metrics ") || line.starts_with(b"GET /metrics?");
    let (status, kind, page) = if is_ours {
        let metrics = Arc::clone(&shown.metrics.lock().unwrap_or_else(PoisonError::into_inner));
        ("200 OK", CONTENT_TYPE, text(metrics))
    } else {
        ("404 Not Found", "text/plain", "GET /metrics is all there is\n".to_owned())
    };
    let length = page.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    client.write_all(head.as_bytes())?;
    client.write_all(page.as_bytes())?;
    // What was not read would make the kernel reset the connection, before the page is there.
    client.shutdown(Shutdown::Write)?;
    let mut rest = [0; 1024];
    while !deadline.saturating_duration_since(Instant::now()).is_zero() && client.read(&mut rest)? > 0 {}
    Ok(())
}

fn text(metrics: Arc<Vec<Metric>>) -> String {
    let mut registry = Registry::with_prefix("tidegate");
    registry.register_collector(Box::new(Snapshot(metrics)));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a String takes all");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_openmetrics_text() {
        let one = |value| vec![(vec![("listen", "10.0.0.1:80".to_owned())], value)];
        let metric = |name, values| Metric { name, help: "Help", values };
        let text = text(Arc::new(vec![
            metric("syns", Values::Counter(one(3.0))),
            metric("limit", Values::Gauge(one(0.5))),
            metric("live", Values::Gauge(vec![(vec![], 7.0)])),
            metric(
                "seconds",
                Values::Histogram { buckets: vec![(0.1, 2), (f64::MAX, 1)], count: 3, sum: 1.5 },
            ),
        ]));
        for line in [
            "# TYPE tidegate_syns counter",
            "tidegate_syns_total{listen=\"10.0.0.1:80\"} 3.0",
            "tidegate_limit{listen=\"10.0.0.1:80\"} 0.5",
            "tidegate_live 7.0",
            "tidegate_seconds_bucket{le=\"0.1\"} 2",
            "tidegate_seconds_bucket{le=\"+Inf\"} 3",
            "tidegate_seconds_sum 1.5",
            "# EOF",
        ] {
            assert!(text.lines().any(|of| of == line), "no {line} in:\n{text}");
        }
    }
    fn ask(address: SocketAddr, question: &str) -> String {
        let mut client = TcpStream::connect(address).expect("connect");
        // Who says too much may be cut off while he speaks.
        client.write_all(question.as_bytes()).ok();
        let mut reply = String::new();
        client.read_to_string(&mut reply).ok();
        reply
    }

    /// A port that is free just now.
    fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
    }

    #[test]
    fn clients_that_announce_much_or_say_nothing_stop_nobody() {
        let address = free();
        let exporter = Exporter::bind(address).expect("bind");
        exporter.publish(vec![Metric {
            name: "live",
            help: "Help",
            values: Values::Gauge(vec![(vec![], 7.0)]),
        }]);
        let _silent = TcpStream::connect(address).expect("connect");
        let huge =
            "POST /metrics HTTP/1.1\r\nContent-Length: 18446744073709551615\r\nExpect: 100-continue\r\n\r\n";
        assert!(ask(address, huge).starts_with("HTTP/1.1 404"));
        assert_eq!(ask(address, &"x".repeat(100_000)), "", "no line");
        assert!(ask(address, "GET /metrics HTTP/1.1\r\n\r\n").ends_with("tidegate_live 7.0\n# EOF\n"));
        drop(exporter);
        assert!(TcpStream::connect(address).is_err(), "nothing stays");
    }

    #[test]
    fn successor_has_the_address_once_it_is_free() {
        let address = free();
        let first = Exporter::bind(address).expect("bind");
        assert!(Exporter::bind(address).is_err());
        let second = Exporter::bind_when_free(address).expect("it waits");
        drop(first);
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(start.elapsed() < Duration::from_secs(10), "it never listens");
            sleep(NAP);
        }
        drop(second);
    }
}
