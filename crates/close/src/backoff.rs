//! hold: where programs wait for the end of their connections, FINs are held in vain, and so no
//! more for a while.

use std::time::{Duration, Instant};

use crate::Counts;

/// FINs that were held, before anything is concluded.
const ENOUGH: u64 = 10;
/// How long none is held then; after that it is tried again.
const PAUSE: Duration = Duration::from_secs(60);

/// Of one destination.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct BackOff {
    /// Held, and held in vain, when it was looked at last.
    before: (u64, u64),
    until: Option<Instant>,
}

impl BackOff {
    /// Takes in what was counted until now. Gives whether that is why none is held from now on.
    pub(crate) fn look(&mut self, counts: &Counts, now: Instant) -> bool {
        let (held, in_vain) = (counts.held, counts.given_up + counts.overdue);
        if let Some(until) = self.until {
            if now >= until {
                // What came in meanwhile was held before.
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

    /// Whether none is held now.
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
