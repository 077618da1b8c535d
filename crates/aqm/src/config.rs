//! What a discipline is told, and what cannot be.

use std::fmt;

use kernel::Cutoffs;
use serde::Deserialize;
use units::Nanos;

use crate::words::Given;
use crate::{Amount, ProtectedSet, Rate};

/// Bands that there can be: [`crate::Packet::band`] has 8 bits, and a dequeue looks through all.
const BANDS: std::ops::RangeInclusive<u8> = 1..=64;
/// Queues of FQ-CoDel, and SFQ's values of the hash, as in Linux.
const FLOWS: std::ops::RangeInclusive<u32> = 1..=65_536;
/// Of a turn, bytes: less takes many rounds for a packet (FQ-CoDel of Linux makes it 256).
const LEAST_QUANTUM: u32 = 256;
/// Of fq's turn, bytes, as in Linux.
const MOST_QUANTUM: u32 = 1 << 20;
/// Of CAKE.
const RTT: std::ops::RangeInclusive<Nanos> = Nanos::from_micros(1)..=Nanos::from_secs(10);
/// Below, the fixed point of `kernel/red.h` moves an average in steps that can be seen.
const LEAST_WEIGHT: f64 = 1.0 / (1 << 24) as f64;
/// Bytes that a packet can have on the average.
const MEAN_PACKET: std::ops::RangeInclusive<u32> = 40..=65_536;

/// A discipline and its parameters.
///
/// From the command line as words, `red:limit=180,min=30,max=90`; from a file as the same text, or
/// as a table with `kind` and the same keys. A key that the discipline does not have is an error.
/// [`Config::check`] has been passed by whatever was parsed.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Given")]
pub enum Config {
    /// `droptail`.
    DropTail(DropTailConfig),
    /// `red`.
    Red(RedConfig),
    /// `choke`, with RED's parameters.
    Choke(RedConfig),
    /// `redfavor`.
    RedFavor(RedFavorConfig),
    /// `codel`.
    Codel(CodelConfig),
    /// `fq-codel`.
    FqCodel(FqCodelConfig),
    /// `bands`.
    Bands(BandsConfig),
    /// `srpt`.
    Srpt(RankedConfig),
    /// `las`.
    Las(RankedConfig),
    /// `fq`.
    Fq(FqConfig),
    /// `sfq`.
    Sfq(SfqConfig),
    /// `cake`.
    Cake(CakeConfig),
}

/// First in, first out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DropTailConfig {
    /// That may wait: 1000 packets, as Linux queues before an interface.
    pub limit: Amount,
}

/// Random Early Detection, also in CHOKe and REDFavor. Packet mode or byte mode, as the unit of the
/// thresholds is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedConfig {
    /// That may wait: 180 packets.
    pub limit: Amount,
    /// Average below which nothing is dropped: 30 packets.
    pub min: Amount,
    /// Average at which `max_probability` is reached: 90 packets.
    pub max: Amount,
    /// Drop probability as the average reaches `max`, above 0 up to 1: 0.1. The share of packets
    /// that are dropped is up to twice of it, as the gaps between drops are made uniform.
    pub max_probability: f64,
    /// Of the queue's length in the average, at each arrival; above 0 up to 1: 0.002.
    pub weight: f64,
    /// From `max` to twice of it the probability goes on up to 1, instead of jumping there.
    /// Default, but for CHOKe.
    pub is_gentle: bool,
    /// No drop by chance within 1 / probability of the last one, as ns-2 and ns-3 have it
    /// (`wait_`); the share of drops is less than half then. Not by default.
    pub waits: bool,
    /// Nothing is dropped by the average while one packet waits at most (in byte mode, while none
    /// does), as ns-2 and ns-3 have it. Not by default: `[FJ93]` has no such rule.
    pub spares_one: bool,
    /// Mean packet, bytes: 1000. How fast the average falls while the queue is empty; in byte mode
    /// also the packet that has RED's own probability.
    pub mean_packet_bytes: u32,
    /// Of the link, for idle time only: 10 Mbit/s.
    pub rate: Rate,
}

/// REDFavor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RedFavorConfig {
    /// For all packets together.
    pub red: RedConfig,
    /// Which packets are protected: those of TCP.
    pub protect: ProtectedSet,
    /// Against floods of these; `None` is Algorithm 1 of `[RF]` and nothing else.
    pub guard: Option<Guard>,
}

/// What protection may cost standard packets.
///
/// A protected packet that finds no place is dropped. One that would have to push out a packet that
/// cannot be paid for is dropped. One that cannot pay for going ahead waits until it can, or until
/// no standard packet is there. The credit for both is in bytes, and grows with the bytes that are
/// sent, so that over any time
///
/// bytes sent ahead of waiting standard packets + bytes pushed out <= `share` * bytes sent + burst
///
/// with a burst of a mean packet for each place (of the places themselves in byte mode), and at
/// least 10,000 bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guard {
    /// Above 0 up to 1: a quarter.
    pub share: f64,
    /// Protected packets that may wait, up to RED's minimum, so that they alone do not bring the
    /// average to where it drops: that minimum.
    pub places: Amount,
}

/// CoDel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CodelConfig {
    /// That may wait: 1000 packets.
    pub limit: Amount,
    /// Time in the queue that is fine: 5 ms.
    pub target: Nanos,
    /// For how long it may be exceeded, about a round trip: 100 ms.
    pub interval: Nanos,
    /// With no more than this left behind a packet, it is not dropped: 1514 bytes.
    pub mtu_bytes: u32,
}

/// FQ-CoDel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FqCodelConfig {
    /// Of each flow; the limit is in packets, and of all flows: 10,240.
    pub codel: CodelConfig,
    /// Queues: 1024.
    pub flows: u32,
    /// That a flow may send in its turn: 1514 bytes.
    pub quantum_bytes: u32,
    /// Packets that are dropped at once when all are too many: 64.
    pub batch: u32,
    /// That may wait, too, bytes: 32 MiB.
    pub memory_bytes: u32,
}

/// Priority bands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BandsConfig {
    /// Bands: 5.
    pub bands: u8,
    /// That may wait in all of them: 1000 packets.
    pub limit: Amount,
    /// Whether a packet that finds it full pushes out one of a later band. Default.
    pub push_out: bool,
    /// Bytes left up to which a response is in band 0, in band 1, and so on; one band more than
    /// these. `None` goes by [`Packet::band`](crate::Packet::band).
    pub cutoffs: Option<Cutoffs>,
}

/// SRPT and LAS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankedConfig {
    /// Packets that may wait: 1000.
    pub limit_pkts: u32,
    /// Packets of one flow that may wait: 100, as Linux's fq has it.
    pub flow_limit_pkts: u32,
}

/// Linux's fq, without pacing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FqConfig {
    /// Packets that may wait: 10,000.
    pub limit_pkts: u32,
    /// Packets of one flow that may wait: 100.
    pub flow_limit_pkts: u32,
    /// That a flow may send in its turn: 3028 bytes, two of Ethernet's packets.
    pub quantum_bytes: u32,
    /// That a flow may send in its first turn: 15,140 bytes, ten packets.
    pub initial_quantum_bytes: u32,
    /// After so long without packets a flow has a quantum, whatever it had before: 40 ms.
    pub refill_delay: Nanos,
}

/// Linux's sfq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SfqConfig {
    /// Packets that may wait: 127.
    pub limit_pkts: u32,
    /// Packets of one queue that may wait: 127.
    pub depth_pkts: u32,
    /// Queues that may have packets at once: 128.
    pub flows: u32,
    /// Values of the hash, with a queue each: 1024.
    pub divisor: u32,
    /// That a queue may send in its turn: 1514 bytes.
    pub quantum_bytes: u32,
}

/// Linux's CAKE, one tin, flows only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CakeConfig {
    /// Of the link: 10 Mbit/s.
    pub rate: Rate,
    /// Round trip of the flows, Cobalt's interval; its target is a twentieth: 100 ms.
    pub rtt: Nanos,
    /// That may wait, bytes. `None` is what the rate sends in four round trips, from 4 MiB to
    /// 10,240 packets of 1514 bytes.
    pub memory_bytes: Option<u32>,
}

impl Default for DropTailConfig {
    fn default() -> Self {
        Self { limit: Amount::Packets(1000) }
    }
}

impl Default for RedConfig {
    fn default() -> Self {
        Self {
            limit: Amount::Packets(180),
            min: Amount::Packets(30),
            max: Amount::Packets(90),
            max_probability: 0.1,
            weight: 0.002,
            is_gentle: true,
            waits: false,
            spares_one: false,
            mean_packet_bytes: 1000,
            rate: Rate::from_bits_per_s(10_000_000).expect("10 Mbit/s is a rate"),
        }
    }
}

impl RedConfig {
    /// CHOKe's own: as RED, but not gentle.
    pub fn choke() -> Self {
        Self { is_gentle: false, ..Self::default() }
    }
}

impl Default for RedFavorConfig {
    fn default() -> Self {
        let red = RedConfig::default();
        Self { red, protect: ProtectedSet::TCP, guard: Some(Guard::of(&red)) }
    }
}

impl Guard {
    /// The default beside that RED.
    pub fn of(red: &RedConfig) -> Self {
        Self { share: 0.25, places: red.min }
    }
}

impl Default for CodelConfig {
    fn default() -> Self {
        Self {
            limit: Amount::Packets(1000),
            target: Nanos::from_millis(5),
            interval: Nanos::from_millis(100),
            mtu_bytes: 1514,
        }
    }
}

impl Default for FqCodelConfig {
    fn default() -> Self {
        Self {
            codel: CodelConfig { limit: Amount::Packets(10_240), ..CodelConfig::default() },
            flows: 1024,
            quantum_bytes: 1514,
            batch: 64,
            memory_bytes: 32 << 20,
        }
    }
}

impl Default for BandsConfig {
    fn default() -> Self {
        Self { bands: 5, limit: Amount::Packets(1000), push_out: true, cutoffs: None }
    }
}

impl Default for RankedConfig {
    fn default() -> Self {
        Self { limit_pkts: 1000, flow_limit_pkts: 100 }
    }
}

impl Default for FqConfig {
    fn default() -> Self {
        Self {
            limit_pkts: 10_000,
            flow_limit_pkts: 100,
            quantum_bytes: 2 * 1514,
            initial_quantum_bytes: 10 * 1514,
            refill_delay: Nanos::from_millis(40),
        }
    }
}

impl Default for SfqConfig {
    fn default() -> Self {
        Self { limit_pkts: 127, depth_pkts: 127, flows: 128, divisor: 1024, quantum_bytes: 1514 }
    }
}

impl Default for CakeConfig {
    fn default() -> Self {
        let rate = Rate::from_bits_per_s(10_000_000).expect("10 Mbit/s is a rate");
        Self { rate, rtt: Nanos::from_millis(100), memory_bytes: None }
    }
}

/// A configuration that cannot be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No discipline has that name.
    #[error(
        "{0:?} is no queue discipline{then}, with keys as in red:limit=180,min=30,max=90",
        then = spelling::did_you_mean(.0, Config::KINDS, &format!("known are {}", Config::KINDS.join(", ")))
    )]
    Kind(String),
    /// The table does not say which.
    #[error(
        "a queue discipline has no kind; add kind = \"red\", or another of {known}",
        known = Config::KINDS.join(", ")
    )]
    NoKind,
    /// The discipline has no such parameter.
    #[error("{kind}: {key:?} is no key of it{then}", then = spelling::did_you_mean(.key, .known.split(", "), &format!("it has {known}")))]
    Key {
        /// Of which discipline.
        kind: &'static str,
        /// What was given.
        key: String,
        /// What would do.
        known: String,
    },
    /// A parameter that was given twice.
    #[error("{kind}: {key} is given twice; leave one")]
    Twice {
        /// Of which discipline.
        kind: String,
        /// Which parameter.
        key: String,
    },
    /// A value that the parameter cannot have.
    #[error("{kind}: {key}={text}: {wanted}")]
    Value {
        /// Of which discipline.
        kind: &'static str,
        /// Which parameter.
        key: &'static str,
        /// What was given.
        text: String,
        /// What would do.
        wanted: &'static str,
    },
    /// Values that do not go together.
    #[error("{kind}: {what}")]
    Contradiction {
        /// Of which discipline.
        kind: &'static str,
        /// Which, and what would do.
        what: String,
    },
}

/// Whether values can be worked with, each and together.
struct Check {
    kind: &'static str,
}

impl Check {
    fn value(
        &self,
        is_good: bool,
        key: &'static str,
        text: &dyn fmt::Display,
        wanted: &'static str,
    ) -> Result<(), ConfigError> {
        let refused = || ConfigError::Value { kind: self.kind, key, text: text.to_string(), wanted };
        is_good.then_some(()).ok_or_else(refused)
    }

    fn together(&self, is_good: bool, what: impl FnOnce() -> String) -> Result<(), ConfigError> {
        is_good.then_some(()).ok_or_else(|| ConfigError::Contradiction { kind: self.kind, what: what() })
    }

    fn limit(&self, limit: Amount) -> Result<(), ConfigError> {
        self.room("limit", limit.number(), &limit)
    }

    fn room(&self, key: &'static str, number: u32, text: &dyn fmt::Display) -> Result<(), ConfigError> {
        self.value(number > 0, key, text, "nothing could wait; say at least 1")
    }
}

impl DropTailConfig {
    pub(crate) fn check(&self, kind: &'static str) -> Result<(), ConfigError> {
        Check { kind }.limit(self.limit)
    }
}

impl RedConfig {
    pub(crate) fn check(&self, kind: &'static str) -> Result<(), ConfigError> {
        let check = Check { kind };
        let Self { limit, min, max, .. } = *self;
        check.limit(limit)?;
        check.value(min.number() > 0, "min", &min, "an empty queue would drop; say at least 1")?;
        check.together(min.has_unit_of(max), || {
            format!("min={min} and max={max} are not in one unit; give both in packets, or both in bytes")
        })?;
        check.together(min.number() < max.number(), || {
            format!("min={min} is not below max={max}; the probability of a drop rises from one to the other")
        })?;
        check.together(!max.has_unit_of(limit) || max.number() <= limit.number(), || {
            format!("max={max} is above limit={limit}, which no average can reach; raise limit or lower max")
        })?;
        let probability = self.max_probability;
        check.value(
            probability > 0.0 && probability <= 1.0,
            "max_p",
            &probability,
            "a probability above 0, up to 1",
        )?;
        check.value(
            (LEAST_WEIGHT..=1.0).contains(&self.weight),
            "w",
            &self.weight,
            "the weight of one arrival in the average, from 2^-24 to 1",
        )?;
        let mean = self.mean_packet_bytes;
        check.value(MEAN_PACKET.contains(&mean), "mean", &mean, "bytes of a mean packet, from 40 to 65536")
    }
}

impl RedFavorConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = Check { kind: "redfavor" };
        self.red.check(check.kind)?;
        let Some(Guard { share, places }) = self.guard else { return Ok(()) };
        check.value(
            share > 0.0 && share <= 1.0,
            "guard",
            &share,
            "a share of the rate above 0, up to 1, or off",
        )?;
        check.value(
            places.number() > 0,
            "places",
            &places,
            "no packet could be protected; say at least 1",
        )?;
        let min = self.red.min;
        check.together(places.has_unit_of(min), || {
            format!("places={places} and min={min} are not in one unit; give both in the same")
        })?;
        check.together(places.number() <= min.number(), || {
            format!("places={places} is above min={min}; a flood alone would bring the average to where others are dropped")
        })
    }
}

impl CodelConfig {
    pub(crate) fn check(&self, kind: &'static str) -> Result<(), ConfigError> {
        let check = Check { kind };
        check.limit(self.limit)?;
        check.value(self.target > Nanos::ZERO, "target", &self.target, "a time above 0, as in 5ms")?;
        check.together(self.target < self.interval, || {
            format!(
                "target={} is not below interval={}; a twentieth of it is usual (RFC 8289)",
                self.target, self.interval
            )
        })?;
        check.value(self.mtu_bytes > 0, "mtu", &self.mtu_bytes, "bytes of the largest packet, above 0")
    }
}

impl FqCodelConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = Check { kind: "fq-codel" };
        self.codel.check(check.kind)?;
        let limit = self.codel.limit;
        check.value(
            matches!(limit, Amount::Packets(_)),
            "limit",
            &limit,
            "packets, without a unit; bytes are bounded by memory",
        )?;
        check.value(FLOWS.contains(&self.flows), "flows", &self.flows, "queues, from 1 to 65536")?;
        let quantum = self.quantum_bytes;
        check.value(quantum >= LEAST_QUANTUM, "quantum", &quantum, "bytes of a turn, at least 256")?;
        check.value(self.batch > 0, "batch", &self.batch, "packets that are dropped at once, at least 1")?;
        let memory = self.memory_bytes;
        check.value(memory > 0, "memory", &memory, "nothing could wait; say bytes, as in 32MiB")
    }
}

impl BandsConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = Check { kind: "bands" };
        check.limit(self.limit)?;
        check.value(BANDS.contains(&self.bands), "bands", &self.bands, "bands, from 1 to 64")?;
        let cutoffs = self.cutoffs.map_or(u32::from(self.bands) - 1, |cutoffs| cutoffs.count);
        check.together(u32::from(self.bands) == cutoffs + 1, || {
            let (bands, with) = (self.bands, cutoffs + 1);
            format!("bands={bands} does not go with {cutoffs} cutoffs, which make {with}; leave bands out")
        })
    }
}

impl RankedConfig {
    pub(crate) fn check(&self, kind: &'static str) -> Result<(), ConfigError> {
        let check = Check { kind };
        check.room("limit", self.limit_pkts, &self.limit_pkts)?;
        check.room("flow_limit", self.flow_limit_pkts, &self.flow_limit_pkts)
    }
}

impl FqConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = Check { kind: "fq" };
        check.room("limit", self.limit_pkts, &self.limit_pkts)?;
        check.room("flow_limit", self.flow_limit_pkts, &self.flow_limit_pkts)?;
        for (key, quantum) in
            [("quantum", self.quantum_bytes), ("initial_quantum", self.initial_quantum_bytes)]
        {
            check.value(
                (LEAST_QUANTUM..=MOST_QUANTUM).contains(&quantum),
                key,
                &quantum,
                "bytes of a turn, from 256 to 1048576",
            )?;
        }
        Ok(())
    }
}

impl SfqConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = Check { kind: "sfq" };
        check.room("limit", self.limit_pkts, &self.limit_pkts)?;
        check.room("depth", self.depth_pkts, &self.depth_pkts)?;
        let Self { flows, divisor, quantum_bytes: quantum, .. } = *self;
        check.value(FLOWS.contains(&flows), "flows", &flows, "queues, from 1 to 65536")?;
        check.value(FLOWS.contains(&divisor), "divisor", &divisor, "values of the hash, from 1 to 65536")?;
        check.value(
            (LEAST_QUANTUM..=MOST_QUANTUM).contains(&quantum),
            "quantum",
            &quantum,
            "bytes of a turn, from 256 to 1048576",
        )
    }
}

impl CakeConfig {
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let check = Check { kind: "cake" };
        check.value(RTT.contains(&self.rtt), "rtt", &self.rtt, "a time from 1us to 10s, as in 100ms")?;
        self.memory_bytes.map_or(Ok(()), |memory| check.room("memory", memory, &memory))
    }
}

impl Config {
    /// Names of the disciplines.
    pub const KINDS: [&str; 12] = [
        "droptail", "red", "choke", "redfavor", "codel", "fq-codel", "bands", "srpt", "las", "fq", "sfq",
        "cake",
    ];

    /// The discipline's name.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::DropTail(_) => "droptail",
            Self::Red(_) => "red",
            Self::Choke(_) => "choke",
            Self::RedFavor(_) => "redfavor",
            Self::Codel(_) => "codel",
            Self::FqCodel(_) => "fq-codel",
            Self::Bands(_) => "bands",
            Self::Srpt(_) => "srpt",
            Self::Las(_) => "las",
            Self::Fq(_) => "fq",
            Self::Sfq(_) => "sfq",
            Self::Cake(_) => "cake",
        }
    }

    /// Whether the discipline asks for [`Packet::left`](crate::Packet::left) or
    /// [`Packet::attained`](crate::Packet::attained), so that somebody must know them.
    pub const fn goes_by_response(&self) -> bool {
        match self {
            Self::Srpt(_) | Self::Las(_) => true,
            Self::Bands(bands) => bands.cutoffs.is_some(),
            _ => false,
        }
    }

    /// Why it cannot be had, if so. What was parsed can.
    pub fn check(&self) -> Result<(), ConfigError> {
        match self {
            Self::DropTail(config) => config.check(self.kind()),
            Self::Red(config) | Self::Choke(config) => config.check(self.kind()),
            Self::RedFavor(config) => config.check(),
            Self::Codel(config) => config.check(self.kind()),
            Self::FqCodel(config) => config.check(),
            Self::Bands(config) => config.check(),
            Self::Srpt(config) | Self::Las(config) => config.check(self.kind()),
            Self::Fq(config) => config.check(),
            Self::Sfq(config) => config.check(),
            Self::Cake(config) => config.check(),
        }
    }
}
