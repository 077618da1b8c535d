//! What was counted, for a Prometheus server that asks for it (OpenMetrics 1.0).

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Result, anyhow};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use tiny_http::{Header, Method, Response, Server};

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
    /// Since the start: how many up to each bound and beyond the one before, and how many and how much in all.
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
struct Snapshot(Vec<Metric>);

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Metric { name, help, values } in &self.0 {
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

/// Answers `GET /metrics` with what was published last, from a thread of its own, until it is dropped.
pub struct Exporter {
    server: Arc<Server>,
    page: Arc<Mutex<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Listens at an address.
    ///
    /// # Errors
    ///
    /// One line: who listens there already, or what else the system says.
    pub fn bind(address: SocketAddr) -> Result<Self> {
        let server = Server::http(address)
            .map_err(|error| anyhow!("--prometheus {address}: {error}; name another address and port"))?;
        let server = Arc::new(server);
        let page = Arc::new(Mutex::new(text(Vec::new())));
        let (asked, shown) = (Arc::clone(&server), Arc::clone(&page));
        let thread = std::thread::spawn(move || answer(&asked, &shown));
        Ok(Self { server, page, thread: Some(thread) })
    }

    /// Shows these metrics from now on.
    pub fn publish(&self, metrics: Vec<Metric>) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text(metrics);
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.server.unblock();
        self.thread.take().map(JoinHandle::join);
    }
}

fn answer(server: &Server, page: &Mutex<String>) {
    let content_type = Header::from_bytes("Content-Type", CONTENT_TYPE).expect("a header field");
    for request in server.incoming_requests() {
        let is_ours = *request.method() == Method::Get && request.url() == "/metrics";
        // Whoever asked may be gone.
        let _ = if is_ours {
            let page = page.lock().unwrap_or_else(PoisonError::into_inner).clone();
            request.respond(Response::from_string(page).with_header(content_type.clone()))
        } else {
            request.respond(Response::from_string("GET /metrics is all there is\n").with_status_code(404))
        };
    }
}

fn text(metrics: Vec<Metric>) -> String {
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
        let text = text(vec![
            metric("syns", Values::Counter(one(3.0))),
            metric("limit", Values::Gauge(one(0.5))),
            metric("live", Values::Gauge(vec![(vec![], 7.0)])),
            metric(
                "seconds",
                Values::Histogram { buckets: vec![(0.1, 2), (f64::MAX, 1)], count: 3, sum: 1.5 },
            ),
        ]);
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
}
