//! Where answers go: the host's routes, for the programs (`kernel/route.bpf.h`).

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result};
use ipnet::IpNet;
use netlink::{Entry, Interface, main_table};

use crate::program::MAX_ROUTES;

/// Most routers whose Ethernet addresses are looked up each time; answers by further ones go back
/// to where their SYNs came from.
const MAX_ROUTERS: usize = 64;

/// Where answers to a network go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Back to where the SYN came from: the client is on the link, or nothing better is known.
    Back,
    /// By a router.
    Router {
        /// Index of the interface.
        interface: u32,
        /// Ethernet addresses, of the router and of the interface.
        mac: [u8; 12],
    },
    /// No route leads there.
    Nowhere,
}

/// Ways by network.
pub type Ways = BTreeMap<IpNet, Way>;

/// The ways of the calling thread's network namespace. Where policy rules or very many routes
/// decide, all answers go back.
pub fn ways() -> Result<Ways> {
    let mut ways = all(Way::Nowhere);
    let Some(entries) = main_table(MAX_ROUTES - ways.len()).context("read the routes")? else {
        return Ok(all(Way::Back));
    };
    let mut routers = Routers::default();
    for (net, entry) in best(&entries) {
        ways.insert(net, routers.way(entry)?);
    }
    Ok(ways)
}

/// The same way for every network.
pub fn all(way: Way) -> Ways {
    ["0.0.0.0/0", "::/0"].map(|net| (net.parse().expect("a network"), way)).into()
}

/// Of several entries for one network the one that is used.
fn best(entries: &[Entry]) -> BTreeMap<IpNet, &Entry> {
    let mut best = BTreeMap::<IpNet, &Entry>::new();
    for entry in entries {
        let Ok(net) = IpNet::new(entry.destination, entry.prefix_bits) else { continue };
        let kept = best.entry(net).or_insert(entry);
        if entry.metric < kept.metric {
            *kept = entry;
        }
    }
    best
}

/// What was looked up, so that each is asked for once.
#[derive(Debug, Default)]
struct Routers(BTreeMap<(u32, IpAddr), Way>);

impl Routers {
    fn way(&mut self, entry: &Entry) -> Result<Way> {
        if !entry.leads_on {
            return Ok(Way::Nowhere);
        }
        let (Some(interface), Some(gateway)) = (entry.interface, entry.gateway) else { return Ok(Way::Back) };
        if let Some(known) = self.0.get(&(interface, gateway)) {
            return Ok(*known);
        }
        if self.0.len() >= MAX_ROUTERS {
            return Ok(Way::Back);
        }
        let way = look(interface, gateway)?;
        self.0.insert((interface, gateway), way);
        Ok(way)
    }
}

/// The kernel knows a router's Ethernet address once it has sent something to it: a SYN/ACK.
fn look(interface: u32, gateway: IpAddr) -> Result<Way> {
    let own = Interface::at(interface)?.filter(|found| found.is_ethernet).and_then(|found| found.address);
    let router = netlink::neighbour(gateway, interface)?;
    Ok(match (router, own) {
        (Some(router), Some(own)) => {
            let mac = [router, own].concat().try_into().expect("twice six bytes");
            Way::Router { interface, mac }
        }
        _ => Way::Back,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_with_the_lowest_metric_is_used() {
        let entry = |destination: &str, metric, interface| Entry {
            destination: destination.parse().expect("address"),
            prefix_bits: 8,
            metric,
            leads_on: true,
            gateway: None,
            interface: Some(interface),
        };
        let entries = [
            entry("10.0.0.0", 100, 1),
            entry("10.0.0.0", 50, 2),
            entry("11.0.0.0", 7, 3),
            entry("10.0.0.0", 60, 4),
        ];
        let used: Vec<_> = best(&entries).into_values().filter_map(|entry| entry.interface).collect();
        assert_eq!(used, [2, 3]);
    }
}
