//! Worlds that are simulated at once, on as many threads as there are to be, and whoever watches
//! them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result};
use report::Run;
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
    /// A run of the same experiment whose crowds came at rates that are to be had again, in place
    /// of multiples of this machine's own saturation rate.
    pub rates_of: Option<&'a Run>,
    /// Frames of the server's link are kept.
    pub captures: Option<&'a Captures>,
    /// Ends the run, within a moment, with what is complete.
    pub stop: &'a AtomicBool,
    /// Is told how far it has come.
    pub watch: &'a dyn Watch,
}

/// Somebody who would like to know how far a run has come. Called from all of its threads, often.
pub trait Watch: Sync {
    /// What came before is over: from now on so many cells are simulated, of so much virtual time
    /// together.
    fn grid_begins(&self, cells: usize, time: Nanos);
    /// A world is further on, by so much time and so many events.
    fn simulated(&self, time: Nanos, events: u64);
}

/// Nobody.
impl Watch for () {
    fn grid_begins(&self, _: usize, _: Nanos) {}
    fn simulated(&self, _: Nanos, _: u64) {}
}

/// How worlds are run: by steps, so that somebody can watch, and stop them.
#[derive(Clone, Copy)]
pub(crate) struct Steps<'a> {
    /// The user wants no more.
    stop: &'a AtomicBool,
    /// Another world failed, or nothing can be written any more: what this one would come to is of
    /// no use.
    failed: Option<&'a AtomicBool>,
    watch: &'a dyn Watch,
}

impl<'a> Steps<'a> {
    /// Of a world that runs alone.
    pub(crate) fn alone(options: &Options<'a>) -> Self {
        Self { stop: options.stop, failed: None, watch: options.watch }
    }

    fn are_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failed.is_some_and(|failed| failed.load(Ordering::Relaxed))
    }

    /// Lets a world run to a moment, and looks after each step whether to go on; `None` if not.
    /// `run_until` gives the events of a step.
    pub(crate) fn run(
        &self,
        (from, to): (Nanos, Nanos),
        step: Nanos,
        mut run_until: impl FnMut(Nanos) -> u64,
    ) -> Option<()> {
        let mut now = from;
        while now < to {
            if self.are_stopped() {
                return None;
            }
            let next = (now + step).min(to);
            let events = run_until(next);
            self.watch.simulated(next - now, events);
            now = next;
        }
        Some(())
    }
}

/// Does all jobs on the options' threads, and hands over what came of them in the order of the
/// jobs, with how many are done. A job that was stopped gives `None`; those that are complete by
/// then are handed over all the same.
///
/// # Errors
///
/// The first of a job, and of what takes results; the others are stopped then.
pub(crate) fn in_order<J: Sync, D: Send>(
    jobs: &[J],
    options: &Options<'_>,
    run: impl Fn(&J, &Steps<'_>) -> Result<Option<D>> + Sync,
    mut take: impl FnMut(D, usize) -> Result<()>,
) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let steps = Steps { failed: Some(&failed), ..Steps::alone(options) };
    std::thread::scope(|scope| {
        let (sender, receiver) = channel();
        for number in 0..options.threads.clamp(1, jobs.len().max(1)) {
            let (sender, next, failed, run) = (sender.clone(), &next, &failed, &run);
            let spawned = std::thread::Builder::new().spawn_scoped(scope, move || {
                while !steps.are_stopped() {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(job) = jobs.get(index) else { return };
                    let result = run(job, &steps);
                    if result.is_err() {
                        failed.store(true, Ordering::Relaxed);
                    }
                    // Nobody listens any more when a result could not be written.
                    if sender.send((index, result)).is_err() {
                        return;
                    }
                }
            });
            match spawned {
                Ok(_) => {}
                Err(error) if number == 0 => return Err(error).context("start a thread to simulate on"),
                // Those that there are do all of it.
                Err(_) => break,
            }
        }
        drop(sender);
        let (mut done, mut why) = (0, Ok(()));
        let hand_over = |result: Result<Option<D>>| match result {
            Ok(Some(result)) => {
                done += 1;
                take(result, done)
            }
            Ok(None) => Ok(()),
            // What is complete behind it counts all the same.
            Err(error) => {
                if why.is_ok() {
                    why = Err(error);
                }
                Ok(())
            }
        };
        let handed = in_turn(receiver, hand_over);
        if handed.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        handed.and(why)
    })
}

/// Hands over what comes by its number, from 0 without a gap, and what is behind a gap at the end.
fn in_turn<D>(results: Receiver<(usize, D)>, mut hand_over: impl FnMut(D) -> Result<()>) -> Result<()> {
    let (mut early, mut turn) = (BTreeMap::new(), 0);
    for (index, result) in results {
        early.insert(index, result);
        while let Some(result) = early.remove(&turn) {
            turn += 1;
            hand_over(result)?;
        }
    }
    early.into_values().try_for_each(hand_over)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn options<'a>(threads: usize, stop: &'a AtomicBool) -> Options<'a> {
        Options {
            results: Path::new(""),
            profile: None,
            threads,
            rates_of: None,
            captures: None,
            stop,
            watch: &(),
        }
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
            in_order(&jobs, &options(threads, &stop), |job, _| Ok(Some(job * job)), take)
                .expect("no job fails");
            assert_eq!(taken, jobs.iter().map(|job| job * job).collect::<Vec<_>>());
        }
    }

    /// The first job waits until another is through, and is stopped then.
    #[test]
    fn what_is_complete_when_the_run_is_stopped_is_handed_over_whatever_comes_before_it() {
        let stop = AtomicBool::new(false);
        let run = |job: &u64, _: &Steps<'_>| {
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

    /// A world that nobody would wait for: a step of it is no time at all.
    fn endless(steps: &Steps<'_>) -> Option<()> {
        steps.run((Nanos::ZERO, Nanos::MAX), Nanos(1), |_| 1)
    }

    #[test]
    fn world_that_cannot_be_stops_those_that_have_no_end_and_is_told() {
        let run = |job: &u64, steps: &Steps<'_>| match *job {
            0 => Ok(Some(0)),
            2 => bail!("a world that cannot be"),
            job => Ok(endless(steps).map(|()| job)),
        };
        let mut taken = Vec::new();
        let take = |job: u64, _| {
            taken.push(job);
            Ok(())
        };
        let stop = AtomicBool::new(false);
        let error = in_order(&[0, 1, 2, 3, 4], &options(2, &stop), run, take).expect_err("one fails");
        assert_eq!(error.to_string(), "a world that cannot be");
        assert_eq!(taken, [0], "what was complete");
        assert!(!stop.load(Ordering::Relaxed), "the user did not stop it");
    }

    #[test]
    fn result_that_cannot_be_written_stops_worlds_that_have_no_end() {
        let run = |job: &u64, steps: &Steps<'_>| match *job {
            0 => Ok(Some(0)),
            job => Ok(endless(steps).map(|()| job)),
        };
        let stop = AtomicBool::new(false);
        let error = in_order(&[0, 1], &options(2, &stop), run, |_, _| bail!("no room")).expect_err("full");
        assert_eq!(error.to_string(), "no room");
    }

    #[test]
    fn world_that_is_stopped_says_so_and_one_that_is_not_comes_to_its_end() {
        let stop = AtomicBool::new(false);
        let span = (Nanos::ZERO, Nanos::from_millis(25));
        let mut moments = Vec::new();
        let ended = Steps::alone(&options(1, &stop)).run(span, Nanos::from_millis(10), |until| {
            moments.push(until);
            1
        });
        assert_eq!(ended, Some(()));
        assert_eq!(moments, [10, 20, 25].map(Nanos::from_millis));
        let ended = Steps::alone(&options(1, &stop)).run(span, Nanos::from_millis(10), |_| {
            stop.store(true, Ordering::Relaxed);
            1
        });
        assert_eq!(ended, None);
    }
}
