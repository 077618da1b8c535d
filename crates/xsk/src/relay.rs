//! An XDP program (`kernel/relay.bpf.c`) that hands every frame of an interface to another. Between two veth pairs it makes of socket buffers what a NIC's
//! driver has: frames in pages.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use bpf::{Hook, SoleLink};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::Error;

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/relay.skel.rs"));
}

/// One direction, until this is dropped.
#[derive(Debug)]
pub struct Relay {
    _link: SoleLink,
}

impl Relay {
    /// What the interface with index `from` receives is sent by the one with index `to`, both of the caller's namespace.
    ///
    /// # Errors
    ///
    /// [`Error::Load`] and [`Error::Relay`].
    pub fn attach(from: u32, to: u32) -> Result<Self, Error> {
        let load_error = |error| Error::Load { program: "relay.bpf.c", error };
        let mut storage = MaybeUninit::uninit();
        let mut skeleton = skeleton::RelaySkelBuilder::default().open(&mut storage).map_err(load_error)?;
        skeleton.maps.rodata_data.as_mut().expect("the program has a constant").to = to;
        let skeleton = skeleton.load().map_err(load_error)?;
        let link =
            SoleLink::attach(skeleton.progs.relay.as_fd(), from, Hook::XdpNative).map_err(Error::Relay)?;
        Ok(Self { _link: link })
    }
}
