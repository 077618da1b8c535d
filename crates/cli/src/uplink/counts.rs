//! What an uplink has counted, as lines, JSON and metrics.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use ::uplink::{BandCount, Order, SentResponse, Setup, Source, Uplink};
use anyhow::Result;
use aqm::Rate;
use aqm::fluid::{self, Arrival};
use schemars::JsonSchema;
use serde::Serialize;
use units::Nanos;

use crate::exporter::{Labels, Metric, Values};
use crate::output::Timed;

/// Upper bounds of the size classes, bytes; the last one has none.
const CLASSES: [u64; 4] = [1_000, 10_000, 100_000, 1_000_000];

/// How many of the last responses the orders are compared by.
const COMPARED: usize = 50_000;

/// A line of `tidegate uplink --json`, told apart by its `event` key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum UplinkEvent {
    /// At the start.
    Started(Started),
    /// Once in each `--interval`.
    Sample(Counted),
    /// The last line.
    Final(Final),
}

/// What was begun.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Started {
    /// Interface.
    interface: String,
    /// Of the uplink, bits per second; null below somebody else's class.
    rate_bps: Option<u64>,
    /// `srpt`, `las` or `fair`.
    order: &'static str,
    /// Whether every packet is left alone.
    dry_run: bool,
    /// Sources of sizes that this host does not have, and why.
    missing_sources: Vec<Missing>,
}

/// A source of sizes that is not to be had.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Missing {
    /// Its name.
    source: &'static str,
    /// Why.
    why: String,
}

/// What was counted since the start.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Counted {
    /// Since the start, seconds.
    elapsed_s: f64,
    /// Bytes left at which a response changes its band.
    cutoffs_bytes: Vec<u64>,
    /// The top band first.
    bands: Vec<Band>,
    /// Packets that were not placed: of no TCP connection of this host, or of one that --listen
    /// does not name.
    others: Band,
    /// Responses by their size, the smallest first.
    sizes: Vec<SizeClass>,
    /// Responses by how their size was known.
    sources: Vec<SourceCount>,
    /// Responses that were sent and are in none of these counts.
    uncounted_responses: u64,
}

/// What was counted, and what the order matters.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Final {
    #[serde(flatten)]
    counted: Counted,
    /// null without a rate, or without a response.
    comparison: Option<Comparison>,
}

/// The last responses on a link of that rate that divides itself as finely as it likes and sends
/// nothing else: response times, mean, seconds.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct Comparison {
    /// How many.
    responses: usize,
    /// If all share the link equally.
    fair_s: f64,
    /// With the shortest first: no order has a smaller mean.
    srpt_s: f64,
    /// The same by their size, the smallest first; none without a response.
    sizes: Vec<ComparedClass>,
}

/// Of one size class.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
struct ComparedClass {
    /// Header and body are so many bytes at most; null: any.
    up_to_bytes: Option<u64>,
    /// How many.
    responses: usize,
    /// If all share the link equally.
    fair_s: f64,
    /// With the shortest first.
    srpt_s: f64,
}

/// A band.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
struct Band {
    /// Packets that came; a buffer of several segments is one.
    packets: u64,
    /// Bytes that came, with all headers.
    bytes: u64,
    /// Packets that wait now.
    qlen_pkts: u32,
    /// Bytes that wait now.
    qlen_bytes: u32,
    /// Packets that were refused because the band was full.
    drops: u32,
    /// How long a packet waited, mean, seconds: packets that waited at each look, over packets that
    /// came (Little's law). A buffer that is cut waits as several.
    sojourn_s: f64,
    /// Of the sum behind that.
    #[serde(skip)]
    waited_pkt_s: f64,
}

impl Band {
    /// As it is so many seconds after `before`.
    fn after(count: BandCount, before: Option<&Self>, seconds: f64) -> Self {
        let BandCount { packets, bytes, qlen_pkts, qlen_bytes, drops } = count;
        let waited = before.map_or(0.0, |before| before.waited_pkt_s) + f64::from(qlen_pkts) * seconds;
        let sojourn_s = if packets == 0 { 0.0 } else { waited / packets as f64 };
        Self { packets, bytes, qlen_pkts, qlen_bytes, drops, sojourn_s, waited_pkt_s: waited }
    }
}

/// Responses of one size class.
#[derive(Debug, Clone, Copy, Default, Serialize, JsonSchema)]
struct SizeClass {
    /// Header and body are so many bytes at most; null: any.
    up_to_bytes: Option<u64>,
    /// Whose last byte was sent.
    responses: u64,
    /// Their bytes.
    bytes: u64,
    /// From the first byte that TCP handed to the queue to the last one, mean, seconds.
    mean_s: f64,
}

/// Responses whose size was known by one source.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
struct SourceCount {
    /// Its name.
    source: &'static str,
    /// Whose last byte was sent.
    responses: u64,
}

/// All that is counted.
pub(super) struct Counts {
    started: Started,
    now: Counted,
    /// As of the line before.
    before: Counted,
    /// The last responses.
    arrivals: VecDeque<Arrival>,
}

impl Counts {
    pub(super) fn new(setup: &Setup, missing: &[(Source, String)]) -> Self {
        let order =
            Order::NAMED.into_iter().find(|(_, order)| *order == setup.order).expect("each has a name").0;
        let missing = missing.iter().map(|(source, why)| Missing { source: source.name(), why: why.clone() });
        let classes = CLASSES.map(Some).into_iter().chain([None]);
        let now = Counted {
            elapsed_s: 0.0,
            cutoffs_bytes: Vec::new(),
            bands: Vec::new(),
            others: Band::default(),
            sizes: classes.map(|up_to_bytes| SizeClass { up_to_bytes, ..SizeClass::default() }).collect(),
            sources: Source::BEST_FIRST
                .map(|source| SourceCount { source: source.name(), responses: 0 })
                .to_vec(),
            uncounted_responses: 0,
        };
        let started = Started {
            interface: setup.interface.clone(),
            rate_bps: setup.rate_bps,
            order,
            dry_run: setup.is_dry_run,
            missing_sources: missing.collect(),
        };
        Self { started, before: now.clone(), now, arrivals: VecDeque::new() }
    }

    pub(super) fn add(&mut self, sent: &SentResponse) {
        let class = &mut self.now.sizes[class_of(sent.bytes)];
        class.responses += 1;
        class.bytes += sent.bytes;
        let seconds = sent.ended_ns.saturating_sub(sent.began_ns) as f64 / 1e9;
        class.mean_s += (seconds - class.mean_s) / class.responses as f64;
        let source = self.now.sources.iter_mut().find(|count| count.source == sent.source.name());
        source.expect("each has a count").responses += 1;
        if self.arrivals.len() == COMPARED {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back(Arrival { at: Nanos(sent.began_ns), bytes: sent.bytes });
    }

    fn comparison(&self) -> Option<Comparison> {
        let rate = Rate::from_bits_per_s(self.started.rate_bps?)?;
        let arrivals: Vec<Arrival> = self.arrivals.iter().copied().collect();
        let [fair, srpt] =
            [fluid::Order::Fair, fluid::Order::Srpt].map(|order| fluid::ends(order, rate, &arrivals));
        let of_class = |class: usize| {
            let is_in = |arrival: &Arrival| class_of(arrival.bytes) == class;
            let mean = |ends: &[Nanos]| {
                let all = arrivals.iter().zip(ends).filter(|(arrival, _)| is_in(arrival));
                let (arrivals, ends): (Vec<Arrival>, Vec<Nanos>) =
                    all.map(|(arrival, end)| (*arrival, *end)).unzip();
                fluid::mean_response_s(&arrivals, &ends)
            };
            let responses = arrivals.iter().filter(|arrival| is_in(arrival)).count();
            let up_to_bytes = CLASSES.get(class).copied();
            ComparedClass { up_to_bytes, responses, fair_s: mean(&fair), srpt_s: mean(&srpt) }
        };
        (!arrivals.is_empty()).then(|| Comparison {
            responses: arrivals.len(),
            fair_s: fluid::mean_response_s(&arrivals, &fair),
            srpt_s: fluid::mean_response_s(&arrivals, &srpt),
            sizes: (0..=CLASSES.len()).map(of_class).filter(|class| class.responses > 0).collect(),
        })
    }

    /// How long packets wait is the more exact, the more often this is called.
    pub(super) fn look(&mut self, elapsed: Duration, uplink: &Uplink) -> Result<()> {
        let seconds = elapsed.as_secs_f64() - self.now.elapsed_s;
        let counts = uplink.bands()?.into_iter().enumerate();
        let mut bands: Vec<Band> =
            counts.map(|(number, count)| Band::after(count, self.now.bands.get(number), seconds)).collect();
        self.now.others = bands.pop().unwrap_or_default();
        self.now.bands = bands;
        self.now.elapsed_s = elapsed.as_secs_f64();
        self.now.cutoffs_bytes = uplink.cutoffs().to_vec();
        self.now.uncounted_responses = uplink.uncounted();
        Ok(())
    }

    pub(super) fn started(&self, json: bool, uplink: &Uplink) -> String {
        let Started { interface, rate_bps, order, dry_run, missing_sources } = &self.started;
        if json {
            return written(&UplinkEvent::Started(self.started.clone()));
        }
        let rate = rate_bps.map_or_else(String::new, |rate| format!(" at {}", mbit(rate as f64)));
        let dry = if *dry_run { ", counted only" } else { "" };
        let mut text = format!("{interface}{rate}: {order}{dry}");
        if !uplink.cutoffs().is_empty() {
            let _ = write!(text, ", {}", cutoffs(uplink));
        }
        if rate_bps.is_none() && !dry_run {
            let _ = write!(
                text,
                "\n  without --rate large buffers are sent whole, and small responses wait for them: say a rate a little below the class's"
            );
        }
        for Missing { source, why } in missing_sources {
            let _ = write!(text, "\n  no sizes by {source}: {why}");
        }
        text
    }

    /// What happened since the line before.
    pub(super) fn line(&mut self, json: bool) -> String {
        let (now, before) = (&self.now, &self.before);
        let text = if json {
            written(&UplinkEvent::Sample(now.clone()))
        } else {
            let seconds = (now.elapsed_s - before.elapsed_s).max(0.001);
            let bits = 8.0 * (bytes(now).saturating_sub(bytes(before))) as f64 / seconds;
            let responses = responses(now) - responses(before);
            let waiting: u64 = now.bands.iter().map(|band| u64::from(band.qlen_bytes)).sum();
            let waiting = match self.started.dry_run {
                true => String::new(),
                false => format!("; {:.1} kB wait", waiting as f64 / 1e3),
            };
            let (seconds, mbit, known) = (now.elapsed_s, mbit(bits), known(now, before));
            format!("{seconds:4.0} s: {mbit}, {responses} responses{waiting}{known}")
        };
        self.before = self.now.clone();
        text
    }

    pub(super) fn last(&self, json: bool) -> String {
        let now = &self.now;
        if json {
            let counted = now.clone();
            return written(&UplinkEvent::Final(Final { counted, comparison: self.comparison() }));
        }
        let mut text =
            format!("{:.1} s: {} responses{}", now.elapsed_s, responses(now), known(now, &self.nothing()));
        for class in now.sizes.iter().filter(|class| class.responses > 0) {
            let bound = bound(class.up_to_bytes);
            let _ = write!(
                text,
                "\n  {bound:>14}: {:8} responses, handed over within {:.3} s",
                class.responses, class.mean_s
            );
        }
        for (number, band) in
            now.bands.iter().chain([&now.others]).enumerate().filter(|(_, band)| band.packets > 0)
        {
            let name = if number < now.bands.len() { format!("band {number}") } else { "others".to_owned() };
            let _ =
                write!(text, "\n  {name:>14}: {:8} packets, {:.1} MB", band.packets, band.bytes as f64 / 1e6);
            if number < now.bands.len() && !self.started.dry_run {
                let _ = write!(text, ", each waited {:.3} s", band.sojourn_s);
            }
            if band.drops > 0 {
                let _ = write!(text, ", {} dropped", band.drops);
            }
        }
        if let Some(Comparison { responses, fair_s, srpt_s, sizes }) = self.comparison() {
            let _ = write!(
                text,
                "\n  at this rate the last {responses} take {fair_s:.3} s in the mean if they share the link, and {srpt_s:.3} s the shortest first"
            );
            for ComparedClass { up_to_bytes, fair_s, srpt_s, .. } in sizes {
                let _ = write!(text, "\n  {:>14}: {fair_s:.3} s and {srpt_s:.3} s", bound(up_to_bytes));
            }
        }
        text
    }

    fn nothing(&self) -> Counted {
        let sources = self.now.sources.iter().map(|count| SourceCount { responses: 0, ..*count });
        Counted { sources: sources.collect(), ..self.now.clone() }
    }

    pub(super) fn metrics(&self) -> Vec<Metric> {
        let now = &self.now;
        let name =
            |number: usize| if number < now.bands.len() { number.to_string() } else { "others".to_owned() };
        let labels = |number: usize| -> Labels { vec![("band", name(number))] };
        let bands = |value: fn(&Band) -> f64| {
            let all = now.bands.iter().chain([&now.others]).enumerate();
            all.map(|(number, band)| (labels(number), value(band))).collect::<Vec<_>>()
        };
        let class = |class: &SizeClass| -> Labels {
            vec![("up_to_bytes", class.up_to_bytes.map_or("+Inf".to_owned(), |bytes| bytes.to_string()))]
        };
        let classes = |value: fn(&SizeClass) -> f64| {
            now.sizes.iter().map(|one| (class(one), value(one))).collect::<Vec<_>>()
        };
        let counter = |name, unit, help, values| Metric { name, unit, help, values: Values::Counter(values) };
        vec![
            counter(
                "uplink_packets",
                "packets",
                "Packets that came to a band",
                bands(|band| band.packets as f64),
            ),
            counter(
                "uplink_bytes",
                "bytes",
                "Bytes that came to a band, with all headers",
                bands(|band| band.bytes as f64),
            ),
            counter(
                "uplink_drops",
                "packets",
                "Packets refused by a full band",
                bands(|band| f64::from(band.drops)),
            ),
            counter(
                "uplink_waited_packet_seconds",
                "packet_seconds",
                "Seconds that all packets of a band have waited together",
                bands(|band| band.waited_pkt_s),
            ),
            Metric {
                name: "uplink_waiting_bytes",
                unit: "bytes",
                help: "Bytes that wait in a band",
                values: Values::Gauge(bands(|band| f64::from(band.qlen_bytes))),
            },
            counter(
                "uplink_responses",
                "responses",
                "Responses sent, by size class",
                classes(|class| class.responses as f64),
            ),
            counter(
                "uplink_response_seconds",
                "seconds",
                "Seconds from the first byte sent to the last, of all responses of a size class",
                classes(|class| class.mean_s * class.responses as f64),
            ),
            counter(
                "uplink_known_responses",
                "responses",
                "Responses sent, by how their size was known",
                now.sources
                    .iter()
                    .map(|count| (vec![("source", count.source.to_owned())], count.responses as f64))
                    .collect(),
            ),
            counter(
                "uplink_uncounted_responses",
                "responses",
                "Responses sent that no other count has",
                vec![(Vec::new(), now.uncounted_responses as f64)],
            ),
        ]
    }
}

/// Index of the size class of so many bytes.
fn class_of(bytes: u64) -> usize {
    CLASSES.iter().take_while(|bound| bytes > **bound).count()
}

fn bound(up_to_bytes: Option<u64>) -> String {
    up_to_bytes.map_or("larger".to_owned(), |bytes| format!("up to {} kB", bytes / 1_000))
}

/// The cutoffs in force.
pub(super) fn cutoffs(uplink: &Uplink) -> String {
    let cutoffs: Vec<String> = uplink.cutoffs().iter().map(ToString::to_string).collect();
    format!("cutoffs {} bytes", cutoffs.join(", "))
}

fn written(event: &UplinkEvent) -> String {
    Timed::json(event)
}

fn bytes(counted: &Counted) -> u64 {
    counted.bands.iter().chain([&counted.others]).map(|band| band.bytes).sum()
}

fn responses(counted: &Counted) -> u64 {
    counted.sources.iter().map(|count| count.responses).sum()
}

fn mbit(bits_per_s: f64) -> String {
    format!("{:.2} Mbit/s", bits_per_s / 1e6)
}

/// How the sizes were known between two moments.
fn known(now: &Counted, before: &Counted) -> String {
    let total = responses(now) - responses(before);
    if total == 0 {
        return String::new();
    }
    let share = |(now, before): (&SourceCount, &SourceCount)| {
        let count = now.responses - before.responses;
        (count > 0).then(|| format!("{} {:.0}%", now.source, 100.0 * count as f64 / total as f64))
    };
    let shares: Vec<String> = now.sources.iter().zip(&before.sources).filter_map(share).collect();
    format!("; sizes by {}", shares.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_wait_is_what_waited_over_what_came() {
        let count = |packets, qlen_pkts| BandCount { packets, qlen_pkts, ..BandCount::default() };
        let first = Band::after(count(100, 50), None, 1.0);
        assert_eq!(first.sojourn_s, 0.5);
        // Nothing waits for a second, and as many have come.
        let second = Band::after(count(200, 0), Some(&first), 1.0);
        assert_eq!((second.sojourn_s, Band::after(count(0, 0), None, 1.0).sojourn_s), (0.25, 0.0));
    }
}
