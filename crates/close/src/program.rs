//! `kernel/close.bpf.c` and its maps.

use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use bpf::cgroup;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use schemars::JsonSchema;
use serde::Serialize;
use units::Nanos;

use crate::error::{Act, Error, Result, refused};
use crate::held::HeldFins;
use crate::setup::{LONG_QUARANTINE, Setup, Sockets, Way};

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    unused_qualifications,
    reason = "made by libbpf-cargo"
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/close.skel.rs"));
}

/// Counters of one destination: `struct close_counts`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Counts {
    /// swap: closes that the server began and the client has followed.
    pub noted: u64,
    /// Last ACKs of a server that a RST answered.
    pub answered: u64,
    /// hold: FINs that were held.
    pub held: u64,
    /// hold: FINs that passed because the client's program had read all.
    pub idle: u64,
    /// Held FINs that entered with the client's own: the client's kernel keeps TIME_WAIT.
    pub released: u64,
    /// Held FINs that the server repeated, because the client's program had not closed.
    pub given_up: u64,
    /// Held FINs that could not enter when the client closed, because data was under way.
    pub late: u64,
    /// hold: later ACKs that left as a RST, because the first RST was lost.
    pub resets: u64,
    /// swap: SYNs that were dropped because their ports are in quarantine.
    pub quarantined: u64,
    /// Closes that were left alone because of MD5, AO, MPTCP or malformed options.
    pub signed_or_joined: u64,
    /// Closes that were left alone because a map was full.
    pub full: u64,
    /// Segments that the kernel did not send or change, and FINs whose checksum was not verified.
    pub failed: u64,
    /// Held FINs that the command let in, after a second or when it ended.
    pub overdue: u64,
    /// FINs that passed because more than half of those before were held in vain.
    pub backed_off: u64,
    /// FINs that passed because the interface had not checked their checksum.
    pub unchecked: u64,
}

/// The loaded programs and their maps.
pub(crate) struct Program {
    arriving: OwnedFd,
    leaving: OwnedFd,
    counts: MapHandle,
    quarantine: MapHandle,
    controls: MapHandle,
    ask: OwnedFd,
    overdue: OwnedFd,
    held: HeldFins,
    destinations: usize,
    cgroup: u64,
    generation: u8,
    /// One bit for each destination: hold no FIN there.
    backed_off: u64,
}

/// Key of a map with one value.
const ONLY: [u8; 4] = 0_u32.to_ne_bytes();
/// Generation 0 means none.
const FIRST_GENERATION: u8 = 1;
/// Map entries that one system call reads.
const BATCH: u32 = 4096;

impl Program {
    pub(crate) fn load(setup: &Setup) -> Result<Self> {
        // libbpf writes pages to stderr when a program is refused; our error is one line.
        libbpf_rs::set_print(None);
        let cgroup = match &setup.sockets {
            Sockets::Of(folder) => cgroup_id(folder)?,
            _ => 0,
        };
        let netns_cookie = bpf::netns_cookie().act("ask for the network namespace's cookie")?;
        Self::try_load(setup, cgroup, netns_cookie).map_err(load_error)
    }

    fn try_load(setup: &Setup, cgroup: u64, netns_cookie: u64) -> libbpf_rs::Result<Self> {
        let mut object = MaybeUninit::uninit();
        let mut open = skel::CloseSkelBuilder::default().open(&mut object)?;
        let rodata = open.maps.rodata_data.as_deref_mut().expect("it has constants");
        rodata.way = match setup.way {
            Way::Swap => 1,
            Way::Hold => 2,
        };
        rodata.is_dry_run = setup.is_dry_run.into();
        rodata.quarantine_ns = setup.quarantine.as_nanos() as u64;
        rodata.long_quarantine_ns = setup.quarantine.max(LONG_QUARANTINE).as_nanos() as u64;
        rodata.cgroup = cgroup;
        rodata.must_ask = (setup.sockets == Sockets::ThatAsk).into();
        rodata.netns_cookie = netns_cookie;
        let loaded = open.load()?;
        for (index, destination) in (0_u32..).zip(&setup.destinations) {
            let key = key(destination.network.addr(), destination.network.prefix_len(), destination.port);
            loaded.maps.destinations.update(&key, &index.to_ne_bytes(), MapFlags::ANY)?;
        }
        Ok(Self {
            arriving: loaded.progs.arriving.as_fd().try_clone_to_owned()?,
            leaving: loaded.progs.leaving.as_fd().try_clone_to_owned()?,
            counts: MapHandle::try_from(&loaded.maps.close_counts)?,
            quarantine: MapHandle::try_from(&loaded.maps.quarantine)?,
            controls: MapHandle::try_from(&loaded.maps.controls)?,
            ask: loaded.progs.ask.as_fd().try_clone_to_owned()?,
            overdue: loaded.progs.overdue.as_fd().try_clone_to_owned()?,
            held: HeldFins::new(&loaded.maps.held_fins)?,
            destinations: setup.destinations.len(),
            cgroup,
            generation: FIRST_GENERATION,
            backed_off: 0,
        })
    }

    /// Programs may opt sockets in until the returned links are dropped.
    pub(crate) fn let_sockets_ask(&self) -> Result<Vec<OwnedFd>> {
        let programs = [(self.ask.as_fd(), cgroup::Hook::SetSockopt)];
        cgroup::attach("the socket option TIDEGATE_CLOSE", programs)
            .map_err(|error| refused(error.to_string()))
    }

    /// Id of the control group; 0: none was named.
    pub(crate) fn cgroup(&self) -> u64 {
        self.cgroup
    }

    pub(crate) fn arriving(&self) -> BorrowedFd<'_> {
        self.arriving.as_fd()
    }

    pub(crate) fn leaving(&self) -> BorrowedFd<'_> {
        self.leaving.as_fd()
    }

    /// No FIN is held, from the next lease on, at a destination whose bit is set.
    pub(crate) fn back_off(&mut self, destinations: u64) {
        self.backed_off = destinations;
    }

    /// A new generation begins with the next lease.
    pub(crate) fn begin_generation(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or(FIRST_GENERATION);
    }

    /// The programs act for `lease` from now on. Writes `struct control`.
    pub(crate) fn lease(&self, lease: Duration) -> Result<()> {
        let until_ns = now_ns()? + lease.as_nanos() as u64;
        let generation = u32::from(self.generation);
        let control = [
            &until_ns.to_ne_bytes()[..],
            &generation.to_ne_bytes(),
            &0_u32.to_ne_bytes(),
            &self.backed_off.to_ne_bytes(),
        ]
        .concat();
        self.controls.update(&ONLY, &control, MapFlags::ANY).act("tell the programs the time")
    }

    /// Ends quarantines whose time is over, and lets in FINs held too long.
    pub(crate) fn sweep(&mut self) -> Result<()> {
        let now_ns = now_ns()?;
        self.let_in(Some(Nanos(now_ns)))?;
        let over: Vec<Vec<u8>> = self
            .quarantined_until()?
            .filter(|(_, until_ns)| *until_ns <= now_ns)
            .map(|(ends, _)| ends)
            .collect();
        for ends in over {
            // The program may have deleted it first.
            let _ = self.quarantine.delete(&ends);
        }
        Ok(())
    }

    /// Lets in the held FINs that are due at `now`, or all without `now`.
    pub(crate) fn let_in(&mut self, now: Option<Nanos>) -> Result<()> {
        self.held.let_in(self.overdue.as_fd(), now).act("let in what is held")
    }

    pub(crate) fn quarantined(&self) -> Result<usize> {
        Ok(self.quarantined_until()?.count())
    }

    fn quarantined_until(&self) -> Result<impl Iterator<Item = (Vec<u8>, u64)> + '_> {
        let all = self.quarantine.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY);
        let all = all.act("read which ports are in quarantine")?;
        Ok(all.filter_map(|(ends, until)| Some((ends, u64::from_ne_bytes(*until.first_chunk()?)))))
    }

    pub(crate) fn counts(&self) -> Result<Vec<Counts>> {
        (0..self.destinations as u32).map(|index| self.counts_of(index)).collect()
    }

    fn counts_of(&self, index: u32) -> Result<Counts> {
        let cpus = self.counts.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).act("read the counts")?;
        let sum = |word: usize| -> u64 {
            let of_cpu = |bytes: &Vec<u8>| {
                let word = bytes.get(8 * word..).and_then(|rest| rest.first_chunk());
                word.map_or(0, |word| u64::from_ne_bytes(*word))
            };
            cpus.iter().flatten().map(of_cpu).sum()
        };
        Ok(Counts {
            noted: sum(0),
            answered: sum(1),
            held: sum(2),
            idle: sum(3),
            released: sum(4),
            given_up: sum(5),
            late: sum(6),
            resets: sum(7),
            quarantined: sum(8),
            signed_or_joined: sum(9),
            full: sum(10),
            failed: sum(11),
            overdue: sum(12),
            backed_off: sum(13),
            unchecked: sum(14),
        })
    }
}

/// Id of a control group of version 2, the kernel's `kernfs_node.id`: the inode of its folder.
pub(crate) fn cgroup_id(folder: &Path) -> Result<u64> {
    let shown = folder.display();
    let metadata = folder.metadata().act_with(|| format!("control group {shown}"))?;
    let is_cgroup =
        statfs(folder).is_ok_and(|filesystem| filesystem.filesystem_type() == CGROUP2_SUPER_MAGIC);
    if !metadata.is_dir() || !is_cgroup {
        let why =
            "is no control group of version 2; name its folder, as /sys/fs/cgroup/system.slice/app.service";
        return Err(Error::Mistaken(format!("{shown} {why}")));
    }
    Ok(metadata.ino())
}

/// Time of bpf_ktime_get_ns().
fn now_ns() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).act("read the clock")?;
    Ok(Duration::from(now).as_nanos() as u64)
}

/// The bytes of `struct destination`. An IPv4 address is mapped into IPv6.
fn key(address: IpAddr, prefix_len: u8, port: u16) -> [u8; 24] {
    const PORT_BITS: u32 = 32;
    const MAPPED_BITS: u32 = 96;
    let (octets, bits) = match address {
        IpAddr::V4(address) => (address.to_ipv6_mapped().octets(), MAPPED_BITS + u32::from(prefix_len)),
        IpAddr::V6(address) => (address.octets(), u32::from(prefix_len)),
    };
    let mut key = [0; 24];
    key[..4].copy_from_slice(&(PORT_BITS + bits).to_ne_bytes());
    key[4..6].copy_from_slice(&port.to_be_bytes());
    key[8..].copy_from_slice(&octets);
    key
}

fn load_error(error: libbpf_rs::Error) -> Error {
    if error.kind() == ErrorKind::PermissionDenied {
        return refused(format!(
            "load the programs: {error}; run as root or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
        ));
    }
    refused(format!("load the programs: {error}; tidegate doctor says what this kernel takes"))
}
