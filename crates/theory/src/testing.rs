//! The queue itself, simulated request by request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

use crate::{Alternating, BoundedPareto, Response};

/// 10 Mbit/s.
pub const LINK: f64 = 1.25e6;

/// `[SH06]`: mean 5 KB, 2.02 MB at most, shape 1.1.
pub fn world_cup() -> BoundedPareto {
    BoundedPareto::with_mean(5_000.0, 2_020_000.0, 1.1).expect("sizes")
}

#[track_caller]
pub fn assert_near(what: &str, value: f64, expected: f64, tolerance: f64) {
    assert!((value / expected - 1.0).abs() <= tolerance, "{what}: {value}, expected {expected}");
}

#[derive(Clone, Copy, PartialEq)]
pub enum Order {
    Fair,
    Srpt,
}

/// A number that has an order: none is NaN.
#[derive(PartialEq)]
struct Number(f64);

impl Eq for Number {}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A request that is there: when it came, and its size.
type Request = (f64, f64);

/// Mean responses over so many cycles, by decades of three sizes each.
pub fn simulate(order: Order, sizes: &BoundedPareto, load: &Alternating, cycles: u32) -> Response {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let end_s = load.cycle_s() * f64::from(cycles);
    let mut next_s = arrival(&mut random, 0.0, sizes, load);
    // By what is left, or under PS by what a request that was there from the beginning has been
    // served when it is done.
    let mut queue: BinaryHeap<Reverse<(Number, usize)>> = BinaryHeap::new();
    let mut requests: Vec<Request> = Vec::new();
    let (mut now_s, mut served) = (0.0, 0.0);
    let mut bins = vec![(0.0, 0.0, 0.0); 40];
    let mut done = |(came_s, bytes): Request, now_s: f64| {
        let bin = &mut bins[(3.0 * bytes.log10()) as usize];
        *bin = (bin.0 + 1.0, bin.1 + bytes, bin.2 + now_s - came_s);
    };
    loop {
        let there = if order == Order::Fair { queue.len() as f64 } else { 1.0 };
        let first = queue.peek().map(|Reverse((key, _))| match order {
            Order::Fair => now_s + (key.0 - served) * there,
            Order::Srpt => now_s + key.0,
        });
        if let Some(first_s) = first.filter(|first_s| *first_s <= next_s) {
            let Reverse((key, id)) = queue.pop().expect("it was there");
            served = key.0;
            now_s = first_s;
            done(requests[id], now_s);
            continue;
        }
        if next_s >= end_s {
            break;
        }
        match order {
            Order::Fair => served += (next_s - now_s) / there.max(1.0),
            Order::Srpt => {
                if let Some(Reverse((key, id))) = queue.pop() {
                    queue.push(Reverse((Number(key.0 - (next_s - now_s)), id)));
                }
            }
        }
        now_s = next_s;
        let bytes = size(&mut random, sizes);
        let key = bytes / LINK + if order == Order::Fair { served } else { 0.0 };
        queue.push(Reverse((Number(key), requests.len())));
        requests.push((now_s, bytes));
        next_s = arrival(&mut random, now_s, sizes, load);
    }
    let all = bins.iter().fold((0.0, 0.0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.2));
    let by_size = bins.iter().filter(|bin| bin.0 > 400.0).map(|bin| (bin.1 / bin.0, bin.2 / bin.0)).collect();
    Response { mean_s: all.1 / all.0, by_size }
}

/// The next of a Poisson process whose rate is of the load at each moment.
fn arrival(random: &mut Pcg64Mcg, now_s: f64, sizes: &BoundedPareto, load: &Alternating) -> f64 {
    let mut unit: f64 = Exp1.sample(random);
    let mut now_s = now_s;
    loop {
        let (load, until_s) = load.at(now_s);
        let per_s = load * LINK / sizes.mean();
        if unit <= per_s * (until_s - now_s) {
            return now_s + unit / per_s;
        }
        unit -= per_s * (until_s - now_s);
        now_s = until_s;
    }
}

/// The inverse of the distribution, by bisection.
fn size(random: &mut Pcg64Mcg, sizes: &BoundedPareto) -> f64 {
    let above = random.random::<f64>();
    let (mut low, mut high) = (sizes.least(), sizes.most());
    for _ in 0..40 {
        let middle = (low * high).sqrt();
        if sizes.above(middle) > above { low = middle } else { high = middle }
    }
    low
}
