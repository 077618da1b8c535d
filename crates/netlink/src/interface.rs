//! A network interface.

use std::io;

use neli::consts::rtnl::{Arphrd, Iff, Ifla, IflaInfo, RtAddrFamily, Rtm};
use neli::rtnl::{Ifinfomsg, IfinfomsgBuilder};
use nix::errno::Errno;
use nix::net::if_::{if_nameindex, if_nametoindex};

use crate::ask::{Error, ask, attribute, find, number_of};

/// A network interface, as it is at this moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its number.
    pub index: u32,
    /// Largest packet that it sends, bytes without the Ethernet header.
    pub mtu: u32,
    /// Whether it is switched on.
    pub is_up: bool,
    /// Whether it is a loopback.
    pub is_loopback: bool,
    /// Whether it carries Ethernet frames, and is no loopback.
    pub is_ethernet: bool,
    /// Its link-layer address, if that has the length of Ethernet's.
    pub address: Option<[u8; 6]>,
    /// As what it was made: `veth`, `vlan`; `None` for a network card, and others that were there
    /// from the start.
    pub kind: Option<String>,
    /// Index of the interface below it, or at its other end; `None` where there is none, or it is
    /// in another namespace.
    pub lower: Option<u32>,
    /// Index of the interface that this one is a port of.
    pub master: Option<u32>,
    /// As what that was made: `bridge`, `bond`, `vrf`.
    pub master_kind: Option<String>,
    /// Number of the XDP program that its frames meet first.
    pub xdp_program: Option<u32>,
}

/// `include/uapi/linux/if_link.h`: the program of the one mode that is in use, or else those of the
/// driver, of the stack and of the hardware. libc has none of them.
const XDP_PROGRAMS: [u16; 4] = [4, 5, 6, 7];

impl Interface {
    /// The interface of this name, which may be an alternative one, or a label of an address;
    /// `None` if there is none.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    pub fn find(name: &str) -> Result<Option<Self>, Error> {
        let index = match if_nametoindex(name) {
            Ok(index) => index,
            Err(Errno::ENODEV) => return Ok(None),
            Err(error) => return Err(Error::Unasked(io::Error::from(error))),
        };
        Self::at(index)
    }

    /// The interface with this number; `None` if the caller's network namespace has none.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    pub fn at(index: u32) -> Result<Option<Self>, Error> {
        let question =
            IfinfomsgBuilder::default().ifi_family(RtAddrFamily::Unspecified).ifi_index(index.cast_signed());
        match ask(Rtm::Getlink, question.build().expect("all of it is set"), Self::read) {
            Err(Error::Refused(Errno::ENODEV)) => Ok(None),
            interface => interface.map(Some),
        }
    }

    /// How an error goes on behind the name of an interface that is not there, as in `; did you
    /// mean eth0? ...`.
    pub fn instead_of(name: &str) -> String {
        let all = if_nameindex().ok();
        let names = all.iter().flatten().filter_map(|interface| interface.name().to_str().ok());
        spelling::did_you_mean(name, names, "`ip link` lists them")
    }

    /// Name of the interface with this number; `None` if the caller's network namespace has none.
    /// Not by nix 0.31's `if_indextoname()`, which takes the null that says no for a name.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be asked.
    pub fn name_of(index: u32) -> Result<Option<String>, Error> {
        let all = if_nameindex().map_err(|error| Error::Unasked(io::Error::from(error)))?;
        let found = all.iter().find(|interface| interface.index() == index);
        Ok(found.map(|interface| interface.name().to_string_lossy().into_owned()))
    }

    /// Whether it is one end of a veth pair.
    pub fn is_veth(&self) -> bool {
        self.kind.as_deref() == Some("veth")
    }

    /// Whether both are the ends of one pair.
    pub fn is_peer_of(&self, other: &Self) -> bool {
        self.lower == Some(other.index) && other.lower == Some(self.index)
    }

    fn read(answer: &Ifinfomsg) -> Self {
        let number = |kind| attribute(answer.rtattrs(), kind).and_then(number_of);
        let is_below_here = attribute(answer.rtattrs(), Ifla::LinkNetnsid).is_none();
        Self {
            index: answer.ifi_index().cast_unsigned(),
            mtu: number(Ifla::Mtu).unwrap_or_default(),
            is_up: answer.ifi_flags().contains(Iff::UP),
            is_loopback: answer.ifi_flags().contains(Iff::LOOPBACK),
            is_ethernet: *answer.ifi_type() == Arphrd::Ether,
            address: attribute(answer.rtattrs(), Ifla::Address).and_then(|bytes| bytes.try_into().ok()),
            kind: info(answer, IflaInfo::Kind),
            lower: number(Ifla::Link).filter(|_| is_below_here),
            master: number(Ifla::Master),
            master_kind: info(answer, IflaInfo::SlaveKind),
            xdp_program: attribute(answer.rtattrs(), Ifla::Xdp).and_then(xdp_program),
        }
    }
}

fn info(answer: &Ifinfomsg, wanted: IflaInfo) -> Option<String> {
    let attributes = answer.rtattrs().get_attr_handle();
    let info = attributes.get_nested_attributes::<IflaInfo>(Ifla::Linkinfo).ok()?;
    info.get_attr_payload_as_with_len::<String>(wanted).ok()
}

fn xdp_program(xdp: &[u8]) -> Option<u32> {
    XDP_PROGRAMS.into_iter().find_map(|kind| find(xdp, kind).and_then(number_of).filter(|&id| id != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ask::attributes;

    fn read(all: Vec<(Ifla, Vec<u8>)>) -> Interface {
        let message = IfinfomsgBuilder::default().ifi_family(RtAddrFamily::Unspecified);
        Interface::read(&message.rtattrs(attributes(all)).build().expect("all of it is set"))
    }

    #[test]
    fn vlan_has_its_kind_and_the_interface_below_unless_that_is_elsewhere() {
        // An attribute of `IFLA_LINKINFO`: its length, `IFLA_INFO_KIND`, a text with a zero, up to
        // a multiple of four bytes.
        let info = [&9_u16.to_ne_bytes()[..], &1_u16.to_ne_bytes(), b"vlan\0\0\0\0"].concat();
        let here = [(Ifla::Link, 7_u32.to_ne_bytes().to_vec()), (Ifla::Linkinfo, info)];
        let elsewhere = (Ifla::LinkNetnsid, 0_u32.to_ne_bytes().to_vec());
        let vlan = read(here.to_vec());
        assert_eq!((vlan.kind.as_deref(), vlan.lower), (Some("vlan"), Some(7)));
        assert_eq!(read([&here[..], &[elsewhere]].concat()).lower, None);
    }

    #[test]
    fn port_without_a_kind_of_its_own_has_its_masters() {
        // As above, `IFLA_INFO_SLAVE_KIND`.
        let info = [&9_u16.to_ne_bytes()[..], &4_u16.to_ne_bytes(), b"bond\0\0\0\0"].concat();
        let port = read(vec![(Ifla::Master, 7_u32.to_ne_bytes().to_vec()), (Ifla::Linkinfo, info)]);
        assert_eq!((port.master, port.master_kind.as_deref()), (Some(7), Some("bond")));
        assert_eq!((port.kind, port.xdp_program), (None, None));
    }
}
