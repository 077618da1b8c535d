//! How many bytes a reply has: distributions with the statistics of published traces. All of them
//! are generated; no trace is in here.

use rand::{Rng, RngExt};
use rand_distr::{Distribution, LogNormal};

/// A log-normal body with a Pareto tail: nine in ten are of the body.
///
/// Both `[SH06]` section 2.2 (World Cup 1998: log-normal with a Pareto tail, shape below 1.5) and
/// the logs of 1995 that are still around have it. Below `least` and above `most` there is nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeavyTail {
    body: LogNormal<f64>,
    /// Of the body's logarithms, before its ends are cut off.
    mean_ln: f64,
    sigma_ln: f64,
    least: f64,
    tail: BoundedPareto,
}

/// Share of the tail.
const TAIL: f64 = 0.1;
/// Of the standard normal distribution, the quantile of a body that ends there.
const Z_OF_P90: f64 = 1.281_551_565_5;

impl HeavyTail {
    /// With so many bytes as median and ninth decile, a tail of this Pareto shape, and bounds. None
    /// where they are not in that order, or the shape is not above zero.
    pub fn new(least: u64, median: u64, p90: u64, most: u64, shape: f64) -> Option<Self> {
        if !(0 < least && least < median && median < p90) {
            return None;
        }
        let tail = BoundedPareto::new(p90, most, shape)?;
        let (median, p90) = (median as f64, p90 as f64);
        let (mean_ln, sigma_ln) = (median.ln(), (p90 / median).ln() / Z_OF_P90);
        let body = LogNormal::new(mean_ln, sigma_ln).ok()?;
        Some(Self { body, mean_ln, sigma_ln, least: least as f64, tail })
    }

    /// As the day of the World Cup of 1998 that `[SH06]` section 2.2 took.
    ///
    /// The paper: mean 5 KB, from 41 B to 2.02 MB, half below 1 KB, nine tenths below 9.3 KB, half
    /// of all bytes in less than the largest 3%, a Pareto tail of shape below 1.5. Here: mean 5,002
    /// B, 50.3% below 1,000 B, half of all bytes in the largest 2.9%, shape 1.23.
    pub fn world_cup() -> Self {
        Self::new(41, 900, 9_300, 2_020_000, 1.23).expect("numbers in their order")
    }

    /// As the hours of NASA's log of 1995 that `[SH06]` took (appendix).
    ///
    /// The paper: mean 19 KB, from 50 B to 1.93 MB, half of all bytes in the largest 2.5%. Here:
    /// mean 19.0 KB, half of all bytes in the largest 2.5%. The paper prints no median; 4.2 KB is
    /// that of the log. No shape of 1 or more has so much in so few at that median, hence 0.91.
    pub fn nasa() -> Self {
        Self::new(50, 4_200, 28_650, 1_930_000, 0.91).expect("numbers in their order")
    }

    /// Mean size, bytes, as a number of the distribution: no sample is taken.
    pub fn mean(&self) -> f64 {
        (1.0 - TAIL) * self.mean_of_body() + TAIL * self.tail.mean()
    }

    /// Of the normal distribution behind the body, by Simpson's rule over its logarithms.
    fn mean_of_body(&self) -> f64 {
        let z = |bytes: f64| (bytes.ln() - self.mean_ln) / self.sigma_ln;
        let (from, to) = (z(self.least), z(self.tail.least));
        let density = |z: f64| (-z * z / 2.0).exp();
        let weighted = |z: f64| (self.mean_ln + self.sigma_ln * z).exp() * density(z);
        simpson(weighted, from, to) / simpson(density, from, to)
    }

    /// One size, bytes.
    pub fn sample(&self, random: &mut impl Rng) -> u64 {
        if random.random::<f64>() < TAIL { self.tail.sample(random) } else { self.in_body(random) }
    }

    fn in_body(&self, random: &mut impl Rng) -> u64 {
        loop {
            let bytes = self.body.sample(random);
            if (self.least..=self.tail.least).contains(&bytes) {
                return bytes.round() as u64;
            }
        }
    }
}

/// A Pareto distribution between two bounds: `[SH06]` section 6.3 has one of shape 1.1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundedPareto {
    least: f64,
    most: f64,
    shape: f64,
}

impl BoundedPareto {
    /// Between these sizes, bytes.
    ///
    /// None where they are not in that order, or the shape is not above zero.
    pub fn new(least: u64, most: u64, shape: f64) -> Option<Self> {
        let is_one = 0 < least && least < most && shape > 0.0 && shape.is_finite();
        is_one.then_some(Self { least: least as f64, most: most as f64, shape })
    }

    /// Mean size, bytes.
    pub fn mean(&self) -> f64 {
        let Self { least: low, most: high, shape } = *self;
        let below = 1.0 - (low / high).powf(shape);
        if (shape - 1.0).abs() < 1e-9 {
            return low * (high / low).ln() / below;
        }
        low * shape / (shape - 1.0) * (1.0 - (low / high).powf(shape - 1.0)) / below
    }

    /// One size, bytes.
    pub fn sample(&self, random: &mut impl Rng) -> u64 {
        let least_survival = (self.least / self.most).powf(self.shape);
        let survival = 1.0 - random.random::<f64>() * (1.0 - least_survival);
        (self.least * survival.powf(-1.0 / self.shape)).round() as u64
    }
}

/// The integral of a smooth function.
fn simpson(of: impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
    const STEPS: u32 = 400;
    let step = (to - from) / f64::from(STEPS);
    let weight = |n: u32| match n {
        0 | STEPS => 1.0,
        n if n % 2 == 1 => 4.0,
        _ => 2.0,
    };
    (0..=STEPS).map(|n| weight(n) * of(from + step * f64::from(n))).sum::<f64>() * step / 3.0
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
    /// With a mean, as it would be without the bounds, and a shape, which must be above one for
    /// that. None where they are not in their order.
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

    /// Mean size between the bounds, bytes: below the one that was asked for.
    pub fn mean(&self) -> f64 {
        let rest = |bytes: f64| (1.0 + bytes / self.scale).powf(1.0 - self.shape);
        self.least + self.scale / (self.shape - 1.0) * (rest(self.least) - rest(self.most))
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
        let formula = ParetoII::new(1000, 12_000, 10_000_000, 1.2).expect("sizes").mean();
        assert_near("mean of the formula", formula, sizes.mean, 0.02);
        for (least, mean, most, shape) in [(0, 5, 10, 1.2), (5, 5, 10, 1.2), (1, 5, 5, 1.2), (1, 5, 10, 1.0)]
        {
            assert_eq!(ParetoII::new(least, mean, most, shape), None);
        }
    }

    #[test]
    fn bounded_pareto_has_its_mean_quantiles_and_bounds() {
        let sizes = BoundedPareto::new(840, 2_020_000, 1.1).expect("sizes");
        let mut random = Pcg64Mcg::seed_from_u64(1);
        let sample = Statistics::of((0..1_000_000).map(|_| sizes.sample(&mut random) as f64).collect());
        assert_near("mean of the formula", sizes.mean(), 5_000.0, 0.002);
        assert_near("mean of a sample", sample.mean, 5_000.0, 0.03);
        assert_near("median", sample.at(0.5), 840.0 * 2_f64.powf(1.0 / 1.1), 0.01);
        assert!(sample.at(0.0) >= 840.0 && sample.at(1.0) <= 2_020_000.0);
        for (least, most, shape) in [(0, 5, 1.1), (5, 5, 1.1), (1, 5, 0.0), (1, 5, f64::NAN)] {
            assert_eq!(BoundedPareto::new(least, most, shape), None);
        }
    }

    /// `[SH06]` section 2.2, statistic by statistic.
    #[test]
    fn world_cup_has_the_statistics_of_the_paper() {
        let sizes = HeavyTail::world_cup();
        let world_cup = statistics(sizes);
        assert_near("mean of the formula", sizes.mean(), 5_000.0, 0.002);
        assert_near("mean of a sample", world_cup.mean, 5_000.0, 0.02);
        assert!((41.0..43.0).contains(&world_cup.at(0.0)), "smallest: {}", world_cup.at(0.0));
        assert!((1_950_000.0..=2_020_000.0).contains(&world_cup.at(1.0)), "largest: {}", world_cup.at(1.0));
        assert_near("share below 1 KB", world_cup.share_below(1_000.0), 0.5, 0.02);
        assert_near("share below 9.3 KB", world_cup.share_below(9_300.0), 0.9, 0.002);
        let half = world_cup.largest_with(0.5);
        assert!((0.027..0.03).contains(&half), "half of all bytes in the largest {half}");
        assert!(sizes.tail.shape < 1.5);
    }

    /// `[SH06]` appendix. The mean of one sample of a million is within 2% of that of the formula.
    #[test]
    fn nasa_has_the_statistics_of_the_paper() {
        let sizes = HeavyTail::nasa();
        let nasa = statistics(sizes);
        assert_near("mean of the formula", sizes.mean(), 19_000.0, 0.002);
        assert_near("mean of a sample", nasa.mean, 19_000.0, 0.02);
        assert!((50.0..60.0).contains(&nasa.at(0.0)), "smallest: {}", nasa.at(0.0));
        assert!((1_900_000.0..=1_930_000.0).contains(&nasa.at(1.0)), "largest: {}", nasa.at(1.0));
        assert_near("half of all bytes in the largest", nasa.largest_with(0.5), 0.025, 0.03);
        assert_near("median, as in the log", nasa.at(0.5), 4_200.0, 0.02);
    }

    /// The log that the paper took hours of, on two other days: no statistic is far from it.
    #[test]
    fn nasa_is_near_its_logs_of_two_days() {
        let nasa = statistics(HeavyTail::nasa());
        for (what, ours, august, july) in [
            ("p50", nasa.at(0.5), 4_179.0, 4_377.0),
            ("p99", nasa.at(0.99), 284_874.0, 305_722.0),
            ("share of the largest 2.5%", nasa.share_of_largest(0.025), 0.408, 0.423),
        ] {
            let is_near = (august * 0.75..=july * 1.25).contains(&ours);
            assert!(is_near, "{what}: {ours}; {august} and {july} in the logs");
        }
    }

    #[test]
    fn mean_of_the_formula_is_that_of_samples() {
        for (least, median, p90, most, shape) in
            [(1, 500, 2_000, 100_000, 1.0), (10, 1_000, 5_000, 20_000, 2.5), (400, 500, 600, 601, 1.1)]
        {
            let sizes = HeavyTail::new(least, median, p90, most, shape).expect("sizes");
            assert_near("mean", sizes.mean(), statistics(sizes).mean, 0.01);
        }
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
