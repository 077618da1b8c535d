//! Where a real dumbbell is: servers and clients in a namespace each, and the bottleneck between
//! them in a third.
//!
//! ```text
//!   tg-servers-*                      tg-link-*                        tg-clients-*
//!   10.78.0.1, 10.78.0.2 ...          tidegate link                    10.79.0.1, 10.79.0.2 ...
//!       tgs0 ----------- veth ----------- tgl0   tgl1 ----------- veth ----------- tgc0
//! ```
//!
//! The hosts of a side are addresses of one namespace: all namespaces are one kernel anyway, and
//! what makes hosts differ, their links to the bottleneck, are paths of `tidegate link` by address.
//! What hosts of a namespace would share otherwise, what TCP remembers of a peer, is switched off.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::{Context, Result};
use netns::{Namespace, VethEnd};

use crate::middle::{LINK_LEFT, LINK_RIGHT, Middle};

/// The hosts' ends of the pairs.
const SERVERS: &str = "tgs0";
const CLIENTS: &str = "tgc0";
/// Of the two interfaces with hosts behind them; all hosts of the other side are behind it.
const ROUTERS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 76, 1, 1), Ipv4Addr::new(10, 76, 1, 2)];
/// The hosts of each side.
const PREFIXES: [&str; 2] = ["10.78.0.0/16", "10.79.0.0/16"];
/// Headers of IPv4 and TCP without options, bytes.
const HEADERS: u16 = 40;

/// What decides how TCP sends, for the header of the results.
const SYSCTLS: [&str; 10] = [
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_recovery",
    "net.ipv4.tcp_early_retrans",
    "net.ipv4.tcp_frto",
    "net.ipv4.tcp_rto_min_us",
    "net.ipv4.tcp_syn_linear_timeouts",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// The TCP of all hosts, as far as a kernel can be told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostTcp {
    /// Its name for `net.ipv4.tcp_congestion_control`.
    pub algorithm: &'static str,
    /// Data bytes of a full segment.
    pub mss: u16,
    /// Offers selective acknowledgements.
    pub has_sack: bool,
    /// Segments that may be in flight at first.
    pub initial_window: u8,
    /// Least retransmission timeout, where it is not the kernel's own.
    pub least_rto: Option<Duration>,
}

/// Three namespaces, which are gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Bed {
    /// The hosts on the left.
    pub servers: Namespace,
    /// The bottleneck's.
    pub middle: Middle,
    /// The hosts on the right.
    pub clients: Namespace,
}

/// The address of a host; those on the left come first, and there are so many of them.
pub(crate) fn address(host: u32, left: u32) -> IpAddr {
    const IN_A_ROW: u32 = 200;
    let (side, number) = if host < left { (78, host) } else { (79, host - left) };
    Ipv4Addr::new(10, side, (number / IN_A_ROW) as u8, (number % IN_A_ROW + 1) as u8).into()
}

impl Bed {
    /// Makes and joins them.
    ///
    /// # Errors
    ///
    /// Without root; with congestion control that this kernel does not have.
    pub(crate) fn create(tcp: HostTcp) -> Result<Self> {
        let (servers, clients) = (Namespace::create("servers")?, Namespace::create("clients")?);
        let middle = Middle::join((&servers, SERVERS), (&clients, CLIENTS))?;
        let bed = Self { servers, middle, clients };
        let mtu = (tcp.mss + HEADERS).to_string();
        for (namespace, interface) in [
            (&bed.servers, SERVERS),
            (&bed.middle.namespace, LINK_LEFT),
            (&bed.middle.namespace, LINK_RIGHT),
            (&bed.clients, CLIENTS),
        ] {
            namespace.ip(&["link", "set", interface, "mtu", &mtu])?;
        }
        let [servers, clients] = &bed.middle.ends;
        prepare(&bed.servers, 0, servers, clients, tcp)?;
        prepare(&bed.clients, 1, clients, servers, tcp)?;
        Ok(bed)
    }

    /// What decides how its hosts send.
    pub(crate) fn sysctls(&self) -> BTreeMap<String, String> {
        let read = |name: &str| Some((name.to_owned(), self.servers.sysctl(name).ok()?));
        SYSCTLS.into_iter().filter_map(read).collect()
    }
}

/// Makes the hosts of a side.
fn prepare(namespace: &Namespace, side: usize, own: &VethEnd, other: &VethEnd, tcp: HostTcp) -> Result<()> {
    for (name, value) in [
        ("tcp_congestion_control", tcp.algorithm),
        // Segments carry `mss` bytes, as those that are simulated.
        ("tcp_timestamps", "0"),
        ("tcp_sack", if tcp.has_sack { "1" } else { "0" }),
        ("tcp_ecn", "0"),
        // Each connection begins as if there had been none before.
        ("tcp_no_metrics_save", "1"),
        // Windows do not limit: half of it is offered (`tcp_adv_win_scale`).
        ("tcp_rmem", "4096 2097152 4194304"),
    ] {
        namespace.set_sysctl(&format!("net.ipv4.{name}"), value).with_context(|| {
            "cat /proc/sys/net/ipv4/tcp_available_congestion_control says what this kernel has".to_owned()
        })?;
    }
    let router = ROUTERS[1 - side].to_string();
    namespace.ip(&["address", "add", &format!("{}/30", ROUTERS[side]), "dev", &own.name])?;
    let mac = netns::mac_text(other.mac);
    namespace.ip(&["neighbour", "replace", &router, "lladdr", &mac, "dev", &own.name, "nud", "permanent"])?;
    // All addresses of the prefix are this namespace's own.
    namespace.ip(&["route", "add", "local", PREFIXES[side], "dev", "lo"])?;
    let initial_window = tcp.initial_window.to_string();
    let route = ["route", "add", PREFIXES[1 - side], "via", &router, "initcwnd", &initial_window];
    let least_rto = tcp.least_rto.map(|least| format!("{}ms", least.as_millis()));
    let rto_min: Vec<&str> = least_rto.iter().flat_map(|least| ["rto_min", least]).collect();
    Ok(namespace.ip(&[&route[..], &rto_min].concat())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_an_address_of_its_own_side() {
        let mut all: Vec<String> = (0..2000).map(|host| address(host, 1000).to_string()).collect();
        assert_eq!(
            (all[0].as_str(), all[1000].as_str(), all[1999].as_str()),
            ("10.78.0.1", "10.79.0.1", "10.79.4.200")
        );
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }

    #[test]
    fn root_hosts_have_the_tcp_that_they_are_told() {
        if let Err(reason) = netns::root_or_reason() {
            return eprintln!("{reason}");
        }
        let tcp = HostTcp {
            algorithm: "reno",
            mss: 1000,
            has_sack: false,
            initial_window: 2,
            least_rto: Some(Duration::from_millis(300)),
        };
        let bed = Bed::create(tcp).expect("make the namespaces");
        assert_eq!(bed.sysctls()["net.ipv4.tcp_congestion_control"], "reno");
        assert_eq!(bed.sysctls()["net.ipv4.tcp_sack"], "0");
        for namespace in [&bed.servers, &bed.clients] {
            let output =
                namespace.command("ip").expect("a command").args(["route", "show"]).output().expect("ip");
            let routes = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(routes.contains("initcwnd 2") && routes.contains("rto_min lock 300ms"), "{routes}");
        }
        let wrong = HostTcp { algorithm: "none-of-these", ..tcp };
        let error = format!("{:#}", Bed::create(wrong).expect_err("there is none"));
        assert!(error.contains("tcp_available_congestion_control") && !error.contains('\n'), "{error}");
    }
}
