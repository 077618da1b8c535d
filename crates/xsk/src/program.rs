//! The steering program, loaded: `kernel/crowd.bpf.c`.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use bpf::{Hook, SoleLink};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::steer::Match;
use crate::{Error, Mode, Steer};

#[allow(missing_docs, unused_qualifications, clippy::all, clippy::undocumented_unsafe_blocks)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/crowd.skel.rs"));
}

/// The program on its interface, until this is dropped.
pub(crate) struct Program {
    counters: MapHandle,
    sockets: MapHandle,
    _link: SoleLink,
    mode: Mode,
}

/// Frames that the program saw, by what it did with them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub steered: u64,
    pub passed: u64,
    pub unclaimed: u64,
}

impl Program {
    /// Loads the program and attaches it at the first of `hooks` that can. It drops the crowd's
    /// frames of a queue until [`Program::connect`].
    pub(crate) fn attach(steer: Steer, interface: (&str, u32), hooks: &[Hook]) -> Result<Self, Error> {
        let mut storage = MaybeUninit::uninit();
        let mut skeleton = skeleton::CrowdSkelBuilder::default().open(&mut storage).map_err(Error::Load)?;
        let rodata = skeleton.maps.rodata_data.as_mut();
        set_match(rodata.expect("the program has constants"), &steer.to_match()?);
        let skeleton = skeleton.load().map_err(Error::Load)?;
        let link = attach_first(skeleton.progs.steer.as_fd(), interface, hooks)?;
        Ok(Self {
            counters: MapHandle::try_from(&skeleton.maps.counters).map_err(Error::Map)?,
            sockets: MapHandle::try_from(&skeleton.maps.sockets).map_err(Error::Map)?,
            mode: mode(link.hook()),
            _link: link,
        })
    }

    /// From now on the crowd's frames of this queue go to `socket`.
    pub(crate) fn connect(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        let socket = socket.as_raw_fd().to_ne_bytes();
        self.sockets.update(&queue.to_ne_bytes(), &socket, MapFlags::ANY).map_err(Error::Map)
    }

    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    pub(crate) fn counters(&self) -> libbpf_rs::Result<Counters> {
        let [steered, passed, unclaimed] = sum_per_cpu(&self.counters)?;
        Ok(Counters { steered, passed, unclaimed })
    }
}

/// Sums entry 0 of a per-CPU array whose value is `N` counters, in their order.
fn sum_per_cpu<const N: usize>(map: &impl MapCore) -> libbpf_rs::Result<[u64; N]> {
    let mut sums = [0_u64; N];
    for values in map.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default() {
        for (sum, value) in sums.iter_mut().zip(values.as_chunks::<8>().0) {
            *sum += u64::from_ne_bytes(*value);
        }
    }
    Ok(sums)
}

fn set_match(rodata: &mut skeleton::types::rodata, steer: &Match) {
    rodata.every_frame = steer.every_frame;
    rodata.ipv6 = steer.ipv6;
    rodata.server_address = steer.server;
    rodata.server_port = steer.port;
    rodata.client_network = steer.network;
    rodata.client_mask = steer.mask;
}

/// Attaches at the first of `hooks` that can; a hook that is taken, or forbidden, is not passed
/// over.
fn attach_first(program: BorrowedFd<'_>, interface: (&str, u32), hooks: &[Hook]) -> Result<SoleLink, Error> {
    let (name, ifindex) = interface;
    let mut hooks = hooks.iter().copied().peekable();
    loop {
        let hook = hooks.next().expect("a mode has at least one hook");
        match SoleLink::attach(program, ifindex, hook) {
            Ok(link) => return Ok(link),
            Err(error) if hooks.peek().is_some() && is_unsupported(&error.error) => {}
            Err(error) => {
                return Err(Error::Attach { interface: name.to_owned(), error });
            }
        }
    }
}

/// EOPNOTSUPP and EINVAL: the driver has no XDP, or not with its present settings; ERANGE: the MTU
/// is too large for it; ENOMEM: too few queues left for it (virtio-net).
pub(crate) fn is_unsupported(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE | libc::ENOMEM))
}

fn mode(hook: Hook) -> Mode {
    match hook {
        Hook::XdpGeneric => Mode::Generic,
        _ => Mode::Native,
    }
}
