//! `kernel/red.h`, called on the host: the code that the qdisc runs.

use kernel::{RedAction, RedParams, RedState, RedfavorAction, RedfavorGuard, RedfavorState};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Nanos;

use crate::config::{Guard, RedConfig, RedFavorConfig};
use crate::{Amount, DropReason};

/// A weight or probability of 1.
const ONE: f64 = kernel::RED_ONE as f64;
/// A share of 1.
const SHARE_ONE: f64 = kernel::REDFAVOR_ONE_BYTE as f64;
/// So much credit can at least be saved up, bytes: a jumbo frame that is pushed out must be
/// payable.
const LEAST_BURST: u64 = 10_000;

/// The random numbers of a queue: RED is handed the next one at each arrival, needed or not, so
/// that a replay of the same arrivals elsewhere can be handed the same.
#[derive(Debug, Clone)]
pub struct RandomNumbers(Pcg64Mcg);

impl RandomNumbers {
    /// The same for the same seed, on every machine.
    pub fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::seed_from_u64(seed))
    }

    /// Uniform over all 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// Uniform below `n`, to within `n` over 2^32.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(n)) >> 32) as u32
    }
}

/// RED's average, and what it decides.
#[derive(Debug, Clone)]
pub(crate) struct Red {
    params: RedParams,
    state: RedState,
    is_in_bytes: bool,
}

impl Red {
    /// The configuration must have been checked.
    pub(crate) fn new(config: &RedConfig) -> Self {
        let is_in_bytes = matches!(config.min, Amount::Bytes(_));
        Self { params: params(config), state: RedState::default(), is_in_bytes }
    }

    /// RED's measure of a queue.
    pub(crate) fn qlen(&self, qlen_pkts: u32, qlen_bytes: u64) -> u32 {
        if self.is_in_bytes { u32::try_from(qlen_bytes).unwrap_or(u32::MAX) } else { qlen_pkts }
    }

    /// And of a packet.
    pub(crate) fn size(&self, bytes: u32) -> u32 {
        if self.is_in_bytes { bytes } else { 1 }
    }

    /// A packet arrives at a queue of that length without it: whether it may be dropped by the
    /// average.
    pub(crate) fn update(&mut self, qlen: u32, now: Nanos) -> bool {
        kernel::red_update(&self.params, &mut self.state, qlen, now.0);
        kernel::red_is_at_stake(&self.params, &self.state, qlen)
    }

    /// After [`Red::update`] with the same length: why the packet is to be dropped, if it is.
    pub(crate) fn decide(&mut self, qlen: u32, bytes: u32, random: u32) -> Option<DropReason> {
        match kernel::red_decide(&self.params, &mut self.state, qlen, bytes, random) {
            RedAction::Take => None,
            RedAction::DropEarly => Some(DropReason::Early),
            RedAction::DropForced => Some(DropReason::Forced),
        }
    }

    pub(crate) fn left_empty(&mut self, now: Nanos) {
        kernel::red_left_empty(&mut self.state, now.0);
    }

    /// In packets or bytes.
    pub(crate) fn average(&self) -> f64 {
        FixedPoint::average(self.state.average)
    }
}

fn params(config: &RedConfig) -> RedParams {
    RedParams {
        min: config.min.number(),
        max: config.max.number(),
        unit: if matches!(config.min, Amount::Bytes(_)) { config.mean_packet_bytes } else { 1 },
        is_gentle: config.is_gentle.into(),
        waits: config.waits.into(),
        spares_one: config.spares_one.into(),
        max_probability: (config.max_probability * ONE).round() as u64,
        weight: (config.weight * ONE).round() as u64,
        slot_ns: config.rate.transmission_ns(config.mean_packet_bytes.into()).max(1),
    }
}

/// RED's probability of dropping a packet by the average alone (`p_b` in `[FJ93]`), as
/// `kernel/red.h` computes it.
///
/// `average` is in packets or bytes, as the thresholds are. The configuration must be one that
/// [`crate::Red::new`] takes.
pub fn base_probability(config: &RedConfig, average: f64) -> f64 {
    kernel::red_base_probability(&params(config), (average * ONE) as u64) as f64 / ONE
}

/// RED's probability of dropping the packet that just arrived (`p_a` in `[FJ93]`), as
/// `kernel/red.h` computes it.
///
/// `base` is that of [`base_probability`]; `count` says how much arrived since the last drop, with
/// this packet, and `size` how much this one is, both in packets or bytes as the thresholds.
pub fn probability(config: &RedConfig, base: f64, count: u32, size: u32) -> f64 {
    kernel::red_probability(&params(config), (base * ONE).round() as u64, count, size) as f64 / ONE
}

/// A configuration of REDFavor as `kernel/red.h` has it, for the qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPoint {
    /// Of RED.
    pub red: RedParams,
    /// All 0 without a guard.
    pub guard: RedfavorGuard,
}

impl FixedPoint {
    /// The configuration must be one that [`crate::RedFavor::new`] takes.
    pub fn of(config: &RedFavorConfig) -> Self {
        Self { red: params(&config.red), guard: guard(config.guard, config.red.mean_packet_bytes) }
    }

    /// An average of `struct red_state`, in packets or bytes.
    pub fn average(average: u64) -> f64 {
        average as f64 / ONE
    }
}

fn guard(guard: Option<Guard>, mean_packet_bytes: u32) -> RedfavorGuard {
    guard.map_or(RedfavorGuard::default(), |guard| {
        let burst = match guard.places {
            Amount::Packets(packets) => u64::from(packets) * u64::from(mean_packet_bytes),
            Amount::Bytes(bytes) => bytes.into(),
        };
        let share = (guard.share * SHARE_ONE).round().max(1.0) as u32;
        RedfavorGuard { places: guard.places.number(), share, burst: burst.max(LEAST_BURST) }
    })
}

/// REDFavor's guard, and what it has to spend.
#[derive(Debug, Clone)]
pub(crate) struct Favor {
    guard: RedfavorGuard,
    state: RedfavorState,
}

impl Favor {
    /// The configuration must have been checked; `mean_packet_bytes` is RED's.
    pub(crate) fn new(guard: Option<Guard>, mean_packet_bytes: u32) -> Self {
        let guard = self::guard(guard, mean_packet_bytes);
        let mut state = RedfavorState::default();
        kernel::redfavor_begin(&guard, &mut state);
        Self { guard, state }
    }

    /// Whether one more protected packet may wait beside those of that length.
    pub(crate) fn has_place(&self, qlen: u32, size: u32) -> bool {
        kernel::redfavor_has_place(&self.guard, qlen, size)
    }

    /// Algorithm 1 for a protected packet; `last_standard_bytes` is 0 for no standard packet.
    pub(crate) fn make_room(&mut self, needs_room: bool, last_standard_bytes: u32) -> RedfavorAction {
        kernel::redfavor_make_room(&self.guard, &mut self.state, needs_room, last_standard_bytes)
    }

    /// Whether a protected packet goes next; bytes are of the first of each kind, 0 for none.
    pub(crate) fn sends_protected(&mut self, protected_bytes: u32, standard_bytes: u32) -> bool {
        kernel::redfavor_sends_protected(&self.guard, &mut self.state, protected_bytes, standard_bytes)
    }
}
