//! Crowds whose ports come back, and in a closed loop: what an experiment file says of who keeps
//! TIME_WAIT.

use std::time::Duration;

use crowd::{Loop, Ports};
use serde::Deserialize;
use tcp::Close;
use units::Nanos;

use crate::clients::CrowdSpec;
use crate::time::{LONGEST, duration};

/// Users in a closed loop, and no more than a cell of a million connections can have.
const MOST_USERS: f64 = 1e5;
/// TIME_WAIT in seconds of one byte; twice the segment lifetime of RFC 9293 is 240 s.
const MOST_TIME_WAIT: Duration = Duration::from_secs(255);

/// Who closes a connection first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum First {
    /// The client, once its last reply is complete.
    #[default]
    Client,
    /// The same, and says so before: the request CLIENT_CLOSE of `[FTY97]`.
    ClientClose,
    /// The server, because the request says `Connection: close`; the client when it has the end.
    Server,
}

/// Users who come back as soon as they are answered, as a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoopText {
    /// How many, at a load of 1.
    pub users: u32,
    /// From an answer to the next request.
    #[serde(default, deserialize_with = "duration")]
    pub think: Duration,
}

impl LoopText {
    /// So many users.
    pub fn of(self, users: f64) -> Loop {
        Loop { users: (users.round() as u32).max(1), think: Nanos::from(self.think) }
    }
}

impl CrowdSpec {
    /// The ports of each address, where they come back.
    pub fn ports(&self) -> Option<Ports> {
        Some(Ports {
            count: self.ports?,
            time_wait_s: self.time_wait.as_secs() as u8,
            reuse_after: self.tw_reuse_after.map(Nanos::from),
            is_nat: self.nat,
        })
    }

    /// Whether such a crowd can be, at loads of up to `most_load`.
    ///
    /// # Errors
    ///
    /// One line: what contradicts what, and what would do.
    pub(crate) fn check_ports(&self, most_load: f64) -> Result<(), String> {
        let is_most = |ports: &u16| !(1..=Ports::MOST).contains(ports);
        if let Some(ports) = self.ports.filter(is_most) {
            return Err(format!("ports = {ports}: from 1 to {}", Ports::MOST));
        }
        if self.ports.is_none() && (self.nat || self.tw_reuse_after.is_some()) {
            return Err("nat and tw_reuse_after are of ports that come back; add ports = 200".to_owned());
        }
        if self.time_wait > MOST_TIME_WAIT || self.time_wait.subsec_nanos() != 0 {
            let time = self.time_wait;
            return Err(format!("time_wait = {time:?}: whole seconds, up to {MOST_TIME_WAIT:?}"));
        }
        if self.tw_reuse_after.is_some_and(|after| after >= self.time_wait) {
            return Err("tw_reuse_after is shorter than time_wait; 1s is Linux's".to_owned());
        }
        if self.close == Close::Swap && self.first != First::Server {
            return Err(
                "close = \"swap\" is of connections that the server closes first: first = \"server\""
                    .to_owned(),
            );
        }
        if self.close == Close::Reset && self.first == First::ClientClose {
            return Err("first = \"client-close\" closes by FIN: close = \"fin\"".to_owned());
        }
        if self.first == First::Server && self.reuse.get() > 1 {
            return Err(format!("reuse = {} and first = \"server\" contradict each other", self.reuse));
        }
        let Some(looped) = self.closed_loop else { return Ok(()) };
        if self.bursts.is_some() || self.demand.is_some() || self.abort.is_some() {
            return Err(
                "loop: its users come when they are answered; leave bursts, demand and abort out".to_owned()
            );
        }
        let users = f64::from(looped.users) * most_load;
        if looped.users == 0 || users > MOST_USERS || looped.think > LONGEST {
            return Err(format!(
                "loop of {} users: from 1 to {MOST_USERS} with the largest load, who think an hour at most",
                looped.users
            ));
        }
        Ok(())
    }
}

/// `net.ipv4.tcp_fin_timeout` has nothing to do with it: `TCP_TIMEWAIT_LEN`.
pub(crate) fn time_wait() -> Duration {
    Duration::from_secs(60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowd(keys: &str) -> CrowdSpec {
        toml::from_str(&format!("timeout = \"1s\"\narrivals = \"fixed\"\n{keys}")).expect(keys)
    }

    #[test]
    fn ports_have_linux_times_unless_told() {
        let ports = crowd("close = \"fin\"\nports = 200").ports().expect("some");
        assert_eq!(ports, Ports { count: 200, time_wait_s: 60, reuse_after: None, is_nat: false });
        assert_eq!(crowd("close = \"fin\"").ports(), None);
        let users = crowd("close = \"fin\"\nloop = { users = 40 }").closed_loop.expect("one");
        assert_eq!(users.of(20.4), Loop { users: 20, think: Nanos::ZERO });
        assert_eq!(users.of(0.1).users, 1, "somebody comes");
    }

    #[test]
    fn what_contradicts_itself_is_refused_in_one_line() {
        for (keys, why) in [
            ("close = \"fin\"\nports = 0", "ports = 0: from 1 to 28232"),
            ("close = \"fin\"\nnat = true", "add ports = 200"),
            ("close = \"fin\"\ntw_reuse_after = \"1s\"", "add ports = 200"),
            ("close = \"fin\"\nports = 2\ntime_wait = \"256s\"", "whole seconds, up to 255s"),
            ("close = \"fin\"\nports = 2\ntime_wait = \"1500ms\"", "whole seconds"),
            ("close = \"fin\"\nports = 2\ntw_reuse_after = \"60s\"", "1s is Linux's"),
            ("close = \"swap\"", "first = \"server\""),
            ("close = \"fin\"\nfirst = \"server\"\nreuse = 5", "contradict each other"),
            ("close = \"fin\"\nloop = { users = 0 }", "loop of 0 users"),
            ("close = \"fin\"\nloop = { users = 2000 }", "loop of 2000 users"),
            ("close = \"fin\"\nloop = { users = 2 }\ndemand = \"W1\"", "leave bursts, demand and abort out"),
        ] {
            let error = crowd(keys).check_ports(100.0).expect_err(keys);
            assert!(error.contains(why) && !error.contains('\n'), "{keys}: {error}");
        }
        assert_eq!(crowd("close = \"swap\"\nfirst = \"server\"\nports = 2").check_ports(1.0), Ok(()));
    }
}
