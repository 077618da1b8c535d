//! Sizes of requests.

/// A Pareto distribution between two bounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BoundedPareto {
    least: f64,
    most: f64,
    shape: f64,
}

/// Requests of nearly the same size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Class {
    /// Their mean size.
    pub bytes: f64,
    /// Their share of all requests.
    pub share: f64,
}

impl BoundedPareto {
    /// Between these sizes, bytes, with this shape; 1.1 in `[SH06]` section 6.3. `None` where they
    /// are not in their order, or the shape is not above zero.
    pub fn new(least: f64, most: f64, shape: f64) -> Option<Self> {
        let is_ordered = 0.0 < least && least < most && most.is_finite();
        (is_ordered && shape > 0.0 && shape.is_finite()).then_some(Self { least, most, shape })
    }

    /// With this mean and largest size, bytes: the smallest follows. `None` where the mean is not
    /// between a millionth of the largest and 0.999 of it.
    pub fn with_mean(mean: f64, most: f64, shape: f64) -> Option<Self> {
        let of = |least: f64| Self::new(least, most, shape);
        let (mut low, mut high) = (most * 1e-12, most * (1.0 - 1e-9));
        if !(of(low)?.mean() < mean && mean < of(high)?.mean() && mean >= most * 1e-6 && mean <= most * 0.999)
        {
            return None;
        }
        for _ in 0..200 {
            let middle = (low * high).sqrt();
            if of(middle)?.mean() < mean { low = middle } else { high = middle }
        }
        of(low)
    }

    /// Smallest size, bytes.
    pub fn least(&self) -> f64 {
        self.least
    }

    /// Largest size, bytes.
    pub fn most(&self) -> f64 {
        self.most
    }

    /// Mean size, bytes.
    pub fn mean(&self) -> f64 {
        self.moment_below(1, self.most)
    }

    /// Share of the requests that are larger.
    pub fn above(&self, bytes: f64) -> f64 {
        let bytes = bytes.clamp(self.least, self.most);
        let end = (self.least / self.most).powf(self.shape);
        ((self.least / bytes).powf(self.shape) - end) / (1.0 - end)
    }

    /// The mean of the `n`-th power of the sizes, where larger ones count as 0.
    pub(crate) fn moment_below(&self, n: i32, bytes: f64) -> f64 {
        let Self { least, most, shape } = *self;
        if bytes <= least {
            return 0.0;
        }
        let to = bytes.min(most);
        let scale = shape * least.powf(shape) / (1.0 - (least / most).powf(shape));
        let power = f64::from(n) - shape;
        if power.abs() < 1e-9 {
            return scale * (to / least).ln();
        }
        scale * (to.powf(power) - least.powf(power)) / power
    }

    /// Classes whose bounds are evenly apart by their logarithms: together they have all requests
    /// and all bytes.
    pub(crate) fn classes(&self, count: u32) -> Vec<Class> {
        let bound = |n: u32| self.least * (self.most / self.least).powf(f64::from(n) / f64::from(count));
        (0..count)
            .map(|n| {
                let (from, to) = (bound(n), bound(n + 1));
                let share = self.above(from) - if n + 1 == count { 0.0 } else { self.above(to) };
                let bytes = self.moment_below(1, to) - self.moment_below(1, from);
                Class { bytes: bytes / share, share }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world_cup() -> BoundedPareto {
        BoundedPareto::with_mean(5_000.0, 2_020_000.0, 1.1).expect("sizes")
    }

    #[test]
    fn smallest_size_follows_from_the_mean() {
        let sizes = world_cup();
        assert!((sizes.mean() - 5_000.0).abs() < 1e-3, "{}", sizes.mean());
        assert!((700.0..1_000.0).contains(&sizes.least()), "{}", sizes.least());
        for (mean, most) in [(0.0, 1e6), (1e6, 1e6), (2e6, 1e6), (1e-6, 1e6), (f64::NAN, 1e6)] {
            assert_eq!(BoundedPareto::with_mean(mean, most, 1.1), None, "{mean} of {most}");
        }
        assert_eq!(BoundedPareto::new(5.0, 5.0, 1.1), None);
        assert_eq!(BoundedPareto::new(1.0, 5.0, 0.0), None);
    }

    /// By adding up slices of the distribution.
    #[test]
    fn moments_are_those_of_the_distribution() {
        for shape in [1.0, 1.1, 2.0, 2.5] {
            let sizes = BoundedPareto::new(10.0, 10_000.0, shape).expect("sizes");
            for (n, bound) in [(1, 10_000.0), (2, 10_000.0), (1, 300.0), (2, 300.0)] {
                let slices = 20_000;
                let at = |slice: i32| 10.0 * 1000_f64.powf(f64::from(slice) / f64::from(slices));
                let sum: f64 = (0..slices)
                    .filter(|slice| at(*slice) < bound)
                    .map(|slice| {
                        let (from, to) = (at(slice), at(slice + 1));
                        (from * to).sqrt().powi(n) * (sizes.above(from) - sizes.above(to))
                    })
                    .sum();
                let ratio = sizes.moment_below(n, bound) / sum;
                assert!((ratio - 1.0).abs() < 2e-3, "{n} of shape {shape} below {bound}: {ratio}");
            }
        }
    }

    #[test]
    fn classes_have_all_requests_and_all_bytes() {
        let classes = world_cup().classes(64);
        let shares: f64 = classes.iter().map(|class| class.share).sum();
        let bytes: f64 = classes.iter().map(|class| class.share * class.bytes).sum();
        assert!((shares - 1.0).abs() < 1e-12 && (bytes - 5_000.0).abs() < 1e-3, "{shares} {bytes}");
        assert!(classes.is_sorted_by(|a, b| a.bytes < b.bytes));
    }
}
