//! `tidegate link`: a bottleneck between two interfaces. Each frame that comes in at one leaves at
//! the other, through a [`path::Path`] for each direction: queue discipline, rate, delay, jitter,
//! loss and reordering.
//!
//! What it is not: a switch, because it learns no addresses and knows two interfaces. Nor a router:
//! it has no addresses and no TTL. It does not segment frames that are longer than the other side's
//! MTU, or give back a VLAN tag that the driver takes off. What the host's own kernel sends on the
//! interfaces goes out beside it.
//!
//! # How it works
//!
//! One thread does all of it, on AF_XDP, or on packet sockets where AF_XDP cannot be used. In a
//! turn it receives from both ports and sends to both what is due, 32 frames of each at most. Then
//! it sleeps until a frame comes or the next one is due.
//!
//! `crates/path` decides what becomes of a frame, and when. It knows only the moments of arrival.
//! So however late the thread looks, packets are dequeued, dropped and due as of their own moments;
//! how much later they left is counted. A frame is copied into a pool when it arrives, and a path
//! has its number. Hosts may have links of their own, one path before the bottleneck and one behind
//! it.
//!
//! Nothing stays behind however it ends: programs, sockets and promiscuous mode are the process's.
//!
//! `bridge.rs` is the thread, `direction.rs` what it does for one direction, `way.rs` the links
//! that a frame takes there. `classify.rs` finds what a queue discipline wants to know of a frame,
//! and `service.rs` of its response.

mod bridge;
mod classify;
mod direction;
mod interface;
mod pool;
mod service;
mod way;

use std::net::IpAddr;
use std::time::Duration;

pub use bridge::{Link, Progress};
pub use direction::{Direction, Failures};
pub use port::Mode;
pub use way::Opening;

/// Buffers for frames, over both directions, unless told: at 100 Mb/s and 1500 bytes, what is under
/// way for 8 s.
pub const DEFAULT_BUFFERS: u32 = 65_536;
/// Most buffers: 8 GiB with an MTU of 1500.
pub const MAX_BUFFERS: u32 = 1 << 22;

/// Most hosts with links of their own.
pub const MAX_ACCESS: usize = 2000;

/// A host's own link to the bottleneck: a path each way, before the bottleneck for what it sends,
/// and behind it for what it gets.
#[derive(Debug, Clone, PartialEq)]
pub struct Access {
    /// Its address, at either interface.
    pub host: IpAddr,
    /// Each way.
    pub path: path::Config,
}

/// A bottleneck between two interfaces.
#[derive(Debug, Clone)]
pub struct Config {
    /// The two, in the caller's network namespace.
    pub interfaces: [String; 2],
    /// From the first to the second, and back.
    pub paths: [path::Config; 2],
    /// Hosts that have links of their own; of all others the frames come to the bottleneck at once.
    /// [`MAX_ACCESS`] at most.
    pub access: Vec<Access>,
    /// How frames are received.
    pub mode: Mode,
    /// The CPU of its thread, where the kernel is not to choose.
    pub cpu: Option<usize>,
    /// Never sleep: more precise, for all of a CPU.
    pub busy_poll: bool,
    /// Frames that can be inside, over both directions: 1 to [`MAX_BUFFERS`].
    pub buffers: u32,
    /// Of all that happens by chance.
    pub seed: u64,
    /// What happens before is not counted.
    pub warmup: Duration,
    /// For how long after the warm-up; until it is stopped, if not told.
    pub duration: Option<Duration>,
}

/// A link that cannot be: a mistake of whoever asks for it, not of the machine.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// One interface is both ends.
    #[error("interface {0} is given twice; a link is between two")]
    SameInterface(String),
    /// They are the two ends of one veth pair.
    #[error(
        "interfaces {0} and {1} are the two ends of one veth pair, between which frames would go round for ever; name the near ends of two \
         pairs"
    )]
    OnePair(String, String),
    /// None, or too many.
    #[error("{0} buffers cannot be; 1 to {MAX_BUFFERS}")]
    Buffers(u32),
    /// More than [`MAX_ACCESS`].
    #[error("{0} hosts with links of their own; {MAX_ACCESS} at most")]
    ManyHosts(usize),
    /// A host has two links of its own.
    #[error("host {0} is given two links of its own; leave one")]
    SameHost(IpAddr),
}

impl Config {
    /// Whether a discipline goes by what is left of responses, or by what they have sent.
    pub(crate) fn goes_by_response(&self) -> bool {
        let access = self.access.iter().map(|access| &access.path);
        self.paths.iter().chain(access).any(|path| path.queue.goes_by_response())
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let [first, second] = &self.interfaces;
        if first == second {
            return Err(ConfigError::SameInterface(first.clone()));
        }
        if !(1..=MAX_BUFFERS).contains(&self.buffers) {
            return Err(ConfigError::Buffers(self.buffers));
        }
        if self.access.len() > MAX_ACCESS {
            return Err(ConfigError::ManyHosts(self.access.len()));
        }
        let mut hosts: Vec<IpAddr> = self.access.iter().map(|access| access.host).collect();
        hosts.sort_unstable();
        let twice = hosts.windows(2).find(|pair| pair[0] == pair[1]);
        twice.map_or(Ok(()), |pair| Err(ConfigError::SameHost(pair[0])))
    }
}
