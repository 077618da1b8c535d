//! A packet socket that sends frames as they are and receives them with their VLAN tag in place.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

const ETH_P_ALL: u16 = 3;
const PATIENCE: Duration = Duration::from_secs(5);

pub struct Tap {
    fd: OwnedFd,
}

impl Tap {
    /// On the interface with this index of the caller's namespace.
    pub fn open(ifindex: u32) -> Self {
        // SAFETY: plain system calls with valid arguments; the descriptor is owned from its creation on.
        unsafe {
            let raw = libc::socket(
                libc::AF_PACKET,
                libc::SOCK_RAW | libc::SOCK_CLOEXEC,
                i32::from(ETH_P_ALL.to_be()),
            );
            assert!(raw >= 0, "packet socket: {}", io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(raw);
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = ETH_P_ALL.to_be();
            address.sll_ifindex = ifindex.cast_signed();
            let size = size_of_val(&address) as u32;
            assert_eq!(libc::bind(raw, (&raw const address).cast(), size), 0);
            let on = 1_i32;
            let set =
                libc::setsockopt(raw, libc::SOL_PACKET, libc::PACKET_AUXDATA, (&raw const on).cast(), 4);
            assert_eq!(set, 0, "PACKET_AUXDATA");
            let timeout = libc::timeval { tv_sec: 0, tv_usec: 20_000 };
            let size = size_of_val(&timeout) as u32;
            let set =
                libc::setsockopt(raw, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const timeout).cast(), size);
            assert_eq!(set, 0, "SO_RCVTIMEO");
            Self { fd }
        }
    }

    pub fn send(&self, frame: &[u8]) {
        // SAFETY: the kernel only reads the frame.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len().cast_signed(), "send: {}", io::Error::last_os_error());
    }

    /// The next frame for which `wanted` holds; panics when none comes.
    pub fn receive(&self, what: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(frame) = self.next()
                && wanted(&frame)
            {
                return frame;
            }
        }
        panic!("no answer: {what}");
    }

    /// The next frame that came in (not one that we sent), or `None` after 20 ms.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut frame = vec![0_u8; 2048];
        // Aligned as cmsghdr must be.
        let mut control = [0_u64; 16];
        // SAFETY: all pointers are to locals that outlive the call, with their lengths.
        let (length, flags, tag) = unsafe {
            let mut from: libc::sockaddr_ll = std::mem::zeroed();
            let mut part = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: frame.len() };
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_name = (&raw mut from).cast();
            message.msg_namelen = size_of_val(&from) as u32;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let length = libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0);
            (length, from.sll_pkttype, vlan_tag(&message))
        };
        if length < 0 || flags == libc::PACKET_OUTGOING {
            return None;
        }
        frame.truncate(length.cast_unsigned());
        if let Some(tag) = tag {
            frame.splice(12..12, tag);
        }
        Some(frame)
    }
}

/// The kernel takes the outer tag out of the frame and hands it over beside it.
///
/// # Safety
///
/// `message` must be as recvmsg(2) left it.
unsafe fn vlan_tag(message: &libc::msghdr) -> Option<[u8; 4]> {
    /// `struct tpacket_auxdata` of include/uapi/linux/if_packet.h.
    #[repr(C)]
    struct Auxiliary {
        status: u32,
        len: u32,
        snaplen: u32,
        mac: u16,
        net: u16,
        vlan_tci: u16,
        vlan_tpid: u16,
    }
    const VLAN_VALID: u32 = 0x10;
    // SAFETY: the caller's promise; the macros stay within the control buffer.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(message).as_ref()?;
        if header.cmsg_level != libc::SOL_PACKET || header.cmsg_type != libc::PACKET_AUXDATA {
            return None;
        }
        let data = libc::CMSG_DATA(header).cast::<Auxiliary>().read_unaligned();
        if data.status & VLAN_VALID == 0 {
            return None;
        }
        let [a, b] = data.vlan_tpid.to_be_bytes();
        let [c, d] = data.vlan_tci.to_be_bytes();
        Some([a, b, c, d])
    }
}

/// Makes the stack of the caller's namespace finish checksums before they reach this interface, as on hardware without
/// offload: what a packet socket then sees is what would be on a wire.
pub fn disable_checksum_offload(name: &str) {
    const ETHTOOL_STXCSUM: u32 = 0x17;
    let mut value = [ETHTOOL_STXCSUM, 0];
    // SAFETY: `request` and `value` outlive the call; SIOCETHTOOL reads two words for this command.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
        let raw = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        let fd = OwnedFd::from_raw_fd(raw);
        libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request)
    };
    assert_eq!(result, 0, "checksum offload of {name}: {}", io::Error::last_os_error());
}
