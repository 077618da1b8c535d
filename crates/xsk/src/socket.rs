//! One AF_XDP socket with its memory and its program.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bpf::Hook;

use crate::program::Program;
use crate::ring::{Consumer, FRAME_SIZE, Frames, Producer};
use crate::sys::{self, Mapping, Offsets, UmemRegistration};
use crate::{Error, Rx, Statistics, Steer, Tx};

/// Longest frame that can be received, bytes with the Ethernet header: the kernel keeps 256 bytes of each buffer
/// (`XDP_PACKET_HEADROOM`). Longer ones are lost and counted in [`Statistics::rx_dropped`].
pub const MAX_RECEIVED: u32 = FRAME_SIZE - 256;

const ETHERNET_HEADER: u32 = 14;

/// How long a closed socket may keep the queue: the kernel frees its memory after a grace period, in a work queue.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Where the steering program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Native if the driver can, else generic.
    Auto,
    /// In the driver.
    ///
    /// On veth this switches TSO off on the peer, which is the system under test, and receives through a ring of 256
    /// frames that drops what does not fit (Linux 6.18 `drivers/net/veth.c`, `VETH_RING_SIZE`).
    Native,
    /// After the kernel has made a socket buffer: works on every interface.
    ///
    /// On veth it misses what the peer's namespace sent by a redirect at tc ingress, such as the guard's RSTs: the kernel
    /// does not run generic XDP on a buffer that tc redirected (`netif_receive_generic_xdp`, v6.18), and these frames
    /// reach its own stack instead.
    Generic,
}

/// What socket to open.
#[derive(Debug, Clone)]
pub struct Config {
    /// Interface index, in the caller's network namespace.
    pub ifindex: u32,
    /// Its name.
    pub interface: String,
    /// Where the steering program runs.
    pub mode: Mode,
    /// Buffers to receive into, a power of two. This is the longest burst that a reader can sleep through; 65,536 take 128 MiB.
    pub rx_frames: u32,
    /// Buffers to send from, a power of two.
    pub tx_frames: u32,
    /// Which received frames are ours.
    pub steer: Steer,
}

/// An AF_XDP socket on queue 0 of an interface. Dropping it gives the interface back to the kernel.
///
/// The halves are fields so that frames can be sent from within the handling of a received one:
/// `let Socket { rx, tx, .. } = &mut socket;`.
pub struct Socket {
    /// Receives.
    pub rx: Rx,
    /// Sends.
    pub tx: Tx,
    program: Program,
    fd: Arc<OwnedFd>,
}

impl Socket {
    /// Opens a socket and steers frames to it.
    ///
    /// # Errors
    ///
    /// See [`Error`]; nothing is left behind.
    pub fn open(config: &Config) -> Result<Self, Error> {
        check_config(config)?;
        let fd = sys::socket().map_err(Error::Open)?;
        let (rx_frames, tx_frames) = register_memory(fd.as_fd(), config)?;
        let offsets = make_rings(fd.as_fd(), config).map_err(Error::Rings)?;
        let fd = Arc::new(fd);
        let mut rx = map_rx(&fd, &offsets, config, rx_frames).map_err(Error::Rings)?;
        let tx = map_tx(&fd, &offsets, config, tx_frames).map_err(Error::Rings)?;
        rx.fill_all();
        // The program goes first: some drivers set their queues up anew for it, and its mode decides how to bind.
        let program = Program::attach(config.steer, (&config.interface, config.ifindex), hooks(config))?;
        bind(fd.as_fd(), config, program.mode())?;
        sys::raise_transmit_budget(fd.as_fd(), config.tx_frames);
        program.connect(fd.as_fd())?;
        Ok(Self { rx, tx, program, fd })
    }

    /// Counters since the socket was opened.
    ///
    /// # Errors
    ///
    /// What getsockopt(2) and bpf(2) say.
    pub fn statistics(&self) -> io::Result<Statistics> {
        let socket: sys::Counters = sys::option(self.fd.as_fd(), libc::XDP_STATISTICS)?;
        let program = self.program.counters().map_err(io::Error::other)?;
        Ok(Statistics {
            steered: program.steered,
            passed: program.passed,
            unclaimed: program.unclaimed,
            rx_dropped: socket.rx_dropped,
            rx_ring_full: socket.rx_ring_full,
            rx_no_buffer: socket.rx_fill_ring_empty_descs,
            rx_invalid: socket.rx_invalid_descs,
            tx_invalid: socket.tx_invalid_descs,
            tx_ring_empty: socket.tx_ring_empty_descs,
        })
    }

    /// Where the steering program runs: never [`Mode::Auto`].
    pub fn mode(&self) -> Mode {
        self.program.mode()
    }

    /// The socket's descriptor, to wait for it together with others.
    pub fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn check_config(config: &Config) -> Result<(), Error> {
    for (ring, frames) in [("rx", config.rx_frames), ("tx", config.tx_frames)] {
        if !frames.is_power_of_two() || !(64..=1 << 20).contains(&frames) {
            return Err(Error::RingSize { ring, frames });
        }
    }
    config.steer.to_match()?;
    let interface = config.interface.clone();
    match sys::mtu(&interface) {
        Ok(mtu) if mtu + ETHERNET_HEADER > MAX_RECEIVED => Err(Error::Mtu { interface, mtu }),
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Interface { interface, error }),
    }
}

fn register_memory(fd: BorrowedFd<'_>, config: &Config) -> Result<(Frames, Frames), Error> {
    let bytes = (config.rx_frames as usize + config.tx_frames as usize) * FRAME_SIZE as usize;
    let error = |error| Error::Memory { bytes, error };
    let memory = Mapping::anonymous(bytes).map_err(error)?;
    let registration = UmemRegistration {
        addr: memory.start().as_ptr().expose_provenance() as u64,
        len: bytes as u64,
        chunk_size: FRAME_SIZE,
        ..UmemRegistration::default()
    };
    sys::set_option(fd, libc::XDP_UMEM_REG, &registration).map_err(error)?;
    Ok(Frames::split(memory, config.rx_frames))
}

/// Makes all four rings, each with an entry for every frame that can be in it.
///
/// Those that we fill have twice that. The kernel hands out a frame before it stores how far it has read the ring that it took it
/// from: in `xsk_flush()` the RX ring's index is stored before the fill ring's (Linux 6.18 `net/xdp/xsk.c`), and a frame's
/// completion may come from another CPU before the TX ring's index does. By the stored index a ring without slack would be
/// full when we give the frame back.
fn make_rings(fd: BorrowedFd<'_>, config: &Config) -> io::Result<Offsets> {
    sys::set_option(fd, libc::XDP_RX_RING, &config.rx_frames)?;
    sys::set_option(fd, libc::XDP_UMEM_FILL_RING, &(2 * config.rx_frames))?;
    sys::set_option(fd, libc::XDP_TX_RING, &(2 * config.tx_frames))?;
    sys::set_option(fd, libc::XDP_UMEM_COMPLETION_RING, &config.tx_frames)?;
    sys::option(fd, libc::XDP_MMAP_OFFSETS)
}

fn map_rx(fd: &Arc<OwnedFd>, offsets: &Offsets, config: &Config, frames: Frames) -> io::Result<Rx> {
    // SAFETY: offsets are the kernel's and sizes those of `make_rings`, for rings whose entries are descriptors and addresses, and each is
    // mapped once per socket.
    let (ring, fill) = unsafe {
        (
            Consumer::map(fd.as_fd(), libc::XDP_PGOFF_RX_RING, offsets.rx, config.rx_frames)?,
            Producer::map(
                fd.as_fd(),
                libc::XDP_UMEM_PGOFF_FILL_RING.cast_signed(),
                offsets.fill,
                2 * config.rx_frames,
            )?,
        )
    };
    Ok(Rx { ring, fill, frames, fd: Arc::clone(fd) })
}

fn map_tx(fd: &Arc<OwnedFd>, offsets: &Offsets, config: &Config, frames: Frames) -> io::Result<Tx> {
    // SAFETY: as in `map_rx`.
    let (ring, completion) = unsafe {
        (
            Producer::map(fd.as_fd(), libc::XDP_PGOFF_TX_RING, offsets.tx, 2 * config.tx_frames)?,
            Consumer::map(
                fd.as_fd(),
                libc::XDP_UMEM_PGOFF_COMPLETION_RING.cast_signed(),
                offsets.completion,
                config.tx_frames,
            )?,
        )
    };
    let free = frames.addresses().collect();
    Ok(Tx { ring, completion, frames, free, fd: Arc::clone(fd) })
}

fn bind(fd: BorrowedFd<'_>, config: &Config, mode: Mode) -> Result<(), Error> {
    let interface = config.interface.clone();
    match bind_patiently(fd, config.ifindex, bind_flags(mode)) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(Error::Busy { interface }),
        Err(error) => Err(Error::Bind { interface, error }),
    }
}

fn bind_patiently(fd: BorrowedFd<'_>, ifindex: u32, flags: u16) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match sys::bind(fd, ifindex, flags) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < BUSY_PATIENCE => {
                sleep(Duration::from_millis(1));
            }
            result => return result,
        }
    }
}

/// Without a flag the kernel binds without copies where the driver can.
fn bind_flags(mode: Mode) -> u16 {
    match mode {
        Mode::Generic => libc::XDP_COPY,
        Mode::Auto | Mode::Native => 0,
    }
}

fn hooks(config: &Config) -> &'static [Hook] {
    match config.mode {
        Mode::Native => &[Hook::XdpNative],
        Mode::Generic => &[Hook::XdpGeneric],
        Mode::Auto => &[Hook::XdpNative, Hook::XdpGeneric],
    }
}
