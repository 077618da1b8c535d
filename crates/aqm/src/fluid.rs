//! When responses would be over on a fluid link: without packets, connections or loss.
//!
//! A fluid link divides its rate among responses as finely as it likes. [`Order::Srpt`] is the
//! optimum: no order has a smaller mean response time for the same arrivals and sizes (L. E.
//! Schrage, *A proof of the optimality of the shortest remaining processing time discipline*,
//! Operations Research 16, 1968). [`Order::Fair`] is what connections of equal round trips come to.
//!
//! Time goes from event to event, an arrival or the end of a response, so nothing depends on a
//! step. Sums are in floating point and good to a nanosecond over days; each order takes O(n log n)
//! for n responses.
//!
//! What this is not: a link with a queue of packets, where a response takes turns in packets and
//! must begin with a handshake.
//!
//! ```
//! use aqm::Rate;
//! use aqm::fluid::{Arrival, Order, ends};
//! use units::Nanos;
//!
//! let rate = Rate::from_bits_per_s(8_000_000).ok_or("no rate")?;
//! let arrivals = [
//!     Arrival { at: Nanos::ZERO, bytes: 3000 },
//!     Arrival { at: Nanos::from_millis(1), bytes: 1000 },
//! ];
//! let [ms_3, ms_2, ms_4] = [3, 2, 4].map(Nanos::from_millis);
//! assert_eq!(ends(Order::Srpt, rate, &arrivals), [ms_4, ms_2]);
//! assert_eq!(ends(Order::Fair, rate, &arrivals), [ms_4, ms_3]);
//! # Ok::<(), &str>(())
//! ```

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use units::Nanos;

use crate::Rate;

/// A response that is ready to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: Nanos,
    /// Its size. One of no bytes is over as soon as it is served.
    pub bytes: u64,
}

/// Which responses share the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// All of them, equally: processor sharing.
    Fair,
    /// The one with the fewest bytes left; of equal ones, the one that came first.
    Srpt,
    /// Those that were sent the fewest bytes of, equally: least attained service,
    /// foreground-background.
    Las,
    /// The one that came first.
    Fifo,
}

/// When each response is over, in the order of `arrivals`, which need not be sorted.
///
/// Of arrivals at the same moment the one that stands before the other came first.
pub fn ends(order: Order, rate: Rate, arrivals: &[Arrival]) -> Vec<Nanos> {
    let ns_per_byte = 8e9 / rate.bits_per_s() as f64;
    let mut jobs: Vec<Job> = (0..)
        .zip(arrivals)
        .map(|(index, arrival)| Job {
            index,
            at: arrival.at.0 as f64,
            work: arrival.bytes as f64 * ns_per_byte,
        })
        .collect();
    jobs.sort_by(|one, other| one.at.total_cmp(&other.at));
    let mut ends = Ends(vec![Nanos::ZERO; arrivals.len()]);
    match order {
        Order::Fair => run(Fair::default(), &jobs, &mut ends),
        Order::Srpt => run(Srpt::default(), &jobs, &mut ends),
        Order::Las => run(Las::default(), &jobs, &mut ends),
        Order::Fifo => run(Fifo::default(), &jobs, &mut ends),
    }
    ends.0
}

/// Mean time from arrival to end, seconds; 0 of none. `ends` is as [`ends`] gives it for the same
/// arrivals.
pub fn mean_response_s(arrivals: &[Arrival], ends: &[Nanos]) -> f64 {
    let sum: f64 = arrivals.iter().zip(ends).map(|(arrival, end)| end.since(arrival.at).as_secs_f64()).sum();
    sum / arrivals.len().max(1) as f64
}

/// A response, in time.
#[derive(Debug, Clone, Copy)]
struct Job {
    index: usize,
    /// Nanoseconds.
    at: f64,
    /// Time that it takes the whole link, nanoseconds.
    work: f64,
}

struct Ends(Vec<Nanos>);

impl Ends {
    fn over(&mut self, index: usize, at: f64) {
        self.0[index] = Nanos(at.round() as u64);
    }
}

/// Responses that are not over. All times are in nanoseconds.
trait Link {
    fn arrive(&mut self, job: &Job);

    /// For how long nothing changes if none arrives; `None` without responses.
    fn quiet_for(&self) -> Option<f64>;

    /// Goes on for so long, no longer than nothing changes.
    fn pass(&mut self, span: f64);

    /// After what [`Link::quiet_for`] said has passed: a response that is over, if it was the end
    /// of one.
    fn change(&mut self) -> Option<usize>;
}

fn run(mut link: impl Link, jobs: &[Job], ends: &mut Ends) {
    let mut now = 0.0;
    let mut jobs = jobs.iter().peekable();
    loop {
        let next = jobs.peek().map(|job| job.at);
        match (link.quiet_for(), next) {
            (Some(quiet), next) if next.is_none_or(|next| now + quiet <= next) => {
                link.pass(quiet);
                now += quiet;
                if let Some(index) = link.change() {
                    ends.over(index, now);
                }
            }
            (quiet, Some(next)) => {
                if quiet.is_some() {
                    link.pass(next - now);
                }
                now = next;
                link.arrive(jobs.next().expect("it was peeked at"));
            }
            (_, None) => return,
        }
    }
}

/// A number that is never none, in a heap with what it belongs to. The least is first out of a
/// [`BinaryHeap`] of these in [`Reverse`].
#[derive(Debug, Clone, Copy)]
struct Key(f64, usize);

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0).then(self.1.cmp(&other.1))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

type Least = BinaryHeap<Reverse<Key>>;

/// Each response is over when all have been sent as much as it needs, counted from its arrival on.
#[derive(Default)]
struct Fair {
    /// That each response has been sent since the link was last idle.
    sent: f64,
    /// What `sent` is when a response is over.
    until: Least,
}

impl Link for Fair {
    fn arrive(&mut self, job: &Job) {
        if self.until.is_empty() {
            self.sent = 0.0;
        }
        self.until.push(Reverse(Key(self.sent + job.work, job.index)));
    }

    fn quiet_for(&self) -> Option<f64> {
        let Reverse(Key(until, _)) = self.until.peek()?;
        Some((until - self.sent).max(0.0) * self.until.len() as f64)
    }

    fn pass(&mut self, span: f64) {
        self.sent += span / self.until.len() as f64;
    }

    fn change(&mut self) -> Option<usize> {
        let Reverse(Key(until, index)) = self.until.pop()?;
        self.sent = until;
        Some(index)
    }
}

#[derive(Default)]
struct Srpt {
    /// Of the response that is being sent.
    left: Option<(f64, usize)>,
    waiting: Least,
}

impl Link for Srpt {
    fn arrive(&mut self, job: &Job) {
        match self.left {
            Some((left, _)) if left <= job.work => self.waiting.push(Reverse(Key(job.work, job.index))),
            preempted => {
                self.waiting.extend(preempted.map(|(left, index)| Reverse(Key(left, index))));
                self.left = Some((job.work, job.index));
            }
        }
    }

    fn quiet_for(&self) -> Option<f64> {
        self.left.map(|(left, _)| left)
    }

    fn pass(&mut self, span: f64) {
        self.left = self.left.map(|(left, index)| ((left - span).max(0.0), index));
    }

    fn change(&mut self) -> Option<usize> {
        let (_, over) = self.left.take()?;
        self.left = self.waiting.pop().map(|Reverse(Key(left, index))| (left, index));
        Some(over)
    }
}

/// Responses that were sent the same, each until it was sent its size.
struct Level {
    sent: f64,
    sizes: Least,
}

#[derive(Default)]
struct Las {
    /// The last one was sent the least, and has the link.
    levels: Vec<Level>,
}

impl Las {
    /// Joins the first two levels if the first has come to the second. Of two that were sent
    /// nothing, too.
    fn join(&mut self) {
        if let [.., below, level] = &mut self.levels[..]
            && level.sent >= below.sent
        {
            below.sizes.append(&mut level.sizes);
            self.levels.pop();
        }
    }

    /// What changes next: how much more each response of the first level is sent until then, and
    /// whether one is over.
    fn next(&self) -> Option<(f64, bool)> {
        let level = self.levels.last()?;
        let Reverse(Key(size, _)) = level.sizes.peek()?;
        let below = self.levels.iter().rev().nth(1).map_or(f64::INFINITY, |below| below.sent);
        Some(((size.min(below) - level.sent).max(0.0), *size <= below))
    }
}

impl Link for Las {
    fn arrive(&mut self, job: &Job) {
        let sizes = Least::from_iter([Reverse(Key(job.work, job.index))]);
        self.levels.push(Level { sent: 0.0, sizes });
        self.join();
    }

    fn quiet_for(&self) -> Option<f64> {
        let (more, _) = self.next()?;
        Some(more * self.levels.last()?.sizes.len() as f64)
    }

    fn pass(&mut self, span: f64) {
        if let Some(level) = self.levels.last_mut() {
            level.sent += span / level.sizes.len() as f64;
        }
    }

    fn change(&mut self) -> Option<usize> {
        // Where the sum of what has passed is short by a rounding, it is not now.
        let is_over = self.next()?.1;
        if !is_over {
            let sent = self.levels.iter().rev().nth(1)?.sent;
            self.levels.last_mut()?.sent = sent;
            self.join();
            return None;
        }
        let level = self.levels.last_mut()?;
        let Reverse(Key(size, index)) = level.sizes.pop()?;
        level.sent = size;
        if level.sizes.is_empty() {
            self.levels.pop();
        } else {
            self.join();
        }
        Some(index)
    }
}

#[derive(Default)]
struct Fifo {
    left: f64,
    waiting: std::collections::VecDeque<(f64, usize)>,
}

impl Link for Fifo {
    fn arrive(&mut self, job: &Job) {
        if self.waiting.is_empty() {
            self.left = job.work;
        }
        self.waiting.push_back((job.work, job.index));
    }

    fn quiet_for(&self) -> Option<f64> {
        (!self.waiting.is_empty()).then_some(self.left)
    }

    fn pass(&mut self, span: f64) {
        self.left = (self.left - span).max(0.0);
    }

    fn change(&mut self) -> Option<usize> {
        let (_, over) = self.waiting.pop_front()?;
        self.left = self.waiting.front().map_or(0.0, |(work, _)| *work);
        Some(over)
    }
}
