//! An experiment of packet scripts: the claims in them, each answered by the lines above it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use results::{Answer, ClaimAnswer, Environment, Estimate, Record, Trace, TraceOutcome, Unit};
use script::{Failure, Family, Script};
use serde::Deserialize;

use crate::check::is_plain;
use crate::error::{ExperimentError, from_toml};
use crate::event::Event;
use crate::header::{About, header};
use crate::outcome::{Outcome, Writer};

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
    pub(crate) traces: Vec<TraceFile>,
    /// The file, word for word.
    #[serde(skip)]
    pub(crate) source: String,
}

/// One packet script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TraceFile {
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
    pub(crate) fn parse(path: &Path, text: String) -> Result<Self, ExperimentError> {
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

    /// Plays every script, as often as `runs` says, to `ground`.
    ///
    /// # Errors
    ///
    /// When a run cannot be made, or the results cannot be written. A script that fails is a
    /// result.
    pub fn play(
        &self,
        ground: &str,
        (environment, deviations): (Environment, Vec<String>),
        results: &Path,
        stop: &AtomicBool,
        runs: impl Fn(&Script) -> Vec<ScriptRun>,
        mut on_event: impl FnMut(&Event<'_>),
    ) -> Result<Outcome> {
        let scripts =
            self.traces.iter().map(|file| Ok((file, file.find()?))).collect::<Result<Vec<_>, String>>();
        let scripts = scripts.map_err(anyhow::Error::msg)?;
        let planned = scripts.iter().map(|(_, script)| runs(script).len()).sum();
        let Self { name, title, source, .. } = self;
        let header = header(&About { name, title, source, is_quick: false }, environment, deviations);
        let mut writer = Writer::begin(results, header, planned)?;
        let mut claims = Vec::new();
        for (file, script) in &scripts {
            let runs = runs(script);
            let mut reached = vec![Reached::Unplayed; runs.len()];
            for (reached, run) in reached.iter_mut().zip(runs) {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let (trace, until) = run.trace(corpus::plain_name(script), ground)?;
                on_event(&Event::Trace(&trace));
                writer.write(Record::Trace(Box::new(trace)))?;
                *reached = until;
            }
            claims.extend(answers(self, file, script, ground, &reached));
        }
        writer.conclude(Ok(()), stop, |writer| {
            claims.into_iter().try_for_each(|claim| writer.write(Record::Claim(Box::new(claim))))
        })
    }
}

/// One run of a script.
pub struct ScriptRun {
    /// With addresses of which family.
    pub family: Family,
    /// Where the guard's programs are.
    pub hook: String,
    /// Plays it: gives the segments, or why it cannot run here; fails with a [`Failure`] where a
    /// line does not hold.
    pub play: Box<dyn FnOnce() -> Result<Result<Vec<String>, String>>>,
}

impl ScriptRun {
    /// Plays it.
    fn trace(self, script: &str, ground: &str) -> Result<(Trace, Reached)> {
        let Self { family, hook, play } = self;
        let (transcript, outcome, reached) = match play() {
            Ok(Ok(transcript)) => (transcript, TraceOutcome::Held, Reached::End),
            Ok(Err(reason)) => (Vec::new(), TraceOutcome::Skipped(reason), Reached::Nothing),
            Err(error) => {
                let failure: Failure =
                    error.downcast().with_context(|| format!("play {script} to {ground}"))?;
                let why = format!("line {}: {}", failure.line, failure.what);
                (failure.transcript, TraceOutcome::Failed(why), Reached::Line(failure.line))
            }
        };
        let (script, family) = (script.to_owned(), family.to_string());
        Ok((Trace { script, family, hook, transcript, outcome }, reached))
    }
}

impl TraceFile {
    fn find(&self) -> Result<Script, String> {
        let scripts = corpus::scripts().map_err(|error| error.to_string())?;
        let names: Vec<String> = scripts
            .iter()
            .map(corpus::plain_name)
            .filter(|name| name.starts_with("traces/"))
            .map(str::to_owned)
            .collect();
        let found = scripts.into_iter().find(|script| corpus::plain_name(script) == self.script);
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

/// A claim holds when the lines above it do; it fails when one between it and the claim before does
/// not.
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

    #[test]
    fn script_that_is_not_there_is_an_error_with_those_that_are() {
        let file = TraceFile { source: String::new(), script: "traces/fig-9.9".to_owned() };
        let error = file.find().expect_err("no such script");
        assert!(error.contains("traces/fig-9.9") && error.contains("traces/fig-4.2, "), "{error}");
    }
}
