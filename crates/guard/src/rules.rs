//! Slots, and what a wildcard stands for, in the maps of the programs.

use anyhow::Result;
use verdict::ListenerLoad;

use crate::program::{MAX_OWN_ADDRESSES, Programs};
use crate::slots::{canonical, indexed};
use crate::{ConfigError, Listener, interface};

/// Says what a wildcard stands for, if one is guarded; false if that is more than there is room for.
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

/// Whether the crowd is left a place of each accept queue that is there to be seen.
pub fn check_places(programs: &Programs, listeners: &[Listener]) -> Result<()> {
    for Listener { listen, policy, .. } in listeners.iter().filter(|listener| !listener.reserved.is_empty()) {
        let Some(ListenerLoad { accept_limit, .. }) = programs.ask(canonical(*listen))? else { continue };
        let slots = policy.reserved_slots;
        if slots > accept_limit {
            let places = u64::from(accept_limit) + 1;
            return Err(ConfigError(format!(
                "listener {listen}: {slots} places are to be reserved and its accept queue has {places}; reserve fewer, or raise the \
                 server's backlog and net.core.somaxconn"
            ))
            .into());
        }
    }
    Ok(())
}

/// Puts slots into force. What leads to a rule goes before the rule becomes another listener's, and comes after: a SYN meets
/// its own listener's rule or the kernel.
pub fn apply(programs: &Programs, before: &[Option<Listener>], slots: &[Option<Listener>]) -> Result<()> {
    let keys = programs.keys(&indexed(slots))?;
    programs.forget_other_keys(&keys)?;
    for (index, slot) in (0..).zip(slots) {
        let Some(Listener { listen, policy, reserved, dry_run }) = slot else {
            continue;
        };
        let known = before.get(index as usize).and_then(Option::as_ref);
        if known.is_none_or(|known| known.listen != *listen) {
            programs.clear(index)?;
        }
        programs.add_reserved(index, reserved)?;
        programs.set_rule(index, policy, *dry_run)?;
        programs.forget_other_reserved(index, reserved)?;
    }
    programs.add_keys(&keys)
}
