//! Several workers that run one crowd, and what they say of it, added up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, scope};

use anyhow::{Context, Result};
use crowd::{Ended, Totals};
use hdrhistogram::Histogram;
use port::Clock;
use results::{CrowdSummary, GeneratorHealth};
use units::Nanos;

use crate::engine::{Observer, Progress};
use crate::worker::Worker;

/// Runs them to their end, a single one on this thread.
///
/// # Errors
///
/// Those of [`Worker::run`], of the first that has one.
pub fn run(workers: Vec<Worker>, stop: &AtomicBool, observer: &mut impl Observer) -> Result<CrowdSummary> {
    let run = Run::of(stop, workers.len());
    match <[Worker; 1]>::try_from(workers) {
        Ok([only]) => only.run(&Clock::start(), &run, observer),
        Err(workers) => add(&run_all(workers, &run, observer)?),
    }
}

/// What the workers of a run share.
pub struct Run<'a> {
    stop: &'a AtomicBool,
    /// Workers that have something left to do.
    busy: AtomicUsize,
    /// When it was over, since the start, nanoseconds; [`NEVER`] before.
    over_at: AtomicU64,
}

const NEVER: u64 = u64::MAX;

impl<'a> Run<'a> {
    fn of(stop: &'a AtomicBool, workers: usize) -> Self {
        Self { stop, busy: AtomicUsize::new(workers), over_at: AtomicU64::new(NEVER) }
    }

    /// A worker says once that its part is done.
    pub fn one_is_done(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }

    /// When the run was over, if it is: the same for every worker, so that all have the same
    /// window.
    pub fn stopped(&self, now: Nanos) -> Option<Nanos> {
        if self.stop.load(Ordering::Relaxed) || self.busy.load(Ordering::Relaxed) == 0 {
            self.end(now);
        }
        Some(self.over_at.load(Ordering::Relaxed)).filter(|at| *at != NEVER).map(Nanos)
    }

    /// It is over now, unless it was before.
    fn end(&self, now: Nanos) {
        let _ = self.over_at.compare_exchange(NEVER, now.0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Ends the run for all when a worker leaves, also in an error or a panic.
    pub fn over_when_dropped<'b>(&'b self, clock: &'b Clock) -> Over<'b> {
        Over { run: self, clock }
    }
}

/// See [`Run::over_when_dropped`].
pub struct Over<'a> {
    run: &'a Run<'a>,
    clock: &'a Clock,
}

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.run.end(self.clock.now());
    }
}

/// What a worker says to the thread that called.
enum Message {
    /// Once a second, and at time zero.
    Progress(usize, Piece),
    /// At its end.
    Last(usize, Piece),
    Ended(Vec<Ended>),
}

/// Each on a thread of its own. This one hears what they say.
fn run_all(workers: Vec<Worker>, run: &Run<'_>, observer: &mut impl Observer) -> Result<Vec<CrowdSummary>> {
    let (sender, messages) = channel();
    scope(|scope| {
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for (index, worker) in workers.into_iter().enumerate() {
            let (start, started) = channel::<Clock>();
            let mut teller = Teller { index, sender: sender.clone(), wants_ended: observer.wants_ended() };
            let thread =
                Builder::new().name(format!("worker {}", index + 1)).spawn_scoped(scope, move || {
                    let clock = started.recv().context("another worker's thread could not be started")?;
                    worker.run(&clock, run, &mut teller)
                });
            threads.push(thread.context("start a thread for each worker")?);
            starts.push(start);
        }
        drop(sender); // so that the messages end with the workers
        let clock = Clock::start();
        let _over = run.over_when_dropped(&clock); // when the observer panics
        for start in starts {
            start.send(clock).ok(); // each waits for it
        }
        let mut said = Said::by(threads.len());
        hear(&messages, &mut said, observer);
        let parts = threads.into_iter().zip(1..).map(|(thread, number)| {
            let part = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            part.with_context(|| format!("worker {number}"))
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        if let Some(rest) = said.rest() {
            observer.last_interval(&rest.progress());
        }
        Ok(parts)
    })
}

/// Passes on what the workers say, until they have ended.
fn hear(messages: &Receiver<Message>, said: &mut Said, observer: &mut impl Observer) {
    for message in messages {
        match message {
            Message::Ended(attempts) => observer.ended(&mut attempts.into_iter()),
            Message::Last(index, piece) => said.last[index] = Some(piece),
            Message::Progress(index, piece) => {
                said.waiting[index].push_back(piece);
                while let Some(piece) = said.next() {
                    observer.progress(&piece.progress());
                }
            }
        }
    }
}

/// Adds what they saw, each of a part of the crowd.
fn add(parts: &[CrowdSummary]) -> Result<CrowdSummary> {
    let reasons = (1..).zip(parts).flat_map(|(number, part)| {
        part.generator.reasons.iter().map(move |reason| format!("worker {number}: {reason}"))
    });
    let whole = results::merge(parts).context("add what the workers saw")?;
    Ok(CrowdSummary { generator: GeneratorHealth { reasons: reasons.collect(), ..whole.generator }, ..whole })
}

/// The observer of a worker's thread: what it hears it sends on.
struct Teller {
    index: usize,
    sender: Sender<Message>,
    wants_ended: bool,
}

impl Teller {
    fn tell(&self, message: Message) {
        // Nobody hears it when the thread that called panics.
        self.sender.send(message).ok();
    }
}

impl Observer for Teller {
    fn progress(&mut self, progress: &Progress<'_>) {
        self.tell(Message::Progress(self.index, Piece::of(progress)));
    }

    fn last_interval(&mut self, progress: &Progress<'_>) {
        self.tell(Message::Last(self.index, Piece::of(progress)));
    }

    fn wants_ended(&self) -> bool {
        self.wants_ended
    }

    fn ended(&mut self, attempts: &mut dyn Iterator<Item = Ended>) {
        let attempts: Vec<Ended> = attempts.collect();
        if !attempts.is_empty() {
            self.tell(Message::Ended(attempts));
        }
    }
}

/// A [`Progress`] that is kept.
#[derive(Debug)]
struct Piece {
    elapsed: Nanos,
    totals: Totals,
    live: usize,
    frames_received: u64,
    interval: Histogram<u64>,
}

impl Piece {
    fn of(progress: &Progress<'_>) -> Self {
        let Progress { elapsed, totals, live, frames_received, interval } = *progress;
        Self { elapsed, totals, live, frames_received, interval: interval.clone() }
    }

    fn progress(&self) -> Progress<'_> {
        let Self { elapsed, totals, live, frames_received, ref interval } = *self;
        Progress { elapsed, totals, live, frames_received, interval }
    }

    /// Of two workers.
    fn and(mut self, other: &Self) -> Self {
        self.elapsed = self.elapsed.max(other.elapsed);
        self.totals += other.totals;
        self.live += other.live;
        self.frames_received += other.frames_received;
        self.add_interval(other);
        self
    }

    /// Of one worker: counts go on, intervals are joined.
    fn then(self, mut later: Self) -> Self {
        later.add_interval(&self);
        later
    }

    fn add_interval(&mut self, other: &Self) {
        self.interval.add(&other.interval).expect("an auto-resizing histogram takes every time of a run");
    }
}

/// What the workers said of their progress and the observer has not heard.
struct Said {
    waiting: Vec<VecDeque<Piece>>,
    last: Vec<Option<Piece>>,
}

impl Said {
    fn by(workers: usize) -> Self {
        Self {
            waiting: (0..workers).map(|_| VecDeque::new()).collect(),
            last: (0..workers).map(|_| None).collect(),
        }
    }

    /// The next second, once every worker has said how far it is: one that is off its CPU may be
    /// seconds behind.
    fn next(&mut self) -> Option<Piece> {
        if self.waiting.iter().any(VecDeque::is_empty) {
            return None;
        }
        let pieces = self.waiting.iter_mut().filter_map(VecDeque::pop_front);
        pieces.reduce(|sum, piece| sum.and(&piece))
    }

    /// What is left at the end, of a second that some have not begun, too.
    fn rest(self) -> Option<Piece> {
        let of_each = self
            .waiting
            .into_iter()
            .zip(self.last)
            .filter_map(|(waiting, last)| waiting.into_iter().chain(last).reduce(Piece::then));
        of_each.reduce(|sum, piece| sum.and(&piece))
    }
}

#[cfg(test)]
mod kernel_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(ok: u64, micros: u64) -> Piece {
        let mut interval = Histogram::new(3).expect("digits");
        interval.record(micros).expect("a time");
        let totals = Totals { ok, offered: 2 * ok, ..Totals::default() };
        Piece { elapsed: Nanos::from_millis(ok), totals, live: 3, frames_received: 10 * ok, interval }
    }

    fn said(piece: &Piece) -> (u64, usize, u64, u64) {
        (piece.totals.ok, piece.live, piece.frames_received, piece.interval.len())
    }

    #[test]
    fn second_is_told_when_every_worker_has_said_it() {
        let mut board = Said::by(3);
        board.waiting[0].extend([piece(1, 100), piece(2, 200), piece(3, 300)]);
        board.waiting[1].extend([piece(10, 100), piece(20, 200)]);
        assert!(board.next().is_none(), "one has said nothing");
        board.waiting[2].push_back(piece(100, 900));
        let first = board.next().expect("a second");
        assert_eq!(said(&first), (111, 9, 1110, 3));
        assert_eq!((first.elapsed, first.totals.offered), (Nanos::from_millis(100), 222));
        assert_eq!(first.interval.max(), 900);
        assert!(board.next().is_none());
        for (last, piece) in board.last.iter_mut().zip([piece(4, 1), piece(40, 1), piece(400, 1)]) {
            *last = Some(piece);
        }
        let rest = board.rest().expect("an end");
        assert_eq!(said(&rest), (444, 9, 4440, 6), "counts are the last, intervals all that nobody heard");
    }

    #[test]
    fn run_is_over_when_all_are_done_and_at_one_moment_for_all() {
        let stop = AtomicBool::new(false);
        let run = Run::of(&stop, 2);
        run.one_is_done();
        assert_eq!(run.stopped(Nanos::from_secs(1)), None);
        run.one_is_done();
        assert_eq!(run.stopped(Nanos::from_secs(2)), Some(Nanos::from_secs(2)));
        assert_eq!(run.stopped(Nanos::from_secs(3)), Some(Nanos::from_secs(2)));
    }

    #[test]
    fn run_is_over_for_all_when_one_leaves_and_when_it_is_stopped() {
        let stop = AtomicBool::new(false);
        let (run, clock) = (Run::of(&stop, 2), Clock::start());
        drop(run.over_when_dropped(&clock));
        assert!(run.stopped(Nanos::from_secs(100)).is_some_and(|at| at < Nanos::from_secs(100)));
        let run = Run::of(&stop, 2);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(run.stopped(Nanos::from_secs(4)), Some(Nanos::from_secs(4)));
    }

    #[test]
    fn sum_says_which_worker_was_the_limit() {
        let part = |reasons: &[&str]| CrowdSummary {
            generator: GeneratorHealth {
                workers: 1,
                limited: !reasons.is_empty(),
                reasons: reasons.iter().map(ToString::to_string).collect(),
                ..GeneratorHealth::default()
            },
            ..CrowdSummary::default()
        };
        let health = add(&[part(&[]), part(&["late", "lost"])]).expect("a sum").generator;
        assert_eq!((health.workers, health.limited), (2, true));
        assert_eq!(health.reasons, ["worker 2: late", "worker 2: lost"]);
    }
}
