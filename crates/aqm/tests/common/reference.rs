//! RED and REDFavor as the papers have them, in floating point, to hold `kernel/red.h` against.
//! Weight and probability are rounded to 32 bits as there.

use aqm::{Amount, RandomNumbers, RedConfig};
use units::Nanos;

use super::Sample;

const ONE: f64 = 4_294_967_296.0;

/// `[FJ93]` figure 2, with gentle, ns-2's wait and byte mode.
pub struct Red {
    config: RedConfig,
    random: RandomNumbers,
    pub average: f64,
    idle_since: Nanos,
    /// -1 as in the paper while the average is below the minimum; packets or bytes.
    count: f64,
}

impl Red {
    pub fn new(config: &RedConfig, seed: u64) -> Self {
        let random = RandomNumbers::new(seed);
        let [weight, max_probability] =
            [config.weight, config.max_probability].map(|number| (number * ONE).round() / ONE);
        let config = RedConfig { weight, max_probability, ..*config };
        Self { config, random, average: 0.0, idle_since: Nanos::ZERO, count: -1.0 }
    }

    pub fn next_random(&mut self) -> f64 {
        f64::from(self.random.next_u32()) / ONE
    }

    pub fn left_empty(&mut self, now: Nanos) {
        self.idle_since = now;
    }

    /// Whether the packet is to be dropped.
    pub fn arrival(&mut self, qlen: u32, bytes: u32, now: Nanos, random: f64) -> bool {
        self.update(qlen, now);
        let is_in_bytes = matches!(self.config.min, Amount::Bytes(_));
        let (size, unit) = if is_in_bytes {
            (f64::from(bytes), f64::from(self.config.mean_packet_bytes))
        } else {
            (1.0, 1.0)
        };
        let min = f64::from(self.config.min.number());
        if self.average < min || (self.config.spares_one && qlen <= 1) {
            self.count = -1.0;
            return false;
        }
        let base = self.base_probability();
        if base < 1.0 {
            self.count = if self.count < 0.0 { 0.0 } else { self.count + size };
            let is_dropped = random < self.probability(base, self.count / unit) * size / unit;
            if !is_dropped {
                return false;
            }
        }
        self.count = 0.0;
        true
    }

    fn update(&mut self, qlen: u32, now: Nanos) {
        let weight = self.config.weight;
        if qlen > 0 {
            self.average += weight * (f64::from(qlen) - self.average);
            return;
        }
        let slot_ns = self.config.rate.transmission_ns(self.config.mean_packet_bytes.into());
        let slots = now.since(self.idle_since).0 / slot_ns;
        self.idle_since += Nanos(slots * slot_ns);
        self.average *= (1.0 - weight).powf(slots as f64);
    }

    pub fn base_probability(&self) -> f64 {
        let RedConfig { max_probability, is_gentle, .. } = self.config;
        let [min, max] = [self.config.min, self.config.max].map(|amount| f64::from(amount.number()));
        match self.average {
            average if average < min => 0.0,
            average if average < max => max_probability * (average - min) / (max - min),
            average if is_gentle && average < 2.0 * max => {
                max_probability + (1.0 - max_probability) * (average - max) / max
            }
            _ => 1.0,
        }
    }

    /// `p_a`; `count` in packets. As in ns-2, what is certain is so for small packets, too.
    fn probability(&self, base: f64, count: f64) -> f64 {
        let passed = count * base;
        let certain_at = if self.config.waits { 2.0 } else { 1.0 };
        if self.config.waits && passed < 1.0 {
            return 0.0;
        }
        let probability = base / (certain_at - passed);
        if passed >= certain_at || probability >= 1.0 { f64::INFINITY } else { probability }
    }
}

/// `[RF]` Algorithm 1, line by line, in packets.
pub struct Algorithm1 {
    limit: usize,
    red: Red,
    /// Protected packets first, as they are sent.
    pub queue: Vec<Sample>,
    pub dropped: Vec<Sample>,
    is_protected: fn(&Sample) -> bool,
}

impl Algorithm1 {
    pub fn new(config: &RedConfig, seed: u64, is_protected: fn(&Sample) -> bool) -> Self {
        let limit = config.limit.number() as usize;
        Self { limit, red: Red::new(config, seed), queue: Vec::new(), dropped: Vec::new(), is_protected }
    }

    pub fn enqueue(&mut self, p: Sample, now: Nanos) {
        let random = self.red.next_random();
        let is_early_drop = self.red.arrival(self.queue.len() as u32, p.bytes, now, random);
        let is_full = self.queue.len() == self.limit;
        let only_protected = self.queue.iter().all(self.is_protected);
        if (self.is_protected)(&p) {
            if is_full || is_early_drop {
                if only_protected {
                    self.dropped.push(p);
                    return;
                }
                self.dropped.extend(self.queue.pop());
            }
            let in_front_of = self.queue.iter().take_while(|packet| (self.is_protected)(packet)).count();
            self.queue.insert(in_front_of, p);
        } else if is_full || is_early_drop {
            self.dropped.push(p);
        } else {
            self.queue.push(p);
        }
    }

    pub fn dequeue(&mut self, now: Nanos) -> Option<Sample> {
        let packet = (!self.queue.is_empty()).then(|| self.queue.remove(0))?;
        if self.queue.is_empty() {
            self.red.left_empty(now);
        }
        Some(packet)
    }
}
