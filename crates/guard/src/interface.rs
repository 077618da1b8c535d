//! Which interfaces to guard, and what kind each is.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result, bail, ensure};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrLike, socket};

/// A network interface of the calling thread's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Index.
    pub index: u32,
    /// Largest packet, bytes.
    pub mtu: u32,
    /// As ethtool gives it; empty where there is none.
    pub driver: String,
    /// Whether it is a loopback.
    pub is_loopback: bool,
    /// Of a VLAN device, index of the interface below.
    pub below_vlan: Option<u32>,
}

impl Interface {
    /// Whether it is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.driver == "veth"
    }
}

/// The interfaces with these names, or, without names, every one that carries the host's traffic.
pub fn choose(names: &[String]) -> Result<Vec<Interface>> {
    if names.is_empty() {
        let chosen = with_address()?;
        ensure!(
            !chosen.is_empty(),
            "guard: no Ethernet interface here is up and has an IP address; name one with --interface"
        );
        return Ok(chosen);
    }
    let all = seen_interfaces()?;
    let mut chosen = Vec::new();
    for name in names {
        let interface = named(name, &all)?;
        // By another name it may be the same.
        if !chosen.iter().any(|known: &Interface| known.index == interface.index) {
            chosen.push(interface);
        }
    }
    Ok(chosen)
}

/// Every IP address of the calling thread's namespace: what a wildcard listener stands for.
pub fn own_addresses() -> Result<BTreeSet<IpAddr>> {
    let addresses = getifaddrs().context("list this host's addresses")?.filter_map(|entry| {
        let address = entry.address?;
        let ipv4 = address.as_sockaddr_in().map(|address| IpAddr::from(address.ip()));
        ipv4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::from(address.ip())))
    });
    Ok(addresses.collect())
}

/// Whether the kernel takes what is sent to this address for itself, in the calling thread's
/// namespace, or will when the interface that has it is up. `None` if it cannot be known, as when
/// the host has no file descriptor left.
pub fn is_local(address: IpAddr) -> Option<bool> {
    if address.is_loopback() {
        return Some(true);
    }
    match netlink::route(address, None) {
        Ok(route) if route.is_local => return Some(true),
        Ok(_) | Err(netlink::Error::Refused(_)) => {}
        Err(netlink::Error::Unasked(_)) => return None,
    }
    // One of a link alone, of an interface that is down, or with a table of its own.
    own_addresses().ok().map(|own| own.contains(&address))
}

/// By its name; `None` if there is none.
///
/// # Errors
///
/// When the kernel cannot be asked just now.
pub fn find(name: &str) -> Result<Option<Interface>> {
    let link = netlink::Interface::find(name).with_context(|| format!("look at interface {name}"))?;
    Ok(link.map(|link| Interface::of(name, &link)))
}

fn named(name: &str, all: &BTreeMap<String, Seen>) -> Result<Interface> {
    if if_nametoindex(name).is_err() {
        let known: Vec<&str> = all.keys().map(String::as_str).collect();
        bail!("guard on interface {name}: there is none of that name; there are: {}", known.join(", "));
    }
    if all.get(name).is_some_and(|seen| !seen.is_ethernet) {
        bail!("guard on interface {name}: it carries no Ethernet frames; name the interface below it");
    }
    find(name)?.with_context(|| format!("find interface {name}: there is none of that name; see `ip link`"))
}

/// What getifaddrs(3) says about one interface.
#[derive(Debug, Default)]
struct Seen {
    is_ethernet: bool,
    is_up: bool,
    has_address: bool,
}

fn seen_interfaces() -> Result<BTreeMap<String, Seen>> {
    let mut all: BTreeMap<String, Seen> = BTreeMap::new();
    for entry in getifaddrs().context("list the network interfaces")? {
        let seen = all.entry(entry.interface_name).or_default();
        seen.is_up |= entry.flags.contains(InterfaceFlags::IFF_UP);
        let Some(address) = entry.address else { continue };
        match address.family() {
            Some(AddressFamily::Packet) => {
                let kind = address.as_link_addr().map(|link| link.hatype());
                seen.is_ethernet = matches!(kind, Some(libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK));
            }
            Some(AddressFamily::Inet | AddressFamily::Inet6) => seen.has_address = true,
            _ => {}
        }
    }
    Ok(all)
}

/// Every interface that is up and has an address: where the host's IP begins. Ports of a bridge or
/// bond have none, so nothing is counted twice there; a VLAN device is left out where its lower
/// device is in, because frames pass that first.
pub fn with_address() -> Result<Vec<Interface>> {
    let all = seen_interfaces()?;
    let is_chosen = |seen: &Seen| seen.is_up && seen.is_ethernet && seen.has_address;
    // One that is not found is gone by now.
    let found = all.iter().filter(|(_, seen)| is_chosen(seen)).map(|(name, _)| find(name));
    let chosen: Vec<Interface> = found.filter_map(Result::transpose).collect::<Result<_>>()?;
    let indices: BTreeSet<u32> = chosen.iter().map(|interface| interface.index).collect();
    let is_seen_below =
        |interface: &Interface| interface.below_vlan.is_some_and(|below| indices.contains(&below));
    Ok(chosen.into_iter().filter(|interface| !is_seen_below(interface)).collect())
}

impl Interface {
    fn of(name: &str, link: &netlink::Interface) -> Self {
        Self {
            name: name.to_owned(),
            index: link.index,
            mtu: link.mtu,
            driver: driver(name).unwrap_or_default(),
            is_loopback: link.is_loopback,
            below_vlan: link.lower.filter(|_| link.kind.as_deref() == Some("vlan")),
        }
    }
}

/// `struct ethtool_drvinfo` of include/uapi/linux/ethtool.h, as far as we read it; the kernel fills
/// 196 bytes.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

const ETHTOOL_GDRVINFO: u32 = 3;

/// By ioctl, since netlink does not tell.
fn driver(name: &str) -> Option<String> {
    let mut info = DriverInfo { cmd: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
    // SAFETY: ifreq is plain old data, for which all-zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_data = (&raw mut info).cast();
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    // SAFETY: the kernel reads and writes one ifreq and the `info` that it points to; both outlive
    // the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
    let text = info.driver.split(|byte| *byte == 0).next().filter(|_| result == 0)?;
    Some(String::from_utf8_lossy(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_known_as_one() {
        let chosen = choose(&["lo".to_owned(), "lo".to_owned()]).expect("every host has lo");
        assert_eq!(chosen.len(), 1, "named twice, guarded once");
        assert!(chosen[0].is_loopback && chosen[0].mtu >= 1500);
    }

    #[test]
    fn address_of_this_host_is_local_and_one_for_examples_is_not() {
        for (address, is_own) in [("127.0.0.77", true), ("::1", true), ("192.0.2.77", false)] {
            assert_eq!(is_local(address.parse().expect("address")), Some(is_own), "{address}");
        }
    }

    #[test]
    fn unknown_interface_is_an_error_that_names_the_known() {
        let error = choose(&["nosuch0".to_owned()]).expect_err("it is not there").to_string();
        assert!(error.starts_with("guard on interface nosuch0: "), "{error}");
        assert!(error.contains("lo"), "{error}");
    }
}
