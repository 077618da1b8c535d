//! An interface whose frames are steered, and the sockets of its queues.

use std::os::fd::AsFd;
use std::sync::Arc;

use bpf::Hook;

use crate::program::Program;
use crate::ring::FRAME_SIZE;
use crate::{Error, Socket, Steer, sys};

/// Longest frame that can be received, bytes with the Ethernet header: the kernel keeps 256 bytes
/// of each buffer (`XDP_PACKET_HEADROOM`). Longer ones are lost and counted in
/// [`crate::Statistics::rx_dropped`].
pub const MAX_RECEIVED: u32 = FRAME_SIZE - 256;
/// Most receive queues of an interface: entries of the program's map (`kernel/crowd.bpf.c`).
pub const MAX_QUEUES: u32 = 64;

const ETHERNET_HEADER: u32 = 14;
/// Fewest buffers of a queue that shares them with others: a burst of a few milliseconds at a
/// million frames a second.
const MIN_RX_FRAMES: u32 = 4096;

/// Where the steering program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Native if the driver can, else generic.
    Auto,
    /// In the driver.
    ///
    /// On veth this switches TSO off on the peer, which is the system under test, and receives
    /// through a ring of 256 frames that drops what does not fit (Linux 6.18 `drivers/net/veth.c`,
    /// `VETH_RING_SIZE`).
    Native,
    /// After the kernel has made a socket buffer: works on every interface.
    ///
    /// On veth it misses what the peer's namespace sent by a redirect at tc ingress, such as the
    /// guard's RSTs: the kernel does not run generic XDP on a buffer that tc redirected
    /// (`netif_receive_generic_xdp`, v6.18), and these frames reach its own stack instead.
    Generic,
}

/// What to open.
#[derive(Debug, Clone)]
pub struct Config {
    /// Interface index, in the caller's network namespace.
    pub ifindex: u32,
    /// Its name.
    pub interface: String,
    /// Where the steering program runs.
    pub mode: Mode,
    /// Buffers to receive into, a power of two. This is the longest burst that a reader can sleep
    /// through; 65,536 take 128 MiB. The queues of an interface share them, but for 4,096 that each
    /// has at least.
    pub rx_frames: u32,
    /// Buffers to send from, of each socket that sends: a power of two, or none.
    pub tx_frames: u32,
    /// Which received frames are ours.
    pub steer: Steer,
}

/// How many queues an interface has of each kind; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// That receive: a frame comes to the one that its hash chooses, mostly.
    pub receive: u32,
    /// That send.
    pub transmit: u32,
}

/// An interface with the program that steers the crowd's frames. Each queue's are dropped until its
/// socket is opened, and counted. When this and its sockets are dropped, the kernel has the
/// interface back.
pub struct Interface {
    config: Config,
    program: Arc<Program>,
    queues: Queues,
}

impl Interface {
    /// Attaches the program.
    ///
    /// # Errors
    ///
    /// See [`Error`]; nothing is left behind.
    pub fn attach(config: &Config) -> Result<Self, Error> {
        check(config)?;
        // Before the program: without AF_XDP its map of sockets is what could not be made.
        sys::socket().map_err(Error::Open)?;
        let Config { interface, ifindex, .. } = config;
        let program = Arc::new(Program::attach(config.steer, (interface, *ifindex), hooks(config.mode))?);
        // After it: some drivers set their queues up anew for a program.
        let (receive, transmit) =
            sys::queues(interface).map_err(|error| Error::Queues { interface: interface.clone(), error })?;
        if receive > MAX_QUEUES {
            return Err(Error::TooManyQueues { interface: interface.clone(), queues: receive });
        }
        Ok(Self { config: config.clone(), program, queues: Queues { receive, transmit } })
    }

    /// Its queues.
    pub fn queues(&self) -> Queues {
        self.queues
    }

    /// Opens the socket of a queue, from 0, with its share of the buffers to receive into, and
    /// buffers to send from if it `sends`.
    ///
    /// # Errors
    ///
    /// See [`Error`]; nothing is left behind.
    pub fn open(&self, queue: u32, sends: bool) -> Result<Socket, Error> {
        let Config { rx_frames, tx_frames, .. } = self.config;
        self.open_with(queue, share(rx_frames, self.queues.receive), if sends { tx_frames } else { 0 })
    }

    /// The same with so many buffers.
    pub(crate) fn open_with(&self, queue: u32, rx_frames: u32, tx_frames: u32) -> Result<Socket, Error> {
        let config = Config { rx_frames, tx_frames, ..self.config.clone() };
        let socket = Socket::bind(&config, queue, Arc::clone(&self.program))?;
        self.program.connect(queue, socket.as_fd())?;
        Ok(socket)
    }
}

/// Buffers of one of so many queues: a power of two, as rings want it.
fn share(frames: u32, queues: u32) -> u32 {
    let share = (frames / queues.next_power_of_two()).max(MIN_RX_FRAMES);
    share.min(frames)
}

fn check(config: &Config) -> Result<(), Error> {
    let is_size = |frames: u32| frames.is_power_of_two() && (64..=1 << 20).contains(&frames);
    if !is_size(config.rx_frames) {
        return Err(Error::RingSize { ring: "rx", frames: config.rx_frames });
    }
    if config.tx_frames != 0 && !is_size(config.tx_frames) {
        return Err(Error::RingSize { ring: "tx", frames: config.tx_frames });
    }
    config.steer.to_match()?;
    let interface = config.interface.clone();
    match sys::mtu(&interface) {
        Ok(mtu) if mtu + ETHERNET_HEADER > MAX_RECEIVED => Err(Error::Mtu { interface, mtu }),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Interface { interface, error }),
    }
}

fn hooks(mode: Mode) -> &'static [Hook] {
    match mode {
        Mode::Native => &[Hook::XdpNative],
        Mode::Generic => &[Hook::XdpGeneric],
        Mode::Auto => &[Hook::XdpNative, Hook::XdpGeneric],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_share_the_buffers_down_to_a_least() {
        assert_eq!(share(65_536, 1), 65_536);
        assert_eq!(share(65_536, 2), 32_768);
        assert_eq!(share(65_536, 3), 16_384, "a power of two");
        assert_eq!(share(65_536, 64), MIN_RX_FRAMES);
        assert_eq!(share(64, 4), 64, "who asks for few gets no more");
    }
}
