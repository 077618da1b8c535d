//! How much of its usual share a balancer should send a server.

use units::Nanos;

/// A balancer's weight for a server, in percent of the one that it is configured with.
///
/// It follows from what the server does alone, so that it means the same before one balancer or
/// ten. Late is later than this server usually answers. The limit's own memory of that is too
/// short: it forgets within a minute how fast a server was.
///
/// It falls while SYNs are refused or answers are late, and grows while answers are in time.
/// Between the two it stays, so that it does not swing. If all servers are late, all weights fall,
/// and each server has its usual share again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    percent: f64,
    /// What half of the answers take at most in good times, seconds.
    usual_s: Option<f64>,
}

/// What was seen of a server in a second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Second {
    /// SYNs that came.
    pub offered: u64,
    /// Of these, those that the guard refused. More than `offered` count as all.
    pub refused: u64,
    /// Answers that began.
    pub answered: u64,
    /// Time that half of them took at most, within a factor of two; `None` if that is not known.
    pub median: Option<Nanos>,
    /// Of a server whose answers are not known, how full its queue is: 0 to 1.
    pub fullness: f64,
}

impl Weight {
    /// All of its share: also of a server that is not known.
    pub const FULL: Self = Self { percent: 100.0, usual_s: None };
    /// The least, percent: some must come, so that it shows when a server is well again.
    const LEAST: f64 = 5.0;

    /// Learns by a second what is usual. Call it for each, `elapsed` after the last.
    pub fn learn(&mut self, seen: &Second, elapsed: Nanos) {
        let Some(median) = seen.median.filter(|_| seen.answered >= ENOUGH) else { return };
        let median_s = median.as_secs_f64();
        let known_s = self.usual_s.unwrap_or(median_s);
        let grown_s = known_s * (elapsed.as_secs_f64() / DOUBLES_IN_S).exp2();
        // One second of cached answers is not usual.
        self.usual_s =
            Some(if median_s < known_s { (known_s + median_s) / 2.0 } else { grown_s.min(median_s) });
    }

    /// Changes the share. Call it when the balancers have had this one for all of `seen`: what the
    /// last change has already sent elsewhere must not count twice.
    pub fn change(&mut self, seen: &Second) {
        let refused = seen.refused as f64 / seen.offered.max(seen.refused).max(1) as f64;
        let lateness = self.lateness(seen);
        let late = if lateness > 1.0 { LOSS * (1.0 - 1.0 / lateness) } else { 0.0 };
        let next = if seen.refused == 0 && lateness < IN_TIME {
            (self.percent * GROWTH).max(self.percent + 1.0)
        } else {
            self.percent * (1.0 - refused.max(late).min(LOSS))
        };
        self.percent = next.clamp(Self::LEAST, 100.0);
    }

    /// All of its share again; what is usual stays known.
    pub fn fill(&mut self) {
        self.percent = 100.0;
    }

    /// In whole percent, 5 to 100.
    pub fn percent(self) -> u32 {
        self.percent.round() as u32
    }

    /// What the answers took, of what is just in time.
    fn lateness(&self, seen: &Second) -> f64 {
        match (seen.median, self.usual_s) {
            (Some(median), Some(usual_s)) => median.as_secs_f64() / (QUICK * usual_s.max(SHORTEST_S)),
            _ => seen.fullness,
        }
    }
}

/// One second takes half of the weight at most: its refusals may come from one burst.
const LOSS: f64 = 0.5;
/// At each step by which a server gets its share back.
const GROWTH: f64 = 1.25;
/// Answers are in time up to this many times the usual one, and late above it. Growth ends at half
/// of that, because buckets of response times are a factor of two apart.
const QUICK: f64 = 4.0;
const IN_TIME: f64 = 0.5;
/// Answers in a second that tell what is usual.
const ENOUGH: u64 = 20;
/// Below this time lateness is a matter of interrupts.
const SHORTEST_S: f64 = 100e-6;
/// A server that stays ten times slower is late for a quarter of an hour; then that is usual.
const DOUBLES_IN_S: f64 = 600.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whose answers took so many times the usual one.
    fn seen(offered: u64, refused: u64, times: f64) -> Second {
        let median = Some(Nanos::from_secs_f64(0.001 * times));
        Second { offered, refused, answered: 100, median, fullness: 0.0 }
    }

    fn usually_1_ms(percent: f64) -> Weight {
        Weight { percent, usual_s: Some(0.001) }
    }

    fn next(mut weight: Weight, seen: &Second) -> f64 {
        weight.change(seen);
        weight.percent
    }

    #[test]
    fn refusals_and_late_answers_lower_it_and_those_in_time_raise_it() {
        for (percent, seen, after) in [
            (100.0, seen(1000, 100, 1.0), 90.0),
            (100.0, seen(1000, 900, 4.0), 50.0),
            (40.0, seen(0, 3, 1.0), 20.0),
            (40.0, seen(1000, 0, 3.0), 40.0),
            (40.0, seen(1000, 0, 8.0), 30.0),
            (40.0, seen(1000, 0, 1.0), 50.0),
            (40.0, Second { fullness: 0.7, ..Second::default() }, 40.0),
            (40.0, Second { fullness: 0.4, ..Second::default() }, 50.0),
            (6.0, seen(10, 10, 1.0), 5.0),
            (99.0, seen(10, 0, 1.0), 100.0),
        ] {
            assert_eq!(next(usually_1_ms(percent), &seen), after, "{percent} after {seen:?}");
        }
    }

    #[test]
    fn more_refusals_or_later_answers_never_raise_it() {
        let weight = usually_1_ms(50.0);
        let by_refused = (0..=100).map(|refused| next(weight, &seen(100, refused, 1.0)));
        let by_lateness = (1..=100).map(|times| next(weight, &seen(100, 0, f64::from(times))));
        for weights in [by_refused.collect::<Vec<_>>(), by_lateness.collect()] {
            assert!(weights.windows(2).all(|pair| pair[1] <= pair[0]), "{weights:?}");
        }
    }

    #[test]
    fn usual_answer_is_forgotten_in_a_quarter_of_an_hour_and_one_odd_second_is_none() {
        let second = Nanos::from_secs(1);
        let mut weight = Weight::FULL;
        (0..10).for_each(|_| weight.learn(&seen(100, 0, 1.0), second));
        weight.learn(&Second { answered: 3, ..seen(3, 0, 0.01) }, second);
        assert!(weight.lateness(&seen(100, 0, 4.0)) <= 1.0);
        weight.learn(&seen(100, 0, 0.5), second);
        assert!((1.3..1.4).contains(&weight.lateness(&seen(100, 0, 4.0))), "a second tells a half");
        weight.learn(&seen(100, 0, 1.0), second);
        let late = |minutes: usize| {
            let mut weight = weight;
            (0..60 * minutes).for_each(|_| weight.learn(&seen(100, 0, 10.0), second));
            weight.lateness(&seen(100, 0, 10.0)) > 1.0
        };
        assert!(late(1) && late(10) && !late(30));
    }

    /// Requests a second that two servers get, each with its time for a request, from a balancer
    /// that goes by their weights. Both usually took a millisecond.
    fn shares(offered: f64, takes_s: [f64; 2]) -> [f64; 2] {
        let mut weights = [usually_1_ms(100.0); 2];
        let mut shares = [0.0; 2];
        for _ in 0..100 {
            let all: f64 = weights.iter().map(|weight| weight.percent).sum();
            shares = weights.map(|weight| offered * weight.percent / all);
            for (weight, (share, takes_s)) in weights.iter_mut().zip(shares.into_iter().zip(takes_s)) {
                let refused = (share - 1.0 / takes_s).max(0.0) as u64;
                // M/M/1, with a limit of 20 that may wait.
                let response_s = takes_s / (1.0 - (share * takes_s).min(0.95));
                weight.change(&seen(share as u64, refused, 1000.0 * response_s));
            }
        }
        shares
    }

    #[test]
    fn server_that_is_ten_times_slower_gets_least_while_the_other_can_take_the_rest() {
        let [fast, slow] = shares(300.0, [0.001, 0.01]);
        assert!((10.0..20.0).contains(&slow) && fast > 280.0, "{fast} and {slow}");
    }

    #[test]
    fn servers_that_are_late_alike_share_alike() {
        let [one, other] = shares(300.0, [0.01, 0.01]);
        assert_eq!(one, other);
    }

    #[test]
    fn server_that_is_well_again_has_all_of_its_share_within_twenty_steps() {
        let mut weight = usually_1_ms(Weight::LEAST);
        let steps = (1..).find(|_| {
            weight.change(&seen(10, 0, 1.0));
            weight.percent() == 100
        });
        assert!((10..=20).contains(&steps.expect("it ends")), "{steps:?}");
    }
}
