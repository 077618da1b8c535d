//! Lines on standard output, at once: scripts wait for them, and a reader that went away is no panic. And what several
//! subcommands print.

use std::fmt::Display;
use std::io::{self, Write};
use std::net::IpAddr;

use anyhow::{Context, Result};
use ipnet::IpNet;
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

/// A network, or a single address.
///
/// # Errors
///
/// One line with examples.
pub fn parse_network(text: &str) -> Result<IpNet, String> {
    let network = text.parse().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
    network.map_err(|_| {
        "an address, or a network with up to 32 or 128 bits, as 192.0.2.7, 10.0.0.0/24 or fd00::/64"
            .to_owned()
    })
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
    use super::*;

    #[test]
    fn network_may_be_a_single_address() {
        assert_eq!(parse_network("192.0.2.7").map(|net| net.to_string()).as_deref(), Ok("192.0.2.7/32"));
        assert_eq!(parse_network("fd00::/64").map(|net| net.to_string()).as_deref(), Ok("fd00::/64"));
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "web"] {
            assert!(parse_network(bad).expect_err(bad).contains("as 192.0.2.7"), "{bad}");
        }
    }
}
