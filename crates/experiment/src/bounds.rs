//! What an experiment with servers is checked for: that it can be run, and in a lifetime.

use std::time::Duration;

use sim::Profile;

use crate::check::{check_claims, check_loads, check_names, check_title, check_window, unique};
use crate::claims::{Claim, Measure, Scope};
use crate::clients::check_abort;
use crate::experiment::Experiment;
use crate::extent;
use crate::layout::{Layout, Receive};
use crate::policy::Policy;
use crate::servers::{ServerKind, ServerSpec};
use crate::time::{LONGEST, MOST_RATE};

/// Of a request.
const LONGEST_WORK: Duration = Duration::from_secs(60);
/// First timeouts that a TCP may have (`net.ipv4.tcp_rto_min_us` and more).
const INITIAL_RTO: std::ops::RangeInclusive<Duration> = Duration::from_millis(200)..=Duration::from_secs(60);
/// Segments over Ethernet, with frames of up to 9,000 bytes; the least is Linux's.
const MSS: std::ops::RangeInclusive<u16> = 88..=8960;
/// Most times more that a point may be measured; where the machine disturbs even more, it is no
/// machine to measure on.
const MOST_AGAIN: u32 = 10;

impl Experiment {
    /// Whether all of it can be run.
    pub(crate) fn check(&self) -> Result<(), String> {
        let rows = self.servers.iter().map(|server| &server.name);
        let names = rows.chain(self.policies.iter().map(|policy| &policy.name)).chain([&self.name]);
        check_names(names)?;
        check_title(&self.title)?;
        check_loads(&self.grid.loads)?;
        self.servers.iter().try_for_each(|server| self.check_window_of(server))?;
        check_window("grid.duration", self.grid.duration)?;
        check_window("saturation.duration", self.saturation.duration)?;
        check_window("saturation.confirm", self.saturation.confirm.unwrap_or(self.grid.duration))?;
        let longest_wait = self.servers.iter().map(|server| self.clients(server).timeout).max();
        let longest = self.grid.warmup.max(self.crowd.timeout).max(self.testbed.patience);
        if longest > LONGEST || longest_wait > Some(LONGEST) {
            return Err("grid.warmup, crowd.timeout and testbed.patience can be an hour at most".to_owned());
        }
        check_abort("crowd.abort", self.crowd.abort)?;
        self.servers.iter().try_for_each(|server| {
            let clients = self.clients(server);
            check_abort(&format!("server {:?}: crowd.abort", server.name), server.crowd.abort)?;
            match clients.reuse.get() > 1 && !clients.workload.workload().is_one_request() {
                true => Err(format!(
                    "server {:?}: reuse = {} and a workload of several requests on a connection are two ways to say it; name one",
                    server.name, clients.reuse
                )),
                false => Ok(()),
            }
        })?;
        let beyond = |server: &&ServerSpec| {
            server.crowd.clients.is_some_and(|clients| !self.crowd.clients.contains(&clients))
        };
        if let Some(server) = self.servers.iter().find(beyond) {
            return Err(format!(
                "server {:?}: crowd.clients is not part of the file's own crowd.clients, {}",
                server.name, self.crowd.clients
            ));
        }
        let most_load = self.grid.loads.iter().copied().fold(0.0, f64::max);
        for server in &self.servers {
            for policy in &self.policies {
                self.crowd_of(server, policy).check_ports(most_load).map_err(|what| {
                    format!("server {:?}, policy {:?}: crowd.{what}", server.name, policy.name)
                })?;
            }
        }
        self.saturation.check()?;
        if self.ways.is_some() && self.testbed.receive == Receive::Driver {
            return Err("testbed.receive = \"driver\" and [path]: a link hands over socket buffers, not a driver's pages; \"napi\" goes with it".to_owned());
        }
        if let Some(server) = self.servers.iter().find(|server| server.backlog > i32::MAX.cast_unsigned()) {
            return Err(format!(
                "server {:?}: backlog {} is more than listen(2) takes",
                server.name, server.backlog
            ));
        }
        let ends = [*Layout::SERVER.ip(), Layout::ROUTER];
        if ends.iter().any(|end| self.crowd.clients.contains(end)) {
            return Err(format!(
                "crowd.clients {} has the testbed's own 10.76.0.0/30 in it",
                self.crowd.clients
            ));
        }
        if self.grid.repetitions == 0 {
            return Err("grid.repetitions is 0: nothing would be measured; 1 is usual".to_owned());
        }
        if self.grid.again > MOST_AGAIN {
            return Err(format!("grid.again is {}, and can be {MOST_AGAIN} at most", self.grid.again));
        }
        if self.servers.is_empty() || self.policies.is_empty() {
            return Err("at least one [[server]] and one [[policy]] are wanted".to_owned());
        }
        unique("server", self.servers.iter().map(|server| server.name.as_str()))?;
        unique("policy", self.policies.iter().map(|policy| policy.name.as_str()))?;
        self.testbed.check()?;
        if let Some(server) =
            self.servers.iter().find(|s| s.kind != ServerKind::BuiltIn && !s.cpu_time.is_zero())
        {
            return Err(format!("server {:?}: cpu_time is for kind = \"built-in\" only", server.name));
        }
        if let Some(server) = self.servers.iter().find(|server| server.cpu_time > LONGEST_WORK) {
            return Err(format!(
                "server {:?}: cpu_time = {:?} is no work for one request; up to {LONGEST_WORK:?}",
                server.name, server.cpu_time
            ));
        }
        if let Some(name) = self.profile.as_deref().filter(|name| Profile::shipped(name).is_none()) {
            let known: Vec<&str> = Profile::shipped_names().collect();
            return Err(format!("profile = {name:?} does not come along; there are {}", known.join(", ")));
        }
        if self.crowd.timeout.is_zero()
            || self.servers.iter().any(|server| self.clients(server).timeout.is_zero())
        {
            return Err("crowd.timeout is zero: nobody would wait for a reply; 10s is usual".to_owned());
        }
        self.servers.iter().try_for_each(|server| self.check_way_to(server))?;
        self.check_uplink()?;
        self.servers.iter().try_for_each(|server| self.check_demand_of(server))?;
        self.policies.iter().try_for_each(Policy::check)?;
        self.check_claims()
    }

    fn check_uplink(&self) -> Result<(), String> {
        self.check_sizes()?;
        let Some(uplink) = &self.uplink else {
            if let Some(policy) = self.policies.iter().find(|policy| policy.uplink.is_some()) {
                return Err(format!(
                    "policy {:?}: uplink changes a table that is not there; [uplink] with rate = \"10mbit\" would do",
                    policy.name
                ));
            }
            let is_open = self.crowd.closed_loop.is_none();
            let of_uplink =
                |server: &ServerSpec| Some((server.name.clone(), server.needs_uplink().filter(|_| is_open)?));
            return match self.servers.iter().find_map(of_uplink) {
                Some((name, key)) => Err(format!(
                    "server {name:?}: {key} is of a server behind an uplink, or of a crowd in a closed loop; add [uplink], or crowd.loop"
                )),
                None => Ok(()),
            };
        };
        uplink.uplink()?;
        if let Some(server) = self.servers.iter().find(|server| !self.has_demand(server)) {
            return Err(format!(
                "server {:?}: behind an uplink loads are of its rate, and nothing is asked for; crowd.demand = {{ persistent = 1.2 }} would do",
                server.name
            ));
        }
        for policy in &self.policies {
            if policy.uplink.as_ref().is_some_and(|own| own.says_rate()) {
                return Err(format!(
                    "policy {:?}: uplink.rate is that of all policies, because loads are multiples of it",
                    policy.name
                ));
            }
            self.uplink_of(policy).map_err(|why| format!("policy {:?}: {why}", policy.name))?;
        }
        Ok(())
    }

    /// What a server's own program and TCP may be.
    fn check_sizes(&self) -> Result<(), String> {
        for server in &self.servers {
            let wrong = |what: String| Err(format!("server {:?}: {what}", server.name));
            if server.kind != ServerKind::Apache
                && (server.processes.is_some() || server.closes_after.is_some())
            {
                return wrong("processes and closes_after are for kind = \"apache\" only".to_owned());
            }
            if let Some(rto) = server.initial_rto.filter(|rto| !INITIAL_RTO.contains(rto)) {
                return wrong(format!("initial_rto = {rto:?}: from 200ms to 60s; 1s is usual"));
            }
            if let Some(mss) = server.mss.filter(|mss| !MSS.contains(mss)) {
                return wrong(format!("mss = {mss}: from 88 to 8960 bytes; 1460 is usual"));
            }
        }
        Ok(())
    }

    fn check_demand_of(&self, server: &ServerSpec) -> Result<(), String> {
        let Some(demand) = self.demand(server) else { return Ok(()) };
        if self.bursts(server).is_some() {
            return Err(format!("crowd.demand {demand} and bursts are two schedules; name one"));
        }
        let rate = self.rate_of_uplink(server)?.expect("there is a demand");
        let peak = rate * demand.shape().peak() * self.grid.loads.iter().copied().fold(0.0, f64::max);
        if peak > MOST_RATE {
            return Err(format!(
                "crowd.demand {demand}: {peak:.0} attempts/s at its peak; up to {MOST_RATE:.0}: lower the bandwidth"
            ));
        }
        Ok(())
    }

    fn check_way_to(&self, server: &ServerSpec) -> Result<(), String> {
        let timeout = self.clients(server).timeout;
        let shortest: Duration =
            server.way.as_ref().map_or(Duration::ZERO, |way| way.shortest_reply().into());
        if shortest < timeout {
            return Ok(());
        }
        Err(format!(
            "path.delay: a reply takes two round trips, {shortest:?}, and nobody waits longer than {timeout:?}; raise crowd.timeout, or lower the delay"
        ))
    }

    /// Whether it can be measured in a lifetime.
    pub(crate) fn check_extent(&self) -> Result<(), String> {
        let points = self.policies.len() as u128 * self.grid.points();
        let (mut lab_s, mut attempts) = (0.0, 0.0);
        for server in &self.servers {
            let time = self.grid.warmup + self.window(server);
            lab_s += extent::times(time, points);
            let can = self.likely_rate(server);
            let rates = self.grid.loads.iter().map(|load| self.mean_rate(server, load * can));
            let rate = rates.sum::<f64>() / self.grid.loads.len() as f64;
            attempts += extent::times(time, points) * rate;
        }
        let virtual_s = attempts * extent::ATTEMPT_S;
        let time = format!(
            "{} in the lab, and about {} in virtual time on one CPU",
            extent::roughly(lab_s),
            extent::roughly(virtual_s)
        );
        let cells = points * self.servers.len() as u128;
        extent::check(cells, lab_s.min(virtual_s), &time, "take out loads, servers or policies")
    }

    /// Attempts/s that a load of 1 is likely to be.
    fn likely_rate(&self, server: &ServerSpec) -> f64 {
        let searched = extent::likely_rate(server.cpu_time).max(self.saturation.from);
        self.rate_of_uplink(server).ok().flatten().unwrap_or(searched)
    }

    /// Attempts that the largest cell may have waiting at once, and how many cells there are: of
    /// what comes beyond what a server can do all that came within a client's patience. None where
    /// every policy answers whom it refuses.
    pub(crate) fn most_waiting(&self) -> (f64, usize) {
        let answers = |guard: &String| {
            guard.parse::<verdict::Policy>().is_ok_and(|guard| guard.syn_when_full == verdict::Verdict::Reset)
        };
        let is_silent = self.policies.iter().any(|policy| !policy.guard.as_ref().is_some_and(answers));
        let largest = self.grid.loads.iter().copied().fold(0.0, f64::max);
        let waiting = self.servers.iter().map(|server| {
            let can = self.likely_rate(server);
            let patience = self.clients(server).timeout.min(self.grid.warmup + self.window(server));
            let beyond = self.mean_rate(server, largest * can) - can;
            beyond.max(0.0) * patience.as_secs_f64()
        });
        let cells = self.policies.len() as u128 * self.grid.points() * self.servers.len() as u128;
        let most = if is_silent { waiting.fold(0.0, f64::max) } else { 0.0 };
        (most, usize::try_from(cells).unwrap_or(usize::MAX))
    }

    fn check_window_of(&self, server: &ServerSpec) -> Result<(), String> {
        let key = match server.duration {
            Some(_) => &format!("server {:?}: duration", server.name),
            None => "grid.duration",
        };
        let window = self.window(server);
        check_window(key, window)?;
        match self.bursts(server) {
            Some(bursts) => bursts.check().and_then(|()| bursts.check_window(key, window)),
            None => Ok(()),
        }
    }

    fn check_claims(&self) -> Result<(), String> {
        let policies: Vec<(&str, bool)> =
            self.policies.iter().map(|policy| (policy.name.as_str(), policy.guard.is_some())).collect();
        let servers: Vec<&str> = self.servers.iter().map(|server| server.name.as_str()).collect();
        let way = self.servers.first().and_then(|server| server.way.as_ref());
        let groups = way.map_or(1, |way| way.groups.len().max(1));
        let scope = Scope { loads: &self.grid.loads, policies: &policies, servers: &servers, groups };
        check_claims(&self.claims, &scope, |Claim { measure, .. }| {
            if measure.is_of_uplink() && self.uplink.is_none() {
                return Some(format!("{measure} is of a server's uplink; here is none"));
            }
            let is_here = *measure == Measure::Utilisation && self.uplink.is_some();
            (measure.is_of_link() && !is_here)
                .then(|| format!("{measure} is of a dumbbell's bottleneck; here is none"))
        })
    }
}
