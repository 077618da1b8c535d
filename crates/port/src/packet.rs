//! A packet socket (packet(7)) that sends and receives whole Ethernet frames, one with each system
//! call.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{MsgFlags, recv, send};
use nix::sys::time::TimeSpec;

const ETH_P_ALL: u16 = 0x0003;
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;
/// Longest frame, bytes: the kernel may have joined some before we get them.
const MAX_FRAME: usize = 65_536 + 14;
/// Frames that wait for us, bytes of memory.
const RECEIVE_BUFFER: i32 = 64 << 20;

/// A packet socket.
pub(crate) struct Socket {
    pub(crate) rx: Rx,
    pub(crate) tx: Tx,
}

/// What it receives.
pub(crate) struct Rx {
    fd: Arc<OwnedFd>,
    buffer: Box<[u8]>,
    /// Of what was lost, what the kernel has told us.
    lost: Cell<u64>,
}

/// What it sends.
pub(crate) struct Tx {
    fd: Arc<OwnedFd>,
    buffer: Box<[u8]>,
    error: Option<Errno>,
}

impl Socket {
    /// On the interface with this index of the caller's namespace, for TCP from the server to these
    /// clients, or for every frame.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_NET_RAW, ENODEV for another index, ENOPROTOOPT before Linux 4.20.
    pub fn open(ifindex: u32, of: Option<(SocketAddr, IpNet)>) -> io::Result<Self> {
        let fd = socket()?;
        let protocol = match of {
            None => ETH_P_ALL,
            Some((server, clients)) => {
                // Before it is bound, so that nothing else is ever counted.
                attach_filter(&fd, &filter(server, clients))?;
                if server.is_ipv4() { ETH_P_IP } else { ETH_P_IPV6 }
            }
        };
        set(&fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set(&fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        // Beyond net.core.rmem_max with CAP_NET_ADMIN only.
        set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)
            .or_else(|_| set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER))?;
        bind(&fd, ifindex, protocol)?;
        let fd = Arc::new(fd);
        let buffer = || vec![0; MAX_FRAME].into_boxed_slice();
        let rx = Rx { fd: Arc::clone(&fd), buffer: buffer(), lost: Cell::new(0) };
        Ok(Self { rx, tx: Tx { fd, buffer: buffer(), error: None } })
    }

    /// Frames that found no room in the socket's buffer, since it was opened.
    pub fn lost(&self) -> io::Result<u64> {
        self.rx.lost.set(self.rx.lost.get() + u64::from(take_drops(&self.rx.fd)?));
        Ok(self.rx.lost.get())
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

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
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
    /// Sends one frame, which `fill` writes and whose length it gives. False when the kernel has no
    /// room for it.
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

/// An interface that takes frames to every address, as long as this lives: the kernel counts who
/// wants that, and forgets us however we end.
pub struct Promiscuous {
    _fd: OwnedFd,
}

impl Promiscuous {
    /// Of the interface with this index of the caller's namespace.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_NET_RAW, ENODEV for another index.
    pub fn set(ifindex: u32) -> io::Result<Self> {
        let fd = socket()?;
        // SAFETY: zeros are a valid request.
        let mut request: libc::packet_mreq = unsafe { std::mem::zeroed() };
        request.mr_ifindex = ifindex.cast_signed();
        request.mr_type = libc::PACKET_MR_PROMISC as u16;
        let size = size_of_val(&request) as u32;
        let option = libc::PACKET_ADD_MEMBERSHIP;
        // SAFETY: the kernel only reads the request, which outlives the call.
        let result = unsafe {
            libc::setsockopt(fd.as_raw_fd(), libc::SOL_PACKET, option, (&raw const request).cast(), size)
        };
        Errno::result(result)?;
        Ok(Self { _fd: fd })
    }
}

fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: a plain system call; the descriptor is owned from its creation on. With protocol 0
    // nothing is received before it is bound.
    unsafe { Ok(OwnedFd::from_raw_fd(Errno::result(libc::socket(libc::AF_PACKET, kind, 0))?)) }
}

fn bind(fd: &OwnedFd, ifindex: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: zeros are a valid address, which outlives the call.
    let result = unsafe {
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol.to_be();
        address.sll_ifindex = ifindex.cast_signed();
        libc::bind(fd.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as u32)
    };
    Errno::result(result)?;
    Ok(())
}

/// A classic BPF program (`Documentation/networking/filter.rst`) that takes TCP from the server's
/// port to the clients' network.
fn filter(server: SocketAddr, clients: IpNet) -> Vec<libc::sock_filter> {
    let mut wanted: Vec<Wanted> = Vec::new();
    match (server.ip(), clients) {
        (IpAddr::V4(server), IpNet::V4(clients)) => {
            wanted.push(Wanted { load: LOAD_BYTE, at: 23, mask: 0xff, value: TCP });
            wanted.push(Wanted { load: LOAD_WORD, at: 26, mask: u32::MAX, value: server.to_bits() });
            let (mask, network) = (clients.netmask().to_bits(), clients.network().to_bits());
            wanted.push(Wanted { load: LOAD_WORD, at: 30, mask, value: network });
        }
        (IpAddr::V6(server), IpNet::V6(clients)) => {
            wanted.push(Wanted { load: LOAD_BYTE, at: 20, mask: 0xff, value: TCP });
            let words =
                |address: Ipv6Addr| (0..4).rev().map(move |word| (address.to_bits() >> (32 * word)) as u32);
            let source = words(server).zip((22..).step_by(4));
            wanted.extend(source.map(|(value, at)| Wanted { load: LOAD_WORD, at, mask: u32::MAX, value }));
            let network = words(clients.netmask()).zip(words(clients.network())).zip((38..).step_by(4));
            wanted.extend(network.map(|((mask, value), at)| Wanted { load: LOAD_WORD, at, mask, value }));
        }
        _ => unreachable!("the engine has one address family"),
    }
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    // The port is the first half word behind the header, whose length IPv4 says.
    let mut end = if server.is_ipv4() {
        vec![
            statement(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, 0, 0, 14),
            statement(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, 0, 0, 14),
        ]
    } else {
        vec![statement(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, 54)]
    };
    end.push(statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, u32::from(server.port())));
    end.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, MAX_FRAME as u32));
    // Each check goes on, or jumps to the last statement, which takes nothing.
    let checks = wanted.len();
    let check = |(which, Wanted { load, at, mask, value }): (usize, Wanted)| {
        let to_the_last = 3 * (checks - which - 1) + end.len();
        [
            statement(load, 0, 0, at),
            statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, mask),
            statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, to_the_last as u8, value),
        ]
    };
    let mut program: Vec<libc::sock_filter> = wanted.into_iter().enumerate().flat_map(check).collect();
    program.append(&mut end);
    program.push(statement(libc::BPF_RET | libc::BPF_K, 0, 0, 0));
    program
}

/// What a frame has at a place.
struct Wanted {
    load: u32,
    /// From the Ethernet header on, bytes.
    at: u32,
    mask: u32,
    value: u32,
}

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const TCP: u32 = 6;

fn attach_filter(fd: &OwnedFd, program: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel only reads the program, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of_val(&program) as u32,
        )
    };
    Errno::result(result)?;
    Ok(())
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
    // SAFETY: the kernel writes no more than `size` bytes of the structure, which outlives the
    // call.
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
