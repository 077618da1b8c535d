//! The programs of `kernel/redfavor.bpf.c` and their maps, with types from their BTF.

use std::mem::MaybeUninit;

use anyhow::{Context, Result, anyhow, bail};
use aqm::{Amount, FixedPoint, RandomNumbers};
use kernel::{Plain, bytes_of, from_bytes, same};
use libbpf_rs::btf::{Btf, types::Struct};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};

use crate::device::Device;
use crate::pins::Pins;
use crate::{Event, KIND, Setup, Status, tc};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    unused_qualifications,
    unreachable_pub
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/redfavor.skel.rs"));
}

pub(crate) use skel::types;

/// By which the kernel takes qdiscs, and its BTF says so.
const SUPPORT: &str = "bpf_struct_ops_Qdisc_ops";
/// Key of a map with one value.
const ONLY: [u8; 4] = 0_u32.to_ne_bytes();

// SAFETY: integers, and padding that is spelled out.
unsafe impl Plain for types::redfavor_config {}
// SAFETY: an even number of words, and double words.
unsafe impl Plain for types::red_params {}
// SAFETY: two words and a double word.
unsafe impl Plain for types::redfavor_guard {}
// SAFETY: `__u64` and pairs of `__u32`, and padding that is spelled out.
unsafe impl Plain for types::redfavor_queue {}
// SAFETY: the same, asserted in redfavor.bpf.c.
unsafe impl Plain for types::redfavor_event {}

/// What stays of a qdisc for us.
#[derive(Debug)]
pub(crate) struct Maps {
    pub(crate) config: MapHandle,
    pub(crate) queue: MapHandle,
    pub(crate) trace: MapHandle,
}

impl Maps {
    /// Whether the qdisc is still there.
    pub(crate) fn is_attached(&self) -> Result<bool> {
        Ok(self.queue()?.is_attached != 0)
    }

    pub(crate) fn status(&self, device: &Device) -> Result<Status> {
        let config: types::redfavor_config = read(&self.config)?;
        Ok(Status::new(&device.name, &config, &self.queue()?))
    }

    /// All events that were kept, and how many there were.
    pub(crate) fn trace(&self) -> Result<(Vec<Event>, u64)> {
        let total = self.queue()?.traced;
        let kept = total.min(self.trace.max_entries().into()) as u32;
        let mut events = Vec::new();
        for index in 0..kept {
            let bytes = self.trace.lookup(&index.to_ne_bytes(), MapFlags::ANY).context("read the trace")?;
            let raw = from_bytes(&bytes.context("the trace is shorter than it says")?);
            events.push(Event::new(&raw).context("the trace has an event of another version")?);
        }
        Ok((events, total))
    }

    fn queue(&self) -> Result<types::redfavor_queue> {
        read(&self.queue)
    }
}

fn read<T: Plain>(map: &MapHandle) -> Result<T> {
    let bytes = map.lookup(&ONLY, MapFlags::ANY).context("read what the qdisc counts")?;
    let bytes = bytes.filter(|bytes| bytes.len() == size_of::<T>());
    Ok(from_bytes(&bytes.context("the qdisc is of another version of tidegate; del removes it")?))
}

/// An error for a kernel that takes no qdisc in BPF.
pub(crate) fn require_support() -> Result<()> {
    let btf = Btf::from_vmlinux().map_err(|error| {
        anyhow!("this kernel does not tell its types, which BPF queue disciplines need (CONFIG_DEBUG_INFO_BTF): {error}")
    })?;
    if btf.type_by_name::<Struct<'_>>(SUPPORT).is_none() {
        bail!(
            "this kernel has no BPF queue disciplines, which Linux 6.16 and newer have if they are built with CONFIG_NET_SCH_BPF; tidegate link --aqm redfavor does the same without"
        );
    }
    Ok(())
}

/// Loads the programs, and makes them the root qdisc of the interface. The kernel keeps them as long as the qdisc is there.
pub(crate) fn start(device: &Device, setup: &Setup, replaced: Option<&str>, pins: &mut Pins) -> Result<()> {
    // libbpf writes pages to stderr when a program is refused; our error is one line.
    libbpf_rs::set_print(None);
    let mut object = MaybeUninit::uninit();
    let mut open = skel::RedfavorSkelBuilder::default().open(&mut object).map_err(load_error)?;
    if let Some(replay) = setup.replay {
        open.maps.random_numbers.set_max_entries(replay.events).map_err(load_error)?;
        open.maps.trace.set_max_entries(replay.events).map_err(load_error)?;
    }
    let mut loaded = open.load().map_err(load_error)?;
    let config = config(device, setup, replaced);
    loaded.maps.configs.update(&ONLY, bytes_of(&config), MapFlags::ANY).context("set the parameters")?;
    if let Some(replay) = setup.replay {
        let mut random = RandomNumbers::new(replay.seed);
        for index in 0..replay.events {
            let number = random.next_u32().to_ne_bytes();
            let set = loaded.maps.random_numbers.update(&index.to_ne_bytes(), &number, MapFlags::ANY);
            set.context("set the random numbers")?;
        }
    }
    let handle = |map: &libbpf_rs::MapMut<'_>| MapHandle::try_from(map).context("keep a map");
    let mut maps = Maps {
        config: handle(&loaded.maps.configs)?,
        queue: handle(&loaded.maps.queues)?,
        trace: handle(&loaded.maps.trace)?,
    };
    // The kernel knows the name only as long as this link is there: nobody can make a second qdisc with our maps later.
    let link = loaded.maps.redfavor.attach_struct_ops().map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => anyhow!(
            "the kernel has another queue discipline with the name {KIND}, which tidegate did not make; unregister that first"
        ),
        _ => load_error(error),
    })?;
    let made = pins
        .keep(device, &mut maps)
        .and_then(|()| tc::replace_root(&device.name, KIND))
        .with_context(|| format!("make {KIND} the queue discipline of {}", device.name));
    drop(link);
    made.inspect_err(|_| pins.forget(device))
}

fn load_error(error: libbpf_rs::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::PermissionDenied {
        return anyhow!("load {KIND}: {error}; run as root or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN");
    }
    anyhow!("load {KIND}: {error}; tidegate doctor says what this kernel takes")
}

fn config(device: &Device, setup: &Setup, replaced: Option<&str>) -> types::redfavor_config {
    let numbers = FixedPoint::of(&setup.config);
    let red = &setup.config.red;
    types::redfavor_config {
        red: same(&numbers.red),
        guard: same(&numbers.guard),
        bits_per_s: if setup.is_shaped { red.rate.bits_per_s() } else { 0 },
        limit: red.limit.number(),
        limit_is_bytes: matches!(red.limit, Amount::Bytes(_)).into(),
        protected_kinds: setup.config.protect.bits(),
        is_replayed: setup.replay.is_some().into(),
        ifindex: device.ifindex,
        netns_inode: device.netns_inode,
        words: characters(&aqm::Config::RedFavor(setup.config).to_string()),
        replaced: characters(replaced.unwrap_or_default()),
    }
}

/// What is too long is cut; a zero is always at the end.
fn characters<const N: usize>(text: &str) -> [i8; N] {
    let mut characters = [0; N];
    for (to, from) in characters[..N - 1].iter_mut().zip(text.bytes()) {
        *to = from.cast_signed();
    }
    characters
}
