//! Two runs beside each other: on the kernel and in virtual time, or of two kernels.

mod link;
mod page;
mod server;

use crate::claims::{claims_of_one, compared_claims};
use crate::finding::missing;
use crate::format;
use crate::link::with_care;
use crate::run::{Point, Run};
use crate::terminal::wrap;

pub use page::comparison_page;

/// A point that two runs have in common.
#[derive(Debug)]
pub struct Compared<'a> {
    /// Before which server; of a dumbbell, in which scenario.
    pub server: &'a str,
    /// Offered load as a multiple of the saturation rate; of a dumbbell, by what the number of bulk
    /// flows is multiplied.
    pub load: f64,
    /// The policy, or the queue discipline.
    pub policy: &'a str,
    points: [Point<'a>; 2],
}

/// The points that two runs have in common, in the order of the first.
pub fn compare<'a>(one: &'a Run, other: &'a Run) -> Vec<Compared<'a>> {
    let mut compared = Vec::new();
    for server in one.servers() {
        let others = other.points(server);
        for point in one.points(server) {
            let (load, policy) = (point.load(), point.policy());
            let same = others.iter().find(|other| other.load() == load && other.policy() == policy);
            if let Some(same) = same.filter(|same| has_link(same) == has_link(&point)) {
                compared.push(Compared { server, load, policy, points: [point, same.clone()] });
            }
        }
    }
    compared
}

fn has_link(point: &Point<'_>) -> bool {
    point.cells.iter().any(|cell| cell.link.is_some())
}

impl Compared<'_> {
    /// Whether it is of a dumbbell, which has no server.
    pub fn is_link(&self) -> bool {
        has_link(&self.points[0])
    }

    /// What is further apart than this, in words: times of objects by their
    /// [distance](Compared::distance), goodput and mean response before a server by the share of
    /// A's by which B's differ.
    pub fn too_far(&self, most: f64) -> Option<String> {
        if self.is_link() { self.too_distant(most) } else { self.too_different(most) }
    }

    fn name(&self) -> String {
        format!("{} at {}x, {}", self.server, format::multiple(self.load), self.policy)
    }
}

/// What only one of two runs has, a line for each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unshared {
    /// Servers, or scenarios of a dumbbell, as a kernel cannot run all that can be simulated.
    pub servers: Vec<String>,
    /// Points of one that both have; and that they are of one experiment.
    pub points: Vec<String>,
    /// Claims that one answers and the other does not.
    pub claims: Vec<String>,
    /// That both are of one name and not of one file, which may be a matter of a word or of the
    /// server.
    pub file: Option<String>,
}

/// When, where and how a run was measured.
fn about(run: &Run) -> String {
    let of = &run.header.environment;
    let quick =
        if run.header.is_quick { "; a quick run, which shows that all works and no more" } else { "" };
    format!("{}; {}; {}{quick}", run.header.started, of.kernel, of.cpu)
}

/// What is not compared, since only one of the two has it.
pub fn unshared(one: &Run, other: &Run) -> Unshared {
    let mut unshared = Unshared::default();
    for (has, lacks, name) in [(one, other, "B"), (other, one, "A")] {
        unshared.claims.extend(
            claims_of_one(has, lacks)
                .map(|claims| format!("{name} does not answer claims that the other does: {claims}")),
        );
        for server in has.servers() {
            let others = lacks.points(server);
            if others.is_empty() {
                unshared.servers.push(format!("{name} has no {server}"));
                continue;
            }
            for point in has.points(server) {
                let (load, policy) = (point.load(), point.policy());
                let is_there = others.iter().any(|other| other.load() == load && other.policy() == policy);
                if !is_there {
                    let load = format::multiple(load);
                    unshared.points.push(format!("{name} has no {server} at {load}x, {policy}"));
                }
            }
        }
    }
    let [a, b] = [one, other].map(|run| &run.header.experiment);
    if a != b {
        unshared.points.push(format!("A is of {a:?} and B of {b:?}: another experiment"));
    } else if one.header.source != other.header.source {
        unshared.file =
            Some(format!("A and B are of files that differ, both called {a:?}: each stands in its results"));
    }
    unshared
}

/// Neighbouring points of the same server.
fn of_servers<'p, 'a>(
    points: &'p [&'p Compared<'a>],
) -> impl Iterator<Item = (&'a str, &'p [&'p Compared<'a>])> {
    points.chunk_by(|a, b| a.server == b.server).map(|chunk| (chunk[0].server, chunk))
}

/// Both as text for the terminal; `most` is how far apart they may be, if that was asked for.
pub fn comparison_table(runs: [&Run; 2], compared: &[Compared<'_>], most: Option<f64>) -> String {
    let mut text = String::new();
    for (name, run) in ["A", "B"].into_iter().zip(runs) {
        text += &wrap(&format!("{name}: {}, {}", run.header.experiment, about(run)), "   ");
        text += &missing(run).map(|missing| wrap(&format!("   {missing}"), "   ")).unwrap_or_default();
    }
    let (links, servers): (Vec<_>, Vec<_>) = compared.iter().partition(|point| point.is_link());
    if !links.is_empty() {
        text += &link::table(&links);
    }
    for (server, points) in of_servers(&servers) {
        text += &server::table(runs, server, points);
    }
    if !servers.is_empty() {
        text += &wrap(&server::sum(&servers, most), "");
    }
    for (which, name) in ["A, ", "B, "].into_iter().enumerate() {
        let points: Vec<Point<'_>> = compared.iter().map(|point| point.points[which].clone()).collect();
        text += &with_care(&points, name);
    }
    text + &compared_claims(runs)
}

#[cfg(test)]
mod tests {
    use results::{Answer, BottleneckSummary, Cell};

    use super::*;
    use crate::terminal::WIDTH;
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
        assert_eq!(unshared(&one, &other).file, None);
        other.header.experiment.clone_from(&one.header.experiment);
        other.header.source.push_str("backlog = 7");
        assert!(unshared(&one, &other).file.expect("a line").contains("files that differ"));
        assert_eq!(unshared(&one, &other).servers, ["A has no flooded"]);
    }

    #[test]
    fn claims_of_both_stand_beside_each_other_and_those_of_one_are_counted() {
        let [mut one, mut other] = [0, 1].map(|_| run(vec![cell("red", 100.0, 50)]));
        (one.claims, other.claims) = (testing::claims(), testing::claims());
        other.claims[0].answer = Answer::Fails;
        let text = comparison_table([&one, &other], &compare(&one, &other), None);
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
        let (mut one, mut other) = (run(vec![cell("red", 100.0, 50)]), run(vec![cell("red", 100.0, 50)]));
        other.header.is_quick = true;
        "the profile round-numbers".clone_into(&mut other.header.environment.cpu);
        one.cells[0].marks = vec!["the link was late".to_owned()];
        one.header.planned = Some(4);
        let text = comparison_table([&one, &other], &compare(&one, &other), None);
        assert!(text.contains("\n  A, to be read with care: the link was late\n"), "{text}");
        assert!(!text.contains("B, to be read"), "{text}");
        assert_eq!(text.matches("a quick run").count(), 1, "{text}");
        let in_one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(in_one_line.contains("the profile round-numbers"), "a machine is named: {text}");
        assert!(
            text.contains("The run ended early and judges nothing: 3 of its 4 cells are missing (75.0%)."),
            "{text}"
        );
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
        let text = comparison_table([&one, &other], &compare(&one, &other), None);
        assert!(text.contains("0.300") && text.contains("Kolmogorov-Smirnov"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
    }

    /// The demo beside itself, with all rates of the second run by this factor and all times by
    /// that.
    fn scaled(goodput: f64, times: f64) -> Run {
        let mut run = testing::demo();
        for cell in &mut run.cells {
            cell.crowd.goodput_per_s *= goodput;
            cell.crowd.response_ms.mean *= times;
        }
        run
    }

    #[test]
    fn servers_are_as_far_apart_as_their_numbers_are() {
        let one = testing::demo();
        let far = |other: &Run, most| {
            compare(&one, other).iter().filter(|point| point.too_far(most).is_some()).count()
        };
        let points = compare(&one, &one).len();
        assert_eq!(points, one.cells.len(), "each point was measured once");
        assert_eq!(far(&one, 0.0), 0, "a run is where it is");
        assert_eq!((far(&scaled(1.1, 1.0), 0.11), far(&scaled(1.1, 1.0), 0.09)), (0, points));
        assert_eq!((far(&scaled(1.0, 0.8), 0.21), far(&scaled(1.0, 0.8), 0.19)), (0, points));
        let other = scaled(1.1, 0.8);
        let words = compare(&one, &other)[0].too_far(0.05).expect("both are");
        assert!(
            words.contains("goodput/s") && words.contains("(+10%)") && words.contains("(-20%)"),
            "{words}"
        );
    }

    #[test]
    fn nothing_answered_in_one_run_is_at_any_distance_and_in_both_at_none() {
        let one = run(vec![testing::cell("a", 1.0, "stock")]);
        let mut none = one.clone();
        none.cells[0].crowd.goodput_per_s = 0.0;
        none.cells[0].crowd.response_ms = results::LatencySummary::default();
        assert!(compare(&one, &none)[0].too_far(1.0).is_some());
        assert!(compare(&none, &one)[0].too_far(1.0).is_some());
        assert!(compare(&none, &none)[0].too_far(0.0).is_none());
        let text = comparison_table([&none, &none], &compare(&none, &none), Some(0.1));
        assert!(text.contains("Nobody was answered in either run."), "{text}");
    }

    #[test]
    fn table_and_page_have_every_number_of_both_runs_and_how_many_are_within_a_bound() {
        let (one, mut other) = (testing::demo(), scaled(1.1, 1.0));
        other.cells[0].crowd.goodput_per_s *= 2.0;
        let compared = compare(&one, &other);
        let all = 2 * one.cells.len();
        let sum = format!("{} are within 15.0%.", all - 1);
        let text = comparison_table([&one, &other], &compared, Some(0.15));
        let page = comparison_page([&one, &other], &compared, Some(0.15));
        assert!(text.replace('\n', " ").contains(&sum) && page.contains(&sum), "{sum}: {text}");
        for shown in [&text, &page] {
            for cell in one.cells.iter().chain(&other.cells) {
                let [offered, goodput] =
                    [cell.crowd.offered_per_s, cell.crowd.goodput_per_s].map(format::number);
                for number in [offered, goodput, format::millis(cell.crowd.response_ms.mean)] {
                    assert!(shown.contains(&number), "{number}");
                }
            }
            assert!(shown.contains("+10%") && shown.contains("2.20×"));
        }
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
        assert_eq!(page.matches("<figure>").count(), 2 * 2 * 3, "two plots for each policy and server");
    }

    #[test]
    fn page_of_two_runs_loads_nothing_and_escapes_what_tries_to_be_markup() {
        let run = testing::hostile();
        let page = comparison_page([&run, &run], &compare(&run, &run), None);
        for loader in ["src=", "@import", "url(", "<script", "<link", "<iframe", "<img", "<object"] {
            assert!(!page.contains(loader), "{loader}");
        }
        assert!(!page.contains(testing::HOSTILE) && !page.contains("<b onload"));
    }
}
