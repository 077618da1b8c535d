//! Worlds that are simulated at once, on as many threads as there are to be, and whoever watches them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

use anyhow::Result;
use sim::Profile;
use units::Nanos;

use crate::capture::Captures;

/// How to simulate an experiment.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Folder in which the run makes its own.
    pub results: &'a Path,
    /// The machine, for experiments that have one and do not name theirs.
    pub profile: Option<&'a Profile>,
    /// Threads, one at least.
    pub threads: usize,
    /// Frames of the server's link are kept.
    pub captures: Option<&'a Captures>,
    /// Ends the run, within a moment, with what is complete.
    pub stop: &'a AtomicBool,
    /// Is told how far it has come.
    pub watch: &'a dyn Watch,
}

/// Somebody who would like to know how far a run has come. Called from all of its threads, often.
pub trait Watch: Sync {
    /// What came before is over: from now on so many cells are simulated, of so much virtual time together.
    fn grid_begins(&self, cells: usize, time: Nanos);
    /// A world is further on, by so much time and so many events.
    fn simulated(&self, time: Nanos, events: u64);
}

/// Nobody.
impl Watch for () {
    fn grid_begins(&self, _: usize, _: Nanos) {}
    fn simulated(&self, _: Nanos, _: u64) {}
}

/// Lets a world run to a moment by steps, after each of which it may be stopped; `None` if it was. `run_until` gives the events of a step.
pub fn run_by_steps(
    options: &Options<'_>,
    (from, to): (Nanos, Nanos),
    step: Nanos,
    mut run_until: impl FnMut(Nanos) -> u64,
) -> Option<()> {
    let mut now = from;
    while now < to {
        if options.stop.load(Ordering::Relaxed) {
            return None;
        }
        let next = (now + step).min(to);
        let events = run_until(next);
        options.watch.simulated(next - now, events);
        now = next;
    }
    Some(())
}

/// Does all jobs on the options' threads, and hands over what came of them in the order of the jobs, with how many are done. A job that was stopped gives `None`;
/// those that are complete by then are handed over all the same.
pub fn in_order<J: Sync, D: Send>(
    jobs: &[J],
    options: &Options<'_>,
    run: impl Fn(&J) -> Result<Option<D>> + Sync,
    mut take: impl FnMut(D, usize) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for _ in 0..options.threads.clamp(1, jobs.len().max(1)) {
            let (sender, next, run) = (sender.clone(), &next, &run);
            scope.spawn(move || {
                while !options.stop.load(Ordering::Relaxed) {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    // Nobody listens any more when a result could not be written.
                    if sender.send((index, run(job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut early = BTreeMap::new();
        let (mut turn, mut done) = (0, 0);
        let mut hand_over = |result: Result<Option<D>>| match result? {
            Some(result) => {
                done += 1;
                take(result, done)
            }
            None => Ok(()),
        };
        for (index, result) in receiver {
            early.insert(index, result);
            while let Some(result) = early.remove(&turn) {
                turn += 1;
                hand_over(result)?;
            }
        }
        // Behind one that was stopped.
        early.into_values().try_for_each(hand_over)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options<'a>(threads: usize, stop: &'a AtomicBool) -> Options<'a> {
        Options { results: Path::new(""), profile: None, threads, captures: None, stop, watch: &() }
    }

    #[test]
    fn results_come_in_the_order_of_the_jobs_on_any_number_of_threads() {
        let jobs: Vec<u64> = (0..100).collect();
        for threads in [1, 2, 7] {
            let mut taken = Vec::new();
            let take = |result: u64, done| {
                taken.push(result);
                assert_eq!(taken.len(), done);
                Ok(())
            };
            let stop = AtomicBool::new(false);
            in_order(&jobs, &options(threads, &stop), |job| Ok(Some(job * job)), take).expect("no job fails");
            assert_eq!(taken, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
        }
    }

    /// The first job waits until another is through, and is stopped then.
    #[test]
    fn what_is_complete_when_the_run_is_stopped_is_handed_over_whatever_comes_before_it() {
        let stop = AtomicBool::new(false);
        let run = |job: &u64| {
            if *job == 1 {
                stop.store(true, Ordering::Relaxed);
                return Ok(Some(*job));
            }
            while !stop.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Ok(None)
        };
        let mut taken = Vec::new();
        let take = |result, _| {
            taken.push(result);
            Ok(())
        };
        in_order(&[0, 1, 2, 3], &options(2, &stop), run, take).expect("no job fails");
        assert_eq!(taken, [1]);
    }

    #[test]
    fn world_that_is_stopped_says_so_and_one_that_is_not_comes_to_its_end() {
        let stop = AtomicBool::new(false);
        let span = (Nanos::ZERO, Nanos::from_millis(25));
        let mut moments = Vec::new();
        let ended = run_by_steps(&options(1, &stop), span, Nanos::from_millis(10), |until| {
            moments.push(until);
            1
        });
        assert_eq!(ended, Some(()));
        assert_eq!(moments, [10, 20, 25].map(Nanos::from_millis));
        let ended = run_by_steps(&options(1, &stop), span, Nanos::from_millis(10), |_| {
            stop.store(true, Ordering::Relaxed);
            1
        });
        assert_eq!(ended, None);
    }
}
