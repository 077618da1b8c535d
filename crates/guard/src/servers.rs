//! Which listeners are one server's: what waits at one of them is in the way of what waits at
//! another, so one limit is for all.

use std::collections::BTreeSet;

use anyhow::Result;
use watch::Owners;

use crate::slots::may_serve;
use crate::{Listener, follows_sockets};

/// The process that starts all others.
const INIT: i32 = 1;

/// For each slot the index of its server: the first of the slots whose sockets are held by a
/// process that holds this one's, too. Where nothing listens yet, each is its own.
pub fn of(slots: &[Option<Listener>]) -> Result<Vec<u32>> {
    let is_followed = |slot: &Option<Listener>| slot.as_ref().is_some_and(follows_sockets);
    // To look at every process's descriptors takes a while, and one listener shares with nobody.
    if slots.iter().filter(|slot| is_followed(slot)).count() < 2 {
        return Ok(apart(slots));
    }
    let own = watch::own_listeners()?;
    let inodes_of = |slot: &Option<Listener>| -> Vec<u64> {
        let Some(listener) = slot.as_ref().filter(|of| follows_sockets(of)) else { return Vec::new() };
        own.iter().filter(|own| may_serve(own.address, listener.listen)).map(|own| own.socket_inode).collect()
    };
    let inodes: Vec<Vec<u64>> = slots.iter().map(inodes_of).collect();
    let owners = Owners::find(inodes.iter().flatten().copied())?;
    let pids_of = |inodes: &Vec<u64>| -> BTreeSet<i32> {
        let mut pids: BTreeSet<i32> =
            inodes.iter().flat_map(|&inode| owners.of(inode)).map(|process| process.pid).collect();
        // It keeps the sockets of every service that it starts on demand.
        if pids.len() > 1 {
            pids.remove(&INIT);
        }
        pids
    };
    Ok(group(&inodes.iter().map(pids_of).collect::<Vec<_>>()))
}

/// After a reload, until that is found out: those of listeners that were there stay, and new ones
/// have their own.
pub fn keep(before: &[Option<Listener>], servers: &[u32], slots: &[Option<Listener>]) -> Vec<u32> {
    let listens = |slot: Option<&Option<Listener>>| slot.and_then(|slot| Some(slot.as_ref()?.listen));
    let server = |index: usize| match listens(before.get(index)) {
        known @ Some(_) if known == listens(slots.get(index)) => servers[index],
        _ => index as u32,
    };
    (0..slots.len()).map(server).collect()
}

/// Each listener its own server.
pub fn apart(slots: &[Option<Listener>]) -> Vec<u32> {
    (0..).take(slots.len()).collect()
}

/// From the processes that hold the sockets of each slot.
fn group(pids: &[BTreeSet<i32>]) -> Vec<u32> {
    let mut servers: Vec<u32> = (0..).take(pids.len()).collect();
    for later in 0..pids.len() {
        for earlier in 0..later {
            if pids[earlier].is_disjoint(&pids[later]) {
                continue;
            }
            let (one, other) = (servers[earlier], servers[later]);
            servers
                .iter_mut()
                .filter(|server| **server == one.max(other))
                .for_each(|server| *server = one.min(other));
        }
    }
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_that_stay_keep_their_server_over_a_reload() {
        let slot =
            |listen: &str| Some(Listener::new(listen.parse().expect("address"), crate::Policy::UNSERVED));
        let before = [slot("192.0.2.1:80"), slot("192.0.2.1:81"), slot("192.0.2.1:82"), None];
        let after = [slot("192.0.2.1:80"), slot("192.0.2.1:81"), slot("192.0.2.1:90"), slot("192.0.2.1:91")];
        assert_eq!(keep(&before, &[0, 0, 0, 3], &after), [0, 0, 2, 3]);
    }

    #[test]
    fn listeners_that_share_a_process_are_one_servers_also_by_way_of_a_third() {
        let pids = [&[10, 11][..], &[20], &[], &[30], &[12, 30], &[], &[11, 12]]
            .map(|of| of.iter().copied().collect());
        assert_eq!(group(&pids), [0, 1, 2, 0, 0, 5, 0]);
    }
}
