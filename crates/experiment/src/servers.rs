//! Who serves: what an experiment file says of its servers, and of the clients of one of them.

use std::num::{NonZeroU8, NonZeroU32};
use std::time::Duration;

use crowd::Abort;
use ipnet::Ipv4Net;
use serde::Deserialize;

use crate::bursts::Bursts;
use crate::clients::some_abort;
use crate::demand::Demand;
use crate::time::{duration, some_duration};
use crate::ways::Way;
use crate::workload::WorkloadText;

/// A server under test.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSpec {
    /// Name in tables.
    pub name: String,
    /// Which program.
    pub kind: ServerKind,
    /// The listen(2) argument.
    pub backlog: u32,
    /// CPU time per request; built-in server only.
    #[serde(default, deserialize_with = "duration")]
    pub cpu_time: Duration,
    /// Processes of a pool; 150 unless given.
    pub processes: Option<NonZeroU32>,
    /// A process closes its connection after so many requests, before the client does, and waits
    /// for the client's FIN.
    pub closes_after: Option<NonZeroU32>,
    /// First timeout of TCP at both ends, before any round trip was measured.
    #[serde(default, deserialize_with = "some_duration")]
    pub initial_rto: Option<Duration>,
    /// Largest segment at both ends, bytes.
    pub mss: Option<u16>,
    /// What the clients do otherwise.
    #[serde(default)]
    pub(crate) crowd: Change,
    /// The measured window, if not that of the grid.
    #[serde(default, deserialize_with = "some_duration")]
    pub(crate) duration: Option<Duration>,
    /// It is stopped as soon as it listens: it accepts nobody, and takes no time.
    #[serde(skip)]
    pub is_stopped: bool,
    /// How far its clients are, where the file says.
    #[serde(skip)]
    pub way: Option<Box<Way>>,
}

impl ServerSpec {
    /// Whether both are the same program with the same settings that is asked for the same,
    /// whatever they are called, whoever comes, and from how far.
    pub(crate) fn is_as(&self, other: &Self) -> bool {
        let program = |server: &Self| Self {
            name: String::new(),
            crowd: Change { bursts: None, timeout: None, reuse: None, abort: None, ..server.crowd.clone() },
            duration: None,
            way: None,
            ..server.clone()
        };
        program(self) == program(other)
    }
}

/// What the clients of one server do otherwise than those of the others.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Change {
    /// In which bursts they come.
    pub bursts: Option<Bursts>,
    /// The bandwidth that they ask for.
    pub demand: Option<Demand>,
    /// How long they wait for the reply.
    #[serde(default, deserialize_with = "some_duration")]
    pub timeout: Option<Duration>,
    /// What they ask for.
    pub workload: Option<WorkloadText>,
    /// Requests that a connection carries at most.
    pub reuse: Option<NonZeroU8>,
    /// When users stop waiting.
    #[serde(default, deserialize_with = "some_abort")]
    pub abort: Option<Abort>,
    /// Where they come from.
    pub clients: Option<Ipv4Net>,
    /// Ports of each address.
    pub ports: Option<u16>,
    /// The address is a NAT's.
    pub nat: Option<bool>,
}

impl ServerSpec {
    /// What it says that only a server behind an uplink has.
    pub(crate) fn needs_uplink(&self) -> Option<&'static str> {
        let keys = [("processes", self.processes.is_some()), ("closes_after", self.closes_after.is_some())];
        let said = keys.into_iter().find_map(|(key, is_there)| is_there.then_some(key));
        said.or_else(|| self.only_simulated())
    }

    /// What it says that the lab cannot set on a kernel.
    pub fn only_simulated(&self) -> Option<&'static str> {
        let keys = [("initial_rto", self.initial_rto.is_some()), ("mss", self.mss.is_some())];
        keys.into_iter().find_map(|(key, is_there)| is_there.then_some(key))
    }
}

impl ServerKind {
    /// Of the pool that an Apache is: Debian's `MaxRequestWorkers`.
    pub const PROCESSES: NonZeroU32 = NonZeroU32::new(150).expect("above 0");

    /// Whether it sends files, and no bytes of its own making.
    pub fn has_files(self) -> bool {
        matches!(self, Self::Nginx | Self::Apache)
    }
}

/// Which program serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerKind {
    /// `tidegate serve`.
    BuiltIn,
    /// The distribution's nginx with its own configuration, but one worker and the backlog. Left
    /// out, with a word, where it is not installed.
    Nginx,
    /// The distribution's Apache with its own configuration, but as a pool of processes (150, or
    /// `processes`), and the backlog. Left out in the same way.
    Apache,
    /// A server in the kernel, as TUX of `[Shu05]` section 3.1.1, which takes one connection at a
    /// time (*Accept-1*). The lab has none: `tidegate serve` stands for it, with a word.
    InKernel,
}
