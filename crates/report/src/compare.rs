//! Two runs of one dumbbell beside each other: on the kernel and in virtual time, or of two kernels.

use results::BottleneckSummary;

use crate::claims::{claims_of_one, compared_claims};
use crate::finding::missing;
use crate::format;
use crate::link::{COLUMNS, is_link, links, with_care};
use crate::run::{Point, Run};
use crate::table::{headed, wrap};

/// A point that two runs have in common.
#[derive(Debug)]
pub struct Compared<'a> {
    /// Of which scenario.
    pub scenario: &'a str,
    /// By what the number of bulk flows is multiplied.
    pub load: f64,
    /// The queue discipline.
    pub policy: &'a str,
    points: [Point<'a>; 2],
}

/// The points of dumbbells that two runs have in common, in the order of the first.
pub fn compare<'a>(one: &'a Run, other: &'a Run) -> Vec<Compared<'a>> {
    let mut compared = Vec::new();
    for scenario in one.servers().into_iter().filter(|scenario| is_link(&one.cells, scenario)) {
        let others = other.points(scenario);
        for point in one.points(scenario) {
            let (load, policy) = (point.load(), point.policy());
            let same = others.iter().find(|other| other.load() == load && other.policy() == policy);
            if let Some(same) = same.filter(|same| links(same).next().is_some()) {
                compared.push(Compared { scenario, load, policy, points: [point, same.clone()] });
            }
        }
    }
    compared
}

/// What only one of two runs has, a line for each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unshared {
    /// Scenarios, as a kernel cannot run all that can be simulated.
    pub scenarios: Vec<String>,
    /// Points of a scenario that both have; and that they are of one experiment.
    pub points: Vec<String>,
    /// Claims that one answers and the other does not.
    pub claims: Vec<String>,
}

/// What of dumbbells is not compared, since only one of the two has it.
pub fn unshared(one: &Run, other: &Run) -> Unshared {
    let mut unshared = Unshared::default();
    for (has, lacks, name) in [(one, other, "B"), (other, one, "A")] {
        unshared.claims.extend(
            claims_of_one(has, lacks)
                .map(|claims| format!("{name} does not answer claims that the other does: {claims}")),
        );
        for scenario in has.servers() {
            let others = lacks.points(scenario);
            if others.is_empty() {
                unshared.scenarios.push(format!("{name} has no {scenario}"));
                continue;
            }
            for point in has.points(scenario) {
                let (load, policy) = (point.load(), point.policy());
                let is_there = others.iter().any(|other| other.load() == load && other.policy() == policy);
                if !is_there {
                    let load = format::multiple(load);
                    unshared.points.push(format!("{name} has no {scenario} at {load}x, {policy}"));
                }
            }
        }
    }
    let [a, b] = [one, other].map(|run| &run.header.experiment);
    if a != b {
        unshared.points.push(format!("A is of {a:?} and B of {b:?}: another experiment"));
    }
    unshared
}

impl Compared<'_> {
    /// The Kolmogorov-Smirnov distance of the times of objects: the most that the share of objects which had come by some time differs, at the times that results
    /// keep. Seeds are taken together. `None` where one of the two has no objects, or no times of them.
    pub fn distance(&self) -> Option<f64> {
        let [one, other] = self.points.each_ref().map(Times::of);
        let (one, other) = (one?, other?);
        let moments = one.moments().chain(other.moments());
        let distances: Vec<f64> = moments.map(|ms| (one.share_by(ms) - other.share_by(ms)).abs()).collect();
        // Of no shares, or of such as are no numbers, there is none.
        let are_numbers = !distances.is_empty() && distances.iter().all(|distance| distance.is_finite());
        are_numbers.then(|| distances.into_iter().fold(0.0, f64::max))
    }
}

/// The times of all objects of a point.
struct Times<'a> {
    links: Vec<&'a BottleneckSummary>,
    objects: f64,
}

impl<'a> Times<'a> {
    fn of(point: &Point<'a>) -> Option<Self> {
        let links: Vec<_> = links(point).collect();
        let objects: u64 = links.iter().map(|link| link.objects_done).sum();
        (objects > 0).then_some(Self { links, objects: objects as f64 })
    }

    fn moments(&self) -> impl Iterator<Item = f64> {
        self.links.iter().flat_map(|link| link.done_by_ms.iter().map(|(ms, _)| *ms))
    }

    fn share_by(&self, ms: f64) -> f64 {
        let objects = self.links.iter().map(|link| link.objects_done as f64 * link.share_by(ms));
        objects.sum::<f64>() / self.objects
    }
}

/// What of the results is compared, by heading.
const SHOWN: [&str; 7] = ["use", "queue", "drops", "of packets", "SYN drops", "objects", "< 10 packets"];

/// Both as text for the terminal, a line for each.
pub fn comparison_table(runs: [&Run; 2], compared: &[Compared<'_>]) -> String {
    let columns: Vec<_> = COLUMNS.iter().filter(|column| SHOWN.contains(&column.heading)).collect();
    let headings = ["scenario", "queue", ""].into_iter().chain(columns.iter().map(|column| column.heading));
    let mut grid = headed(headings.chain(["distance"]), 3..columns.len() + 4);
    for point in compared {
        for (which, (name, of)) in ["A", "B"].into_iter().zip(&point.points).enumerate() {
            let begin = match which {
                0 => {
                    [format!("{} {}×", point.scenario, format::multiple(point.load)), point.policy.to_owned()]
                }
                _ => [String::new(), String::new()],
            };
            let mut row = Vec::from(begin);
            row.push(name.to_owned());
            row.extend(columns.iter().map(|column| column.show(of)));
            let distance = point.distance().filter(|_| which == 0);
            row.push(distance.map(|distance| format!("{distance:.3}")).unwrap_or_default());
            grid.add_row(row);
        }
    }
    let mut text = String::new();
    for (name, run) in ["A", "B"].into_iter().zip(runs) {
        let of = &run.header.environment;
        text += &wrap(
            &format!("{name}: {}, {}, {}", run.header.experiment, run.header.started, of.kernel),
            "   ",
        );
        text += &missing(run).map(|missing| wrap(&format!("   {missing}"), "   ")).unwrap_or_default();
    }
    text += &grid.trim_fmt();
    text.push('\n');
    for (which, name) in ["A, ", "B, "].into_iter().enumerate() {
        let points: Vec<Point<'_>> = compared.iter().map(|point| point.points[which].clone()).collect();
        text += &with_care(&points, name);
    }
    text += &wrap(
        "distance: the most by which the shares of objects that had come by some time differ (Kolmogorov-Smirnov); seeds are taken together",
        "",
    );
    text + &compared_claims(runs)
}

#[cfg(test)]
mod tests {
    use results::{Answer, Cell};

    use super::*;
    use crate::table::WIDTH;
    use crate::testing;

    /// Objects that came evenly from a moment on, 100 ms long.
    fn cell(policy: &str, from_ms: f64, objects: u64) -> Cell {
        let by = |step: u32| {
            let ms = f64::from(step) * 10.0;
            (ms, ((ms - from_ms) / 100.0).clamp(0.0, 1.0))
        };
        let link = BottleneckSummary {
            packets: 1000,
            drops: 10,
            opening_drops: 7,
            objects_done: objects,
            done_by_ms: (1..=100).map(by).collect(),
            ..BottleneckSummary::default()
        };
        testing::link_cell(policy, link)
    }

    fn run(cells: Vec<Cell>) -> Run {
        Run { cells, ..testing::empty() }
    }

    #[test]
    fn distance_is_the_most_by_which_the_distributions_differ() {
        let one = run(vec![cell("red", 100.0, 50), cell("codel", 0.0, 5)]);
        for (from_ms, wanted) in [(100.0, 0.0), (130.0, 0.3), (90.0, 0.1), (500.0, 1.0)] {
            let other = run(vec![cell("red", from_ms, 500), cell("choke", 0.0, 5)]);
            let compared = compare(&one, &other);
            assert_eq!(compared.len(), 1, "only what both have");
            let distance = compared[0].distance().expect("both have objects");
            assert!((distance - wanted).abs() < 1e-9, "{from_ms}: {distance}");
        }
    }

    #[test]
    fn seeds_are_weighed_by_their_objects() {
        let one = run(vec![cell("red", 100.0, 300), cell("red", 500.0, 100)]);
        let other = run(vec![cell("red", 100.0, 10)]);
        let distance = compare(&one, &other)[0].distance();
        assert_eq!(distance, Some(0.25));
        assert_eq!(compare(&one, &run(vec![cell("red", 0.0, 0)]))[0].distance(), None, "no objects");
    }

    #[test]
    fn what_only_one_run_has_is_named() {
        let one = run(vec![cell("red", 100.0, 50), cell("codel", 0.0, 5)]);
        let mut other = run(vec![cell("red", 100.0, 50), cell("choke", 0.0, 5)]);
        let lacking = unshared(&one, &other);
        assert_eq!(lacking.points, ["B has no paper at 1x, codel", "A has no paper at 1x, choke"]);
        assert_eq!(unshared(&one, &one), Unshared::default());
        "another".clone_into(&mut other.header.experiment);
        other.cells.push(Cell { server: "flooded".to_owned(), ..cell("red", 100.0, 5) });
        assert!(unshared(&one, &other).points[2].contains("another experiment"));
        assert_eq!(unshared(&one, &other).scenarios, ["A has no flooded"]);
    }

    #[test]
    fn claims_of_both_stand_beside_each_other_and_those_of_one_are_counted() {
        let [mut one, mut other] = [0, 1].map(|_| run(vec![cell("red", 100.0, 50)]));
        (one.claims, other.claims) = (testing::claims(), testing::claims());
        other.claims[0].answer = Answer::Fails;
        let text = comparison_table([&one, &other], &compare(&one, &other));
        assert!(text.contains("built-in: after the peak it answers more"), "{text}");
        let line = text.lines().find(|line| line.contains("it answers more")).expect("a line");
        assert!(line.contains("holds") && line.contains("fails"), "{text}");
        assert_eq!(unshared(&one, &other), Unshared::default());
        other.claims.truncate(2);
        other.claims[1].server = "flooded".to_owned();
        let unshared = unshared(&one, &other);
        assert_eq!(
            unshared.claims,
            [
                "B does not answer claims that the other does: 3 of built-in",
                "A does not answer claims that the other does: 1 of flooded"
            ]
        );
    }

    #[test]
    fn marks_of_either_run_and_what_it_lacks_are_said() {
        let (mut one, other) = (run(vec![cell("red", 100.0, 50)]), run(vec![cell("red", 100.0, 50)]));
        one.cells[0].marks = vec!["the link was late".to_owned()];
        one.header.planned = Some(4);
        let text = comparison_table([&one, &other], &compare(&one, &other));
        assert!(text.contains("\n  A, to be read with care: the link was late\n"), "{text}");
        assert!(!text.contains("B, to be read"), "{text}");
        assert!(text.contains("The run ended early: 3 of its 4 cells are missing (75.0%)."), "{text}");
    }

    #[test]
    fn times_that_are_no_numbers_have_no_distance() {
        let mut broken = cell("red", 100.0, 50);
        let link = broken.link.as_mut().expect("a link");
        link.done_by_ms = vec![(f64::NAN, f64::NAN)];
        let (one, other) = (run(vec![broken]), run(vec![cell("red", 100.0, 50)]));
        assert_eq!(compare(&one, &other)[0].distance(), None);
    }

    #[test]
    fn table_has_a_line_for_each_run_and_says_what_the_distance_is() {
        let (one, other) = (run(vec![cell("red", 100.0, 50)]), run(vec![cell("red", 130.0, 50)]));
        let text = comparison_table([&one, &other], &compare(&one, &other));
        assert!(text.contains("0.300") && text.contains("Kolmogorov-Smirnov"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
    }
}
