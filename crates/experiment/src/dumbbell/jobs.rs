//! The cells of a dumbbell, and the hosts and flows of each.

use std::time::Duration;

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
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
/// Bulk flows begin within this time, each at a moment of its own part of it.
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
            seed: self.seed(),
        })
    }

    fn seed(&self) -> u64 {
        u64::from(self.repetition) + 1
    }

    fn tcp(&self) -> &Tcp {
        self.scenario.tcp.as_ref().unwrap_or(&self.dumbbell.tcp)
    }

    /// Those from servers first. When each begins depends on the seed: under a discipline without
    /// chance, nothing else of bulk flows does.
    fn bulk_flows(&self) -> Vec<Bulk> {
        let hosts = self.dumbbell.network.hosts;
        // From one host to the next on its side, and to all of the other side in turn.
        let partner = |number: u32| (number / hosts + number) % hosts;
        let (bulk, reverse) = (self.bulk, self.scenario.reverse);
        // Others than those of users, who have the seed itself.
        let mut random = Pcg64Mcg::seed_from_u64(!self.seed());
        let each = BULK_WITHIN.as_secs_f64() / f64::from(bulk + reverse);
        let mut starts =
            |number: u32| Nanos::from_secs_f64(each * (f64::from(number) + random.random::<f64>()));
        let forward: Vec<Bulk> =
            (0..bulk).map(|n| Bulk { from: n % hosts, to: hosts + partner(n), starts: starts(n) }).collect();
        let back =
            (0..reverse).map(|n| Bulk { from: hosts + n % hosts, to: partner(n), starts: starts(bulk + n) });
        forward.into_iter().chain(back).collect()
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PAPER: &str = include_str!("../../../../experiments/syn-protection/paper.toml");

    fn parse(text: String) -> Dumbbell {
        Dumbbell::parse(Path::new("d.toml"), text).expect("a dumbbell")
    }

    #[test]
    fn bulk_flows_begin_in_turn_and_at_other_moments_with_another_seed() {
        let paper = parse(PAPER.to_owned());
        let jobs = paper.jobs();
        let starts = |job: &Job<'_>| -> Vec<Nanos> {
            job.network().expect("it can be run").bulk.iter().map(|bulk| bulk.starts).collect()
        };
        let mut firsts: Vec<Nanos> = Vec::new();
        for of_seed in jobs.chunks(paper.aqms.len()) {
            let all = starts(&of_seed[0]);
            assert_eq!(all.len(), 10);
            for (number, start) in (0..).zip(&all) {
                let slot = Nanos::from_millis(500 * number)..Nanos::from_millis(500 * (number + 1));
                assert!(slot.contains(start), "flow {number} at {start}");
            }
            assert!(of_seed.iter().all(|job| starts(job) == all), "every discipline has the same flows");
            firsts.push(all[0]);
        }
        firsts.sort();
        firsts.dedup();
        assert_eq!(firsts.len(), 30, "one for each seed");
    }

    /// Under these disciplines nothing else of bulk flows depends on chance.
    #[test]
    fn bulk_flows_under_a_discipline_without_chance_are_another_run_with_another_seed() {
        let bulk_only = PAPER.replacen("sessions = 135\n", "", 1);
        for queue in ["droptail:limit=100", "codel"] {
            let text = bulk_only.replacen("red:limit=100,min=5,max=15,wait", queue, 1);
            let dumbbell = parse(text);
            let outcome = |repetition: usize| {
                let job = dumbbell.jobs()[repetition * dumbbell.aqms.len()];
                let network = Network { warm_up: Nanos::ZERO, ..job.network().expect("it can be run") };
                let mut run = sim::dumbbell::DumbbellRun::new(network).expect("a dumbbell");
                run.run_until(Nanos::from_secs(15));
                run.outcome()
            };
            let runs: Vec<_> = (0..5).map(outcome).collect();
            assert!(runs[0].to_right.packets > 1000, "{queue}: {:?}", runs[0].to_right);
            assert_eq!(runs[0], outcome(0), "{queue}: the same seed is the same run");
            let mut drops: Vec<u64> = runs.iter().map(|run| run.to_right.drops.total()).collect();
            drops.sort_unstable();
            drops.dedup();
            assert!(drops.len() >= 3, "{queue}: five seeds drop {drops:?} packets");
        }
    }
}
