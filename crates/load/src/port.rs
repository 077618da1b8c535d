//! Frames in and out of an interface: by AF_XDP, or where that is not to be had by a packet socket.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;

use crate::packet;

/// How frames are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By AF_XDP, natively if the driver can; if there is none here, by a packet socket.
    Auto,
    /// By AF_XDP in the driver; see [`xsk::Mode::Native`].
    Native,
    /// By AF_XDP after the kernel has made a socket buffer; see [`xsk::Mode::Generic`].
    Generic,
    /// By a packet socket (packet(7)), which every kernel since 4.20 has as it is wanted here: a system call for each frame. The kernel sees the frames as well.
    Packet,
}

/// An interface's frames.
pub enum Port {
    Xdp(Box<xsk::Socket>),
    Packet {
        socket: packet::Socket,
        /// Why it is not AF_XDP, where that was tried.
        instead: Option<xsk::Error>,
    },
}

/// Its receiving half.
pub enum Rx<'a> {
    Xdp(&'a mut xsk::Rx),
    Packet(&'a mut packet::Rx),
}

/// Its sending half.
pub enum Tx<'a> {
    Xdp(&'a mut xsk::Tx),
    Packet(&'a mut packet::Tx),
}

impl Port {
    /// Opens it as the mode says, whatever `rings` says of that.
    ///
    /// # Errors
    ///
    /// Those of [`xsk::Socket::open`]; of a packet socket, no CAP_NET_RAW, and before it why there is no AF_XDP where that was tried.
    pub fn open(mode: Mode, rings: &xsk::Config, clients: IpNet) -> Result<Self> {
        let by = |mode| xsk::Socket::open(&xsk::Config { mode, ..rings.clone() });
        let xdp = match mode {
            Mode::Auto => by(xsk::Mode::Auto),
            Mode::Native => by(xsk::Mode::Native),
            Mode::Generic => by(xsk::Mode::Generic),
            Mode::Packet => return Self::packet(rings, clients, None),
        };
        match xdp {
            Ok(socket) => Ok(Self::Xdp(Box::new(socket))),
            Err(error) if mode == Mode::Auto && error.is_lack() => Self::packet(rings, clients, Some(error)),
            Err(error) => Err(error.into()),
        }
    }

    fn packet(rings: &xsk::Config, clients: IpNet, instead: Option<xsk::Error>) -> Result<Self> {
        let own = getifaddrs()?.filter_map(|of| of.address).find_map(|address| {
            let ip = address.as_sockaddr_in().map(|of| of.ip().into());
            let ip = ip.or_else(|| address.as_sockaddr_in6().map(|of| of.ip().into()));
            ip.filter(|ip: &IpAddr| clients.contains(ip))
        });
        if let Some(own) = own {
            bail!(
                "{own} is among the clients {clients} and this host's own: its kernel sees what a packet socket receives, and would reset \
                 the replies; name a network that it is not in"
            );
        }
        let socket = packet::Socket::open(rings.ifindex, rings.steer.server, clients).with_context(|| {
            let tried = instead.as_ref().map(|error| format!("{error}; ")).unwrap_or_default();
            format!(
                "{tried}open a packet socket on {}, which needs CAP_NET_RAW and Linux 4.20",
                rings.interface
            )
        })?;
        Ok(Self::Packet { socket, instead })
    }

    /// Both halves at once, so that frames can be sent while one is read.
    pub fn split(&mut self) -> (Rx<'_>, Tx<'_>) {
        match self {
            Self::Xdp(socket) => {
                let xsk::Socket { rx, tx, .. } = &mut **socket;
                (Rx::Xdp(rx), Tx::Xdp(tx))
            }
            Self::Packet { socket: packet::Socket { rx, tx }, .. } => (Rx::Packet(rx), Tx::Packet(tx)),
        }
    }

    /// Frames for us that reached the interface and were not received.
    pub fn lost(&self) -> io::Result<u64> {
        match self {
            Self::Xdp(socket) => Ok(socket.statistics()?.lost()),
            Self::Packet { socket, .. } => socket.lost(),
        }
    }

    /// How frames are received, as results name it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Xdp(socket) if socket.mode() == xsk::Mode::Native => "xdp-native",
            Self::Xdp(_) => "xdp-skb",
            Self::Packet { .. } => "af-packet",
        }
    }

    /// Why it is not AF_XDP, where that was tried.
    pub fn instead(&self) -> Option<&xsk::Error> {
        match self {
            Self::Xdp(_) => None,
            Self::Packet { instead, .. } => instead.as_ref(),
        }
    }
}

impl Rx<'_> {
    /// See [`xsk::Rx::receive`].
    pub fn receive(&mut self, max: u32, each: impl FnMut(&[u8])) -> u32 {
        match self {
            Self::Xdp(rx) => rx.receive(max, each),
            Self::Packet(rx) => rx.receive(max, each),
        }
    }

    /// See [`xsk::Rx::wait`].
    pub fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Xdp(rx) => rx.wait(timeout),
            Self::Packet(rx) => rx.wait(timeout),
        }
    }
}

impl Tx<'_> {
    /// How many more frames can be queued now.
    pub fn transmit_room(&mut self) -> u32 {
        match self {
            Self::Xdp(tx) => tx.transmit_room(),
            Self::Packet(_) => u32::MAX,
        }
    }

    /// See [`xsk::Tx::transmit`].
    pub fn transmit(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        match self {
            Self::Xdp(tx) => tx.transmit(fill),
            Self::Packet(tx) => tx.transmit(fill),
        }
    }

    /// See [`xsk::Tx::flush`].
    pub fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Xdp(tx) => tx.flush().map(drop),
            Self::Packet(tx) => tx.flush(),
        }
    }
}
