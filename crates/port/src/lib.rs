//! Frames in and out of an interface, by AF_XDP or else by a packet socket, and the clock of the
//! thread that moves them.
//!
//! [`Port::open`] gives the crowd's generator the frames of the crowd, and a bridge every frame, as
//! [`xsk::Steer`] says. What it is not: a parser of frames; it joins and splits none.

mod clock;
mod error;
mod packet;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use xsk::Steer;

pub use clock::{Clock, thread_cpu_time};
pub use error::{Error, Result};
pub use packet::Promiscuous;

/// How frames are received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// By AF_XDP, natively if the driver can; if there is none here, by a packet socket.
    Auto,
    /// By AF_XDP in the driver; see [`xsk::Mode::Native`].
    Native,
    /// By AF_XDP after the kernel has made a socket buffer; see [`xsk::Mode::Generic`].
    Generic,
    /// By a packet socket (packet(7)), which every kernel since 4.20 has as it is wanted here: a
    /// system call for each frame. The kernel sees the frames as well.
    Packet,
}

/// An interface's frames, or one worker's part of them.
pub struct Port(PortOf);

enum PortOf {
    Xdp(Queues),
    Packet {
        socket: packet::Socket,
        /// Why it is not AF_XDP, where that was tried.
        instead: Option<String>,
    },
}

/// The sockets of some of an interface's queues.
struct Queues {
    /// The first is the one that sends.
    sockets: Vec<xsk::Socket>,
    /// Which is looked at first: each in turn, so that a busy queue does not keep the others
    /// waiting.
    next: usize,
    /// Of the counts of the interface as a whole, this is who has them.
    has_program: bool,
}

/// The receiving half of a port.
pub struct Rx<'a>(RxOf<'a>);

enum RxOf<'a> {
    Xdp { first: &'a mut xsk::Rx, others: &'a mut [xsk::Socket], next: &'a mut usize },
    Packet(&'a mut packet::Rx),
}

/// The sending half.
pub struct Tx<'a>(TxOf<'a>);

enum TxOf<'a> {
    Xdp(&'a mut xsk::Tx),
    Packet(&'a mut packet::Tx),
}

impl Port {
    /// Opens one for each of so many workers as the mode says, whatever `rings` says of that: by
    /// AF_XDP each has some of the queues, and frames for others among what it receives; by packet
    /// sockets each has all frames.
    ///
    /// # Errors
    ///
    /// Those of [`xsk::Interface`]; more workers than queues; of a packet socket, no CAP_NET_RAW,
    /// and before it why there is no AF_XDP where that was tried.
    pub fn open(mode: Mode, rings: &xsk::Config, workers: u32) -> Result<Vec<Self>> {
        let by = |mode| Self::xdp(&xsk::Config { mode, ..rings.clone() }, workers);
        match mode {
            Mode::Native => by(xsk::Mode::Native),
            Mode::Generic => by(xsk::Mode::Generic),
            Mode::Packet => Self::packet(rings, workers, None),
            Mode::Auto => by(xsk::Mode::Auto).or_else(|error| match error {
                Error::Xdp(error) if error.is_lack() => {
                    Self::packet(rings, workers, Some(&error.to_string()))
                }
                error => Err(error),
            }),
        }
    }

    fn xdp(rings: &xsk::Config, workers: u32) -> Result<Vec<Self>> {
        let interface = xsk::Interface::attach(rings)?;
        let queues = interface.queues();
        ensure_enough(queues, workers, &rings.interface)?;
        let open = |worker: u32| -> Result<Self, xsk::Error> {
            let own = (worker..queues.receive).step_by(workers as usize);
            let sockets =
                own.map(|queue| interface.open(queue, queue == worker)).collect::<Result<_, _>>()?;
            Ok(Self(PortOf::Xdp(Queues { sockets, next: 0, has_program: worker == 0 })))
        };
        Ok((0..workers).map(open).collect::<Result<_, _>>()?)
    }

    fn packet(rings: &xsk::Config, workers: u32, instead: Option<&str>) -> Result<Vec<Self>> {
        let filter = packet_filter(rings.steer)?;
        let open = || {
            let socket = packet::Socket::open(rings.ifindex, filter);
            let socket = socket.map_err(|error| {
                let tried = instead.map(|error| format!("{error}; ")).unwrap_or_default();
                Error::Packet { tried, interface: rings.interface.clone(), error }
            })?;
            Ok(Self(PortOf::Packet { socket, instead: instead.map(str::to_owned) }))
        };
        (0..workers).map(|_| open()).collect()
    }

    /// Both halves at once, so that frames can be sent while one is read.
    pub fn split(&mut self) -> (Rx<'_>, Tx<'_>) {
        match &mut self.0 {
            PortOf::Xdp(Queues { sockets, next, .. }) => {
                let (first, others) = sockets.split_first_mut().expect("everybody has a queue");
                let xsk::Socket { rx, tx, .. } = first;
                (Rx(RxOf::Xdp { first: rx, others, next }), Tx(TxOf::Xdp(tx)))
            }
            PortOf::Packet { socket: packet::Socket { rx, tx }, .. } => {
                (Rx(RxOf::Packet(rx)), Tx(TxOf::Packet(tx)))
            }
        }
    }

    /// Waits until a frame arrives, `timeout` passes or a signal comes; by AF_XDP also until the
    /// other descriptor is readable.
    pub fn wait(&mut self, other: Option<BorrowedFd<'_>>, timeout: Duration) -> io::Result<()> {
        match &mut self.0 {
            PortOf::Xdp(Queues { sockets, .. }) => {
                xsk::wait_for_any(sockets.iter().map(|socket| &socket.rx), other, timeout)
            }
            PortOf::Packet { socket, .. } => socket.rx.wait(timeout),
        }
    }

    /// Its descriptors, readable when a frame is there: for [`xsk::wait_readable`].
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (sockets, packet) = match &self.0 {
            PortOf::Xdp(Queues { sockets, .. }) => (sockets.as_slice(), None),
            PortOf::Packet { socket, .. } => (&[][..], Some(socket.rx.fd())),
        };
        sockets.iter().map(AsFd::as_fd).chain(packet)
    }

    /// Whether a frame for another worker comes to that one, too: then nobody needs to hand it
    /// over.
    pub fn has_all_frames(&self) -> bool {
        matches!(self.0, PortOf::Packet { .. })
    }

    /// Frames for us that reached the interface and were not received.
    pub fn lost(&self) -> io::Result<u64> {
        match &self.0 {
            PortOf::Xdp(Queues { sockets, has_program, .. }) => {
                let mut lost = 0;
                for (queue, socket) in sockets.iter().enumerate() {
                    let statistics = socket.statistics()?;
                    let is_for_all = *has_program && queue == 0;
                    lost += if is_for_all { statistics.lost() } else { statistics.dropped() };
                }
                Ok(lost)
            }
            PortOf::Packet { socket, .. } => socket.lost(),
        }
    }

    /// How frames are received, as results name it.
    pub fn name(&self) -> &'static str {
        match &self.0 {
            PortOf::Xdp(Queues { sockets, .. }) if sockets[0].mode() == xsk::Mode::Native => "xdp-native",
            PortOf::Xdp(_) => "xdp-skb",
            PortOf::Packet { .. } => "af-packet",
        }
    }

    /// Why it is not AF_XDP, where that was tried.
    pub fn instead(&self) -> Option<&str> {
        match &self.0 {
            PortOf::Xdp(_) => None,
            PortOf::Packet { instead, .. } => instead.as_deref(),
        }
    }
}

/// What a packet socket is to receive: of the crowd only what its kernel will not answer as well.
fn packet_filter(steer: Steer) -> Result<Option<(SocketAddr, IpNet)>> {
    if steer == Steer::EVERY_FRAME {
        return Ok(None);
    }
    let Steer { server, clients: (address, prefix) } = steer;
    let clients = IpNet::new(address, prefix)?.trunc();
    let own = getifaddrs().map_err(Error::Addresses)?.filter_map(|of| of.address).find_map(|address| {
        let ip = address.as_sockaddr_in().map(|of| of.ip().into());
        let ip = ip.or_else(|| address.as_sockaddr_in6().map(|of| of.ip().into()));
        ip.filter(|ip: &IpAddr| clients.contains(ip))
    });
    if let Some(own) = own {
        return Err(Error::Own { own, clients });
    }
    Ok(Some((server, clients)))
}

/// Each worker receives by a queue of its own, and sends by it.
fn ensure_enough(queues: xsk::Queues, workers: u32, interface: &str) -> Result<()> {
    let most = queues.receive.min(queues.transmit);
    let interface = interface.to_owned();
    if workers <= most { Ok(()) } else { Err(Error::Workers { workers, interface, queues, most }) }
}

impl Rx<'_> {
    /// See [`xsk::Rx::receive`]; up to `max` from all queues together.
    pub fn receive(&mut self, max: u32, mut each: impl FnMut(&[u8])) -> u32 {
        match &mut self.0 {
            RxOf::Xdp { first, others, next } => {
                let queues = others.len() + 1;
                let mut count = 0;
                for queue in (**next..queues).chain(0..**next) {
                    let rx = match queue.checked_sub(1) {
                        Some(other) => &mut others[other].rx,
                        None => &mut **first,
                    };
                    count += rx.receive(max - count, &mut each);
                }
                **next = (**next + 1) % queues;
                count
            }
            RxOf::Packet(rx) => rx.receive(max, each),
        }
    }
}

impl Tx<'_> {
    /// How many more frames can be queued now.
    pub fn transmit_room(&mut self) -> u32 {
        match &mut self.0 {
            TxOf::Xdp(tx) => tx.transmit_room(),
            TxOf::Packet(_) => u32::MAX,
        }
    }

    /// See [`xsk::Tx::transmit`].
    pub fn transmit(&mut self, fill: impl FnOnce(&mut [u8]) -> usize) -> bool {
        match &mut self.0 {
            TxOf::Xdp(tx) => tx.transmit(fill),
            TxOf::Packet(tx) => tx.transmit(fill),
        }
    }

    /// See [`xsk::Tx::flush`].
    pub fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            TxOf::Xdp(tx) => tx.flush().map(drop),
            TxOf::Packet(tx) => tx.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_workers_than_queues_are_refused_in_one_line() {
        let error = |receive, transmit, workers| {
            let result = ensure_enough(xsk::Queues { receive, transmit }, workers, "eth0");
            result.err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(error(4, 4, 4), "");
        assert_eq!(error(1, 1, 1), "");
        for (text, begins) in [
            (error(4, 4, 5), "eth0 has 4 receive queues, so at most 4 workers; take fewer"),
            (error(1, 1, 2), "eth0 has 1 receive queue, so at most 1 worker; take fewer"),
            (error(4, 2, 3), "eth0 has 4 receive and 2 transmit queues, so at most 2 workers;"),
        ] {
            assert!(text.starts_with(begins) && !text.contains('\n'), "{text}");
        }
    }
}
