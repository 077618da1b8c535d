//! The rates at which the crowds of another run came, for one in virtual time that is to have the same.
//!
//! A prediction is held against what was measured at the same rate: at the same multiple of each machine's own saturation it would be of another crowd.

use report::Run;
use results::{Cell, Saturation};

use crate::experiment::{Experiment, Server};
use crate::policy::Policy;

/// Another run of an experiment.
#[derive(Clone, Copy)]
pub struct Rates<'a>(&'a Run);

/// They are of something else.
#[derive(Debug, thiserror::Error)]
#[error("the rates are of a run of {theirs:?}, and this is {ours:?}: give results of the same experiment")]
pub struct RatesError {
    theirs: String,
    ours: String,
}

/// How one crowd came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Came {
    /// Attempts per second; in bursts, over burst and gap.
    pub rate: f64,
    /// What a load of 1 was at that moment, requests/s.
    pub saturation: f64,
}

impl<'a> Rates<'a> {
    /// Of a run.
    ///
    /// # Errors
    ///
    /// When it is of another experiment.
    pub fn of(run: &'a Run, experiment: &Experiment) -> Result<Self, RatesError> {
        if run.header.experiment == experiment.name {
            return Ok(Self(run));
        }
        Err(RatesError { theirs: run.header.experiment.clone(), ours: experiment.name.clone() })
    }

    /// The saturation rate that was found for a server; `None` if that run had no such server.
    pub fn saturation(self, server: &Server) -> Option<&'a Saturation> {
        self.0.saturations.iter().find(|saturation| saturation.server == server.name)
    }

    /// How the crowd of a cell came; `None` if that run has no such cell.
    pub fn came(self, server: &Server, policy: &Policy, load: f64, repetition: u32) -> Option<Came> {
        let is_it = |cell: &&Cell| {
            cell.load == load
                && cell.repetition == repetition
                && cell.policy == policy.name
                && cell.server == server.name
        };
        let cell = self.0.cells.iter().find(is_it)?;
        let saturation = self.saturation(server)?.rate_per_s * cell.speed_before.unwrap_or(1.0);
        let rate = cell.crowd.offered_per_s;
        (rate > 0.0).then_some(Came { rate, saturation })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use results::{CrowdSummary, Header};

    use super::*;
    use crate::environment;

    const FILE: &str = r#"
name = "a"
title = "A?"
[crowd]
timeout = "1s"
close = "fin"
arrivals = "poisson"
[grid]
loads = [2.0]
warmup = "1s"
duration = "1s"
repetitions = 2
[[server]]
name = "s"
kind = "built-in"
backlog = 8
[[policy]]
name = "stock"
"#;

    fn experiment() -> Experiment {
        Experiment::parse(Path::new("a.toml"), FILE.to_owned()).expect("an experiment")
    }

    fn run(experiment: &Experiment) -> Run {
        let cell = |repetition, offered_per_s| Cell {
            server: "s".to_owned(),
            policy: "stock".to_owned(),
            load: 2.0,
            repetition,
            speed_before: Some(0.9),
            crowd: CrowdSummary { offered_per_s, ..CrowdSummary::default() },
            ..Cell::default()
        };
        let saturation = Saturation {
            server: "s".to_owned(),
            rate_per_s: 1000.0,
            round_trip_us: 0.0,
            probes: Vec::new(),
            marks: Vec::new(),
            bursts: None,
        };
        Run {
            header: environment::plain(experiment),
            saturations: vec![saturation],
            cells: vec![cell(0, 1800.0), cell(1, 1750.0)],
            traces: Vec::new(),
            claims: Vec::new(),
        }
    }

    #[test]
    fn every_cell_has_the_rate_of_its_own_repetition() {
        let experiment = experiment();
        let (server, policy) = (&experiment.servers[0], &experiment.policies[0]);
        let run = run(&experiment);
        let rates = Rates::of(&run, &experiment).expect("the same experiment");
        let rate = |load, repetition| rates.came(server, policy, load, repetition).map(|came| came.rate);
        assert_eq!([rate(2.0, 0), rate(2.0, 1)], [Some(1800.0), Some(1750.0)]);
        assert_eq!([rate(2.0, 2), rate(4.0, 0)], [None, None], "that run has no such cells");
        assert_eq!(rates.came(server, policy, 2.0, 0).map(|came| came.saturation), Some(900.0));
    }

    #[test]
    fn run_of_another_experiment_is_refused() {
        let mut run = run(&experiment());
        run.header = Header { experiment: "b".to_owned(), ..run.header };
        let error = Rates::of(&run, &experiment()).err().expect("another experiment").to_string();
        assert!(error.contains("\"b\"") && error.contains("\"a\""), "{error}");
    }
}
