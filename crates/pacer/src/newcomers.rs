//! How many come who were not there before.

use units::Nanos;

/// Of fewer the rate would be noise.
const ENOUGH: u64 = 256;
const LONGEST_WINDOW: Nanos = Nanos::from_secs(1);

/// Attempts/s of the last moment, without those that come back.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Newcomers {
    per_s: f64,
    elapsed: Nanos,
    count: u64,
}

impl Newcomers {
    /// Attempts/s; 0 while nothing is known.
    pub(crate) fn per_s(&self) -> f64 {
        self.per_s
    }

    /// Goes on by so many in so much time.
    pub(crate) fn add(&mut self, elapsed: Nanos, count: u64) {
        self.elapsed += elapsed;
        self.count += count;
        if self.elapsed > Nanos::ZERO && (self.count >= ENOUGH || self.elapsed >= LONGEST_WINDOW) {
            *self = Self { per_s: self.count as f64 / self.elapsed.as_secs_f64(), ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_of_the_last_moment_in_which_enough_came() {
        let mut newcomers = Newcomers::default();
        newcomers.add(Nanos::from_millis(50), 500);
        assert_eq!(newcomers.per_s(), 10_000.0);
        (0..19).for_each(|_| newcomers.add(Nanos::from_millis(50), 1));
        assert_eq!(newcomers.per_s(), 10_000.0, "nineteen are not enough");
        newcomers.add(Nanos::from_millis(50), 1);
        assert_eq!(newcomers.per_s(), 20.0, "in a second");
    }
}
