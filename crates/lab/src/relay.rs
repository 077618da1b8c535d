//! An XDP program (`kernel/relay.bpf.c`) that hands every frame of an interface to another. Between
//! two veth pairs it makes of socket buffers what a NIC's driver has: frames in pages.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use anyhow::{Context, Result};
use bpf::{Hook, SoleLink};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/relay.skel.rs"));
}

/// One direction, until this is dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    _link: SoleLink,
}

impl Relay {
    /// What the interface with index `from` receives is sent by the one with index `to`, both of
    /// the caller's namespace.
    ///
    /// # Errors
    ///
    /// When the program cannot be loaded, or not be attached.
    pub(crate) fn attach(from: u32, to: u32) -> Result<Self> {
        let load_error =
            "load kernel/relay.bpf.c; this needs CAP_BPF and CAP_NET_ADMIN, and a kernel with BPF";
        let mut storage = MaybeUninit::uninit();
        let mut skeleton = skeleton::RelaySkelBuilder::default().open(&mut storage).context(load_error)?;
        skeleton.maps.rodata_data.as_mut().expect("the program has a constant").to = to;
        let skeleton = skeleton.load().context(load_error)?;
        let link = SoleLink::attach(skeleton.progs.relay.as_fd(), from, Hook::XdpNative)
            .context("attach the relay")?;
        Ok(Self { _link: link })
    }
}
