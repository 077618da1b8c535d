//! The rates at which the crowds of another run came, for one in virtual time that is to have the same.
//!
//! A prediction is held against what was measured at the same rate: at the same multiple of each machine's own saturation it would be of another crowd.

use report::Run;
use results::{Cell, Header};
use sim::Profile;

use crate::experiment::{Experiment, Server};
use crate::policy::Policy;

/// Another run of an experiment.
#[derive(Clone, Copy)]
pub struct Rates<'a>(&'a Run);

/// The crowd and the machine of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// What a load of 1 was, requests/s: the server's saturation rate at the machine's speed just before.
    pub load_one: f64,
    /// What the server's CPU took for a small datagram meanwhile, us, where a machine was there.
    pub round_trip_us: Option<f64>,
}

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

    /// When a cell was measured; `None` if that run has no such cell.
    pub fn moment(self, server: &Server, policy: &Policy, load: f64, repetition: u32) -> Option<Moment> {
        let is_it = |cell: &&Cell| {
            cell.load == load
                && cell.repetition == repetition
                && cell.policy == policy.name
                && cell.server == server.name
        };
        let cell = self.0.cells.iter().find(is_it)?;
        let found = self.0.saturations.iter().find(|found| found.server == server.name)?;
        let load_one = found.rate_per_s * cell.speed_before.unwrap_or(1.0);
        let round_trip_us = cell.machine_speed.map(|speed| found.round_trip_us / speed);
        (load_one > 0.0).then_some(Moment { load_one, round_trip_us })
    }

    /// What that run is, for whoever reads results with its rates, and at its speeds where `profile` says how fast it was itself.
    pub fn words(self, profile: &Profile) -> String {
        let Header { started, environment, .. } = &self.0.header;
        let speeds = match profile.round_trip_us {
            Some(_) => "The CPU has the speed of that run's at that moment, by small datagrams within it.",
            None => "The CPU has the profile's speed, as that does not say how fast its machine was.",
        };
        format!(
            "Crowds come at the rates of another run, of {started} ({}): a load is a multiple of what was found there, not of the saturation rate here. {speeds}",
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
        let cell = |repetition, speed, machine_speed, offered_per_s| Cell {
            server: "s".to_owned(),
            policy: "stock".to_owned(),
            load: 2.0,
            repetition,
            speed_before: Some(speed),
            machine_speed: Some(machine_speed),
            crowd: CrowdSummary { offered_per_s, ..CrowdSummary::default() },
            ..Cell::default()
        };
        let saturation = Saturation {
            server: "s".to_owned(),
            rate_per_s: 1000.0,
            round_trip_us: 2.0,
            probes: Vec::new(),
            marks: Vec::new(),
            bursts: None,
        };
        Run {
            header: environment::plain(experiment),
            saturations: vec![saturation],
            // Users who reload make more attempts than were meant.
            cells: vec![cell(0, 0.9, 0.8, 2900.0), cell(1, 1.1, 1.6, 2210.0)],
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
        let moment = |load, repetition| rates.moment(server, policy, load, repetition);
        let of = |load_one, round_trip_us| Some(Moment { load_one, round_trip_us: Some(round_trip_us) });
        assert_eq!([moment(2.0, 0), moment(2.0, 1)], [of(900.0, 2.5), of(1100.0, 1.25)]);
        assert_eq!([moment(2.0, 2), moment(4.0, 0)], [None, None], "that run has no such cells");
    }

    #[test]
    fn run_of_another_experiment_is_refused() {
        let mut run = run(&experiment());
        run.header = Header { experiment: "b".to_owned(), ..run.header };
        let error = Rates::of(&run, &experiment()).err().expect("another experiment").to_string();
        assert!(error.contains("\"b\"") && error.contains("\"a\""), "{error}");
    }
}
