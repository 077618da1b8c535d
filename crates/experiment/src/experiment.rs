//! The experiment file.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use results::{Environment, Header, Record};
use serde::Deserialize;

use crate::bursts::{Bursts, LoadsOf};
use crate::claims::{Claim, Planned};
use crate::clients::CrowdSpec;
use crate::demand::Demand;
use crate::error::{ExperimentError, from_toml};
use crate::header::{About, header};
use crate::layout::Layout;
use crate::map::Map;
use crate::outcome::Writer;
use crate::policy::Policy;
use crate::saturation::Search;
use crate::servers::{Change, ServerSpec};
use crate::time::duration;
use crate::uplink::{Uplink, UplinkText};
use crate::ways::Ways;

/// Warm-up and window of a quick run.
const QUICK: Duration = Duration::from_secs(1);
/// A quick run judges nothing, and waits for no better machine.
const QUICK_PATIENCE: Duration = Duration::from_millis(200);

/// An experiment, as its TOML file says it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name; names the folder of the results.
    pub name: String,
    /// One sentence that says what is asked.
    pub title: String,
    /// How the two ends are joined.
    #[serde(default)]
    pub testbed: Layout,
    /// The machine in virtual time, whatever the command line says: the name of a profile that
    /// comes along. The lab's is the one that it runs on.
    pub profile: Option<String>,
    /// What the clients do.
    pub crowd: CrowdSpec,
    /// The grid, and how each point is measured.
    pub grid: Grid,
    /// How the saturation rate is searched.
    #[serde(default)]
    pub(crate) saturation: Search,
    /// Servers, one after the other.
    #[serde(rename = "server")]
    pub servers: Vec<ServerSpec>,
    /// Bursts and gaps before each of them.
    pub(crate) map: Option<Map>,
    /// How far their clients are from each of them.
    #[serde(rename = "path")]
    pub(crate) ways: Option<Ways>,
    /// The link that their responses leave by, and the order on it.
    pub(crate) uplink: Option<UplinkText>,
    /// Policies, alternating at each load.
    #[serde(rename = "policy")]
    pub policies: Vec<Policy>,
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

/// The grid, and how each point is measured.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Offered loads, as multiples of the saturation rate.
    pub loads: Vec<f64>,
    /// Crowd before the measured window.
    #[serde(deserialize_with = "duration")]
    pub warmup: Duration,
    /// The measured window.
    #[serde(deserialize_with = "duration")]
    pub duration: Duration,
    /// How often the whole grid is measured.
    #[serde(default = "one")]
    pub repetitions: u32,
    /// How many times more a point is measured at most, when the machine disturbed it; in the lab
    /// only.
    #[serde(default)]
    pub again: u32,
}

impl Experiment {
    /// Checks the text of a file.
    ///
    /// # Errors
    ///
    /// See [`ExperimentError`].
    pub fn parse(path: &Path, text: String) -> Result<Self, ExperimentError> {
        let mut experiment: Self = from_toml(path, &text)?;
        experiment.source = text;
        experiment.servers =
            experiment.spread().map_err(|what| ExperimentError::Invalid { path: path.into(), what })?;
        experiment.check().map_err(|what| ExperimentError::Invalid { path: path.into(), what })?;
        Ok(experiment)
    }

    /// Its servers, each as often as bursts and ways before it are named.
    fn spread(&self) -> Result<Vec<ServerSpec>, String> {
        let servers = match &self.map {
            Some(map) => map.spread(&self.servers)?,
            None => self.servers.clone(),
        };
        match &self.ways {
            Some(ways) if ways.are_several() && self.map.is_some() => Err(
                "path: a map over bursts and gaps is behind one delay and one loss: leave [map] out, or all values but one"
                    .to_owned(),
            ),
            Some(ways) => ways.spread(&servers),
            None => Ok(servers),
        }
    }

    /// In which bursts the crowd of a server comes.
    pub(crate) fn bursts(&self, server: &ServerSpec) -> Option<Bursts> {
        server.crowd.bursts.or(self.crowd.bursts)
    }

    /// The bandwidth that the crowd of a server asks for.
    pub(crate) fn demand<'a>(&'a self, server: &'a ServerSpec) -> Option<&'a Demand> {
        server.crowd.demand.as_ref().or(self.crowd.demand.as_ref())
    }

    /// Whether the loads of a server are of a bandwidth, and not of what it can do.
    pub fn has_demand(&self, server: &ServerSpec) -> bool {
        self.demand(server).is_some()
    }

    /// Whether a load of 1 is what a server can do, which has to be searched.
    pub fn is_searched(&self, server: &ServerSpec) -> bool {
        !self.has_demand(server) && self.crowd.closed_loop.is_none()
    }

    /// The uplink of a server under a policy, where there is one.
    ///
    /// # Errors
    ///
    /// One line: what cannot be. Not for a file that was read.
    pub fn uplink_of(&self, policy: &Policy) -> Result<Option<Uplink>, String> {
        let Some(text) = &self.uplink else { return Ok(None) };
        let text = policy.uplink.as_ref().map_or_else(|| text.clone(), |own| text.changed(own));
        text.uplink().map(Some)
    }

    /// What its uplink says that is the kernel's own matter in the lab.
    pub fn note_of_uplink(&self) -> Option<String> {
        let tables =
            self.uplink.iter().chain(self.policies.iter().filter_map(|policy| policy.uplink.as_ref()));
        let mut keys: Vec<&str> = tables.flat_map(UplinkText::only_simulated).collect();
        keys.sort_unstable();
        keys.dedup();
        (!keys.is_empty()).then(|| format!("of the uplink this kernel has its own {}", keys.join(", ")))
    }

    /// Attempts per second whose files are as many bytes as a server's uplink sends: what a load of
    /// 1 is of a demand. Of an `[uplink]` these are bytes on its link, with heads and headers,
    /// because that is the load that `[SH06]` section 2.3 measured. `None` where there is no
    /// demand.
    ///
    /// # Errors
    ///
    /// One line: what is not known, the bandwidth or the mean size, and how to say it.
    pub(crate) fn rate_of_uplink(&self, server: &ServerSpec) -> Result<Option<f64>, String> {
        let Some(demand) = self.demand(server) else { return Ok(None) };
        let bits_per_s = self.uplink_bits_per_s(server).ok_or_else(|| {
            format!("crowd.demand {demand}: loads are multiples of a bandwidth, and none is said; [path] with rate = \"10mbit\" would do")
        })?;
        let workload = self.clients(server).workload.workload();
        let mean = workload.mean_bytes().ok_or_else(|| {
            format!(
                "crowd.demand {demand}: loads are of files, and the workload names none; workload = \"world-cup\" would do"
            )
        })?;
        let mean = if self.uplink.is_some() { bytes_on_the_link(mean) } else { mean };
        Ok(Some(bits_per_s / 8.0 / (mean * workload.mean_requests())))
    }

    /// What a server's uplink sends, bits/s, where the file says.
    fn uplink_bits_per_s(&self, server: &ServerSpec) -> Option<f64> {
        let rate = match &self.uplink {
            Some(uplink) => uplink.rate(),
            None => server.way.as_ref()?.to_clients.rate,
        };
        rate.map(|rate| rate.bits_per_s() as f64)
    }

    /// The mean over bursts and gaps of a crowd with such a rate, attempts/s, before a server.
    pub(crate) fn mean_rate(&self, server: &ServerSpec, rate: f64) -> f64 {
        let rate = self.bursts(server).map_or(rate, |bursts| bursts.mean_rate(rate));
        self.demand(server).map_or(rate, |demand| rate * demand.shape().mean())
    }

    /// The clients before a server.
    pub(crate) fn clients(&self, server: &ServerSpec) -> CrowdSpec {
        let Change { timeout, workload, reuse, abort, clients, ports, nat, .. } = &server.crowd;
        CrowdSpec {
            timeout: timeout.unwrap_or(self.crowd.timeout),
            workload: workload.as_ref().unwrap_or(&self.crowd.workload).clone(),
            reuse: reuse.unwrap_or(self.crowd.reuse),
            abort: abort.or(self.crowd.abort),
            clients: clients.unwrap_or(self.crowd.clients),
            ports: ports.or(self.crowd.ports),
            nat: nat.unwrap_or(self.crowd.nat),
            ..self.crowd.clone()
        }
    }

    /// Who comes before a server under a policy.
    pub fn crowd_of(&self, server: &ServerSpec, policy: &Policy) -> CrowdSpec {
        let demand = self.demand(server).cloned();
        CrowdSpec { bursts: self.bursts(server), demand, ..policy.crowd(&self.clients(server)) }
    }

    /// How long a crowd waits for a quiet machine, at most.
    pub fn patience(&self) -> Duration {
        if self.is_quick { QUICK_PATIENCE.min(self.testbed.patience) } else { self.testbed.patience }
    }

    /// The measured window before a server.
    pub fn window(&self, server: &ServerSpec) -> Duration {
        server.duration.unwrap_or(self.grid.duration)
    }

    /// Makes warm-up and window a second at most, and each point is measured once: to see that all
    /// works. Bursts that are longer are made as short, so that there is one of them in the window,
    /// and a gap.
    pub(crate) fn quicken(&mut self) {
        self.is_quick = true;
        (self.grid.repetitions, self.grid.again) = (1, 0);
        let quicker = self.map.as_ref().map(Map::quicker);
        for server in &mut self.servers {
            if let (Some(quicker), Some(bursts)) = (quicker, server.crowd.bursts) {
                let quick = Bursts { on: bursts.on / quicker, off: bursts.off / quicker, ..bursts };
                (server.crowd.bursts, server.duration) =
                    (Some(quick), server.duration.map(|all| all / quicker));
                continue;
            }
            let window = QUICK.min(server.duration.unwrap_or(self.grid.duration));
            let bursts = server.crowd.bursts.or(self.crowd.bursts).map(|bursts| bursts.quick(window));
            server.crowd.bursts = bursts.map(|(quick, _)| quick);
            let demand = server.crowd.demand.as_ref().or(self.crowd.demand.as_ref());
            server.crowd.demand = demand.map(|demand| demand.quick(window));
            server.duration = Some(bursts.map_or(window, |(_, whole)| whole));
        }
        for span in [&mut self.grid.warmup, &mut self.grid.duration] {
            *span = QUICK.min(*span);
        }
    }

    /// Most connections that a server must hold beside a crowd's; `None` where no policy has such.
    pub fn most_held(&self) -> Option<u64> {
        self.policies.iter().filter_map(|policy| Some(policy.crowd.hold?.count())).max()
    }
}

impl Experiment {
    /// The header of a run that starts now.
    pub fn header(&self, environment: Environment, deviations: Vec<String>) -> Header {
        let Self { name, title, source, is_quick, .. } = self;
        header(&About { name, title, source, is_quick: *is_quick }, environment, deviations)
    }

    /// What a quick run is.
    pub fn note_of_quick(&self) -> Option<String> {
        let has_bursts = self.servers.iter().any(|server| self.bursts(server).is_some());
        let has_demand = self.servers.iter().any(|server| self.demand(server).is_some());
        let bursts = if has_bursts {
            "; its bursts and gaps are shortened, one of each at least in a second"
        } else if has_demand {
            "; its periods of low and high load are shortened, one of each in a second"
        } else {
            ""
        };
        self.is_quick.then(|| format!("a quick run, which shows that all works and no more{bursts}"))
    }

    /// What a load is of clients that are far away; `None` where they are beside the server.
    pub fn note_of_distance(&self) -> Option<&'static str> {
        let note = "Loads are multiples of the rate at which the server saturates before clients beside it.";
        let are_of_bandwidth = self.servers.iter().all(|server| self.has_demand(server));
        let note = if are_of_bandwidth { "Loads are of a bandwidth, as said of each server." } else { note };
        self.ways.as_ref().map(|_| note)
    }

    /// In which bursts crowds come, a sentence for each server; one for all where there is a map.
    pub fn notes_of_bursts(&self) -> Vec<String> {
        if self.map.is_some() {
            return vec![LoadsOf::Burst.said_of("Crowds come in bursts with gaps between them")];
        }
        let said = |server: &ServerSpec| {
            let Bursts { on, off, loads } = self.bursts(server)?;
            let name = &server.name;
            Some(
                loads.said_of(&format!("The crowd of {name} comes in bursts of {on:?} with gaps of {off:?}")),
            )
        };
        self.servers.iter().filter_map(said).collect()
    }

    /// What crowds ask for whose loads are of a bandwidth, a sentence for each server.
    pub fn notes_of_demand(&self) -> Vec<String> {
        let said = |server: &ServerSpec| {
            let (demand, rate) = (self.demand(server)?, self.rate_of_uplink(server).ok()??);
            let (cycle, window) = demand.means(self.grid.warmup, self.window(server));
            let bits_per_s = self.uplink_bits_per_s(server)?;
            let name = &server.name;
            let what = match self.uplink {
                Some(_) => "whose responses with all headers are",
                None => "whose files are",
            };
            let on_top = if self.uplink.is_some() { "" } else { "; heads and headers come on top" };
            Some(format!(
                "The crowd of {name} asks for {demand}: a load of {cycle:.3} on the mean, {window:.3} in the window. A load of 1 is {rate:.1} \
                 requests/s, {what} {:.0} kbit/s{on_top}.",
                bits_per_s / 1e3
            ))
        };
        self.servers.iter().filter_map(said).collect()
    }

    /// Says of each claim what has been measured by now of these servers; and why it does not hold,
    /// where the run is whole and the file's reasons are of its machine.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn answer(&self, servers: &[&ServerSpec], writer: &mut Writer, has_reasons: bool) -> Result<()> {
        let has_reasons = has_reasons && writer.is_whole();
        let cells = writer.cells();
        let planned = Planned { loads: &self.grid.loads, repetitions: self.grid.repetitions };
        for ServerSpec { name, .. } in servers {
            for claim in self.claims.iter().filter(|claim| claim.is_of(name)) {
                let mut answer = claim.answer(&self.name, name, planned, &cells);
                answer.marks.extend(self.note_of_quick());
                answer.why = claim.why_not(answer.answer).filter(|_| has_reasons);
                writer.write(Record::Claim(Box::new(answer)))?;
            }
        }
        Ok(())
    }
}

/// What a response of so many bytes is on an uplink, bytes.
///
/// With its head, the headers of its packets, and packets without data.
pub fn bytes_on_the_link(bytes: f64) -> f64 {
    bytes + ON_THE_LINK + bytes * HEADERS
}

/// Headers of a segment of 1448 bytes, for each of them: Ethernet, IPv4, TCP with timestamps.
const HEADERS: f64 = 66.0 / 1448.0;
/// What a response is besides on the link, bytes: SYN/ACK, the head of the reply as nginx and
/// Apache write it, the headers of its last segment (half a segment more, on the mean), FIN and its
/// acknowledgment.
const ON_THE_LINK: f64 = 74.0 + 240.0 + 33.0 + 66.0 + 66.0;

impl Grid {
    /// Cells of each server under each policy.
    pub(crate) fn points(&self) -> u128 {
        self.loads.len() as u128 * u128::from(self.repetitions)
    }
}

fn one() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Receive;

    const GOOD: &str = r#"
        name = "test"
        title = "A test."
        [crowd]
        timeout = "10s"
        close = "rst"
        arrivals = "poisson"
        [grid]
        loads = [0.5, 2.0]
        warmup = "1s"
        duration = "2s"
        [[server]]
        name = "built-in"
        kind = "built-in"
        backlog = 128
        [[policy]]
        name = "stock"
    "#;

    fn read(text: &str) -> Result<Experiment, String> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("write");
        Experiment::parse(file.path(), text.to_owned()).map_err(|error| error.to_string())
    }

    #[track_caller]
    fn assert_refused(change: (&str, &str), expected: &str) {
        assert!(GOOD.contains(change.0), "the test changes nothing");
        let error = read(&GOOD.replace(change.0, change.1)).expect_err("should be refused");
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains('\n'), "more than one line: {error}");
    }

    #[test]
    fn good_file_is_read_with_its_defaults() {
        let experiment = read(GOOD).expect("good");
        assert_eq!(experiment.testbed.receive, Receive::Softirq);
        assert_eq!(experiment.grid.repetitions, 1);
        assert_eq!(experiment.source, GOOD);
    }

    #[test]
    fn unknown_key_is_named_with_its_place() {
        assert_refused(("backlog = 128", "backlog = 128\nbacklogg = 1"), "unknown field `backlogg`");
        assert_refused(("backlog = 128", "backlog = 128\nbacklogg = 1"), "line 16");
    }

    #[test]
    fn rate_that_is_not_a_number_is_refused() {
        assert_refused(("[0.5, 2.0]", "[0.5, \"fast\"]"), "expected f64");
        assert_refused(("[0.5, 2.0]", "[0.5, nan]"), "grid.loads has NaN");
        assert_refused(("[0.5, 2.0]", "[0.0]"), "grid.loads has 0");
        assert_refused(("[0.5, 2.0]", "[]"), "grid.loads is empty");
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert_refused(("duration = \"2s\"", "duration = \"0s\""), "grid.duration = 0ns cannot be measured");
        assert_refused(("duration = \"2s\"", "duration = \"soon\""), "\"soon\": a time is wanted, as in 10s");
        assert_refused(
            ("name = \"stock\"", "name = \"x\"\nsysctls = {\"vm.swappiness\" = \"1\"}"),
            "only net.*",
        );
        assert_refused(
            ("name = \"stock\"", "name = \"stock\"\n[[policy]]\nname = \"stock\""),
            "two [[policy]]",
        );
        assert_refused(
            ("name = \"stock\"", "name = \"x\"\ncrowd = { hold = { idle = -1 } }"),
            "invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
        );
        assert_refused(
            ("name = \"stock\"", "name = \"x\"\ncrowd = { hold = { half_requests = 20000 } }"),
            "policy \"x\": crowd.hold asks for 20000 connections; at most 11000",
        );
        assert_refused(
            ("timeout = \"10s\"", "timeout = \"10s\"\nhold = { idle = 1 }"),
            "unknown field `hold`",
        );
        assert_refused(
            ("name = \"stock\"", "name = \"x\"\nguard = \"rst-sin\""),
            "\"rst-sin\" is no mechanism; did you mean rst-syn? tidegate policies lists them",
        );
        assert_refused(
            ("name = \"stock\"", "name = \"stock\"\nguard = \"rst-syn\""),
            "policy \"stock\" is what the others are held against",
        );
        assert_refused(("timeout = \"10s\"", "timeout = \"10s\"\nclients = \"fd00::/64\""), "invalid");
        assert_refused(("timeout = \"10s\"", "timeout = \"0s\""), "crowd.timeout is zero");
        let at_once = "timeout = \"10s\"\nabort = { after = \"0s\", reloads = 1 }";
        assert_refused(("timeout = \"10s\"", at_once), "crowd.abort.after = 0ns: from 1ms to 1h");
        let at_last = "name = \"x\"\ncrowd = { abort = { after = \"2h\", reloads = 1 } }";
        assert_refused(("name = \"stock\"", at_last), "policy \"x\": crowd.abort.after = 7200s");
        assert_refused(("timeout = \"10s\"", "timeout = \"10s\"\nclients = \"10.0.0.0/8\""), "10.76.0.0/30");
        assert_refused(("duration = \"2s\"", "duration = \"500us\""), "grid.duration = 500µs");
        assert_refused(("backlog = 128", "backlog = 4000000000"), "more than listen(2) takes");
        for kind in ["nginx", "apache"] {
            let with_work = format!("kind = {kind:?}\ncpu_time = \"1ms\"");
            assert_refused(("kind = \"built-in\"", &with_work), "cpu_time is for kind = \"built-in\" only");
        }
        assert_refused(
            ("[grid]", "[saturation]\nrefinements = 4000\n[grid]"),
            "saturation.refinements = 4000",
        );
        assert_refused(("[crowd]", "[testbed]\ncrowd_cpu = 0\n[crowd]"), "share CPU 0");
        assert_refused(("[crowd]", "[saturation]\nfactor = 1e308\n[crowd]"), "can be 1.05 to 100;");
        assert_refused(("title = \"", "title = \"\\u001b[2J"), "is no line of text");
        assert_refused(
            ("kind = \"built-in\"", "kind = \"built-in\"\ncpu_time = \"10y\""),
            "no work for one request",
        );
        assert_refused(("[crowd]", "[testbed]\ncoalesce = \"1s\"\n[crowd]"), "testbed.coalesce = 1s");
        let behind_a_link = "[testbed]\nreceive = \"driver\"\n[path]\ndelay = \"1ms\"\n[crowd]";
        assert_refused(("[crowd]", behind_a_link), "testbed.receive = \"driver\" and [path]");
        assert_refused(("name = \"test\"", "name = \"../../etc\""), "names folders and rows");
        assert_refused(("duration = \"2s\"", "duration = \"2s\"\nagain = 11"), "grid.again is 11");
    }

    /// [`GOOD`] with a demand, in virtual time behind an uplink.
    fn with_demand(demand: &str, workload: &str, path: &str) -> String {
        GOOD.replace(
            "arrivals = \"poisson\"",
            &format!("arrivals = \"poisson\"\nworkload = {workload}\ndemand = {demand}"),
        )
        .replace("[grid]", &format!("[path]\n{path}\n[grid]"))
    }

    #[test]
    fn load_of_a_demand_is_of_the_bandwidth_over_the_mean_size() {
        let rate = "rate = \"10mbit\"";
        let experiment = read(&with_demand("\"W1\"", "\"world-cup\"", rate)).expect("good");
        let found = experiment.known_saturation(&experiment.servers[0], &[]).expect("nobody searches");
        assert!((found.rate_per_s - 1.25e6 / 5001.6).abs() < 0.1, "{}", found.rate_per_s);
        assert!((experiment.mean_rate(&experiment.servers[0], 100.0) - 70.0).abs() < 1e-9);
        let several = "{ kind = \"world-cup\", requests_per_connection = 5 }";
        let experiment = read(&with_demand("\"W1\"", several, rate)).expect("good");
        let found = experiment.known_saturation(&experiment.servers[0], &[]).expect("nobody searches");
        assert!((found.rate_per_s - 1.25e6 / 5001.6 / 5.0).abs() < 0.1, "connections: {}", found.rate_per_s);
        let evenly = read(GOOD).expect("good");
        assert_eq!(evenly.known_saturation(&evenly.servers[0], &[]), None);
    }

    #[test]
    fn demand_that_cannot_be_is_refused_in_one_line() {
        let rate = "rate = \"10mbit\"";
        for (demand, workload, path, expected) in [
            ("\"W1\"", "\"world-cup\"", "", "loads are multiples of a bandwidth, and none is said"),
            ("\"W1\"", "\"one-packet\"", rate, "loads are of files, and the workload names none"),
            ("\"W1\"", "\"world-cup\"", "to_server = \"rate 10mbit\"", "and none is said"),
            ("\"W11\"", "\"world-cup\"", rate, "\"W11\" is no demand"),
            (
                "\"W1\"\nbursts = { on = \"1s\", off = \"1s\" }",
                "\"world-cup\"",
                rate,
                "two schedules; name one",
            ),
            (
                "\"W7\"",
                "{ kind = \"heavy-tail\", least = 1, median = 2, p90 = 3, most = 4, shape = 1.2 }",
                "rate = \"10Gbit\"",
                "attempts/s at its peak",
            ),
        ] {
            let why = read(&with_demand(demand, workload, path)).expect_err(expected);
            assert!(why.contains(expected) && !why.contains('\n'), "{why}");
        }
    }

    const CLAIM: &str = r#"name = "stock"
        [[claim]]
        source = "a paper"
        text = "all is answered"
        measure = "error_share"
        policy = "stock"
        loads = [0.5]
        holds = { at_most = 0.0 }
    "#;

    #[test]
    fn claim_is_checked_before_anything_runs() {
        let claims = read(&GOOD.replace("name = \"stock\"", CLAIM)).expect("good").claims;
        assert_eq!(claims.len(), 1);
        let with = |from: &str, to: &str| CLAIM.replace(from, to);
        let load = with("[0.5]", "[0.7]");
        assert_refused(("name = \"stock\"", &load), "claim \"all is answered\": load 0.7 is not measured");
        let measure = with("error_share", "errors");
        assert_refused(("name = \"stock\"", &measure), "unknown word `errors`");
        let policy = with("policy = \"stock\"", "policy = \"guarded\"");
        assert_refused(("name = \"stock\"", &policy), "no [[policy]] or [[aqm]] is called \"guarded\"");
    }

    #[test]
    fn quick_run_is_short_and_keeps_its_loads() {
        let mut experiment = read(&GOOD.replace("warmup = \"1s\"", "warmup = \"100ms\"")).expect("good");
        experiment.quicken();
        assert_eq!(experiment.grid.duration, QUICK);
        assert_eq!(experiment.grid.warmup, Duration::from_millis(100), "never longer than it was");
        assert_eq!(experiment.grid.loads, [0.5, 2.0]);
    }

    const BURSTS: &str = "arrivals = \"poisson\"\nbursts = { on = \"1500ms\", off = \"500ms\" }";

    #[test]
    fn window_holds_whole_bursts_and_gaps() {
        let experiment = read(&GOOD.replace("arrivals = \"poisson\"", BURSTS)).expect("good");
        assert_eq!(experiment.bursts(&experiment.servers[0]).expect("bursts").to_string(), "1s 500ms/500ms");
        let with = |from: &str, to: &str| BURSTS.replace(from, to);
        let cut = with("500ms\" }", "1s\" }");
        assert_refused(
            ("arrivals = \"poisson\"", &cut),
            "grid.duration = 2s does not hold a whole number of bursts of 1s 500ms and gaps of 1s; 2s 500ms would do",
        );
        assert_refused(("arrivals = \"poisson\"", &with("500ms\" }", "0s\" }")), "crowd.bursts: off = 0ns");
        assert_refused(("arrivals = \"poisson\"", &with("off", "of")), "unknown field `of`");
        assert_refused(
            ("arrivals = \"poisson\"", "arrivals = \"poisson\"\nbursts = { on = \"1s\" }"),
            "`off`",
        );
    }

    const OF_SERVER: &str =
        "backlog = 128\ncrowd = { bursts = { on = \"20s\", off = \"5s\" } }\nduration = \"50s\"";

    #[test]
    fn server_has_bursts_and_a_window_of_its_own() {
        let experiment = read(&GOOD.replace("backlog = 128", OF_SERVER)).expect("good");
        let server = &experiment.servers[0];
        assert_eq!(experiment.window(server), Duration::from_secs(50));
        assert_eq!(experiment.bursts(server).expect("bursts").on, Duration::from_secs(20));
        let plain = ServerSpec {
            name: "plain".to_owned(),
            crowd: Change::default(),
            duration: None,
            ..server.clone()
        };
        assert!(plain.is_as(server), "the saturation rate is of both");
        assert!(!plain.is_as(&ServerSpec { backlog: 4, ..server.clone() }));
        assert_refused(
            ("backlog = 128", &OF_SERVER.replace("50s", "40s")),
            "server \"built-in\": duration = 40s does not hold a whole number of bursts of 20s and gaps of 5s; 25s or 50s would do",
        );
    }

    #[test]
    fn clients_of_a_server_may_wait_otherwise_and_ask_for_something_else() {
        let of_server = "backlog = 128\ncrowd = { timeout = \"4s\", workload = \"specweb99-7.2\" }";
        let experiment = read(&GOOD.replace("backlog = 128", of_server)).expect("good");
        let server = &experiment.servers[0];
        let clients = experiment.clients(server);
        assert_eq!((clients.timeout, clients.workload.0.as_str()), (Duration::from_secs(4), "specweb99-7.2"));
        assert_eq!(clients.close, experiment.crowd.close);
        let one_packet =
            ServerSpec { crowd: Change { workload: None, ..server.crowd.clone() }, ..server.clone() };
        assert!(!server.is_as(&one_packet), "it saturates at another rate");
        let patient = Change { timeout: None, ..server.crowd.clone() };
        assert!(server.is_as(&ServerSpec { crowd: patient, ..server.clone() }));
        assert_refused(("backlog = 128", &of_server.replace("4s", "0s")), "crowd.timeout is zero");
        assert_refused(("backlog = 128", &of_server.replace("7.2", "99")), "specweb99-99");
    }

    #[test]
    fn machine_is_one_that_comes_along() {
        let with = |name: &str| GOOD.replace("[crowd]", &format!("profile = \"{name}\"\n[crowd]"));
        assert_eq!(read(&with("itanium-2005")).expect("good").profile.as_deref(), Some("itanium-2005"));
        let error = read(&with("z80")).expect_err("no such machine");
        assert!(error.contains("profile = \"z80\" does not come along; there are xeon-2005"), "{error}");
    }

    #[test]
    fn load_that_is_named_twice_is_no_repetition() {
        assert_eq!(crate::check::check_loads(&[0.5, 1.5]), Ok(()));
        let why = crate::check::check_loads(&[0.5, 1.5, 0.5]).expect_err("twice");
        assert!(why.contains("0.5 twice") && why.contains("grid.repetitions"), "{why}");
    }

    #[test]
    fn quick_map_has_all_its_lengths_in_proportion() {
        let text = include_str!("../../../experiments/connection-management/crossover.toml");
        let mut experiment =
            Experiment::parse(Path::new("crossover.toml"), text.to_owned()).expect("it comes along");
        experiment.quicken();
        let last = experiment.servers.last().expect("some");
        let bursts = last.crowd.bursts.expect("bursts");
        assert_eq!((bursts.on, bursts.off), (Duration::from_millis(1200), Duration::from_millis(600)));
        assert_eq!(last.duration, Some(Duration::from_millis(3600)));
    }

    #[test]
    fn quick_run_has_a_burst_and_a_gap_in_its_window() {
        let mut experiment = read(&GOOD.replace("backlog = 128", OF_SERVER)).expect("good");
        experiment.quicken();
        let server = &experiment.servers[0];
        let bursts = experiment.bursts(server).expect("bursts");
        assert_eq!((experiment.window(server), bursts.cycle()), (QUICK, QUICK));
        assert_eq!(bursts.on, Duration::from_millis(800));
    }
}
