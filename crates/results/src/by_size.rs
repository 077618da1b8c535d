//! Replies by the size that was asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bounds of the classes of `[SH06]` section 3.2, bytes: up to 1, 2, 5 and 50 KB, and above.
const CLASSES: [u64; 4] = [1_000, 2_000, 5_000, 50_000];
/// Parts of an octave that a bin is: sizes of one bin differ by a sixteenth at most.
const PARTS: u32 = 16;
const BITS: u32 = PARTS.ilog2();

/// Requests of the window by the size that each asked for: in classes, in decades, and in bins that
/// are fine enough to tell the largest few from the others. Counts and sums are exact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BySize {
    /// Up to 1,000 B, 2,000 B, 5,000 B, 50,000 B, and above; none where there was no request.
    pub classes: Vec<SizeCount>,
    /// From 0, 10, 100 B and so on.
    pub decades: Vec<SizeCount>,
    /// Those bins that have any, smallest sizes first.
    pub bins: Vec<SizeCount>,
}

/// Requests of some sizes that were answered in the window, and those that were given up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SizeCount {
    /// Smallest size that can be here, bytes; the next place's is the first that cannot.
    pub from_bytes: u64,
    /// Complete replies.
    pub replies: u64,
    /// Sum of their times from the request that was answered, microseconds.
    pub response_us: u64,
    /// Sum of their times from the user's first try, microseconds.
    pub user_us: u64,
    /// Requests that ended without a reply, and are not tried again.
    pub incomplete: u64,
}

impl SizeCount {
    fn of(from_bytes: u64) -> Self {
        Self { from_bytes, ..Self::default() }
    }

    /// Mean response time from the first try, milliseconds; none without a reply.
    pub fn mean_ms(&self) -> Option<f64> {
        (self.replies > 0).then(|| self.user_us as f64 / 1e3 / self.replies as f64)
    }

    fn requests(&self) -> u64 {
        self.replies + self.incomplete
    }

    fn add(&mut self, other: &Self) {
        let Self { from_bytes: _, replies, response_us, user_us, incomplete } = other;
        self.replies += replies;
        self.response_us += response_us;
        self.user_us += user_us;
        self.incomplete += incomplete;
    }
}

impl BySize {
    /// A complete reply to a request for so many bytes.
    pub fn replied(&mut self, bytes: u64, response_us: u64, user_us: u64) {
        self.count(bytes, &SizeCount { from_bytes: 0, replies: 1, response_us, user_us, incomplete: 0 });
    }

    /// A request for so many bytes that nobody will answer.
    pub fn given_up(&mut self, bytes: u64) {
        self.count(bytes, &SizeCount { incomplete: 1, ..SizeCount::default() });
    }

    fn count(&mut self, bytes: u64, one: &SizeCount) {
        if self.classes.is_empty() {
            // A class begins behind its bound: 1,000 B is of the first.
            let bounds = CLASSES.iter().map(|bound| bound + 1);
            self.classes = [0].into_iter().chain(bounds).map(SizeCount::of).collect();
        }
        self.classes[CLASSES.partition_point(|bound| *bound < bytes)].add(one);
        let decade = bytes.checked_ilog10().unwrap_or(0) as usize;
        while self.decades.len() <= decade {
            let from = if self.decades.is_empty() { 0 } else { 10_u64.pow(self.decades.len() as u32) };
            self.decades.push(SizeCount::of(from));
        }
        self.decades[decade].add(one);
        let from = start_of_bin(bytes);
        let place = self.bins.partition_point(|bin| bin.from_bytes < from);
        if self.bins.get(place).is_none_or(|bin| bin.from_bytes != from) {
            self.bins.insert(place, SizeCount::of(from));
        }
        self.bins[place].add(one);
    }

    /// Adds what another part of the same crowd saw.
    pub fn add(&mut self, other: &Self) {
        for (own, others) in [
            (&mut self.classes, &other.classes),
            (&mut self.decades, &other.decades),
            (&mut self.bins, &other.bins),
        ] {
            for theirs in others {
                let place = own.partition_point(|count| count.from_bytes < theirs.from_bytes);
                if own.get(place).is_none_or(|count| count.from_bytes != theirs.from_bytes) {
                    own.insert(place, SizeCount::of(theirs.from_bytes));
                }
                own[place].add(theirs);
            }
        }
    }

    /// Whether replies of more than one class came.
    pub fn differ(&self) -> bool {
        self.classes.iter().filter(|class| class.replies > 0).count() > 1
    }

    /// Mean response time of the largest share of the complete replies, from the first try,
    /// milliseconds. Of the bin that the share ends in a part counts, as if all of it had the bin's
    /// mean.
    pub fn mean_of_largest_ms(&self, share: f64) -> Option<f64> {
        let largest = self.largest(share, |bin| bin.replies);
        let (mut replies, mut user_us) = (0.0, 0.0);
        for (bin, part) in largest {
            replies += bin.replies as f64 * part;
            user_us += bin.user_us as f64 * part;
        }
        (replies > 0.0).then(|| user_us / 1e3 / replies)
    }

    /// Mean response time of the largest requests that were answered: those of the last bin with a
    /// reply, whose sizes are within a sixteenth of each other.
    pub fn mean_of_very_largest_ms(&self) -> Option<f64> {
        self.bins.iter().rev().find_map(SizeCount::mean_ms)
    }

    /// Share of the requests that ended without a reply; none where no request ended.
    pub fn incomplete_share(&self) -> Option<f64> {
        self.incomplete_share_of_largest(1.0)
    }

    /// The same of the largest share of the requests.
    pub fn incomplete_share_of_largest(&self, share: f64) -> Option<f64> {
        let (mut all, mut incomplete) = (0.0, 0.0);
        for (bin, part) in self.largest(share, SizeCount::requests) {
            all += bin.requests() as f64 * part;
            incomplete += bin.incomplete as f64 * part;
        }
        (all > 0.0).then(|| incomplete / all)
    }

    /// The bins of the largest share of what is counted, each with the part of it that belongs to
    /// them.
    fn largest(
        &self,
        share: f64,
        count: impl Fn(&SizeCount) -> u64,
    ) -> impl Iterator<Item = (&SizeCount, f64)> {
        let all: u64 = self.bins.iter().map(&count).sum();
        let mut left = all as f64 * share;
        self.bins.iter().rev().map_while(move |bin| {
            let here = count(bin) as f64;
            if left <= 0.0 {
                return None;
            }
            let part = if here > 0.0 { (left / here).min(1.0) } else { 0.0 };
            left -= here;
            Some((bin, part))
        })
    }
}

/// The smallest size in the bin of a size.
fn start_of_bin(bytes: u64) -> u64 {
    match bytes.checked_ilog2() {
        Some(octave) if octave > BITS => bytes >> (octave - BITS) << (octave - BITS),
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes from 1 to 1,000, each of which takes as many milliseconds.
    fn thousand() -> BySize {
        let mut sizes = BySize::default();
        for bytes in 1..=1000 {
            sizes.replied(bytes, bytes * 1000, bytes * 2000);
        }
        sizes
    }

    #[test]
    fn every_size_is_in_one_bin_of_sizes_within_a_sixteenth() {
        let mut last = 0;
        for bytes in (0..5_000).chain((1..40).map(|n| 3_u64.pow(n))) {
            let from = start_of_bin(bytes);
            assert!(from <= bytes && bytes - from <= from / 16, "{bytes} is in the bin from {from}");
            assert_eq!(start_of_bin(from), from);
            last = last.max(from);
        }
        assert_eq!(start_of_bin(u64::MAX), 31 << 59, "{last}");
    }

    #[test]
    fn classes_are_those_of_the_paper_and_decades_begin_at_tens() {
        let mut sizes = BySize::default();
        for bytes in [0, 9, 10, 1_000, 1_001, 2_000, 5_000, 5_001, 50_000, 50_001, 2_020_000] {
            sizes.replied(bytes, 1, 1);
        }
        sizes.given_up(60_000);
        let counts = |counts: &[SizeCount]| -> Vec<(u64, u64, u64)> {
            counts.iter().map(|count| (count.from_bytes, count.replies, count.incomplete)).collect()
        };
        let classes = [(0, 4, 0), (1_001, 2, 0), (2_001, 1, 0), (5_001, 2, 0), (50_001, 2, 1)];
        assert_eq!(counts(&sizes.classes), classes);
        let decades = [(0, 2, 0), (10, 1, 0), (100, 0, 0), (1_000, 5, 0), (10_000, 2, 1), (100_000, 0, 0)];
        assert_eq!(counts(&sizes.decades)[..6], decades);
        assert_eq!(counts(&sizes.decades)[6], (1_000_000, 1, 0));
    }

    #[test]
    fn mean_of_the_largest_is_of_the_share_from_the_top() {
        let sizes = thousand();
        assert_eq!(sizes.bins.len(), 16 + 16 * 5 + 15);
        // The largest tenth is 901 to 1,000, from the first try; bins are 32 wide there.
        let tenth = sizes.mean_of_largest_ms(0.1).expect("replies");
        assert!((tenth - 2.0 * 950.5).abs() < 2.0 * 4.0, "{tenth}");
        let all = sizes.mean_of_largest_ms(1.0).expect("replies");
        assert!((all - 1001.0).abs() < 1e-6, "{all}");
        // 992 to 1,000.
        assert_eq!(sizes.mean_of_very_largest_ms(), Some(2.0 * 996.0));
        assert_eq!(BySize::default().mean_of_largest_ms(0.01), None);
    }

    #[test]
    fn incomplete_requests_are_a_share_of_all_and_of_the_largest() {
        let mut sizes = thousand();
        assert_eq!(sizes.incomplete_share(), Some(0.0));
        (0..10).for_each(|_| sizes.given_up(2_000_000));
        assert!((sizes.incomplete_share().expect("requests") - 10.0 / 1010.0).abs() < 1e-9);
        // The largest 1% of 1,010 are those ten and a tenth of a request.
        let of_largest = sizes.incomplete_share_of_largest(0.01).expect("requests");
        assert!((of_largest - 10.0 / 10.1).abs() < 1e-9, "{of_largest}");
        assert_eq!(sizes.mean_of_very_largest_ms(), Some(2.0 * 996.0), "of those that were answered");
        assert_eq!(BySize::default().incomplete_share(), None);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (mut odd, mut even) = (BySize::default(), BySize::default());
        for bytes in 1..=1000 {
            let part = if bytes % 2 == 0 { &mut even } else { &mut odd };
            part.replied(bytes, bytes * 1000, bytes * 2000);
        }
        odd.add(&even);
        assert_eq!(odd, thousand());
        let mut none = BySize::default();
        none.add(&odd);
        assert_eq!(none, odd);
    }
}
