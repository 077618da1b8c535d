//! Which listeners are one server's: what waits at one of them is in the way of what waits at
//! another, so one limit is for all.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use anyhow::Result;
use watch::Holder;

use crate::slots::may_serve;
use crate::{Listener, follows_sockets, listener};

/// Which listeners are one server's.
#[derive(Debug, Default)]
pub struct Servers {
    /// For each slot the index of its server: the first of its server's slots.
    pub of: Vec<u32>,
    /// Listeners whose processes are not to be seen, and that name no server: they may share one.
    pub unseen: Vec<SocketAddr>,
}

/// Listeners are one server's when a process holds the sockets of both, or when they name the same
/// server. Where nothing listens yet, each is its own.
pub fn find(slots: &[Option<Listener>]) -> Result<Servers> {
    let is_followed = |slot: &Option<Listener>| slot.as_ref().is_some_and(follows_sockets);
    // To look at every process's descriptors takes a while, and one listener shares with nobody.
    if slots.iter().filter(|slot| is_followed(slot)).count() < 2 {
        return Ok(Servers { of: apart(slots), unseen: Vec::new() });
    }
    let own = listener::all()?;
    let inodes_of = |slot: &Option<Listener>| -> Vec<u64> {
        let Some(listener) = slot.as_ref().filter(|of| follows_sockets(of)) else { return Vec::new() };
        own.iter().filter(|own| may_serve(own.local, listener.listen)).map(|own| own.inode.into()).collect()
    };
    let inodes: Vec<Vec<u64>> = slots.iter().map(inodes_of).collect();
    // Where the kernel forbids to look, nobody is seen, and that is said.
    let holders = watch::holders().unwrap_or_default();
    let signs = |(slot, inodes): (&Option<Listener>, &Vec<u64>)| {
        let holders = inodes.iter().filter_map(|inode| holders.get(inode)).flatten().copied().collect();
        let name = slot.as_ref().and_then(|listener| listener.server.clone());
        Signs { pids: servers_among(&holders), name }
    };
    let signs: Vec<Signs> = slots.iter().zip(&inodes).map(signs).collect();
    let mut unseen = Vec::new();
    for (slot, (inodes, signs)) in slots.iter().zip(inodes.iter().zip(&signs)) {
        let is_unseen = inodes.iter().any(|&inode| inode > 0) && *signs == Signs::default();
        unseen.extend(slot.as_ref().filter(|_| is_unseen).map(|listener| listener.listen));
    }
    Ok(Servers { of: group(&signs), unseen })
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

/// By what a listener's server is known.
#[derive(Debug, Default, PartialEq, Eq)]
struct Signs {
    /// Processes that hold its sockets.
    pids: BTreeSet<u64>,
    /// As the operator has named it.
    name: Option<String>,
}

/// Processes of the server. An init, also a container's, keeps the sockets of every service that it
/// starts on demand.
fn servers_among(holders: &BTreeSet<Holder>) -> BTreeSet<u64> {
    let has_others = holders.iter().any(|holder| !holder.is_init);
    holders.iter().filter(|holder| !(holder.is_init && has_others)).map(|holder| holder.pid).collect()
}

impl Signs {
    fn is_same(&self, other: &Self) -> bool {
        !self.pids.is_disjoint(&other.pids) || (self.name.is_some() && self.name == other.name)
    }
}

fn group(signs: &[Signs]) -> Vec<u32> {
    let mut servers: Vec<u32> = (0..).take(signs.len()).collect();
    for later in 0..signs.len() {
        for earlier in 0..later {
            if !signs[earlier].is_same(&signs[later]) {
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

/// To the operator, about [`Servers::unseen`].
pub fn say_unseen(unseen: &[SocketAddr]) -> Option<String> {
    let listens: Vec<String> = unseen.iter().map(SocketAddr::to_string).collect();
    (!listens.is_empty()).then(|| {
        format!(
            "the processes behind {} cannot be seen from here (another pid namespace, or a kernel that forbids it), so each has a limit \
             of its own; if they are one server's, give them the same `server = \"NAME\"` in the file",
            listens.join(", ")
        )
    })
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
        let signs = [&[10, 11][..], &[20], &[], &[30], &[12, 30], &[], &[11, 12]]
            .map(|of| Signs { pids: of.iter().copied().collect(), name: None });
        assert_eq!(group(&signs), [0, 1, 2, 0, 0, 5, 0]);
    }

    #[test]
    fn init_is_the_server_only_where_no_other_process_holds_the_socket() {
        let pids = |all: &[(u64, bool)]| {
            let holders = all.iter().map(|&(pid, is_init)| Holder { pid, is_init });
            servers_among(&holders.collect()).into_iter().collect::<Vec<u64>>()
        };
        assert_eq!(pids(&[(1, true), (4000, true), (4010, false)]), [4010]);
        assert_eq!(pids(&[(4000, true)]), [4000]);
        assert_eq!(pids(&[(4010, false), (4011, false)]), [4010, 4011]);
    }

    #[test]
    fn listeners_that_name_the_same_server_are_one_servers_whoever_holds_them() {
        let signs =
            [(&[10][..], Some("a")), (&[11], None), (&[], Some("a")), (&[11], Some("b")), (&[], Some("c"))]
                .map(|(pids, name)| Signs {
                    pids: pids.iter().copied().collect(),
                    name: name.map(str::to_owned),
                });
        assert_eq!(group(&signs), [0, 1, 0, 1, 4]);
    }
}
