//! Cutoffs that follow the sizes of the responses.

use kernel::Cutoffs;

/// Buckets of a power of two; sizes in one differ by an eighth at most.
const PARTS: u32 = 8;
const BUCKETS: usize = 64 * PARTS as usize;
/// Fewer responses say too little of the largest.
const ENOUGH: f64 = 1_000.0;
/// Share of the responses that is above the last cutoff. `[SH06]` 3.2 has 0.5% to 1% for four
/// cutoffs; most of the bytes are above those, and share one band. With seven cutoffs the last can
/// be further out.
const ABOVE_LAST: f64 = 0.001;
/// Share below the first cutoff; `[SH06]` has half. experiments/scheduling/RESULTS.md compares both
/// shares with the paper's.
const BELOW_FIRST: f64 = 2.0 / 3.0;

/// How large the responses are that were seen: counts by size, the newer with more weight.
#[derive(Debug, Clone)]
pub struct Sizes {
    buckets: Vec<f64>,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { buckets: vec![0.0; BUCKETS] }
    }
}

impl Sizes {
    /// One response of so many bytes.
    pub fn add(&mut self, bytes: u64) {
        self.buckets[bucket(bytes)] += 1.0;
    }

    /// Halves the weight of all that was seen.
    pub fn age(&mut self) {
        self.buckets.iter_mut().for_each(|count| *count /= 2.0);
    }

    /// Cutoffs by a rule like that of `[SH06]` 3.2: two thirds of the responses below the first,
    /// 0.1% above the last, and between them even steps of the logarithm. Fewer than
    /// [`Cutoffs::MOST`] if the sizes lie close together; `None` while too few weigh anything.
    pub fn cutoffs(&self) -> Option<Vec<u64>> {
        if self.buckets.iter().sum::<f64>() < ENOUGH {
            return None;
        }
        let (first, last) = (self.quantile(BELOW_FIRST), self.quantile(1.0 - ABOVE_LAST));
        let step = (last / first).powf(1.0 / (Cutoffs::MOST - 1) as f64);
        let all = (0..Cutoffs::MOST).map(|index| (first * step.powi(index as i32)).round() as u64);
        let mut cutoffs: Vec<u64> = all.collect();
        cutoffs.dedup();
        Some(cutoffs)
    }

    /// Upper bound of the bucket up to which so large a share of the responses is.
    fn quantile(&self, share: f64) -> f64 {
        let mut rest = self.buckets.iter().sum::<f64>() * share;
        for (index, count) in self.buckets.iter().enumerate() {
            rest -= count;
            if rest <= 0.0 {
                return upper(index);
            }
        }
        upper(BUCKETS - 1)
    }
}

/// By the highest bit, and the three bits behind it.
fn bucket(bytes: u64) -> usize {
    let bytes = bytes.max(u64::from(PARTS));
    let power = bytes.ilog2();
    let part = (bytes >> (power - PARTS.ilog2())) as usize & (PARTS as usize - 1);
    power as usize * PARTS as usize + part
}

fn upper(bucket: usize) -> f64 {
    let (power, part) = (bucket / PARTS as usize, bucket % PARTS as usize);
    2_f64.powi(power as i32) * (1.0 + (part + 1) as f64 / f64::from(PARTS)) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_is_below_the_upper_bound_of_its_bucket_and_within_an_eighth() {
        for bytes in [8_u64, 9, 1_000, 1_023, 1_024, 50_000, 2_020_000, 1 << 40] {
            let upper = upper(bucket(bytes));
            assert!(bytes as f64 <= upper && upper <= bytes as f64 * 1.125, "{bytes}: {upper}");
        }
        assert!(bucket(u64::MAX) < BUCKETS && bucket(0) < BUCKETS);
    }

    #[test]
    fn two_thirds_are_below_the_first_cutoff_and_one_in_a_thousand_above_the_last() {
        let mut sizes = Sizes::default();
        // Log-uniform from 100 B to 10 MB.
        let all: Vec<u64> = (0..10_000).map(|n| (100.0 * 10_f64.powf(n as f64 / 2_000.0)) as u64).collect();
        all.iter().for_each(|bytes| sizes.add(*bytes));
        let cutoffs = sizes.cutoffs().expect("enough");
        assert_eq!(cutoffs.len(), Cutoffs::MOST);
        let above =
            |cutoff: u64| all.iter().filter(|bytes| **bytes > cutoff).count() as f64 / all.len() as f64;
        assert!((0.31..=0.34).contains(&above(cutoffs[0])), "{cutoffs:?}");
        assert!((0.0..=0.002).contains(&above(cutoffs[6])), "{cutoffs:?}");
        let steps: Vec<f64> = cutoffs.windows(2).map(|pair| pair[1] as f64 / pair[0] as f64).collect();
        assert!(steps.iter().all(|step| (step / steps[0] - 1.0).abs() < 0.01), "{steps:?}");
        assert!(Cutoffs::new(&cutoffs).is_some());
    }

    #[test]
    fn responses_of_one_size_have_one_cutoff_and_too_few_have_none() {
        let mut sizes = Sizes::default();
        (0..999).for_each(|_| sizes.add(700));
        assert_eq!(sizes.cutoffs(), None);
        sizes.add(700);
        assert_eq!(sizes.cutoffs().expect("enough").len(), 1);
    }

    #[test]
    fn old_responses_weigh_less() {
        let mut sizes = Sizes::default();
        (0..2_000).for_each(|_| sizes.add(100_000));
        (0..10).for_each(|_| sizes.age());
        (0..2_000).for_each(|_| sizes.add(1_000));
        assert!(sizes.cutoffs().expect("enough")[0] < 1_100);
    }
}
