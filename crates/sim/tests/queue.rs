//! The event queue against a binary heap, which is right for sure; and how fast both are, a
//! calendar queue and a timing wheel: `cargo nextest run --release -p sim queue:: --run-ignored
//! only --no-capture --nocapture`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::hint::black_box;
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sim::EventQueue;
use units::Nanos;

/// What a queue of events must do.
trait Queue {
    fn push(&mut self, at: u64, event: u64);
    fn pop(&mut self) -> Option<(u64, u64)>;
}

impl Queue for EventQueue<u64> {
    fn push(&mut self, at: u64, event: u64) {
        self.push(Nanos(at), event);
    }

    fn pop(&mut self) -> Option<(u64, u64)> {
        self.pop_until(Nanos::MAX).map(|(at, event)| (at.0, event))
    }
}

/// Events of one moment in their order.
#[derive(Default)]
struct Heap {
    events: BinaryHeap<Reverse<(u64, u64, u64)>>,
    pushed: u64,
}

impl Queue for Heap {
    fn push(&mut self, at: u64, event: u64) {
        self.pushed += 1;
        self.events.push(Reverse((at, self.pushed, event)));
    }

    fn pop(&mut self) -> Option<(u64, u64)> {
        self.events.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

/// Brown's calendar queue (CACM 31(10), 1988): days of one width, as many as events, both chosen
/// anew when the number of events has doubled.
struct Calendar {
    days: Vec<VecDeque<(u64, u64)>>,
    width: u64,
    now: u64,
    len: usize,
}

impl Calendar {
    fn new() -> Self {
        Self { days: vec![VecDeque::new(); 2], width: 1, now: 0, len: 0 }
    }

    fn day(&self, at: u64) -> usize {
        (at / self.width) as usize & (self.days.len() - 1)
    }

    fn grow(&mut self) {
        let mut all: Vec<(u64, u64)> = self.days.drain(..).flatten().collect();
        all.sort_by_key(|(at, _)| *at);
        let span = all[all.len() - 1].0 - all[0].0;
        self.width = (3 * span / all.len() as u64).max(1);
        self.days = vec![VecDeque::new(); (2 * all.len()).next_power_of_two()];
        self.len = 0;
        all.into_iter().for_each(|(at, event)| self.insert(at, event));
    }

    fn insert(&mut self, at: u64, event: u64) {
        let day = self.day(at);
        let place = self.days[day].partition_point(|(other, _)| *other <= at);
        self.days[day].insert(place, (at, event));
        self.len += 1;
    }
}

impl Queue for Calendar {
    fn push(&mut self, at: u64, event: u64) {
        if self.len >= 2 * self.days.len() {
            self.grow();
        }
        self.insert(at, event);
    }

    fn pop(&mut self) -> Option<(u64, u64)> {
        if self.len == 0 {
            return None;
        }
        let mut end = (self.now / self.width + 1) * self.width;
        for _ in 0..self.days.len() {
            let day = self.day(end - 1);
            if self.days[day].front().is_some_and(|(at, _)| *at < end) {
                self.len -= 1;
                let first = self.days[day].pop_front()?;
                self.now = first.0;
                return Some(first);
            }
            end += self.width;
        }
        // Nothing for a whole year.
        self.now = self.days.iter().filter_map(|day| day.front()).map(|(at, _)| *at).min()?;
        self.pop()
    }
}

/// A hashed timing wheel with unsorted places (Varghese and Lauck, SOSP 1987, scheme 6): its hand
/// goes from tick to tick, and looks at all that lies in a place, of this turn or a later one.
struct Wheel {
    places: Vec<Vec<(u64, u64, u64)>>,
    /// Of the tick at the hand, in order, the last first.
    due: Vec<(u64, u64, u64)>,
    tick: u64,
    pushed: u64,
    len: usize,
}

impl Wheel {
    /// Of a tick, ns, as a power of two: about a microsecond.
    const TICK: u32 = 10;
    /// A turn takes a second.
    const PLACES: usize = 1 << 20;

    fn new() -> Self {
        Self { places: vec![Vec::new(); Self::PLACES], due: Vec::new(), tick: 0, pushed: 0, len: 0 }
    }

    fn place(tick: u64) -> usize {
        tick as usize & (Self::PLACES - 1)
    }
}

impl Queue for Wheel {
    fn push(&mut self, at: u64, event: u64) {
        self.pushed += 1;
        self.len += 1;
        let entry = (at, self.pushed, event);
        if at >> Self::TICK <= self.tick {
            let place = self.due.partition_point(|other| *other > entry);
            self.due.insert(place, entry);
        } else {
            self.places[Self::place(at >> Self::TICK)].push(entry);
        }
    }

    fn pop(&mut self) -> Option<(u64, u64)> {
        if self.len == 0 {
            return None;
        }
        while self.due.is_empty() {
            self.tick += 1;
            let tick = self.tick;
            let is_due = |(at, ..): &mut (u64, u64, u64)| *at >> Self::TICK == tick;
            self.due.extend(self.places[Self::place(tick)].extract_if(.., is_due));
            self.due.sort_unstable_by(|one, other| other.cmp(one));
        }
        self.len -= 1;
        self.due.pop().map(|(at, _, event)| (at, event))
    }
}

/// Gaps of a simulated server: microseconds on the wire and on the CPU, seconds until somebody
/// gives up, and many at once.
fn gap(random: &mut Pcg64Mcg) -> u64 {
    match random.random_range(0..10) {
        0 => 0,
        1..=6 => random.random_range(1_000..50_000),
        7 => random.random_range(1_000_000..10_000_000),
        8 => 1_000_000_000,
        _ => random.random_range(0..10_000_000_000),
    }
}

/// Fills a queue with so many events, then takes out one and puts in another, so many times. Gives
/// a sum that depends on every event and its order.
fn hold(
    queue: &mut impl Queue,
    pending: usize,
    times: usize,
    gap: impl Fn(&mut Pcg64Mcg) -> u64,
) -> (u64, f64) {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for event in 0..pending as u64 {
        let at = gap(&mut random);
        queue.push(at, event);
    }
    let start = Instant::now();
    let mut sum = 0u64;
    for event in 0..times as u64 {
        let (now, was) = queue.pop().expect("as many as before");
        sum = sum.wrapping_mul(31).wrapping_add(now ^ was);
        queue.push(now + gap(&mut random), event);
    }
    (sum, start.elapsed().as_nanos() as f64 / times as f64)
}

#[test]
fn events_come_as_out_of_a_heap() {
    for pending in [1, 7, 100, 10_000] {
        let ours = hold(&mut EventQueue::new(), pending, 100_000, gap).0;
        assert_eq!(ours, hold(&mut Heap::default(), pending, 100_000, gap).0, "{pending} pending");
        assert_eq!(ours, hold(&mut Calendar::new(), pending, 100_000, gap).0, "{pending} pending, calendar");
        // With few of them the hand goes over millions of empty places from one to the next.
        if pending >= 10_000 {
            assert_eq!(ours, hold(&mut Wheel::new(), pending, 100_000, gap).0, "{pending} pending, wheel");
        }
    }
}

#[test]
#[ignore = "long: a measurement"]
fn cost_of_an_event() {
    let spread = |random: &mut Pcg64Mcg| random.random_range(0..10_000_000_000);
    println!("ns for an event   pending     ours     heap calendar    wheel");
    for pending in [10_000, 100_000, 1_000_000, 10_000_000] {
        for (name, gap) in [("as a server's", gap as fn(&mut Pcg64Mcg) -> u64), ("evenly", spread)] {
            let times = 3_000_000;
            let ours = black_box(hold(&mut EventQueue::new(), pending, times, gap)).1;
            let heap = black_box(hold(&mut Heap::default(), pending, times, gap)).1;
            let calendar = black_box(hold(&mut Calendar::new(), pending, times, gap)).1;
            let wheel = black_box(hold(&mut Wheel::new(), pending, times, gap)).1;
            println!("{name:>14} {pending:>12} {ours:>8.0} {heap:>8.0} {calendar:>8.0} {wheel:>8.0}");
        }
    }
}
