//! Two hosts on a wire, and room for hosts that no kernel owns.

use crate::{Namespace, Result, VethEnd, VethPair, mac_text};

/// A client and a server, joined by `c0` and `s0`, with static addresses and neighbours.
///
/// The ghosts' addresses are behind the client's interface and no kernel's: what the server sends
/// there, nobody answers but who listens on `c0` with a [`crate::Tap`].
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
        let behind_client = [Self::CLIENT, Self::GHOST, Self::PROBE].concat();
        lan.client.ip_all(&setup(&lan.c0, Self::CLIENT, &lan.s0, &Self::SERVER))?;
        lan.server.ip_all(&setup(&lan.s0, Self::SERVER, &lan.c0, &behind_client))?;
        Ok(lan)
    }
}

/// What gives `end` its addresses, and its peer as the neighbour at each of `behind`.
fn setup(end: &VethEnd, addresses: [&str; 2], peer: &VethEnd, behind: &[&str]) -> Vec<String> {
    let (dev, mac) = (&end.name, mac_text(peer.mac));
    let [v4, v6] = addresses;
    let own = [format!("addr add {v4}/24 dev {dev}"), format!("addr add {v6}/64 dev {dev} nodad")];
    let neighbours = behind.iter().map(|address| format!("neigh replace {address} lladdr {mac} dev {dev}"));
    own.into_iter().chain(neighbours).collect()
}
