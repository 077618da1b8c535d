//! How long handshakes took in the last moments.

use units::Nanos;
use verdict::BUCKETS;

use crate::Service as Counts;
use crate::histogram::{FadingHistogram, since};

/// So many, and so many us together, in buckets that end at powers of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    pub(crate) counts: [u64; BUCKETS],
    pub(crate) sums_us: [u64; BUCKETS],
}

impl Timed {
    /// Between two looks.
    pub(crate) fn since(now: &Counts, before: &Counts) -> Self {
        Self {
            counts: since(&now.handshakes_us, &before.handshakes_us),
            sums_us: since(&now.handshakes_sum_us, &before.handshakes_sum_us),
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Without this bucket and those after it.
    pub(crate) fn below_bucket(mut self, bucket: usize) -> Self {
        self.counts[bucket..].fill(0);
        self.sums_us[bucket..].fill(0);
        self
    }
}

/// The longer ago, the less one counts.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RoundTrips {
    counts: FadingHistogram,
    sums_us: FadingHistogram,
}

impl RoundTrips {
    /// Goes on by what was timed in so much time.
    pub(crate) fn add(&mut self, elapsed: Nanos, timed: &Timed) {
        self.counts.add(elapsed, &timed.counts);
        self.sums_us.add(elapsed, &timed.sums_us);
    }

    pub(crate) fn count(&self) -> f64 {
        self.counts.count()
    }

    /// The end of the bucket, in us, that this share of them is below; `None` where there is nothing.
    pub(crate) fn below_us(&self, share: f64) -> Option<u64> {
        self.counts.below(share)
    }

    /// The usual one: the mean of the bucket that the median is in, which no minority can move to another.
    pub(crate) fn usual_ns(&self) -> Option<u64> {
        let bucket = self.below_us(0.5)?.ilog2() as usize;
        Some(self.mean_in_ns(bucket).round() as u64)
    }

    /// The mean, where none of a bucket counts for more than `most_ns`; 0 where there is nothing.
    pub(crate) fn mean_ns(&self, most_ns: u64) -> u64 {
        let sum_in = |bucket| self.counts.count_in(bucket) * self.mean_in_ns(bucket).min(most_ns as f64);
        let sum: f64 = (0..BUCKETS).map(sum_in).sum();
        if sum > 0.0 { (sum / self.count()).round() as u64 } else { 0 }
    }

    /// Of one bucket.
    fn mean_in_ns(&self, bucket: usize) -> f64 {
        let count = self.counts.count_in(bucket);
        if count > 0.0 { 1000.0 * self.sums_us.count_in(bucket) / count } else { 0.0 }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// So many, of so many us each.
    pub(crate) fn timed(handshakes: &[(u64, u64)]) -> Timed {
        let mut timed = Timed { counts: [0; BUCKETS], sums_us: [0; BUCKETS] };
        for &(count, us) in handshakes {
            let bucket = us.ilog2() as usize + 1;
            timed.counts[bucket] += count;
            timed.sums_us[bucket] += count * us;
        }
        timed
    }

    #[test]
    fn usual_one_is_of_where_most_are_and_the_mean_of_all() {
        let mut round_trips = RoundTrips::default();
        assert_eq!((round_trips.usual_ns(), round_trips.mean_ns(1)), (None, 0));
        round_trips.add(Nanos::ZERO, &timed(&[(40, 1_000), (30, 20_000), (30, 30_000)]));
        assert_eq!(round_trips.usual_ns(), Some(25_000_000), "of the sixty between 16.4 and 32.8 ms");
        assert_eq!(round_trips.mean_ns(u64::MAX), 15_400_000);
        assert_eq!(round_trips.mean_ns(10_000_000), 6_400_000, "forty of 1 ms, sixty of 10");
        round_trips.add(Nanos::ZERO, &timed(&[(1_000, 60_000_000)]).below_bucket(18));
        assert_eq!(round_trips.count(), 100.0);
    }
}
