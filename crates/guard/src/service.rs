//! What a server does with the connections that it gets.

use std::ops::Range;
use std::time::Duration;

use pacer::{Pace, Pacer, SILENT, Service as Counts, WAITING, Waiting, limit_of};
use verdict::Histogram;

use crate::Trigger;

/// Of the ends of buckets, those that are shown: from 16 microseconds to 67 seconds.
const SHOWN: Range<usize> = 4..27;

/// Connections of a server from the end of the handshake to the beginning of the response, and sums
/// since it is guarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServerSample {
    /// Now, and we have seen no byte of a request.
    pub silent: u64,
    /// Now, with a request, and the response has not begun.
    pub waiting: u64,
    /// Of these, those that wait for the server, and not for something else: what the trigger
    /// `unserved` goes by.
    pub counted: u64,
    /// The same at each look of the agent so far, see [`crate::LOOK_EVERY`].
    pub waited: Waiting,
    /// How many may wait: as the policy says, or as was found. `None` where a time is what is
    /// limited, and before one is found.
    pub limit: Option<u32>,
    /// Too few answers were seen to know the usual one: the accept queue alone shows a crowd.
    pub is_learning: bool,
    /// One connection in so many is followed, and counts for all of them: above 1 all numbers here
    /// are estimates.
    pub follows_one_in: u16,
    /// Handshakes that ended.
    pub established: u64,
    /// Responses that began.
    pub answered: u64,
    /// Of these, before they were overtaken.
    pub answered_in_turn: u64,
    /// Of `answered`, before we saw a byte of a request: a server that speaks first.
    pub answered_silent: u64,
    /// Connections that ended without an answer.
    pub ended: u64,
    /// Time in which nobody waited, up to the last request that came.
    pub idle_time: Duration,
    /// From the request, or the handshake's end, to the beginning, over all `answered_in_turn`.
    pub response_time: Duration,
    /// Of the same times, microseconds.
    pub responses_us: Histogram,
    /// A time that all but one response in twenty took at least, within a factor of two.
    pub response_floor: Duration,
    /// A time that half of the handshakes took no longer than.
    pub handshake_median: Duration,
    /// Of a million SYNs that were let through, those that become connections, as far as is known.
    pub completed_ppm: u32,
}

impl ServerSample {
    /// From what the kernel counted and the agent saw, for a listener whose policy has this
    /// trigger.
    pub fn of(counts: &Counts, pacer: &Pacer, trigger: Trigger) -> Self {
        Self { waited: pacer.waiting(), ..Self::counted(counts, pacer.pace(), trigger) }
    }

    fn counted(counts: &Counts, pace: &Pace, trigger: Trigger) -> Self {
        // Where the bucket begins, of those that double.
        let floor_us = Histogram(counts.responses_us).below(0.05).unwrap_or(0) / 2;
        let handshake_us = Histogram(counts.handshakes_us).below(0.5).unwrap_or(0);
        Self {
            silent: counts.in_stage[SILENT].into(),
            waiting: counts.in_stage[WAITING].into(),
            counted: counts.counted(pace).into(),
            waited: Waiting::default(),
            limit: limit_of(pace, trigger),
            is_learning: trigger == Trigger::Unserved(None) && pace.quick_ns == 0,
            follows_one_in: pace.follow_one_in,
            established: counts.established,
            answered: counts.answered,
            answered_in_turn: counts.answered_in_turn,
            answered_silent: counts.answered_silent,
            ended: counts.ended,
            idle_time: Duration::from_nanos(counts.idle_ns),
            response_time: Duration::from_nanos(counts.response_ns),
            responses_us: Histogram(counts.responses_us),
            response_floor: Duration::from_micros(floor_us),
            handshake_median: Duration::from_micros(handshake_us),
            completed_ppm: pace.completed_ppm,
        }
    }

    /// Bounds that double, in seconds, and how many of `answered_in_turn` took less. Longer ones
    /// are in `answered_in_turn` alone.
    pub fn response_buckets(&self) -> Vec<(f64, u64)> {
        let seconds = |(end_us, count)| (Duration::from_micros(end_us).as_secs_f64(), count);
        self.responses_us.cumulative()[SHOWN].iter().copied().map(seconds).collect()
    }

    /// Share of the SYNs let through that is expected to become connections, 0 to 1.
    pub fn completed_share(&self) -> f64 {
        f64::from(self.completed_ppm) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_response_is_in_every_bucket_that_ends_after_it() {
        let mut counts = Counts { answered_in_turn: 1110, ..Counts::default() };
        // Below 16 microseconds, about a millisecond, and minutes.
        (counts.responses_us[2], counts.responses_us[10], counts.responses_us[30]) = (1000, 100, 10);
        let buckets =
            ServerSample::counted(&counts, &Pace::default(), Trigger::Unserved(None)).response_buckets();
        assert_eq!((buckets[0], buckets[buckets.len() - 1]), ((16e-6, 1000), (67.108864, 1100)));
        let first = |count| buckets.iter().find(|(_, below)| *below == count).map(|(bound_s, _)| *bound_s);
        assert_eq!(first(1100), Some(1.024e-3));
        assert!(buckets.windows(2).all(|pair| pair[1].0 == 2.0 * pair[0].0 && pair[1].1 >= pair[0].1));
    }
}
