//! Times and rates as experiment files say them.

use std::fmt;
use std::time::Duration;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// Longest time that an experiment may ask for, so that a slip of the pen does not run for a year.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);
/// No crowd of the lab or of virtual time is larger, attempts/s.
pub const MOST_RATE: f64 = 1e7;

/// A time as TOML has it, in a string.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_any(Text)
}

/// Each of a list of times.
pub(crate) fn durations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Duration>, D::Error> {
    #[derive(Deserialize)]
    struct Time(#[serde(deserialize_with = "duration")] Duration);
    Ok(Vec::<Time>::deserialize(deserializer)?.into_iter().map(|Time(time)| time).collect())
}

/// The same of one that may be left out.
pub(crate) fn some_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// Tells of a number that TOML has no unit for it.
struct Text;

impl Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time with its unit, as \"10s\" or \"50ms\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        spelling::time(text).map_err(|why| E::custom(format!("{text:?}: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_without_a_unit_is_refused_with_the_units() {
        #[derive(Debug, Deserialize)]
        struct File {
            #[serde(deserialize_with = "duration")]
            time: Duration,
            #[serde(deserialize_with = "durations")]
            times: Vec<Duration>,
        }
        let file: File = toml::from_str("time = \"1.5s\"\ntimes = [\"10ms\", \"1m\"]").expect("times");
        assert_eq!(file.time, Duration::from_millis(1500));
        assert_eq!(file.times, [Duration::from_millis(10), Duration::from_secs(60)]);
        for (time, times, why) in [
            ("10", "[]", "integer `10`, expected a time with its unit, as \"10s\""),
            ("1.5", "[]", "expected a time with its unit"),
            ("\"10\"", "[]", "\"10\": the unit is missing; say s, ms or us, as in 10s"),
            ("\"1s\"", "[\"10s\", 5]", "integer `5`, expected a time with its unit"),
            ("\"1s\"", "[\"5\"]", "\"5\": the unit is missing"),
        ] {
            let text = format!("time = {time}\ntimes = {times}");
            let error = toml::from_str::<File>(&text).expect_err(&text);
            assert!(error.message().contains(why), "{text}: {error}");
        }
    }
}
