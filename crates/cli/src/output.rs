//! Lines on standard output, at once: scripts wait for them, and a reader that went away is no
//! panic. And what several subcommands print.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::SystemTime;

use anyhow::{Context, Result};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

// A line of JSON. Not `///`: a schema has the description of its `T` then.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "{T}")]
pub struct Timed<T> {
    /// When it was written: RFC 3339, UTC, to the millisecond.
    time: String,
    #[serde(flatten)]
    line: T,
}

impl<T: Serialize> Timed<T> {
    /// Written now, on one line.
    pub fn json(line: T) -> String {
        serde_json::to_string(&Self::now(line)).expect("numbers and their names are JSON")
    }

    /// Written now.
    pub fn now(line: T) -> Self {
        Self { time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(), line }
    }
}

/// Whether nobody reads standard output any more.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a line, or several; what a terminal would obey in them is text, as results files and what
/// is named in them may be anybody's.
///
/// # Errors
///
/// When nobody reads any more.
pub fn say(line: impl Display) -> Result<()> {
    let lines: Vec<String> = line.to_string().split('\n').map(printable).collect();
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{}", lines.join("\n")).and_then(|()| stdout.flush()).context("write to standard output")
}

/// Without control characters, which a terminal would obey: whoever names a process or a control
/// group has a say in what we print.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// Numbers that are written with hundreds of digits, as that of 1e308 is, in as few as tell it.
pub fn with_short_numbers(text: &str) -> String {
    /// Of a number that is not left as it is, characters.
    const LONG: usize = 40;
    let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut short = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let (number, after) = from.split_at(from.find(|c| !is_of_number(c)).unwrap_or(from.len()));
        short += before;
        match number.parse::<f64>() {
            Ok(value) if number.len() > LONG && value.is_finite() => short += &format!("{value:e}"),
            _ => short += number,
        }
        rest = after;
    }
    short + rest
}

/// For a person; what is not known is a dash, and never 0.
pub fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// What was counted at a listener, as JSON: each count by its name, null where this kernel lacks
/// the hook; histograms as pairs of a bucket's smallest value and its count.
pub fn counters(counters: &watch::Counters) -> Value {
    let counts = watch::Counter::ALL.map(|counter| (counter.name().to_owned(), counters.get(counter).into()));
    let mut object = Value::Object(counts.into_iter().collect());
    object["accept_qlen_histogram"] = json!(counters.lengths().map(|lengths| lengths.buckets()));
    object["sojourn_us_histogram"] = json!(counters.sojourns_us().map(|sojourns| sojourns.buckets()));
    object["sojourn_us_mean"] = counters.mean_sojourn_us().into();
    object
}

#[cfg(test)]
mod tests {
    #[test]
    fn line_says_when_it_was_written() {
        let line = super::Timed::json(serde_json::json!({ "event": "sample" }));
        let value: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let time = value["time"].as_str().expect("a time");
        assert!(time.len() == "2026-12-01T07:14:00.000Z".len() && time.ends_with('Z'), "{line}");
        let age = humantime::parse_rfc3339(time).expect("RFC 3339").elapsed().expect("it is not ahead");
        assert!(age.as_secs() < 60 && value["event"] == "sample", "{line}");
    }

    #[test]
    fn number_of_hundreds_of_digits_is_said_in_a_few_and_others_are_left() {
        for (value, said) in [(1e308, "1e308"), (-2.5e300, "-2.5e300"), (5e-324, "5e-324")] {
            let text = format!("rate = {value}: from 1.5 to 10.76.0.1/30");
            assert_eq!(super::with_short_numbers(&text), format!("rate = {said}: from 1.5 to 10.76.0.1/30"));
        }
        let text = "no number, 18446744073709551615 and /proc/1.2.3/x1";
        assert_eq!(super::with_short_numbers(text), text);
    }

    #[test]
    fn what_a_terminal_would_obey_is_printed_as_text() {
        assert_eq!(super::printable("a\u{1b}[2J\nb\u{9b}é"), "a\\u{1b}[2J\\nb\\u{9b}é");
    }
}
