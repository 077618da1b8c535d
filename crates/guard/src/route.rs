//! What the kernel would do with a packet to an address (rtnetlink(7)).

use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

/// Bytes of `struct nlmsghdr`, `struct rtmsg` and `struct rtattr` (`include/uapi/linux/netlink.h`, `rtnetlink.h`).
const HEADER: usize = 16;
const ROUTE: usize = 12;
const ATTRIBUTE: usize = 4;
/// Where `nlmsg_type` and `rtm_type` are in an answer.
const MESSAGE_TYPE: usize = 4;
const ROUTE_TYPE: usize = HEADER + 7;

/// Whether it takes it for itself, in the calling thread's namespace: by an address of its own, or by a local route alone (AnyIP).
///
/// # Errors
///
/// When it cannot be asked, as when the host has no file descriptor left.
pub fn is_local(address: IpAddr) -> nix::Result<bool> {
    let socket =
        socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
    send(socket.as_raw_fd(), &question(address), MsgFlags::empty())?;
    let mut answer = [0; 4096];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    // It is an error where no route leads.
    let is_route = answer[MESSAGE_TYPE..][..2] == libc::RTM_NEWROUTE.to_ne_bytes();
    Ok(is_route && length > ROUTE_TYPE && answer[ROUTE_TYPE] == libc::RTN_LOCAL)
}

/// As `ip route get` asks it.
fn question(address: IpAddr) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET as u8, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6 as u8, address.octets().to_vec()),
    };
    let attribute = ATTRIBUTE + octets.len();
    let length = HEADER + ROUTE + attribute;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend((length as u32).to_ne_bytes());
    bytes.extend(libc::RTM_GETROUTE.to_ne_bytes());
    bytes.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    bytes.resize(HEADER, 0);
    bytes.extend([family, 8 * octets.len() as u8]);
    bytes.resize(HEADER + ROUTE, 0);
    bytes.extend((attribute as u16).to_ne_bytes());
    bytes.extend(libc::RTA_DST.to_ne_bytes());
    bytes.extend(octets);
    bytes
}
