//! Lines on standard output, at once: scripts wait for them, and a reader that went away is no panic. And what several
//! subcommands print.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Whether nobody reads standard output any more.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints one line.
///
/// # Errors
///
/// When nobody reads any more.
pub fn say(line: impl Display) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("write to standard output")
}

/// Without control characters, which a terminal would obey: whoever names a process or a control group has a say in what we print.
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { c.escape_default().to_string() } else { c.to_string() })
        .collect()
}

/// For a person; what is not known is a dash, and never 0.
pub fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// What was counted at a listener, as JSON: each count by its name, null where this kernel lacks the hook; histograms as pairs of
/// a bucket's smallest value and its count.
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
    fn what_a_terminal_would_obey_is_printed_as_text() {
        assert_eq!(super::printable("a\u{1b}[2J\nb\u{9b}é"), "a\\u{1b}[2J\\nb\\u{9b}é");
    }
}
