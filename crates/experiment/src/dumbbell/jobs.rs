//! The cells of a dumbbell, and the hosts and flows of each.

use std::time::Duration;

use anyhow::{Context, Result};
use results::{BottleneckSummary, Cell};
use sim::dumbbell::{Bulk, Completion, Dumbbell as Network, Users};
use traffic::Sessions;
use units::Nanos;

use super::times::{distribution, means};
use super::{Dumbbell, NamedQueue, Scenario, Tcp};

/// `[RF]` table I.
const BETWEEN_SESSIONS: Nanos = Nanos::from_millis(500);
/// Of a request: one packet, as a browser's is.
const REQUEST_BYTES: u64 = 300;
/// Bulk flows begin within this time.
const BULK_WITHIN: Nanos = Nanos::from_secs(5);

/// One cell.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    dumbbell: &'a Dumbbell,
    scenario: &'a Scenario,
    aqm: &'a NamedQueue,
    repetition: u32,
    /// Of the scenario, and of the queue discipline.
    pub names: [&'a str; 2],
    /// Times the file's bulk flows from servers.
    pub load: f64,
    /// Bulk flows from servers.
    pub bulk: u32,
    /// All bulk flows, and users.
    pub flows: f64,
    /// Whether SYNs from forged addresses come beside them.
    pub has_flood: bool,
    /// Warm-up and measured window.
    pub times: [Duration; 2],
    /// Least retransmission timeout, where it is another than the stack's.
    pub least_rto: Option<Duration>,
}

impl Dumbbell {
    /// All of them, in the order in which they are run.
    pub fn jobs(&self) -> Vec<Job<'_>> {
        let mut jobs = Vec::new();
        for scenario in &self.scenarios {
            for &load in &self.grid.loads {
                for repetition in 0..self.grid.repetitions {
                    jobs.extend(self.aqms.iter().map(|aqm| self.job(scenario, aqm, load, repetition)));
                }
            }
        }
        jobs
    }

    fn job<'a>(&'a self, scenario: &'a Scenario, aqm: &'a NamedQueue, load: f64, repetition: u32) -> Job<'a> {
        let bulk = (f64::from(scenario.bulk) * load).round() as u32;
        Job {
            dumbbell: self,
            scenario,
            aqm,
            repetition,
            names: [&scenario.name, &aqm.name],
            load,
            bulk,
            flows: f64::from(bulk) + f64::from(scenario.reverse) + f64::from(scenario.sessions),
            has_flood: scenario.flood_per_s > 0.0,
            times: [self.grid.warmup, self.grid.duration],
            least_rto: scenario.tcp.as_ref().unwrap_or(&self.tcp).least_rto,
        }
    }
}

impl Job<'_> {
    /// The cell that was measured: what the bottleneck saw, with the objects that users have got.
    pub fn cell(&self, link: BottleneckSummary, objects: &[Completion], marks: Vec<String>) -> Cell {
        let link = BottleneckSummary {
            objects_done: objects.len() as u64,
            done_by_ms: distribution(objects),
            mean_by_pkts: means(objects),
            ..link
        };
        let [server, policy] = self.names.map(str::to_owned);
        let (load, repetition, link) = (self.load, self.repetition, Some(Box::new(link)));
        Cell { server, policy, load, repetition, link, marks, ..Cell::default() }
    }

    /// Its hosts, links and flows.
    ///
    /// # Errors
    ///
    /// When there is no such TCP.
    pub fn network(&self) -> Result<Network> {
        let network = &self.dumbbell.network;
        let [to_right, to_left] = self.paths();
        let (left, right) = self.delays();
        let stack = self.tcp().stack().with_context(|| format!("no stack is called {}", self.tcp().stack))?;
        Ok(Network {
            to_right,
            to_left,
            access_rate_bps: u64::from(network.access_mbit) * 1_000_000,
            left,
            right,
            stack,
            algorithm: self.tcp().algorithm.into(),
            bulk: self.bulk_flows(),
            users: self.users(),
            flood_per_s: self.scenario.flood_per_s,
            warm_up: self.dumbbell.grid.warmup.into(),
            seed: u64::from(self.repetition) + 1,
        })
    }

    fn tcp(&self) -> &Tcp {
        self.scenario.tcp.as_ref().unwrap_or(&self.dumbbell.tcp)
    }

    /// Those from servers first.
    fn bulk_flows(&self) -> Vec<Bulk> {
        let hosts = self.dumbbell.network.hosts;
        // From one host to the next on its side, and to all of the other side in turn.
        let partner = |number: u32| (number / hosts + number) % hosts;
        let (bulk, reverse) = (self.bulk, self.scenario.reverse);
        let starts = |number: u32| Nanos(BULK_WITHIN.0 * u64::from(number) / u64::from(bulk + reverse));
        let forward = (0..bulk).map(|n| Bulk { from: n % hosts, to: hosts + partner(n), starts: starts(n) });
        let back =
            (0..reverse).map(|n| Bulk { from: hosts + n % hosts, to: partner(n), starts: starts(bulk + n) });
        forward.chain(back).collect()
    }

    fn users(&self) -> Option<Users> {
        let count = self.scenario.sessions;
        (count > 0).then(|| Users {
            count,
            between_sessions: BETWEEN_SESSIONS,
            sessions: Sessions::redfavor(),
            sizes: self.scenario.workload.workload(),
            request_bytes: REQUEST_BYTES,
        })
    }

    /// The bottleneck, from servers to clients and back.
    fn paths(&self) -> [path::Config; 2] {
        let network = &self.dumbbell.network;
        let limit = aqm::Amount::Packets(network.back_limit);
        let back = aqm::Config::DropTail(aqm::DropTailConfig { limit });
        [self.aqm.queue.clone(), back].map(|queue| path::Config { queue, ..network.link.clone() })
    }

    /// What the bottleneck leaves of each round trip is the server's link's.
    fn delays(&self) -> (Vec<Nanos>, Vec<Nanos>) {
        let network = &self.dumbbell.network;
        let [first, last] = network.round_trips.map(|round_trip| round_trip.as_secs_f64());
        let most = f64::from(network.hosts.saturating_sub(1).max(1));
        let of = |host: u32| {
            let round_trip = first + (last - first) * f64::from(host) / most;
            Nanos::from_secs_f64((round_trip / 2.0 - network.link.delay.as_secs_f64()).max(0.0))
        };
        ((0..network.hosts).map(of).collect(), vec![Nanos::ZERO; network.hosts as usize])
    }
}
