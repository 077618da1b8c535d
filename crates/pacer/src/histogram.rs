//! Quantiles and means of what was counted between two looks, by histograms whose buckets end at powers of two.

use verdict::Histogram;

/// The end of the bucket that this share of them is below; `None` where nothing was counted.
pub(crate) fn quantile(now: &[u64; 32], before: &[u64; 32], share: f64) -> Option<u64> {
    Histogram(since(now, before)).below(share)
}

pub(crate) fn median(now: &[u64; 32], before: &[u64; 32]) -> Option<u64> {
    quantile(now, before, 0.5)
}

/// Of microseconds, the middle of that bucket.
pub(crate) fn median_ns(now: &[u64; 32], before: &[u64; 32]) -> Option<u64> {
    Some(median(now, before)?.saturating_mul(750))
}

/// Of microseconds the mean, by the middles of the buckets, of which none counts for more than `most_ns`; 0 where nothing was counted.
pub(crate) fn mean_ns(now: &[u64; 32], before: &[u64; 32], most_ns: u64) -> u64 {
    let counts = since(now, before);
    let sum: f64 =
        (0..).zip(counts).map(|(bucket, count)| count as f64 * (750u64 << bucket).min(most_ns) as f64).sum();
    (sum / counts.iter().sum::<u64>().max(1) as f64) as u64
}

fn since(now: &[u64; 32], before: &[u64; 32]) -> [u64; 32] {
    std::array::from_fn(|bucket| now[bucket].saturating_sub(before[bucket]))
}
