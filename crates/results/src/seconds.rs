//! Response times over the time of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// More seconds than any window has; beyond, nothing is kept.
const MOST: usize = 7200;

/// Replies of the window by the second in which their users first asked, from the window's start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Seconds {
    /// Complete replies.
    pub replies: Vec<u32>,
    /// Sum of their times from the first try, microseconds.
    pub user_us: Vec<u64>,
    /// Requests whose reply began.
    pub begun: Vec<u32>,
    /// Sum of their times to the first byte, microseconds.
    pub first_byte_us: Vec<u64>,
}

impl Seconds {
    /// A complete reply, so long after its user first asked in that second.
    pub fn replied(&mut self, second: u64, user_us: u64) {
        count(&mut self.replies, &mut self.user_us, second, user_us);
    }

    /// The first byte of a reply, so long after the request in that second.
    pub fn begun(&mut self, second: u64, first_byte_us: u64) {
        count(&mut self.begun, &mut self.first_byte_us, second, first_byte_us);
    }

    /// Adds what another part of the same crowd saw.
    pub fn add(&mut self, other: &Self) {
        add(&mut self.replies, &other.replies);
        add(&mut self.user_us, &other.user_us);
        add(&mut self.begun, &other.begun);
        add(&mut self.first_byte_us, &other.first_byte_us);
    }

    /// Mean response time of those who asked in each second, milliseconds; none where nobody was
    /// answered.
    pub fn means_ms(&self) -> Vec<Option<f64>> {
        means(&self.replies, &self.user_us)
    }

    /// The same of times to the first byte.
    pub fn first_byte_means_ms(&self) -> Vec<Option<f64>> {
        means(&self.begun, &self.first_byte_us)
    }

    /// The largest of the one-second means, milliseconds.
    pub fn largest_mean_ms(&self) -> Option<f64> {
        self.means_ms().into_iter().flatten().max_by(f64::total_cmp)
    }

    /// The one-second mean below which this share of the seconds is, milliseconds: of those that
    /// have one.
    pub fn mean_at_ms(&self, share: f64) -> Option<f64> {
        let mut means: Vec<f64> = self.means_ms().into_iter().flatten().collect();
        means.sort_by(f64::total_cmp);
        let last = means.len().checked_sub(1)?;
        Some(means[(last as f64 * share).round() as usize])
    }
}

fn count(counts: &mut Vec<u32>, sums: &mut Vec<u64>, second: u64, us: u64) {
    let Some(place) = usize::try_from(second).ok().filter(|place| *place < MOST) else { return };
    if counts.len() <= place {
        counts.resize(place + 1, 0);
        sums.resize(place + 1, 0);
    }
    counts[place] += 1;
    sums[place] += us;
}

fn add<T: Copy + Default + std::ops::AddAssign>(own: &mut Vec<T>, other: &[T]) {
    own.resize(own.len().max(other.len()), T::default());
    own.iter_mut().zip(other).for_each(|(own, other)| *own += *other);
}

fn means(counts: &[u32], sums: &[u64]) -> Vec<Option<f64>> {
    let mean = |(count, sum): (&u32, &u64)| (*count > 0).then(|| *sum as f64 / 1e3 / f64::from(*count));
    counts.iter().zip(sums).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_the_second_in_which_somebody_asked() {
        let mut seconds = Seconds::default();
        for (second, us) in [(0, 1000), (2, 3000), (2, 5000), (7200, 1)] {
            seconds.replied(second, us);
        }
        seconds.begun(1, 250);
        assert_eq!(seconds.means_ms(), [Some(1.0), None, Some(4.0)]);
        assert_eq!(seconds.first_byte_means_ms(), [None, Some(0.25)]);
        assert_eq!((seconds.largest_mean_ms(), seconds.mean_at_ms(0.0)), (Some(4.0), Some(1.0)));
        assert_eq!(Seconds::default().mean_at_ms(0.5), None);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (mut a, mut b, mut whole) = (Seconds::default(), Seconds::default(), Seconds::default());
        for second in [0, 5, 3, 9, 9] {
            let part = if second % 2 == 0 { &mut a } else { &mut b };
            for seconds in [part, &mut whole] {
                seconds.replied(second, 100 * second + 1);
                seconds.begun(second, second);
            }
        }
        a.add(&b);
        assert_eq!(a, whole);
    }
}
