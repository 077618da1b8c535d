//! Packet scripts that are played to the running kernel.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use conformance::{Case, Outcome as Played};
use experiment::{Event, Outcome, ScriptRun, Traces};
use script::Script;

use crate::environment::machine;

/// Plays every script, with each of its address families and hooks.
///
/// # Errors
///
/// When namespaces or programs cannot be made. A script that fails is a result.
pub(crate) fn run(
    traces: &Traces,
    results: &Path,
    stop: &AtomicBool,
    on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let client = "The client is a script on a raw socket: it sends what its lines say, when they say it, and has no timers. \
                  Times are shorter than the figure's where nothing depends on them.";
    let about = (machine(), vec![client.to_owned()]);
    traces.play("the running kernel", about, results, stop, runs, on_event)
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
