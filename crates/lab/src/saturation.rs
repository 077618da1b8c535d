//! The rate at which a server saturates: the highest that stock Linux still answers, to clients who do not ask twice.
//!
//! Those who do make one stall of the machine a matter of many seconds: what was dropped in it comes again on top of what comes anyway, and is
//! dropped again. The rate at which that happens is the machine's calm, and not what the server can do.

use std::time::Duration;

use anyhow::{Result, bail};
use results::{KEEPS_UP, Saturation};

use crate::bursts::Bursts;
use crate::cell::{self, Lab};
use crate::crowd::Send;
use crate::experiment::{Experiment, MOST_RATE, Search, Server};
use crate::policy::Policy;

/// How long a client of a probe waits: less than until it would send its SYN again.
pub const ONE_SYN: Duration = Duration::from_millis(900);
/// Rises before the search gives up.
const MAX_RISES: usize = 40;
/// Falls, likewise, from a first rate that was too high: such a server, or machine, is another one than the file was written for.
const MAX_FALLS: usize = 6;
/// As near as long windows come to the rate.
const STEP: f64 = 1.04;
/// Up to one and a half times what short probes found.
const MAX_STEPS_UP: i32 = 10;
/// Down to a third of it: a machine may be twice as slow as it was a moment ago.
const MAX_STEPS_DOWN: i32 = 28;

/// What was found for a server that is the same but for its crowd.
pub fn of(experiment: &Experiment, server: &Server, found: Saturation) -> Saturation {
    let bursts = experiment.bursts(server).map(Bursts::lengths);
    Saturation { server: server.name.clone(), bursts, ..found }
}

/// Finds the rate by crowds against the stock server.
///
/// # Errors
///
/// See [`search`]; and when a crowd cannot be sent.
pub fn find(lab: Lab<'_>, server: &Server, mut on_probe: impl FnMut(f64, f64)) -> Result<Saturation> {
    let saturation = &lab.experiment.saturation;
    let timeout = ONE_SYN.min(lab.experiment.clients(server).timeout);
    let stock = Policy::stock();
    let (mut probes, mut marks, mut round_trip_us) = (Vec::new(), Vec::new(), 0.0);
    let probe = |rate: f64, length: Length| {
        let (warmup, duration) = lengths(lab.experiment, length);
        let send = Send {
            rate,
            bursts: None,
            warmup,
            duration,
            timeout,
            seed: 1,
            flood_per_s: None,
            hold: None,
            abort: None,
        };
        let measured = cell::run(lab, server, &stock, &send)?;
        let (offered, goodput) = (measured.crowd.offered_per_s, measured.crowd.goodput_per_s);
        on_probe(offered, goodput);
        probes.push((offered, goodput));
        let is_answered = goodput >= KEEPS_UP * offered;
        if is_answered {
            round_trip_us = cell::micros(measured.round_trip);
        } else {
            marks.extend(
                measured.marks().into_iter().map(|mark| format!("a probe at {offered:.0}/s: {mark}")),
            );
        }
        // More than was offered are late replies to what came before the window, and no rate that the server holds.
        Ok(is_answered.then_some(goodput.min(offered)))
    };
    let rate_per_s = search(*saturation, &server.name, probe)?;
    // The last probe that was answered is the one whose goodput it is.
    Ok(Saturation { server: server.name.clone(), rate_per_s, round_trip_us, probes, marks, bursts: None })
}

/// How long a probe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// As the search says.
    Short,
    /// As a cell of the grid, or as the experiment says.
    Long,
}

/// Warm-up and window of a probe.
pub fn lengths(experiment: &Experiment, length: Length) -> (Duration, Duration) {
    let search = &experiment.saturation;
    match length {
        Length::Short => (search.duration / 2, search.duration),
        Length::Long => (search.duration, search.confirm.unwrap_or(experiment.grid.duration)),
    }
}

/// Offers rising rates in short probes until the server no longer answers all, or falling ones until it does, narrows the last interval down, and then
/// offers the rate found in long probes: less and less until one is answered, or, if the first was, more and more until one is not,
/// and halves the interval again. The result is the goodput of the highest that was answered. `probe` gives the goodput of a crowd if it was answered.
///
/// A rate counts as unanswered when it was so in two short probes: one stall of the machine must not end the search. The
/// best of several short probes is more than the server sustains, and two in the same bad moment find less, which is why long
/// ones have the last word.
///
/// # Errors
///
/// When the first rate and those some times below it are not answered, no rate is too high, or what short probes found cannot be held.
pub fn search(
    search: Search,
    server: &str,
    mut probe: impl FnMut(f64, Length) -> Result<Option<f64>>,
) -> Result<f64> {
    let mut is_kept = |rate: f64| -> Result<bool> {
        Ok(probe(rate, Length::Short)?.is_some() || probe(rate, Length::Short)?.is_some())
    };
    let (mut low, mut high) = bracket(search, server, &mut is_kept)?;
    for _ in 0..search.refinements {
        let middle = (low * high).sqrt();
        if is_kept(middle)? { low = middle } else { high = middle }
    }
    let mut held = None;
    let (mut too_much, mut step, mut stride) = (None, 0, 1);
    loop {
        match probe(low * STEP.powi(step), Length::Long)? {
            Some(goodput) => held = Some((step, goodput)),
            None => too_much = Some(step),
        }
        step = match (held, too_much) {
            (Some((below, goodput)), Some(above)) if below + 1 == above => return Ok(goodput),
            (Some((below, _)), Some(above)) => below + (above - below) / 2,
            (Some((MAX_STEPS_UP, goodput)), None) => return Ok(goodput),
            (Some((below, _)), None) => MAX_STEPS_UP.min(below + stride),
            (None, Some(above)) if above > -MAX_STEPS_DOWN => (-MAX_STEPS_DOWN).max(above - stride),
            (None, _) => bail!(
                "{server} answered {low:.0} requests/s in a short probe, but not a third of it for as long as a cell: is the \
                 machine busy with something else?"
            ),
        };
        stride *= 2;
    }
}

/// A rate that is kept, and one a factor above it that is not.
fn bracket(
    search: Search,
    server: &str,
    is_kept: &mut impl FnMut(f64) -> Result<bool>,
) -> Result<(f64, f64)> {
    if !is_kept(search.from)? {
        let mut high = search.from;
        for _ in 0..MAX_FALLS {
            let low = high / search.factor;
            if is_kept(low)? {
                return Ok((low, high));
            }
            high = low;
        }
        bail!(
            "{server} does not answer {high:.0} requests/s; set saturation.from lower in the experiment file"
        );
    }
    let mut low = search.from;
    for _ in 0..MAX_RISES {
        let high = low * search.factor;
        if high > MOST_RATE {
            break;
        }
        if !is_kept(high)? {
            return Ok((low, high));
        }
        low = high;
    }
    bail!(
        "{server} still answers {low:.0} requests/s; set saturation.from or factor higher, or give each request some work (cpu_time)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers so much for a moment, and so much for long.
    fn found(short: f64, long: f64) -> Result<f64> {
        search(Search::default(), "test", |rate, length| {
            let capacity = if length == Length::Short { short } else { long };
            Ok((rate <= capacity).then_some(rate))
        })
    }

    #[test]
    fn rate_is_found_within_a_step() {
        let rate = found(37_000.0, 37_000.0).expect("found");
        assert!((37_000.0 / STEP..=37_000.0).contains(&rate), "{rate}");
    }

    #[test]
    fn what_is_answered_for_a_moment_only_does_not_count() {
        let rate = found(42_000.0, 37_000.0).expect("found");
        assert!((37_000.0 / STEP..=37_000.0).contains(&rate), "{rate}");
    }

    #[test]
    fn what_is_answered_for_long_counts_although_it_was_not_for_a_moment() {
        let rate = found(30_000.0, 37_000.0).expect("found");
        assert!((37_000.0 / STEP..=37_000.0).contains(&rate), "{rate}");
    }

    #[test]
    fn server_that_does_not_answer_the_first_rate_is_searched_below_it() {
        let from = Search::default().from;
        for capacity in [0.9 * from, 0.3 * from] {
            let rate = found(capacity, capacity).expect("found");
            assert!((capacity / STEP..=capacity).contains(&rate), "{rate} of {capacity}");
        }
    }

    #[test]
    fn one_stall_does_not_end_the_search() {
        let mut is_stalled = true;
        let rate = search(Search::default(), "test", |rate, _| {
            is_stalled = !is_stalled;
            Ok((rate <= 37_000.0 && !is_stalled).then_some(rate))
        });
        let rate = rate.expect("found");
        assert!(rate > 37_000.0 / STEP.powi(2), "{rate}");
    }

    #[test]
    fn each_way_to_find_nothing_says_what_to_do() {
        let text = |short, long| found(short, long).expect_err("nothing to find").to_string();
        assert!(text(100.0, 100.0).contains("set saturation.from lower"));
        assert!(text(f64::INFINITY, 1.0).contains("set saturation.from or factor higher"));
        assert!(text(37_000.0, 1_000.0).contains("is the machine busy"));
    }
}
