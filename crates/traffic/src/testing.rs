//! What tests of distributions share.

pub struct Statistics {
    sorted: Vec<f64>,
    pub mean: f64,
    /// Standard deviation over mean.
    pub variation: f64,
}

impl Statistics {
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / count;
        Self { sorted: samples, mean, variation: variance.sqrt() / mean }
    }

    pub fn at(&self, quantile: f64) -> f64 {
        self.sorted[((self.sorted.len() - 1) as f64 * quantile).round() as usize]
    }

    /// Share of them that is smaller.
    pub fn share_below(&self, bound: f64) -> f64 {
        self.sorted.partition_point(|sample| *sample < bound) as f64 / self.sorted.len() as f64
    }

    /// The smallest share, of the largest, that has this share of the sum.
    pub fn largest_with(&self, share: f64) -> f64 {
        let wanted = self.sorted.iter().sum::<f64>() * share;
        let mut sum = 0.0;
        let count = self.sorted.iter().rev().take_while(|sample| {
            let is_missing = sum < wanted;
            sum += *sample;
            is_missing
        });
        count.count() as f64 / self.sorted.len() as f64
    }

    /// Of the sum, what the largest share of them has.
    pub fn share_of_largest(&self, share: f64) -> f64 {
        let from = (self.sorted.len() as f64 * (1.0 - share)) as usize;
        self.sorted[from..].iter().sum::<f64>() / self.sorted.iter().sum::<f64>()
    }
}

#[track_caller]
pub fn assert_near(what: &str, value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() <= tolerance, "{what}: {value}, expected {expected}");
}
