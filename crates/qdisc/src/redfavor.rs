//! REDFavor: `kernel/redfavor.bpf.c`, with types from its BTF.

use std::mem::MaybeUninit;

use aqm::{Amount, Config, FixedPoint, RedFavorConfig};
use kernel::{Plain, bytes_of, same};
use libbpf_rs::skel::{Skel as _, SkelBuilder as _};

use crate::discipline::{Discipline, Making, State};
use crate::root::{self, whole};
use crate::{Event, Own, Protection, Result, Traffic, program};

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

// SAFETY: integers, and padding that is spelled out.
unsafe impl Plain for types::redfavor_config {}
// SAFETY: an even number of words, and double words.
unsafe impl Plain for types::red_params {}
// SAFETY: two words and a double word.
unsafe impl Plain for types::redfavor_guard {}
// SAFETY: `__u64` and pairs of `__u32`, and padding that is spelled out.
unsafe impl Plain for types::redfavor_queue {}
// SAFETY: words, double words and characters, and padding that is spelled out.
unsafe impl Plain for types::root_config {}
// SAFETY: `__u64` and pairs of `__u32`.
unsafe impl Plain for types::root_state {}
// SAFETY: the same, asserted in root.bpf.h.
unsafe impl Plain for types::root_event {}

/// Packets that open connections go first, and push out others instead of being dropped.
pub(crate) struct RedFavor;

impl Discipline for RedFavor {
    fn name(&self) -> &'static str {
        "redfavor"
    }

    fn pins(&self) -> &'static str {
        "qdisc"
    }

    fn takes(&self, config: &Config) -> bool {
        matches!(config, Config::RedFavor(_))
    }

    fn start(&self, making: &mut Making<'_>) -> Result<()> {
        let Config::RedFavor(config) = &making.setup.config else {
            unreachable!("only what it takes is started with it");
        };
        let parameters = parameters(config, making);
        let mut object = MaybeUninit::uninit();
        let open = program::opened(self, skel::RedfavorSkelBuilder::default().open(&mut object))?;
        let mut loaded = program::load(self, open, making)?;
        program::start(loaded.object_mut(), &RedFavor, bytes_of(&parameters), &[], making)
    }

    fn is_attached(&self, queue: &[u8]) -> Option<bool> {
        let queue: types::redfavor_queue = whole(queue)?;
        Some(queue.root.is_attached != 0)
    }

    fn state(&self, interface: &str, config: &[u8], queue: &[u8]) -> Option<State> {
        let config: types::redfavor_config = whole(config)?;
        let queue: types::redfavor_queue = whole(queue)?;
        let waiting = [queue.protected, queue.standard];
        let waiting = Traffic {
            pkts: waiting.iter().map(|length| length.pkts).sum(),
            bytes: waiting.iter().map(|length| length.bytes).sum(),
        };
        let own = Own::RedFavor(Protection {
            average: FixedPoint::average(queue.red.average),
            protected_qlen_pkts: queue.protected.pkts,
            arrived_protected: queue.arrived_protected,
            sent_protected: queue.sent_protected,
            dropped_protected: queue.dropped_protected,
        });
        let status = root::status(interface, &config.root, &queue.root, waiting, own);
        Some(State { traced: queue.root.traced, status })
    }

    fn event(&self, raw: &[u8]) -> Option<Event> {
        root::event(&whole(raw)?)
    }
}

fn parameters(config: &RedFavorConfig, making: &Making<'_>) -> types::redfavor_config {
    let numbers = FixedPoint::of(config);
    let red = &config.red;
    types::redfavor_config {
        red: same(&numbers.red),
        guard: same(&numbers.guard),
        root: root::parameters(making),
        limit: red.limit.number(),
        limit_is_bytes: matches!(red.limit, Amount::Bytes(_)).into(),
        protected_kinds: config.protect.bits(),
        reserved: 0,
    }
}
