//! hold: no FIN is held for a minute where programs wait for the end of their connections.

use std::time::{Duration, Instant};

use crate::Counts;

/// FINs that must be held before a destination is judged.
const ENOUGH: u64 = 10;
/// A destination that backs off holds no FIN for this long, and then tries again.
const PAUSE: Duration = Duration::from_secs(60);

/// Back-off of one destination.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BackOff {
    /// FINs held, and FINs held in vain, up to the last judgement.
    before: (u64, u64),
    until: Option<Instant>,
}

impl BackOff {
    /// Judges the counters at `now`. True if the destination begins to back off.
    pub(crate) fn look(&mut self, counts: &Counts, now: Instant) -> bool {
        let (held, in_vain) = (counts.held, counts.given_up + counts.overdue);
        if let Some(until) = self.until {
            if now >= until {
                // FINs that came in during the pause were held before it.
                (self.until, self.before) = (None, (held, in_vain));
            }
            return false;
        }
        if held - self.before.0 < ENOUGH {
            return false;
        }
        let backs_off = 2 * (in_vain - self.before.1) > held - self.before.0;
        self.before = (held, in_vain);
        self.until = backs_off.then(|| now + PAUSE);
        backs_off
    }

    /// True while the destination holds no FIN.
    pub(crate) fn is_on(&self) -> bool {
        self.until.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destination_where_most_are_asked_for_is_left_alone_for_a_minute() {
        let (mut back_off, start) = (BackOff::default(), Instant::now());
        let counts = |held, given_up, overdue| Counts { held, given_up, overdue, ..Counts::default() };
        assert!(!back_off.look(&counts(9, 9, 0), start), "too few");
        assert!(!back_off.look(&counts(20, 10, 0), start), "no more than half");
        assert!(back_off.look(&counts(30, 13, 3), start) && back_off.is_on());
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(!back_off.look(&counts(30, 13, 3), later(59)) && back_off.is_on(), "it was said");
        assert!(!back_off.look(&counts(30, 13, 9), later(60)) && !back_off.is_on(), "it is tried again");
        assert!(!back_off.look(&counts(36, 13, 9), later(61)), "what was held before counts no more");
        assert!(back_off.look(&counts(46, 23, 9), later(62)));
    }
}
