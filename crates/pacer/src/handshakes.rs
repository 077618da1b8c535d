//! Of the last moments, how long handshakes take, and how many of those that were let in end.

use units::Nanos;
use verdict::BUCKETS;

use crate::fade::{SECOND, remembered};
use crate::histogram::FadingHistogram;

/// One that takes longer is not waited for: clients can make it last.
const LONGEST_NS: u64 = 250_000_000;
/// In a flood of forged SYNs one in a thousand comes, or more.
const SMALLEST_SHARE: f64 = 1e-3;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Handshakes {
    let_in: f64,
    ended: f64,
    times: FadingHistogram,
}

impl Default for Handshakes {
    /// As good as nothing is known, and all come.
    fn default() -> Self {
        Self { let_in: 1.0, ended: 1.0, times: FadingHistogram::default() }
    }
}

impl Handshakes {
    /// In so much time so many SYNs were let in and handshakes ended, of which these were timed.
    pub(crate) fn add(&mut self, elapsed: Nanos, let_in: u64, ended: u64, times: &[u64; BUCKETS]) {
        let left = remembered(elapsed, SECOND);
        self.let_in = left * self.let_in + let_in as f64;
        self.ended = left * self.ended + ended as f64;
        self.times.add(elapsed, times);
    }

    /// The usual one, ns; 0 until it is known.
    pub(crate) fn usual_ns(&self) -> u64 {
        let us = self.times.below(0.5).unwrap_or(0);
        us.saturating_mul(750).min(LONGEST_NS)
    }

    /// Of those that are let in, the share that becomes connections.
    pub(crate) fn share(&self) -> f64 {
        if self.let_in < 1.0 { 1.0 } else { (self.ended / self.let_in).clamp(SMALLEST_SHARE, 1.0) }
    }
}
