//! REDFavor: `kernel/redfavor.bpf.c`, with types from its BTF.

use aqm::{Amount, Config, DropCounts, DropReason, FixedPoint, PacketKind, RedFavorConfig};
use kernel::{Plain, bytes_of, from_bytes, same};
use units::Nanos;

use crate::device::Device;
use crate::discipline::{Discipline, Making, State};
use crate::program;
use crate::{Event, Result, Setup, Status, Traffic};

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

use skel::types;

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
        let parameters = parameters(config, making.device, making.setup, making.replaced);
        program::start(skel::RedfavorSkelBuilder::default(), &RedFavor, bytes_of(&parameters), making)
    }

    fn is_attached(&self, queue: &[u8]) -> Option<bool> {
        let queue: types::redfavor_queue = whole(queue)?;
        Some(queue.is_attached != 0)
    }

    fn state(&self, interface: &str, config: &[u8], queue: &[u8]) -> Option<State> {
        let config: types::redfavor_config = whole(config)?;
        let queue: types::redfavor_queue = whole(queue)?;
        Some(State { traced: queue.traced, status: status(interface, &config, &queue) })
    }

    fn event(&self, raw: &[u8]) -> Option<Event> {
        event(&whole(raw)?)
    }
}

/// `None` if it is of another version.
fn whole<T: Plain>(bytes: &[u8]) -> Option<T> {
    (bytes.len() == size_of::<T>()).then(|| from_bytes(bytes))
}

fn parameters(
    config: &RedFavorConfig,
    device: &Device,
    setup: &Setup,
    replaced: Option<&str>,
) -> types::redfavor_config {
    let numbers = FixedPoint::of(config);
    let red = &config.red;
    types::redfavor_config {
        red: same(&numbers.red),
        guard: same(&numbers.guard),
        bits_per_s: if setup.is_shaped { red.rate.bits_per_s() } else { 0 },
        limit: red.limit.number(),
        limit_is_bytes: matches!(red.limit, Amount::Bytes(_)).into(),
        protected_kinds: config.protect.bits(),
        is_replayed: setup.replay.is_some().into(),
        ifindex: device.ifindex,
        netns_inode: device.netns_inode,
        words: characters(&setup.config.to_string()),
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

fn status(interface: &str, config: &types::redfavor_config, queue: &types::redfavor_queue) -> Status {
    let waiting = [queue.protected, queue.standard];
    let mut dropped = DropCounts::default();
    for (reason, count) in DropReason::ALL.into_iter().zip(queue.dropped) {
        dropped.add(reason, count);
    }
    Status {
        interface: interface.to_owned(),
        config: text(&config.words).unwrap_or_default(),
        bits_per_s: (config.bits_per_s != 0).then_some(config.bits_per_s),
        replaced: text(&config.replaced),
        qlen_pkts: waiting.iter().map(|length| length.pkts).sum(),
        qlen_bytes: waiting.iter().map(|length| length.bytes).sum(),
        protected_qlen_pkts: queue.protected.pkts,
        average: FixedPoint::average(queue.red.average),
        arrived: Traffic {
            pkts: queue.arrived_pkts,
            bytes: queue.arrived_bytes,
            protected_pkts: queue.arrived_protected,
        },
        sent: Traffic {
            pkts: queue.sent_pkts,
            bytes: queue.sent_bytes,
            protected_pkts: queue.sent_protected,
        },
        dropped,
        dropped_protected: queue.dropped_protected,
        unallocated: queue.unallocated,
        thrown_away: queue.thrown_away,
    }
}

/// `None` if it is empty.
fn text(bytes: &[i8]) -> Option<String> {
    let bytes: Vec<u8> =
        bytes.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// `None` for what this version does not know.
fn event(raw: &types::redfavor_event) -> Option<Event> {
    /// `enum traced`.
    const ARRIVED: u32 = 0;
    const SENT: u32 = 1;
    const DROPPED: u32 = 2;
    let types::redfavor_event { time_ns, packet, bytes, what, detail } = *raw;
    let (at, detail) = (Nanos(time_ns), detail as usize);
    match what {
        ARRIVED => Some(Event::Arrived { at, packet, bytes, kind: *PacketKind::ALL.get(detail)? }),
        SENT => Some(Event::Sent { at, packet }),
        DROPPED => Some(Event::Dropped { packet, reason: *DropReason::ALL.get(detail)? }),
        _ => None,
    }
}
