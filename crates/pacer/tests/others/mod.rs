//! What others do, told a tick at a time what our law is told, with the constants that they come
//! with.

use std::collections::VecDeque;

use pacer::limit::Limit;
use units::Nanos;

use crate::model::Seen;

/// Finds a limit.
pub trait Law {
    fn limit(&self) -> u32;
    /// Goes on by what was seen in the last `elapsed`.
    fn tick(&mut self, seen: &Seen, elapsed: Nanos);
}

impl Law for Limit {
    fn limit(&self) -> u32 {
        self.now()
    }

    fn tick(&mut self, seen: &Seen, elapsed: Nanos) {
        Self::tick(self, seen.tick(elapsed));
    }
}

fn mean(seen: &Seen) -> Option<f64> {
    (seen.answered > 0).then(|| seen.response.as_secs_f64() / seen.answered as f64)
}

/// Gradient2Limit of Netflix's concurrency-limits, 0.5: a long average of the response time over a
/// short one, tolerating half as much again.
pub struct Gradient2 {
    limit: f64,
    long: f64,
}

impl Default for Gradient2 {
    fn default() -> Self {
        Self { limit: 20.0, long: 0.0 }
    }
}

impl Law for Gradient2 {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn tick(&mut self, seen: &Seen, _elapsed: Nanos) {
        const LONG_WINDOW: f64 = 600.0;
        const TOLERANCE: f64 = 1.5;
        const QUEUE: f64 = 4.0;
        const SMOOTHING: f64 = 0.2;
        let Some(short) = mean(seen) else { return };
        let weight = 2.0 / (LONG_WINDOW + 1.0);
        self.long = if self.long == 0.0 { short } else { self.long + weight * (short - self.long) };
        if self.long > 2.0 * short {
            self.long *= 0.95;
        }
        let gradient = (TOLERANCE * self.long / short).clamp(0.5, 1.0);
        let wanted = self.limit * gradient + QUEUE;
        self.limit = (self.limit * (1.0 - SMOOTHING) + SMOOTHING * wanted).clamp(20.0, 200.0);
    }
}

/// VegasLimit of the same: those that queue are the limit times what the response takes beyond the
/// shortest one.
pub struct Vegas {
    limit: f64,
    shortest: f64,
    /// Answers until the shortest is measured anew.
    left: f64,
}

impl Default for Vegas {
    fn default() -> Self {
        Self { limit: 20.0, shortest: f64::INFINITY, left: 0.0 }
    }
}

impl Law for Vegas {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn tick(&mut self, seen: &Seen, _elapsed: Nanos) {
        const PROBE_MULTIPLIER: f64 = 30.0;
        let Some(response) = mean(seen) else { return };
        self.left -= seen.answered as f64;
        if self.left <= 0.0 {
            self.left = PROBE_MULTIPLIER * self.limit;
            self.shortest = response;
            return;
        }
        self.shortest = self.shortest.min(response);
        let log = self.limit.log10().max(1.0);
        let queue = (self.limit * (1.0 - self.shortest / response)).ceil();
        if queue <= log {
            self.limit += 6.0 * log;
        } else if queue < 3.0 * log {
            self.limit += log;
        } else if queue > 6.0 * log {
            self.limit -= log;
        }
        self.limit = self.limit.clamp(1.0, 1000.0);
    }
}

/// Envoy's adaptive concurrency, 1.3x: the 90th percentile (here the mean) against the response
/// time with three at a time, plus a quarter.
pub struct Envoy {
    limit: f64,
    shortest: Option<f64>,
    /// Of the measurement with three.
    sum: (f64, u64),
    until_measured: Nanos,
}

impl Default for Envoy {
    fn default() -> Self {
        Self { limit: 3.0, shortest: None, sum: (0.0, 0), until_measured: Nanos::ZERO }
    }
}

impl Law for Envoy {
    fn limit(&self) -> u32 {
        if self.shortest.is_none() { 3 } else { self.limit as u32 }
    }

    fn tick(&mut self, seen: &Seen, elapsed: Nanos) {
        const REQUESTS: u64 = 50;
        const EVERY: Nanos = Nanos::from_secs(60);
        const BUFFER: f64 = 1.25;
        let Some(response) = mean(seen) else { return };
        self.until_measured = self.until_measured.since(elapsed);
        if self.until_measured == Nanos::ZERO {
            self.until_measured = EVERY;
            (self.shortest, self.sum) = (None, (0.0, 0));
        }
        let Some(shortest) = self.shortest else {
            self.sum.0 += seen.response.as_secs_f64();
            self.sum.1 += seen.answered;
            if self.sum.1 >= REQUESTS {
                self.shortest = Some(self.sum.0 / self.sum.1 as f64);
            }
            return;
        };
        let gradient = (BUFFER * shortest / response).min(2.0);
        self.limit = (self.limit * gradient + self.limit.sqrt()).clamp(3.0, 1000.0);
    }
}

/// As BBR probes a path (Cardwell and others 2016). The limit is the best rate of the last ten
/// ticks times the shortest response time. In one of eight ticks it is a quarter more, and in the
/// next a quarter less.
pub struct Bbr {
    rates: VecDeque<f64>,
    shortest: f64,
    turn: usize,
    limit: f64,
}

impl Default for Bbr {
    fn default() -> Self {
        Self { rates: VecDeque::new(), shortest: f64::INFINITY, turn: 0, limit: 32.0 }
    }
}

impl Law for Bbr {
    fn limit(&self) -> u32 {
        self.limit.ceil() as u32
    }

    fn tick(&mut self, seen: &Seen, elapsed: Nanos) {
        const GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        let Some(response) = mean(seen) else { return };
        self.shortest = self.shortest.min(response);
        self.rates.push_back(seen.answered as f64 / elapsed.as_secs_f64());
        if self.rates.len() > 10 {
            self.rates.pop_front();
        }
        let best = self.rates.iter().copied().fold(0.0, f64::max);
        self.turn = (self.turn + 1) % GAINS.len();
        self.limit = (GAINS[self.turn] * best * self.shortest).max(1.0);
    }
}

/// As many as are answered within a target: CoDel's 5 ms (RFC 8289), or DAGOR's 20 ms of queueing
/// (Zhou and others, SoCC 2018).
pub struct Target {
    target: f64,
    rate: f64,
}

impl Target {
    pub fn new(target: Nanos) -> Self {
        Self { target: target.as_secs_f64(), rate: 0.0 }
    }
}

impl Law for Target {
    fn limit(&self) -> u32 {
        if self.rate == 0.0 { 32 } else { (self.rate * self.target).max(1.0).round() as u32 }
    }

    fn tick(&mut self, seen: &Seen, elapsed: Nanos) {
        let rate = seen.answered as f64 / elapsed.as_secs_f64();
        self.rate = if self.rate == 0.0 { rate } else { self.rate + 0.2 * (rate - self.rate) };
    }
}

/// Breakwater's credits (Cho and others, OSDI 2020): more while the delay is below the target,
/// fewer by how much it is above.
pub struct Breakwater {
    target: f64,
    credits: f64,
}

impl Breakwater {
    pub fn new(target: Nanos) -> Self {
        Self { target: target.as_secs_f64(), credits: 32.0 }
    }
}

impl Law for Breakwater {
    fn limit(&self) -> u32 {
        self.credits as u32
    }

    fn tick(&mut self, seen: &Seen, _elapsed: Nanos) {
        const BETA: f64 = 0.02;
        let Some(delay) = mean(seen) else { return };
        if delay < self.target {
            self.credits += 1.0;
        } else {
            self.credits *= (1.0 - BETA * (delay - self.target) / self.target).max(0.5);
        }
        self.credits = self.credits.max(1.0);
    }
}
