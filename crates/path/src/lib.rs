//! One direction of a bottleneck: a queue discipline before a transmitter of some rate, then a wire
//! with delay, jitter, loss and reordering.
//!
//! A [`Path`] is told the time and handed packets. It says when the next thing is due, and gives
//! what arrives at the other end. The simulator and `tidegate link` run it. The same packets,
//! moments of arrival and seed have the same fate, however late or often a caller asks meanwhile.
//!
//! What this is not: it has no clock, socket or thread, no routing, no second direction, and no
//! duplication or corruption of packets. It allocates nothing for a packet once as many as ever
//! were waiting or under way.
//!
//! ```
//! use aqm::Packet;
//! use path::{Config, Path};
//! use units::Nanos;
//!
//! struct Frame(u32);
//! impl Packet for Frame {
//!     fn bytes(&self) -> u32 {
//!         self.0
//!     }
//!     fn flow(&self) -> u32 {
//!         0
//!     }
//! }
//!
//! let config: Config = "rate 10mbit delay 20ms aqm droptail:limit=100".parse()?;
//! let mut path = Path::new(&config, 1)?;
//! path.arrive(Nanos::ZERO, Frame(1250), &mut |_, _| {});
//! // 10,000 bits at 10 Mbit/s, then the wire.
//! let due = Nanos::from_millis(21);
//! assert!(path.take(due - Nanos(1), &mut |_, _| {}).is_none());
//! assert_eq!(path.take(due, &mut |_, _| {}).map(|arrival| arrival.at), Some(due));
//! # Ok::<(), path::ConfigError>(())
//! ```

mod config;
mod counters;
mod in_flight;
mod loss;
mod responses;
mod words;

use aqm::{Aqm, Packet, PacketKind, Queue, RandomNumbers, Rate};
use hdrhistogram::Histogram;
use units::Nanos;

pub use config::{Config, ConfigError};
pub use counters::{Count, Counters, DropCause};
pub use loss::{GilbertElliott, Loss};
pub use responses::{Content, DEFAULT_CONNECTIONS, Responses, Seen, Service, Side};

use in_flight::InFlight;
use loss::LossProcess;

/// Longest sojourn that is told apart from longer ones, microseconds.
const LONGEST_SOJOURN: u64 = 60_000_000;
const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// One direction of a bottleneck.
///
/// A packet that arrives is enqueued; when the transmitter is free it takes the next one from the
/// queue, is busy with it for its length (with [`Config::overhead_bytes`]) at the rate, and then
/// the packet is lost, or arrives after the delay. Moments must not step back from call to call. A
/// packet comes out exactly once: from [`Path::take`], or through `dropped`.
#[derive(Debug)]
pub struct Path<P> {
    config: Config,
    queue: Queue<Waiting<P>>,
    /// When the transmitter is free, or has been since.
    free_at: Nanos,
    /// Of the last transmission, what is less than a nanosecond: in bits/s, as a numerator over the
    /// rate. Without it a rate would be exceeded by rounding.
    remainder: u128,
    loss: LossProcess,
    jitter: RandomNumbers,
    reorder: RandomNumbers,
    in_flight: InFlight<P>,
    /// When the last packet that keeps its order arrives.
    last_at: Nanos,
    counters: Counters,
    sojourns_us: Histogram<u64>,
    /// The queue's length times how long it was that, packets times nanoseconds; up to
    /// `measured_at`.
    queue_area: u128,
    measured_at: Nanos,
}

/// A packet at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival<P> {
    /// When it arrived there, which may be before the moment of asking.
    pub at: Nanos,
    /// The packet.
    pub packet: P,
}

impl<P: Packet> Path<P> {
    /// An empty path. Random numbers of queue, loss, jitter and reordering are each of their own:
    /// with jitter or without, the same packets are lost.
    ///
    /// # Errors
    ///
    /// For a configuration that was not parsed, but put together, and contradicts itself.
    pub fn new(config: &Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let [queue, loss, jitter, reorder] = std::array::from_fn(|number| seed_of(seed, number as u64));
        Ok(Self {
            queue: Queue::new(&config.queue_at_rate(), queue)?,
            free_at: Nanos::ZERO,
            remainder: 0,
            loss: LossProcess::new(config.loss, loss),
            jitter: RandomNumbers::new(jitter),
            reorder: RandomNumbers::new(reorder),
            in_flight: InFlight::default(),
            last_at: Nanos::ZERO,
            counters: Counters::default(),
            sojourns_us: Histogram::new_with_max(LONGEST_SOJOURN, 2).expect("bounds and digits are valid"),
            queue_area: 0,
            measured_at: Nanos::ZERO,
            config: config.clone(),
        })
    }

    /// A packet comes to the near end. It, or others for it, may be dropped.
    pub fn arrive(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropCause)) {
        self.transmit_until(now, dropped);
        self.counters.arrived.add(packet.bytes());
        self.measure_queue(now);
        let Self { queue, counters, .. } = self;
        queue.enqueue(now, Waiting { packet, since: now }, &mut |waiting, reason| {
            let cause = DropCause::Queue(reason);
            counters.drop(cause, waiting.bytes());
            dropped(waiting.packet, cause);
        });
        if self.free_at < now {
            // It was idle: had anything waited, it would have been busy until now.
            self.free_at = now;
            self.remainder = 0;
        }
        self.transmit_until(now, dropped);
    }

    /// When [`Path::take`] may have something to do next. `None` when nothing waits and nothing is
    /// under way.
    ///
    /// Who asks later loses nothing: packets are dequeued, dropped and arrive as of their own
    /// moments.
    pub fn next(&self) -> Option<Nanos> {
        let free_at = (!self.queue.is_empty()).then_some(self.free_at);
        [free_at, self.in_flight.first_at()].into_iter().flatten().min()
    }

    /// The packet that arrived first of those that have arrived by now. To be asked until there is
    /// none.
    pub fn take(&mut self, now: Nanos, dropped: &mut impl FnMut(P, DropCause)) -> Option<Arrival<P>> {
        self.transmit_until(now, dropped);
        let arrival = self.in_flight.take(now)?;
        self.counters.delivered.add(arrival.packet.bytes());
        Some(arrival)
    }

    /// What it was told to be.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Packets that wait; not the one that is being sent.
    pub fn qlen_pkts(&self) -> u32 {
        self.queue.qlen_pkts()
    }

    /// Bytes that wait.
    pub fn qlen_bytes(&self) -> u64 {
        self.queue.qlen_bytes()
    }

    /// Packets on the wire, with the one that is being sent.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// What was counted since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Time in the queue of each packet that was sent since the start, microseconds, to within 1%;
    /// longer than a minute counts as a minute.
    pub fn sojourns_us(&self) -> &Histogram<u64> {
        &self.sojourns_us
    }

    /// The queue's length in packets, integrated over time in nanoseconds, from the start until
    /// `now`. What was sent until then must have been taken.
    pub fn queue_area(&self, now: Nanos) -> u128 {
        self.queue_area + u128::from(self.queue.qlen_pkts()) * u128::from(now.since(self.measured_at).0)
    }

    fn measure_queue(&mut self, now: Nanos) {
        self.queue_area = self.queue_area(now);
        self.measured_at = self.measured_at.max(now);
    }

    /// Sends what the transmitter has begun to send by then.
    fn transmit_until(&mut self, until: Nanos, dropped: &mut impl FnMut(P, DropCause)) {
        while self.free_at <= until && !self.queue.is_empty() {
            let start = self.free_at;
            self.measure_queue(start);
            let Self { queue, counters, .. } = self;
            let next = queue.dequeue(start, &mut |waiting, reason| {
                let cause = DropCause::Queue(reason);
                counters.drop(cause, waiting.bytes());
                dropped(waiting.packet, cause);
            });
            if let Some(waiting) = next {
                self.transmit(start, waiting, dropped);
            }
        }
    }

    fn transmit(&mut self, start: Nanos, waiting: Waiting<P>, dropped: &mut impl FnMut(P, DropCause)) {
        let Waiting { packet, since } = waiting;
        self.sojourns_us.saturating_record(start.since(since).as_micros());
        if let Some(rate) = self.config.rate {
            self.free_at = start + self.transmission(rate, packet.bytes());
        }
        if self.loss.loses_next() {
            self.counters.drop(DropCause::Loss, packet.bytes());
            dropped(packet, DropCause::Loss);
            return;
        }
        let at = self.free_at + self.propagation();
        let at = if self.config.keeps_order { at.max(self.last_at) } else { at };
        self.last_at = at;
        self.in_flight.push(at, packet);
    }

    /// How long the transmitter is busy with a packet.
    fn transmission(&mut self, rate: Rate, bytes: u32) -> Nanos {
        let bits = 8 * u128::from(self.config.sent_bytes(bytes));
        let numerator = bits * NANOS_PER_SECOND + self.remainder;
        let rate = u128::from(rate.bits_per_s());
        self.remainder = numerator % rate;
        Nanos((numerator / rate) as u64)
    }

    fn propagation(&mut self) -> Nanos {
        let Config { delay, jitter, reorder, .. } = self.config;
        if reorder > 0.0 && chance(&mut self.reorder, reorder) {
            self.counters.reordered += 1;
            return Nanos::ZERO;
        }
        if jitter == Nanos::ZERO {
            return delay;
        }
        let span = 2 * u128::from(jitter.0) + 1;
        delay - jitter + Nanos(((u128::from(self.jitter.next_u32()) * span) >> 32) as u64)
    }
}

/// True with that probability, to within 2^-32.
fn chance(random: &mut RandomNumbers, probability: f64) -> bool {
    const ALL: f64 = (1u64 << 32) as f64;
    f64::from(random.next_u32()) < probability * ALL
}

/// A seed for one of several generators: SplitMix64's step, so that neighbouring seeds share none.
fn seed_of(seed: u64, number: u64) -> u64 {
    let mut mixed = seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A packet in the queue.
#[derive(Debug)]
struct Waiting<P> {
    packet: P,
    since: Nanos,
}

impl<P: Packet> Packet for Waiting<P> {
    fn bytes(&self) -> u32 {
        self.packet.bytes()
    }

    fn flow(&self) -> u32 {
        self.packet.flow()
    }

    fn kind(&self) -> PacketKind {
        self.packet.kind()
    }

    fn band(&self) -> u8 {
        self.packet.band()
    }

    fn left(&self) -> Option<u64> {
        self.packet.left()
    }

    fn attained(&self) -> u64 {
        self.packet.attained()
    }
}
