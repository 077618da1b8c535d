//! A packet socket (packet(7)) that sends and receives whole Ethernet frames, one with each system call.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::time::TimeSpec;

const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// Longest frame, bytes: the kernel may have joined some before we get them.
const MAX_FRAME: usize = 65_536 + 14;
/// Frames that wait for us, bytes of memory.
const RECEIVE_BUFFER: i32 = 64 << 20;

/// A packet socket.
pub struct Socket {
    pub rx: Rx,
    pub tx: Tx,
}

/// What it receives.
pub struct Rx {
    fd: Arc<OwnedFd>,
    buffer: Box<[u8]>,
    /// Counted by the kernel until we ask.
    lost: AtomicU64,
}

/// What it sends.
pub struct Tx {
    fd: Arc<OwnedFd>,
    buffer: Box<[u8]>,
    error: Option<Errno>,
}

impl Socket {
    /// On the interface with this index of the caller's namespace, for frames of one IP version.
    pub fn open(ifindex: u32, is_ipv4: bool) -> io::Result<Self> {
        let protocol = if is_ipv4 { ETH_P_IP } else { ETH_P_IPV6 };
        let fd = Arc::new(bound(ifindex, protocol)?);
        set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)?;
        let buffer = || vec![0; MAX_FRAME].into_boxed_slice();
        let rx = Rx { fd: Arc::clone(&fd), buffer: buffer(), lost: AtomicU64::new(0) };
        Ok(Self { rx, tx: Tx { fd, buffer: buffer(), error: None } })
    }

    /// Frames that found no room in the socket's buffer.
    pub fn lost(&self) -> io::Result<u64> {
        let lost = u64::from(take_drops(&self.rx.fd)?);
        Ok(self.rx.lost.fetch_add(lost, Ordering::Relaxed) + lost)
    }
}

impl Rx {
    /// Calls `each` with up to `max` frames, and gives how many there were. Does not wait.
    pub fn receive(&mut self, max: u32, mut each: impl FnMut(&[u8])) -> u32 {
        for count in 0..max {
            match recv(self.fd.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(len) => each(&self.buffer[..len]),
                Err(_) => return count, // none, or an interface that is down: sending says so
            }
        }
        max
    }

    /// Waits until a frame arrives, `timeout` passes or a signal comes.
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut fds, Some(TimeSpec::from_duration(timeout)), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Tx {
    /// Sends one frame, which `fill` writes and whose length it gives. False when the kernel has no room for it.
    pub fn transmit(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        let len = fill(&mut self.buffer);
        match send(self.fd.as_raw_fd(), &self.buffer[..len], MsgFlags::MSG_DONTWAIT) {
            Ok(_) => true,
            Err(Errno::EAGAIN | Errno::ENOBUFS) => false,
            Err(error) => {
                self.error = Some(error);
                false
            }
        }
    }

    /// What went wrong since the last call.
    pub fn flush(&mut self) -> io::Result<()> {
        self.error.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

fn bound(ifindex: u32, protocol: u16) -> io::Result<OwnedFd> {
    // SAFETY: plain system calls with valid arguments; the descriptor is owned from its creation on.
    unsafe {
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // Nothing is received before it is bound: protocol 0.
        let fd = OwnedFd::from_raw_fd(Errno::result(libc::socket(libc::AF_PACKET, kind, 0))?);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = ifindex.cast_signed();
        let size = size_of_val(&address) as u32;
        Errno::result(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size))?;
        Ok(fd)
    }
}

fn set(fd: &OwnedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    let size = size_of_val(&value) as u32;
    // SAFETY: the kernel only reads the number, which outlives the call.
    let result = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const value).cast(), size) };
    Errno::result(result)?;
    Ok(())
}

/// Frames that were lost since the last call: the kernel counts from zero again.
fn take_drops(fd: &OwnedFd) -> io::Result<u32> {
    let mut counts = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut size = size_of_val(&counts) as u32;
    // SAFETY: the kernel writes no more than `size` bytes of the structure, which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counts).cast(),
            &raw mut size,
        )
    };
    Errno::result(result)?;
    Ok(counts.tp_drops)
}
