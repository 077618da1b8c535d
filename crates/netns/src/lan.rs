//! Two hosts on a wire, and room for hosts that no kernel owns.

use std::net::IpAddr;

use crate::{Namespace, Result, VethEnd, VethPair, mac_text};

/// A client and a server, joined by `c0` and `s0`, with static addresses and neighbours.
///
/// The ghosts' addresses are behind the client's interface and no kernel's: what the server sends there, nobody answers but
/// who listens on `c0` with a [`crate::Tap`].
#[derive(Debug)]
pub struct Lan {
    /// The client's kernel.
    pub client: Namespace,
    /// The server's.
    pub server: Namespace,
    /// The client's interface.
    pub c0: VethEnd,
    /// The server's.
    pub s0: VethEnd,
}

impl Lan {
    /// Addresses of the server.
    pub const SERVER: [&str; 2] = ["10.9.0.2", "fd09::2"];
    /// Addresses of the client's kernel.
    pub const CLIENT: [&str; 2] = ["10.9.0.1", "fd09::1"];
    /// Addresses of the ghosts.
    pub const GHOST: [&str; 2] = ["10.9.0.77", "fd09::77"];
    /// Addresses of another ghost, which is to be treated otherwise.
    pub const PROBE: [&str; 2] = ["10.9.0.78", "fd09::78"];

    /// Makes both, with their links up.
    ///
    /// # Errors
    ///
    /// As [`Namespace::create`].
    pub fn create() -> Result<Self> {
        let client = Namespace::create("client")?;
        let server = Namespace::create("server")?;
        let VethPair { a: c0, b: s0 } = VethPair::create(&client, "c0", &server, "s0")?;
        let lan = Self { client, server, c0, s0 };
        add_addresses(&lan.client, &lan.c0, Self::CLIENT)?;
        add_addresses(&lan.server, &lan.s0, Self::SERVER)?;
        add_neighbours(&lan.server, &lan.s0, &lan.c0, &[Self::CLIENT, Self::GHOST, Self::PROBE].concat())?;
        add_neighbours(&lan.client, &lan.c0, &lan.s0, &Self::SERVER)?;
        Ok(lan)
    }
}

fn add_addresses(namespace: &Namespace, end: &VethEnd, addresses: [&str; 2]) -> Result<()> {
    for address in addresses {
        let ip: IpAddr = address.parse().expect("an address of ours");
        let (prefix, extra): (_, &[&str]) = if ip.is_ipv4() { ("24", &[]) } else { ("64", &["nodad"]) };
        let address = format!("{address}/{prefix}");
        namespace.ip(&[&["addr", "add", &address, "dev", &end.name], extra].concat())?;
    }
    Ok(())
}

fn add_neighbours(namespace: &Namespace, end: &VethEnd, peer: &VethEnd, addresses: &[&str]) -> Result<()> {
    for address in addresses {
        let mac = mac_text(peer.mac);
        namespace.ip(&["neigh", "replace", address, "lladdr", &mac, "dev", &end.name])?;
    }
    Ok(())
}
