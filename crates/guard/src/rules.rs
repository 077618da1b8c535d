//! Slots, and what a wildcard stands for, in the maps of the programs.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::{Result, bail};
use pacer::{Demand, FIRST_PACE, Pace};
use verdict::ListenerLoad;

use crate::program::{Keys, MAX_OWN_ADDRESSES, Programs};
use crate::slots::{canonical, indexed, observed};
use crate::{Listener, ListenerStats, interface, listener};

/// Says what a wildcard stands for, if one is guarded; false if that is more than there is room
/// for.
pub fn set_own_addresses(programs: &Programs, slots: &[Option<Listener>]) -> Result<bool> {
    if !slots.iter().flatten().any(|listener| listener.listen.ip().is_unspecified()) {
        return Ok(true);
    }
    let mut addresses = interface::own_addresses()?;
    let is_complete = addresses.len() <= MAX_OWN_ADDRESSES;
    if !is_complete {
        addresses = addresses.into_iter().take(MAX_OWN_ADDRESSES).collect();
    }
    programs.set_own_addresses(&addresses)?;
    Ok(is_complete)
}

/// Addresses of listeners that are not this host's, so that what is sent there is on its way to
/// another host.
pub type Away = BTreeSet<SocketAddr>;

/// Those of these listeners; where nothing can be known it is as before.
pub fn away(slots: &[Option<Listener>], before: &Away) -> Away {
    let is_away = |listen: &SocketAddr| match interface::is_local(listen.ip()) {
        Some(is_local) => !is_local,
        None => before.contains(listen),
    };
    let named = indexed(slots).into_iter().map(|(listen, _)| listen);
    named.filter(|listen| !listen.ip().is_unspecified()).filter(is_away).collect()
}

/// To the operator.
pub fn say_away(listen: &SocketAddr) -> String {
    format!("{listen} is no address of this host; guarded from when it is")
}

/// The queues of the socket that a SYN to `listen` meets; of a wildcard, if no socket is bound to
/// all addresses, of one that is bound to one.
pub fn look(programs: &Programs, listen: SocketAddr) -> Result<Option<ListenerLoad>> {
    if let Some(load) = programs.ask(listen)? {
        return Ok(Some(load));
    }
    if !listen.ip().is_unspecified() {
        return Ok(None);
    }
    for own in listener::serving(listen).unwrap_or_default() {
        if let Some(load) = programs.ask(own)? {
            return Ok(Some(load));
        }
    }
    Ok(None)
}

/// The keys of those that are not away. One that is only observed has a key where the wildcard of
/// another would stand for it.
pub fn keys(programs: &Programs, slots: &[Option<Listener>], away: &Away) -> Result<Keys> {
    let mut here = indexed(slots);
    let wildcards: BTreeSet<u16> = here
        .iter()
        .filter(|(listen, _)| listen.ip().is_unspecified())
        .map(|(listen, _)| listen.port())
        .collect();
    here.extend(observed(slots).into_iter().filter(|(listen, _)| wildcards.contains(&listen.port())));
    here.retain(|(listen, _)| !away.contains(listen));
    programs.keys(&here)
}

/// Whether the crowd is left a place of each accept queue that is there to be seen.
pub fn check_places(programs: &Programs, listeners: &[Listener]) -> Result<()> {
    for Listener { listen, policy, .. } in listeners.iter().filter(|listener| !listener.reserved.is_empty()) {
        let Some(ListenerLoad { accept_limit, .. }) = programs.ask(canonical(*listen))? else { continue };
        let slots = policy.reserved_slots;
        if slots > accept_limit {
            let places = u64::from(accept_limit) + 1;
            // No ConfigError: the server may have another backlog tomorrow.
            bail!(
                "listener {listen}: {slots} places are to be reserved and its accept queue has {places}; reserve fewer, or raise the \
                 server's backlog and net.core.somaxconn"
            );
        }
    }
    Ok(())
}

/// Puts slots into force. What leads to a rule goes before the rule becomes another listener's, and
/// comes after: a SYN meets its own listener's rule or the kernel. `services` is which server each
/// slot belongs to.
pub fn apply(
    programs: &Programs,
    before: &[Option<Listener>],
    slots: &[Option<Listener>],
    services: &[u32],
) -> Result<()> {
    let keys = keys(programs, slots, &away(slots, &Away::new()))?;
    programs.forget_wildcards_beside_changes(&keys)?;
    programs.forget_other_keys(&keys)?;
    programs.forget_sources_of_others(|index| slots.get(index as usize).is_some_and(Option::is_some))?;
    for ((index, slot), &service) in (0..).zip(slots).zip(services) {
        let Some(listener) = slot else { continue };
        let known = before.get(index as usize).and_then(Option::as_ref);
        if known.is_none_or(|known| known.listen != listener.listen) {
            programs.clear(index)?;
            let mut demand = Demand::default();
            demand.add(&listener.policy, listener.dry_run, &ListenerStats::default());
            programs.set_pace(index, &Pace { burst_ns: demand.burst_ns(), ..FIRST_PACE })?;
        }
        programs.add_sources(index, listener)?;
        programs.set_rule(index, listener, service)?;
        programs.forget_other_sources(index, listener)?;
    }
    programs.add_keys(&keys)
}
