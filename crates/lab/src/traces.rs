//! An experiment of packet scripts: the claims in them, each answered by the lines above it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use conformance::{Case, Outcome as Played};
use results::{Answer, ClaimAnswer, Estimate, Header, Record, Trace, TraceOutcome, Unit};
use script::{Failure, Script};
use serde::Deserialize;

use crate::environment;
use crate::experiment::{ExperimentError, from_toml, is_plain};
use crate::grid::Event;
use crate::jobs;
use crate::outcome::{Options, Outcome, Writer};

/// Packet scripts that are played to the running kernel, or to the simulated one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// Short name; names the folder of the results.
    pub name: String,
    /// One sentence that says what is asked.
    pub title: String,
    /// What is played, one after another.
    #[serde(rename = "trace")]
    pub traces: Vec<TraceFile>,
    /// The file, word for word.
    #[serde(skip)]
    pub source: String,
}

/// One packet script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceFile {
    /// Where its claims stand, as `[Shu05] figure 4.2`.
    pub source: String,
    /// Its path in `tests/conformance/`, without the suffix; all of them are built in.
    pub script: String,
}

/// What became of one claim in one run of its script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Held,
    Failed,
    /// The script failed, or could not run, before anything was said about it.
    NotReached,
    /// Nobody knows.
    Missing,
}

impl Traces {
    /// Checks the text of a file.
    ///
    /// # Errors
    ///
    /// See [`ExperimentError`].
    pub fn parse(path: &Path, text: String) -> Result<Self, ExperimentError> {
        let mut traces: Self = from_toml(path, &text)?;
        traces.source = text;
        traces.check().map_err(|what| ExperimentError::Invalid { path: path.into(), what })?;
        Ok(traces)
    }

    fn check(&self) -> Result<(), String> {
        if !is_plain(&self.name) {
            return Err(format!(
                "name {:?} names a folder: use up to 40 letters, digits and dashes",
                self.name
            ));
        }
        if self.traces.is_empty() {
            return Err("trace is empty: name at least one [[trace]]".to_owned());
        }
        self.traces.iter().try_for_each(|trace| trace.find().map(drop))
    }

    /// Plays every script to the running kernel, with each of its address families and hooks.
    ///
    /// # Errors
    ///
    /// When namespaces or programs cannot be made. A script that fails is a result.
    pub fn run(
        &self,
        options: &Options,
        stop: &AtomicBool,
        on_event: impl FnMut(&Event<'_>),
    ) -> Result<Outcome> {
        self.play(Ground::Running, &options.results, stop, on_event)
    }

    /// Plays every script to the simulated kernel, with each of its address families.
    ///
    /// # Errors
    ///
    /// When the simulated kernel has not what a script sets, or the results cannot be written.
    pub fn simulate(&self, options: &jobs::Options<'_>, on_event: impl FnMut(&Event<'_>)) -> Result<Outcome> {
        self.play(Ground::Simulated, options.results, options.stop, on_event)
    }

    fn play(
        &self,
        ground: Ground,
        results: &Path,
        stop: &AtomicBool,
        mut on_event: impl FnMut(&Event<'_>),
    ) -> Result<Outcome> {
        let mut writer = Writer::create(results, &self.name)?;
        let scripts =
            self.traces.iter().map(|file| Ok((file, file.find()?))).collect::<Result<Vec<_>, String>>();
        let scripts = scripts.map_err(anyhow::Error::msg)?;
        let planned = scripts.iter().map(|(_, script)| ground.cases(script).len()).sum();
        writer.begin(ground.header(self), planned)?;
        let mut claims = Vec::new();
        for (file, script) in &scripts {
            let cases = ground.cases(script);
            let mut reached = vec![Reached::Unplayed; cases.len()];
            for (reached, case) in reached.iter_mut().zip(&cases) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (trace, until) = ground.play(case)?;
                on_event(&Event::Trace(&trace));
                writer.write(Record::Trace(Box::new(trace)))?;
                *reached = until;
            }
            claims.extend(answers(self, file, script, ground.name(), &reached));
        }
        for claim in claims {
            writer.write(Record::Claim(Box::new(claim)))?;
        }
        writer.finish(stop.load(Ordering::Relaxed))
    }
}

/// What scripts are played to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    Running,
    Simulated,
}

impl Ground {
    fn name(self) -> &'static str {
        match self {
            Self::Running => "the running kernel",
            Self::Simulated => "the simulated kernel",
        }
    }

    fn header(self, traces: &Traces) -> Header {
        match self {
            Self::Running => environment::of_traces(traces),
            Self::Simulated => environment::of_simulated_traces(traces),
        }
    }

    fn cases(self, script: &Script) -> Vec<Case> {
        match self {
            Self::Running => Case::all(script),
            Self::Simulated => Case::all_simulated(script),
        }
    }

    fn play(self, case: &Case) -> Result<(Trace, Reached)> {
        let (hook, played) = match self {
            Self::Running => (case.hook.to_string(), case.play()),
            Self::Simulated => (Trace::SIMULATED.to_owned(), case.simulate().map(Played::Passed)),
        };
        let trace = |transcript, outcome| Trace {
            script: conformance::plain_name(&case.script).to_owned(),
            family: case.family.to_string(),
            hook,
            transcript,
            outcome,
        };
        match played {
            Ok(Played::Passed(transcript)) => Ok((trace(transcript, TraceOutcome::Held), Reached::End)),
            Ok(Played::Skipped(reason)) => {
                Ok((trace(Vec::new(), TraceOutcome::Skipped(reason)), Reached::Nothing))
            }
            Err(error) => {
                let script = conformance::plain_name(&case.script);
                let failure: Failure =
                    error.downcast().with_context(|| format!("play {script} to {}", self.name()))?;
                let why = format!("line {}: {}", failure.line, failure.what);
                Ok((trace(failure.transcript, TraceOutcome::Failed(why)), Reached::Line(failure.line)))
            }
        }
    }
}

impl TraceFile {
    fn find(&self) -> Result<Script, String> {
        let scripts = conformance::scripts().map_err(|error| error.to_string())?;
        let names: Vec<String> = scripts
            .iter()
            .map(conformance::plain_name)
            .filter(|name| name.starts_with("traces/"))
            .map(str::to_owned)
            .collect();
        let found = scripts.into_iter().find(|script| conformance::plain_name(script) == self.script);
        found.ok_or_else(|| {
            format!(
                "trace {:?}: there is no such packet script; traces are {}, and the others of tests/conformance are called as ack/default-full, by folder and name without .pkt; scripts from elsewhere cannot be played",
                self.script,
                names.join(", ")
            )
        })
    }
}

/// How far a run of a script came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reached {
    /// Its end.
    End,
    /// The line that did not hold.
    Line(usize),
    /// Nothing: this kernel cannot play it.
    Nothing,
    /// Nothing: the user stopped before.
    Unplayed,
}

/// A claim holds when the lines above it do; it fails when one between it and the claim before does not.
fn shown(script: &Script, claim: usize, reached: Reached) -> Shown {
    let before = if claim == 0 { 0 } else { script.claims[claim - 1].line };
    match reached {
        Reached::End => Shown::Held,
        Reached::Line(line) if line > script.claims[claim].line => Shown::Held,
        Reached::Line(line) if line > before => Shown::Failed,
        Reached::Line(_) | Reached::Nothing => Shown::NotReached,
        Reached::Unplayed => Shown::Missing,
    }
}

fn answers(
    traces: &Traces,
    file: &TraceFile,
    script: &Script,
    server: &str,
    reached: &[Reached],
) -> Vec<ClaimAnswer> {
    let answer = |(index, claim): (usize, &script::Claim)| {
        let shown: Vec<Shown> = reached.iter().map(|reached| shown(script, index, *reached)).collect();
        let count = |wanted| shown.iter().filter(|shown| **shown == wanted).count();
        let (held, failed, missing) = (count(Shown::Held), count(Shown::Failed), count(Shown::Missing));
        let share = held as f64 / (held + failed).max(1) as f64;
        let answer = match (held, failed) {
            (_, 1..) => Answer::Fails,
            (1.., 0) if missing > 0 => Answer::Undecided,
            (1.., 0) if held == shown.len() => Answer::Holds,
            _ => Answer::NotMeasured,
        };
        let marks = (missing > 0).then(|| {
            format!("{missing} of the {} runs that it rests on are missing: the run ended early", shown.len())
        });
        ClaimAnswer {
            experiment: traces.name.clone(),
            server: server.to_owned(),
            source: file.source.clone(),
            text: claim.text.clone(),
            measured: format!(
                "share of the runs of {} in which it shows by line {}",
                file.script, claim.line
            ),
            unit: Unit::Share,
            paper: None,
            at_least: Some(1.0),
            at_most: None,
            ours: (held + failed > 0).then_some(Estimate { mean: share, low: share, high: share, count: 1 }),
            answer,
            marks: marks.into_iter().collect(),
            why: None,
        }
    };
    script.claims.iter().enumerate().map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "policy default\nbacklog 0\nfill\nclaim one\nstate a gone\nclaim two\n";

    fn answers_of(reached: &[Reached]) -> Vec<(Answer, Option<f64>)> {
        let script = script::parse("traces/test.pkt", SCRIPT).expect("a script");
        let file = TraceFile { source: "[Test]".to_owned(), script: "traces/test".to_owned() };
        let traces = Traces {
            name: "test".to_owned(),
            title: "A test.".to_owned(),
            traces: vec![file.clone()],
            source: String::new(),
        };
        let answers = answers(&traces, &file, &script, "a kernel", reached);
        answers.iter().map(|claim| (claim.answer, claim.ours.map(|ours| ours.mean))).collect()
    }

    #[test]
    fn claim_holds_when_every_run_came_past_it() {
        assert_eq!(answers_of(&[Reached::End; 2]), [(Answer::Holds, Some(1.0)); 2]);
        assert_eq!(
            answers_of(&[Reached::End, Reached::Line(5)]),
            [(Answer::Holds, Some(1.0)), (Answer::Fails, Some(0.5))]
        );
    }

    #[test]
    fn claim_behind_the_line_that_failed_was_not_measured() {
        assert_eq!(
            answers_of(&[Reached::Line(3)]),
            [(Answer::Fails, Some(0.0)), (Answer::NotMeasured, None)]
        );
        assert_eq!(answers_of(&[Reached::Nothing]), [(Answer::NotMeasured, None); 2]);
        assert_eq!(answers_of(&[Reached::Unplayed]), [(Answer::NotMeasured, None); 2]);
    }

    #[test]
    fn claim_is_undecided_while_a_run_of_its_script_is_missing_unless_another_shows_that_it_fails() {
        assert_eq!(answers_of(&[Reached::End, Reached::Unplayed]), [(Answer::Undecided, Some(1.0)); 2]);
        assert_eq!(
            answers_of(&[Reached::Line(5), Reached::Unplayed]),
            [(Answer::Undecided, Some(1.0)), (Answer::Fails, Some(0.0))]
        );
    }

    /// Those that the book of figures has.
    #[test]
    fn traces_of_the_papers_hold_on_the_simulated_kernel() {
        let folder = tempfile::tempdir().expect("a folder");
        let stop = AtomicBool::new(false);
        let options = jobs::Options {
            results: folder.path(),
            profile: None,
            threads: 1,
            rates_of: None,
            captures: None,
            stop: &stop,
            watch: &(),
        };
        for figure in ["fig-4.2", "fig-4.5", "fig-4.11"] {
            let file = format!(
                "{}/../../experiments/connection-management/{figure}.toml",
                env!("CARGO_MANIFEST_DIR")
            );
            let text = std::fs::read_to_string(&file).expect("an experiment");
            let traces = Traces::parse(file.as_ref(), text).expect("an experiment");
            let run = traces.simulate(&options, |_| {}).expect("a run").run;
            assert!(run.traces.iter().all(|trace| trace.outcome == TraceOutcome::Held), "{:?}", run.traces);
            assert!(!run.claims.is_empty() && run.claims.iter().all(|claim| claim.answer == Answer::Holds));
        }
    }

    #[test]
    fn script_that_is_not_there_is_an_error_with_those_that_are() {
        let file = TraceFile { source: String::new(), script: "traces/fig-9.9".to_owned() };
        let error = file.find().expect_err("no such script");
        assert!(error.contains("traces/fig-9.9") && error.contains("traces/fig-4.2, "), "{error}");
    }
}
