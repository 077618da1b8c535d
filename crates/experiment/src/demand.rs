//! Crowds whose rate is told by the bandwidth that their files ask for.

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use traffic::{Piece, Shape};
use units::Nanos;

use crate::time::LONGEST;

/// Highest load: beyond, a unit was mistaken.
const MOST_LOAD: f64 = 100.0;

/// How much bandwidth the crowd asks for over time, as a multiple of what the uplink has.
///
/// A load is bytes of files asked for per second over bytes that the uplink sends per second. Heads
/// of replies, headers of packets and packets without data are not counted: they come on top.
///
/// Source: `[SH06]` sections 2.2 and 2.3, table 1. Differs: the paper scaled the times of its trace
/// until the bandwidth in use was as wanted, which has the headers in it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Demand {
    /// As it is shown.
    name: String,
    shape: Shape,
}

/// One of one's own, as a table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    low_s: Option<f64>,
    high_s: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    persistent: Option<f64>,
}

impl TryFrom<toml::Value> for Demand {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::String(text) => Self::named(&text),
            value @ toml::Value::Table(_) => {
                let table: Table = value.try_into().map_err(|error: toml::de::Error| {
                    format!("{}; {WOULD_DO}", error.message().replace('\n', " "))
                })?;
                table.demand()
            }
            other => Err(format!("{other} is no demand: {WOULD_DO}")),
        }
    }
}

const WOULD_DO: &str =
    "\"W1\" to \"W10\", { low_s = 25, high_s = 25, low = 0.2, high = 1.2 }, or { persistent = 1.2 }";

impl Demand {
    fn named(text: &str) -> Result<Self, String> {
        let shape = traffic::parse_shape(text).map_err(|_| format!("{text:?} is no demand: {WOULD_DO}"))?;
        Self::new(text.to_uppercase(), shape)
    }

    fn new(name: String, shape: Shape) -> Result<Self, String> {
        let cycle = Duration::from(shape.cycle());
        if shape.peak() > MOST_LOAD || cycle > LONGEST {
            return Err(format!("a load of {} in {cycle:?} is beyond {MOST_LOAD}, or an hour", shape.peak()));
        }
        Ok(Self { name, shape })
    }

    /// The course of the load.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The same in a cycle of `longest` at most.
    pub(crate) fn quick(&self, longest: Duration) -> Self {
        let by = longest.as_secs_f64() / self.shape.cycle().as_secs_f64();
        let shape = self.shape.stretched(by.min(1.0)).unwrap_or_else(|| self.shape.clone());
        Self { name: format!("{}, shortened", self.name), shape }
    }

    /// Its loads: on the mean of a cycle, and from the end of the warm-up to that of the window.
    pub(crate) fn means(&self, warmup: Duration, window: Duration) -> (f64, f64) {
        let from = Nanos::from(warmup);
        (self.shape.mean(), self.shape.mean_between(from, from + window.into()))
    }
}

impl Table {
    fn demand(self) -> Result<Demand, String> {
        match self {
            Self { persistent: Some(load), low_s: None, high_s: None, low: None, high: None } => {
                let shape = is_load(load).then(|| Shape::steady(load)).flatten();
                let shape =
                    shape.ok_or_else(|| format!("persistent = {load}: above 0 and up to {MOST_LOAD}"))?;
                Demand::new(format!("W0 of {load}"), shape)
            }
            Self {
                low_s: Some(low_s),
                high_s: Some(high_s),
                low: Some(low),
                high: Some(high),
                persistent: None,
            } => {
                for (key, secs) in [("low_s", low_s), ("high_s", high_s)] {
                    if !(0.001..=LONGEST.as_secs_f64()).contains(&secs) {
                        return Err(format!("{key} = {secs}: from 0.001 to 3600 seconds"));
                    }
                }
                if !(is_load(low) && is_load(high) && low <= high && high > 0.0) {
                    return Err(format!(
                        "low = {low} and high = {high}: loads from 0 to {MOST_LOAD}, the low one no higher"
                    ));
                }
                let piece = |secs, load| Piece::level(Nanos::from_secs_f64(secs), load);
                let shape = Shape::new(vec![piece(low_s, low), piece(high_s, high)]);
                let shape = shape.ok_or_else(|| format!("nobody comes: {WOULD_DO}"))?;
                Demand::new(format!("{low_s} s at {low}, {high_s} s at {high}"), shape)
            }
            _ => Err(format!("low_s, high_s, low and high, or persistent alone: {WOULD_DO}")),
        }
    }
}

fn is_load(load: f64) -> bool {
    (0.0..=MOST_LOAD).contains(&load)
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Demand, String> {
        #[derive(Deserialize)]
        struct File {
            demand: Demand,
        }
        let file = toml::from_str::<File>(&format!("demand = {text}"));
        file.map(|file| file.demand).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn demand_of_the_paper_has_a_name_and_ones_own_is_a_table() {
        let w1 = read("\"w1\"").expect("W1");
        assert_eq!((w1.to_string().as_str(), w1.shape()), ("W1", &Shape::of_paper(1).expect("W1")));
        let table = read("{ low_s = 25, high_s = 25, low = 0.2, high = 1.2 }").expect("a table");
        assert_eq!(table.shape(), w1.shape());
        assert_eq!(table.to_string(), "25 s at 0.2, 25 s at 1.2");
        let w0 = read("{ persistent = 1.2 }").expect("W0");
        assert_eq!((w0.shape().mean(), w0.to_string().as_str()), (1.2, "W0 of 1.2"));
        assert_eq!(read("\"60s:0.2-1.5\"").expect("a ramp").shape().mean(), 0.85);
    }

    /// A window with a part of a cycle has another mean than the cycle.
    #[test]
    fn means_are_of_the_cycle_and_of_the_window() {
        let w1 = read("\"W1\"").expect("W1");
        let means = |warmup, window| w1.means(Duration::from_secs(warmup), Duration::from_secs(window));
        assert_eq!(means(0, 1800), (0.7, 0.7));
        let (cycle, window) = means(25, 75);
        assert!((cycle - 0.7).abs() < 1e-9 && (window - (1.2 + 0.2 + 1.2) / 3.0).abs() < 1e-9, "{window}");
    }

    #[test]
    fn quick_demand_goes_through_its_cycle_in_the_time_there_is() {
        let quick = read("\"W7\"").expect("W7").quick(Duration::from_secs(1));
        assert!((quick.shape().cycle().as_secs_f64() - 1.0).abs() < 1e-6, "{:?}", quick.shape());
        assert!((quick.shape().mean() - 0.8).abs() < 0.01);
    }

    #[test]
    fn what_is_no_demand_is_said_in_one_line() {
        for (text, expected) in [
            ("\"W11\"", "\"W11\" is no demand: \"W1\" to \"W10\""),
            ("\"w0\"", "{ persistent = 1.2 }"),
            ("1.2", "1.2 is no demand"),
            ("{ persistent = -1 }", "persistent = -1: above 0"),
            ("{ persistent = 0 }", "persistent = 0: above 0"),
            ("{ persistent = nan }", "persistent = NaN"),
            ("{ low_s = 25 }", "low_s, high_s, low and high, or persistent alone"),
            ("{ persistent = 1, low = 0.2 }", "or persistent alone"),
            ("{ low_s = 0, high_s = 25, low = 0.2, high = 1.2 }", "low_s = 0: from 0.001"),
            ("{ low_s = 1, high_s = inf, low = 0.2, high = 1.2 }", "high_s = inf"),
            ("{ low_s = 1, high_s = 1, low = 1.2, high = 0.2 }", "the low one no higher"),
            ("{ low_s = 1, high_s = 1, low = 0.2, high = 1e9 }", "loads from 0 to 100"),
            ("{ low_s = 1, high_s = 1, low = 0, high = 0 }", "the low one no higher"),
            ("{ period = 25 }", "unknown field `period`"),
        ] {
            let why = read(text).expect_err(text);
            assert!(why.contains(expected) && !why.contains('\n'), "{text}: {why}");
        }
    }
}
