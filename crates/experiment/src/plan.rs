//! What an experiment file asks for: a grid, packet scripts, or a dumbbell.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::dumbbell::Dumbbell;
use crate::error::ExperimentError;
use crate::experiment::Experiment;
use crate::extent;
use crate::traces::Traces;

/// An experiment, as its TOML file says it.
#[derive(Debug, Clone, PartialEq)]
pub enum Plan {
    /// Servers under policies before crowds.
    Grid(Box<Experiment>),
    /// Packet scripts, and the claims in them: a file with `[[trace]]`.
    Traces(Traces),
    /// Flows over a bottleneck: a file with `topology`.
    Dumbbell(Box<Dumbbell>),
}

/// What tells one from the other, whatever is wrong with the rest.
#[derive(Default, Deserialize)]
struct Keys {
    trace: Option<IgnoredAny>,
    topology: Option<IgnoredAny>,
}

impl Plan {
    /// Reads and checks an experiment file, and makes its run short where that is wanted, to see
    /// that all works. Scripts take as long as their lines say.
    ///
    /// # Errors
    ///
    /// See [`ExperimentError`]: one line that names the key, why, and what would do.
    pub fn read(path: &Path, is_quick: bool) -> Result<Self, ExperimentError> {
        let mut plan = Self::parse(path)?;
        if is_quick {
            plan.quicken();
        }
        // Of a quick run only what is left counts.
        plan.check_extent().map_err(|what| ExperimentError::Invalid { path: path.into(), what })?;
        Ok(plan)
    }

    fn parse(path: &Path) -> Result<Self, ExperimentError> {
        let text =
            files::read_text(path).map_err(|source| ExperimentError::Read { path: path.into(), source })?;
        let keys = toml::from_str::<Keys>(&text).unwrap_or_default();
        if keys.trace.is_some() {
            return Traces::parse(path, text).map(Self::Traces);
        }
        if keys.topology.is_some() {
            return Dumbbell::parse(path, text).map(|dumbbell| Self::Dumbbell(Box::new(dumbbell)));
        }
        Experiment::parse(path, text).map(|experiment| Self::Grid(Box::new(experiment)))
    }

    fn quicken(&mut self) {
        match self {
            Self::Grid(experiment) => experiment.quicken(),
            Self::Dumbbell(dumbbell) => dumbbell.quicken(),
            Self::Traces(_) => {}
        }
    }

    fn check_extent(&self) -> Result<(), String> {
        match self {
            Self::Grid(experiment) => experiment.check_extent(),
            Self::Dumbbell(dumbbell) => dumbbell.check_extent(),
            Self::Traces(_) => Ok(()),
        }
    }

    /// Whether it can be simulated in the memory that is to be had, so many cells at once.
    ///
    /// # Errors
    ///
    /// What it would take, and what would make it less.
    pub fn check_memory(&self, path: &Path, threads: usize) -> Result<(), ExperimentError> {
        let (Self::Grid(experiment), Some(available)) = (self, extent::available_memory()) else {
            return Ok(());
        };
        let (attempts, cells) = experiment.most_waiting();
        extent::check_memory(attempts, threads.min(cells), available)
            .map_err(|what| ExperimentError::Invalid { path: path.into(), what })
    }

    /// Short name.
    pub fn name(&self) -> &str {
        match self {
            Self::Grid(experiment) => &experiment.name,
            Self::Traces(traces) => &traces.name,
            Self::Dumbbell(dumbbell) => &dumbbell.name,
        }
    }

    /// One sentence that says what is asked.
    pub fn title(&self) -> &str {
        match self {
            Self::Grid(experiment) => &experiment.title,
            Self::Traces(traces) => &traces.title,
            Self::Dumbbell(dumbbell) => &dumbbell.title,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_of_the_reference_page_can_be_run() {
        let page = include_str!("../../../docs/experiments.md");
        let examples: Vec<&str> =
            page.split("```toml").skip(1).map(|rest| rest.split("```").next().expect("a part")).collect();
        assert_eq!(examples.len(), 2, "a grid, and packet scripts");
        for text in examples {
            read(text, false).unwrap_or_else(|error| panic!("{error}: {text}"));
        }
    }

    fn read(text: &str, is_quick: bool) -> Result<Plan, String> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("write");
        Plan::read(file.path(), is_quick).map_err(|error| error.to_string())
    }

    #[test]
    fn quick_run_is_refused_by_what_is_left_of_it_only() {
        let paper = include_str!("../../../experiments/syn-protection/paper.toml");
        let grid = include_str!("../../../experiments/demo.toml");
        for (text, from, to) in [
            (paper, "repetitions = 30", "repetitions = 1000000"),
            (grid, "[grid]", "[grid]\nrepetitions = 1000000"),
        ] {
            assert!(text.contains(from), "{from}");
            let text = text.replacen(from, to, 1);
            let error = read(&text, false).expect_err("too many cells");
            assert!(error.contains("100000 cells are the most"), "{error}");
            read(&text, true).expect("each point once");
        }
    }

    #[test]
    fn every_experiment_that_comes_along_can_be_read() {
        let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
        let folders =
            std::fs::read_dir(all).expect("experiments").map(|entry| entry.expect("an entry").path());
        let files = folders.filter(|path| path.is_dir()).flat_map(|folder| {
            std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path())
        });
        // Beside them stands what came out, RESULTS.md.
        let files: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "toml")).collect();
        assert!(files.len() > 20, "{files:?}");
        for file in files {
            Plan::read(&file, false).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
