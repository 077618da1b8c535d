//! What every discipline's maps have in common: `kernel/root.bpf.h`.

use aqm::{DropCounts, DropReason, PacketKind};
use kernel::{Plain, from_bytes};
use units::Nanos;

use crate::discipline::Making;
pub(crate) use crate::redfavor::types::{root_config, root_event, root_state};
use crate::{Event, Own, Status, Traffic};

/// `None` if it is of another version.
pub(crate) fn whole<T: Plain>(bytes: &[u8]) -> Option<T> {
    (bytes.len() == size_of::<T>()).then(|| from_bytes(bytes))
}

pub(crate) fn parameters(making: &Making<'_>) -> root_config {
    let setup = making.setup;
    root_config {
        bits_per_s: setup.rate.map_or(0, |rate| rate.bits_per_s()),
        ifindex: making.device.ifindex,
        netns_inode: making.device.netns_inode,
        is_replayed: setup.replay.is_some().into(),
        reserved: 0,
        words: characters(&setup.config.to_string()),
        replaced: characters(making.replaced.unwrap_or_default()),
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

pub(crate) fn status(
    interface: &str,
    config: &root_config,
    state: &root_state,
    waiting: Traffic,
    own: Own,
) -> Status {
    let mut dropped = DropCounts::default();
    for (reason, count) in DropReason::ALL.into_iter().zip(state.dropped) {
        dropped.add(reason, count);
    }
    Status {
        interface: interface.to_owned(),
        config: text(&config.words).unwrap_or_default(),
        bits_per_s: (config.bits_per_s != 0).then_some(config.bits_per_s),
        replaced: text(&config.replaced),
        qlen_pkts: waiting.pkts,
        qlen_bytes: waiting.bytes,
        arrived: Traffic { pkts: state.arrived.pkts, bytes: state.arrived.bytes },
        sent: Traffic { pkts: state.sent.pkts, bytes: state.sent.bytes },
        dropped,
        unallocated: state.unallocated.pkts,
        thrown_away: state.thrown_away.pkts,
        lost_bytes: state.dropped_bytes + state.unallocated.bytes + state.thrown_away.bytes,
        own,
    }
}

/// `None` if it is empty.
fn text(bytes: &[i8]) -> Option<String> {
    let bytes: Vec<u8> =
        bytes.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// `None` for what this version does not know.
pub(crate) fn event(raw: &root_event) -> Option<Event> {
    /// `enum traced`.
    const ARRIVED: u32 = 0;
    const SENT: u32 = 1;
    const DROPPED: u32 = 2;
    let root_event { time_ns, rank, flow, packet, bytes, what, detail } = *raw;
    let (at, detail) = (Nanos(time_ns), detail as usize);
    match what {
        ARRIVED => {
            Some(Event::Arrived { at, packet, bytes, kind: *PacketKind::ALL.get(detail)?, rank, flow })
        }
        SENT => Some(Event::Sent { at, packet }),
        DROPPED => Some(Event::Dropped { packet, reason: *DropReason::ALL.get(detail)? }),
        _ => None,
    }
}
