//! The formats that the tools write and the report reads.
//!
//! A run of the lab is a file of JSON lines. Each line is one [`Record`], told apart by its
//! `record` key. The first is the [`Header`], then comes a [`Saturation`] per server, and a
//! [`Cell`] per point of the grid, in the order of measuring. Before a cell that was measured again
//! stand the earlier ones, as `set_aside`. A run of packet scripts has a [`Trace`] per script. At
//! last comes a [`ClaimAnswer`] per claim. `tidegate load --json` prints [`LoadEvent`]s, and
//! `tidegate link --json` writes a [`LinkSummary`]. `tidegate schema` has them as JSON Schema.
//!
//! Rates are per second and end in `_per_s`, times are in milliseconds and end in `_ms`, counts are
//! plain. `docs/measurement.md` defines each number.
//!
//! What it is not: it has no I/O and no clock. It is a crate of its own so that the report does not
//! pull in the tools whose results it reads.

mod bottleneck;
mod by_size;
mod claim;
mod event;
mod link;
mod merge;
mod seconds;
mod statuses;
mod uplink;

use std::collections::BTreeMap;

pub use bottleneck::BottleneckSummary;
pub use by_size::{BySize, SizeCount};
pub use claim::{Answer, ClaimAnswer, Estimate, Unit};
pub use event::{LoadEvent, LoadProgress};
use hdrhistogram::Histogram;
pub use link::{LinkDirection, LinkSummary, LinkTimes, PacketCount, PathSummary};
pub use merge::{Histograms, MergeError, merge, missing_parts};
use schemars::JsonSchema;
pub use seconds::Seconds;
use serde::{Deserialize, Serialize};
pub use statuses::Statuses;
pub use uplink::{UplinkSeries, UplinkSummary};

/// One line of a results file.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// What was run, and where.
    Header(Box<Header>),
    /// The saturation rate of one server.
    Saturation(Saturation),
    /// One point of the grid.
    Cell(Box<Cell>),
    /// One point of the grid that was measured again, as the machine disturbed it; its marks say
    /// how. No number of the run is of it.
    SetAside(Box<Cell>),
    /// One run of a packet script.
    Trace(Box<Trace>),
    /// What the run says of one claim.
    Claim(Box<ClaimAnswer>),
}

/// What was run, and where: enough to repeat it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Name of the experiment, as in its file.
    pub experiment: String,
    /// One sentence that says what the experiment asks.
    pub title: String,
    /// The experiment file, word for word.
    pub source: String,
    /// Start, RFC 3339 with zone.
    pub started: String,
    /// The machine and its software.
    pub environment: Environment,
    /// Where the run departs from a plain Linux server on a NIC, one sentence each.
    pub deviations: Vec<String>,
    /// Cells that the run was to measure, or runs of packet scripts; one that ended early has
    /// fewer. Older files do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned: Option<u64>,
    /// Made short, to see that all works: each point was measured once, for a second. Older files
    /// do not say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_quick: bool,
}

/// The machine and its software.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// `/proc/version`: release, compiler, build.
    pub kernel: String,
    /// CPU model, as `/proc/cpuinfo` says.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Program -> version.
    pub versions: BTreeMap<String, String>,
    /// Sysctl -> value, as the server's namespace had it.
    pub sysctls: BTreeMap<String, String>,
}

impl Environment {
    /// Kernel of a run in virtual time.
    pub const SIMULATED: &str = "a model of Linux, in virtual time";

    /// Whether the run was in virtual time.
    pub fn is_simulated(&self) -> bool {
        self.kernel == Self::SIMULATED
    }
}

/// The rate at which a server saturates, and how it was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// Name of the server, as in the experiment file.
    pub server: String,
    /// Goodput, replies/s, of the highest rate of which stock Linux answered at least 95% for as
    /// long as a cell is measured, to clients who give up before they would send their SYN again.
    pub rate_per_s: f64,
    /// What the server's CPU took meanwhile to send and receive a small datagram within itself,
    /// microseconds.
    #[serde(default)]
    pub round_trip_us: f64,
    /// Every probe: offered, goodput, both per second.
    pub probes: Vec<(f64, f64)>,
    /// Why the rate should be read with care; empty when there is no reason.
    #[serde(default)]
    pub marks: Vec<String>,
    /// In which bursts its crowd comes, if not evenly; the search is without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bursts: Option<BurstLengths>,
    /// Its crowd comes in a closed loop, and a load of 1 is so many users; there is no rate then,
    /// and `rate_per_s` is the same number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<u32>,
}

impl Saturation {
    /// The rate at which it saturates, replies/s; none of a closed loop.
    pub fn rate(&self) -> Option<f64> {
        self.users.is_none().then_some(self.rate_per_s)
    }
}

/// How long each burst of a crowd is, and each gap, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstLengths {
    /// A burst.
    pub on_s: f64,
    /// The gap after it.
    pub off_s: f64,
}

/// One point of the grid: one server under one policy at one offered load.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Name of the server.
    pub server: String,
    /// Name of the policy.
    pub policy: String,
    /// Offered load as a multiple of the saturation rate, at the machine's speed just before.
    pub load: f64,
    /// Which repetition, from 0.
    pub repetition: u32,
    /// What the crowd saw.
    pub crowd: CrowdSummary,
    /// Kernel counters of the server's namespace, as differences over the measured window; also how
    /// often its CPU turned to received frames (`softirqs.NET_RX`) and its program slept
    /// (`server.voluntary_ctxt_switches`), and the crowd's end looked for replies
    /// (`crowd_end.voluntary_ctxt_switches`; a simulated one has neither of the last two).
    pub kernel: BTreeMap<String, u64>,
    /// The same counters as they grew, a few times a second.
    pub samples: Vec<Sample>,
    /// Where the server's CPU spent the window, in shares of it.
    pub server_cpu: CpuShares,
    /// Where the crowd's CPU spent the window.
    pub crowd_cpu: CpuShares,
    /// What the guard counted from its start to its end, warm-up included, when there was one.
    pub guard: Option<BTreeMap<String, u64>>,
    /// How fast those counters grew between the guard's last words before the window's two ends,
    /// per second.
    #[serde(default)]
    pub guard_per_s: BTreeMap<String, f64>,
    /// What the guard said while the crowd came, about once a second.
    #[serde(default)]
    pub guard_samples: Vec<GuardSample>,
    /// The flood beside the crowd, when there was one.
    #[serde(default)]
    pub flood: Option<Flood>,
    /// Connections that were held beside the crowd, by kind: `idle`, `half_requests`,
    /// `slow_readers`.
    #[serde(default)]
    pub held: BTreeMap<String, Held>,
    /// Speed of the server's CPU in the window, by small datagrams within it, over that when the
    /// saturation rate was found, or, in virtual time, when the profile was measured. A neighbour
    /// on the same core may take up to half of it.
    #[serde(default)]
    pub machine_speed: Option<f64>,
    /// The same just before the cells of this load: their offered rate is the load times the
    /// saturation rate times this.
    #[serde(default)]
    pub speed_before: Option<f64>,
    /// Time in which a cache line went from the server's CPU to the crowd's and back, before or
    /// after the window, whichever was longer, ns. On a virtual machine the two may be on one chip
    /// or on two.
    #[serde(default)]
    pub core_round_trip_ns: Option<f64>,
    /// Times that it was measured before and set aside, as the machine disturbed it.
    #[serde(default)]
    pub times_set_aside: u32,
    /// The bottleneck, in an experiment with one; such a cell has no server.
    #[serde(default)]
    pub link: Option<Box<BottleneckSummary>>,
    /// The server's uplink, where it has one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uplink: Option<Box<UplinkSummary>>,
    /// The way between clients and server, where they are far from each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Box<PathSummary>>,
    /// Frames from the crowd lost before the server's stack: device backlog, rings.
    pub lost_before_server: u64,
    /// Replies lost between the server's transmit and the generator: the generator's fault.
    pub lost_replies: u64,
    /// Why this cell should be read with care; empty when there is no reason.
    pub marks: Vec<String>,
}

impl Cell {
    /// A rate per second as it were at the speed at which the saturation rate was found, by the
    /// speed just before, as the offered rate is.
    pub fn at_search_speed(&self, rate_per_s: f64) -> f64 {
        rate_per_s / self.speed_before.unwrap_or(1.0)
    }

    /// Complete replies per second as they were at that speed. A server that keeps up answers what
    /// is offered, whatever its speed, and so by [`Cell::at_search_speed`]; one that does not
    /// answers what it can, and so by the speed of the window itself.
    pub fn goodput_at_search_speed(&self) -> f64 {
        let CrowdSummary { goodput_per_s, offered_per_s, .. } = self.crowd;
        match self.machine_speed {
            Some(speed) if goodput_per_s < KEEPS_UP * offered_per_s => goodput_per_s / speed,
            _ => self.at_search_speed(goodput_per_s),
        }
    }
}

/// Share of what is offered that a server answers which keeps up, as in the search for its
/// saturation rate.
pub const KEEPS_UP: f64 = 0.95;

/// What went over the wire while a packet script was played.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Trace {
    /// Path of the script in `tests/conformance/`, without its suffix.
    pub script: String,
    /// Address family, `ipv4` or `ipv6`.
    pub family: String,
    /// Where the guard's programs were, as the script says it; [`Trace::SIMULATED`] on the
    /// simulated kernel.
    pub hook: String,
    /// Every segment: seconds since the start, the client's label, `>` from it or `<` to it, and
    /// the segment as tcpdump has it.
    pub transcript: Vec<String>,
    /// How it ended.
    pub outcome: TraceOutcome,
}

impl Trace {
    /// In the place of a hook: the kernel was simulated, and the guard nowhere in particular.
    pub const SIMULATED: &str = "simulated";

    /// Whether it was played to the simulated kernel.
    pub fn is_simulated(&self) -> bool {
        self.hook == Self::SIMULATED
    }
}

/// How a packet script ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceOutcome {
    /// Every line holds.
    #[default]
    Held,
    /// Which line does not, and why.
    Failed(String),
    /// Why it cannot be played on this kernel.
    Skipped(String),
}

/// A flood of spoofed SYNs in the measured window, as the server's end of its link counted it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Flood {
    /// SYNs that came, per second.
    pub syns_per_s: f64,
    /// Frames that left in answer, per second.
    pub answers_per_s: f64,
}

/// Connections of one kind that were opened before the crowd, and held to its end. As their client
/// knows them: one that the server has closed behind data that is never read is still open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Held {
    /// How many there should have been.
    pub asked: u64,
    /// Open when the crowd began.
    pub opened: u64,
    /// Open at its end.
    pub held: u64,
    /// RSTs, to a SYN or later; each of these connections was tried again.
    pub refused: u64,
    /// SYNs without an answer for some seconds; tried again.
    pub unanswered: u64,
    /// Closed by the server with a FIN; not tried again.
    pub closed: u64,
}

/// Kernel counters at one moment of a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Sample {
    /// Since the crowd's start, milliseconds.
    pub at_ms: f64,
    /// Counter -> growth since the crowd's start.
    pub kernel: BTreeMap<String, u64>,
    /// Accept queue of the listener, connections.
    pub accept_qlen: Option<u64>,
}

/// Who waited at one moment of a cell, as the guard said. What it did not say is `None`: nothing
/// listens, or its policy does not follow connections into the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GuardSample {
    /// Since the crowd's start, milliseconds.
    pub at_ms: f64,
    /// Accept queue of the listener, connections.
    pub accept_qlen: Option<u64>,
    /// Its SYN queue, connections.
    pub syn_qlen: Option<u64>,
    /// Connections of which no byte of a request was seen.
    pub silent: Option<u64>,
    /// Connections with a request whose response has not begun.
    pub waiting: Option<u64>,
    /// Of these, those that wait for the server: what the limit is for.
    pub counted: Option<u64>,
    /// How many may; `None` before a limit is found, too.
    pub limit: Option<u64>,
    /// Responses that began since the guard's start.
    pub answered: Option<u64>,
}

/// Shares of one CPU's time, each 0 to 1; they sum to at most 1.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuShares {
    /// In user space.
    pub user: f64,
    /// In the kernel on behalf of a process.
    pub system: f64,
    /// In softirq: receive processing, mostly.
    pub softirq: f64,
    /// Idle.
    pub idle: f64,
    /// Taken by the hypervisor.
    pub steal: f64,
}

/// What a crowd saw. Printed by `tidegate load --json`.
///
/// The *cohort* is every attempt whose intended start lies in the measured window; each of them
/// ends in exactly one cause, so that the causes sum to `offered`. Rates and response times are of
/// *events* in the window.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CrowdSummary {
    /// Length of the measured window, seconds.
    pub window_s: f64,
    /// Attempts that should have started, per second.
    pub offered_per_s: f64,
    /// Complete replies, per second.
    pub goodput_per_s: f64,
    /// SYNs sent, retransmissions included, per second.
    pub syns_per_s: f64,
    /// Cohort: every attempt of the window.
    pub offered: u64,
    /// Cohort: attempts whose first SYN left.
    pub sent: u64,
    /// Cohort: complete reply, to each request of the connection.
    pub ok: u64,
    /// Cohort: RST in answer to a SYN.
    pub refused: u64,
    /// Cohort: RST later.
    pub reset: u64,
    /// Cohort: the application's timeout before the handshake was complete.
    pub timed_out_connect: u64,
    /// Cohort: the application's timeout after it.
    pub timed_out_response: u64,
    /// Cohort: the user lost patience, and reloaded or gave up.
    #[serde(default)]
    pub aborted: u64,
    /// Cohort: the reply was not what HTTP allows, or ended early.
    pub malformed: u64,
    /// Cohort: its address had no port left; only where clients have so many ports as was said.
    #[serde(default)]
    pub no_port: u64,
    /// Cohort: never started, because the generator was stopped or had no room.
    pub not_sent: u64,
    /// Cohort: still open when the run stopped.
    pub unfinished: u64,
    /// Cohort: complete replies by the class of their status. Those of an attempt with several
    /// requests count whatever becomes of it. All 0 where an older version did not count them.
    #[serde(default)]
    pub statuses: Statuses,
    /// SYNs sent in the window divided by attempts started in it.
    pub syns_per_attempt: f64,
    /// Attempts that ended in the window by the SYNs that they sent: the first number is of those
    /// that sent one.
    #[serde(default)]
    pub ended_by_syns: Vec<u64>,
    /// The same of complete replies only.
    #[serde(default)]
    pub answered_by_syns: Vec<u64>,
    /// Attempts that users began in the window by reloading; they are part of `offered`.
    #[serde(default)]
    pub reloads: u64,
    /// Users who began in the window and got no reply in the end: the last of their attempts was
    /// aborted or timed out.
    #[serde(default)]
    pub gave_up: u64,
    /// How long users waited for a complete reply, the first on its connection, from their first
    /// attempt.
    #[serde(default)]
    pub user_ms: LatencySummary,
    /// Response time of complete replies, from when the request should have been sent: of the first
    /// request of a connection, from the intended start.
    pub response_ms: LatencySummary,
    /// How long a refused client waited for its RST, from the intended start.
    pub refusal_ms: LatencySummary,
    /// Time to the first byte of a reply, from when its request should have been sent; also of
    /// replies that ended early.
    #[serde(default)]
    pub first_byte_ms: LatencySummary,
    /// Bytes of replies, heads included, that came to an application in the window, per second.
    #[serde(default)]
    pub bytes_per_s: f64,
    /// Requests by the size that each asked for.
    #[serde(default)]
    pub sizes: BySize,
    /// Response times by the second in which users asked.
    #[serde(default)]
    pub seconds: Seconds,
    /// Replies to each group of clients, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupCount>,
    /// The histograms behind the times, so that runs can be added exactly; see [`merge()`].
    #[serde(default)]
    pub histograms: Histograms,
    /// Which parts of a crowd it is, as `--shard` has them; none of a whole one.
    #[serde(default)]
    pub shards: Vec<String>,
    /// What the generator says of itself.
    pub generator: GeneratorHealth,
}

/// Complete replies of the window to one group of clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GroupCount {
    /// How many.
    pub replies: u64,
    /// Sum of their times from the user's first try, microseconds.
    pub user_us: u64,
}

impl GroupCount {
    /// Mean response time from the first try, milliseconds; none without a reply.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.replies > 0).then(|| self.user_us as f64 / 1e3 / self.replies as f64)
    }
}

/// What the generator says of itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorHealth {
    /// True when the generator, not the server, was the limit. Never hidden, in any output.
    pub limited: bool,
    /// Why, in words; empty when not limited.
    pub reasons: Vec<String>,
    /// Share of attempts that started more than 1 ms late.
    pub late_share: f64,
    /// The latest start, milliseconds after the intended one.
    pub late_max_ms: f64,
    /// Threads that sent and received; 0 where an older version did not say.
    #[serde(default)]
    pub workers: u32,
    /// Frames lost in our own receive ring or for want of a buffer, or between workers.
    pub frames_lost: u64,
    /// Frames that found no free buffer to be sent from.
    pub frames_unsent: u64,
    /// Frames handed to the kernel.
    pub frames_sent: u64,
    /// Frames received.
    pub frames_received: u64,
    /// Of these, those that came to another worker's queue than their connection's, and were handed
    /// over.
    #[serde(default)]
    pub frames_handed_over: u64,
    /// Share of the wall time that the generator's thread was on a CPU, 0 to 1, which it is, too,
    /// while it waits for a turn that is due soon; of several workers the largest.
    pub cpu_share: f64,
    /// Turns in which it sent frames: none leaves between them. 0 where an older version did not
    /// say, or a crowd was simulated.
    #[serde(default)]
    pub turns: u64,
    /// Share of the wall time in which it had something to do, 0 to 1; of several workers the
    /// largest. 0 as above.
    #[serde(default)]
    pub busy_share: f64,
    /// Most connections alive at once.
    pub peak_connections: u64,
    /// Memory per live connection, bytes: its slot, its timer and its table entry.
    pub bytes_per_connection: u64,
    /// How frames were received: `xdp-native`, `xdp-skb`, `af-packet`.
    pub receive_mode: String,
    /// Why not by AF_XDP, where that was tried and is not to be had.
    #[serde(default)]
    pub receive_fallback: Option<String>,
}

impl GeneratorHealth {
    /// In the place of a receive mode: the crowd was simulated, on machines that cost nothing and
    /// are never late.
    pub const SIMULATED: &str = "virtual";

    /// Whether the crowd was simulated.
    pub fn is_simulated(&self) -> bool {
        self.receive_mode == Self::SIMULATED
    }
}

/// A distribution of times, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummary {
    /// Number of samples. All else is 0 when this is.
    pub count: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Squared coefficient of variation: variance over the square of the mean.
    #[serde(default)]
    pub c2: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

impl LatencySummary {
    /// Summary of a histogram of microseconds.
    pub fn from_micros(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            count: histogram.len(),
            mean: histogram.mean() / 1e3,
            c2: if histogram.mean() > 0.0 { (histogram.stdev() / histogram.mean()).powi(2) } else { 0.0 },
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max() as f64 / 1e3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_histogram_gives_zeros_not_nan() {
        let histogram = Histogram::<u64>::new(3).expect("3 digits is a valid precision");
        assert_eq!(LatencySummary::from_micros(&histogram), LatencySummary::default());
    }

    #[test]
    fn goodput_is_at_the_speed_that_made_it() {
        let goodput = |goodput_per_s| {
            let crowd = CrowdSummary { offered_per_s: 100.0, goodput_per_s, ..CrowdSummary::default() };
            Cell { crowd, machine_speed: Some(0.5), speed_before: Some(0.8), ..Cell::default() }
                .goodput_at_search_speed()
        };
        assert_eq!(goodput(96.0), 120.0, "what was offered was for the speed before");
        assert_eq!(goodput(40.0), 80.0, "what could be answered was by that of the window");
    }

    #[test]
    fn cell_of_an_older_file_is_read() {
        let mut line = serde_json::to_value(Cell::default()).expect("plain data");
        let cell = line.as_object_mut().expect("an object");
        for added in [
            "guard_per_s",
            "guard_samples",
            "flood",
            "held",
            "machine_speed",
            "speed_before",
            "core_round_trip_ns",
            "times_set_aside",
            "link",
        ] {
            cell.remove(added).unwrap_or_else(|| panic!("{added} is a field"));
        }
        assert_eq!(serde_json::from_value::<Cell>(line).expect("readable"), Cell::default());
    }

    #[test]
    fn squared_variation_is_that_of_the_times() {
        let mut histogram = Histogram::<u64>::new(3).expect("3 digits is a valid precision");
        for us in [1000, 3000] {
            histogram.record(us).expect("auto-resizing");
        }
        // Mean 2, variance 1.
        let c2 = LatencySummary::from_micros(&histogram).c2;
        assert!((c2 - 0.25).abs() < 1e-3, "{c2}");
    }

    #[test]
    fn summary_is_in_milliseconds() {
        let mut histogram = Histogram::<u64>::new(3).expect("3 digits is a valid precision");
        histogram.record(1500).expect("auto-resizing");
        let summary = LatencySummary::from_micros(&histogram);
        assert_eq!(summary.count, 1);
        assert!((summary.p50 - 1.5).abs() < 0.01, "1500 us is 1.5 ms, got {}", summary.p50);
    }
}
