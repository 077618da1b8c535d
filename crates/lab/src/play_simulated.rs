//! Packet scripts that are played to the simulated kernel.

use anyhow::Result;
use results::Trace;
use script::{Family, Script};

use crate::environment;
use crate::grid::Event;
use crate::jobs::Options;
use crate::outcome::Outcome;
use crate::traces::{ScriptRun, Traces};

/// Plays every script, with each of its address families; the guard's programs are nowhere in particular.
///
/// # Errors
///
/// When the simulated kernel has not what a script sets, or the results cannot be written.
pub fn run(traces: &Traces, options: &Options<'_>, on_event: impl FnMut(&Event<'_>)) -> Result<Outcome> {
    let header = environment::of_simulated_traces(traces);
    traces.play("the simulated kernel", header, options.results, options.stop, runs, on_event)
}

fn runs(script: &Script) -> Vec<ScriptRun> {
    let run = |family: Family| {
        let script = script.clone();
        ScriptRun {
            family,
            hook: Trace::SIMULATED.to_owned(),
            play: Box::new(move || Ok(Ok(corpus::simulate(&script, family)?))),
        }
    };
    script.setup.families.iter().copied().map(run).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use results::{Answer, TraceOutcome};

    use super::*;

    /// Those that the book of figures has.
    #[test]
    fn traces_of_the_papers_hold_on_the_simulated_kernel() {
        let folder = tempfile::tempdir().expect("a folder");
        let stop = AtomicBool::new(false);
        let options = Options {
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
            let run = run(&traces, &options, |_| {}).expect("a run").run;
            assert!(run.traces.iter().all(|trace| trace.outcome == TraceOutcome::Held), "{:?}", run.traces);
            assert!(!run.claims.is_empty() && run.claims.iter().all(|claim| claim.answer == Answer::Holds));
        }
    }
}
