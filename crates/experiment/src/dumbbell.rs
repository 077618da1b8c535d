//! An experiment with a bottleneck: a file with `topology = "dumbbell"`.
//!
//! Scenarios take the place of servers, and queue disciplines that of policies: cells, claims and
//! pages are those of a grid.

pub(crate) mod jobs;
mod times;

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use results::{Environment, Header, Record};
use serde::Deserialize;
use tcp::{Algorithm, Rto, Stack};
use units::Nanos;

use crate::check::{check_claims, check_names, check_once, check_title, check_window, unique};
use crate::claims::{Claim, Planned, Scope};
use crate::error::{ExperimentError, from_toml};
use crate::extent;
use crate::header::{About, header};
use crate::outcome::Writer;
use crate::time::{LONGEST, duration, some_duration};
use crate::workload::WorkloadText;

/// Whole milliseconds in a route (ip-route(8)), and no timer is longer (`TCP_RTO_MAX`, Linux 6.18
/// `include/net/tcp.h`).
const LEAST_RTOS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(120);

/// A dumbbell, as its TOML file says it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dumbbell {
    /// Short name; names the folder of the results.
    pub name: String,
    /// One sentence that says what is asked.
    pub title: String,
    /// How the hosts are joined.
    #[serde(rename = "topology")]
    _topology: Topology,
    /// Hosts and links.
    pub(crate) network: Network,
    /// The TCP of all hosts, unless a scenario has its own.
    pub(crate) tcp: Tcp,
    /// What is measured, and how often.
    pub(crate) grid: Grid,
    /// What goes over the bottleneck, one after the other.
    #[serde(rename = "scenario")]
    pub(crate) scenarios: Vec<Scenario>,
    /// What is compared.
    #[serde(rename = "aqm")]
    pub(crate) aqms: Vec<NamedQueue>,
    /// What the results are held against.
    #[serde(rename = "claim", default)]
    pub(crate) claims: Vec<Claim>,
    /// The file, word for word.
    #[serde(skip)]
    pub(crate) source: String,
    /// Cut short, to see that all works.
    #[serde(skip)]
    pub is_quick: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Topology {
    Dumbbell,
}

/// Hosts and links.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Network {
    /// Servers on the left, and as many clients on the right.
    pub hosts: u32,
    /// The bottleneck, each way, in the words of `crates/path`, without a queue: `rate 10mbit delay
    /// 1ms`.
    pub link: path::Config,
    /// What the queue for the way back holds, packets; it is drop-tail.
    #[serde(default = "back_limit")]
    pub back_limit: u32,
    /// Of each host's link, Mbit/s.
    pub access_mbit: u32,
    /// Base round trips of the first server and of the last; those of the others lie evenly between
    /// them.
    #[serde(deserialize_with = "durations")]
    pub round_trips: [Duration; 2],
}

fn back_limit() -> u32 {
    1000
}

fn durations<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<[Duration; 2], D::Error> {
    #[derive(Deserialize)]
    struct One(#[serde(deserialize_with = "duration")] Duration);
    let all: Vec<One> = Vec::deserialize(deserializer)?;
    let all: Vec<Duration> = all.into_iter().map(|one| one.0).collect();
    all.try_into().map_err(|all: Vec<Duration>| {
        serde::de::Error::custom(format!(
            "{} are given; two are wanted, of the first server and the last",
            all.len()
        ))
    })
}

/// The TCP of all hosts.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tcp {
    /// One of `tidegate load`'s: its timers, its initial window and timeout.
    pub stack: String,
    /// Congestion control.
    pub algorithm: AlgorithmName,
    /// Data bytes of a full segment.
    pub mss: u16,
    /// Segments that may be in flight at first, where it is another than the stack's.
    pub initial_window: Option<u8>,
    /// Least retransmission timeout, where it is another.
    #[serde(default, deserialize_with = "some_duration")]
    pub least_rto: Option<Duration>,
}

/// Congestion control by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AlgorithmName {
    /// As the RFCs have it, and ns-2 and ns-3.
    Classic,
    /// As Linux has it.
    Reno,
    /// CUBIC, as Linux has it.
    Cubic,
}

/// What is measured, and how often.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Grid {
    /// By what the number of bulk flows from servers is multiplied.
    #[serde(default = "once")]
    pub loads: Vec<f64>,
    /// Before the measured window.
    #[serde(deserialize_with = "duration")]
    pub warmup: Duration,
    /// The measured window.
    #[serde(deserialize_with = "duration")]
    pub duration: Duration,
    /// Seeds.
    pub repetitions: u32,
}

fn once() -> Vec<f64> {
    vec![1.0]
}

/// What goes over the bottleneck.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// Name in tables.
    pub name: String,
    /// Flows from servers that never end; times the load.
    #[serde(default)]
    pub bulk: u32,
    /// Flows to servers that never end.
    #[serde(default)]
    pub reverse: u32,
    /// Users in sessions of `[RF]` table I, of all servers together.
    #[serde(default)]
    pub sessions: u32,
    /// How long their objects are.
    #[serde(default = "redfavor")]
    pub workload: WorkloadText,
    /// SYNs from forged addresses beside them, per second.
    #[serde(default)]
    pub flood_per_s: f64,
    /// Another TCP.
    pub tcp: Option<Tcp>,
}

fn redfavor() -> WorkloadText {
    WorkloadText("redfavor".to_owned())
}

/// A queue discipline by a name.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedQueue {
    /// Name in tables and claims.
    pub name: String,
    /// The discipline, as `red:limit=180`.
    pub queue: aqm::Config,
}

/// Flows and users of all hosts at most: more than a bottleneck is of use to.
const MOST: f64 = 1e6;

impl Dumbbell {
    /// Checks the text of a file.
    ///
    /// # Errors
    ///
    /// See [`ExperimentError`].
    pub(crate) fn parse(path: &Path, text: String) -> Result<Self, ExperimentError> {
        let mut dumbbell: Self = from_toml(path, &text)?;
        dumbbell.source = text;
        if let [load] = dumbbell.grid.loads[..] {
            // There is nothing to choose.
            dumbbell
                .claims
                .iter_mut()
                .filter(|claim| claim.loads.is_empty())
                .for_each(|claim| claim.loads.push(load));
        }
        dumbbell.check().map_err(|what| ExperimentError::Invalid { path: path.into(), what })?;
        Ok(dumbbell)
    }

    /// The header of a run that starts now.
    pub fn header(&self, environment: Environment, deviations: Vec<String>) -> Header {
        let Self { name, title, source, is_quick, .. } = self;
        header(&About { name, title, source, is_quick: *is_quick }, environment, deviations)
    }

    /// The systems whose TCP hosts have, by name: the file's first.
    pub fn stacks(&self) -> impl Iterator<Item = &str> {
        let of_scenarios = self.scenarios.iter().filter_map(|scenario| scenario.tcp.as_ref());
        [&self.tcp].into_iter().chain(of_scenarios).map(|tcp| tcp.stack.as_str())
    }

    /// Says of each claim what has been measured by now.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn answer(&self, writer: &mut Writer) -> Result<()> {
        let cells = writer.cells();
        let planned = Planned { loads: &self.grid.loads, repetitions: self.grid.repetitions };
        for scenario in &self.scenarios {
            for claim in self.claims.iter().filter(|claim| claim.is_of(&scenario.name)) {
                let mut answer = claim.answer(&self.name, &scenario.name, planned, &cells);
                if self.is_quick {
                    answer.marks.push("a quick run, which shows that all works and no more".to_owned());
                }
                writer.write(Record::Claim(Box::new(answer)))?;
            }
        }
        Ok(())
    }

    /// A second of each with one seed: to see that all works.
    pub(crate) fn quicken(&mut self) {
        self.is_quick = true;
        self.grid.repetitions = 1;
        for span in [&mut self.grid.warmup, &mut self.grid.duration] {
            *span = (*span).min(Duration::from_secs(1));
        }
    }

    /// Points of the grid, with their seeds.
    pub(crate) fn cells(&self) -> u128 {
        let each = self.grid.loads.len() as u128 * u128::from(self.grid.repetitions);
        each * self.scenarios.len() as u128 * self.aqms.len() as u128
    }

    /// Whether it can be measured in a lifetime.
    pub(crate) fn check_extent(&self) -> Result<(), String> {
        // The bottleneck is full, mostly.
        let packet_ns =
            self.network.link.rate.map_or(u64::MAX, |rate| rate.transmission_ns(self.tcp.mss.into()));
        let packets_per_s = 1e9 / packet_ns as f64;
        let time_s = extent::times(self.grid.warmup + self.grid.duration, self.cells());
        let seconds = time_s * packets_per_s * extent::PACKET_S;
        let time = format!("{} on one CPU", extent::roughly(seconds));
        extent::check(self.cells(), seconds, &time, "take out loads, scenarios or disciplines")
    }

    fn check(&self) -> Result<(), String> {
        let rows = self.scenarios.iter().map(|scenario| &scenario.name);
        let names = rows.chain(self.aqms.iter().map(|aqm| &aqm.name)).chain([&self.name]);
        check_names(names)?;
        check_title(&self.title)?;
        if self.scenarios.is_empty() || self.aqms.is_empty() {
            return Err("at least one [[scenario]] and one [[aqm]] are wanted".to_owned());
        }
        unique("scenario", self.scenarios.iter().map(|scenario| scenario.name.as_str()))?;
        unique("aqm", self.aqms.iter().map(|aqm| aqm.name.as_str()))?;
        self.network.check()?;
        self.tcp.check()?;
        self.grid.check()?;
        let largest = self.grid.loads.iter().copied().fold(0.0, f64::max);
        self.scenarios.iter().try_for_each(|scenario| scenario.check(largest))?;
        self.check_claims()
    }

    fn check_claims(&self) -> Result<(), String> {
        let aqms: Vec<(&str, bool)> = self.aqms.iter().map(|aqm| (aqm.name.as_str(), false)).collect();
        let scenarios: Vec<&str> = self.scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        let scope = Scope { loads: &self.grid.loads, policies: &aqms, servers: &scenarios, groups: 1 };
        check_claims(&self.claims, &scope, |Claim { measure, .. }| {
            (!measure.is_of_link()).then(|| format!(
                    "{measure} is of a server; a dumbbell has short_mean, long_mean, utilisation, bulk_rate, queue_packets, rto_step, \
                     drops, drop_share, syn_drops, drops_below10 and drops_from10"
                ))
        })
    }
}

impl Network {
    fn check(&self) -> Result<(), String> {
        if !(1..=1000).contains(&self.hosts) {
            return Err(format!("network.hosts = {}: from 1 to 1000 on each side", self.hosts));
        }
        if self.link.rate.is_none() {
            return Err("network.link has no rate, so that nothing waits for it; add rate 10mbit".to_owned());
        }
        if self.link.queue != path::Config::default().queue {
            return Err("network.link has an aqm; those are compared as [[aqm]]".to_owned());
        }
        if self.access_mbit == 0 || self.back_limit == 0 {
            return Err("network: access_mbit and back_limit are above 0; 100 and 1000 are usual".to_owned());
        }
        let least = Duration::from(self.link.delay) * 2;
        match self
            .round_trips
            .iter()
            .find(|round_trip| **round_trip < least || **round_trip > LONGEST_ROUND_TRIP)
        {
            Some(round_trip) => Err(format!(
                "network.round_trips has {round_trip:?}: from {least:?}, which the bottleneck takes, to {LONGEST_ROUND_TRIP:?}"
            )),
            None => Ok(()),
        }
    }
}

const LONGEST_ROUND_TRIP: Duration = Duration::from_secs(60);

impl Tcp {
    fn check(&self) -> Result<(), String> {
        if Stack::by_name(&self.stack).is_none() {
            let names: Vec<&str> = tcp::STACKS.iter().map(|stack| stack.name).collect();
            return Err(format!("tcp.stack = {:?}: there are {}", self.stack, names.join(", ")));
        }
        if !(100..=9000).contains(&self.mss) {
            return Err(format!("tcp.mss = {}: from 100 to 9000 bytes; 1460 is usual", self.mss));
        }
        if self.initial_window == Some(0) {
            return Err("tcp.initial_window = 0: nothing could be sent; 10 is usual".to_owned());
        }
        if let Some(least) = self.least_rto.filter(|least| !LEAST_RTOS.contains(least)) {
            return Err(format!("tcp.least_rto = {least:?}: from 1ms to 2min; 200ms is usual"));
        }
        Ok(())
    }

    /// Without timestamps, so that segments carry `mss` bytes, and with windows that do not limit.
    pub(crate) fn stack(&self) -> Option<Stack> {
        let stack = *Stack::by_name(&self.stack)?;
        let least = self.least_rto.map(Nanos::from);
        let rto = least.map_or(stack.rto, |least| Rto { least_variation: Nanos::ZERO, least, ..stack.rto });
        Some(Stack {
            mss: self.mss,
            receive_buffer: Some(WINDOW),
            window: u16::MAX,
            window_scale: Some(7),
            timestamps: false,
            initial_window: self.initial_window.unwrap_or(stack.initial_window),
            rto,
            ..stack
        })
    }
}

/// Receive window of all ends, bytes.
const WINDOW: u32 = 1 << 20;

impl From<AlgorithmName> for Algorithm {
    fn from(name: AlgorithmName) -> Self {
        match name {
            AlgorithmName::Classic => Self::Classic,
            AlgorithmName::Reno => Self::NewReno,
            AlgorithmName::Cubic => Self::Cubic,
        }
    }
}

impl Grid {
    fn check(&self) -> Result<(), String> {
        if self.loads.is_empty() || self.repetitions == 0 {
            return Err("grid: give loads and repetitions, or nothing would be measured".to_owned());
        }
        check_once(&self.loads)?;
        if let Some(load) = self.loads.iter().find(|load| !(**load > 0.0 && **load <= MOST)) {
            return Err(format!("grid.loads has {load}: flows are multiplied by it; above 0, to {MOST}"));
        }
        if self.warmup > LONGEST {
            return Err("grid.warmup can be an hour at most".to_owned());
        }
        check_window("grid.duration", self.duration)
    }
}

impl Scenario {
    fn check(&self, load: f64) -> Result<(), String> {
        let of = |what: String| format!("scenario {:?}: {what}", self.name);
        let flows = f64::from(self.bulk) * load + f64::from(self.sessions) + f64::from(self.reverse);
        if flows == 0.0 {
            return Err(of("nothing is sent; give bulk or sessions".to_owned()));
        }
        if flows > MOST {
            return Err(of(format!("{flows} flows at {load}x: {MOST} at most")));
        }
        if !(0.0..=1e7).contains(&self.flood_per_s) {
            return Err(of(format!("flood_per_s = {}: from 0 to 10 million", self.flood_per_s)));
        }
        self.tcp.as_ref().map_or(Ok(()), Tcp::check).map_err(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: &str = include_str!("../../../experiments/syn-protection/paper.toml");
    const BEYOND: &str = include_str!("../../../experiments/syn-protection/beyond.toml");

    fn parse(text: &str) -> Result<Dumbbell, String> {
        Dumbbell::parse(Path::new("d.toml"), text.to_owned()).map_err(|error| error.to_string())
    }

    #[test]
    fn experiments_of_syn_protection_can_be_run() {
        let paper = parse(PAPER).expect("the paper's");
        assert_eq!(paper.cells(), 120);
        assert!(paper.claims.iter().all(|claim| claim.loads == [1.0]), "there is one load");
        parse(BEYOND).expect("what is beyond it");
    }

    #[test]
    fn hosts_have_what_their_system_has_but_for_windows_and_timestamps() {
        for stack in tcp::STACKS {
            let text = PAPER.replacen("\"linux-2.4\"", &format!("{:?}", stack.name), 1);
            let paper = parse(&text).expect("a dumbbell");
            let hosts = paper.jobs()[0].network().expect("it can be run").stack;
            assert_eq!(hosts.sack, stack.sack, "{}", stack.name);
            assert_eq!((hosts.timestamps, hosts.mss, hosts.window_scale), (false, 1000, Some(7)));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        for (from, to, why) in [
            ("rate 10mbit delay 1ms", "delay 1ms", "no rate"),
            ("rate 10mbit delay 1ms", "rate 10mbit delay -1ms", "delay"),
            ("access_mbit = 100", "access_mbit = 0", "above 0"),
            ("hosts = 9", "hosts = 0", "from 1 to 1000"),
            ("\"5ms\", \"100ms\"", "\"1ms\", \"100ms\"", "which the bottleneck takes"),
            ("stack = \"linux-2.4\"", "stack = \"beos\"", "there are linux"),
            ("mss = 1000", "mss = 10", "1460 is usual"),
            ("initial_window = 2", "initial_window = 0", "10 is usual"),
            ("least_rto = \"200ms\"", "least_rto = \"0s\"", "from 1ms to 2min"),
            ("repetitions = 30", "repetitions = 0", "nothing would be measured"),
            ("warmup = \"100s\"", "warmup = \"-1s\"", "a time is wanted"),
            ("sessions = 135", "session = 135", "unknown field"),
            ("measure = \"syn_drops\"", "measure = \"p99\"", "of a server"),
            ("aqm = \"redfavor\"", "aqm = \"red-flavour\"", "no [[policy]] or [[aqm]] is called"),
            ("bulk = 9\nreverse = 1\nsessions = 135", "", "nothing is sent"),
            ("dumbbell\"\n", "ring\"\n", "unknown word"),
        ] {
            assert!(PAPER.contains(from), "{from}");
            let error = parse(&PAPER.replacen(from, to, 1)).expect_err(why);
            assert!(error.contains(why) && !error.contains('\n'), "{error:?} should say {why:?}");
        }
    }
}
