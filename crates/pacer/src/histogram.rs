//! Quantiles by histograms whose buckets end at powers of two.

use units::Nanos;
use verdict::{BUCKETS, Histogram};

use crate::fade::{SECOND, remembered};

/// Of microseconds that were counted between two looks, the middle of the bucket that half of them
/// are below; `None` where nothing was.
pub(crate) fn median_ns(now: &[u64; BUCKETS], before: &[u64; BUCKETS]) -> Option<u64> {
    Some(Histogram(since(now, before)).below(0.5)?.saturating_mul(750))
}

/// What was counted between two looks.
pub(crate) fn since(now: &[u64; BUCKETS], before: &[u64; BUCKETS]) -> [u64; BUCKETS] {
    Histogram(*now).since(&Histogram(*before)).0
}

/// What was counted in the last second or so: the longer ago, the less it counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FadingHistogram {
    counts: [f64; BUCKETS],
}

impl FadingHistogram {
    /// Goes on by what was counted in so much time.
    pub(crate) fn add(&mut self, elapsed: Nanos, counts: &[u64; BUCKETS]) {
        let remembered = remembered(elapsed, SECOND);
        for (faded, count) in self.counts.iter_mut().zip(counts) {
            *faded = *faded * remembered + *count as f64;
        }
    }

    pub(crate) fn count(&self) -> f64 {
        self.counts.iter().sum()
    }

    /// The end of the bucket that this share of them is below, as [`Histogram::below`] has it;
    /// `None` where there is nothing.
    pub(crate) fn below(&self, share: f64) -> Option<u64> {
        let wanted = share * self.count();
        let mut seen = 0.0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen > 0.0 && seen >= wanted
        })?;
        Some(1 << bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_earlier_counts_less() {
        let mut histogram = FadingHistogram::default();
        assert_eq!((histogram.count(), histogram.below(0.5)), (0.0, None));
        let of = |bucket: usize| std::array::from_fn(|other| if other == bucket { 1000 } else { 0 });
        histogram.add(Nanos::ZERO, &of(10));
        histogram.add(Nanos::from_secs(1), &of(12));
        assert_eq!(histogram.count() as u64, 1367, "a thousand over e, and a thousand");
        assert_eq!(histogram.below(0.26), Some(1 << 10));
        assert_eq!(histogram.below(0.28), Some(1 << 12));
    }
}
