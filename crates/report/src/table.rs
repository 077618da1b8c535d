//! The results as a table for the terminal.

use results::Saturation;

use crate::burst_map::{BurstMap, maps_text};
use crate::format;
use crate::link::{is_link, link_text};
use crate::marks::Footnotes;
use crate::metric::{
    FAILED, GOODPUT, MEAN, Metric, OF_PEAK, OF_SIZES, OFFERED, P99, REFUSAL, REFUSED, RESET, SYNS,
};
use crate::run::{Point, Run};
use crate::server::way;
use crate::spread::Spread;
use crate::terminal::{headed, wrap};
use crate::traces::traces_text;

/// Headings; the first two and the last hold text, the rest numbers.
const HEADINGS: [&str; 13] = [
    "load", "policy", "offered", "goodput", "of peak", "mean", "p99", "refused", "RST p50", "reset",
    "failed", "SYNs", "marks",
];

/// The results as text for the terminal: one table per server, at most 112 columns wide, its marks
/// below it.
pub fn table(run: &Run) -> String {
    if let Some(map) = BurstMap::of(run) {
        return maps_text(&map);
    }
    let servers: Vec<String> = run.servers().into_iter().map(|server| server_table(run, server)).collect();
    if !run.traces.is_empty() {
        return traces_text(&run.traces);
    }
    if servers.is_empty() {
        return "No servers were measured.\n".to_owned();
    }
    servers.join("\n")
}

fn server_table(run: &Run, server: &str) -> String {
    if is_link(&run.cells, server) {
        return link_text(run, server);
    }
    let points = run.points(server);
    let rate = run.saturation(server).and_then(Saturation::rate);
    let mut text =
        wrap(&title(server, rate, run.saturation(server).and_then(|found| found.users), &points), "");
    if points.is_empty() {
        return text + "No cells were measured.\n";
    }
    let footnotes = Footnotes::of(&points);
    text += &grid(&points, rate, &footnotes);
    text.push('\n');
    if points.iter().flat_map(|point| &point.cells).any(|cell| cell.crowd.sizes.differ()) {
        text += &by_size(&points);
        text.push('\n');
    }
    for (number, mark) in footnotes.iter() {
        text += &wrap(&format!("{number:>3}  {mark}"), "     ");
    }
    text
}

/// Rates are per second in all columns, as the title says.
fn title(server: &str, rate: Option<f64>, users: Option<u32>, points: &[Point]) -> String {
    let saturation = match rate {
        _ if users.is_some() => format!("a load of 1 is {} users", users.unwrap_or_default()),
        Some(rate) => format!("saturation {} requests/s", format::number(rate)),
        None => "saturation not found".to_owned(),
    };
    let numbers = match points.iter().map(|point| point.cells.len()).max() {
        Some(most) if most > 1 => format!("median of {most} repetitions, with their range"),
        _ => "rates per second, SYNs per attempt".to_owned(),
    };
    let way = way(points).map(|way| format!("; {way}")).unwrap_or_default();
    format!("{server}: {saturation}; {numbers}{}{way}", flood(points))
}

/// How fast the spoofed SYNs came that some cells had beside their crowd.
fn flood(points: &[Point]) -> String {
    let cells = points.iter().flat_map(|point| &point.cells);
    let Some(rates) = Spread::of(cells.filter_map(|cell| cell.flood).map(|flood| flood.syns_per_s)) else {
        return String::new();
    };
    format!("; floods of {} to {} SYNs/s", format::number(rates.min), format::number(rates.max))
}

fn grid(points: &[Point], rate: Option<f64>, footnotes: &Footnotes) -> String {
    let mut grid = headed(HEADINGS, 2..HEADINGS.len() - 1);
    grid.column_iter_mut().for_each(|column| {
        column.set_padding((0, 1));
    });
    let mut load = None;
    for point in points {
        let is_first = load.replace(point.load()) != Some(point.load());
        grid.add_row(row(point, is_first, rate, footnotes));
    }
    grid.trim_fmt()
}

/// What matters of replies of different sizes, one line for each point.
fn by_size(points: &[Point]) -> String {
    let headings = ["load", "policy"].into_iter().chain(OF_SIZES.iter().map(|metric| metric.heading));
    let mut grid = headed(headings, 2..2 + OF_SIZES.len());
    let mut load = None;
    for point in points {
        let is_first = load.replace(point.load()) != Some(point.load());
        let load = if is_first { format!("{}×", format::multiple(point.load())) } else { String::new() };
        let numbers = OF_SIZES.iter().map(|metric| metric.show(point, None));
        grid.add_row([load, point.policy().to_owned()].into_iter().chain(numbers));
    }
    grid.trim_fmt()
}

fn row(point: &Point, is_first: bool, rate: Option<f64>, footnotes: &Footnotes) -> Vec<String> {
    let load = if is_first { format!("{}×", format::multiple(point.load())) } else { String::new() };
    let numbers: Vec<String> = footnotes.numbers(point).iter().map(usize::to_string).collect();
    vec![
        load,
        point.policy().to_owned(),
        OFFERED.show(point, rate),
        with_range(&GOODPUT, point, rate),
        OF_PEAK.show(point, rate),
        with_range(&MEAN, point, rate),
        P99.show(point, rate),
        REFUSED.show(point, rate),
        REFUSAL.show(point, rate),
        RESET.show(point, rate),
        FAILED.show(point, rate),
        SYNS.show(point, rate),
        numbers.join(", "),
    ]
}

/// Median, and below it the range over repetitions.
fn with_range(metric: &Metric, point: &Point, rate: Option<f64>) -> String {
    let median = metric.show(point, rate);
    match metric.show_range(point, rate) {
        // Its two ends in two lines: in one they would be broken anywhere.
        Some(range) => format!("{median}\n{}", range.replace('–', "–\n")),
        None => median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::WIDTH;
    use crate::testing;

    fn assert_fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(WIDTH), "too wide: {line}");
        }
    }

    #[test]
    fn lines_fit_the_terminal() {
        for run in [testing::demo(), testing::repeated(), testing::hostile(), testing::empty()] {
            assert_fits(&table(&run));
        }
    }

    #[test]
    fn usual_run_needs_one_line_per_point() {
        let run = testing::demo();
        let text = table(&run);
        let lines = text.lines().filter(|line| line.contains("rst-syn")).count();
        assert_eq!(lines, run.cells.iter().filter(|cell| cell.policy == "rst-syn").count(), "{text}");
    }

    #[test]
    fn long_names_of_policies_take_one_line() {
        let run = testing::run(vec![
            testing::cell("a", 1.5, "stock"),
            testing::guarded("a", 1.5, "reserv-rst-syn"),
        ]);
        assert!(table(&run).contains(" reserv-rst-syn "), "{}", table(&run));
    }

    #[test]
    fn every_point_shows_its_numbers() {
        let run = testing::demo();
        let text = table(&run);
        for server in run.servers() {
            let rate = run.saturation(server).and_then(Saturation::rate);
            for point in run.points(server) {
                for metric in
                    [&OFFERED, &GOODPUT, &OF_PEAK, &MEAN, &P99, &REFUSED, &REFUSAL, &RESET, &FAILED, &SYNS]
                {
                    let value = metric.show(&point, rate);
                    assert!(text.contains(&value), "{} {value} is missing", metric.heading);
                }
            }
        }
    }

    #[test]
    fn every_mark_is_spelled_out_below() {
        let run = testing::demo();
        let text = table(&run).split_whitespace().collect::<Vec<_>>().join(" ");
        for mark in run.cells.iter().flat_map(crate::marks::marks) {
            assert!(text.contains(&mark), "{mark} is missing");
        }
    }

    #[test]
    fn repetitions_show_their_range() {
        let text = table(&testing::repeated());
        assert!(text.contains("median of 3 repetitions"), "{text}");
        assert!(text.contains('–'), "{text}");
    }

    #[test]
    fn empty_run_says_so() {
        assert_eq!(table(&testing::empty()), "No servers were measured.\n");
    }
}
