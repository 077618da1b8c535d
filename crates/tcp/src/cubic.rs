//! CUBIC (RFC 9438): a window that grows by the time since the last loss, and not by round trips.
//!
//! What it is not: no HyStart, so that the first slow start ends with a loss; no undoing of a
//! reduction that turns out needless (section 4.9).

use units::Nanos;

/// `C`: how steep the curve is, segments per second cubed (RFC 9438 section 4.1.2).
const STEEPNESS: f64 = 0.4;
/// `beta_cubic`: what is left of the window after a loss (section 4.6).
const LEFT: f64 = 0.7;
/// `alpha_cubic`: by how many segments a round trip Reno would grow, had it [`LEFT`] (section 4.3).
const AS_RENO: f64 = 3.0 * (1.0 - LEFT) / (1.0 + LEFT);
/// The most that a window grows to in a round trip, times itself (section 4.2).
const STEEPEST: f64 = 1.5;

/// The curve of a connection. Windows are in segments, times in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cubic {
    /// `W_max`: the window at the last loss, or less where it had been larger before; 0 after a
    /// timeout.
    at_loss: f64,
    /// `cwnd_prior`: the window at the last loss.
    prior: f64,
    /// When this stage of congestion avoidance began; [`Nanos::MAX`] before its first
    /// acknowledgment.
    began_at: Nanos,
    /// Where the curve is flat: its height, and the time since the beginning, `K`.
    plateau: f64,
    plateau_after: f64,
    /// `W_est`: what Reno's window would be.
    reno: f64,
    /// Of a byte, what the window has not grown by yet.
    rest: f64,
}

impl Cubic {
    pub(crate) const fn new() -> Self {
        Self {
            at_loss: 0.0,
            prior: 0.0,
            began_at: Nanos::MAX,
            plateau: 0.0,
            plateau_after: 0.0,
            reno: 0.0,
            rest: 0.0,
        }
    }

    /// By how many bytes a window of `window` bytes grows when `acked` of it have arrived (section
    /// 4.2).
    pub(crate) fn increase(
        &mut self,
        window: u32,
        acked: u32,
        mss: u32,
        round_trip: Nanos,
        now: Nanos,
    ) -> u32 {
        let mss = f64::from(mss);
        let (window, acked) = (f64::from(window) / mss, f64::from(acked) / mss);
        if self.began_at == Nanos::MAX {
            self.begin(window, now);
        }
        let share = acked / window;
        self.reno += if self.reno < self.prior { AS_RENO * share } else { share };
        let since = now.since(self.began_at).as_secs_f64();
        let by = if self.at(since) < self.reno {
            (self.reno - window).max(0.0)
        } else {
            let target = self.at(since + round_trip.as_secs_f64()).clamp(window, STEEPEST * window);
            (target - window) * share
        };
        self.rest += by * mss;
        let whole = self.rest as u32;
        self.rest -= f64::from(whole);
        whole
    }

    /// `W_cubic(t)` (section 4.2, figure 1).
    fn at(&self, since: f64) -> f64 {
        STEEPNESS * (since - self.plateau_after).powi(3) + self.plateau
    }

    /// A stage begins, below the window of the last loss, or where there was none with the flat
    /// part of the curve (sections 4.8, 4.10).
    fn begin(&mut self, window: f64, now: Nanos) {
        self.began_at = now;
        self.reno = window;
        self.rest = 0.0;
        self.plateau = self.at_loss.max(window);
        self.plateau_after = ((self.plateau - window) / STEEPNESS).cbrt();
    }

    /// A loss. Gives the window that is left, bytes (sections 4.6 and 4.7: who had to give way
    /// before its last window leaves more to others).
    pub(crate) fn reduce(&mut self, window: u32, mss: u32) -> u32 {
        let segments = f64::from(window) / f64::from(mss);
        self.at_loss = if segments < self.at_loss { segments * (1.0 + LEFT) / 2.0 } else { segments };
        self.prior = segments;
        self.began_at = Nanos::MAX;
        (f64::from(window) * LEFT) as u32
    }

    /// After a timeout nothing is known of the path any more (section 4.8; `bictcp_state()`, Linux
    /// 6.18 `net/ipv4/tcp_cubic.c`).
    pub(crate) fn forget(&mut self) {
        self.at_loss = 0.0;
        self.began_at = Nanos::MAX;
    }

    /// Nothing was sent for a while, which does not count (section 5.8, `cubictcp_cwnd_event()`).
    pub(crate) fn skip(&mut self, idle: Nanos) {
        if self.began_at != Nanos::MAX {
            self.began_at += idle;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1000;

    /// The window after each round trip of `round_trip`, in segments, from the stage's begin on;
    /// all of it is acknowledged segment by segment.
    fn grow(cubic: &mut Cubic, window: u32, round_trip: Nanos, until: Nanos) -> Vec<(f64, f64)> {
        let (mut now, mut window, mut seen) = (Nanos::ZERO, window, Vec::new());
        while now <= until {
            let segments = window / MSS;
            for n in 0..segments {
                let at = now + Nanos(round_trip.0 / u64::from(segments) * u64::from(n));
                window += cubic.increase(window, MSS, MSS, round_trip, at);
            }
            now += round_trip;
            seen.push((now.as_secs_f64(), f64::from(window) / f64::from(MSS)));
        }
        seen
    }

    #[test]
    fn window_follows_the_curve_of_the_rfc() {
        let mut cubic = Cubic::new();
        let left = cubic.reduce(1_000_000, MSS);
        assert_eq!(left, 700_000);
        // K = cbrt(W_max * (1 - beta) / C) = cbrt(1000 * 0.3 / 0.4), and W(t) = 0.4 * (t -
        // K)^3 + 1000.
        let k = 750_f64.cbrt();
        for (at, window) in grow(&mut cubic, left, Nanos::from_millis(100), Nanos::from_secs(15)) {
            let formula = 0.4 * (at - k).powi(3) + 1000.0;
            // The target is a round trip ahead and is come near to within one, so that the window
            // is less than a round trip behind.
            let behind = 0.4 * (at - 0.1 - k).powi(3) + 1000.0;
            assert!(window <= formula + 2.0 && window >= behind - 2.0, "{at} s: {window}, not {formula}");
        }
    }

    #[test]
    fn small_windows_grow_as_renos_of_the_same_decrease() {
        let mut cubic = Cubic::new();
        let left = cubic.reduce(20_000, MSS);
        assert_eq!(left, 14_000);
        let seen = grow(&mut cubic, left, Nanos::from_millis(10), Nanos::from_millis(100));
        // alpha = 3 * 0.3 / 1.7 = 0.53 segments a round trip until the window of the loss is
        // reached.
        for (trips, (_, window)) in (1..).zip(seen) {
            let formula = 14.0 + 0.529 * f64::from(trips);
            assert!((window - formula).abs() < 0.6, "after {trips} round trips {window}, not {formula}");
        }
    }

    #[test]
    fn second_loss_before_the_last_window_leaves_more_to_others() {
        let mut cubic = Cubic::new();
        cubic.reduce(100_000, MSS);
        cubic.reduce(80_000, MSS);
        assert!((cubic.at_loss - 68.0).abs() < 1e-9, "80 * 0.85");
        assert_eq!(cubic.prior, 80.0);
    }

    #[test]
    fn stage_after_a_timeout_begins_with_the_flat_part() {
        let mut cubic = Cubic::new();
        cubic.reduce(100_000, MSS);
        cubic.forget();
        cubic.increase(50_000, MSS, MSS, Nanos::from_millis(100), Nanos::from_secs(9));
        assert_eq!((cubic.plateau, cubic.plateau_after), (50.0, 0.0));
    }

    #[test]
    fn time_without_sending_does_not_count() {
        let mut cubic = Cubic::new();
        cubic.reduce(100_000, MSS);
        let trip = Nanos::from_millis(100);
        let mut other = cubic;
        cubic.increase(70_000, MSS, MSS, trip, Nanos::ZERO);
        other.increase(70_000, MSS, MSS, trip, Nanos::ZERO);
        other.skip(Nanos::from_secs(60));
        let one = cubic.increase(70_000, MSS, MSS, trip, Nanos::from_secs(2));
        assert_eq!(one, other.increase(70_000, MSS, MSS, trip, Nanos::from_secs(62)));
    }
}
