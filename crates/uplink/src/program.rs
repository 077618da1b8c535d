//! `kernel/uplink.bpf.c` and its maps.

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use bpf::cgroup;
use kernel::Cutoffs;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{ErrorKind, MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};

use crate::error::{Act, Result, refused};
use crate::setup::{Endpoint, Setup};
use crate::{SOCKOPT, Source, tree};

#[allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    missing_docs,
    unused_qualifications,
    reason = "made by libbpf-cargo"
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/uplink.skel.rs"));
}

/// A response of which the last byte has come to the uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentResponse {
    /// Of its data, header and body.
    pub bytes: u64,
    /// When its first segment came, ns of CLOCK_MONOTONIC.
    pub began_ns: u64,
    /// When its last segment came.
    pub ended_ns: u64,
    /// How its size was known at its end.
    pub source: Source,
}

/// What one band has sent and holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BandCount {
    /// That came; a buffer of several segments is one.
    pub packets: u64,
    /// That came, with all headers.
    pub bytes: u64,
    /// Waiting, packets.
    pub qlen_pkts: u32,
    /// Waiting, bytes.
    pub qlen_bytes: u32,
    /// Refused because the band was full.
    pub drops: u32,
}

/// The programs, loaded, and their maps.
pub(crate) struct Program {
    ring: RingBuffer<'static>,
    sent: Rc<RefCell<Vec<SentResponse>>>,
    cutoffs: Cutoffs,
    lease_until_ns: u64,
    controls: MapHandle,
    band_counts: MapHandle,
    uncounted: MapHandle,
    classify: OwnedFd,
    only_count: OwnedFd,
    set_bytes: OwnedFd,
    /// Open while it is attached.
    note_sendfile: std::result::Result<OwnedFd, String>,
}

/// Key of a map with one value.
const ONLY: [u8; 4] = 0_u32.to_ne_bytes();

impl Program {
    pub(crate) fn load(setup: &Setup) -> Result<Self> {
        // libbpf writes pages to stderr when a program is refused; our error is one line.
        libbpf_rs::set_print(None);
        let cookie = bpf::netns_cookie().act("ask for the network namespace's cookie")?;
        let wants_sendfile = setup.sources().contains(&Source::Sendfile);
        if wants_sendfile {
            // Where no program may be at a function of the kernel, all others are loaded without
            // this one.
            match Self::load_with(setup, cookie, true) {
                Err(error) => {
                    let why = format!("no program may be at do_splice_direct: {error}");
                    return Self::load_with(setup, cookie, false)
                        .map(|mut program| {
                            program.note_sendfile = Err(why);
                            program
                        })
                        .map_err(load_error);
                }
                Ok(program) => return Ok(program),
            }
        }
        Self::load_with(setup, cookie, false).map_err(load_error)
    }

    fn load_with(setup: &Setup, netns_cookie: u64, with_sendfile: bool) -> libbpf_rs::Result<Self> {
        let mut object = MaybeUninit::uninit();
        let mut open = skel::UplinkSkelBuilder::default().open(&mut object)?;
        let rodata = open.maps.rodata_data.as_deref_mut().expect("it has constants");
        rodata.class_base = tree::TOP;
        rodata.sources = setup.sources().iter().map(|source| 1 << *source as u32).sum();
        rodata.is_limited = (!setup.endpoints.is_empty()).into();
        rodata.netns_cookie = netns_cookie;
        open.progs.note_sendfile.set_autoload(with_sendfile);
        let loaded = open.load()?;
        for endpoint in &setup.endpoints {
            loaded.maps.endpoints.update(&key(endpoint), &[0], MapFlags::ANY)?;
        }
        let note_sendfile = match with_sendfile {
            true => Ok(loaded.progs.note_sendfile.attach()?.as_fd().try_clone_to_owned()?),
            false => Err("not asked for".to_owned()),
        };
        let sent = Rc::<RefCell<Vec<SentResponse>>>::default();
        let mut ring = RingBufferBuilder::new();
        let taken = Rc::clone(&sent);
        ring.add(&loaded.maps.sent_responses, move |bytes| {
            taken.borrow_mut().extend(read_sent(bytes));
            0
        })?;
        Ok(Self {
            ring: ring.build()?,
            sent,
            cutoffs: Cutoffs::default(),
            lease_until_ns: 0,
            controls: MapHandle::try_from(&loaded.maps.controls)?,
            band_counts: MapHandle::try_from(&loaded.maps.band_counts)?,
            uncounted: MapHandle::try_from(&loaded.maps.uncounted)?,
            classify: loaded.progs.classify.as_fd().try_clone_to_owned()?,
            only_count: loaded.progs.only_count.as_fd().try_clone_to_owned()?,
            set_bytes: loaded.progs.set_bytes.as_fd().try_clone_to_owned()?,
            note_sendfile,
        })
    }

    /// Attaches what tells sizes ahead. Gives what must stay open, and which of the wanted sources
    /// is not to be had here, and why.
    pub(crate) fn attach_sources(&self, setup: &Setup) -> (Vec<OwnedFd>, Vec<(Source, String)>) {
        let (mut links, mut missing) = (Vec::new(), Vec::new());
        let wanted = setup.sources();
        if wanted.contains(&Source::Told) {
            match cgroup::attach(SOCKOPT, [(self.set_bytes.as_fd(), cgroup::Hook::SetSockopt)]) {
                Ok(attached) => links.extend(attached),
                Err(error) => missing.push((Source::Told, error.to_string())),
            }
        }
        if wanted.contains(&Source::Sendfile)
            && let Err(why) = &self.note_sendfile
        {
            missing.push((Source::Sendfile, why.clone()));
        }
        (links, missing)
    }

    pub(crate) fn classify(&self) -> BorrowedFd<'_> {
        self.classify.as_fd()
    }

    pub(crate) fn only_count(&self) -> BorrowedFd<'_> {
        self.only_count.as_fd()
    }

    pub(crate) fn renew(&mut self, lease: Duration) -> Result<()> {
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).act("read the clock")?;
        self.lease_until_ns = (Duration::from(now) + lease).as_nanos() as u64;
        self.write_control()
    }

    pub(crate) fn set_cutoffs(&mut self, cutoffs: &[u64]) -> Result<()> {
        let wrong = || refused(format!("cutoffs {cutoffs:?} do not ascend"));
        self.cutoffs = Cutoffs::new(cutoffs).ok_or_else(wrong)?;
        self.write_control()
    }

    /// `struct control`.
    fn write_control(&self) -> Result<()> {
        let control = [kernel::bytes_of(&self.cutoffs), &self.lease_until_ns.to_ne_bytes()].concat();
        self.controls.update(&ONLY, &control, MapFlags::ANY).act("tell the filter")
    }

    pub(crate) fn take_sent(&mut self) -> Result<Vec<SentResponse>> {
        self.ring.consume().act("read which responses were sent")?;
        Ok(self.sent.take())
    }

    /// Of so many bands, and last of what was not placed.
    pub(crate) fn band_counts(&self, bands: usize) -> Result<Vec<BandCount>> {
        let others = Cutoffs::MOST + 1;
        (0..bands).chain([others]).map(|band| self.band_count(band as u32)).collect()
    }

    fn band_count(&self, band: u32) -> Result<BandCount> {
        let cpus =
            self.band_counts.lookup_percpu(&band.to_ne_bytes(), MapFlags::ANY).act("read the bands")?;
        let word = |bytes: &[u8], index: usize| {
            bytes
                .get(8 * index..)
                .and_then(|rest| rest.first_chunk())
                .map_or(0, |word| u64::from_ne_bytes(*word))
        };
        let mut count = BandCount::default();
        for cpu in cpus.iter().flatten() {
            count.packets += word(cpu, 0);
            count.bytes += word(cpu, 1);
        }
        Ok(count)
    }

    pub(crate) fn uncounted(&self) -> u64 {
        let bytes = self.uncounted.lookup(&ONLY, MapFlags::ANY).ok().flatten().unwrap_or_default();
        bytes.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
    }
}

/// `struct endpoint`: an IPv4 address is mapped, and any address is all zeros.
fn key(endpoint: &Endpoint) -> [u8; 20] {
    let mut key = [0; 20];
    if !endpoint.address.is_unspecified() {
        let address = match endpoint.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        key[..16].copy_from_slice(&address.octets());
    }
    key[16..18].copy_from_slice(&endpoint.port.to_be_bytes());
    key
}

/// `struct sent_response`.
fn read_sent(bytes: &[u8]) -> Option<SentResponse> {
    let word = |index: usize| Some(u64::from_ne_bytes(*bytes.get(8 * index..)?.first_chunk()?));
    let number = u32::from_ne_bytes(*bytes.get(24..)?.first_chunk()?);
    let source = Source::BEST_FIRST.into_iter().find(|source| *source as u32 == number)?;
    Some(SentResponse { bytes: word(0)?, began_ns: word(1)?, ended_ns: word(2)?, source })
}

fn load_error(error: libbpf_rs::Error) -> crate::Error {
    if error.kind() == ErrorKind::PermissionDenied {
        return refused(format!(
            "load the filter: {error}; run as root or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
        ));
    }
    refused(format!("load the filter: {error}; tidegate doctor says what this kernel takes"))
}
