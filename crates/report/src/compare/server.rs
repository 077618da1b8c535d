//! How far apart two runs are before a server: goodput, and the mean response.

use super::Compared;
use crate::format;
use crate::metric::{GOODPUT, MEAN, Metric, OFFERED};
use crate::run::{Point, Run};
use crate::terminal::{headed, wrap};

/// A number that both runs have of a point.
pub(super) struct Pair {
    metric: &'static Metric,
    /// Means of the repetitions, each of which comes at a rate of its own, so that the middle one
    /// is of no rate in particular. `None` where there was nothing to measure, as a response time
    /// where nobody was answered.
    values: [Option<f64>; 2],
}

impl Pair {
    fn of(metric: &'static Metric, points: &[Point<'_>; 2]) -> Self {
        Self { metric, values: points.each_ref().map(|point| metric.mean(point)) }
    }

    /// By which share of A's number B's is larger; below 0 where it is smaller. Infinite where only
    /// one of them has something, `None` where neither has.
    fn apart(&self) -> Option<f64> {
        match self.values.map(|value| value.filter(|value| *value > 0.0)) {
            [None, None] => None,
            [Some(a), Some(b)] => Some(b / a - 1.0),
            _ => Some(f64::INFINITY),
        }
    }

    fn is_within(&self, most: f64) -> bool {
        self.apart().is_none_or(|apart| apart.abs() <= most)
    }

    fn show(&self, which: usize) -> String {
        self.values[which].map_or_else(|| format::NOTHING.to_owned(), self.metric.format)
    }

    fn show_apart(&self) -> String {
        match self.apart() {
            Some(apart) if apart < 1.0 => format!("{:+.0}%", 100.0 * apart),
            Some(apart) if apart.is_finite() => format!("{}×", format::number(1.0 + apart)),
            Some(_) => "∞".to_owned(),
            None => format::NOTHING.to_owned(),
        }
    }
}

impl Compared<'_> {
    /// Goodput and mean response.
    pub(super) fn pairs(&self) -> [Pair; 2] {
        [&GOODPUT, &MEAN].map(|metric| Pair::of(metric, &self.points))
    }

    pub(super) fn too_different(&self, most: f64) -> Option<String> {
        let far = self.pairs().into_iter().filter(|pair| !pair.is_within(most));
        let words: Vec<String> = far
            .map(|pair| {
                let [a, b] = [0, 1].map(|which| pair.show(which));
                format!("{} is {b} in B and {a} in A ({})", pair.metric.heading, pair.show_apart())
            })
            .collect();
        (!words.is_empty()).then(|| format!("{}: {}", self.name(), words.join(", ")))
    }
}

/// Headings; the first two hold text, the rest numbers.
pub(super) const HEADINGS: [&str; 10] =
    ["load", "policy", "offered A", "offered B", "goodput A", "goodput B", "±", "mean A", "mean B", "±"];

/// What stands below [`HEADINGS`], but for the load.
pub(super) fn row(point: &Compared<'_>) -> Vec<String> {
    let offered = Pair::of(&OFFERED, &point.points);
    let mut row = vec![offered.show(0), offered.show(1)];
    for pair in point.pairs() {
        row.extend([pair.show(0), pair.show(1), pair.show_apart()]);
    }
    row
}

/// A server's points for the terminal.
pub(super) fn table(runs: [&Run; 2], server: &str, compared: &[&Compared<'_>]) -> String {
    let mut grid = headed(HEADINGS, 2..HEADINGS.len());
    let mut load = None;
    for point in compared {
        let is_first = load.replace(point.load) != Some(point.load);
        let begin = if is_first { format!("{}×", format::multiple(point.load)) } else { String::new() };
        grid.add_row([begin, point.policy.to_owned()].into_iter().chain(row(point)));
    }
    wrap(&title(runs, server), "") + &grid.trim_fmt() + "\n"
}

pub(super) fn title(runs: [&Run; 2], server: &str) -> String {
    let found = |run: &Run| match run.saturation(server) {
        Some(saturation) => format::number(saturation.rate_per_s),
        None => "not found".to_owned(),
    };
    let [a, b] = runs.map(found);
    format!(
        "{server}: saturation {a} requests/s in A, {b} in B; rates per second, means of the repetitions; ± by how much B's is above A's"
    )
}

/// How far apart all numbers are, in a sentence; `most` is a bound that was asked for.
pub(super) fn sum(compared: &[&Compared<'_>], most: Option<f64>) -> String {
    let pairs: Vec<Pair> = compared.iter().flat_map(|point| point.pairs()).collect();
    let mut apart: Vec<f64> = pairs.iter().filter_map(Pair::apart).map(f64::abs).collect();
    apart.sort_by(f64::total_cmp);
    let Some(last) = apart.len().checked_sub(1) else {
        return "Nobody was answered in either run.".to_owned();
    };
    // So many of them, and no fewer, are as near.
    let nearest = |share: f64| (apart.len() as f64 * share).ceil() as usize;
    let at = |share: f64| match apart[nearest(share).saturating_sub(1).min(last)] {
        apart if apart.is_finite() => format!("within {} of A's", format::percent(apart)),
        _ => "at any distance, as one run has nothing".to_owned(),
    };
    let of_bound = most.map(|most| {
        let within = apart.iter().filter(|apart| **apart <= most).count();
        format!(" {within} are within {}.", format::percent(most))
    });
    format!(
        "Of {} numbers of B (goodput, mean response) half are {}, nine in ten {}, the furthest {}.{}",
        apart.len(),
        at(0.5),
        at(0.9),
        at(1.0),
        of_bound.unwrap_or_default()
    )
}
