//! Packet scripts that are played to the running kernel.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use conformance::{Case, Outcome as Played};
use script::Script;

use crate::environment;
use crate::grid::Event;
use crate::outcome::{Options, Outcome};
use crate::traces::{ScriptRun, Traces};

/// Plays every script, with each of its address families and hooks.
///
/// # Errors
///
/// When namespaces or programs cannot be made. A script that fails is a result.
pub fn run(
    traces: &Traces,
    options: &Options,
    stop: &AtomicBool,
    on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let header = environment::of_traces(traces);
    traces.play("the running kernel", header, &options.results, stop, runs, on_event)
}

fn runs(script: &Script) -> Vec<ScriptRun> {
    let run = |case: Case| ScriptRun {
        family: case.family,
        hook: case.hook.to_string(),
        play: Box::new(move || {
            Ok(match case.play()? {
                Played::Passed(transcript) => Ok(transcript),
                Played::Skipped(reason) => Err(reason),
            })
        }),
    };
    Case::all(script).into_iter().map(run).collect()
}
