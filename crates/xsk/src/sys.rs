//! The system calls of AF_XDP, each as a safe function. Sources:
//! `Documentation/networking/af_xdp.rst`, `include/uapi/linux/if_xdp.h`.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use crate::interface::MAX_QUEUES;

/// Linux 6.17 and newer; libc has it not yet.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
/// `include/uapi/linux/ethtool.h`.
const ETHTOOL_GCHANNELS: u32 = 0x0000_003c;
/// Most descriptors that can be waited for together: one for each queue of two interfaces, and one
/// more.
pub const MAX_POLLED: usize = 2 * MAX_QUEUES as usize + 1;

/// Plain values that the kernel may read and write as an AF_XDP socket option.
///
/// # Safety
///
/// Every bit pattern is a valid value, and there is no padding.
pub(crate) unsafe trait OptionValue: Copy + Default {}

// SAFETY: an integer.
unsafe impl OptionValue for u32 {}
// SAFETY: six integers of one size.
unsafe impl OptionValue for Counters {}
// SAFETY: sixteen integers of one size.
unsafe impl OptionValue for Offsets {}
// SAFETY: two u64 and four u32: no padding.
unsafe impl OptionValue for UmemRegistration {}

/// `struct xdp_statistics`, frames or descriptors since the socket was made.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub rx_dropped: u64,
    pub rx_invalid_descs: u64,
    pub tx_invalid_descs: u64,
    pub rx_ring_full: u64,
    pub rx_fill_ring_empty_descs: u64,
    pub tx_ring_empty_descs: u64,
}

/// `struct xdp_ring_offset`: where a ring's words are in its mapping, bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RingOffset {
    pub producer: u64,
    pub consumer: u64,
    pub desc: u64,
    pub flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Offsets {
    pub rx: RingOffset,
    pub tx: RingOffset,
    pub fill: RingOffset,
    pub completion: RingOffset,
}

/// `struct xdp_umem_reg`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct UmemRegistration {
    pub addr: u64,
    pub len: u64,
    pub chunk_size: u32,
    pub headroom: u32,
    pub flags: u32,
    pub tx_metadata_len: u32,
}

/// `struct ethtool_channels`: what a driver can have of each kind of queue, and what it has.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx_count: u32,
    tx_count: u32,
    other_count: u32,
    combined_count: u32,
}

/// An AF_XDP socket, not yet bound.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: socket(2) gave a descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sets an option of level SOL_XDP.
pub(crate) fn set_option<T: OptionValue>(fd: BorrowedFd<'_>, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: `value` is readable for the length given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as u32,
        )
    };
    check(result).map(drop)
}

/// Reads an option of level SOL_XDP. What an older kernel does not fill in stays zero.
pub(crate) fn option<T: OptionValue>(fd: BorrowedFd<'_>, option: c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for the length given, and OptionValue says that any bytes are
    // valid there.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, (&raw mut value).cast(), &raw mut len)
    };
    check(result)?;
    Ok(value)
}

/// Lets one kick send as many frames as the ring has, where the kernel knows how (6.17); else it
/// stays at 32.
pub(crate) fn raise_transmit_budget(fd: BorrowedFd<'_>, frames: u32) {
    let _ = set_option(fd, XDP_MAX_TX_SKB_BUDGET, &frames);
}

/// Binds to a queue of an interface.
pub(crate) fn bind(fd: BorrowedFd<'_>, ifindex: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: ifindex,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: `address` is readable for the length given.
    let result =
        unsafe { libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32) };
    check(result).map(drop)
}

/// Tells the kernel that there are frames to send.
pub(crate) fn kick(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: a null buffer of no bytes and no address.
    let result =
        unsafe { libc::sendto(fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Waits until one of them has something to read or `timeout` passes, or a signal comes.
///
/// # Errors
///
/// What ppoll(2) says; an interrupted wait is none.
///
/// # Panics
///
/// When there are more than [`MAX_POLLED`].
pub fn wait_readable<'a>(fds: impl IntoIterator<Item = BorrowedFd<'a>>, timeout: Duration) -> io::Result<()> {
    let mut polls = [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; MAX_POLLED];
    let mut count = 0;
    for fd in fds {
        polls[count].fd = fd.as_raw_fd();
        count += 1;
    }
    let timeout = libc::timespec {
        tv_sec: timeout.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: so many pollfds and a timespec that outlive the call, no signal mask.
    let result = unsafe {
        libc::ppoll(polls.as_mut_ptr(), count as libc::nfds_t, &raw const timeout, std::ptr::null())
    };
    match check(result) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        result => result.map(drop),
    }
}

/// Largest packet that the interface of that name sends, bytes without the Ethernet header.
///
/// # Errors
///
/// What netdevice(7) says: ENODEV where there is none of that name.
pub(crate) fn mtu(interface: &str) -> io::Result<u32> {
    let mut request = interface_request(interface);
    interface_ioctl(libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: SIOCGIFMTU filled in this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_mtu }.cast_unsigned())
}

/// How many queues the interface receives with, and sends with, as its driver says; one of each
/// where it does not.
pub(crate) fn queues(interface: &str) -> io::Result<(u32, u32)> {
    let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
    let mut request = interface_request(interface);
    request.ifr_ifru.ifru_data = (&raw mut channels).cast();
    match interface_ioctl(libc::SIOCETHTOOL, &mut request) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return Ok((1, 1)),
        Err(error) => return Err(error),
    }
    let count = |own: u32| own.saturating_add(channels.combined_count).max(1);
    Ok((count(channels.rx_count), count(channels.tx_count)))
}

fn interface_request(interface: &str) -> libc::ifreq {
    // SAFETY: ifreq is plain old data, for which all-zero is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.bytes().take(libc::IFNAMSIZ - 1);
    for (to, from) in request.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    request
}

fn interface_ioctl(command: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: no pointers.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: socket(2) gave a descriptor that nothing else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: `request`, and what it points to in our uses, outlive the call and have the size that
    // the command expects.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), command, &raw mut *request) }).map(drop)
}

/// Memory mapped until this is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is only an address range; those who read and write it say why they may.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives nothing but the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed memory of our own, all of it present.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0)
    }

    /// The part of an AF_XDP socket at `offset`, one of its rings.
    pub(crate) fn of_socket(fd: BorrowedFd<'_>, len: usize, offset: i64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    fn map(len: usize, flags: c_int, fd: c_int, offset: i64) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that is in
        // use.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("mmap without MAP_FIXED never gives address 0");
        Ok(Self { start, len })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, and those who hold pointers into it hold it too.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
