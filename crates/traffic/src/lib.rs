//! Says when attempts are meant to start and what they ask for, from a seed.
//!
//! A schedule is open loop: it does not wait for the server, so waiting behind a slow server is
//! part of what is measured. What it is not: a clock, or a client; it sends nothing.

mod bursts;
mod files;
mod log;
mod sessions;
mod shape;
mod sizes;
#[cfg(test)]
mod testing;
mod words;
mod workload;

use std::sync::Arc;

use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use units::Nanos;

pub use bursts::Bursts;
pub use files::{File, SpecWeb};
pub use log::{Entry, Replay, WORLD_CUP_RECORD};
pub use sessions::Sessions;
pub use shape::{Piece, Shape};
pub use sizes::{BoundedPareto, HeavyTail, ParetoII};
pub use words::{parse_sessions, parse_shape};
pub use workload::{Kind, Object, Path, Table, Workload};

/// Highest rate that a schedule takes, attempts/s: far beyond any machine, and its gaps are still
/// nanoseconds.
pub const MAX_RATE: f64 = 1e8;

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
    /// Start of the attempt that comes next, nanoseconds since the start; of bursts, the time in
    /// them only, and of a shape the time at a multiple of 1.
    next_ns: f64,
    /// The same as a moment of the run: it is asked for more often than it changes.
    start: Nanos,
    random: Pcg64Mcg,
    gaps: Option<Gaps>,
    shape: Option<Shape>,
    /// A log in place of all that, and which of its requests comes next.
    replay: Option<(Arc<Replay>, u64)>,
}

/// What starts between bursts.
#[derive(Debug)]
struct Gaps {
    bursts: Bursts,
    /// Which attempt of all gaps comes next, from 0.
    next: u64,
}

impl Schedule {
    /// A schedule of `rate` attempts per second that begins at time zero. The same seed gives the
    /// same starts.
    ///
    /// # Panics
    ///
    /// When `rate` is not a positive number.
    pub fn new(arrivals: Arrivals, rate: f64, seed: u64) -> Self {
        assert!(rate > 0.0 && rate.is_finite(), "a rate of {rate} per second has no schedule");
        let random = Pcg64Mcg::seed_from_u64(seed);
        let (gap_ns, start) = (1e9 / rate, Nanos::ZERO);
        Self { arrivals, gap_ns, next_ns: 0.0, start, random, gaps: None, shape: None, replay: None }
    }

    /// A schedule that comes in bursts, the first at time zero, with `rate` attempts per second as
    /// the mean over bursts and gaps. Attempts of a burst follow each other as `arrivals` says,
    /// those of a gap once a second.
    ///
    /// # Panics
    ///
    /// When [`Bursts::rate_in_burst`] has no rate, or an infinite one.
    pub fn in_bursts(arrivals: Arrivals, rate: f64, bursts: Bursts, seed: u64) -> Self {
        let in_burst = bursts.rate_in_burst(rate).expect("a mean above what starts in the gaps");
        let gaps = Some(Gaps { bursts, next: 0 });
        Self { gaps, ..Self::new(arrivals, in_burst, seed) }.begun()
    }

    /// A schedule whose rate is `rate` times what the shape says at each moment.
    ///
    /// # Panics
    ///
    /// When `rate` is not a positive number.
    pub fn shaped(arrivals: Arrivals, rate: f64, shape: Shape, seed: u64) -> Self {
        Self { shape: Some(shape), ..Self::new(arrivals, rate, seed) }.begun()
    }

    /// The times of a log. After its end nothing starts any more.
    pub fn of_log(replay: Arc<Replay>) -> Self {
        Self { replay: Some((replay, 0)), ..Self::new(Arrivals::Fixed, 1.0, 0) }.begun()
    }

    /// Intended start of the attempt that comes next; [`Nanos::MAX`] when none does.
    pub fn intended_start(&self) -> Nanos {
        self.start
    }

    fn begun(mut self) -> Self {
        self.start = self.find_start();
        self
    }

    fn find_start(&self) -> Nanos {
        if let Some((replay, next)) = &self.replay {
            return replay.start(*next).unwrap_or(Nanos::MAX);
        }
        match (&self.gaps, &self.shape) {
            (Some(gaps), _) => gaps.bursts.moment_in_burst(self.next_ns).min(gaps.next_start()),
            (None, Some(shape)) => shape.moment(self.next_ns / 1e9),
            (None, None) => Nanos(self.next_ns as u64),
        }
    }

    /// Goes on to the attempt after that. The sum of gaps keeps fractions, so that the rate does
    /// not drift.
    pub fn advance(&mut self) {
        self.go_on();
        self.start = self.find_start();
    }

    fn go_on(&mut self) {
        if let Some((_, next)) = &mut self.replay {
            *next += 1;
            return;
        }
        if let Some(gaps) = &mut self.gaps
            && gaps.next_start() < gaps.bursts.moment_in_burst(self.next_ns)
        {
            gaps.next += 1;
            return;
        }
        self.next_ns += match self.arrivals {
            Arrivals::Fixed => self.gap_ns,
            Arrivals::Poisson => {
                let unit: f64 = Exp1.sample(&mut self.random);
                unit * self.gap_ns
            }
        };
    }
}

impl Gaps {
    fn next_start(&self) -> Nanos {
        self.bursts.start_in_gap(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(schedule: &mut Schedule) -> Nanos {
        let start = schedule.intended_start();
        schedule.advance();
        start
    }

    fn starts(arrivals: Arrivals, seed: u64, count: usize) -> Vec<Nanos> {
        let mut schedule = Schedule::new(arrivals, 3000.0, seed);
        (0..count).map(|_| next(&mut schedule)).collect()
    }

    const CYCLE: Nanos = Nanos::from_secs(15);

    /// Starts in so many bursts of 10 s with gaps of 5 s, a mean of 3000/s.
    fn starts_in_bursts(arrivals: Arrivals, seed: u64, bursts: u64) -> Vec<Nanos> {
        let ten_and_five = Bursts::new(Nanos::from_secs(10), Nanos::from_secs(5)).expect("not zero");
        let mut schedule = Schedule::in_bursts(arrivals, 3000.0, ten_and_five, seed);
        let end = Nanos(CYCLE.0 * bursts);
        std::iter::repeat_with(|| next(&mut schedule)).take_while(|&start| start < end).collect()
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

    #[test]
    fn bursts_and_gaps_have_the_mean_that_was_asked_for() {
        let fixed = starts_in_bursts(Arrivals::Fixed, 1, 100).len();
        assert!(fixed.abs_diff(4_500_000) <= 1, "{fixed} starts in 1500 s");
        let poisson = starts_in_bursts(Arrivals::Poisson, 1, 100).len() as f64;
        assert!((poisson / 4_500_000.0 - 1.0).abs() < 0.002, "{poisson} starts in 1500 s");
    }

    #[test]
    fn gap_has_one_start_a_second_and_the_burst_all_others() {
        for arrivals in [Arrivals::Fixed, Arrivals::Poisson] {
            let starts = starts_in_bursts(arrivals, 1, 3);
            assert!(starts.is_sorted());
            let into_cycle = starts.iter().map(|start| start.0 % CYCLE.0);
            let in_gaps: Vec<u64> = into_cycle.filter(|&into| into >= Nanos::from_secs(10).0).collect();
            let each_second = [10, 11, 12, 13, 14].map(|second| Nanos::from_secs(second).0);
            assert_eq!(in_gaps, each_second.repeat(3), "{arrivals:?}");
        }
    }

    #[test]
    fn every_part_of_a_burst_has_its_share() {
        let mut thirds = [0_u32; 3];
        for start in starts_in_bursts(Arrivals::Poisson, 1, 30) {
            let third = start.0 % CYCLE.0 * 3 / Nanos::from_secs(10).0;
            if let Some(count) = thirds.get_mut(third as usize) {
                *count += 1;
            }
        }
        for count in thirds {
            assert!((f64::from(count) / 450_000.0 - 1.0).abs() < 0.01, "{thirds:?}");
        }
    }

    #[test]
    fn same_seed_gives_the_same_bursts_and_another_seed_others() {
        let poisson = |seed| starts_in_bursts(Arrivals::Poisson, seed, 1);
        assert_eq!(poisson(7), poisson(7));
        assert_ne!(poisson(7), poisson(8));
    }
}
