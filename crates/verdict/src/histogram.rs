//! Counts in buckets that double: `kernel/histogram.h`.

/// As many as there are.
pub const BUCKETS: usize = kernel::BUCKETS as usize;

/// How often a value was in `[0, 1)`, `[1, 2)`, `[2, 4)` and so on; the last bucket has no end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram(pub [u64; BUCKETS]);

impl Histogram {
    /// Counts one more value.
    pub fn add(&mut self, value: u64) {
        self.0[kernel::bucket_of(value) as usize] += 1;
    }

    /// What was counted since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self(std::array::from_fn(|bucket| self.0[bucket].saturating_sub(earlier.0[bucket])))
    }

    /// All values.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// A value that `share` (0 to 1) of all values are below: the end of the bucket where that is
    /// reached, so that it errs to the large side, by less than a factor of two. `None` of nothing.
    pub fn below(&self, share: f64) -> Option<u64> {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        let bucket = self.0.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(1 << bucket)
    }

    /// The end of each bucket but the last, which has none, and how many values are below it.
    pub fn cumulative(&self) -> [(u64, u64); BUCKETS - 1] {
        let mut below = 0;
        std::array::from_fn(|bucket| {
            below += self.0[bucket];
            (1 << bucket, below)
        })
    }

    /// Buckets up to the last that is not empty, each with the smallest value that it takes.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let used = self.0.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        let start = |bucket: usize| if bucket == 0 { 0 } else { 1 << (bucket - 1) };
        self.0[..used].iter().enumerate().map(|(bucket, &count)| (start(bucket), count)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_is_the_end_of_its_bucket() {
        let mut histogram = Histogram::default();
        (0..98).for_each(|_| histogram.add(0));
        [4, 7].into_iter().for_each(|value| histogram.add(value));
        assert_eq!(
            (histogram.below(0.5), histogram.below(0.98), histogram.below(0.99)),
            (Some(1), Some(1), Some(8))
        );
        assert_eq!(histogram.buckets(), [(0, 98), (1, 0), (2, 0), (4, 2)]);
        assert_eq!(histogram.cumulative()[..4], [(1, 98), (2, 98), (4, 98), (8, 100)]);
        let earlier = histogram;
        histogram.add(5);
        assert_eq!(histogram.since(&earlier).buckets(), [(0, 0), (1, 0), (2, 0), (4, 1)]);
        assert_eq!(Histogram([0; BUCKETS]).below(0.5), None);
        assert!(Histogram([0; BUCKETS]).buckets().is_empty());
    }
}
