//! The fluid link by hand, by the closed forms of the M/G/1 queue, and by what holds on any
//! arrivals.

use aqm::fluid::{Arrival, Order, ends, mean_response_s};
use aqm::{RandomNumbers, Rate};
use proptest::prelude::*;
use units::Nanos;

const ORDERS: [Order; 4] = [Order::Fair, Order::Srpt, Order::Las, Order::Fifo];

/// A byte takes a microsecond.
fn rate() -> Rate {
    Rate::from_bits_per_s(8_000_000).expect("8 Mbit/s is a rate")
}

/// Arrivals at microseconds with bytes, and the microseconds when they are over.
fn ends_us(order: Order, arrivals: &[(u64, u64)]) -> Vec<u64> {
    let arrivals: Vec<_> =
        arrivals.iter().map(|(us, bytes)| Arrival { at: Nanos::from_micros(*us), bytes: *bytes }).collect();
    ends(order, rate(), &arrivals).into_iter().map(Nanos::as_micros).collect()
}

#[test]
fn one_response_has_the_whole_link() {
    for order in ORDERS {
        assert_eq!(ends_us(order, &[(5, 100)]), [105], "{order:?}");
        assert_eq!(ends_us(order, &[(5, 100), (200, 50)]), [105, 250], "{order:?}");
        assert_eq!(ends_us(order, &[]), [0_u64; 0], "{order:?}");
    }
}

#[test]
fn shares_are_as_each_order_has_them() {
    let arrivals = [(0, 300), (100, 100), (100, 150)];
    // Each of three has a third from 100 on: after 300 us the second is over, the third needs 50 of
    // a half, and the first 50 more then.
    assert_eq!(ends_us(Order::Fair, &arrivals), [550, 400, 500]);
    assert_eq!(ends_us(Order::Srpt, &arrivals), [550, 200, 350]);
    // The two that came last have a half each until 300, when all three were sent 100 and the
    // second is over.
    assert_eq!(ends_us(Order::Las, &arrivals), [550, 300, 400]);
    assert_eq!(ends_us(Order::Fifo, &arrivals), [300, 400, 550]);
}

#[test]
fn least_attained_goes_on_beside_what_it_has_come_up_with() {
    // The second is sent 100 alone, then both have a half: it needs 50 more, and the first 200.
    assert_eq!(ends_us(Order::Las, &[(0, 300), (100, 150)]), [450, 300]);
    // Three levels: 40 and 20 bytes were sent when the third arrives.
    assert_eq!(ends_us(Order::Las, &[(0, 60), (40, 60), (60, 60)]), [180, 180, 180]);
}

#[test]
fn shorter_rest_is_not_preempted_by_a_longer_response() {
    assert_eq!(ends_us(Order::Srpt, &[(0, 100), (60, 50), (70, 35)]), [100, 185, 135]);
    assert_eq!(ends_us(Order::Srpt, &[(0, 100), (60, 40)]), [100, 140], "of equal ones the first goes on");
}

#[test]
fn arrivals_may_stand_in_any_order() {
    for order in ORDERS {
        let sorted = ends_us(order, &[(0, 300), (100, 100), (130, 20)]);
        let other = ends_us(order, &[(130, 20), (0, 300), (100, 100)]);
        assert_eq!(other, [sorted[2], sorted[0], sorted[1]], "{order:?}");
    }
}

#[test]
fn response_of_no_bytes_is_over_when_it_is_served() {
    assert_eq!(ends_us(Order::Fair, &[(0, 100), (10, 0)]), [100, 10]);
    assert_eq!(ends_us(Order::Srpt, &[(0, 100), (10, 0)]), [100, 10]);
    assert_eq!(ends_us(Order::Las, &[(0, 100), (10, 0)]), [100, 10]);
    assert_eq!(ends_us(Order::Fifo, &[(0, 100), (10, 0)]), [100, 100]);
}

/// Sizes of responses, bytes.
struct Sizes {
    /// Share of those above a size.
    above: fn(f64) -> f64,
    /// The size of which a share is above.
    inverse: fn(f64) -> f64,
    most: f64,
}

/// Mean 1000 bytes. Cut far out, where nothing is.
const EXPONENTIAL: Sizes =
    Sizes { above: |x| (-x / 1000.0).exp(), inverse: |share| -share.ln() * 1000.0, most: 40_000.0 };

const LEAST: f64 = 300.0;
const MOST: f64 = 300_000.0;
const ALPHA: f64 = 1.1;

/// As `[SH06]` section 6.3 has it, alpha 1.1; of three decades.
const BOUNDED_PARETO: Sizes = Sizes {
    above: |x| {
        let tail = (LEAST / MOST).powf(ALPHA);
        if x < LEAST { 1.0 } else { ((LEAST / x).powf(ALPHA) - tail).max(0.0) / (1.0 - tail) }
    },
    inverse: |share| {
        let tail = (LEAST / MOST).powf(ALPHA);
        LEAST * (share * (1.0 - tail) + tail).powf(-1.0 / ALPHA)
    },
    most: MOST,
};

/// Mean response times of the M/G/1 queue whose service takes a second for a byte, in bytes of
/// service.
struct ClosedForms {
    mean_size: f64,
    fair: f64,
    srpt: f64,
    las: f64,
    fifo: f64,
}

/// `load` is below 1. Sources: L. Kleinrock, *Queueing Systems* II, section 4 (processor sharing,
/// foreground-background); L. E. Schrage and L. W. Miller, 1966, `[SH06]`'s [57] (SRPT); Pollaczek
/// and Khinchine.
fn closed_forms(sizes: &Sizes, load: f64) -> ClosedForms {
    const STEPS: usize = 400_000;
    // Steps grow with the size, so that small sizes are as fine as large ones.
    let first = 0.01_f64;
    let factor = (sizes.most / first).powf(1.0 / STEPS as f64);
    let points: Vec<f64> =
        std::iter::once(0.0).chain((0..=STEPS).map(|step| first * factor.powi(step as i32))).collect();
    let mean_size: f64 = points
        .windows(2)
        .map(|ends| (ends[1] - ends[0]) * (sizes.above)(f64::midpoint(ends[0], ends[1])))
        .sum();
    let lambda = load / mean_size;
    // Up to a size: bytes and squared bytes of smaller responses, the same of all cut at the size,
    // and the residence under SRPT.
    let (mut first_moment, mut second_moment, mut cut_first, mut cut_second) = (0.0, 0.0, 0.0, 0.0);
    let (mut residence, mut srpt, mut las) = (0.0, 0.0, 0.0);
    for ends in points.windows(2) {
        let (width, x) = (ends[1] - ends[0], f64::midpoint(ends[0], ends[1]));
        let share = (sizes.above)(ends[0]) - (sizes.above)(ends[1]);
        first_moment += x * share;
        second_moment += x * x * share;
        cut_first += width * (sizes.above)(x);
        cut_second += 2.0 * x * width * (sizes.above)(x);
        residence += width / (1.0 - lambda * first_moment);
        let waiting = lambda * (second_moment + x * x * (sizes.above)(ends[1]));
        srpt += share * (waiting / (2.0 * (1.0 - lambda * first_moment).powi(2)) + residence);
        let free = 1.0 - lambda * cut_first;
        las += share * (lambda * cut_second / (2.0 * free.powi(2)) + x / free);
    }
    ClosedForms {
        mean_size,
        fair: mean_size / (1.0 - load),
        srpt,
        las,
        fifo: mean_size + lambda * second_moment / (2.0 * (1.0 - load)),
    }
}

fn uniform(random: &mut RandomNumbers) -> f64 {
    (f64::from(random.next_u32()) + 0.5) / 4_294_967_296.0
}

/// Poisson arrivals at the link of [`rate`].
fn poisson(sizes: &Sizes, load: f64, mean_size: f64, count: usize) -> Vec<Arrival> {
    let mut random = RandomNumbers::new(7);
    let mut at_us = 0.0;
    let mut next = || {
        at_us += -uniform(&mut random).ln() * mean_size / load;
        let bytes = (sizes.inverse)(uniform(&mut random)).round() as u64;
        Arrival { at: Nanos((at_us * 1000.0) as u64), bytes }
    };
    std::iter::repeat_with(&mut next).take(count).collect()
}

fn assert_as_the_closed_forms_say(sizes: &Sizes, load: f64, tolerance: f64) {
    let closed = closed_forms(sizes, load);
    let arrivals = poisson(sizes, load, closed.mean_size, 400_000);
    let mut wrong = Vec::new();
    for (order, wanted) in [
        (Order::Fair, closed.fair),
        (Order::Srpt, closed.srpt),
        (Order::Las, closed.las),
        (Order::Fifo, closed.fifo),
    ] {
        let mean = mean_response_s(&arrivals, &ends(order, rate(), &arrivals)) * 1e6;
        println!("{order:?} at {load}: {mean:.0} us, {wanted:.0} by the closed form");
        if (mean / wanted - 1.0).abs() > tolerance {
            wrong.push((order, mean, wanted));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?} at a load of {load}");
}

#[test]
fn means_of_exponential_sizes_are_those_of_the_closed_forms() {
    assert_as_the_closed_forms_say(&EXPONENTIAL, 0.5, 0.02);
    assert_as_the_closed_forms_say(&EXPONENTIAL, 0.8, 0.03);
}

#[test]
fn means_of_bounded_pareto_sizes_are_those_of_the_closed_forms() {
    assert_as_the_closed_forms_say(&BOUNDED_PARETO, 0.5, 0.05);
    assert_as_the_closed_forms_say(&BOUNDED_PARETO, 0.7, 0.05);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn srpt_has_the_least_mean_and_all_orders_send_as_long(
        arrivals in prop::collection::vec((0..3000_u64, 0..500_u64), 1..60),
    ) {
        let arrivals: Vec<_> = arrivals
            .into_iter()
            .map(|(us, bytes)| Arrival { at: Nanos::from_micros(us), bytes })
            .collect();
        let last = |ends: &[Nanos]| ends.iter().max().copied().expect("there is one");
        let optimum = ends(Order::Srpt, rate(), &arrivals);
        for order in ORDERS {
            let others = ends(order, rate(), &arrivals);
            // A nanosecond for each response may be a rounding.
            let (mean, least) = (mean_response_s(&arrivals, &others), mean_response_s(&arrivals, &optimum));
            prop_assert!(least <= mean + 1e-9, "{order:?}: {mean} s, SRPT {least} s");
            let (one, other) = (last(&others), last(&optimum));
            prop_assert!(one.0.abs_diff(other.0) <= 2, "{order:?} ends at {one}, SRPT at {other}");
            for (arrival, end) in arrivals.iter().zip(&others) {
                let alone = arrival.at + Nanos::from_micros(arrival.bytes);
                prop_assert!(end.0 + 1 >= alone.0, "{order:?}: {arrival:?} is over at {end}");
            }
        }
    }
}
