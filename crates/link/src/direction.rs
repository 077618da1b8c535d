//! One direction: frames that come in at one interface, and leave at the other when it is their
//! time.

use aqm::Packet;
use foldhash::fast::FixedState;
use hdrhistogram::Histogram;
use path::{Arrival, Counters, Service};
use port::Tx;
use results::{LinkDirection, LinkTimes, PacketCount};
use units::Nanos;

use crate::classify::{Class, Frame, classify};
use crate::pool::Pool;
use crate::service::Services;
use crate::way::{Opening, Way};

/// Longest lateness that is told apart from longer ones, microseconds.
const LONGEST_LATENESS: u64 = 60_000_000;

/// One direction of a link.
pub struct Direction {
    way: Way,
    /// Longest frame that the other interface takes.
    longest: usize,
    flow_key: FixedState,
    failures: Failures,
    checksums_finished: u64,
    late_us: Histogram<u64>,
    /// When those frames should have left that are about to: here so that nothing is allocated.
    leaving: Vec<Nanos>,
    warmed_up: Option<Box<WarmedUp>>,
}

/// What had been counted when the warm-up was over.
struct WarmedUp {
    at: Nanos,
    counters: Counters,
    opening: Opening,
    access_dropped: u64,
    failures: Failures,
    checksums_finished: u64,
    queue_area: u128,
    inside: u64,
    sojourns_us: Histogram<u64>,
    late_us: Histogram<u64>,
}

/// Frames that a direction failed to take or to send. What it was told to drop is not among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    /// Longer than the other interface's MTU allows. A sender's kernel made them: it leaves it to
    /// its device to split them.
    pub too_long: u64,
    /// All buffers were in use.
    pub no_buffer: u64,
    /// The kernel had no room when they were to leave.
    pub unsent: u64,
}

impl Direction {
    pub(crate) fn new(way: Way, longest: usize, seed: u64, batch: u32) -> Self {
        Self {
            way,
            longest,
            flow_key: FixedState::with_seed(seed),
            failures: Failures::default(),
            checksums_finished: 0,
            late_us: Histogram::new_with_max(LONGEST_LATENESS, 2).expect("bounds and digits are valid"),
            leaving: Vec::with_capacity(batch as usize),
            warmed_up: None,
        }
    }

    /// A frame has come in. `services` are there if a discipline goes by responses.
    pub(crate) fn receive(
        &mut self,
        now: Nanos,
        frame: &[u8],
        pool: &mut Pool,
        services: Option<&mut Services>,
    ) {
        if frame.len() > self.longest.min(pool.buffer_len()) {
            self.failures.too_long += 1;
            return;
        }
        let Some(buffer) = pool.keep(frame) else {
            self.failures.no_buffer += 1;
            return;
        };
        let Class { flow, kind, band, ends, packet } = classify(frame, &self.flow_key);
        let service = match (services, packet) {
            (Some(services), Some(packet)) => services.of(&packet),
            _ => Service::default(),
        };
        let frame = Frame { buffer, len: frame.len() as u32, flow, kind, band, service, access: None };
        self.way.arrive(now, frame, ends, &mut |frame| pool.release(frame.buffer));
    }

    /// Queues up to `max` frames whose time has come for sending, and gives how many.
    pub(crate) fn send(&mut self, now: Nanos, max: u32, tx: &mut Tx<'_>, pool: &mut Pool) -> u32 {
        let room = max.min(tx.transmit_room());
        let mut count = 0;
        while count < room {
            let Some(Arrival { at, packet }) = self.way.take(now, &mut |frame| pool.release(frame.buffer))
            else {
                break;
            };
            let bytes = pool.get_mut(packet.buffer, packet.bytes() as usize);
            self.checksums_finished += u64::from(wire::finish_checksum(bytes));
            let was_queued = tx.transmit(|buffer| {
                buffer[..bytes.len()].copy_from_slice(bytes);
                bytes.len()
            });
            if was_queued {
                self.leaving.push(at);
            } else {
                self.failures.unsent += 1;
            }
            pool.release(packet.buffer);
            count += 1;
        }
        count
    }

    /// What was queued has left.
    pub(crate) fn sent(&mut self, now: Nanos) {
        for at in self.leaving.drain(..) {
            self.late_us.saturating_record(now.since(at).as_micros());
        }
    }

    /// The warm-up is over: [`Direction::summary`] is of what happens from now on.
    pub(crate) fn warmed_up(&mut self, now: Nanos) {
        self.warmed_up = Some(Box::new(WarmedUp {
            at: now,
            counters: *self.counters(),
            opening: self.way.opening(),
            access_dropped: self.way.on_access().1,
            failures: self.failures,
            checksums_finished: self.checksums_finished,
            queue_area: self.way.path().queue_area(now),
            inside: self.way.inside(),
            sojourns_us: self.sojourns_us().clone(),
            late_us: self.late_us.clone(),
        }));
    }

    /// Queue, counters and sojourns of the bottleneck.
    pub fn counters(&self) -> &Counters {
        self.way.path().counters()
    }

    /// Packets that wait.
    pub fn qlen_pkts(&self) -> u32 {
        self.way.path().qlen_pkts()
    }

    /// Time in the queue since the start, microseconds; see [`path::Path::sojourns_us`].
    pub fn sojourns_us(&self) -> &Histogram<u64> {
        self.way.path().sojourns_us()
    }

    /// How much later than meant frames left since the start, microseconds.
    pub fn late_us(&self) -> &Histogram<u64> {
        &self.late_us
    }

    /// Frames that were not taken or sent since the start.
    pub fn failures(&self) -> Failures {
        self.failures
    }

    /// When it has something to do next.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.way.next()
    }

    /// What happened since the warm-up, without what the ports know: names, modes and frames lost
    /// before they were received.
    pub(crate) fn summary(&self, now: Nanos) -> LinkDirection {
        let before = self.warmed_up.as_deref();
        let since = |count: fn(&WarmedUp) -> u64, now: u64| now - before.map_or(0, count);
        let counters = self.counters();
        let dropped_before: Vec<u64> = before
            .map(|before| before.counters.drops().map(|(_, count)| count).collect())
            .unwrap_or_default();
        let drops = counters.drops().enumerate().map(|(which, (cause, count))| {
            (cause.name().to_owned(), count - dropped_before.get(which).copied().unwrap_or(0))
        });
        let grown = |now: &Histogram<u64>, before: Option<&Histogram<u64>>| {
            let mut grown = now.clone();
            before.map_or(Ok(()), |before| grown.subtract(before)).expect("it counted these, too");
            grown
        };
        let Failures { too_long, no_buffer, unsent } = self.failures;
        let Opening { arrived: opening, dropped: opening_drops } = self.way.opening();
        let (access_inside, access_drops) = self.way.on_access();
        let area = self.way.path().queue_area(now) - before.map_or(0, |before| before.queue_area);
        let window = now.since(before.map_or(Nanos::ZERO, |before| before.at));
        LinkDirection {
            from: String::new(),
            to: String::new(),
            path: self.way.path().config().to_string(),
            receive_mode: String::new(),
            receive_fallback: None,
            arrived: count(counters.arrived, before.map(|before| before.counters.arrived)),
            delivered: count(counters.delivered, before.map(|before| before.counters.delivered)),
            drops: drops.filter(|(_, count)| *count > 0).collect(),
            reordered: since(|before| before.counters.reordered, counters.reordered),
            queue_pkts: area as f64 / window.0.max(1) as f64,
            opening: since(|before| before.opening.arrived, opening),
            opening_drops: since(|before| before.opening.dropped, opening_drops),
            inside_before: before.map_or(0, |before| before.inside),
            inside: self.way.inside(),
            access_inside,
            access_drops: since(|before| before.access_dropped, access_drops),
            lost: 0,
            too_long: since(|before| before.failures.too_long, too_long),
            no_buffer: since(|before| before.failures.no_buffer, no_buffer),
            unsent: since(|before| before.failures.unsent, unsent),
            checksums_finished: since(|before| before.checksums_finished, self.checksums_finished),
            sojourn: times(&grown(self.sojourns_us(), before.map(|before| &before.sojourns_us))),
            late: times(&grown(&self.late_us, before.map(|before| &before.late_us))),
        }
    }
}

fn count(now: path::Count, before: Option<path::Count>) -> PacketCount {
    let path::Count { packets, bytes } = before.unwrap_or_default();
    PacketCount { packets: now.packets - packets, bytes: now.bytes - bytes }
}

fn times(us: &Histogram<u64>) -> LinkTimes {
    let ms = |us: u64| us as f64 / 1e3;
    LinkTimes {
        mean_ms: us.mean() / 1e3,
        p50_ms: ms(us.value_at_quantile(0.5)),
        p99_ms: ms(us.value_at_quantile(0.99)),
        max_ms: ms(us.max()),
    }
}
