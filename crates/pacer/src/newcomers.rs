//! How many come who were not there before.

use units::Nanos;

use crate::fade::remembered;

/// Of fewer the rate would be noise, and in less time a burst that is soon over would be taken for a crowd.
const ENOUGH: u64 = 256;
const WINDOW: Nanos = Nanos::from_millis(250);
const LONGEST_WINDOW: Nanos = Nanos::from_secs(1);
/// How fast it is forgotten that more came: what a crowd left unspent for a moment must not be spent in the next.
const MEMORY: Nanos = Nanos::from_secs(2);

/// The most attempts/s of the last moments, without those that come back.
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
        let is_whole = self.elapsed >= WINDOW && self.count >= ENOUGH;
        if is_whole || self.elapsed >= LONGEST_WINDOW {
            let seconds = self.elapsed.as_secs_f64();
            let per_s = (self.count as f64 / seconds).max(self.per_s * remembered(self.elapsed, MEMORY));
            *self = Self { per_s, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_of_the_last_moment_in_which_enough_came() {
        let mut newcomers = Newcomers::default();
        (0..4).for_each(|_| newcomers.add(Nanos::from_millis(50), 500));
        assert_eq!(newcomers.per_s(), 0.0, "200 ms are not enough");
        newcomers.add(Nanos::from_millis(50), 500);
        assert_eq!(newcomers.per_s(), 10_000.0);
        (0..19).for_each(|_| newcomers.add(Nanos::from_millis(50), 1));
        assert_eq!(newcomers.per_s(), 10_000.0, "nineteen are not enough");
        newcomers.add(Nanos::from_millis(50), 1);
        assert_eq!(newcomers.per_s().round(), 6065.0, "after a second, over the root of e");
        (0..400).for_each(|_| newcomers.add(Nanos::from_millis(50), 1));
        assert_eq!(newcomers.per_s().round(), 20.0, "after twenty");
    }
}
