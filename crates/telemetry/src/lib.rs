//! Counters by name, and their rates.
//!
//! `kernel/counters.h` says which counters there are and what each means. What it is not: a
//! printer, or a clock; the caller says when.
//!
//! ```
//! use std::time::Duration;
//!
//! use telemetry::{ListenerStats, Reading};
//!
//! let stats = |reset| ListenerStats { reset, ..ListenerStats::default() };
//! let reading = |s, reset| Reading::at(Duration::from_secs(s)).with(&stats(reset), |_| true);
//! assert_eq!(reading(3, 500).per_s(&reading(1, 100))["syns.reset"], 200.0);
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

pub use kernel::{Counted, Counter, FAMILIES, Family, ListenerStats, PathStats, counter};

/// What was counted by one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Since the start of whoever counts.
    pub elapsed: Duration,
    /// By name.
    pub counts: BTreeMap<String, u64>,
}

/// Readings of one moment are taken for a millisecond apart, so that no rate is infinite.
const SHORTEST: Duration = Duration::from_millis(1);

impl Reading {
    /// Nothing yet.
    pub fn at(elapsed: Duration) -> Self {
        Self { elapsed, counts: BTreeMap::new() }
    }

    /// And the counters of a struct that are wanted.
    pub fn with<S: Counted>(mut self, stats: &S, is_wanted: impl Fn(&Counter<S>) -> bool) -> Self {
        let wanted = S::COUNTERS.iter().filter(|counter| is_wanted(counter));
        self.counts.extend(wanted.map(|counter| (counter.name.to_owned(), (counter.read)(stats))));
        self
    }

    /// How fast each counter has grown since an earlier reading, per second. A new one began at
    /// zero.
    pub fn per_s(&self, earlier: &Self) -> BTreeMap<String, f64> {
        let grown = |(name, count): (&String, &u64)| {
            let before = earlier.counts.get(name).copied().unwrap_or(0);
            (name.clone(), per_s(*count, before, self.elapsed.saturating_sub(earlier.elapsed)))
        };
        self.counts.iter().map(grown).collect()
    }
}

/// A counter, whichever struct it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// A group, a dot, and the name there.
    pub name: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// Which of its unit.
    pub help: &'static str,
}

/// All that a guard counts.
pub fn catalogue() -> impl Iterator<Item = Entry> {
    fn entries<S: Counted>() -> impl Iterator<Item = Entry> {
        S::COUNTERS.iter().map(|&Counter { name, unit, help, .. }| Entry { name, unit, help })
    }
    entries::<ListenerStats>().chain(entries::<PathStats>())
}

/// What Prometheus sees of a family in a struct: values of the family's label, and counts.
pub fn shown<S: Counted>(family: &Family, stats: &S) -> impl Iterator<Item = (&'static str, u64)> {
    let of_family = |counter: &'static Counter<S>| {
        let shown = counter.shown.filter(|shown| shown.family == family.name)?;
        Some((shown.value, (counter.read)(stats)))
    };
    S::COUNTERS.iter().filter_map(of_family)
}

/// What all counters of a family count.
pub fn unit_of(family: &Family) -> &'static str {
    fn unit<S: Counted>(family: &Family) -> Option<&'static str> {
        let is_of = |counter: &&Counter<S>| counter.shown.is_some_and(|shown| shown.family == family.name);
        S::COUNTERS.iter().find(is_of).map(|counter| counter.unit)
    }
    let unit = unit::<ListenerStats>(family).or_else(|| unit::<PathStats>(family));
    unit.expect("a family has a counter")
}

/// Counters of clients that were turned away, at their SYN or at the end of their handshake.
pub const REFUSALS: [&str; 5] = ["syns.dropped", "syns.reset", "syns.late", "acks.dropped", "acks.reset"];

/// The sum of [`REFUSALS`].
pub fn refused(stats: &ListenerStats) -> u64 {
    let refusals = ListenerStats::COUNTERS.iter().filter(|counter| REFUSALS.contains(&counter.name));
    refusals.map(|counter| (counter.read)(stats)).sum()
}

/// How fast a count has grown over a span, per second.
pub fn per_s(now: u64, before: u64, span: Duration) -> f64 {
    now.saturating_sub(before) as f64 / span.max(SHORTEST).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_has_every_counter_by_its_name() {
        let (stats, path) =
            (ListenerStats { seen: 9, ..Default::default() }, PathStats { known: 2, ..Default::default() });
        let reading =
            Reading::at(Duration::ZERO).with(&stats, |_| true).with(&path, |counter| counter.is_simulated);
        assert_eq!((reading.counts["syns.seen"], reading.counts["passed.known"]), (9, 2));
        assert_eq!(reading.counts.len(), ListenerStats::COUNTERS.len() + 1);
    }

    #[test]
    fn refusals_are_counters_and_each_is_in_their_sum() {
        let stats = ListenerStats {
            seen: 100,
            admitted: 93,
            dropped: 1,
            reset: 2,
            late: 4,
            acks_dropped: 8,
            acks_reset: 16,
            ..Default::default()
        };
        assert_eq!(refused(&stats), 31);
        assert!(REFUSALS.iter().all(|name| catalogue().any(|entry| entry.name == *name)));
    }

    #[test]
    fn counters_of_a_family_have_one_unit() {
        fn check<S: Counted>() {
            for (counter, shown) in S::COUNTERS.iter().filter_map(|of| Some((of, of.shown?))) {
                let family = FAMILIES.iter().find(|family| family.name == shown.family).expect("it is there");
                assert_eq!(unit_of(family), counter.unit, "{}", counter.name);
            }
        }
        check::<ListenerStats>();
        check::<PathStats>();
    }

    #[test]
    fn rate_is_of_the_time_between_and_never_below_zero() {
        let reading = |ms, counts: &[(&str, u64)]| Reading {
            elapsed: Duration::from_millis(ms),
            counts: counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        };
        let rates = reading(3000, &[("a.b", 500), ("a.new", 40), ("a.less", 1)])
            .per_s(&reading(1000, &[("a.b", 100), ("a.less", 5)]));
        assert_eq!(
            rates,
            [("a.b", 200.0), ("a.less", 0.0), ("a.new", 20.0)]
                .map(|(name, rate)| (name.to_owned(), rate))
                .into()
        );
        let now = reading(1000, &[("a.b", 1)]);
        assert_eq!(
            now.per_s(&Reading { counts: BTreeMap::new(), ..now.clone() })["a.b"],
            1000.0,
            "within a millisecond"
        );
    }
}
