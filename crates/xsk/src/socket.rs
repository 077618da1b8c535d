//! One AF_XDP socket with its memory, and a hold on its program.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::interface::{Config, Interface, Mode};
use crate::program::Program;
use crate::ring::{Consumer, FRAME_SIZE, Frames, Producer};
use crate::sys::{self, Mapping, Offsets, UmemRegistration};
use crate::{Error, Rx, Statistics, Tx};

/// How long a closed socket may keep the queue: the kernel frees its memory after a grace period,
/// in a work queue.
const BUSY_PATIENCE: Duration = Duration::from_secs(1);

/// Entries of the rings of a socket that sends nothing: the kernel wants a completion ring of every
/// socket.
const LEAST_ENTRIES: u32 = 64;

/// An AF_XDP socket on a queue of an interface. Dropping the last of an interface gives it back to
/// the kernel.
///
/// The halves are fields so that frames can be sent from within the handling of a received one:
/// `let Socket { rx, tx, .. } = &mut socket;`.
pub struct Socket {
    /// Receives.
    pub rx: Rx,
    /// Sends.
    pub tx: Tx,
    program: Arc<Program>,
    fd: Arc<OwnedFd>,
}

impl Socket {
    /// Opens a socket on queue 0 with all buffers, and steers that queue's frames to it: for an
    /// interface with one queue. What comes to another is dropped.
    ///
    /// # Errors
    ///
    /// See [`Error`]; nothing is left behind.
    pub fn open(config: &Config) -> Result<Self, Error> {
        Interface::attach(config)?.open_with(0, config.rx_frames, config.tx_frames)
    }

    /// A socket that is bound to a queue and has its buffers there. The program, whose mode decides
    /// how to bind, does not know it yet.
    pub(crate) fn bind(config: &Config, queue: u32, program: Arc<Program>) -> Result<Self, Error> {
        let fd = sys::socket().map_err(Error::Open)?;
        let (rx_frames, tx_frames) = register_memory(fd.as_fd(), config)?;
        let offsets = make_rings(fd.as_fd(), config).map_err(Error::Rings)?;
        let fd = Arc::new(fd);
        let mut rx = map_rx(&fd, &offsets, config, rx_frames).map_err(Error::Rings)?;
        let tx = map_tx(&fd, &offsets, config, tx_frames).map_err(Error::Rings)?;
        rx.fill_all();
        bind(fd.as_fd(), config, queue, program.mode())?;
        sys::raise_transmit_budget(fd.as_fd(), config.tx_frames);
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
/// Those that we fill have twice that. The kernel hands out a frame before it stores how far it has
/// read the ring that it took it from: in `xsk_flush()` the RX ring's index is stored before the
/// fill ring's (Linux 6.18 `net/xdp/xsk.c`), and a frame's completion may come from another CPU
/// before the TX ring's index does. By the stored index a ring without slack would be full when we
/// give the frame back.
fn make_rings(fd: BorrowedFd<'_>, config: &Config) -> io::Result<Offsets> {
    sys::set_option(fd, libc::XDP_RX_RING, &config.rx_frames)?;
    sys::set_option(fd, libc::XDP_UMEM_FILL_RING, &(2 * config.rx_frames))?;
    sys::set_option(fd, libc::XDP_TX_RING, &(2 * tx_entries(config)))?;
    sys::set_option(fd, libc::XDP_UMEM_COMPLETION_RING, &tx_entries(config))?;
    sys::option(fd, libc::XDP_MMAP_OFFSETS)
}

fn tx_entries(config: &Config) -> u32 {
    config.tx_frames.max(LEAST_ENTRIES)
}

fn map_rx(fd: &Arc<OwnedFd>, offsets: &Offsets, config: &Config, frames: Frames) -> io::Result<Rx> {
    // SAFETY: offsets are the kernel's and sizes those of `make_rings`, for rings whose entries are
    // descriptors and addresses, and each is mapped once per socket.
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
            Producer::map(fd.as_fd(), libc::XDP_PGOFF_TX_RING, offsets.tx, 2 * tx_entries(config))?,
            Consumer::map(
                fd.as_fd(),
                libc::XDP_UMEM_PGOFF_COMPLETION_RING.cast_signed(),
                offsets.completion,
                tx_entries(config),
            )?,
        )
    };
    let free = frames.addresses().collect();
    Ok(Tx { ring, completion, frames, free, fd: Arc::clone(fd) })
}

fn bind(fd: BorrowedFd<'_>, config: &Config, queue: u32, mode: Mode) -> Result<(), Error> {
    let interface = config.interface.clone();
    match bind_patiently(fd, (config.ifindex, queue), bind_flags(mode)) {
        Ok(()) => Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => Err(Error::Busy { interface, queue }),
        Err(error) => Err(Error::Bind { interface, queue, error }),
    }
}

fn bind_patiently(fd: BorrowedFd<'_>, (ifindex, queue): (u32, u32), flags: u16) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match sys::bind(fd, ifindex, queue, flags) {
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
