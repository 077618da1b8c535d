//! What a server does with the connections that it gets.

use std::time::Duration;

use pacer::{Pace, SILENT, Service as Counts, WAITING, limit_of};
use verdict::Histogram;

use crate::Trigger;

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
    /// A time that all but one response in twenty took at least, within a factor of two.
    pub response_floor: Duration,
    /// A time that half of the handshakes took no longer than.
    pub handshake_median: Duration,
    /// Of a million SYNs that were let through, those that become connections, as far as is known.
    pub completed_ppm: u32,
}

impl ServerSample {
    /// From what the kernel counted, for a listener whose policy has this trigger.
    pub fn of(counts: &Counts, pace: &Pace, trigger: Trigger) -> Self {
        // Where the bucket begins, of those that double.
        let floor_us = Histogram(counts.responses_us).below(0.05).unwrap_or(0) / 2;
        let handshake_us = Histogram(counts.handshakes_us).below(0.5).unwrap_or(0);
        Self {
            silent: counts.in_stage[SILENT].into(),
            waiting: counts.in_stage[WAITING].into(),
            counted: counts.counted(pace).into(),
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
            response_floor: Duration::from_micros(floor_us),
            handshake_median: Duration::from_micros(handshake_us),
            completed_ppm: pace.completed_ppm,
        }
    }

    /// Share of the SYNs let through that is expected to become connections, 0 to 1.
    pub fn completed_share(&self) -> f64 {
        f64::from(self.completed_ppm) / 1e6
    }
}
