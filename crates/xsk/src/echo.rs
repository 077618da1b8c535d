//! The fastest web server that can be put behind a veth: an XDP program (`kernel/echo.bpf.c`) that answers handshakes,
//! requests and closes without a connection. A peer for benchmarks of load generators only.
//!
//! It is not a TCP: it accepts anything, retransmits nothing, answers IPv4 without options only, and leaves the rest to the
//! kernel. A native program's replies arrive only when the other end of the veth has a native XDP program, too: GRO there makes
//! the kernel queue the first 256, but not schedule their reception (`veth_xdp_flush()`, measured on Linux 6.18). A generic
//! program answers through any peer.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use bpf::{Hook, SoleLink};
use libbpf_rs::MapHandle;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::Error;
use crate::program::sum_per_cpu;

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/echo.skel.rs"));
}

/// The body of every response.
pub const BODY: &[u8] = b"hello!\n";

/// What a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// The response, which says that the connection is to be closed.
    Answered,
    /// An acknowledgment and no more: connections live until the client gives up.
    Acknowledged,
}

/// A responder on an interface, until this is dropped.
pub struct Echo {
    counters: MapHandle,
    _link: SoleLink,
}

/// Segments answered since the responder was attached, by what they were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// SYN, answered by SYN|ACK.
    pub syns: u64,
    /// Segments with data, answered by the response or acknowledged.
    pub requests: u64,
    /// FIN without data, answered by FIN|ACK.
    pub fins: u64,
    /// Bare ACK and RST, not answered.
    pub silent: u64,
    /// Not answered because the reply did not fit into the frame's memory.
    pub failed: u64,
}

impl Echo {
    /// Answers TCP to `port` on any address, and its requests as told, at the interface with index `ifindex` of the caller's namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] and [`Error::Echo`].
    pub fn attach(ifindex: u32, port: u16, requests: Requests, hook: Hook) -> Result<Self, Error> {
        let load_error = |error| Error::Load { program: "echo.bpf.c", error };
        let mut storage = MaybeUninit::uninit();
        let mut skeleton = skeleton::EchoSkelBuilder::default().open(&mut storage).map_err(load_error)?;
        let rodata = skeleton.maps.rodata_data.as_mut().expect("the program has constants");
        rodata.port = port.to_be();
        rodata.is_silent = requests == Requests::Acknowledged;
        let skeleton = skeleton.load().map_err(load_error)?;
        let link = SoleLink::attach(skeleton.progs.echo.as_fd(), ifindex, hook).map_err(Error::Echo)?;
        Ok(Self { counters: MapHandle::try_from(&skeleton.maps.counters).map_err(Error::Map)?, _link: link })
    }

    /// Counters since the responder was attached.
    ///
    /// # Errors
    ///
    /// What bpf(2) says.
    pub fn counters(&self) -> io::Result<Counters> {
        let [syns, requests, fins, silent, failed] = sum_per_cpu(&self.counters).map_err(io::Error::other)?;
        Ok(Counters { syns, requests, fins, silent, failed })
    }
}
