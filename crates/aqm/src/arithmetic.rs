//! `kernel/red.h`, called on the host: the code that the qdisc runs.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use units::Nanos;

use crate::config::{Guard, RedConfig, RedFavorConfig};
use crate::{Amount, DropReason};

/// `RED_ONE`: a weight or probability of 1.
const ONE: f64 = (1u64 << 32) as f64;
/// A share of 1.
const SHARE_ONE: f64 = 65536.0;
/// So much credit can at least be saved up, bytes: a jumbo frame that is pushed out must be payable.
const LEAST_BURST: u64 = 10_000;

/// The random numbers of a queue: RED is handed the next one at each arrival, needed or not, so that a replay of the same arrivals elsewhere can be handed
/// the same.
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
    /// `struct red_params`.
    params: [u64; 9],
    /// `struct red_state`.
    state: [u64; 3],
    is_in_bytes: bool,
}

impl Red {
    /// The configuration must have been checked.
    pub(crate) fn new(config: &RedConfig) -> Self {
        Self { params: params(config), state: [0; 3], is_in_bytes: matches!(config.min, Amount::Bytes(_)) }
    }

    /// RED's measure of a queue.
    pub(crate) fn qlen(&self, qlen_pkts: u32, qlen_bytes: u64) -> u32 {
        if self.is_in_bytes { u32::try_from(qlen_bytes).unwrap_or(u32::MAX) } else { qlen_pkts }
    }

    /// And of a packet.
    pub(crate) fn size(&self, bytes: u32) -> u32 {
        if self.is_in_bytes { bytes } else { 1 }
    }

    /// A packet arrives at a queue of that length without it: whether it may be dropped by the average.
    pub(crate) fn update(&mut self, qlen: u32, now: Nanos) -> bool {
        // SAFETY: reads and writes as many numbers as the arrays have.
        unsafe { tidegate_red_update(self.params.as_ptr(), self.state.as_mut_ptr(), qlen, now.0) != 0 }
    }

    /// After [`Red::update`] with the same length: why the packet is to be dropped, if it is.
    pub(crate) fn decide(&mut self, qlen: u32, bytes: u32, random: u32) -> Option<DropReason> {
        let (params, state) = (self.params.as_ptr(), self.state.as_mut_ptr());
        // SAFETY: reads and writes as many numbers as the arrays have.
        match unsafe { tidegate_red_decide(params, state, qlen, bytes, random) } {
            0 => None,
            1 => Some(DropReason::Early),
            2 => Some(DropReason::Forced),
            action => unreachable!("red.h has no action {action}"),
        }
    }

    pub(crate) fn left_empty(&mut self, now: Nanos) {
        // SAFETY: reads and writes as many numbers as the array has.
        unsafe { tidegate_red_left_empty(self.state.as_mut_ptr(), now.0) }
    }

    /// In packets or bytes.
    pub(crate) fn average(&self) -> f64 {
        FixedPoint::average(self.state[0])
    }
}

/// The fields of `struct red_params`, in its order.
fn params(config: &RedConfig) -> [u64; 9] {
    let unit = if matches!(config.min, Amount::Bytes(_)) { config.mean_packet_bytes } else { 1 };
    [
        config.min.number().into(),
        config.max.number().into(),
        unit.into(),
        config.is_gentle.into(),
        config.waits.into(),
        config.spares_one.into(),
        (config.max_probability * ONE).round() as u64,
        (config.weight * ONE).round() as u64,
        config.rate.transmission_ns(config.mean_packet_bytes.into()).max(1),
    ]
}

/// RED's probability of dropping a packet by the average alone (`p_b` in `[FJ93]`), as `kernel/red.h` computes it.
///
/// `average` is in packets or bytes, as the thresholds are. The configuration must be one that [`crate::Red::new`] takes.
pub fn base_probability(config: &RedConfig, average: f64) -> f64 {
    let params = params(config);
    // SAFETY: reads as many numbers as the array has.
    let base = unsafe { tidegate_red_base_probability(params.as_ptr(), (average * ONE) as u64) };
    base as f64 / ONE
}

/// RED's probability of dropping the packet that just arrived (`p_a` in `[FJ93]`), as `kernel/red.h` computes it.
///
/// `base` is that of [`base_probability`]; `count` says how much arrived since the last drop, with this packet, and `size` how much this one is, both
/// in packets or bytes as the thresholds.
pub fn probability(config: &RedConfig, base: f64, count: u32, size: u32) -> f64 {
    let params = params(config);
    // SAFETY: reads as many numbers as the array has.
    let probability =
        unsafe { tidegate_red_probability(params.as_ptr(), (base * ONE).round() as u64, count, size) };
    probability as f64 / ONE
}

/// What becomes of a protected packet: `enum redfavor_action`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Take,
    PushOut,
    Drop,
    DropShare,
}

/// A configuration of REDFavor as `kernel/red.h` has it, for the qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixedPoint {
    /// The fields of `struct red_params`, in its order.
    pub red: [u64; 9],
    /// The fields of `struct redfavor_guard`, in its order; all 0 without a guard.
    pub guard: [u64; 3],
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

fn guard(guard: Option<Guard>, mean_packet_bytes: u32) -> [u64; 3] {
    guard.map_or([0; 3], |guard| {
        let burst = match guard.places {
            Amount::Packets(packets) => u64::from(packets) * u64::from(mean_packet_bytes),
            Amount::Bytes(bytes) => bytes.into(),
        };
        let share = (guard.share * SHARE_ONE).round().max(1.0) as u64;
        [guard.places.number().into(), share, burst.max(LEAST_BURST)]
    })
}

/// REDFavor's guard, and what it has to spend.
#[derive(Debug, Clone)]
pub(crate) struct Favor {
    /// `struct redfavor_guard`.
    guard: [u64; 3],
    /// `struct redfavor_state`.
    credit: u64,
}

impl Favor {
    /// The configuration must have been checked; `mean_packet_bytes` is RED's.
    pub(crate) fn new(guard: Option<Guard>, mean_packet_bytes: u32) -> Self {
        let guard = self::guard(guard, mean_packet_bytes);
        // SAFETY: reads as many numbers as the array has.
        let credit = unsafe { tidegate_redfavor_begin(guard.as_ptr()) };
        Self { guard, credit }
    }

    /// Whether one more protected packet may wait beside those of that length.
    pub(crate) fn has_place(&self, qlen: u32, size: u32) -> bool {
        // SAFETY: reads as many numbers as the array has.
        unsafe { tidegate_redfavor_has_place(self.guard.as_ptr(), qlen, size) != 0 }
    }

    /// Algorithm 1 for a protected packet; `last_standard_bytes` is 0 for no standard packet.
    pub(crate) fn make_room(&mut self, needs_room: bool, last_standard_bytes: u32) -> Room {
        // SAFETY: reads as many numbers as the array has, and writes one.
        let action = unsafe {
            tidegate_redfavor_make_room(
                self.guard.as_ptr(),
                &raw mut self.credit,
                needs_room.into(),
                last_standard_bytes,
            )
        };
        match action {
            0 => Room::Take,
            1 => Room::PushOut,
            2 => Room::Drop,
            3 => Room::DropShare,
            action => unreachable!("red.h has no action {action} for protected packets"),
        }
    }

    /// Whether a protected packet goes next; bytes are of the first of each kind, 0 for none.
    pub(crate) fn sends_protected(&mut self, protected_bytes: u32, standard_bytes: u32) -> bool {
        // SAFETY: reads as many numbers as the array has, and writes one.
        unsafe {
            tidegate_redfavor_sends_protected(
                self.guard.as_ptr(),
                &raw mut self.credit,
                protected_bytes,
                standard_bytes,
            ) != 0
        }
    }
}

unsafe extern "C" {
    fn tidegate_red_update(params: *const u64, state: *mut u64, qlen: u32, now_ns: u64) -> i32;
    fn tidegate_red_decide(params: *const u64, state: *mut u64, qlen: u32, bytes: u32, random: u32) -> u32;
    fn tidegate_red_left_empty(state: *mut u64, now_ns: u64);
    fn tidegate_red_base_probability(params: *const u64, average: u64) -> u64;
    fn tidegate_red_probability(params: *const u64, base: u64, count: u32, size: u32) -> u64;
    fn tidegate_redfavor_begin(guard: *const u64) -> u64;
    fn tidegate_redfavor_has_place(guard: *const u64, qlen: u32, size: u32) -> i32;
    fn tidegate_redfavor_make_room(
        guard: *const u64,
        credit: *mut u64,
        needs_room: i32,
        last_standard_bytes: u32,
    ) -> u32;
    fn tidegate_redfavor_sends_protected(
        guard: *const u64,
        credit: *mut u64,
        protected_bytes: u32,
        standard_bytes: u32,
    ) -> i32;
}
