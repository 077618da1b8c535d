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
    /// Its link-layer address, if that has the length of Ethernet's.
    pub address: Option<[u8; 6]>,
    /// Index of the interface that gets its frames after it, as a bridge does its ports'.
    pub hands_to: Option<u32>,
    /// Index of the interface that gets its frames before it, as the one below a VLAN does.
    pub gets_from: Option<u32>,
    /// Number of the XDP program that its frames meet first.
    pub xdp_program: Option<u32>,
}

/// Kinds of masters that a port hands its frames to (`rx_handler` of the kernel). A VRF is none.
const TAKES_FRAMES: [&str; 3] = ["bridge", "bond", "team"];
/// Kinds that get frames from the interface below as these came, but for a tag.
const ABOVE_ANOTHER: [&str; 3] = ["vlan", "macvlan", "ipvlan"];

impl Interface {
    /// Whether it is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.driver == "veth"
    }
}

/// The interfaces with these names, or, without names, every one that carries the host's traffic;
/// and to the operator, which of those that were named are left out.
pub fn choose(names: &[String]) -> Result<(Vec<Interface>, Vec<String>)> {
    if names.is_empty() {
        let chosen = with_address()?;
        ensure!(
            !chosen.is_empty(),
            "guard: no Ethernet interface here is up and has an IP address; name one with --interface"
        );
        return Ok((chosen, Vec::new()));
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
    let (once, again) = once(chosen);
    let notes = again.into_iter().map(|(left, other)| {
        format!("interface {left} is not guarded besides {other}, which gets the same frames: they would count twice")
    });
    Ok((once, notes.collect()))
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
        let there_are = format!("there are: {}", known.join(", "));
        let then = spelling::did_you_mean(name, known, &there_are);
        bail!("guard on interface {name}: there is none of that name{then}");
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

/// Every interface that is up and has an address: where the host's IP begins.
pub fn with_address() -> Result<Vec<Interface>> {
    let all = seen_interfaces()?;
    let is_chosen = |seen: &Seen| seen.is_up && seen.is_ethernet && seen.has_address;
    // One that is not found is gone by now.
    let found = all.iter().filter(|(_, seen)| is_chosen(seen)).map(|(name, _)| find(name));
    let chosen: Vec<Interface> = found.filter_map(Result::transpose).collect::<Result<_>>()?;
    Ok(once(chosen).0)
}

/// Interfaces at which each frame is counted once. And those left out, each with the one that gets
/// its frames, too. A port goes, because its bridge has other ports. An upper interface goes,
/// because other frames come by the one below.
fn once(chosen: Vec<Interface>) -> (Vec<Interface>, Vec<(String, String)>) {
    let (chosen, mut again) = without(chosen, |port, other| port.hands_to == Some(other.index));
    // With a link-layer address of its own its frames are for another host, to the one below.
    let (mut chosen, above) = without(chosen, |above, other| {
        above.gets_from == Some(other.index) && above.address == other.address
    });
    again.extend(above);
    // To an interface below another the kernel attaches no XDP program after the upper one's.
    chosen.sort_by_key(|interface| interface.gets_from.is_some());
    (chosen, again)
}

/// Interfaces that get no other's frames; and the names of those that do, each with that other's.
fn without(
    chosen: Vec<Interface>,
    gets_same: impl Fn(&Interface, &Interface) -> bool,
) -> (Vec<Interface>, Vec<(String, String)>) {
    let same =
        |of: &Interface| chosen.iter().find(|other| gets_same(of, other)).map(|other| other.name.clone());
    let others: Vec<Option<String>> = chosen.iter().map(same).collect();
    let (mut once, mut again) = (Vec::new(), Vec::new());
    for (interface, other) in chosen.into_iter().zip(others) {
        match other {
            None => once.push(interface),
            Some(other) => again.push((interface.name, other)),
        }
    }
    (once, again)
}

impl Interface {
    /// With this name.
    pub fn of(name: &str, link: &netlink::Interface) -> Self {
        let is = |kind: &Option<String>, of: &[&str]| kind.as_deref().is_some_and(|kind| of.contains(&kind));
        Self {
            name: name.to_owned(),
            index: link.index,
            mtu: link.mtu,
            driver: driver(name).unwrap_or_default(),
            is_loopback: link.is_loopback,
            address: link.address,
            hands_to: link.master.filter(|_| is(&link.master_kind, &TAKES_FRAMES)),
            gets_from: link.lower.filter(|_| is(&link.kind, &ABOVE_ANOTHER)),
            xdp_program: link.xdp_program,
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
        let (chosen, _) = choose(&["lo".to_owned(), "lo".to_owned()]).expect("every host has lo");
        assert_eq!(chosen.len(), 1, "named twice, guarded once");
        assert!(chosen[0].is_loopback && chosen[0].mtu >= 1500);
    }

    #[test]
    fn each_frame_is_guarded_once_at_the_master_and_below_a_vlan() {
        let of = |name: &str, index: u32, change: fn(&mut netlink::Interface)| {
            let mut link = netlink::Interface {
                index,
                address: Some([2, 0, 0, 0, 0, 1]),
                ..netlink::Interface::default()
            };
            change(&mut link);
            Interface::of(name, &link)
        };
        let all = vec![
            of("p0", 1, |link| (link.master, link.master_kind) = (Some(3), Some("bond".to_owned()))),
            of("p0.5", 2, |link| (link.lower, link.kind) = (Some(1), Some("vlan".to_owned()))),
            of("bond0", 3, |_| {}),
            of("bond0.5", 4, |link| (link.lower, link.kind) = (Some(3), Some("vlan".to_owned()))),
            of("m0", 5, |link| {
                (link.lower, link.kind) = (Some(3), Some("macvlan".to_owned()));
                link.address = Some([2, 0, 0, 0, 0, 2]);
            }),
            of("r0", 6, |link| (link.master, link.master_kind) = (Some(7), Some("vrf".to_owned()))),
            of("vrf0", 7, |_| {}),
            of("alone", 8, |link| (link.master, link.master_kind) = (Some(9), Some("bridge".to_owned()))),
        ];
        let (kept, left) = once(all);
        let kept: Vec<&str> = kept.iter().map(|interface| &*interface.name).collect();
        assert_eq!(kept, ["bond0", "r0", "vrf0", "alone", "p0.5", "m0"], "lower ones first");
        let left: Vec<(&str, &str)> = left.iter().map(|(left, other)| (&**left, &**other)).collect();
        assert_eq!(left, [("p0", "bond0"), ("bond0.5", "bond0")]);
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
