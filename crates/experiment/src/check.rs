//! What all experiments are checked for.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::claims::{Claim, Scope};
use crate::time::LONGEST;

/// Multiples of the saturation rate, each once.
pub(crate) fn check_loads(loads: &[f64]) -> Result<(), String> {
    if loads.is_empty() {
        return Err("grid.loads is empty: give multiples of the saturation rate, as in [0.5, 1.5]".to_owned());
    }
    match loads.iter().find(|&&load| !(load > 0.0 && load <= 100.0)) {
        Some(load) => {
            Err(format!("grid.loads has {load}: a load is a multiple of the saturation rate, above 0 to 100"))
        }
        None => check_once(loads),
    }
}

/// Each load once: what is measured several times is a repetition, with a seed of its own.
pub(crate) fn check_once(loads: &[f64]) -> Result<(), String> {
    let mut sorted = loads.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!(
            "grid.loads has {} twice; to measure it several times, raise grid.repetitions",
            pair[0]
        )),
        None => Ok(()),
    }
}

/// A window between 10 ms, which has a few samples, and [`LONGEST`].
pub(crate) fn check_window(key: &str, window: Duration) -> Result<(), String> {
    if window < Duration::from_millis(10) || window > LONGEST {
        return Err(format!("{key} = {window:?} cannot be measured: from 10ms to 1h; 4s is usual"));
    }
    Ok(())
}

/// Whether a name can be that of a folder.
pub(crate) fn is_plain(name: &str) -> bool {
    let all_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    all_plain && (1..=40).contains(&name.len()) && !name.starts_with('.')
}

/// Names that are given once.
pub(crate) fn unique<'a>(what: &str, names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("two [[{what}]] are called {name:?}; tables could not tell them apart"));
        }
    }
    Ok(())
}

/// Names of an experiment and of all that its tables tell apart.
pub(crate) fn check_names<'a>(mut names: impl Iterator<Item = &'a String>) -> Result<(), String> {
    match names.find(|name| !is_plain(name)) {
        Some(name) => {
            Err(format!("name {name:?} names folders and rows: use up to 40 letters, digits and dashes"))
        }
        None => Ok(()),
    }
}

/// A title goes to terminals and pages as one line.
pub(crate) fn check_title(title: &str) -> Result<(), String> {
    match title.contains(char::is_control) {
        true => Err(format!("title {title:?} is no line of text: take out what is escaped")),
        false => Ok(()),
    }
}

/// Claims that can be answered; `refuse` says why a measure is of another kind of experiment.
pub(crate) fn check_claims(
    claims: &[Claim],
    scope: &Scope<'_>,
    refuse: impl Fn(&Claim) -> Option<String>,
) -> Result<(), String> {
    let check = |claim: &Claim| {
        let why = refuse(claim).map_or_else(|| claim.check(scope), Err);
        why.map_err(|why| format!("claim {:?}: {why}", claim.text))
    };
    claims.iter().try_for_each(check)
}
