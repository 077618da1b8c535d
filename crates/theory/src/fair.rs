//! FAIR: every request has the same share of the link.

use crate::sizes::{BoundedPareto, Class};
use crate::{Alternating, Response};

/// Classes of sizes.
const CLASSES: u32 = 64;
/// Steps of a cycle.
const STEPS: usize = 4000;
/// Most cycles until each is as the one before.
const MOST_CYCLES: usize = 200;
/// The difference between two such, as a share.
const SAME: f64 = 1e-4;

/// What FAIR does to requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Fair {
    /// How long they take.
    pub response: Response,
    /// How many are there over a cycle that begins low: time, seconds, and the expected number.
    pub connections: Vec<(f64, f64)>,
}

/// Processor sharing of a link of so many bytes per second.
///
/// A request that shares the link with `N` others is served at `1 / (N + 1)` of its rate, and `N`
/// is what came and is not served yet. Of a steady load that gives `x / (1 - load)` for a size of
/// `x` seconds, which is exact for every distribution; of an overload it gives the growth of the
/// fluid limit. In between the expected number stands for the number. Against simulations of W1 the
/// mean is 7% high.
pub fn fair(sizes: &BoundedPareto, bytes_per_s: f64, load: &Alternating) -> Fair {
    let classes = sizes.classes(CLASSES);
    let per_s_of_load = bytes_per_s / sizes.mean();
    let mut queue = Queue::new(&classes, bytes_per_s);
    let step_s = load.cycle_s() / STEPS as f64;
    let mut before = Vec::new();
    for _ in 0..MOST_CYCLES {
        let cycle = queue.cycle(load, step_s, per_s_of_load);
        let sum = |cycle: &[Vec<f64>]| cycle.iter().flatten().sum::<f64>();
        let is_same = !before.is_empty() && (sum(&cycle) / sum(&before) - 1.0).abs() < SAME;
        before = cycle;
        if is_same {
            break;
        }
    }
    // Little: what is there on the mean, over what comes.
    let per_s = per_s_of_load * load.mean();
    let mean_of = |n: usize, class: &Class| {
        let there = before.iter().map(|step| step[n]).sum::<f64>() / STEPS as f64;
        there / (per_s * class.share)
    };
    let means = classes.iter().enumerate().map(|(n, class)| mean_of(n, class));
    let response = Response::of_classes(&classes, means);
    let number = |(step, of_classes): (usize, &Vec<f64>)| (step as f64 * step_s, of_classes.iter().sum());
    Fair { response, connections: before.iter().enumerate().map(number).collect() }
}

/// All since the beginning, step by step.
struct Queue {
    /// Sizes in seconds of the whole link, and shares.
    classes: Vec<(f64, f64)>,
    /// What a request that was there from the beginning has been served, seconds of the whole link.
    served: Vec<f64>,
    /// Requests that came.
    came: Vec<f64>,
    /// Of each class the last step before the oldest of its requests that is there came.
    oldest: Vec<usize>,
}

impl Queue {
    fn new(classes: &[Class], bytes_per_s: f64) -> Self {
        let classes: Vec<(f64, f64)> =
            classes.iter().map(|class| (class.bytes / bytes_per_s, class.share)).collect();
        Self { oldest: vec![0; classes.len()], classes, served: vec![0.0], came: vec![0.0] }
    }

    /// Goes on through one cycle; gives how many of each class are there in each of its steps.
    fn cycle(&mut self, load: &Alternating, step_s: f64, per_s_of_load: f64) -> Vec<Vec<f64>> {
        let mut cycle = Vec::with_capacity(STEPS);
        for step in 0..STEPS {
            let there = self.there();
            let number: f64 = there.iter().sum();
            let (now_load, _) = load.at((step as f64 + 0.5) * step_s);
            let last = self.served.len() - 1;
            self.served.push(self.served[last] + step_s / (number + 1.0));
            self.came.push(self.came[last] + step_s * now_load * per_s_of_load);
            cycle.push(there);
        }
        cycle
    }

    /// How many of each class are there: those that came since the one that is done now.
    fn there(&mut self) -> Vec<f64> {
        let Self { classes, served, came, oldest } = self;
        let last = served.len() - 1;
        let (now_served, now_came) = (served[last], came[last]);
        let of_class = |(&(size_s, share), oldest): (&(f64, f64), &mut usize)| {
            let since = now_served - size_s;
            while *oldest < last && served[*oldest + 1] < since {
                *oldest += 1;
            }
            if *oldest == last || since <= 0.0 {
                return share * now_came;
            }
            let (from, to) = (served[*oldest], served[*oldest + 1]);
            let part = ((since - from) / (to - from)).clamp(0.0, 1.0);
            let done = came[*oldest] + part * (came[*oldest + 1] - came[*oldest]);
            share * (now_came - done)
        };
        classes.iter().zip(oldest).map(of_class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LINK, Order, assert_near, simulate, world_cup};

    #[test]
    fn steady_load_slows_every_size_by_as_much() {
        for load in [0.1, 0.5, 0.9] {
            let fair = fair(&world_cup(), LINK, &Alternating::steady(load).expect("a load"));
            for bytes in [1_000.0, 5_000.0, 100_000.0, 1_000_000.0] {
                assert_near("response", fair.response.at(bytes), bytes / LINK / (1.0 - load), 0.02);
            }
            assert_near("mean", fair.response.mean_s, 5_000.0 / LINK / (1.0 - load), 0.01);
            let numbers = fair.connections.iter().map(|(_, number)| number).sum::<f64>();
            assert_near("there", numbers / fair.connections.len() as f64, load / (1.0 - load), 0.01);
        }
    }

    /// W1 of `[SH06]`, and one that recovers slowly.
    #[test]
    fn alternating_load_takes_as_long_as_a_simulation_of_the_queue() {
        for load in [(25.0, 25.0, 0.2, 1.2), (10.0, 10.0, 0.4, 1.4)] {
            let load = Alternating::new(load.0, load.1, load.2, load.3).expect("a load");
            let theory = fair(&world_cup(), LINK, &load).response;
            let simulated = simulate(Order::Fair, &world_cup(), &load, 100);
            assert_near("mean", theory.mean_s, simulated.mean_s, 0.12);
            for (bytes, mean_s) in &simulated.by_size {
                assert_near(&format!("of {bytes:.0} B"), theory.at(*bytes), *mean_s, 0.3);
            }
        }
    }

    /// What is there at the end of an overload is what came in it, less what was served: the rest
    /// of its work, in sizes that are larger than usual.
    #[test]
    fn connections_grow_while_the_load_is_high_and_fall_after() {
        let load = Alternating::new(25.0, 25.0, 0.2, 1.2).expect("W1");
        let connections = fair(&world_cup(), LINK, &load).connections;
        let at = |s: f64| connections[(s / 50.0 * connections.len() as f64) as usize].1;
        assert!(at(49.9) > 3.0 * at(30.0), "{} and then {}", at(30.0), at(49.9));
        assert!(at(24.0) < at(49.9) / 10.0, "{} of {}", at(24.0), at(49.9));
    }
}
