//! What is wanted.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Destination, Error, Result};

/// That the program's maps hold.
const MOST_DESTINATIONS: usize = 64;
/// Of connections with timestamps: by these no old segment passes for a new one (PAWS, RFC 7323 5),
/// as soon as the clock behind them has moved. Linux itself waits as long
/// (`net.ipv4.tcp_tw_reuse_delay`).
pub const QUARANTINE: Duration = Duration::from_secs(1);
/// Of connections without: as long as Linux's TIME_WAIT.
pub(crate) const LONG_QUARANTINE: Duration = Duration::from_secs(60);

/// How the server gets rid of TIME_WAIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The paper's LAST_ACK_SWAP: a RST frees the server, and the ports are kept from use here.
    Swap,
    /// The client's kernel sees both ends close at once, and keeps TIME_WAIT itself.
    Hold,
}

impl Way {
    /// All, by name.
    pub const NAMED: [(&'static str, Self); 2] = [("swap", Self::Swap), ("hold", Self::Hold)];
}

/// Which sockets of this host are meant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Sockets {
    /// All.
    #[default]
    All,
    /// Those that were made in a control group (version 2) or below it: its folder.
    Of(PathBuf),
    /// Those whose program has asked: the option TIDEGATE_CLOSE, docs/sockopt.md.
    ThatAsk,
}

/// What is wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// Of which connections.
    pub destinations: Vec<Destination>,
    /// How.
    pub way: Way,
    /// For how long ports are kept from use after a swap, at least; where there are no timestamps,
    /// for 60 s at least.
    pub quarantine: Duration,
    /// Whose.
    pub sockets: Sockets,
    /// By which they go; none: those by which the destinations are reached now.
    pub interfaces: Vec<String>,
    /// Count, and leave every segment alone.
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
