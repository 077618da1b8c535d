//! Listeners that are only observed: the kernel's own decisions, counted by `crates/watch`.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result};
use verdict::ListenerLoad;
use watch::{Counters, Hook, Watch};

/// What was counted at an observed listener, or at all of its `SO_REUSEPORT` group. Of a wildcard it is everything that came to
/// the socket, whatever address was called.
#[derive(Debug, Clone)]
pub struct Observed {
    /// Since the guard observes it; over restarts of the server, too.
    pub counters: Counters,
    /// SYNs and ends of handshakes that the kernel dropped, since the sockets that are there now listen, for whatever cause.
    pub drops: u64,
}

#[derive(Debug)]
pub struct Observer(Watch);

impl Observer {
    pub fn start() -> Result<Self> {
        Ok(Self(Watch::start(&Hook::ALL)?))
    }

    /// What this kernel cannot count, one line each.
    pub fn warnings(&self) -> Vec<String> {
        self.0.missing().iter().map(ToString::to_string).collect()
    }

    /// The queues and counts of the listener that serves `listen` in the calling thread's network namespace.
    pub fn observe(&self, listen: SocketAddr) -> Result<(Option<ListenerLoad>, Observed)> {
        let own = fs::metadata("/proc/thread-self/ns/net").context("look at our network namespace")?.ino();
        let mut counters = self.0.nothing();
        let counted = self.0.counters()?;
        let here = || counted.iter().filter(|watched| watched.listener.netns_inode == own);
        let bound = bound_for(listen, here().map(|watched| &watched.listener));
        for watched in here().filter(|watched| Some(watched.listener.address) == bound) {
            counters = counters.plus(&watched.counters);
        }
        let listening = self.0.list()?;
        let bound = bound_for(listen, listening.iter());
        let mut load: Option<ListenerLoad> = None;
        let mut drops = 0;
        for listener in listening.iter().filter(|listener| Some(listener.address) == bound) {
            let Some(queues) = listener.queues else { continue };
            let (limit, sum) = (queues.accept_limit.unwrap_or(0), load.get_or_insert_default());
            sum.accept_qlen += queues.accept_qlen;
            sum.accept_limit += limit;
            sum.syn_qlen += queues.syn_qlen.unwrap_or(0);
            sum.syn_limit += limit;
            drops += u64::from(listener.drops.unwrap_or(0));
        }
        Ok((load, Observed { counters, drops }))
    }
}

/// Where the socket is bound that the kernel gives a SYN to `listen`: the address itself goes before its wildcard, and that
/// before the one that also serves IPv4.
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
