//! The last minute.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Reading, per_s};

/// Readings of a minute, oldest first.
#[derive(Debug, Clone, Default)]
pub struct History {
    readings: VecDeque<Reading>,
}

impl History {
    /// How long a reading is kept.
    pub const SPAN: Duration = Duration::from_secs(60);

    /// Takes one that is later than all others, and lets go of those before the minute that it
    /// ends.
    pub fn push(&mut self, reading: Reading) {
        let begin = reading.elapsed.saturating_sub(Self::SPAN);
        while self.readings.front().is_some_and(|first| first.elapsed < begin) {
            self.readings.pop_front();
        }
        self.readings.push_back(reading);
    }

    /// The last one.
    pub fn last(&self) -> Option<&Reading> {
        self.readings.back()
    }

    /// How fast a counter grew between each two readings, per second.
    pub fn per_s(&self, name: &str) -> impl Iterator<Item = f64> {
        let count = |reading: &Reading| reading.counts.get(name).copied().unwrap_or(0);
        let pairs = self.readings.iter().zip(self.readings.iter().skip(1));
        pairs.map(move |(before, now)| {
            per_s(count(now), count(before), now.elapsed.saturating_sub(before.elapsed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minute_of_rates_is_kept() {
        let mut history = History::default();
        assert_eq!((history.last(), history.per_s("a.b").count()), (None, 0));
        for second in 0..=100_u64 {
            let counts = [("a.b".to_owned(), second * second)].into();
            history.push(Reading { elapsed: Duration::from_secs(second), counts });
        }
        let rates: Vec<f64> = history.per_s("a.b").collect();
        assert_eq!((rates.len(), rates[0], rates[59]), (60, 81.0, 199.0));
        assert!(history.per_s("a.unknown").all(|rate| rate == 0.0));
        assert_eq!(history.last().map(|last| last.counts["a.b"]), Some(10_000));
    }
}
