//! Guards one listener: finds it, loads `kernel/admit.bpf.c`, sets the policy, attaches to interfaces, reads counters.
//!
//! It does not pin anything and keeps no thread: the programs live as long as the [`Guard`] (or its process) does, and
//! a [`Sample`] is taken when asked for. It does not start, stop or configure the server.
//!
//! Everything here acts in the network namespace of the calling thread, so start and sample in the same one.
//!
//! ```no_run
//! use guard::{Attach, Config, Guard, Policy};
//!
//! let config = Config {
//!     listen: "10.0.0.1:80".parse()?,
//!     policy: Policy::RST_SYN,
//!     interfaces: Vec::new(), // every one that holds an address
//!     attach: Attach::Auto,
//!     dry_run: false,
//!     lease: None,
//! };
//! let guard = Guard::start(&config)?;
//! println!("{} reset", guard.sample()?.stats.reset);
//! # Ok::<(), anyhow::Error>(())
//! ```

mod attach;
mod interface;
mod listener;
mod program;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bpf::Hook;

pub use attach::{Attach, Attached};
pub use program::{ListenerStats, PathStats};
pub use verdict::{ListenerLoad, OnFin, Policy, PolicyError, Verdict};

use interface::Interface;
use program::Programs;

/// What to guard, and how.
#[derive(Debug, Clone)]
pub struct Config {
    /// Destination of the SYNs to decide on. `0.0.0.0` and `[::]` stand for every address of the host.
    pub listen: SocketAddr,
    /// What to do with them.
    pub policy: Policy,
    /// Interface names; none means every interface that holds an address.
    pub interfaces: Vec<String>,
    /// Where on the interfaces.
    pub attach: Attach,
    /// Count what would be done, and do nothing.
    pub dry_run: bool,
    /// How long the decisions stand after [`Guard::renew`]; after that everything is left to the kernel, until the next. `None` is
    /// for as long as the guard lives.
    pub lease: Option<Duration>,
}

/// A guarded listener. Dropping it detaches everything.
#[derive(Debug)]
pub struct Guard {
    listen: SocketAddr,
    programs: Programs,
    attached: Vec<Attached>,
    warnings: Vec<String>,
    lease: Option<Duration>,
}

/// What the guard sees at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// The listener's queues now; `None` when nothing listens any more. Of a `SO_REUSEPORT` group, one member's.
    pub load: Option<ListenerLoad>,
    /// SYNs of the listener since the start, by what became of them.
    pub stats: ListenerStats,
    /// Every frame since the start, and why those that were not decided on were passed.
    pub path: PathStats,
}

impl Guard {
    /// Finds the listener, loads and attaches; on an error nothing stays behind.
    ///
    /// # Errors
    ///
    /// One line each that says what to do: nothing listens there, no such interface, no privileges, no BTF in this kernel, a
    /// driver without native XDP, an MTU too large for it.
    pub fn start(config: &Config) -> Result<Self> {
        let listen = canonical(config.listen);
        listener::require(listen)?;
        let interfaces = interface::choose(&config.interfaces)?;
        let programs = Programs::load()?;
        if programs.ask(listen)?.is_none() {
            return Err(listener::missing(listen));
        }
        programs.set_own_addresses(&interface::own_addresses()?)?;
        programs.guard(listen, &config.policy, config.dry_run)?;
        if let Some(lease) = config.lease {
            programs.lease(lease)?;
        }
        let mut notes = others_first(&interfaces);
        let attached =
            attach::attach_all(&programs, &interfaces, config.attach, config.policy.has_later_stages())?;
        notes.extend(warnings(&attached, &interfaces));
        Ok(Self { listen, programs, attached, warnings: notes, lease: config.lease })
    }

    /// Lets the decisions stand for another lease. Call it from the loop that shows that the agent is alive, several times
    /// in each lease.
    pub fn renew(&self) -> Result<()> {
        self.lease.map_or(Ok(()), |lease| self.programs.lease(lease))
    }

    /// How long the program of a hook takes for a frame: the mean of `repeat` runs, in the calling thread's network namespace
    /// and as if it came in by its loopback. See [`bpf::test_run`]; the runs count in the statistics.
    pub fn time(&self, hook: Hook, frame: &[u8], repeat: u32) -> Result<Duration> {
        bpf::test_run(self.programs.for_hook(hook), frame, repeat).context("run the program on a frame")
    }

    /// Interfaces and hooks in use.
    pub fn attached(&self) -> &[Attached] {
        &self.attached
    }

    /// What the operator should know although it is no error; one line each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Reads the listener's queues and all counters, and sees to it that a wildcard stands for the addresses that the
    /// host has now. Call it in the namespace where the guard was started, every second or so.
    ///
    /// # Errors
    ///
    /// When every interface that was guarded is gone.
    pub fn sample(&self) -> Result<Sample> {
        let is_gone = |attached: &Attached| interface::is_gone(attached.interface());
        ensure!(
            !self.attached.iter().all(is_gone),
            "guard {}: every guarded interface is gone; nothing is guarded any more",
            self.listen
        );
        self.programs.set_own_addresses(&interface::own_addresses()?)?;
        Ok(Sample {
            load: self.programs.ask(self.listen)?,
            stats: self.programs.stats()?,
            path: self.programs.path()?,
        })
    }
}

/// `[::ffff:10.0.0.1]:80` is 10.0.0.1:80 on the wire.
fn canonical(listen: SocketAddr) -> SocketAddr {
    SocketAddr::new(listen.ip().to_canonical(), listen.port())
}

/// Programs that are at tcx of the interfaces before ours: they see each frame first, and keep those they answer.
fn others_first(interfaces: &[Interface]) -> Vec<String> {
    let is_taken =
        |interface: &&Interface| bpf::count_tcx_ingress(interface.index).is_ok_and(|count| count > 0);
    let taken = interfaces.iter().filter(is_taken);
    taken
        .map(|Interface { name, .. }| {
            format!("another program is at tcx of {name} and comes first; is the port guarded twice?")
        })
        .collect()
}

fn warnings(attached: &[Attached], interfaces: &[Interface]) -> Vec<String> {
    let is_lonely = |attached: &&Attached| {
        attached.hook() == Hook::XdpNative
            && interfaces
                .iter()
                .any(|interface| interface.name == attached.interface() && interface.is_veth())
    };
    attached
        .iter()
        .filter(is_lonely)
        .map(|attached| {
            format!(
                "xdp on veth {}: a reset reaches the peer only if the peer has an XDP program too; --attach tcx has no such need",
                attached.interface()
            )
        })
        .collect()
}

/// Whether a listener bound to `bound` can get a SYN that is sent to `listen`.
///
/// `[::]` may serve IPv4, too; only the kernel's lookup knows.
fn may_serve(bound: SocketAddr, listen: SocketAddr) -> bool {
    let same_address = bound.ip().to_canonical() == listen.ip();
    let wildcard = match bound.ip() {
        IpAddr::V4(ip) => ip.is_unspecified() && listen.is_ipv4(),
        IpAddr::V6(ip) => ip.is_unspecified(),
    };
    bound.port() == listen.port() && (same_address || wildcard)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serves(bound: &str, listen: &str) -> bool {
        may_serve(bound.parse().expect("address"), canonical(listen.parse().expect("address")))
    }

    #[test]
    fn listener_serves_its_own_address_and_wildcards_serve_all() {
        assert!(serves("10.0.0.1:80", "10.0.0.1:80"));
        assert!(serves("0.0.0.0:80", "10.0.0.1:80"));
        assert!(serves("[::]:80", "10.0.0.1:80"));
        assert!(serves("[::]:80", "[fd00::1]:80"));
        assert!(serves("10.0.0.1:80", "[::ffff:10.0.0.1]:80"));
        assert!(!serves("0.0.0.0:80", "[fd00::1]:80"));
        assert!(!serves("10.0.0.2:80", "10.0.0.1:80"));
        assert!(!serves("10.0.0.1:80", "0.0.0.0:80"));
        assert!(!serves("10.0.0.1:81", "10.0.0.1:80"));
    }
}
