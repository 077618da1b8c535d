//! Experiments from the file to the results.

mod clients;
mod demand;
mod uplink;

use std::sync::atomic::AtomicBool;

use experiment::Plan;
use report::Run;
use sim::Profile;

/// Runs a file on a machine whose server is never the limit.
fn run(text: &str) -> Run {
    run_on(text, 2)
}

/// Why a file is no experiment.
fn why_not(text: &str) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("experiment.toml");
    std::fs::write(&path, text).expect("write the experiment");
    Plan::read(&path, false).expect_err("no experiment").to_string()
}

/// The same on so many threads.
fn run_on(text: &str, threads: usize) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("experiment.toml");
    std::fs::write(&path, text).expect("write the experiment");
    let plan = Plan::read(&path, false).expect("an experiment");
    let profile = Profile::shipped("xeon-2005").expect("a profile");
    let options = virtual_lab::Options {
        results: folder.path(),
        profile: Some(&profile),
        threads,
        rates_of: None,
        captures: None,
        stop: &AtomicBool::new(false),
        watch: &(),
    };
    virtual_lab::run(&plan, &options, |_| {}).expect("a run").run
}
