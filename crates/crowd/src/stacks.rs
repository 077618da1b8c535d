//! Which systems the crowd's clients have, and how many have each.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use tcp::{LINUX, STACKS, Stack};

/// How far a sum of shares may be from 1, so that three thirds of 0.333 are a whole.
const TOLERANCE: f64 = 0.005;

/// Shares of client stacks. Parses from `linux` or `linux:0.6,windows-10:0.4`, deserializes from a
/// table of shares; Linux alone by default.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "BTreeMap<String, f64>")]
pub struct Stacks {
    /// With their shares, of a whole.
    shares: Vec<(&'static Stack, f64)>,
}

/// Why a list of stacks is none.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StacksError {
    /// No such stack.
    #[error("{0:?} is no client stack{then}", then = instead_of(.0))]
    Unknown(String),
    /// Named twice.
    #[error("{0} is named twice; give it one share")]
    Twice(&'static str),
    /// Not a share.
    #[error(
        "{share:?} is no share of the clients for {stack}: a number above 0 and up to 1, as linux:0.6,windows-10:0.4"
    )]
    Share {
        /// Of which stack.
        stack: &'static str,
        /// What was given.
        share: String,
    },
    /// Less or more than all clients.
    #[error("the shares of {0} sum to {1:.3}, not to 1")]
    Sum(String, f64),
}

fn instead_of(name: &str) -> String {
    let known: Vec<&str> = Stacks::names().collect();
    spelling::did_you_mean(name, Stacks::names(), &format!("there are {}", known.join(", ")))
}

impl Default for Stacks {
    fn default() -> Self {
        Self { shares: vec![(&LINUX, 1.0)] }
    }
}

impl Stacks {
    /// Of all that there are.
    pub fn names() -> impl Iterator<Item = &'static str> {
        STACKS.iter().map(|stack| stack.name)
    }

    /// From names and shares.
    ///
    /// # Errors
    ///
    /// See [`StacksError`].
    pub fn new<'a>(shares: impl IntoIterator<Item = (&'a str, f64)>) -> Result<Self, StacksError> {
        let mut known: Vec<(&'static Stack, f64)> = Vec::new();
        for (name, share) in shares {
            let stack = Stack::by_name(name).ok_or_else(|| StacksError::Unknown(name.to_owned()))?;
            if known.iter().any(|(other, _)| other.name == stack.name) {
                return Err(StacksError::Twice(stack.name));
            }
            if !(share > 0.0 && share <= 1.0) {
                return Err(StacksError::Share { stack: stack.name, share: share.to_string() });
            }
            known.push((stack, share));
        }
        let stacks = Self { shares: known };
        let sum: f64 = stacks.shares.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > TOLERANCE {
            return Err(StacksError::Sum(stacks.to_string(), sum));
        }
        Ok(stacks)
    }

    /// The same systems over IPv6.
    pub fn over_ipv6(&self) -> Self {
        Self { shares: self.shares.iter().map(|(stack, share)| (stack.over_ipv6(), *share)).collect() }
    }

    /// Others in their places, with the same shares.
    #[must_use]
    pub fn map(&self, to: impl Fn(&'static Stack) -> &'static Stack) -> Self {
        Self { shares: self.shares.iter().map(|(stack, share)| (to(stack), *share)).collect() }
    }

    /// The stack of a client, by a number that is evenly spread over all of 64 bits.
    pub(crate) fn pick(&self, random: u64) -> &'static Stack {
        // The low half: the sequence number is the high one.
        let mut left = (random & 0xffff_ffff) as f64 / 4_294_967_296.0;
        for (stack, share) in &self.shares {
            if left < *share {
                return stack;
            }
            left -= share;
        }
        self.shares.last().expect("shares that sum to 1").0
    }
}

impl fmt::Display for Stacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares: Vec<String> =
            self.shares.iter().map(|(stack, share)| format!("{}:{share}", stack.name)).collect();
        f.write_str(&shares.join(","))
    }
}

impl TryFrom<BTreeMap<String, f64>> for Stacks {
    type Error = StacksError;

    fn try_from(shares: BTreeMap<String, f64>) -> Result<Self, StacksError> {
        Self::new(shares.iter().map(|(name, share)| (name.as_str(), *share)))
    }
}

impl FromStr for Stacks {
    type Err = StacksError;

    fn from_str(text: &str) -> Result<Self, StacksError> {
        let mut shares = Vec::new();
        for entry in text.split(',') {
            let (name, share) = entry.split_once(':').unwrap_or((entry, "1"));
            let share = share.parse().map_err(|_| match Stack::by_name(name) {
                Some(stack) => StacksError::Share { stack: stack.name, share: share.to_owned() },
                None => StacksError::Unknown(name.to_owned()),
            })?;
            shares.push((name, share));
        }
        Self::new(shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Stacks, String> {
        text.parse::<Stacks>().map_err(|error| error.to_string())
    }

    #[test]
    fn shares_are_read_and_shown_as_they_are_written() {
        for text in ["linux:1", "linux:0.6,windows-10:0.4", "linux:0.333,macos:0.333,freebsd:0.333"] {
            assert_eq!(read(text).expect(text).to_string(), text);
        }
        assert_eq!(read("windows-xp").expect("a name alone").to_string(), "windows-xp:1");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, why) in [
            ("linx", "\"linx\" is no client stack; did you mean linux? there are linux, linux-6.4"),
            ("beos", "\"beos\" is no client stack; there are linux, linux-6.4"),
            ("linux:0.5,linux:0.5", "linux is named twice"),
            ("linux:0.5,macos:0.4", "linux:0.5,macos:0.4 sum to 0.900, not to 1"),
            ("linux:x", "\"x\" is no share of the clients for linux"),
            ("linux:-1", "is no share"),
            ("linux:nan", "is no share"),
            ("", "\"\" is no client stack"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn clients_have_stacks_by_their_shares() {
        let stacks = read("linux:0.7,windows-10:0.2,macos:0.1").expect("shares");
        let mut counts = BTreeMap::new();
        for n in 0..10_000u64 {
            *counts.entry(stacks.pick(n * (u64::from(u32::MAX) / 10_000)).name).or_insert(0u64) += 1;
        }
        for (name, expected) in [("linux", 7000), ("macos", 1000), ("windows-10", 2000)] {
            assert!(counts[name].abs_diff(expected) <= 1, "{counts:?}");
        }
    }
}
