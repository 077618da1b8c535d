//! The rates at which the crowds of another run came, for one in virtual time that is to have the same.
//!
//! A prediction is held against what was measured at the same rate: at the same multiple of each machine's own saturation it would be of another crowd.

use report::Run;
use results::{Cell, Header};

use crate::experiment::{Experiment, Server};
use crate::policy::Policy;

/// Another run of an experiment.
#[derive(Clone, Copy)]
pub struct Rates<'a>(&'a Run);

/// They are of something else.
#[derive(Debug, thiserror::Error)]
pub enum RatesError {
    /// Of another experiment.
    #[error(
        "the rates are of a run of {theirs:?}, and this is {ours:?}: give results of the same experiment"
    )]
    Experiment {
        /// Which one that run is of.
        theirs: String,
        /// Which one is to be simulated.
        ours: String,
    },
    /// Of other cells.
    #[error(
        "the run of {0:?} whose rates are wanted has none of the cells that would be simulated: give a whole one, of the same file"
    )]
    Cells(String),
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
        Err(RatesError::Experiment { theirs: run.header.experiment.clone(), ours: experiment.name.clone() })
    }

    /// What a load of 1 was when a cell was measured, requests/s: the server's saturation rate at the machine's speed just before. `None` if that run has no such cell.
    pub fn load_one(self, server: &Server, policy: &Policy, load: f64, repetition: u32) -> Option<f64> {
        let is_it = |cell: &&Cell| {
            cell.load == load
                && cell.repetition == repetition
                && cell.policy == policy.name
                && cell.server == server.name
        };
        let cell = self.0.cells.iter().find(is_it)?;
        let found = self.0.saturations.iter().find(|found| found.server == server.name)?;
        let rate = found.rate_per_s * cell.speed_before.unwrap_or(1.0);
        (rate > 0.0).then_some(rate)
    }

    /// What that run is, for whoever reads results with its rates.
    pub fn words(self) -> String {
        let Header { started, environment, .. } = &self.0.header;
        format!(
            "Crowds come at the rates of another run, of {started} ({}): a load is a multiple of what was found there, not of the saturation rate here.",
            environment.kernel
        )
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use results::{CrowdSummary, Saturation};

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
        let cell = |repetition, speed, offered_per_s| Cell {
            server: "s".to_owned(),
            policy: "stock".to_owned(),
            load: 2.0,
            repetition,
            speed_before: Some(speed),
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
            // Users who reload make more attempts than were meant.
            cells: vec![cell(0, 0.9, 2900.0), cell(1, 1.1, 2210.0)],
            traces: Vec::new(),
            claims: Vec::new(),
        }
    }

    #[test]
    fn load_of_one_is_what_it_was_just_before_the_cell_whatever_its_crowd_came_to() {
        let experiment = experiment();
        let (server, policy) = (&experiment.servers[0], &experiment.policies[0]);
        let run = run(&experiment);
        let rates = Rates::of(&run, &experiment).expect("the same experiment");
        let one = |load, repetition| rates.load_one(server, policy, load, repetition);
        assert_eq!([one(2.0, 0), one(2.0, 1)], [Some(900.0), Some(1100.0)]);
        assert_eq!([one(2.0, 2), one(4.0, 0)], [None, None], "that run has no such cells");
    }

    #[test]
    fn run_of_another_experiment_is_refused() {
        let mut run = run(&experiment());
        run.header = Header { experiment: "b".to_owned(), ..run.header };
        let error = Rates::of(&run, &experiment()).err().expect("another experiment").to_string();
        assert!(error.contains("\"b\"") && error.contains("\"a\""), "{error}");
    }
}
