//! Settings of the programs, and their limits.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Destination, Error, Result};

/// `MAX_DESTINATIONS` of `kernel/close.bpf.c`.
const MOST_DESTINATIONS: usize = 64;
/// Shortest quarantine. The timestamp clock must have moved before PAWS tells old segments from new
/// ones (RFC 7323 5). Linux waits as long (`net.ipv4.tcp_tw_reuse_delay`).
pub const QUARANTINE: Duration = Duration::from_secs(1);
/// Shortest quarantine without timestamps: Linux's TIME_WAIT.
pub(crate) const LONG_QUARANTINE: Duration = Duration::from_secs(60);

/// How TIME_WAIT moves from the server to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The paper's LAST_ACK_SWAP: a RST frees the server, and its ports are in quarantine here.
    Swap,
    /// The client's kernel sees both ends close at once, and keeps TIME_WAIT itself.
    Hold,
}

impl Way {
    /// All ways, by name.
    pub const NAMED: [(&'static str, Self); 2] = [("swap", Self::Swap), ("hold", Self::Hold)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.into_iter().find(|(_, way)| *way == self).expect("each way has a name").0
    }
}

/// Sockets of this host that the programs handle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Sockets {
    /// All sockets.
    #[default]
    All,
    /// Sockets made in a control group (version 2) or below it: its folder.
    Of(PathBuf),
    /// Sockets whose program set the option TIDEGATE_CLOSE (docs/sockopt.md).
    ThatAsk,
}

/// Settings of the programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Servers whose connections the programs handle, 1 to 64 networks.
    pub destinations: Vec<Destination>,
    /// How TIME_WAIT moves.
    pub way: Way,
    /// Quarantine of ports after a swap, 1 to 240 s. Without timestamps it is 60 s or more.
    pub quarantine: Duration,
    /// Sockets that the programs handle.
    pub sockets: Sockets,
    /// Interfaces of the connections. Empty: those by which the destinations are reached now.
    pub interfaces: Vec<String>,
    /// Count, and change no segment.
    pub is_dry_run: bool,
}

impl Setup {
    pub(crate) fn check(&self) -> Result<()> {
        let mistaken = |why: String| Err(Error::Mistaken(why));
        if self.destinations.is_empty() {
            return mistaken("name a destination, as 10.0.0.0/8:80".to_owned());
        }
        if self.destinations.len() > MOST_DESTINATIONS {
            let count = self.destinations.len();
            return mistaken(format!(
                "{count} destinations are more than {MOST_DESTINATIONS}; name larger networks"
            ));
        }
        if self.quarantine < QUARANTINE {
            return mistaken(format!(
                "quarantine {:?}: below a second, timestamps do not tell an old connection from a new one; say 1s to 240s",
                self.quarantine
            ));
        }
        if self.quarantine > 4 * LONG_QUARANTINE {
            return mistaken(format!(
                "quarantine {:?}: no segment lives that long; say 1s to 240s",
                self.quarantine
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setup_that_makes_no_sense_is_refused_in_one_line() {
        let destination: Destination = "10.0.0.0/8:80".parse().expect("one");
        let good = Setup {
            destinations: vec![destination],
            way: Way::Swap,
            quarantine: QUARANTINE,
            sockets: Sockets::All,
            interfaces: Vec::new(),
            is_dry_run: false,
        };
        assert!(good.check().is_ok());
        for (setup, what) in [
            (Setup { destinations: Vec::new(), ..good.clone() }, "name a destination"),
            (Setup { destinations: vec![destination; 65], ..good.clone() }, "more than 64"),
            (Setup { quarantine: Duration::from_millis(9), ..good.clone() }, "say 1s to 240s"),
            (Setup { quarantine: Duration::from_secs(600), ..good.clone() }, "say 1s to 240s"),
        ] {
            let error = setup.check().expect_err(what).to_string();
            assert!(error.contains(what) && !error.contains('\n'), "{error}");
        }
    }
}
