//! Asks the kernel about the calling thread's network namespace: its interfaces, routes,
//! neighbours, traffic classes and TCP sockets.
//!
//! It speaks rtnetlink(7) and sock_diag(7).
//!
//! What it is not: a tool to make things. It makes one thing, the filter of [`add_bpf_filter`],
//! because iproute2 would need a pinned program. Interfaces, routes and queue disciplines are made
//! by iproute2 (`netns`, `qdisc`, `uplink`), because its commands can be repeated by hand. Of an
//! answer only what is named here is decoded, so nothing depends on what a newer kernel adds.

mod ask;
mod interface;
mod routes;
mod sockets;
mod traffic;

use std::net::IpAddr;

use neli::consts::rtnl::{Nda, Nud, RtAddrFamily, RtScope, RtTable, Rta, Rtm, Rtn, Rtprot};
use neli::rtnl::{NdmsgBuilder, RtmsgBuilder};
use nix::errno::Errno;

use ask::{address_of, ask, attribute, attributes, number_of};

pub use ask::Error;
pub use interface::Interface;
pub use routes::{Entry, main_table};
pub use sockets::{ListenQueue, TcpSocket, TcpState, each_tcp_socket, listen_queues, tcp_listeners};
pub use traffic::{Class, add_bpf_filter, classes};

/// Where a packet goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The kernel takes it for itself: by an address of its own, or by a local route alone (AnyIP).
    pub is_local: bool,
    /// The router that it goes to first; `None` where the destination itself is on the link.
    pub gateway: Option<IpAddr>,
    /// Index of the interface that it leaves by.
    pub interface: Option<u32>,
}

/// Where the kernel sends a packet to `address`, by the interface with the index `through` or by
/// any: as `ip route get`.
///
/// # Errors
///
/// [`Error::Refused`] where no route leads.
pub fn route(address: IpAddr, through: Option<u32>) -> Result<Route, Error> {
    let (family, octets) = family_and_octets(address);
    let bits = 8 * octets.len() as u8;
    let through = through.map(|index| (Rta::Oif, index.to_ne_bytes().to_vec()));
    let question = RtmsgBuilder::default()
        .rtm_family(family)
        .rtm_dst_len(bits)
        .rtm_src_len(0)
        .rtm_tos(0)
        .rtm_table(RtTable::Unspec)
        .rtm_protocol(Rtprot::Unspec)
        .rtm_scope(RtScope::Universe)
        .rtm_type(Rtn::Unspec)
        .rtattrs(attributes([(Rta::Dst, octets)].into_iter().chain(through)))
        .build();
    ask(Rtm::Getroute, question.expect("all of it is set"), |answer| Route {
        is_local: *answer.rtm_type() == Rtn::Local,
        gateway: attribute(answer.rtattrs(), Rta::Gateway).and_then(address_of),
        interface: attribute(answer.rtattrs(), Rta::Oif).and_then(number_of),
    })
}

/// Ethernet address that the kernel knows for `address` on the link of the interface with this
/// index, as long as it is good.
///
/// # Errors
///
/// When the kernel cannot be asked. That it knows none is none.
pub fn neighbour(address: IpAddr, interface: u32) -> Result<Option<[u8; 6]>, Error> {
    let (family, octets) = family_and_octets(address);
    let question = NdmsgBuilder::default()
        .ndm_family(family)
        .ndm_index(interface.cast_signed())
        .ndm_state(Nud::empty())
        .ndm_type(Rtn::Unspec)
        .rtattrs(attributes([(Nda::Dst, octets)]))
        .build();
    let known = ask(Rtm::Getneigh, question.expect("all of it is set"), |answer| {
        // Of a link without addresses, as a loopback's, the kernel keeps such as nobody asked for.
        let is_asked_for = !answer.ndm_state().contains(Nud::NOARP);
        attribute(answer.rtattrs(), Nda::Lladdr).filter(|_| is_asked_for)?.try_into().ok()
    });
    match known {
        Err(Error::Refused(Errno::ENOENT)) => Ok(None),
        known => known,
    }
}

fn family_and_octets(address: IpAddr) -> (RtAddrFamily, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (RtAddrFamily::Inet, address.octets().to_vec()),
        IpAddr::V6(address) => (RtAddrFamily::Inet6, address.octets().to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_local_and_one_for_examples_is_not() {
        for (address, is_own) in [("127.0.0.77", true), ("192.0.2.77", false)] {
            let route = route(address.parse().expect("address"), None);
            assert_eq!(route.is_ok_and(|route| route.is_local), is_own, "{address}");
        }
    }

    #[test]
    fn loopback_knows_no_neighbours() {
        let lo = Interface::find("lo").expect("ask").expect("every host has it");
        assert_eq!(neighbour([127, 0, 0, 1].into(), lo.index).expect("ask"), None);
    }
}
