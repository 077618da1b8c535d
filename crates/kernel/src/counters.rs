//! What the guard counts: the rows of `kernel/counters.h`.

use crate::{ListenerStats, PathStats};

/// A counter of a struct.
#[derive(Debug)]
pub struct Counter<S: ?Sized + 'static> {
    /// Its field there.
    pub field: &'static str,
    /// As JSON and results have it: a group, a dot, and the name there.
    pub name: &'static str,
    /// What it counts.
    pub unit: &'static str,
    /// Whether the simulator's guard counts it, too.
    pub is_simulated: bool,
    /// Where Prometheus sees it.
    pub shown: Option<Shown>,
    /// Which of its unit.
    pub help: &'static str,
    /// How many there were.
    pub read: fn(&S) -> u64,
}

/// A counter as Prometheus sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    /// Its [`Family`].
    pub family: &'static str,
    /// Of the family's label.
    pub value: &'static str,
}

/// Counters that Prometheus sees under one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// Behind `tidegate_`.
    pub name: &'static str,
    /// What tells them apart; empty where there is one.
    pub label: &'static str,
    /// What they are, in a phrase.
    pub help: &'static str,
}

/// A struct of counters.
pub trait Counted: 'static {
    /// A row for each field, in their order.
    const COUNTERS: Rows<Self>;
}

type Rows<S> = &'static [Counter<S>];

/// Those that Prometheus sees, in the order in which it sees them.
pub const FAMILIES: &[Family] = FAMILY_ROWS;

macro_rules! names {
    ($($field:ident = $name:literal,)*) => {
        /// Names of counters, by their fields.
        #[allow(non_upper_case_globals)]
        pub mod counter {
            $(#[doc = concat!("`", $name, "`")] pub const $field: &str = $name;)*
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/counters.rs"));

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn check<S: Counted>() {
        for counter in S::COUNTERS {
            assert!(counter.name.split_once('.').is_some(), "{} has a group", counter.name);
            let family = |shown: Shown| FAMILIES.iter().find(|family| family.name == shown.family);
            if let Some(shown) = counter.shown {
                let family = family(shown).unwrap_or_else(|| panic!("there is a family {}", shown.family));
                assert_eq!(family.label.is_empty(), shown.value.is_empty(), "{}", counter.name);
            }
        }
    }

    #[test]
    fn every_counter_has_a_name_of_its_own_and_its_family_is_there() {
        check::<ListenerStats>();
        check::<PathStats>();
        let listener = ListenerStats::COUNTERS.iter().map(|counter| (counter.name, counter.field));
        let path = PathStats::COUNTERS.iter().map(|counter| (counter.name, counter.field));
        let (names, fields): (BTreeSet<_>, BTreeSet<_>) = listener.chain(path).unzip();
        let count = ListenerStats::COUNTERS.len() + PathStats::COUNTERS.len();
        assert_eq!((names.len(), fields.len()), (count, count));
        assert_eq!(count * size_of::<u64>(), size_of::<ListenerStats>() + size_of::<PathStats>());
    }

    #[test]
    fn row_reads_its_own_field() {
        let stats = ListenerStats { acks_implied: 7, ..ListenerStats::default() };
        let counted: Vec<_> = ListenerStats::COUNTERS
            .iter()
            .filter(|counter| (counter.read)(&stats) > 0)
            .map(|counter| (counter.name, counter.field, (counter.read)(&stats)))
            .collect();
        assert_eq!(counted, [("acks.implied", "acks_implied", 7)]);
    }
}
