//! Quantiles of what was counted between two looks, by histograms whose buckets end at powers of two.

use verdict::Histogram;

/// The end of the bucket that this share of them is below; `None` where nothing was counted.
pub(crate) fn quantile(now: &[u64; 32], before: &[u64; 32], share: f64) -> Option<u64> {
    let mut counts = *now;
    counts.iter_mut().zip(before).for_each(|(count, before)| *count = count.saturating_sub(*before));
    Histogram(counts).below(share)
}

pub(crate) fn median(now: &[u64; 32], before: &[u64; 32]) -> Option<u64> {
    quantile(now, before, 0.5)
}

/// Of microseconds, the middle of that bucket.
pub(crate) fn median_ns(now: &[u64; 32], before: &[u64; 32]) -> Option<u64> {
    Some(median(now, before)?.saturating_mul(750))
}
