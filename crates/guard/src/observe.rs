//! Listeners that are only observed: the kernel's own decisions, counted by `crates/watch`.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result};
use verdict::ListenerLoad;
use watch::{Counters, Hook, Watch, Watched};

/// What was counted at an observed listener, or at all of its `SO_REUSEPORT` group. Of a wildcard
/// it is everything that came to the socket, whatever address was called.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Since the guard observes it; over restarts of the server, too.
    pub counters: Counters,
    /// SYNs and ends of handshakes that the kernel dropped, since the sockets that are there now
    /// listen, for whatever cause.
    pub drops: u64,
}

#[derive(Debug)]
pub struct Observer(Watch);

/// What there was to see at one moment, of all listeners.
pub struct Observation {
    /// Of listeners without any.
    nothing: Counters,
    /// In the calling thread's network namespace.
    counted: Vec<Watched>,
    listening: Vec<watch::Listener>,
}

impl Observer {
    pub fn start() -> Result<Self> {
        Ok(Self(Watch::start(&Hook::ALL)?))
    }

    /// What this kernel cannot count, a line for each reason.
    pub fn warnings(&self) -> Vec<String> {
        self.0.gaps()
    }

    /// Reads all counts and lists what listens in the calling thread's network namespace.
    pub fn look(&self) -> Result<Observation> {
        let own = fs::metadata("/proc/thread-self/ns/net").context("look at our network namespace")?.ino();
        let mut counted = self.0.counters()?;
        counted.retain(|watched| watched.listener.netns_inode == own);
        Ok(Observation { nothing: self.0.nothing(), counted, listening: self.0.list()? })
    }
}

impl Observation {
    /// The queues and counts of the listener that serves `listen`.
    pub fn of(&self, listen: SocketAddr) -> (Option<ListenerLoad>, Observed) {
        let mut counters = self.nothing.clone();
        let bound = bound_for(listen, self.counted.iter().map(|watched| &watched.listener));
        for watched in self.counted.iter().filter(|watched| Some(watched.listener.address) == bound) {
            counters = counters.plus(&watched.counters);
        }
        let bound = bound_for(listen, self.listening.iter());
        let mut load: Option<ListenerLoad> = None;
        let mut drops = 0;
        for listener in self.listening.iter().filter(|listener| Some(listener.address) == bound) {
            let Some(queues) = listener.queues else { continue };
            let (limit, sum) = (queues.accept_limit.unwrap_or(0), load.get_or_insert_default());
            sum.accept_qlen += queues.accept_qlen;
            sum.accept_limit += limit;
            sum.syn_qlen += queues.syn_qlen.unwrap_or(0);
            sum.syn_limit += limit;
            drops += u64::from(listener.drops.unwrap_or(0));
        }
        (load, Observed { counters, drops })
    }
}

/// Where the socket is bound that the kernel gives a SYN to `listen`: the address itself goes
/// before its wildcard, and that before the one that also serves IPv4.
fn bound_for<'a>(
    listen: SocketAddr,
    listeners: impl Iterator<Item = &'a watch::Listener>,
) -> Option<SocketAddr> {
    let serves = |listener: &&watch::Listener| {
        crate::slots::may_serve(listener.address, listen) && !(listener.is_v6only && listen.is_ipv4())
    };
    let far = |bound: &SocketAddr| (bound.ip().is_unspecified(), bound.is_ipv4() != listen.is_ipv4());
    listeners.filter(serves).map(|listener| listener.address).min_by_key(far)
}
