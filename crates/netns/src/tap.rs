//! A packet socket that sends frames as they are and receives them with their VLAN tag in place.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;

use crate::error::Act;
use crate::{Namespace, Result};

const ETH_P_ALL: u16 = 3;
/// Longest frame that is received whole, bytes.
const MAX_FRAME: usize = 2048;

/// A raw socket on an interface: hosts that no kernel owns can live behind it.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
}

/// A frame that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// From the Ethernet header on.
    pub bytes: Vec<u8>,
    /// How long before it was read here.
    pub age: Duration,
}

impl Tap {
    /// On the interface with this index of a namespace.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_NET_RAW, ENODEV for another index.
    pub fn open(namespace: &Namespace, ifindex: u32) -> Result<Self> {
        let tap = namespace.enter(|| Self::bind(ifindex))?;
        tap.act_with(|| format!("open a packet socket on interface {ifindex} of {}", namespace.name()))
    }

    fn bind(ifindex: u32) -> io::Result<Self> {
        // SAFETY: plain system calls with valid arguments; the descriptor is owned from its
        // creation on.
        unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let raw = Errno::result(libc::socket(libc::AF_PACKET, kind, i32::from(ETH_P_ALL.to_be())))?;
            let tap = Self { fd: OwnedFd::from_raw_fd(raw) };
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = ETH_P_ALL.to_be();
            address.sll_ifindex = ifindex.cast_signed();
            let size = size_of_val(&address) as u32;
            Errno::result(libc::bind(raw, (&raw const address).cast(), size))?;
            tap.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
            tap.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
            Ok(tap)
        }
    }

    fn set(&self, level: i32, option: i32, value: u32) -> io::Result<()> {
        let size = size_of_val(&value) as u32;
        // SAFETY: the kernel only reads the number, which outlives the call.
        let set =
            unsafe { libc::setsockopt(self.fd.as_raw_fd(), level, option, (&raw const value).cast(), size) };
        Errno::result(set)?;
        Ok(())
    }

    /// So many bytes may wait to leave, with what the kernel charges for each frame; before it is
    /// 200 kB, and whoever sends more waits.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_NET_ADMIN.
    pub fn allow_waiting(&self, bytes: u32) -> Result<()> {
        let set = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes);
        set.act_with(|| format!("let {bytes} bytes wait"))
    }

    /// Frames from now on have this mark and this priority in the kernel.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_NET_ADMIN.
    pub fn mark(&self, mark: u32, priority: u32) -> Result<()> {
        let set = self.set(libc::SOL_SOCKET, libc::SO_MARK, mark);
        let set = set.and_then(|()| self.set(libc::SOL_SOCKET, libc::SO_PRIORITY, priority));
        set.act_with(|| format!("mark frames with {mark} and {priority}"))
    }

    /// Frames from now on go to the driver, past the queue discipline and programs at tc egress.
    ///
    /// # Errors
    ///
    /// None that is known.
    pub fn bypass_egress(&self) -> Result<()> {
        let set = self.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1);
        set.act("send past the queue discipline")
    }

    /// Sends a frame as it is.
    pub fn send(&self, frame: &[u8]) -> Result<()> {
        // SAFETY: the kernel only reads the frame.
        let sent = unsafe { libc::send(self.fd.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        Errno::result(sent).act_with(|| format!("send a frame of {} bytes", frame.len()))?;
        Ok(())
    }

    /// The next frame that came in (not one that went out), or `None` after `timeout`.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Frame>> {
        let deadline = std::time::Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if !self.is_readable(left).act("wait for a frame")? {
                return Ok(None);
            }
            if let Some(frame) = self.read().act("receive a frame")? {
                return Ok(Some(frame));
            }
        }
    }

    fn is_readable(&self, timeout: Duration) -> io::Result<bool> {
        let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // SAFETY: one pollfd and a timespec that outlive the call; no signal mask.
        let ready = unsafe { libc::ppoll(&raw mut poll, 1, &raw const time, std::ptr::null()) };
        match Errno::result(ready) {
            Err(Errno::EINTR) => Ok(false),
            result => Ok(result? > 0),
        }
    }

    /// `None` for a frame that went out.
    fn read(&self) -> io::Result<Option<Frame>> {
        let mut bytes = vec![0_u8; MAX_FRAME];
        // Aligned as cmsghdr must be.
        let mut control = [0_u64; 32];
        // SAFETY: all pointers are to locals that outlive the call, with their lengths.
        let (length, kind, beside) = unsafe {
            let mut from: libc::sockaddr_ll = std::mem::zeroed();
            let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_name = (&raw mut from).cast();
            message.msg_namelen = size_of_val(&from) as u32;
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of_val(&control);
            let length = Errno::result(libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, 0))?;
            (length, from.sll_pkttype, Beside::read(&message))
        };
        if kind == libc::PACKET_OUTGOING {
            return Ok(None);
        }
        bytes.truncate(length.cast_unsigned());
        if let Some(tag) = beside.tag {
            bytes.splice(12..12, tag);
        }
        Ok(Some(Frame { bytes, age: beside.age() }))
    }
}

/// What the kernel hands over beside a frame.
#[derive(Default)]
struct Beside {
    /// The outer VLAN tag, which it takes out of the frame.
    tag: Option<[u8; 4]>,
    /// When the frame came, of the wall clock.
    stamp: Option<Duration>,
}

impl Beside {
    /// # Safety
    ///
    /// `message` must be as recvmsg(2) left it.
    unsafe fn read(message: &libc::msghdr) -> Self {
        let mut beside = Self::default();
        // SAFETY: the caller's promise; the macros stay within the control buffer, and the data
        // have the types of their kinds.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(message);
            while let Some(header) = next.as_ref() {
                let data = libc::CMSG_DATA(header);
                match (header.cmsg_level, header.cmsg_type) {
                    (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                        beside.tag = data.cast::<Auxiliary>().read_unaligned().tag();
                    }
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                        let stamp = data.cast::<libc::timespec>().read_unaligned();
                        let secs = stamp.tv_sec.cast_unsigned();
                        beside.stamp = Some(Duration::new(secs, stamp.tv_nsec as u32));
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(message, header);
            }
        }
        beside
    }

    fn age(&self) -> Duration {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        self.stamp.map_or(Duration::ZERO, |stamp| now.saturating_sub(stamp))
    }
}

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

impl Auxiliary {
    fn tag(&self) -> Option<[u8; 4]> {
        const VLAN_VALID: u32 = 0x10;
        let [a, b] = self.vlan_tpid.to_be_bytes();
        let [c, d] = self.vlan_tci.to_be_bytes();
        (self.status & VLAN_VALID != 0).then_some([a, b, c, d])
    }
}
