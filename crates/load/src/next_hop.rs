//! Where a frame to the server goes first: its Ethernet addresses, as the kernel's own tables have
//! them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use netlink::Interface;
use wire::Ethernet;

/// How often the neighbour table is asked, and how long between.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// The interface of that name.
///
/// # Errors
///
/// When there is none.
pub(crate) fn interface(name: &str) -> Result<Interface> {
    let found = Interface::find(name).with_context(|| format!("look at interface {name}"))?;
    found.with_context(|| {
        format!("interface {name}: there is none of that name here{}", Interface::instead_of(name))
    })
}

/// Ethernet addresses of frames that leave an interface for `server`.
///
/// # Errors
///
/// When the server is not reached through the interface, or nobody there answers for its address.
pub(crate) fn resolve(server: SocketAddr, name: &str, interface: &Interface) -> Result<Ethernet> {
    let index = interface.index;
    let src = interface.address.with_context(|| format!("{name} has no Ethernet address; see `ip link`"))?;
    let address = server.ip();
    let route = netlink::route(address, Some(index)).with_context(|| {
        format!("find the way to {address} through {name}; see `ip route get {address} oif {name}`")
    })?;
    if let Some(other) = route.interface.filter(|leaves_by| *leaves_by != index) {
        let name_of = || format!("find the name of interface {other}");
        let other = Interface::name_of(other).with_context(name_of)?.with_context(name_of)?;
        bail!(
            "{address} is reached through {other}, not through {name}; name that one, or a server on another host"
        );
    }
    let dst = neighbour(route.gateway.unwrap_or(address), name, index)?;
    Ok(Ethernet { src, dst })
}

fn neighbour(hop: IpAddr, interface: &str, index: u32) -> Result<[u8; 6]> {
    for attempt in 0..ATTEMPTS {
        if let Some(address) = netlink::neighbour(hop, index)? {
            return Ok(address);
        }
        if attempt == 0 {
            provoke(hop);
        }
        sleep(PAUSE);
    }
    ensure!(
        interface != "lo",
        "lo has no Ethernet to send a crowd by; put the server behind a veth pair, as in the README's \"Try it\""
    );
    bail!("nobody on {interface} answers for {hop}; is the server up, and on this network?")
}

/// Makes the kernel ask for the neighbour, by a datagram to the discard port.
fn provoke(hop: IpAddr) {
    let any: IpAddr = if hop.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    // Whatever fails here shows as a neighbour that never appears.
    let _ = UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(&[0], (hop, 9)));
}
