//! SRPT and LAS: `kernel/srpt.bpf.c`, with types from its BTF.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use aqm::{Config, RankedConfig};
use bpf::{Hook, cgroup};
use kernel::{Plain, SizeSource, bytes_of, same};
use libbpf_rs::skel::{Skel as _, SkelBuilder as _};

use crate::discipline::{Discipline, Making, State};
use crate::error::Act;
use crate::pins::Pinned;
use crate::root::{self, root_config, root_event, root_state, whole};
use crate::{Error, Event, Order, Own, Result, Traffic, program};

#[allow(
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::ptr_as_ptr,
    unused_qualifications,
    unreachable_pub
)]
mod skel {
    include!(concat!(env!("OUT_DIR"), "/srpt.skel.rs"));
}

use skel::{SrptSkel, SrptSkelBuilder, types};

// SAFETY: integers, and padding that is spelled out.
unsafe impl Plain for types::srpt_config {}
// SAFETY: `__u64` and pairs of `__u32`.
unsafe impl Plain for types::srpt_queue {}
// SAFETY: words, double words and characters, and padding that is spelled out.
unsafe impl Plain for types::root_config {}
// SAFETY: `__u64` and pairs of `__u32`.
unsafe impl Plain for types::root_state {}

/// The kernel allocates a place for each flow at once, some 100 bytes.
const MOST_PKTS: u32 = 1_000_000;
/// How the place of a packet was known, where no source of sizes has to do with it.
const OTHERS: [&str; 2] = ["no-data", "untold"];
const SOCKOPT: &str = "the socket option TIDEGATE_BYTES_TO_COME";

/// The flow goes first that has the fewest bytes left, or has sent the fewest.
pub(crate) struct Ranked {
    name: &'static str,
    /// That it may use.
    sources: &'static [SizeSource],
}

pub(crate) static SRPT: Ranked = Ranked { name: "srpt", sources: &SizeSource::BEST_FIRST };
pub(crate) static LAS: Ranked = Ranked { name: "las", sources: &[SizeSource::Attained] };

impl Discipline for Ranked {
    fn name(&self) -> &'static str {
        self.name
    }

    fn pins(&self) -> &'static str {
        self.name
    }

    fn takes(&self, config: &Config) -> bool {
        self.config(config).is_some()
    }

    fn start(&self, making: &mut Making<'_>) -> Result<()> {
        let config = *self.config(&making.setup.config).expect("only what it takes is started with it");
        if config.limit_pkts > MOST_PKTS {
            return Err(Error::Refused(format!(
                "{}: limit={}: the kernel keeps a place for each; say at most {MOST_PKTS}",
                self.name, config.limit_pkts
            )));
        }
        let mut objects = [MaybeUninit::uninit(), MaybeUninit::uninit()];
        let [object, other] = &mut objects;
        // Where no program may be at a function of the kernel, all others are loaded without this
        // one.
        let (mut loaded, has_sendfile) = match self.load(object, &config, making, true) {
            Ok(loaded) => (loaded, true),
            Err(_) => (self.load(other, &config, making, false)?, false),
        };
        let (links, sources) = self.attach(&loaded, making, has_sendfile)?;
        let parameters = types::srpt_config {
            root: same(&root::parameters(making)),
            limit: config.limit_pkts,
            flow_limit: config.flow_limit_pkts,
            sources: bits(&sources),
            reserved: 0,
        };
        let this = if self.name == SRPT.name { &SRPT } else { &LAS };
        program::start(loaded.object_mut(), this, bytes_of(&parameters), &links, making)
    }

    fn is_attached(&self, queue: &[u8]) -> Option<bool> {
        let queue: types::srpt_queue = whole(queue)?;
        Some(queue.root.is_attached != 0)
    }

    fn state(&self, interface: &str, config: &[u8], queue: &[u8]) -> Option<State> {
        let config: types::srpt_config = whole(config)?;
        let queue: types::srpt_queue = whole(queue)?;
        let waiting = Traffic { pkts: queue.waiting.pkts, bytes: queue.waiting.bytes };
        let root: root_state = same(&queue.root);
        let by_source = |name, number: usize| (name, queue.by_source[number]);
        let placed = SizeSource::BEST_FIRST.iter().map(|source| by_source(source.name(), *source as usize));
        let others = OTHERS.iter().zip(SizeSource::BEST_FIRST.len()..).map(|(name, at)| by_source(*name, at));
        let is_at_work = |source: &SizeSource| config.sources & bits(&[*source]) != 0;
        let (sources, missing): (Vec<_>, Vec<_>) = self.sources.iter().copied().partition(is_at_work);
        let names = |sources: Vec<SizeSource>| sources.into_iter().map(SizeSource::name).collect();
        let own = Own::Ranked(Order {
            flows: queue.flows,
            sources: names(sources),
            missing: names(missing),
            placed_by: placed.chain(others).collect(),
        });
        let config: root_config = same(&config.root);
        Some(State { traced: root.traced, status: root::status(interface, &config, &root, waiting, own) })
    }

    fn event(&self, raw: &[u8]) -> Option<Event> {
        root::event(&whole::<root_event>(raw)?)
    }
}

impl Ranked {
    fn config<'config>(&self, config: &'config Config) -> Option<&'config RankedConfig> {
        match config {
            Config::Srpt(config) if self.name == SRPT.name => Some(config),
            Config::Las(config) if self.name == LAS.name => Some(config),
            _ => None,
        }
    }

    fn load<'object>(
        &self,
        object: &'object mut MaybeUninit<libbpf_rs::OpenObject>,
        config: &RankedConfig,
        making: &Making<'_>,
        with_sendfile: bool,
    ) -> Result<SrptSkel<'object>> {
        let mut open = program::opened(self, SrptSkelBuilder::default().open(object))?;
        let rodata = open.maps.rodata_data.as_deref_mut().expect("it has constants");
        rodata.sources = bits(self.sources);
        rodata.netns_cookie = bpf::netns_cookie().act("ask for the network namespace's cookie")?;
        open.progs.note_sendfile.set_autoload(with_sendfile && self.sources.contains(&SizeSource::Sendfile));
        let sized = open.maps.waiting_flows.set_max_entries(config.limit_pkts);
        let other = if self.name == SRPT.name { &mut open.maps.las } else { &mut open.maps.srpt };
        let made = sized.and_then(|()| other.set_autocreate(false));
        made.act_with(|| format!("prepare {}", self.name))?;
        program::load(self, open, making)
    }

    /// Attaches what tells sizes. Gives the links with the names that they are pinned by, and the
    /// sources that are at work.
    fn attach(
        &self,
        loaded: &SrptSkel<'_>,
        making: &Making<'_>,
        has_sendfile: bool,
    ) -> Result<(Vec<Pinned>, Vec<SizeSource>)> {
        let mut sources = self.sources.to_vec();
        let mut without = |source| sources.retain(|at_work| *at_work != source);
        let tell = bpf::Link::attach(loaded.progs.tell.as_fd(), making.device.ifindex, Hook::TcxEgress);
        let tell = tell.act_with(|| format!("learn what leaves {}", making.device.name))?;
        let mut links = vec![("tell", tell.into())];
        if self.sources.contains(&SizeSource::Told) {
            match cgroup::attach(SOCKOPT, [(loaded.progs.set_bytes.as_fd(), cgroup::Hook::SetSockopt)]) {
                Ok(attached) => links.extend(attached.into_iter().map(|link| ("set_bytes", link))),
                Err(_) => without(SizeSource::Told),
            }
        }
        if self.sources.contains(&SizeSource::Sendfile) {
            let attached = has_sendfile.then(|| loaded.progs.note_sendfile.attach().ok()).flatten();
            match attached.and_then(|link| link.as_fd().try_clone_to_owned().ok()) {
                Some(link) => links.push(("note_sendfile", link)),
                None => without(SizeSource::Sendfile),
            }
        }
        Ok((links, sources))
    }
}

fn bits(sources: &[SizeSource]) -> u32 {
    sources.iter().map(|source| 1 << *source as u32).sum()
}
