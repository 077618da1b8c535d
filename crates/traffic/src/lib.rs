//! When attempts are meant to start: seeded schedules without a clock.
//!
//! A schedule is open loop: it does not wait for the server, so that waiting behind a slow server is part of what is
//! measured.

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use units::Nanos;

/// How attempts follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// Evenly spaced, as httperf and the papers have it.
    Fixed,
    /// Independent users: exponentially distributed gaps.
    Poisson,
}

/// The intended starts of an open-loop crowd, one after the other, without end.
#[derive(Debug)]
pub struct Schedule {
    arrivals: Arrivals,
    /// Mean time between attempts, nanoseconds.
    gap_ns: f64,
    /// Start of the attempt that comes next, nanoseconds since the start.
    next_ns: f64,
    random: Pcg64Mcg,
}

impl Schedule {
    /// A schedule of `rate` attempts per second that begins at time zero. The same seed gives the same starts.
    ///
    /// # Panics
    ///
    /// When `rate` is not a positive number.
    pub fn new(arrivals: Arrivals, rate: f64, seed: u64) -> Self {
        assert!(rate > 0.0 && rate.is_finite(), "a rate of {rate} per second has no schedule");
        Self { arrivals, gap_ns: 1e9 / rate, next_ns: 0.0, random: Pcg64Mcg::seed_from_u64(seed) }
    }

    /// Intended start of the attempt that comes next.
    pub fn intended_start(&self) -> Nanos {
        Nanos(self.next_ns as u64)
    }

    /// Goes on to the attempt after that. The sum of gaps keeps fractions, so that the rate does not drift.
    pub fn advance(&mut self) {
        self.next_ns += match self.arrivals {
            Arrivals::Fixed => self.gap_ns,
            Arrivals::Poisson => {
                let unit: f64 = Exp1.sample(&mut self.random);
                unit * self.gap_ns
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(arrivals: Arrivals, seed: u64, count: usize) -> Vec<Nanos> {
        let mut schedule = Schedule::new(arrivals, 3000.0, seed);
        let next = |schedule: &mut Schedule| {
            let start = schedule.intended_start();
            schedule.advance();
            start
        };
        (0..count).map(|_| next(&mut schedule)).collect()
    }

    #[test]
    fn fixed_gaps_do_not_drift() {
        let last = starts(Arrivals::Fixed, 1, 3_000_001)[3_000_000];
        let drift = last.0.abs_diff(Nanos::from_secs(1000).0);
        assert!(drift < 1000, "{drift} ns after 1000 s");
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_variance_of_an_exponential() {
        let starts = starts(Arrivals::Poisson, 1, 300_001);
        let gaps: Vec<f64> =
            starts.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 3000.0).collect();
        let count = gaps.len() as f64;
        let mean = gaps.iter().sum::<f64>() / count;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / count;
        assert!((mean - 1.0).abs() < 0.01, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.03, "variance {variance}");
    }

    #[test]
    fn same_seed_gives_the_same_crowd_and_another_seed_another() {
        assert_eq!(starts(Arrivals::Poisson, 7, 100), starts(Arrivals::Poisson, 7, 100));
        assert_ne!(starts(Arrivals::Poisson, 7, 100), starts(Arrivals::Poisson, 8, 100));
    }
}
