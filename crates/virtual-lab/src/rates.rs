//! The rates at which the crowds of another run came, for one in virtual time that is to have the
//! same.
//!
//! A prediction is held against what was measured at the same rate: at the same multiple of each
//! machine's own saturation it would be of another crowd.

use std::ops::RangeInclusive;

use experiment::{Experiment, MOST_RATE, Plan, Policy, ServerSpec};
use report::Run;
use results::{Cell, Header, Saturation};
use sim::Profile;

/// Of a server, requests/s, and of a machine over what it was.
const RATES: RangeInclusive<f64> = 0.0..=MOST_RATE;
const SPEEDS: RangeInclusive<f64> = 0.0..=10.0;

/// Another run of an experiment, for a machine with a profile.
#[derive(Clone, Copy)]
pub(crate) struct Rates<'a> {
    run: &'a Run,
    profile: &'a Profile,
}

/// The crowd and the machine of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Moment {
    /// What a load of 1 was, requests/s: the server's saturation rate at the machine's speed just
    /// before.
    pub load_one: f64,
    /// The CPU's speed meanwhile, over that when the profile was measured, where both are known.
    pub speed: Option<f64>,
    /// The same just before.
    pub speed_before: Option<f64>,
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
    /// It has a number that no run has.
    #[error(
        "the run of {experiment:?} whose rates are wanted has {what} = {value} before {server:?}: give results as tidegate wrote them"
    )]
    Number {
        /// Which one that run is of.
        experiment: String,
        /// The number's name.
        what: &'static str,
        /// The number.
        value: f64,
        /// Of which server.
        server: String,
    },
    /// Of other cells.
    #[error(
        "the run of {0:?} whose rates are wanted has none of the cells that would be simulated: give a whole one, of the same file"
    )]
    Cells(String),
}

/// Whether a run has rates for a plan, as `tidegate sim --rates-of` wants.
///
/// # Errors
///
/// When it is of another experiment.
pub fn check_rates(plan: &Plan, run: &Run) -> Result<(), RatesError> {
    match plan {
        Plan::Grid(experiment) => check(run, experiment),
        Plan::Traces(_) | Plan::Dumbbell(_) => Ok(()),
    }
}

/// Whether a run's rates can be had for an experiment.
///
/// # Errors
///
/// When it is of another one.
fn check(run: &Run, experiment: &Experiment) -> Result<(), RatesError> {
    let (theirs, ours) = (&run.header.experiment, &experiment.name);
    if theirs != ours {
        return Err(RatesError::Experiment { theirs: theirs.clone(), ours: ours.clone() });
    }
    let rates = run.saturations.iter().map(|found| ("rate_per_s", &found.server, found.rate_per_s, RATES));
    let speeds = run.cells.iter().flat_map(|cell| {
        let speeds = [("speed_before", cell.speed_before), ("machine_speed", cell.machine_speed)];
        speeds.into_iter().filter_map(|(what, speed)| Some((what, &cell.server, speed?, SPEEDS)))
    });
    match rates.chain(speeds).find(|(_, _, value, bounds)| !bounds.contains(value)) {
        None => Ok(()),
        Some((what, server, value, _)) => {
            Err(RatesError::Number { experiment: theirs.clone(), what, value, server: server.clone() })
        }
    }
}

impl<'a> Rates<'a> {
    /// Of a run.
    ///
    /// # Errors
    ///
    /// When it is of another experiment.
    pub(crate) fn of(
        run: &'a Run,
        profile: &'a Profile,
        experiment: &Experiment,
    ) -> Result<Self, RatesError> {
        check(run, experiment)?;
        Ok(Self { run, profile })
    }

    /// When a cell was measured; `None` if that run has no such cell.
    pub(crate) fn moment(
        self,
        server: &ServerSpec,
        policy: &Policy,
        load: f64,
        repetition: u32,
    ) -> Option<Moment> {
        let is_it = |cell: &&Cell| {
            cell.load == load
                && cell.repetition == repetition
                && cell.policy == policy.name
                && cell.server == server.name
        };
        let cell = self.run.cells.iter().find(is_it)?;
        let found = self.saturation(&server.name)?;
        let load_one = found.rate_per_s * cell.speed_before.unwrap_or(1.0);
        let (speed, speed_before) =
            (self.speed(found, cell.machine_speed), self.speed(found, cell.speed_before));
        (load_one > 0.0).then_some(Moment { load_one, speed, speed_before })
    }

    fn saturation(self, server: &str) -> Option<&'a Saturation> {
        self.run.saturations.iter().find(|found| found.server == server)
    }

    /// A speed over that at saturation as one over the profile's.
    fn speed(self, found: &Saturation, speed: Option<f64>) -> Option<f64> {
        self.profile.speed_at(found.round_trip_us / speed?)
    }

    /// What that run is, for whoever reads results with its rates.
    pub(crate) fn words(self) -> String {
        let Header { started, environment, .. } = &self.run.header;
        let has_speed = |cell: &Cell| {
            let found = self.saturation(&cell.server)?;
            self.speed(found, cell.machine_speed)
        };
        let speeds = if self.run.cells.iter().all(|cell| has_speed(cell).is_some()) {
            "The CPU is as fast in each cell as that run's was, by small datagrams within it."
        } else {
            "The CPU is as fast as the profile's, but for cells of which both that run and the profile say how fast the machine was."
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

    use results::CrowdSummary;

    use super::*;
    use crate::simulated;

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
            users: None,
        };
        Run {
            header: experiment.header(simulated("round-numbers"), Vec::new()),
            saturations: vec![saturation],
            // Users who reload make more attempts than were meant.
            cells: vec![cell(0, 0.8, 0.5, 2900.0), cell(1, 1.2, 1.5, 2210.0)],
            traces: Vec::new(),
            claims: Vec::new(),
        }
    }

    #[test]
    fn load_of_one_is_what_it_was_just_before_the_cell_whatever_its_crowd_came_to() {
        let experiment = experiment();
        let (server, policy) = (&experiment.servers[0], &experiment.policies[0]);
        let run = run(&experiment);
        let profile = Profile { round_trip_us: Some(4.0), ..profile() };
        let rates = Rates::of(&run, &profile, &experiment).expect("the same experiment");
        let moment = |load, repetition| rates.moment(server, policy, load, repetition);
        let of = |load_one, speed, speed_before| {
            Some(Moment { load_one, speed: Some(speed), speed_before: Some(speed_before) })
        };
        assert_eq!([moment(2.0, 0), moment(2.0, 1)], [of(800.0, 1.0, 1.6), of(1200.0, 3.0, 2.4)]);
        assert_eq!([moment(2.0, 2), moment(4.0, 0)], [None, None], "that run has no such cells");
        assert!(rates.words().contains("as fast in each cell as that run's"));
    }

    #[test]
    fn where_a_machine_does_not_say_how_fast_it_was_it_is_as_fast_as_the_profiles() {
        let experiment = experiment();
        let (server, policy) = (&experiment.servers[0], &experiment.policies[0]);
        let said = |run: &Run, profile: &Profile| {
            let rates = Rates::of(run, profile, &experiment).expect("the same experiment");
            let moment = rates.moment(server, policy, 2.0, 0).expect("it was measured");
            assert!(rates.words().contains("as fast as the profile's"));
            moment.speed
        };
        assert_eq!(said(&run(&experiment), &profile()), None, "a profile without a time");
        let timed = Profile { round_trip_us: Some(4.0), ..profile() };
        for speed in [None, Some(0.0)] {
            let mut run = run(&experiment);
            run.cells[0].machine_speed = speed;
            assert_eq!(said(&run, &timed), None, "{speed:?}");
        }
    }

    fn profile() -> Profile {
        Profile::shipped("round-numbers").expect("it comes along")
    }

    #[test]
    fn numbers_that_no_run_has_are_refused() {
        let refused = |change: fn(&mut Run)| {
            let mut run = run(&experiment());
            change(&mut run);
            check(&run, &experiment()).expect_err("it has such a number").to_string()
        };
        let error = refused(|run| run.saturations[0].rate_per_s = 1e308);
        assert!(error.contains("rate_per_s") && error.contains("before \"s\""), "{error}");
        for speed in [-1.0, 10_000.0, f64::INFINITY, f64::NAN] {
            assert!(!SPEEDS.contains(&speed), "{speed}");
        }
        assert!(refused(|run| run.cells[0].speed_before = Some(10_000.0)).contains("speed_before = 10000"));
        assert!(refused(|run| run.cells[0].machine_speed = Some(-1.0)).contains("machine_speed = -1"));
    }

    #[test]
    fn run_of_another_experiment_is_refused() {
        let mut run = run(&experiment());
        run.header = Header { experiment: "b".to_owned(), ..run.header };
        let error = Rates::of(&run, &profile(), &experiment()).err().expect("another experiment").to_string();
        assert!(error.contains("\"b\"") && error.contains("\"a\""), "{error}");
    }
}
