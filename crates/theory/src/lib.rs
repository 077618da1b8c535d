//! Says how long responses take on a link by queueing theory, to be drawn beside what was measured.
//!
//! The model is `[SH06]` section 6.3: an M/GI/1 queue whose load alternates between a low and a
//! high one, with sizes of a Bounded Pareto distribution. FAIR is processor sharing (PS), SRPT is
//! exact and preemptive. [`fair`] and [`srpt`] give the mean response by size. Sizes are bytes,
//! times are seconds, rates are per second.
//!
//! What it is not: the derivation of the paper, which is in a report that the paper cites
//! (CMU-CS-01-134). The approximations here are our own. They are exact where the load is steady
//! below 1, and tend to the fluid limit where it is far above; the tests hold them against
//! simulations of the queue. There is no TCP, no packet, no handshake and no limit of connections.

mod fair;
mod sizes;
mod srpt;
#[cfg(test)]
mod testing;

pub use fair::{Fair, fair};
pub use sizes::BoundedPareto;
pub use srpt::srpt;

/// Load that alternates: low for so long, then high for so long, and so on. A load is bytes asked
/// for per second over bytes that the link sends per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Alternating {
    low_s: f64,
    high_s: f64,
    low: f64,
    high: f64,
}

impl Alternating {
    /// With these periods and loads. `None` where a period is not above zero, a load is negative or
    /// both are zero, or the mean is 1 or more: such a queue grows for ever, and there is no mean
    /// response.
    pub fn new(low_s: f64, high_s: f64, low: f64, high: f64) -> Option<Self> {
        let is_time = |s: f64| s > 0.0 && s.is_finite();
        let is_load = |load: f64| load >= 0.0 && load.is_finite();
        let load = Self { low_s, high_s, low, high };
        let is_any = is_time(low_s) && is_time(high_s) && is_load(low) && is_load(high);
        (is_any && load.mean() > 0.0 && load.mean() < 1.0).then_some(load)
    }

    /// The same load all the time. `None` unless it is above 0 and below 1.
    pub fn steady(load: f64) -> Option<Self> {
        Self::new(1.0, 1.0, load, load)
    }

    /// The mean load.
    pub fn mean(&self) -> f64 {
        (self.low * self.low_s + self.high * self.high_s) / self.cycle_s()
    }

    /// From the beginning of one low period to that of the next, seconds.
    pub fn cycle_s(&self) -> f64 {
        self.low_s + self.high_s
    }

    /// The load at a moment, from 0, the beginning of a low period, and until when it stays so.
    fn at(&self, moment_s: f64) -> (f64, f64) {
        let cycles = (moment_s / self.cycle_s()).floor();
        let start = cycles * self.cycle_s();
        if moment_s - start < self.low_s {
            (self.low, start + self.low_s)
        } else {
            (self.high, start + self.cycle_s())
        }
    }
}

/// Mean responses by size, of requests at any time of a cycle.
#[derive(Debug, Clone, PartialEq)]
pub struct Response {
    /// Over all sizes, seconds.
    pub mean_s: f64,
    /// Sizes, bytes, and the mean response of requests of each, seconds: from the smallest to the
    /// largest.
    pub by_size: Vec<(f64, f64)>,
}

impl Response {
    /// The mean response of a size, seconds; between two sizes by their logarithms, and outside of
    /// all as of the nearest.
    pub fn at(&self, bytes: f64) -> f64 {
        let place = self.by_size.partition_point(|(size, _)| *size < bytes);
        match (place.checked_sub(1).map(|before| self.by_size[before]), self.by_size.get(place).copied()) {
            (Some((low, before)), Some((high, after))) => {
                let part = (bytes / low).ln() / (high / low).ln();
                before * (after / before).powf(part)
            }
            (Some((_, nearest)), None) | (None, Some((_, nearest))) => nearest,
            (None, None) => f64::NAN,
        }
    }

    /// The mean of these classes, each with its share of the requests.
    fn of_classes(classes: &[sizes::Class], means_s: impl Iterator<Item = f64>) -> Self {
        let by_size: Vec<(f64, f64)> = classes.iter().map(|class| class.bytes).zip(means_s).collect();
        let mean_s = classes.iter().zip(&by_size).map(|(class, (_, mean))| class.share * mean).sum();
        Self { mean_s, by_size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_alternates_and_must_leave_time_to_recover() {
        let w1 = Alternating::new(25.0, 25.0, 0.2, 1.2).expect("W1");
        assert!((w1.mean() - 0.7).abs() < 1e-12);
        assert_eq!((w1.at(0.0), w1.at(24.9)), ((0.2, 25.0), (0.2, 25.0)));
        assert_eq!((w1.at(25.0), w1.at(60.0)), ((1.2, 50.0), (0.2, 75.0)));
        for (low_s, high_s, low, high) in [
            (0.0, 25.0, 0.2, 1.2),
            (25.0, f64::INFINITY, 0.2, 1.2),
            (25.0, 25.0, -0.1, 1.2),
            (25.0, 25.0, 0.0, 0.0),
            (25.0, 25.0, 0.8, 1.2),
            (25.0, 25.0, f64::NAN, 1.2),
        ] {
            assert_eq!(Alternating::new(low_s, high_s, low, high), None);
        }
        assert_eq!((Alternating::steady(1.0), Alternating::steady(0.0)), (None, None));
    }

    #[test]
    fn response_between_two_sizes_is_on_the_line_of_their_logarithms() {
        let response = Response { mean_s: 1.0, by_size: vec![(100.0, 1.0), (10_000.0, 4.0)] };
        assert!((response.at(1000.0) - 2.0).abs() < 1e-9);
        assert_eq!((response.at(1.0), response.at(1e6)), (1.0, 4.0));
    }
}
