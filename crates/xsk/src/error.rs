//! What can go wrong when a socket is opened.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::interface::{MAX_QUEUES, MAX_RECEIVED};
use crate::program::is_unsupported;

/// A socket could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The prefix of the clients cannot hold a peer of the server.
    #[error("steer frames from {server} to {address}/{prefix}: {reason}")]
    Steer {
        /// The server asked for.
        server: SocketAddr,
        /// The clients' network address.
        address: IpAddr,
        /// Its prefix length, bits.
        prefix: u8,
        /// What is wrong.
        reason: &'static str,
    },
    /// A ring needs a power of two.
    #[error("make the {ring} ring of {frames} frames: the number must be a power of two, 64 to 2^20")]
    RingSize {
        /// `rx` or `tx`, which may be none.
        ring: &'static str,
        /// The size asked for.
        frames: u32,
    },
    /// The kernel refused a program, or the caller may not load any.
    #[error("load kernel/crowd.bpf.c: {0}; this needs CAP_BPF and CAP_NET_ADMIN, and a kernel with BPF")]
    Load(libbpf_rs::Error),
    /// No AF_XDP here, or not for the caller.
    #[error("open an AF_XDP socket: {0}; this needs CAP_NET_RAW and a kernel with CONFIG_XDP_SOCKETS")]
    Open(io::Error),
    /// The memory for the frames could not be had or locked.
    #[error(
        "register {bytes} bytes for frames: {error}; raise the locked memory limit (`ulimit -l`), run with CAP_IPC_LOCK, or ask \
         for fewer frames"
    )]
    Memory {
        /// Size asked for, bytes.
        bytes: usize,
        /// What the kernel said.
        error: io::Error,
    },
    /// A ring could not be made or mapped.
    #[error("make the AF_XDP rings: {0}")]
    Rings(io::Error),
    /// There is no such interface in this network namespace.
    #[error(
        "read the MTU of interface {interface}: {error}; `ip link` lists the interfaces of this network namespace"
    )]
    Interface {
        /// Name asked for.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// How many queues there are is not to be had.
    #[error("ask for the queues of interface {interface}: {error}; is it still there? `ip link` lists them")]
    Queues {
        /// Interface name.
        interface: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// Replies on some of its queues would reach nobody.
    #[error(
        "receive from interface {interface}: it has {queues} receive queues, and {MAX_QUEUES} is the most; lower it: ethtool -L {interface} \
         combined {MAX_QUEUES}"
    )]
    TooManyQueues {
        /// Interface name.
        interface: String,
        /// How many it has.
        queues: u32,
    },
    /// Full-size frames would not fit into a buffer and be lost.
    #[error(
        "receive from interface {interface}: its MTU {mtu} is too large, frames of more than {MAX_RECEIVED} bytes would be lost; \
         lower it: ip link set {interface} mtu 1500"
    )]
    Mtu {
        /// Interface name.
        interface: String,
        /// Its MTU, bytes.
        mtu: u32,
    },
    /// Another socket has the queue, and kept it.
    #[error(
        "bind to queue {queue} of interface {interface}: device or resource busy; another AF_XDP socket has it"
    )]
    Busy {
        /// Interface name.
        interface: String,
        /// Of its queues, from 0.
        queue: u32,
    },
    /// The interface has no such queue, is gone, or its driver cannot.
    #[error(
        "bind to queue {queue} of interface {interface}: {error}; is it up, and has it receive and transmit queues?"
    )]
    Bind {
        /// Interface name.
        interface: String,
        /// Of its queues, from 0.
        queue: u32,
        /// What the kernel said.
        error: io::Error,
    },
    /// The steering program could not be attached; another program may be.
    #[error(
        "attach steer to interface {interface}: {error}; if it is busy, another crowd or XDP program has it (`ip link show {interface}`): one crowd for each interface; if the \
         driver has no XDP, use the generic mode, or no XDP at all"
    )]
    Attach {
        /// Interface name.
        interface: String,
        /// What the kernel said.
        error: bpf::AttachError,
    },
    /// The program's maps could not be used.
    #[error("connect the socket to its program: {0}")]
    Map(libbpf_rs::Error),
}

impl Error {
    /// Whether AF_XDP is not to be had here, in this kernel or on this interface; and not in use by
    /// another, not forbidden, and not wrongly asked for.
    pub fn is_lack(&self) -> bool {
        let is_any =
            |error: &io::Error, of: &[i32]| error.raw_os_error().is_some_and(|errno| of.contains(&errno));
        match self {
            Self::Open(error) => is_any(error, &[libc::EAFNOSUPPORT, libc::EPROTONOSUPPORT]),
            Self::Mtu { .. } => true,
            Self::Attach { error, .. } => is_unsupported(&error.error),
            Self::Bind { error, .. } => is_any(error, &[libc::EOPNOTSUPP, libc::EINVAL, libc::ENXIO]),
            _ => false,
        }
    }
}
