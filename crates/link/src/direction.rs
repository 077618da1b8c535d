//! One direction: frames that come in at one interface, and leave at the other when it is their time.

use aqm::Packet;
use foldhash::fast::FixedState;
use hdrhistogram::Histogram;
use path::{Arrival, Path};
use port::Tx;
use results::{LinkDirection, LinkTimes, PacketCount};
use units::Nanos;

use crate::classify::{Frame, classify};
use crate::pool::Pool;

/// Longest lateness that is told apart from longer ones, microseconds.
const LONGEST_LATENESS: u64 = 60_000_000;

/// One direction of a link.
pub struct Direction {
    path: Path<Frame>,
    /// Longest frame that the other interface takes.
    longest: usize,
    flow_key: FixedState,
    failures: Failures,
    checksums_finished: u64,
    late_us: Histogram<u64>,
    /// When those frames should have left that are about to: here so that nothing is allocated.
    leaving: Vec<Nanos>,
}

/// Frames that a direction failed to take or to send. What it was told to drop is not among them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failures {
    /// Longer than the other interface's MTU allows. A sender's kernel made them: it leaves it to its device to split them.
    pub too_long: u64,
    /// All buffers were in use.
    pub no_buffer: u64,
    /// The kernel had no room when they were to leave.
    pub unsent: u64,
}

impl Direction {
    pub(crate) fn new(path: Path<Frame>, longest: usize, seed: u64, batch: u32) -> Self {
        Self {
            path,
            longest,
            flow_key: FixedState::with_seed(seed),
            failures: Failures::default(),
            checksums_finished: 0,
            late_us: Histogram::new_with_max(LONGEST_LATENESS, 2).expect("bounds and digits are valid"),
            leaving: Vec::with_capacity(batch as usize),
        }
    }

    /// A frame has come in.
    pub(crate) fn receive(&mut self, now: Nanos, frame: &[u8], pool: &mut Pool) {
        if frame.len() > self.longest.min(pool.buffer_len()) {
            self.failures.too_long += 1;
            return;
        }
        let Some(buffer) = pool.keep(frame) else {
            self.failures.no_buffer += 1;
            return;
        };
        let (flow, kind, band) = classify(frame, &self.flow_key);
        let frame = Frame { buffer, len: frame.len() as u32, flow, kind, band };
        self.path.arrive(now, frame, &mut |frame, _| pool.release(frame.buffer));
    }

    /// Queues up to `max` frames whose time has come for sending, and gives how many.
    pub(crate) fn send(&mut self, now: Nanos, max: u32, tx: &mut Tx<'_>, pool: &mut Pool) -> u32 {
        let room = max.min(tx.transmit_room());
        let mut count = 0;
        while count < room {
            let Some(Arrival { at, packet }) =
                self.path.take(now, &mut |frame, _| pool.release(frame.buffer))
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

    /// Queue, counters and sojourns.
    pub fn counters(&self) -> &path::Counters {
        self.path.counters()
    }

    /// Packets that wait.
    pub fn qlen_pkts(&self) -> u32 {
        self.path.qlen_pkts()
    }

    /// Time in the queue since the start, microseconds; see [`Path::sojourns_us`].
    pub fn sojourns_us(&self) -> &Histogram<u64> {
        self.path.sojourns_us()
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
        self.path.next()
    }

    /// Without what the ports know: names, modes and frames lost before they were received.
    pub(crate) fn summary(&self) -> LinkDirection {
        let counters = self.path.counters();
        let drops = counters.drops().filter(|(_, count)| *count > 0);
        let Failures { too_long, no_buffer, unsent } = self.failures;
        LinkDirection {
            from: String::new(),
            to: String::new(),
            path: self.path.config().to_string(),
            receive_mode: String::new(),
            receive_fallback: None,
            arrived: count(counters.arrived),
            delivered: count(counters.delivered),
            drops: drops.map(|(cause, count)| (cause.name().to_owned(), count)).collect(),
            reordered: counters.reordered,
            inside: u64::from(self.path.qlen_pkts()) + self.path.in_flight() as u64,
            lost: 0,
            too_long,
            no_buffer,
            unsent,
            checksums_finished: self.checksums_finished,
            sojourn: times(self.path.sojourns_us()),
            late: times(&self.late_us),
        }
    }
}

fn count(count: path::Count) -> PacketCount {
    PacketCount { packets: count.packets, bytes: count.bytes }
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
