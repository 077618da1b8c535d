//! The bottleneck, one way: a path of `crates/path`, and what is counted of it.

use aqm::DropCounts;
use path::{Config, ConfigError, DropCause, Path};
use units::Nanos;

use super::packet::{Arena, Handle};
use crate::woken::Woken;

/// What went through one way of the bottleneck in the measured window. The packets of a flood are
/// in `bytes` and `queue_pkts`, and else counted by themselves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkCounts {
    /// Packets that came to the queue.
    pub packets: u64,
    /// Of these, those that the discipline dropped.
    pub drops: DropCounts,
    /// Of these, those that the wire lost.
    pub lost: u64,
    /// Packets with SYN that came to the queue.
    pub opening: u64,
    /// Of these, those that were dropped.
    pub opening_dropped: u64,
    /// Drops of the packets of objects, by their number in the flow: 0 is SYN or SYN/ACK, 1 the
    /// first with data. The last counts all later ones, too.
    pub dropped_numbers: Vec<u64>,
    /// SYNs of the flood that came to the queue.
    pub flood: u64,
    /// Of these, those that were dropped.
    pub flood_dropped: u64,
    /// Bytes that were sent, of anything, with what the wire takes besides each packet.
    pub bytes: u64,
    /// Bytes that the link could have sent; 0 where it has no rate.
    pub capacity_bytes: f64,
    /// Mean length of the queue over time, packets.
    pub queue_pkts: f64,
}

impl LinkCounts {
    /// Share of the packets that the queue dropped; 0 when there were none.
    pub fn drop_share(&self) -> f64 {
        self.drops.total() as f64 / self.packets.max(1) as f64
    }

    /// Share of the link's time that something was sent; 0 where it has no rate.
    pub fn utilisation(&self) -> f64 {
        if self.capacity_bytes > 0.0 { self.bytes as f64 / self.capacity_bytes } else { 0.0 }
    }
}

/// Numbers of packets that are counted one by one.
const NUMBERS: usize = 1024;

/// One way of the bottleneck.
#[derive(Debug)]
pub(super) struct Bottleneck {
    path: Path<Handle>,
    woken: Woken,
    tally: Tally,
    /// The queue's length times how long it was that, packets times nanoseconds; up to `looked_at`.
    queue_area: u128,
    looked_at: Nanos,
}

/// What is counted, from when on.
#[derive(Debug)]
struct Tally {
    config: Config,
    from: Nanos,
    /// Data bytes of a full packet.
    mss: u32,
    counts: LinkCounts,
    /// Packets that were dropped or lost, since the start.
    dropped: u64,
}

impl Bottleneck {
    pub(super) fn new(config: &Config, (from, mss): (Nanos, u32), seed: u64) -> Result<Self, ConfigError> {
        let counts = LinkCounts { dropped_numbers: vec![0; NUMBERS], ..LinkCounts::default() };
        Ok(Self {
            path: Path::new(config, seed)?,
            woken: Woken::default(),
            tally: Tally { config: config.clone(), from, mss, counts, dropped: 0 },
            queue_area: 0,
            looked_at: from,
        })
    }

    /// A packet has come to the near end.
    pub(super) fn arrive(&mut self, packet: Handle, now: Nanos, arena: &mut Arena) {
        self.look(now);
        let Self { path, tally, .. } = self;
        tally.arrived(packet, now, arena);
        path.arrive(now, packet, &mut |packet, cause| tally.dropped(packet, cause, now, arena));
    }

    /// The next packet that has come to the far end.
    pub(super) fn take(&mut self, now: Nanos, arena: &mut Arena) -> Option<Handle> {
        self.look(now);
        let Self { path, tally, .. } = self;
        let arrival = path.take(now, &mut |packet, cause| tally.dropped(packet, cause, now, arena))?;
        tally.sent(arrival.packet, now);
        Some(arrival.packet)
    }

    /// When the path is to be looked at next, if nobody has said so yet.
    pub(super) fn wake(&mut self) -> Option<Nanos> {
        self.woken.tell(self.path.next())
    }

    /// Whether it is to be looked at now: an earlier moment may have come in between.
    pub(super) fn is_woken(&mut self, now: Nanos) -> bool {
        self.woken.is_now(now)
    }

    /// Adds up the queue's length. It is looked at whenever a packet comes or goes.
    fn look(&mut self, now: Nanos) {
        if now > self.looked_at {
            self.queue_area += u128::from(self.path.qlen_pkts()) * u128::from((now - self.looked_at).0);
            self.looked_at = now;
        }
    }

    /// Packets that wait or are under way.
    pub(super) fn len(&self) -> usize {
        self.path.qlen_pkts() as usize + self.path.in_flight()
    }

    /// Packets that were dropped or lost since the start.
    pub(super) fn dropped(&self) -> u64 {
        self.tally.dropped
    }

    /// What was counted until now.
    pub(super) fn counts(&mut self, now: Nanos) -> LinkCounts {
        self.look(now);
        let window = now.since(self.tally.from);
        let mut counts = self.tally.counts.clone();
        counts.queue_pkts = self.queue_area as f64 / window.0.max(1) as f64;
        let rate_bps = self.tally.config.rate.map_or(0, |rate| rate.bits_per_s());
        counts.capacity_bytes = rate_bps as f64 / 8.0 * window.as_secs_f64();
        counts
    }
}

impl Tally {
    fn arrived(&mut self, packet: Handle, now: Nanos, arena: &Arena) {
        if now < self.from {
            return;
        }
        let parcel = arena.get(packet);
        if parcel.route.is_flood() {
            self.counts.flood += 1;
        } else {
            self.counts.packets += 1;
            self.counts.opening += u64::from(parcel.opens());
        }
    }

    fn sent(&mut self, packet: Handle, now: Nanos) {
        if now >= self.from {
            self.counts.bytes += u64::from(self.config.sent_bytes(packet.bytes));
        }
    }

    fn dropped(&mut self, packet: Handle, cause: DropCause, now: Nanos, arena: &mut Arena) {
        let parcel = arena.take(packet);
        self.dropped += 1;
        if now < self.from {
            return;
        }
        let counts = &mut self.counts;
        if parcel.route.is_flood() {
            counts.flood_dropped += 1;
            return;
        }
        match cause {
            DropCause::Queue(reason) => counts.drops.count(reason),
            DropCause::Loss => {
                counts.lost += 1;
                counts.bytes += u64::from(self.config.sent_bytes(packet.bytes));
            }
        }
        counts.opening_dropped += u64::from(parcel.opens());
        if let Some(number) = parcel.number(self.mss).filter(|_| parcel.route.is_short) {
            counts.dropped_numbers[(number as usize).min(NUMBERS - 1)] += 1;
        }
    }
}
