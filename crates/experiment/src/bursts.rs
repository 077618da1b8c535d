//! Crowds that come in bursts.

use std::fmt;
use std::time::Duration;

use humantime::format_duration;
use results::BurstLengths;
use serde::Deserialize;

use crate::time::{LONGEST, duration};

/// Shortest burst or gap: some turns of the generator.
pub(crate) const SHORTEST: Duration = Duration::from_millis(10);

/// How long each burst is and each gap, in which one attempt starts every second. Shown as
/// `tidegate load --bursts` takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bursts {
    /// A burst.
    #[serde(deserialize_with = "duration")]
    pub on: Duration,
    /// The gap after it.
    #[serde(deserialize_with = "duration")]
    pub off: Duration,
    /// What the loads of the grid are of.
    #[serde(default)]
    pub(crate) loads: LoadsOf,
}

/// What an offered load is of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LoadsOf {
    /// Burst and gap together.
    #[default]
    Mean,
    /// A burst alone.
    Burst,
}

impl LoadsOf {
    /// What loads are of, behind the words for such a crowd.
    pub(crate) fn said_of(self, crowd: &str) -> String {
        let loads = match self {
            Self::Mean => "the mean over both",
            Self::Burst => "those of a burst",
        };
        format!(
            "{crowd}, in which one attempt starts each second. Loads are {loads}; the saturation rate, and what the machine can do just \
             before a load, are of crowds without bursts."
        )
    }
}

impl Bursts {
    /// From the start of one burst to that of the next.
    pub(crate) fn cycle(self) -> Duration {
        self.on + self.off
    }

    /// Attempts per second over burst and gap of a crowd with such a rate: that of both, or of a
    /// burst alone.
    pub(crate) fn mean_rate(self, rate: f64) -> f64 {
        match (self.loads, traffic::Bursts::new(self.on.into(), self.off.into())) {
            (LoadsOf::Burst, Some(bursts)) => bursts.mean_rate(rate),
            _ => rate,
        }
    }

    /// As the report has it.
    pub(crate) fn lengths(self) -> BurstLengths {
        BurstLengths { on_s: self.on.as_secs_f64(), off_s: self.off.as_secs_f64() }
    }

    /// Whether such a crowd can be sent.
    ///
    /// # Errors
    ///
    /// One line: what cannot be, and what would do.
    pub(crate) fn check(self) -> Result<(), String> {
        for (part, length) in [("on", self.on), ("off", self.off)] {
            if !(SHORTEST..=LONGEST).contains(&length) {
                return Err(format!(
                    "crowd.bursts: {part} = {length:?} cannot be sent: from 10ms to 1h; on = \"10s\", off = \"5s\" is usual"
                ));
            }
        }
        Ok(())
    }

    /// Whether a window holds a whole number of bursts and gaps, so that its mean is theirs
    /// wherever in a burst it begins.
    ///
    /// # Errors
    ///
    /// One line: which window does not, and which would.
    pub(crate) fn check_window(self, key: &str, window: Duration) -> Result<(), String> {
        let fitting = self.whole_cycles(window);
        if fitting == window {
            return Ok(());
        }
        let would_do = [fitting, fitting + self.cycle()];
        let would_do: Vec<String> = would_do
            .iter()
            .filter(|window| !window.is_zero())
            .map(|window| format_duration(*window).to_string())
            .collect();
        let (on, off) = (format_duration(self.on), format_duration(self.off));
        Err(format!(
            "{key} = {window:?} does not hold a whole number of bursts of {on} and gaps of {off}; {} would do",
            would_do.join(" or ")
        ))
    }

    /// The same proportions in a cycle of `longest` at most, and the window of whole cycles that is
    /// nearest to that from below.
    pub(crate) fn quick(self, longest: Duration) -> (Self, Duration) {
        if self.cycle() <= longest {
            return (self, self.whole_cycles(longest));
        }
        let on = longest.mul_f64(self.on.as_secs_f64() / self.cycle().as_secs_f64());
        (Self { on, off: longest - on, ..self }, longest)
    }

    /// As long as the whole cycles that fit in a window.
    fn whole_cycles(self, window: Duration) -> Duration {
        let cycles = window.as_nanos() / self.cycle().as_nanos();
        self.cycle() * u32::try_from(cycles).expect("windows of an hour and cycles of 20 ms")
    }
}

impl fmt::Display for Bursts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", format_duration(self.on), format_duration(self.off))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn bursts(on_secs: u64, off_secs: u64) -> Bursts {
        Bursts { on: Duration::from_secs(on_secs), off: Duration::from_secs(off_secs), loads: LoadsOf::Mean }
    }

    #[test]
    fn window_with_part_of_a_burst_is_told_which_would_do() {
        let check = |secs| bursts(10, 5).check_window("grid.duration", Duration::from_secs(secs));
        assert_eq!((check(15), check(225)), (Ok(()), Ok(())));
        assert_eq!(
            check(20).expect_err("one and a third"),
            "grid.duration = 20s does not hold a whole number of bursts of 10s and gaps of 5s; 15s or 30s would do"
        );
        assert!(check(4).expect_err("no gap").ends_with("gaps of 5s; 15s would do"));
    }

    #[test]
    fn burst_is_between_some_turns_and_an_hour() {
        assert_eq!(bursts(10, 5).check(), Ok(()));
        assert!(bursts(10, 0).check().expect_err("no gap").contains("off = 0ns cannot be sent"));
        assert!(bursts(3601, 5).check().expect_err("too long").contains("on = 3601s cannot be sent"));
    }

    #[test]
    fn rate_is_of_burst_and_gap_or_of_the_burst_alone() {
        let mean = bursts(10, 5);
        assert_eq!(mean.mean_rate(1500.0), 1500.0);
        let of_burst = Bursts { loads: LoadsOf::Burst, ..mean };
        assert!(
            (of_burst.mean_rate(1500.0) - 1000.0 - 5.0 / 15.0).abs() < 1e-9,
            "one a second in the gap, too"
        );
    }

    #[test]
    fn quick_burst_and_gap_keep_their_proportion() {
        let (quick, window) = bursts(120, 5).quick(SECOND);
        assert_eq!((quick.on, quick.cycle(), window), (SECOND.mul_f64(0.96), SECOND, SECOND));
        let short = Bursts { on: SECOND / 5, off: SECOND / 10, loads: LoadsOf::Burst };
        assert_eq!(short.quick(SECOND), (short, SECOND * 9 / 10), "three of them");
    }
}
