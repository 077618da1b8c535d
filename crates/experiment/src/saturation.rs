//! The rate at which a server saturates: the highest that stock Linux still answers, to clients who
//! do not ask twice.
//!
//! Those who do make one stall of the machine a matter of many seconds: what was dropped in it
//! comes again on top of what comes anyway, and is dropped again. The rate at which that happens is
//! the machine's calm, and not what the server can do.

use std::time::Duration;

use anyhow::{Result, bail};
use results::{KEEPS_UP, Saturation};
use serde::Deserialize;

use crate::bursts::Bursts;
use crate::experiment::Experiment;
use crate::servers::ServerSpec;
use crate::time::{MOST_RATE, duration, some_duration};

/// How long a client of a probe waits: less than until it would send its SYN again.
const ONE_SYN: Duration = Duration::from_millis(900);
/// Rises before the search gives up.
const MAX_RISES: usize = 40;
/// Falls, likewise, from a first rate that was too high: such a server, or machine, is another one
/// than the file was written for.
const MAX_FALLS: usize = 6;
/// Between two probes of a search.
const MAX_FACTOR: f64 = 100.0;
/// As near as long windows come to the rate.
const STEP: f64 = 1.04;
/// Up to one and a half times what short probes found.
const MAX_STEPS_UP: i32 = 10;
/// Down to a third of it: a machine may be twice as slow as it was a moment ago.
const MAX_STEPS_DOWN: i32 = 28;

/// How the saturation rate is searched: rising until the server no longer answers all, then between
/// the last two.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Search {
    /// First offered rate, attempts/s.
    pub from: f64,
    /// Factor from one rising probe to the next, above 1.
    pub factor: f64,
    /// Halvings of the last interval.
    pub refinements: u32,
    /// Length of a probe's measured window.
    #[serde(deserialize_with = "duration")]
    pub duration: Duration,
    /// Length of the windows that have the last word; without it, that of the grid's.
    #[serde(deserialize_with = "some_duration")]
    pub confirm: Option<Duration>,
}

impl Default for Search {
    fn default() -> Self {
        Self { from: 8000.0, factor: 1.4, refinements: 4, duration: Duration::from_secs(1), confirm: None }
    }
}

impl Search {
    /// Whether it can be searched so.
    pub(crate) fn check(&self) -> Result<(), String> {
        if !(1.0..=MOST_RATE).contains(&self.from) {
            return Err(format!("saturation.from = {} is not a rate; 8000 is usual", self.from));
        }
        if !(1.05..=MAX_FACTOR).contains(&self.factor) {
            return Err(format!(
                "saturation.factor = {}, and can be 1.05 to {MAX_FACTOR}; 1.4 is usual",
                self.factor
            ));
        }
        if self.refinements > 20 {
            return Err(format!(
                "saturation.refinements = {} is finer than any machine; 4 is usual",
                self.refinements
            ));
        }
        Ok(())
    }
}

/// How long a probe is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    /// As the search says.
    Short,
    /// As a cell of the grid, or as the experiment says.
    Long,
}

/// A crowd that is sent to see whether a server answers all of it: of users who ask once, from
/// beside it, under the kernel as it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probe {
    /// Attempts per second.
    pub rate: f64,
    /// Before the measured window.
    pub warmup: Duration,
    /// The measured window.
    pub window: Duration,
    /// How long each waits for its reply: less than until it would send its SYN again.
    pub timeout: Duration,
}

/// What came of a probe.
#[derive(Debug, Clone, PartialEq)]
pub struct Probed {
    /// Connections per second that were asked for.
    pub offered: f64,
    /// That were answered in time.
    pub goodput: f64,
    /// What the server's CPU took for a small datagram meanwhile; 0 where nobody looks.
    pub round_trip_us: f64,
    /// Why that should be read with care.
    pub marks: Vec<String>,
}

impl Experiment {
    /// Finds the rate at which a server saturates. A probe counts as unanswered when it was so
    /// `tries` times.
    ///
    /// # Errors
    ///
    /// When no rate is low enough or too high, or what short probes found cannot be held; and what
    /// `send` says.
    pub fn find_saturation(
        &self,
        server: &ServerSpec,
        tries: u32,
        mut send: impl FnMut(Probe) -> Result<Probed>,
    ) -> Result<Saturation> {
        let timeout = self.probe_timeout(server);
        let (mut probes, mut marks, mut round_trip_us) = (Vec::new(), Vec::new(), 0.0);
        let probe = |rate: f64, length: Length| {
            let (warmup, window) = self.probe_lengths(length);
            let probed = send(Probe { rate, warmup, window, timeout })?;
            let (offered, goodput) = (probed.offered, probed.goodput);
            probes.push((offered, goodput));
            let is_answered = goodput >= KEEPS_UP * offered;
            if is_answered {
                round_trip_us = probed.round_trip_us;
            } else {
                marks.extend(
                    probed.marks.into_iter().map(|mark| format!("a probe at {offered:.0}/s: {mark}")),
                );
            }
            // More than was offered are late replies to what came before the window, and no rate
            // that the server holds.
            Ok(is_answered.then_some(goodput.min(offered)))
        };
        let rate_per_s = search(self.saturation, &server.name, tries, probe)?;
        // The last probe that was answered is the one whose goodput it is.
        let found = Saturation {
            server: String::new(),
            rate_per_s,
            round_trip_us,
            probes,
            marks,
            bursts: None,
            users: None,
        };
        Ok(self.saturation_of(server, &found))
    }

    /// What was found for a server that is the same but for its crowd. Where loads are of a
    /// bandwidth, the rate that asks for all of it; of a closed loop, how many users: nobody
    /// searches for those.
    pub fn known_saturation(&self, server: &ServerSpec, found: &[Saturation]) -> Option<Saturation> {
        let of_uplink = self.rate_of_uplink(server).expect("checked when the file was read");
        // Of a closed loop a load of 1 is so many users.
        let users = self.clients(server).closed_loop.map(|looped| looped.users);
        if let Some(rate_per_s) = of_uplink.or(users.map(f64::from)) {
            let found = Saturation {
                server: String::new(),
                rate_per_s,
                round_trip_us: 0.0,
                probes: Vec::new(),
                marks: Vec::new(),
                bursts: None,
                users,
            };
            return Some(self.saturation_of(server, &found));
        }
        let is_same = |known: &Saturation| {
            self.servers.iter().any(|other| other.name == known.server && other.is_as(server))
        };
        found.iter().find(|known| is_same(known)).map(|known| self.saturation_of(server, known))
    }

    fn saturation_of(&self, server: &ServerSpec, found: &Saturation) -> Saturation {
        let bursts = self.bursts(server).map(Bursts::lengths);
        Saturation { server: server.name.clone(), bursts, ..found.clone() }
    }

    /// How long a client of a probe waits.
    pub fn probe_timeout(&self, server: &ServerSpec) -> Duration {
        ONE_SYN.min(self.clients(server).timeout)
    }

    /// Warm-up and window of a probe.
    fn probe_lengths(&self, length: Length) -> (Duration, Duration) {
        let search = &self.saturation;
        match length {
            Length::Short => (search.duration / 2, search.duration),
            Length::Long => (search.duration, search.confirm.unwrap_or(self.grid.duration)),
        }
    }
}

/// Offers rising rates in short probes until the server no longer answers all, or falling ones
/// until it does, narrows the last interval down, and then offers the rate found in long probes:
/// less and less until one is answered, or, if the first was, more and more until one is not, and
/// halves the interval again. The result is the goodput of the highest that was answered. `probe`
/// gives the goodput of a crowd if it was answered.
///
/// A rate counts as unanswered when it was so in all tries of a short probe: one stall of the
/// machine must not end the search. The best of several short probes is more than the server
/// sustains, and two in the same bad moment find less, which is why long ones have the last word.
///
/// # Errors
///
/// When the first rate and those some times below it are not answered, no rate is too high, or what
/// short probes found cannot be held.
fn search(
    search: Search,
    server: &str,
    tries: u32,
    mut probe: impl FnMut(f64, Length) -> Result<Option<f64>>,
) -> Result<f64> {
    let mut is_kept = |rate: f64| -> Result<bool> {
        for _ in 0..tries {
            if probe(rate, Length::Short)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
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
        search(Search::default(), "test", 2, |rate, length| {
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
        let rate = search(Search::default(), "test", 2, |rate, _| {
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
