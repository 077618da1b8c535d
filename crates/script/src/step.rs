//! What a script says.

use std::fmt;
use std::str::FromStr;

use units::Nanos;
use verdict::Policy;

use crate::{Pattern, Series};

/// A script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// Its file, as errors name it.
    pub file: String,
    /// What is there before the first step.
    pub setup: Setup,
    /// What happens, one after another.
    pub steps: Vec<Step>,
    /// What of a paper its lines show.
    pub claims: Vec<Claim>,
}

/// What a paper says, and the lines above show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Number of its line, from 1. It holds when every step above does.
    pub line: usize,
    /// In a sentence.
    pub text: String,
}

/// A server, its guard, and where the script is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// Of the guard.
    pub policy: Policy,
    /// The guard only counts what it would do.
    pub dry_run: bool,
    /// Argument of listen(2).
    pub backlog: u32,
    /// One run for each.
    pub families: Vec<Family>,
    /// One run for each.
    pub hooks: Vec<Hook>,
    /// Names and values, of the server's namespace.
    pub sysctls: Vec<(String, String)>,
    /// The first Linux that does so; `None` for any that we run on.
    pub linux: Option<Series>,
}

/// A line that does something, or expects something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Number of its line, from 1.
    pub line: usize,
    /// `+SECONDS`: see [`crate::run`].
    pub after: Option<Nanos>,
    /// What.
    pub action: Action,
}

/// What a step does or expects. Clients are named by labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// `a: > S 0:0(0)`
    Send(String, Pattern),
    /// `a: < S. 0:0(0) ack 1`
    Expect(String, Pattern),
    /// `a: silence 1.5`
    Silence(String, Nanos),
    /// `a: connect`: the three segments of a handshake.
    Connect(String),
    /// `a: search dropped`: SYNs from one port after another, until the counter moves; that one's
    /// host is `a`.
    Search(String, String),
    /// `fill`: hosts without a name connect until the accept queue is full.
    Fill,
    /// `server accept a`; `fill` stands for any of those.
    Accept(String),
    /// `server read a 80`
    Read(String, usize),
    /// `server read a EOF`
    ReadEof(String),
    /// `server read a RESET`
    ReadReset(String),
    /// `server write a 1012`
    Write(String, usize),
    /// `server shutdown a`: no more data from the server.
    Shutdown(String),
    /// `server close a`
    Close(String),
    /// `state a ESTABLISHED`: of the server's end.
    State(String, State),
    /// `queues accept 2 syn 0`, connections.
    Queues {
        /// Established, waiting for accept(2).
        accept: u32,
        /// Handshakes in progress.
        syn: u32,
    },
    /// `count reset 1`: by how much counters moved since the last such step.
    Count(Vec<(String, u64)>),
}

/// Address family of the packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Where the guard's programs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// tcx, or generic XDP where the kernel has no tcx.
    Auto,
    /// tcx ingress.
    Tcx,
    /// The driver's XDP.
    Xdp,
    /// XDP in the stack.
    XdpGeneric,
}

/// State of the server's end of a connection, by the kernel's names (include/net/tcp_states.h,
/// without `TCP_`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// A request socket.
    SynRecv,
    /// Connected.
    Established,
    /// The server has sent FIN.
    FinWait1,
    /// And it is acknowledged.
    FinWait2,
    /// The client has sent FIN.
    CloseWait,
    /// Both have, and the server's is not acknowledged.
    Closing,
    /// The client first, and the server's is not acknowledged.
    LastAck,
    /// Both have, the server first.
    TimeWait,
    /// The server knows nothing of the client.
    Gone,
}

/// A word that names none of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {word:?} is not known; known are {known}")]
pub struct UnknownName {
    what: &'static str,
    word: String,
    known: String,
}

/// Names of an enum: printed, and read back.
macro_rules! names {
    ($type:ident, $what:literal, $($name:literal => $value:ident),+) => {
        impl $type {
            const NAMES: &[(&'static str, Self)] = &[$(($name, Self::$value)),+];
        }

        impl FromStr for $type {
            type Err = UnknownName;

            fn from_str(word: &str) -> Result<Self, UnknownName> {
                let found = Self::NAMES.iter().find(|(name, _)| *name == word);
                found.map(|(_, value)| *value).ok_or_else(|| {
                    let known: Vec<&str> = Self::NAMES.iter().map(|(name, _)| *name).collect();
                    UnknownName { what: $what, word: word.to_owned(), known: known.join(", ") }
                })
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let found = Self::NAMES.iter().find(|(_, value)| value == self);
                f.write_str(found.expect("every value has a name").0)
            }
        }
    };
}

names!(Family, "family", "ipv4" => Ipv4, "ipv6" => Ipv6);
names!(Hook, "hook", "auto" => Auto, "tcx" => Tcx, "xdp" => Xdp, "xdp-generic" => XdpGeneric);
names!(State, "state", "SYN_RECV" => SynRecv, "ESTABLISHED" => Established, "FIN_WAIT1" => FinWait1,
    "FIN_WAIT2" => FinWait2, "CLOSE_WAIT" => CloseWait, "CLOSING" => Closing, "LAST_ACK" => LastAck,
    "TIME_WAIT" => TimeWait, "gone" => Gone);
