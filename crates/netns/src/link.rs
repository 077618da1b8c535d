//! A veth pair between two namespaces.

use nix::net::if_::if_nametoindex;

use crate::error::Act;
use crate::ethtool::{Offload, set_offload};
use crate::{Namespace, Result};

/// One end of a veth pair.
#[derive(Debug, Clone)]
pub struct VethEnd {
    /// Interface name.
    pub name: String,
    /// Interface index, in its namespace.
    pub ifindex: u32,
    /// Ethernet address.
    pub mac: [u8; 6],
}

/// A veth pair with static Ethernet addresses and no ARP traffic of its own. It disappears with
/// either namespace.
#[derive(Debug)]
pub struct VethPair {
    /// The end in the first namespace.
    pub a: VethEnd,
    /// The end in the second namespace.
    pub b: VethEnd,
}

impl VethPair {
    /// Joins `a` and `b` by a pair with the given interface names, both up, without addresses.
    ///
    /// Segmentation offload is switched off on both ends, so that frames on the pair are what a
    /// wire would carry: at most one MTU each. This is a deviation to report.
    pub fn create(a: &Namespace, a_name: &str, b: &Namespace, b_name: &str) -> Result<Self> {
        Self::create_with(a, a_name, b, b_name, &[])
    }

    /// The same with so many queues to send with, and to receive with, at each end. What a socket
    /// sends goes to one by its hash.
    pub fn create_with_queues(
        a: &Namespace,
        a_name: &str,
        b: &Namespace,
        b_name: &str,
        queues: u32,
    ) -> Result<Self> {
        let queues = queues.to_string();
        Self::create_with(a, a_name, b, b_name, &["numtxqueues", &queues, "numrxqueues", &queues])
    }

    fn create_with(a: &Namespace, a_name: &str, b: &Namespace, b_name: &str, each: &[&str]) -> Result<Self> {
        let (a_mac, b_mac) = ([0x02, 0, 0, 0, 0, 0x0a], [0x02, 0, 0, 0, 0, 0x0b]);
        let (a_address, b_address) = (mac_text(a_mac), mac_text(b_mac));
        let a_link = ["link", "add", a_name, "address", &a_address];
        let b_link = ["type", "veth", "peer", "name", b_name, "address", &b_address];
        a.ip(&[&a_link, each, &b_link, each, &["netns", b.name()]].concat())?;
        for (namespace, name) in [(a, a_name), (b, b_name)] {
            // No router solicitations, no duplicate address detection: every frame on the pair is
            // the experiment's.
            namespace.set_sysctl(&format!("net.ipv6.conf.{name}.accept_dad"), "0").ok();
            namespace.set_sysctl(&format!("net.ipv6.conf.{name}.addr_gen_mode"), "1").ok();
            set_offload(namespace, name, Offload::TcpSegmentation, false)?;
            set_offload(namespace, name, Offload::GenericSegmentation, false)?;
            namespace.ip(&["link", "set", name, "up"])?;
        }
        Ok(Self { a: end(a, a_name, a_mac)?, b: end(b, b_name, b_mac)? })
    }
}

fn end(namespace: &Namespace, name: &str, mac: [u8; 6]) -> Result<VethEnd> {
    let ifindex = namespace.enter(|| if_nametoindex(name))?.act_with(|| format!("find interface {name}"))?;
    Ok(VethEnd { name: name.to_owned(), ifindex, mac })
}

/// An Ethernet address as people and iproute2 write it.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}
