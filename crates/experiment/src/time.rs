//! Times and rates as experiment files say them.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// Longest time that an experiment may ask for, so that a slip of the pen does not run for a year.
pub(crate) const LONGEST: Duration = Duration::from_secs(3600);
/// No crowd of the lab or of virtual time is larger, attempts/s.
pub const MOST_RATE: f64 = 1e7;

/// A time as TOML has it, in a string.
pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    humantime::parse_duration(&text)
        .map_err(|error| serde::de::Error::custom(format!("{text:?} is not a time, as in \"4s\": {error}")))
}

/// The same of one that may be left out.
pub(crate) fn some_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}
