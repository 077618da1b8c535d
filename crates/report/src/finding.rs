//! The one sentence that says what a run shows.

use crate::burst_map::{self, BurstMap};
use crate::format;
use crate::link;
use crate::marks;
use crate::metric::{GOODPUT, MEAN, Metric, OFFERED};
use crate::run::{Point, Run, STOCK};
use crate::traces;

/// The load at which the finding looks, in multiples of the saturation rate: the overload of the
/// papers' flash crowds.
const LOAD: f64 = 1.5;

/// Results closer than this share of stock's are called the same.
const SAME_WITHIN: f64 = 0.05;

/// One sentence that says what the run shows.
///
/// It is fixed before the run which cells it speaks of: the first server of the file that has
/// cells, stock against the first guarded policy of the file (if that is beside a flood, the first
/// policy beside one without a guard against it), at the load nearest to 1.5 times saturation where
/// both were measured. It says when one of them is missing or marked.
///
/// A run that is quick or ended early judges nothing, and a sentence before it says so.
pub fn finding(run: &Run) -> String {
    let sentences = [quick(run).map(str::to_owned), missing(run), Some(shown(run))];
    sentences.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

fn quick(run: &Run) -> Option<&'static str> {
    run.header.is_quick.then_some("A quick run judges nothing: it only shows that all works.")
}

/// How much of a run is missing.
pub(crate) fn missing(run: &Run) -> Option<String> {
    let (there, planned) = run.part()?;
    let [missing, all] = [planned - there, planned].map(|count| format::count(count as f64));
    let what = if run.traces.is_empty() { "cells" } else { "runs of scripts" };
    let share = format::percent((planned - there) as f64 / planned as f64);
    Some(format!(
        "The run ended early and judges nothing: {missing} of its {all} {what} are missing ({share})."
    ))
}

fn shown(run: &Run) -> String {
    if !run.traces.is_empty() {
        return traces::finding(&run.traces);
    }
    if let Some(finding) = link::finding(run) {
        return finding;
    }
    if let Some(map) = BurstMap::of(run) {
        return burst_map::finding(&map);
    }
    let Some((server, points)) = first_measured(run) else {
        return "The run measured no cells, so it shows nothing yet.".to_owned();
    };
    if let Some(users) = run.saturation(server).and_then(|found| found.users) {
        return most_answered(server, users, &points);
    }
    let guarded = first_policy(&points, |point| point.is_guarded() && point.policy() != STOCK);
    // What is beside a flood is held against the same kernel beside a flood.
    let stock = match guarded.first().is_some_and(|point| point.is_flooded()) {
        true => first_policy(&points, |point| !point.is_guarded() && point.is_flooded()),
        false => points.iter().filter(|point| point.policy() == STOCK).collect(),
    };
    if let Some(sentence) = soonest(server, &points).filter(|_| stock.is_empty() && guarded.is_empty()) {
        return sentence;
    }
    match nearest_pair(&stock, &guarded) {
        Some((stock, guarded)) => compared(server, stock, guarded),
        None => alone(server, &points, &stock, &guarded),
    }
}

type Points<'p, 'a> = Vec<&'p Point<'a>>;

fn first_measured(run: &Run) -> Option<(&str, Vec<Point<'_>>)> {
    let measured = run.servers().into_iter().map(|server| (server, run.points(server)));
    measured.into_iter().find(|(_, points)| !points.is_empty())
}

/// Points of the policy to which the first point with the property belongs.
fn first_policy<'p, 'a>(points: &'p [Point<'a>], has: impl Fn(&Point) -> bool) -> Points<'p, 'a> {
    let policy = points.iter().find(|point| has(point)).map(Point::policy);
    points.iter().filter(|point| Some(point.policy()) == policy && has(point)).collect()
}

/// Stock and guarded at the same load, the nearest to [`LOAD`] that has both.
fn nearest_pair<'p, 'a>(
    stock: &Points<'p, 'a>,
    guarded: &Points<'p, 'a>,
) -> Option<(&'p Point<'a>, &'p Point<'a>)> {
    let at_same_load = |point: &'p Point<'a>| {
        let mut others = guarded.iter().filter(|other| other.load() == point.load());
        Some((point, *others.next()?))
    };
    let pairs = stock.iter().filter_map(|point| at_same_load(point));
    pairs.min_by(|(a, _), (b, _)| distance(a).total_cmp(&distance(b)))
}

fn nearest<'p, 'a>(points: &Points<'p, 'a>) -> Option<&'p Point<'a>> {
    let mut sorted = points.clone();
    sorted.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    sorted.first().copied()
}

fn distance(point: &Point) -> f64 {
    (point.load() - LOAD).abs()
}

/// Stock against guarded.
fn compared(server: &str, stock: &Point, guarded: &Point) -> String {
    let policy = guarded.policy();
    format!(
        "{} {} {} {}; guarded by {policy} it {}{}.",
        at_load(&[stock, guarded]),
        server_name(server),
        under(stock),
        answered(stock),
        answered_in_comparison(stock, guarded),
        care(&[stock, guarded]),
    )
}

/// One policy, because nothing of the other kind was measured at the same load.
fn alone(server: &str, points: &[Point], stock: &Points, guarded: &Points) -> String {
    let any = first_policy(points, |_| true);
    let (points, missing) = match (stock.is_empty(), guarded.is_empty()) {
        (false, true) => (stock, "the run has no guarded policy to compare it with"),
        (true, false) => (guarded, "the run has no stock policy to compare it with"),
        (false, false) => (stock, "the run has no guarded policy at the same load"),
        (true, true) => (&any, "the run has neither stock nor a guarded policy to compare it with"),
    };
    let point = nearest(points).expect("a policy comes from a point");
    format!(
        "{} {} {} {}; {missing}{}.",
        at_load(&[point]),
        server_name(server),
        under(point),
        answered(point),
        care(&[point]),
    )
}

/// The first policy of the file against the one that answers most, in a closed loop of most users.
fn most_answered(server: &str, users: u32, points: &[Point]) -> String {
    let last = points.last().expect("a server that was measured has points");
    let same_load: Points = points.iter().filter(|point| point.load() == last.load()).collect();
    let most =
        same_load.iter().max_by(|one, other| median(&GOODPUT, one).total_cmp(&median(&GOODPUT, other)));
    let (first, most) = (same_load[0], most.expect("the last is one of them"));
    format!(
        "To {} users in a closed loop {} answered {}/s under {}, and most under {}, {}/s{}.",
        format::count(f64::from(users) * last.load()),
        server_name(server),
        format::number(median(&GOODPUT, first)),
        first.policy(),
        most.policy(),
        format::number(median(&GOODPUT, most)),
        care(&[first, most]),
    )
}

/// The first policy of the file against the one that answers soonest, at the first policy's load.
/// `None` where there is nothing to compare.
fn soonest(server: &str, points: &[Point]) -> Option<String> {
    let first = points.first()?;
    let same_load: Points = points.iter().filter(|point| point.load() == first.load()).collect();
    let timed = same_load.iter().filter_map(|point| Some((*point, mean_ms(point)?)));
    let (best, best_ms) = timed.min_by(|(_, one), (_, other)| one.total_cmp(other))?;
    if best.policy() == first.policy() {
        return None;
    }
    Some(format!(
        "Before {} requests took {} on average under {}, and {} under {}, the soonest of {} policies{}.",
        server_name(server),
        format::millis(mean_ms(first)?),
        first.policy(),
        format::millis(best_ms),
        best.policy(),
        same_load.len(),
        care(&[first, best]),
    ))
}

/// `At 1.5 times saturation (medians of 3 repetitions)`.
fn at_load(points: &[&Point]) -> String {
    let load = points[0].load();
    let place = if load == 1.0 {
        "At saturation".to_owned()
    } else {
        format!("At {} times saturation", format::multiple(load))
    };
    let counts = || points.iter().map(|point| point.cells.len());
    match (counts().min(), counts().max()) {
        (_, Some(1) | None) => place,
        (Some(least), Some(most)) if least < most => {
            format!("{place} (medians of {least} to {most} repetitions)")
        }
        (_, Some(most)) => format!("{place} (medians of {most} repetitions)"),
    }
}

fn server_name(server: &str) -> String {
    if server.split_whitespace().last() == Some("server") {
        format!("the {server}")
    } else {
        format!("the {server} server")
    }
}

fn under(point: &Point) -> String {
    match (point.policy(), point.is_guarded()) {
        (STOCK, _) => "under stock Linux".to_owned(),
        (policy, true) => format!("guarded by {policy}"),
        (policy, false) => format!("under {policy}"),
    }
}

/// `answered 17,600 of 34,500 requests/s after 1.04 s on average`.
fn answered(point: &Point) -> String {
    let (goodput, offered) = (median(&GOODPUT, point), median(&OFFERED, point));
    let [goodput_text, offered_text] = [goodput, offered].map(format::number);
    match mean_ms(point) {
        None => format!("answered none of {offered_text} requests/s"),
        Some(mean) if goodput_text == offered_text || goodput > offered => {
            let mean = format::millis(mean);
            format!("answered all that was asked, {goodput_text} requests/s, after {mean} on average")
        }
        Some(mean) => {
            let mean = format::millis(mean);
            format!("answered {goodput_text} of {offered_text} requests/s after {mean} on average")
        }
    }
}

/// `answered 23,100/s after 22.1 ms`, with a word that says which way it went where the numbers
/// could be misread.
fn answered_in_comparison(stock: &Point, guarded: &Point) -> String {
    let (Some(mean), goodput) = (mean_ms(guarded), median(&GOODPUT, guarded)) else {
        return "answered none".to_owned();
    };
    let numbers = format!("{}/s after {}", format::number(goodput), format::millis(mean));
    let more = compare(goodput, median(&GOODPUT, stock));
    let later = mean_ms(stock).map_or(Change::Same, |stock_mean| compare(mean, stock_mean));
    match (more, later) {
        (Change::Same, Change::Same) => format!("did the same within 5%: {numbers}"),
        (Change::Less, Change::Same | Change::More) | (Change::Same, Change::More) => {
            format!("did worse: {numbers}")
        }
        (Change::Less, Change::Less) => format!("answered fewer but sooner: {numbers}"),
        (Change::More, Change::More) => format!("answered more but later: {numbers}"),
        (Change::More, Change::Same | Change::Less) | (Change::Same, Change::Less) => {
            format!("answered {numbers}")
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Less,
    Same,
    More,
}

fn compare(value: f64, reference: f64) -> Change {
    if (value - reference).abs() <= SAME_WITHIN * reference {
        Change::Same
    } else if value < reference {
        Change::Less
    } else {
        Change::More
    }
}

/// Says which of the results are marked.
fn care(points: &[&Point]) -> String {
    let marked: Vec<&str> =
        points.iter().filter(|point| marks::is_marked(point)).map(|point| point.policy()).collect();
    match marked[..] {
        [] => String::new(),
        [policy] => format!(" (read with care: the result of {policy} is marked)"),
        _ => format!(" (read with care: the results of {} are marked)", marked.join(" and ")),
    }
}

fn median(metric: &Metric, point: &Point) -> f64 {
    metric.spread(point, None).map_or(0.0, |spread| spread.median)
}

/// Mean response time in ms; `None` when nothing was answered.
fn mean_ms(point: &Point) -> Option<f64> {
    MEAN.spread(point, None).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, answering, cell, flooded, guarded};
    use results::Cell;

    fn sentence(cells: Vec<Cell>) -> String {
        let sentence = finding(&testing::run(cells));
        assert!(sentence.ends_with('.'), "{sentence}");
        assert_eq!(sentence.matches(". ").count(), 0, "one sentence: {sentence}");
        sentence
    }

    /// Stock answers 17,600/s after 1.04 s; the guard as given, replies/s and ms.
    fn against_stock(goodput: f64, mean_ms: f64) -> String {
        let stock = answering(cell("built-in", 1.5, "stock"), 17_600.0, 1040.0);
        let guard = answering(guarded("built-in", 1.5, "rst-syn"), goodput, mean_ms);
        let sentence = sentence(vec![stock, guard]);
        let stock_part = "At 1.5 times saturation the built-in server under stock Linux answered \
                          17,600 of 34,500 requests/s after 1.04 s on average; guarded by rst-syn it ";
        let rest = sentence.strip_prefix(stock_part);
        rest.unwrap_or_else(|| panic!("{sentence}")).to_owned()
    }

    #[test]
    fn better_guard_is_told_by_its_numbers() {
        assert_eq!(against_stock(23_100.0, 22.0), "answered 23,100/s after 22.0 ms.");
        assert_eq!(against_stock(23_100.0, 1040.0), "answered 23,100/s after 1.04 s.");
        assert_eq!(against_stock(17_600.0, 22.0), "answered 17,600/s after 22.0 ms.");
    }

    #[test]
    fn guard_beside_a_flood_is_held_against_a_kernel_beside_a_flood() {
        let stock = answering(cell("built-in", 0.5, "stock"), 17_600.0, 1.0);
        let flood = answering(flooded("built-in", 0.5, "flood"), 5_000.0, 300.0);
        let guard = Cell { guard: guarded("", 0.0, "").guard, ..flooded("built-in", 0.5, "flood-rst-syn") };
        let sentence = sentence(vec![stock, flood, answering(guard, 7_000.0, 20.0)]);
        let wanted =
            "requests/s after 300 ms on average; guarded by flood-rst-syn it answered 7,000/s after 20.0 ms.";
        assert!(sentence.contains("server under flood answered 5,000 of"), "{sentence}");
        assert!(sentence.ends_with(wanted), "{sentence}");
    }

    #[test]
    fn first_policy_stands_against_the_soonest_where_none_is_stock_or_a_guard() {
        let of = |policy, mean_ms| answering(cell("apache", 1.0, policy), 180.0, mean_ms);
        let all = vec![of("fair", 707.0), of("fq", 500.0), of("srpt", 54.7)];
        let wanted = "Before the apache server requests took 707 ms on average under fair, and 54.7 ms under \
                      srpt, the soonest of 3 policies.";
        assert_eq!(sentence(all), wanted);
        assert!(sentence(vec![of("fair", 1.0), of("srpt", 2.0)]).starts_with("At saturation"));
    }

    #[test]
    fn worse_guard_is_called_worse() {
        assert_eq!(against_stock(9_000.0, 2000.0), "did worse: 9,000/s after 2.00 s.");
        assert_eq!(against_stock(9_000.0, 1040.0), "did worse: 9,000/s after 1.04 s.");
        assert_eq!(against_stock(17_600.0, 2000.0), "did worse: 17,600/s after 2.00 s.");
    }

    #[test]
    fn equal_guard_is_called_the_same() {
        assert_eq!(against_stock(17_700.0, 1000.0), "did the same within 5%: 17,700/s after 1.00 s.");
    }

    #[test]
    fn mixed_result_says_both_sides() {
        assert_eq!(against_stock(9_000.0, 22.0), "answered fewer but sooner: 9,000/s after 22.0 ms.");
        assert_eq!(against_stock(23_000.0, 2000.0), "answered more but later: 23,000/s after 2.00 s.");
    }

    #[test]
    fn guard_that_answers_nothing_says_so() {
        assert_eq!(against_stock(0.0, 0.0), "answered none.");
    }

    #[test]
    fn stock_that_answers_nothing_says_so() {
        let stock = answering(cell("a", 1.5, "stock"), 0.0, 0.0);
        let guard = answering(guarded("a", 1.5, "rst-syn"), 20_000.0, 22.0);
        assert_eq!(
            sentence(vec![stock, guard]),
            "At 1.5 times saturation the a server under stock Linux answered none of 34,500 requests/s; \
             guarded by rst-syn it answered 20,000/s after 22.0 ms."
        );
    }

    #[test]
    fn everything_answered_is_not_called_some_of_it() {
        let stock = answering(cell("demo server", 1.0, "stock"), 23_010.0, 2.0);
        assert_eq!(
            sentence(vec![stock]),
            "At saturation the demo server under stock Linux answered all that was asked, 23,000 requests/s, after \
             2.00 ms on average; the run has no guarded policy to compare it with."
        );
    }

    #[test]
    fn missing_policies_are_named() {
        let stock = || answering(cell("a", 1.5, "stock"), 17_600.0, 1040.0);
        let guard = |load| answering(guarded("a", load, "rst-syn"), 17_600.0, 1040.0);
        let abort = answering(cell("a", 1.5, "abort"), 17_600.0, 1040.0);
        let cases = [
            (vec![stock()], "under stock Linux", "the run has no guarded policy to compare it with."),
            (vec![guard(1.5)], "guarded by rst-syn", "the run has no stock policy to compare it with."),
            (
                vec![stock(), guard(4.0)],
                "under stock Linux",
                "the run has no guarded policy at the same load.",
            ),
            (
                vec![abort],
                "under abort",
                "the run has neither stock nor a guarded policy to compare it with.",
            ),
        ];
        for (cells, subject, missing) in cases {
            let answer = "answered 17,600 of 34,500 requests/s after 1.04 s on average";
            let expected = format!("At 1.5 times saturation the a server {subject} {answer}; {missing}");
            assert_eq!(sentence(cells), expected);
        }
    }

    #[test]
    fn load_nearest_to_one_and_a_half_that_has_both_is_taken() {
        let cells = vec![
            cell("a", 1.5, "stock"),
            cell("a", 1.0, "stock"),
            guarded("a", 1.0, "rst-syn"),
            cell("a", 4.0, "stock"),
            guarded("a", 4.0, "rst-syn"),
        ];
        assert!(sentence(cells).starts_with("At saturation "));
    }

    #[test]
    fn first_server_of_the_file_is_taken() {
        let cells = vec![cell("nginx", 1.5, "stock"), cell("built-in", 1.5, "stock")];
        assert!(sentence(cells).contains("the nginx server"));
    }

    #[test]
    fn first_guarded_policy_of_the_file_is_taken_not_the_best() {
        let cells = vec![
            cell("a", 1.5, "stock"),
            answering(guarded("a", 1.5, "first"), 9_000.0, 2000.0),
            answering(guarded("a", 1.5, "best"), 23_000.0, 2.0),
        ];
        let sentence = sentence(cells);
        assert!(sentence.contains("guarded by first it did worse"), "{sentence}");
        assert!(!sentence.contains("best"), "{sentence}");
    }

    #[test]
    fn repetitions_are_said_to_be_medians() {
        let mut again = guarded("a", 1.5, "rst-syn");
        again.repetition = 1;
        let cells = vec![cell("a", 1.5, "stock"), guarded("a", 1.5, "rst-syn"), again];
        assert!(sentence(cells).starts_with("At 1.5 times saturation (medians of 1 to 2 repetitions) the"));
    }

    #[test]
    fn marked_result_is_said_to_be_marked() {
        let mut guard = guarded("a", 1.5, "rst-syn");
        guard.marks = vec!["late".to_owned()];
        let mut stock = cell("a", 1.5, "stock");
        let one = sentence(vec![stock.clone(), guard.clone()]);
        assert!(one.ends_with(" (read with care: the result of rst-syn is marked)."), "{one}");
        stock.marks = vec!["late".to_owned()];
        let both = sentence(vec![stock, guard]);
        assert!(both.ends_with(" (read with care: the results of stock and rst-syn are marked)."), "{both}");
    }

    #[test]
    fn empty_run_shows_nothing() {
        assert_eq!(sentence(vec![]), "The run measured no cells, so it shows nothing yet.");
    }
}
