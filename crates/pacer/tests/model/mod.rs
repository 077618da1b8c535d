//! A server before a crowd in virtual time: workers that take requests in their order, attempts
//! that come whatever it does.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use pacer::limit::Tick;
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1, Uniform};
use rand_pcg::Pcg64Mcg;
use traffic::{Arrivals, Schedule};
use units::Nanos;

/// How long a worker takes for a request.
#[derive(Debug, Clone, Copy)]
pub enum Work {
    /// Always as long.
    Fixed(Nanos),
    /// Exponentially distributed, with this mean.
    Exponential(Nanos),
    /// One in so many takes the second.
    Mixed(Nanos, Nanos, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Request,
    Done(Nanos),
}

/// What happened over a span of time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub answered: u64,
    pub idle: Nanos,
    pub refused: u64,
    /// From a request to its answer, all together.
    pub response: Nanos,
    /// From a SYN to its request, on average.
    pub handshake: Nanos,
}

pub struct Server {
    workers: usize,
    pub work: Work,
    /// From the SYN to the request, on average.
    handshake: Nanos,
    attempts: Schedule,
    /// Of the handshakes; the work has its own. So the same requests come in the same order
    /// whatever the limit, and what two limits answer differs by the limits alone.
    on_the_way: Pcg64Mcg,
    requests: Pcg64Mcg,
    now: Nanos,
    events: BinaryHeap<Reverse<(Nanos, Event)>>,
    queue: VecDeque<Nanos>,
    busy: usize,
    expected: u32,
    waiting: u32,
    /// Since when nobody waits.
    idle_since: Option<Nanos>,
    pub limit: u32,
    /// Of the handshakes under way, those that do not count, as they will have been answered when
    /// the others end.
    served_meanwhile: u32,
    seen: Seen,
}

impl Server {
    pub fn new(workers: usize, work: Work, handshake: Nanos, attempts_per_s: f64, seed: u64) -> Self {
        Self {
            workers,
            work,
            handshake,
            attempts: Schedule::new(Arrivals::Poisson, attempts_per_s, seed),
            on_the_way: Pcg64Mcg::seed_from_u64(seed + 1),
            requests: Pcg64Mcg::seed_from_u64(seed + 2),
            now: Nanos::ZERO,
            events: BinaryHeap::new(),
            queue: VecDeque::new(),
            busy: 0,
            expected: 0,
            waiting: 0,
            idle_since: Some(Nanos::ZERO),
            limit: 1,
            served_meanwhile: 0,
            seen: Seen::default(),
        }
    }

    /// Goes on for `span`, and tells what happened in it.
    pub fn run(&mut self, span: Nanos) -> Seen {
        let end = self.now + span;
        self.seen = Seen { handshake: self.handshake, ..Seen::default() };
        loop {
            let attempt = self.attempts.intended_start();
            let event = self.events.peek().map_or(Nanos::MAX, |Reverse((at, _))| *at);
            if attempt.min(event) >= end {
                self.now = end;
                // One that is idle now goes on to be.
                let is_idle = self.idle_since.is_some();
                self.end_idle(end);
                let per_s = self.seen.answered as f64 / span.as_secs_f64();
                self.served_meanwhile = (per_s * self.handshake.as_secs_f64()) as u32;
                self.idle_since = is_idle.then_some(end);
                return self.seen;
            }
            if attempt <= event {
                self.now = attempt;
                self.attempts.advance();
                self.attempt();
            } else {
                let Reverse((at, event)) = self.events.pop().expect("it was peeked at");
                self.now = at;
                self.happen(event);
            }
        }
    }

    fn end_idle(&mut self, at: Nanos) {
        if let Some(since) = self.idle_since.take() {
            self.seen.idle += at.since(since);
        }
    }

    fn attempt(&mut self) {
        if (self.expected + self.waiting).saturating_sub(self.served_meanwhile) >= self.limit {
            self.seen.refused += 1;
            return;
        }
        self.expected += 1;
        let factor = Uniform::new(0.7, 1.3).expect("a range").sample(&mut self.on_the_way);
        let after = Nanos::from_secs_f64(self.handshake.as_secs_f64() * factor);
        self.events.push(Reverse((self.now + after, Event::Request)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request => {
                self.expected -= 1;
                self.waiting += 1;
                self.end_idle(self.now);
                self.queue.push_back(self.now);
            }
            Event::Done(since) => {
                self.busy -= 1;
                self.waiting -= 1;
                self.seen.answered += 1;
                self.idle_since = (self.waiting == 0).then_some(self.now);
                self.seen.response += self.now.since(since);
            }
        }
        while self.busy < self.workers
            && let Some(since) = self.queue.pop_front()
        {
            self.busy += 1;
            let work = self.work();
            self.events.push(Reverse((self.now + work, Event::Done(since))));
        }
    }

    fn work(&mut self) -> Nanos {
        let uniform = Uniform::new(0, u32::MAX).expect("a range");
        match self.work {
            Work::Fixed(time) => time,
            Work::Exponential(mean) => {
                let unit: f64 = Exp1.sample(&mut self.requests);
                Nanos::from_secs_f64(unit * mean.as_secs_f64())
            }
            Work::Mixed(usual, rare, one_in) => {
                if uniform.sample(&mut self.requests) % one_in == 0 {
                    rare
                } else {
                    usual
                }
            }
        }
    }
}

impl Seen {
    /// As the agent counts it.
    pub fn tick(&self, elapsed: Nanos) -> Tick {
        let Self { answered, idle, refused, handshake, .. } = *self;
        Tick {
            elapsed,
            answered,
            response: Nanos(self.response.0 / answered.max(1)),
            waited: self.response,
            waiting_at_onset: 0,
            is_refusing: false,
            is_sampled: false,
            idle,
            refused,
            round_trip: handshake,
        }
    }
}
