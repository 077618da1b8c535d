//! Which processes hold a listening socket, by `kernel/holders.bpf.c`.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};

use crate::program::load_error;
use crate::{Error, Result};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    unused_qualifications,
    unreachable_pub
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/holders.skel.rs"));
}

/// Three words: the socket's inode number, the process, and whether it is an init.
const RECORD: usize = 3 * size_of::<u64>();

/// A process that holds a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its number in the host's first pid namespace.
    pub pid: u64,
    /// Whether it is the init of its pid namespace: the host's or a container's.
    pub is_init: bool,
}

/// Processes by the inode number of each listening socket that they hold, of all processes of our
/// pid namespace.
///
/// # Errors
///
/// Without CAP_BPF and CAP_PERFMON, or where the kernel refuses the program.
pub fn holders() -> Result<BTreeMap<u64, BTreeSet<Holder>>> {
    libbpf_rs::set_print(None);
    let mut object = MaybeUninit::uninit();
    let open = skel::HoldersSkelBuilder::default().open(&mut object).map_err(load_error)?;
    let loaded = open.load().map_err(load_error)?;
    let link = loaded.progs.list_holders.attach().map_err(load_error)?;
    let mut iterator = bpf::open_iterator(link.as_fd()).map_err(Error::List)?;
    let mut bytes = Vec::new();
    // After a million descriptors without a listener the kernel wants to be asked again.
    while let Err(error) = iterator.read_to_end(&mut bytes) {
        if error.kind() != ErrorKind::WouldBlock {
            return Err(Error::List(error));
        }
    }
    let mut holders = BTreeMap::<u64, BTreeSet<Holder>>::new();
    for record in bytes.chunks_exact(RECORD) {
        let mut words =
            record.as_chunks::<{ size_of::<u64>() }>().0.iter().map(|word| u64::from_ne_bytes(*word));
        if let (Some(inode), Some(pid), Some(is_init)) = (words.next(), words.next(), words.next()) {
            holders.entry(inode).or_default().insert(Holder { pid, is_init: is_init != 0 });
        }
    }
    Ok(holders)
}
