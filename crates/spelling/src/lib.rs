//! What users write on a command line or in a file: a time with its unit, and a name that is nearly
//! right.
//!
//! What it is not: a parser of whole values. Which times and names an option takes is known where
//! the option is.

use std::time::Duration;

/// Reads a time, as `10s`, `1.5ms` or `1h 30m`; of numbers without a unit only `0`.
///
/// There is no usual unit: sleep(1) takes a number for seconds, ping(8)'s options for seconds or
/// milliseconds, and tc(8) for microseconds.
///
/// # Errors
///
/// See [`TimeError`]. Neither names what was written: whoever asks knows it, as clap does.
pub fn time(text: &str) -> Result<Duration, TimeError> {
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::UnknownUnit { unit, .. } if unit.is_empty() => TimeError::NoUnit,
        _ => TimeError::NotATime,
    })
}

/// Why a text is no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// A number alone.
    #[error("the unit is missing; say s, ms or us, as in 10s")]
    NoUnit,
    /// Anything else.
    #[error("a time is wanted, as in 10s, 1.5ms or 1h30m")]
    NotATime,
}

/// The known name that was surely meant. At most a third of the letters may differ: one too many,
/// missing, wrong, or swapped with the next. Else it is the first name that begins as the given.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// What begins so has been begun, and not mistyped.
    const BEGUN: usize = 3;
    let known: Vec<&str> = known.into_iter().filter(|name| *name != given).collect();
    let given = given.to_lowercase();
    let length = given.chars().count();
    let distances = known.iter().map(|name| (strsim::osa_distance(&given, &name.to_lowercase()), *name));
    let (distance, near) = distances.min_by_key(|(distance, _)| *distance)?;
    if distance <= length.max(BEGUN) / 3 {
        return Some(near);
    }
    known.into_iter().find(|name| length >= BEGUN && name.to_lowercase().starts_with(&given))
}

/// How an error goes on behind a name that is not known: `; did you mean abort? THEN` where one is
/// near, else `; THEN`. `then` says what is known, or what lists it.
pub fn did_you_mean<'a>(given: &str, known: impl IntoIterator<Item = &'a str>, then: &str) -> String {
    match nearest(given, known) {
        Some(name) => format!("; did you mean {name}? {then}"),
        None => format!("; {then}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_has_a_unit_and_a_number_alone_is_told_so() {
        assert_eq!(time("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(time("1.5ms"), Ok(Duration::from_micros(1500)));
        assert_eq!(time("1h 30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(time("0"), Ok(Duration::ZERO));
        for bare in ["10", "10 ", "1s 5", "1.5"] {
            assert_eq!(time(bare), Err(TimeError::NoUnit), "{bare}");
        }
        for other in ["", "soon", "-1s", "5 parsecs", "1..5s"] {
            assert_eq!(time(other), Err(TimeError::NotATime), "{other:?}");
        }
    }

    #[test]
    fn slip_of_the_pen_finds_what_was_meant_and_another_word_nothing() {
        const KNOWN: [&str; 6] = ["abort", "rst-syn", "unserved", "persistent-drop", "rst-fin", "eth0"];
        for (given, meant) in [
            ("abrot", Some("abort")),
            ("aborted", Some("abort")),
            ("Abort", Some("abort")),
            ("rst_syn", Some("rst-syn")),
            ("rst-fun", Some("rst-fin")),
            ("unsevred", Some("unserved")),
            ("persist", Some("persistent-drop")),
            ("eht0", Some("eth0")),
            ("eth", Some("eth0")),
            ("et", None),
            ("abort", None),
            ("", None),
            ("nope", None),
            ("wlan0", None),
        ] {
            assert_eq!(nearest(given, KNOWN), meant, "{given}");
        }
        assert_eq!(nearest("abort", []), None);
        assert_eq!(did_you_mean("abrot", KNOWN, "see there"), "; did you mean abort? see there");
        assert_eq!(did_you_mean("nope", KNOWN, "see there"), "; see there");
    }
}
