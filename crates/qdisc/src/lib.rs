//! Makes a queue discipline of ours the qdisc of an interface, in BPF, Linux 6.16 and newer:
//! REDFavor (`kernel/redfavor.bpf.c`), or SRPT and LAS (`kernel/srpt.bpf.c`).
//!
//! [`add`] loads the programs, sets their parameters and makes the qdisc. It lives on without us,
//! until [`del`] or the interface goes. What it counts is in maps that are pinned in the BPF file
//! system, for each interface of each network namespace ([`show`], [`all`]).
//!
//! What this is not: a classful qdisc, or a child of one. The kernel takes a BPF qdisc only as the
//! root of an interface, or below mq. So a rate is its own ([`Setup::rate`]), and delay must come
//! from another interface. It has no ECN, because such a program may not write to packets.
//!
//! # The exact order
//!
//! A qdisc's program may not read a socket's storage. So `tell` at tcx egress, where each packet
//! comes by first, writes rank and flow into the packet's `cb`, and `enqueue` reads them there. The
//! first packet of each flow is in a tree (`bpf_rb_root`), the later ones in a list of their flow.
//! The tree's rightmost is pushed out. The qdisc outlives its process, so the links of `tell`, the
//! socket option and sendfile are pinned beside its maps. Once the qdisc is gone they place
//! nothing, until they are swept away.
//!
//! All of it concerns the calling thread's network namespace, and needs CAP_BPF, CAP_PERFMON,
//! CAP_NET_ADMIN and a BPF file system that may be written.

mod device;
mod discipline;
mod error;
mod pins;
mod program;
mod ranked;
mod redfavor;
mod root;
mod status;
pub mod tc;
mod trace;

use aqm::{Config, Rate};

pub use error::{Error, Result};
pub use status::{Order, Own, Protection, Status, Traffic};
pub use trace::{Event, Replay};

use device::Device;
use discipline::{ALL, Making, named, that_takes};
use error::Act;
use pins::Pins;

/// A qdisc that is wanted.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What it decides by. In the kernel a large buffer that the interface will cut (GSO) is one
    /// packet of all its bytes.
    pub config: Config,
    /// Send no faster than that, so that the queue is here, and not in what comes after. `None`: as
    /// fast as the interface takes it.
    pub rate: Option<Rate>,
    /// Replace a root qdisc that somebody else made. One that the kernel made by itself is always
    /// replaced.
    pub is_replacing: bool,
    /// For tests: it keeps all it decides, and its random numbers are a generator's.
    pub replay: Option<Replay>,
}

/// The disciplines that tidegate has for the kernel.
pub fn names() -> Vec<&'static str> {
    ALL.map(|discipline| discipline.name()).to_vec()
}

/// Whether these are parameters of one of them.
pub fn takes(config: &Config) -> bool {
    that_takes(config).is_some()
}

/// Whether this kernel takes such a qdisc.
///
/// # Errors
///
/// One line: why not.
pub fn support() -> Result<()> {
    program::require_support()
}

/// Makes a discipline the root qdisc of an interface, and gives what it counts from now on.
///
/// # Errors
///
/// One line: no such interface, a qdisc that is there already, a kernel without BPF qdiscs, missing
/// privileges. The interface has then what it had.
pub fn add(interface: &str, setup: &Setup) -> Result<Status> {
    let device = Device::find(interface)?;
    let discipline = that_takes(&setup.config).ok_or_else(|| {
        let kind = setup.config.kind();
        Error::Refused(format!("{kind} is no queue discipline that tidegate has for the kernel"))
    })?;
    support()?;
    let mut pins = Pins::lock()?;
    pins.sweep();
    let root = tc::root(interface)?;
    if let Some(root) = root.iter().find(|root| named(&root.kind).is_some()) {
        return Err(Error::Refused(format!(
            "{interface} has {} already ({}); change it with: tidegate qdisc del {interface}, then add",
            root.kind, root.handle
        )));
    }
    let theirs = root.filter(|root| !root.is_default());
    if let Some(root) = theirs.as_ref().filter(|_| !setup.is_replacing) {
        let why = format!("{interface} has a queue discipline already: {}; --replace replaces it", root.text);
        return Err(Error::Refused(why));
    }
    let replaced = theirs.map(|root| root.text);
    // Maps that may be here are of an interface that had this number before.
    pins.forget(&device);
    discipline.start(&mut Making {
        device: &device,
        setup,
        replaced: replaced.as_deref(),
        pins: &mut pins,
    })?;
    show(interface)
}

/// What the qdisc of an interface does.
///
/// # Errors
///
/// One line: no such interface, or none of ours on it.
pub fn show(interface: &str) -> Result<Status> {
    let device = Device::find(interface)?;
    let maps = Pins::open(&device)?.ok_or_else(|| none(interface))?;
    Ok(maps.state(interface)?.status)
}

/// All of ours in this network namespace, by name of the interface.
///
/// # Errors
///
/// When they cannot be read.
pub fn all() -> Result<Vec<Status>> {
    let mut all = Vec::new();
    for device in Device::all()? {
        if let Some(maps) = Pins::open(&device)? {
            all.push(maps.state(&device.name)?.status);
        }
    }
    all.sort_by(|one: &Status, other| one.interface.cmp(&other.interface));
    Ok(all)
}

/// Removes the qdisc; the kernel puts its default there. Gives what it had done until then.
///
/// What it replaced is not made again, as nobody can tell all that belonged to it (classes,
/// filters): [`Status::replaced`] is what tc said of it.
///
/// # Errors
///
/// One line: no such interface, or none of ours on it.
pub fn del(interface: &str) -> Result<Status> {
    let device = Device::find(interface)?;
    let Some(discipline) = tc::root(interface)?.and_then(|root| named(&root.kind)) else {
        // Somebody else may have removed it, which leaves its maps and links.
        if let Ok(pins) = Pins::lock() {
            pins.sweep();
        }
        return Err(none(interface));
    };
    let mut pins = Pins::lock()?;
    let status = show(interface);
    tc::delete_root(interface)?;
    pins.forget(&device);
    status.act_with(|| {
        format!("{interface} has no {} any more, but what it had done cannot be told", discipline.name())
    })
}

fn none(interface: &str) -> Error {
    let ours = names().join(", ");
    Error::Refused(format!(
        "{interface} has no queue discipline of ours ({ours}); tidegate qdisc show lists all there are"
    ))
}

/// For tests: what the qdisc with [`Setup::replay`] decided so far, in order, and how many events
/// there were, kept or not.
///
/// # Errors
///
/// As [`show`].
pub fn trace(interface: &str) -> Result<(Vec<Event>, u64)> {
    let device = Device::find(interface)?;
    let maps = Pins::open(&device)?.ok_or_else(|| none(interface))?;
    maps.trace()
}
