//! SRPT: the request with the least left goes first.

use crate::sizes::BoundedPareto;
use crate::{Alternating, Response};

/// Classes of sizes.
const CLASSES: u32 = 48;
/// Moments of each period at which a request of each class comes.
const MOMENTS: usize = 40;
/// Steps of a period in which work is added up.
const STEPS: usize = 1000;
/// Most cycles until each is as the one before.
const MOST_CYCLES: usize = 200;
/// The difference between two such, seconds of work.
const SAME_S: f64 = 1e-6;
/// Places of the table of times that the rest of a request takes.
const PLACES: usize = 600;

/// Exact, preemptive SRPT on a link of so many bytes per second.
///
/// A request of size `x` waits until the work that goes before it is done, with what comes
/// meanwhile, and is then served while nothing smaller is there. Of a steady load that is Schrage
/// and Miller's formula (Operations Research 14, 1966). Where the load alternates, the mean work
/// that goes before follows `dU/dt = load(x) - U / (U + c(x))`: it has the formula's mean where the
/// load is steady, and grows as a fluid where it is above 1. The wait for it is the first passage
/// of a Brownian motion with the same drift and variance, so that some requests are served in an
/// overload that most do not survive. Work of larger requests that fell below `x` is in `c(x)`, as
/// if the load had always been as it is.
///
/// Against simulations of W1 the mean is 9% high, and that of a size 28% at most, where requests up
/// to that size are just the whole link.
pub fn srpt(sizes: &BoundedPareto, bytes_per_s: f64, load: &Alternating) -> Response {
    let classes = sizes.classes(CLASSES);
    let link = Link::new(sizes, bytes_per_s, load);
    let means = classes.iter().map(|class| link.mean_response(class.bytes / bytes_per_s));
    Response::of_classes(&classes, means)
}

/// A link, with all sizes in seconds of it.
struct Link<'a> {
    sizes: &'a BoundedPareto,
    bytes_per_s: f64,
    /// Requests per second at a load of 1.
    per_s: f64,
    load: &'a Alternating,
    low: Rest,
    high: Rest,
}

impl<'a> Link<'a> {
    fn new(sizes: &'a BoundedPareto, bytes_per_s: f64, load: &'a Alternating) -> Self {
        let per_s = bytes_per_s / sizes.mean();
        let load_below = |load: f64| {
            move |size_s: f64| load * per_s * sizes.moment_below(1, size_s * bytes_per_s) / bytes_per_s
        };
        let (least_s, most_s) = (sizes.least() / bytes_per_s, sizes.most() / bytes_per_s);
        let rest = |of: f64| Rest::new(load_below(of), least_s, most_s);
        Self { sizes, bytes_per_s, per_s, load, low: rest(load.low), high: rest(load.high) }
    }

    /// At a load, that of requests up to a size.
    fn load_below(&self, load: f64, size_s: f64) -> f64 {
        load * self.per_s * self.sizes.moment_below(1, size_s * self.bytes_per_s) / self.bytes_per_s
    }

    /// Half of the mean square of what goes before a size, over its mean: the work that is there is
    /// that times `load / (1 - load)`.
    fn constant_s(&self, size_s: f64) -> f64 {
        let bytes = size_s * self.bytes_per_s;
        let squares = self.sizes.moment_below(2, bytes) + bytes * bytes * self.sizes.above(bytes);
        let mean = self.sizes.moment_below(1, bytes);
        if mean > 0.0 { squares / (2.0 * mean) / self.bytes_per_s } else { 0.0 }
    }

    /// Of a size, over a cycle.
    fn mean_response(&self, size_s: f64) -> f64 {
        let work = self.work_before(size_s);
        let Alternating { low_s, high_s, low, high } = *self.load;
        let (mut sum_s, mut weight) = (0.0, 0.0);
        for (start_s, span_s, load, of_period) in
            [(0.0, low_s, low, &work[..STEPS]), (low_s, high_s, high, &work[STEPS..])]
        {
            for moment in 0..MOMENTS {
                let part = (moment as f64 + 0.5) / MOMENTS as f64;
                let before_s = of_period[(part * STEPS as f64) as usize];
                let share = load * span_s / MOMENTS as f64;
                sum_s += share * self.response(size_s, before_s, start_s + part * span_s);
                weight += share;
            }
        }
        sum_s / weight
    }

    /// Work that goes before a size, seconds, in each step of a cycle, low period first.
    fn work_before(&self, size_s: f64) -> Vec<f64> {
        let constant = self.constant_s(size_s);
        let Alternating { low_s, high_s, low, high } = *self.load;
        let (mut work, mut cycle) = (0.0_f64, vec![0.0; 2 * STEPS]);
        for _ in 0..MOST_CYCLES {
            let before = work;
            for (period, span_s, load) in [(0, low_s, low), (1, high_s, high)] {
                let (step_s, load) = (span_s / STEPS as f64, self.load_below(load, size_s));
                for place in &mut cycle[period * STEPS..(period + 1) * STEPS] {
                    // Backwards, so that work that is gone within a step does no harm.
                    let come = work + step_s * load;
                    let b = constant - come + step_s;
                    work = (-b + (b * b + 4.0 * constant * come).sqrt()) / 2.0;
                    *place = work;
                }
            }
            if (work - before).abs() < SAME_S {
                break;
            }
        }
        cycle
    }

    /// How long a request of a size takes that comes at a moment, when on the mean so much work
    /// goes before it.
    fn response(&self, size_s: f64, before_s: f64, came_s: f64) -> f64 {
        // None goes before it with the probability that the mean has in a steady load.
        let constant = self.constant_s(size_s);
        let some = before_s / (before_s + constant).max(f64::MIN_POSITIVE);
        let mut request = Request { link: self, came_s, sum_s: 0.0, done: 0.0 };
        request.go_on(1.0 - some, size_s, 0.0, came_s);
        request.go_on(some, size_s, before_s + constant, came_s);
        request.sum_s / request.done
    }
}

/// Requests of one size that came at one moment, on their several ways.
struct Request<'a> {
    link: &'a Link<'a>,
    came_s: f64,
    /// Over those that are done: responses, and shares.
    sum_s: f64,
    done: f64,
}

/// Ways of fewer requests are not followed.
const LEAST_SHARE: f64 = 1e-3;

impl Request<'_> {
    fn finish(&mut self, share: f64, now_s: f64) {
        self.sum_s += share * (now_s - self.came_s);
        self.done += share;
    }

    /// A share of them has so much left, and so much before it, seconds of the link, at a moment.
    fn go_on(&mut self, mut share: f64, left_s: f64, mut before_s: f64, mut now_s: f64) {
        let link = self.link;
        for _ in 0..2 * MOST_CYCLES {
            if share < LEAST_SHARE {
                return;
            }
            let (load, until_s) = link.load.at(now_s);
            let below = link.load_below(load, left_s);
            let variance = 2.0 * link.constant_s(left_s) * below;
            let passage = Passage::of(before_s, below - 1.0, variance, until_s - now_s);
            let waited_s = if passage.share > 0.0 { passage.time / passage.share } else { 0.0 };
            self.serve(share * passage.share, left_s, now_s + waited_s);
            share *= 1.0 - passage.share;
            (before_s, now_s) = (passage.left, until_s);
        }
        self.finish(share, now_s);
    }

    /// Nothing goes before them any more.
    fn serve(&mut self, share: f64, left_s: f64, now_s: f64) {
        if share < LEAST_SHARE {
            return;
        }
        let link = self.link;
        let (load, until_s) = link.load.at(now_s);
        let span_s = until_s - now_s;
        let below = link.load_below(load, left_s);
        if below >= 1.0 {
            let variance = 2.0 * link.constant_s(left_s) * below;
            let passage = Passage::of(left_s, below - 1.0, variance, span_s);
            if passage.share > 0.0 {
                self.finish(share * passage.share, now_s + passage.time / passage.share);
            }
            let before_s = (passage.left - left_s).max(0.0);
            return self.go_on(share * (1.0 - passage.share), left_s, before_s, until_s);
        }
        let rest = if load == link.load.low { &link.low } else { &link.high };
        let needed_s = rest.time(left_s);
        if needed_s <= span_s {
            return self.finish(share, now_s + needed_s);
        }
        self.go_on(share, rest.left(needed_s - span_s), 0.0, until_s);
    }
}

/// Work that comes and is done: Brownian motion from `work` with a drift, above 0 where more comes
/// than is done, and its first passage to zero within `span`.
struct Passage {
    /// Probability that it comes.
    share: f64,
    /// Its time, where it comes; nothing where it does not: the mean of that.
    time: f64,
    /// The work at the end, where it does not come.
    left: f64,
}

impl Passage {
    /// Source: the inverse Gaussian distribution, and optional stopping for what is left.
    fn of(work: f64, drift: f64, variance: f64, span: f64) -> Self {
        if work <= 0.0 {
            return Self { share: 1.0, time: 0.0, left: 0.0 };
        }
        // Where chance matters little there is none.
        const SURE: f64 = 40.0;
        let spread = (variance * span).sqrt();
        let weight = 2.0 * drift * work / variance.max(f64::MIN_POSITIVE);
        if spread <= 0.0 || weight < -SURE {
            let time = work / -drift;
            return if drift < 0.0 && time <= span {
                Self { share: 1.0, time, left: 0.0 }
            } else {
                Self { share: 0.0, time: 0.0, left: work + drift * span }
            };
        }
        let drift = if drift.abs() < 1e-6 { 1e-6 } else { drift };
        let weight = 2.0 * drift * work / variance;
        let back = (-weight).exp() * normal((-work + drift * span) / spread);
        let ahead = normal((-work - drift * span) / spread);
        let share = (back + ahead).clamp(0.0, 1.0);
        let time = (work / drift * (back - ahead)).clamp(0.0, share * span);
        let open = 1.0 - share;
        let left = if open > 1e-6 { (work + drift * (time + span * open)) / open } else { 0.0 };
        Self { share, time, left: left.max(0.0) }
    }
}

/// The normal distribution, to 1e-7: Abramowitz and Stegun 26.2.17.
fn normal(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let terms = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let sum = terms.iter().rev().fold(0.0, |sum, term| (sum + term) * t);
    let tail = (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * sum;
    if x > 0.0 { 1.0 - tail } else { tail }
}

/// How long the rest of a request takes while a load stays as it is, once nothing goes before it:
/// the integral of one over what smaller requests leave.
struct Rest {
    /// Sizes and times, seconds, rising; up to the size below which the load is 1.
    places: Vec<(f64, f64)>,
}

impl Rest {
    fn new(load_below: impl Fn(f64) -> f64, least_s: f64, most_s: f64) -> Self {
        let mut places = vec![(0.0, 0.0), (least_s, least_s)];
        let slowness = |size_s: f64| 1.0 / (1.0 - load_below(size_s));
        for n in 1..=PLACES {
            let (from, time) = places[n];
            let to = least_s * (most_s / least_s).powf(n as f64 / PLACES as f64);
            if load_below(to) >= 1.0 {
                break;
            }
            // Simpson's rule.
            let sum = slowness(from) + 4.0 * slowness((from + to) / 2.0) + slowness(to);
            places.push((to, time + (to - from) * sum / 6.0));
        }
        Self { places }
    }

    /// Of a rest of so many seconds of the link; beyond the table as fast as at its end.
    fn time(&self, left_s: f64) -> f64 {
        interpolate(&self.places, left_s, |(size, time)| (size, time))
    }

    /// The rest that takes so long.
    fn left(&self, time_s: f64) -> f64 {
        interpolate(&self.places, time_s, |(size, time)| (time, size))
    }
}

/// On the line between two places.
fn interpolate(places: &[(f64, f64)], x: f64, of: impl Fn((f64, f64)) -> (f64, f64)) -> f64 {
    let after = places.partition_point(|place| of(*place).0 < x).clamp(1, places.len() - 1);
    let ((from, low), (to, high)) = (of(places[after - 1]), of(places[after]));
    low + (high - low) * (x - from) / (to - from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair;
    use crate::testing::{LINK, Order, assert_near, simulate, world_cup};

    /// Schrage and Miller's formula, by slices of the distribution that are added up here.
    fn formula(load: f64, bytes: f64) -> f64 {
        let sizes = world_cup();
        let per_s = load * LINK / sizes.mean();
        let size_s = bytes / LINK;
        let slices = 4000;
        let (mut squares, mut below, mut residence) = (0.0, 0.0, 0.0);
        let mut last_s = 0.0;
        for slice in 1..=slices {
            let at_s = size_s * f64::from(slice) / f64::from(slices);
            let share = sizes.above(last_s * LINK) - sizes.above(at_s * LINK);
            let middle_s = (last_s + at_s) / 2.0;
            below += per_s * share * middle_s;
            squares += per_s * share * middle_s * middle_s;
            residence += (at_s - last_s) / (1.0 - below);
            last_s = at_s;
        }
        squares += per_s * size_s * size_s * sizes.above(bytes);
        squares / 2.0 / (1.0 - below).powi(2) + residence
    }

    #[test]
    fn steady_load_takes_as_long_as_schrage_and_miller_say() {
        for load in [0.1, 0.5, 0.7, 0.9] {
            let theory = srpt(&world_cup(), LINK, &Alternating::steady(load).expect("a load"));
            for (bytes, mean_s) in theory.by_size.iter().step_by(5) {
                assert_near(&format!("{bytes:.0} B at {load}"), *mean_s, formula(load, *bytes), 0.02);
            }
        }
    }

    /// W1 of `[SH06]`, and one that recovers slowly.
    #[test]
    fn alternating_load_takes_as_long_as_a_simulation_of_the_queue() {
        for load in [(25.0, 25.0, 0.2, 1.2), (10.0, 10.0, 0.4, 1.4)] {
            let load = Alternating::new(load.0, load.1, load.2, load.3).expect("a load");
            let theory = srpt(&world_cup(), LINK, &load);
            let simulated = simulate(Order::Srpt, &world_cup(), &load, 100);
            assert_near("mean", theory.mean_s, simulated.mean_s, 0.15);
            for (bytes, mean_s) in &simulated.by_size {
                assert_near(&format!("of {bytes:.0} B"), theory.at(*bytes), *mean_s, 0.3);
            }
        }
    }

    #[test]
    fn work_that_grows_is_done_all_the_same_with_a_known_probability() {
        // From 1 with a drift of 0.5 and a variance of 1: e^-1 within a long time.
        let passage = Passage::of(1.0, 0.5, 1.0, 1000.0);
        assert_near("share", passage.share, (-1.0_f64).exp(), 1e-4);
        assert_near("time, of those", passage.time / passage.share, 2.0, 1e-3);
        // With as much towards zero all of it is done, in as long on the mean.
        let passage = Passage::of(1.0, -0.5, 1.0, 1000.0);
        assert_near("all", passage.share, 1.0, 1e-6);
        assert_near("time", passage.time, 2.0, 1e-3);
        // Nothing is lost: what was there and came is what is left, or was done.
        let passage = Passage::of(1.0, 0.1, 0.5, 3.0);
        let expected = 1.0 + 0.1 * (passage.time + 3.0 * (1.0 - passage.share));
        assert_near("left", passage.left * (1.0 - passage.share), expected, 1e-9);
        let sure = Passage::of(1.0, -0.5, 0.0, 3.0);
        assert_eq!((sure.share, sure.time), (1.0, 2.0));
        assert_eq!(
            (Passage::of(1.0, -0.5, 0.0, 1.0).share, Passage::of(1.0, 0.5, 0.0, 1.0).left),
            (0.0, 1.5)
        );
    }

    #[test]
    fn normal_distribution_is_that_of_tables() {
        for (x, expected) in [(0.0, 0.5), (1.0, 0.841_344_7), (-1.959_964, 0.025), (3.0, 0.998_650_1)] {
            assert!((normal(x) - expected).abs() < 2e-7, "{x}: {}", normal(x));
        }
    }

    /// `[SH06]` section 6.3: the trend of the paper's figures. FAIR's mean is some times SRPT's,
    /// and the largest requests take about as long under both.
    #[test]
    fn srpt_is_some_times_as_fast_as_fair_and_spares_the_largest() {
        let load = Alternating::new(25.0, 25.0, 0.2, 1.2).expect("W1");
        let (fair, srpt) = (fair(&world_cup(), LINK, &load).response, srpt(&world_cup(), LINK, &load));
        assert!(fair.mean_s > 5.0 * srpt.mean_s, "{} and {}", fair.mean_s, srpt.mean_s);
        let largest = srpt.at(1_900_000.0) / fair.at(1_900_000.0);
        assert!((0.7..1.3).contains(&largest), "{largest} times as long");
    }
}
