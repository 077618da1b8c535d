//! Packet scripts that are played to the simulated kernel.

use anyhow::Result;
use experiment::{Event, Outcome, ScriptRun, Traces};
use results::{Environment, Trace};
use script::{Family, Script};

use crate::jobs::Options;
use crate::simulated;

/// Plays every script, with each of its address families; the guard's programs are nowhere in
/// particular.
///
/// # Errors
///
/// When the simulated kernel has not what a script sets, or the results cannot be written.
pub(crate) fn run(
    traces: &Traces,
    options: &Options<'_>,
    on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let deviations = [
        "In virtual time: no kernel ran. The server is a model of today's Linux, whose work costs nothing; the wire takes no time.",
        "The client is a script: it sends what its lines say, when they say it, and has no timers.",
    ];
    let environment = Environment { cpu: "none, as nothing costs anything".to_owned(), ..simulated("none") };
    let about = (environment, deviations.map(str::to_owned).into());
    traces.play("the simulated kernel", about, options.results, options.stop, runs, on_event)
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

    use experiment::Plan;
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
            let plan = Plan::read(file.as_ref(), false).expect("an experiment");
            let Plan::Traces(traces) = plan else { panic!("{file} has traces") };
            let run = run(&traces, &options, |_| {}).expect("a run").run;
            assert!(run.traces.iter().all(|trace| trace.outcome == TraceOutcome::Held), "{:?}", run.traces);
            assert!(!run.claims.is_empty() && run.claims.iter().all(|claim| claim.answer == Answer::Holds));
        }
    }
}
