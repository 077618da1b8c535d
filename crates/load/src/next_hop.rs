//! Where a frame to the server goes first: its Ethernet addresses, as the kernel's own tables have them.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::ifaddrs::getifaddrs;
use serde::Deserialize;
use wire::Ethernet;

/// How often the neighbour table is asked, and how long between.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// One row of `ip -json route get`.
#[derive(Debug, Deserialize)]
struct Route {
    gateway: Option<IpAddr>,
    dev: String,
}

/// One row of `ip -json neighbour show`.
#[derive(Debug, Deserialize)]
struct Neighbour {
    lladdr: Option<String>,
}

/// Ethernet addresses of frames that leave `interface` for `server`.
///
/// # Errors
///
/// When the server is not reached through the interface, or nobody there answers for its address.
pub fn resolve(server: SocketAddr, interface: &str) -> Result<Ethernet> {
    let src = interface_address(interface)?;
    let address = server.ip().to_string();
    let routes: Vec<Route> = ip(&["route", "get", &address, "oif", interface])
        .with_context(|| format!("find the way to {address} through {interface}"))?;
    let route = routes.first().with_context(|| format!("no route to {address} through {interface}"))?;
    ensure!(
        route.dev == interface,
        "{address} is reached through {}, not through {interface}; name that one, or a server on another host",
        route.dev
    );
    let hop = route.gateway.unwrap_or(server.ip());
    let dst = neighbour(hop, interface)?;
    Ok(Ethernet { src, dst })
}

/// One row of `ip -json -details link show`.
#[derive(Debug, Deserialize)]
struct Link {
    #[serde(default)]
    linkinfo: LinkInfo,
}

#[derive(Debug, Default, Deserialize)]
struct LinkInfo {
    info_kind: Option<String>,
}

/// Whether an interface is one end of a veth pair.
///
/// # Errors
///
/// When there is none of that name.
pub fn is_veth(interface: &str) -> Result<bool> {
    let links: Vec<Link> = ip(&["-details", "link", "show", "dev", interface])?;
    Ok(links.iter().any(|link| link.linkinfo.info_kind.as_deref() == Some("veth")))
}

fn interface_address(interface: &str) -> Result<[u8; 6]> {
    let mut addresses =
        getifaddrs().context("list the interfaces")?.filter(|entry| entry.interface_name == interface);
    let link = addresses.find_map(|entry| entry.address?.as_link_addr()?.addr());
    link.with_context(|| format!("{interface} has no Ethernet address, or does not exist; see `ip link`"))
}

fn neighbour(hop: IpAddr, interface: &str) -> Result<[u8; 6]> {
    for attempt in 0..ATTEMPTS {
        let rows: Vec<Neighbour> = ip(&["neighbour", "show", "to", &hop.to_string(), "dev", interface])?;
        if let Some(address) = rows.iter().find_map(|row| parse_mac(row.lladdr.as_deref()?)) {
            return Ok(address);
        }
        if attempt == 0 {
            provoke(hop);
        }
        sleep(PAUSE);
    }
    if interface == "lo" {
        bail!(
            "lo has no Ethernet to send a crowd by; put the server behind a veth pair, as in the README's \"Try it by hand\""
        );
    }
    bail!("nobody on {interface} answers for {hop}; is the server up, and on this network?")
}

/// Makes the kernel ask for the neighbour, by a datagram to the discard port.
fn provoke(hop: IpAddr) {
    let any: IpAddr = if hop.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    // Whatever fails here shows as a neighbour that never appears.
    let _ = UdpSocket::bind((any, 0)).and_then(|socket| socket.send_to(&[0], (hop, 9)));
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Vec<u8> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<_, _>>().ok()?;
    bytes.try_into().ok()
}

fn ip<T: for<'a> Deserialize<'a>>(args: &[&str]) -> Result<Vec<T>> {
    let output =
        Command::new("ip").arg("-json").args(args).output().context("run ip; is iproute2 installed?")?;
    if !output.status.success() {
        bail!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    if output.stdout.trim_ascii().is_empty() {
        return Ok(Vec::new());
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("read what ip {} printed", args.join(" ")))
}
