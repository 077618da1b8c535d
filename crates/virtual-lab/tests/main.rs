//! Experiments from the file to the results.

mod clients;
mod demand;

use std::sync::atomic::AtomicBool;

use experiment::Plan;
use report::Run;
use sim::Profile;

/// Runs a file on a machine whose server is never the limit.
fn run(text: &str) -> Run {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("experiment.toml");
    std::fs::write(&path, text).expect("write the experiment");
    let plan = Plan::read(&path, false).expect("an experiment");
    let profile = Profile::shipped("xeon-2005").expect("a profile");
    let options = virtual_lab::Options {
        results: folder.path(),
        profile: Some(&profile),
        threads: 1,
        rates_of: None,
        captures: None,
        stop: &AtomicBool::new(false),
        watch: &(),
    };
    virtual_lab::run(&plan, &options, |_| {}).expect("a run").run
}
