//! Bursts of attempts, and the gaps between them.

use units::Nanos;

/// Between two starts in a gap.
const GAP_EVERY: Nanos = Nanos::from_secs(1);

/// Bursts with gaps of near inactivity between them: a burst of so long, a gap of so long, and so
/// on from time zero.
///
/// In a gap one attempt starts each second, the first as it begins. During a burst the rate is so
/// much higher that the mean over burst and gap is what was asked for.
///
/// Source: `[Shu05]` section 5.2, figure 5.3, whose generator could not send nothing at all either.
/// Differs: the attempts of the gaps are part of the mean (there 15,000/s for 10 s and 5 attempts
/// in 5 s are a mean of 10,000/s; here 14,999.5/s).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bursts {
    on: Nanos,
    off: Nanos,
}

impl Bursts {
    /// Bursts of `on` with gaps of `off` between them; none when either is zero.
    pub fn new(on: Nanos, off: Nanos) -> Option<Self> {
        (on > Nanos::ZERO && off > Nanos::ZERO).then_some(Self { on, off })
    }

    /// Length of a burst.
    pub const fn on(self) -> Nanos {
        self.on
    }

    /// From the start of one burst to that of the next.
    pub fn cycle(self) -> Nanos {
        self.on + self.off
    }

    /// Attempts that start in one gap.
    pub const fn starts_in_gap(self) -> u64 {
        self.off.0.div_ceil(GAP_EVERY.0)
    }

    /// Attempts per second during a burst when there are to be `mean` over burst and gap; none when
    /// those of the gaps alone are as many.
    pub fn rate_in_burst(self, mean: f64) -> Option<f64> {
        let in_burst = mean * self.cycle().as_secs_f64() - self.starts_in_gap() as f64;
        (in_burst > 0.0).then(|| in_burst / self.on.as_secs_f64())
    }

    /// Attempts per second over burst and gap when there are to be `in_burst` during a burst: the
    /// other way round.
    pub fn mean_rate(self, in_burst: f64) -> f64 {
        (in_burst * self.on.as_secs_f64() + self.starts_in_gap() as f64) / self.cycle().as_secs_f64()
    }

    /// When it is, nanoseconds, if `busy_ns` have passed in bursts. Never within a gap.
    pub(crate) fn moment_in_burst(self, busy_ns: f64) -> Nanos {
        let on = self.on.0 as f64;
        let into = busy_ns % on; // exact, so that no rounding leads into a gap
        let bursts = ((busy_ns - into) / on).round() as u64;
        Nanos(bursts * self.cycle().0 + into as u64)
    }

    /// When the `n`th attempt of all gaps starts, from 0.
    pub(crate) fn start_in_gap(self, n: u64) -> Nanos {
        let (gap, second) = (n / self.starts_in_gap(), n % self.starts_in_gap());
        Nanos(gap * self.cycle().0 + self.on.0 + second * GAP_EVERY.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bursts(on_secs: u64, off_secs: u64) -> Bursts {
        Bursts::new(Nanos::from_secs(on_secs), Nanos::from_secs(off_secs)).expect("not zero")
    }

    #[test]
    fn burst_or_gap_of_no_length_is_none() {
        assert_eq!(Bursts::new(Nanos::ZERO, Nanos(1)), None);
        assert_eq!(Bursts::new(Nanos(1), Nanos::ZERO), None);
    }

    #[test]
    fn rate_in_burst_makes_up_for_the_gap() {
        assert_eq!(bursts(10, 5).rate_in_burst(10_000.0), Some(14_999.5));
        assert_eq!(bursts(1, 1).rate_in_burst(1.0), Some(1.0));
    }

    #[test]
    fn mean_rate_is_that_of_the_bursts_and_of_what_starts_in_the_gaps() {
        for (on, off, in_burst) in [(10, 5, 14_999.5), (1, 60, 100.0), (1, 1, 1.0)] {
            let bursts = bursts(on, off);
            let back = bursts.rate_in_burst(bursts.mean_rate(in_burst)).expect("more than the gaps have");
            assert!((back - in_burst).abs() < 1e-9 * in_burst, "{back}, {in_burst}");
        }
    }

    #[test]
    fn mean_that_the_gaps_have_already_has_no_burst() {
        assert_eq!(bursts(10, 5).rate_in_burst(5.0 / 15.0), None);
        assert_eq!(bursts(10, 5).rate_in_burst(0.1), None);
    }

    #[test]
    fn gap_has_a_start_in_each_second_that_it_begins() {
        let short = Bursts::new(Nanos::from_secs(10), Nanos::from_millis(1500)).expect("not zero");
        let starts: Vec<u64> = (0..4).map(|n| short.start_in_gap(n).0 / 1_000_000).collect();
        assert_eq!(starts, [10_000, 11_000, 21_500, 22_500]);
        assert_eq!(Bursts::new(Nanos(1), Nanos(1)).expect("not zero").starts_in_gap(), 1);
    }

    #[test]
    fn no_moment_of_a_burst_is_in_a_gap() {
        let thirds = Bursts::new(Nanos(333_333_333), Nanos(77)).expect("not zero");
        for burst in 0..1000_u64 {
            let end = (burst * 333_333_333) as f64;
            for busy in [end, end.next_down().max(0.0), end.next_up()] {
                let into = thirds.moment_in_burst(busy).0 % thirds.cycle().0;
                assert!(into < 333_333_333, "{busy} ns of bursts are {into} ns into a cycle");
            }
        }
    }
}
