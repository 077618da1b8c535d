//! How many bytes a reply has: distributions with the statistics of published traces. All of them are generated; no trace is in here.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal};

/// A log-normal body with a Pareto tail: nine in ten are of the body.
///
/// Both `[SH06]` section 2.2 (World Cup 1998: log-normal with a Pareto tail, shape below 1.5) and the logs of 1995 that are still around have it. Below
/// `least` and above `most` there is nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeavyTail {
    body: LogNormal<f64>,
    least: f64,
    p90: f64,
    shape: f64,
    most: f64,
}

/// Share of the tail.
const TAIL: f64 = 0.1;
/// Of the standard normal distribution, the quantile of a body that ends there.
const Z_OF_P90: f64 = 1.281_551_565_5;

impl HeavyTail {
    /// With so many bytes as median and ninth decile, a tail of this Pareto shape, and bounds. None where they are not in that order, or the shape is not
    /// above zero.
    pub fn new(least: u64, median: u64, p90: u64, most: u64, shape: f64) -> Option<Self> {
        let is_ordered = 0 < least && least < median && median < p90 && p90 < most;
        if !(is_ordered && shape > 0.0 && shape.is_finite()) {
            return None;
        }
        let (median, p90) = (median as f64, p90 as f64);
        let body = LogNormal::new(median.ln(), (p90 / median).ln() / Z_OF_P90).ok()?;
        Some(Self { body, least: least as f64, p90, shape, most: most as f64 })
    }

    /// As the day of the World Cup of 1998 that `[SH06]` section 2.2 took: mean 5 KB, from 41 B to 2.02 MB, half below 1 KB, nine tenths below 9.3 KB, and half of all
    /// bytes in the largest 3%.
    pub fn world_cup() -> Self {
        Self::new(41, 900, 9_300, 2_020_000, 1.2).expect("numbers in their order")
    }

    /// As the replies with content of NASA's server in the summer of 1995: mean 20 to 27 KB, median 4.3 KB.
    pub fn nasa() -> Self {
        Self::new(100, 4_300, 50_000, 3_000_000, 1.24).expect("numbers in their order")
    }

    /// One size, bytes.
    pub fn sample(&self, random: &mut impl Rng) -> u64 {
        let bytes =
            if random.random::<f64>() < TAIL { self.tail(random.random()) } else { self.in_body(random) };
        bytes.round() as u64
    }

    /// The inverse of a Pareto distribution that ends at `most`.
    fn tail(&self, share: f64) -> f64 {
        let least_survival = (self.p90 / self.most).powf(self.shape);
        let survival = 1.0 - share * (1.0 - least_survival);
        self.p90 * survival.powf(-1.0 / self.shape)
    }

    fn in_body(&self, random: &mut impl Rng) -> f64 {
        loop {
            let bytes = self.body.sample(random);
            if (self.least..=self.p90).contains(&bytes) {
                return bytes;
            }
        }
    }
}

/// Pareto's second distribution (Lomax), between two bounds: many small ones, and a tail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParetoII {
    least: f64,
    scale: f64,
    shape: f64,
    most: f64,
}

impl ParetoII {
    /// With a mean, as it would be without the bounds, and a shape, which must be above one for that. None where they are not in their order.
    pub fn new(least: u64, mean: u64, most: u64, shape: f64) -> Option<Self> {
        let is_ordered = 0 < least && least < mean && mean < most;
        let (least, mean, most) = (least as f64, mean as f64, most as f64);
        (is_ordered && shape > 1.0 && shape.is_finite()).then_some(Self {
            least,
            scale: mean * (shape - 1.0),
            shape,
            most,
        })
    }

    /// One size, bytes.
    pub fn sample(&self, random: &mut impl Rng) -> u64 {
        let survival = 1.0 - random.random::<f64>();
        let bytes = self.scale * (survival.powf(-1.0 / self.shape) - 1.0);
        bytes.clamp(self.least, self.most).round() as u64
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    use super::*;
    use crate::testing::{Statistics, assert_near};

    fn statistics(sizes: HeavyTail) -> Statistics {
        let mut random = Pcg64Mcg::seed_from_u64(1);
        Statistics::of((0..1_000_000).map(|_| sizes.sample(&mut random) as f64).collect())
    }

    /// `[RF]` table I, where a packet has 1,000 bytes: the quantiles are those of the formula.
    #[test]
    fn pareto_ii_has_its_quantiles_and_bounds() {
        let sizes = ParetoII::new(1000, 12_000, 10_000_000, 1.2).expect("sizes");
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let sizes = Statistics::of((0..1_000_000).map(|_| sizes.sample(&mut random) as f64).collect());
        for share in [0.5, 0.9, 0.99] {
            let quantile = 2_400.0 * ((1.0_f64 - share).powf(-1.0 / 1.2) - 1.0);
            assert_near("quantile", sizes.at(share), quantile, 0.03);
        }
        assert_eq!(sizes.at(0.0), 1000.0);
        // Of 12,000 without the bounds, of which the upper one takes a fifth.
        assert_near("mean", sizes.mean, 9_930.0, 0.03);
        for (least, mean, most, shape) in [(0, 5, 10, 1.2), (5, 5, 10, 1.2), (1, 5, 5, 1.2), (1, 5, 10, 1.0)]
        {
            assert_eq!(ParetoII::new(least, mean, most, shape), None);
        }
    }

    /// `[SH06]` section 2.2.
    #[test]
    fn world_cup_has_the_statistics_of_the_paper() {
        let world_cup = statistics(HeavyTail::world_cup());
        assert_near("mean", world_cup.mean, 5_000.0, 0.05);
        assert!(world_cup.at(0.5) < 1_000.0, "{}", world_cup.at(0.5));
        assert_near("p90", world_cup.at(0.9), 9_300.0, 0.03);
        assert!(world_cup.at(0.0) >= 41.0 && world_cup.at(1.0) <= 2_020_000.0);
        assert!(world_cup.share_of_largest(0.03) > 0.5, "{}", world_cup.share_of_largest(0.03));
    }

    /// The first 10,000 requests of July and of August 1995, those with content: what they have in common.
    #[test]
    fn nasa_has_the_statistics_of_its_logs() {
        let nasa = statistics(HeavyTail::nasa());
        let between = |what: &str, value: f64, low: f64, high: f64| {
            assert!((low..=high).contains(&value), "{what}: {value}, {low} to {high} in the logs");
        };
        between("mean", nasa.mean, 19_914.0, 27_452.0);
        between("p50", nasa.at(0.5), 4_209.0, 4_538.0);
        between("p90", nasa.at(0.9), 46_573.0, 58_414.0);
        between("p99", nasa.at(0.99), 286_229.0, 372_172.0);
        between("coefficient of variation", nasa.variation, 3.1 * 0.9, 3.2 * 1.3);
    }

    #[test]
    fn numbers_out_of_order_make_no_distribution() {
        for (least, median, p90, most, shape) in [
            (0, 10, 20, 30, 1.0),
            (10, 10, 20, 30, 1.0),
            (1, 10, 10, 30, 1.0),
            (1, 10, 20, 20, 1.0),
            (1, 2, 3, 4, 0.0),
        ] {
            assert_eq!(HeavyTail::new(least, median, p90, most, shape), None);
        }
        assert_eq!(HeavyTail::new(1, 2, 3, 4, f64::NAN), None);
    }
}
