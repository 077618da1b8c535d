//! The fastest web server that can be put behind a veth: an XDP program (`kernel/echo.bpf.c`) that
//! answers handshakes, requests and closes without a connection. A peer for benchmarks of load
//! generators only.
//!
//! It is not a TCP: it accepts anything, retransmits nothing, answers IPv4 without options only,
//! and leaves the rest to the kernel. A native program's replies arrive only when the other end of
//! the veth has a native XDP program, too: GRO there makes the kernel queue the first 256, but not
//! schedule their reception (`veth_xdp_flush()`, measured on Linux 6.18). A generic program answers
//! through any peer.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use bpf::{Hook, SoleLink};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/echo.skel.rs"));
}

/// What a request gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requests {
    /// The response, which says that the connection is to be closed.
    Answered,
    /// An acknowledgment and no more: connections live until the client gives up.
    Acknowledged,
}

/// A responder on an interface, until this is dropped.
pub(crate) struct Echo {
    #[cfg(test)]
    counters: libbpf_rs::MapHandle,
    _link: SoleLink,
}

impl Echo {
    /// Answers TCP to `port` on any address, and its requests as told, at the interface with index
    /// `ifindex` of the caller's namespace.
    ///
    /// # Errors
    ///
    /// When the program cannot be loaded, or not be attached.
    pub(crate) fn attach(ifindex: u32, port: u16, requests: Requests, hook: Hook) -> Result<Self> {
        let load_error =
            "load kernel/echo.bpf.c; this needs CAP_BPF and CAP_NET_ADMIN, and a kernel with BPF";
        let mut storage = MaybeUninit::uninit();
        let mut skeleton = skeleton::EchoSkelBuilder::default().open(&mut storage).context(load_error)?;
        let rodata = skeleton.maps.rodata_data.as_mut().expect("the program has constants");
        rodata.port = port.to_be();
        rodata.is_silent = requests == Requests::Acknowledged;
        let skeleton = skeleton.load().context(load_error)?;
        let link = SoleLink::attach(skeleton.progs.echo.as_fd(), ifindex, hook).context("attach the echo")?;
        Ok(Self {
            #[cfg(test)]
            counters: libbpf_rs::MapHandle::try_from(&skeleton.maps.counters).context("keep its counters")?,
            _link: link,
        })
    }
}

#[cfg(test)]
mod tests;
