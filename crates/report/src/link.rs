//! What the page and the terminal show of a bottleneck.

use maud::{Markup, PreEscaped, html};
use results::{BottleneckSummary, Cell};

use crate::flows::over_flows;
use crate::format;
use crate::marks::Footnotes;
use crate::plot::{Plot, Reading, Scale, Series};
use crate::policy::Policies;
use crate::results_table::by_load;
use crate::run::{Point, Run};
use crate::spread::Spread;
use crate::terminal::{headed, wrap};

/// One quantity of a bottleneck.
pub(crate) struct Column {
    pub heading: &'static str,
    definition: &'static str,
    format: fn(f64) -> String,
    value: fn(&BottleneckSummary) -> Option<f64>,
}

pub(crate) const COLUMNS: [Column; 9] = [
    Column {
        heading: "use",
        definition: "Share of the measured window in which the bottleneck sent something.",
        format: format::percent,
        value: |link| Some(link.utilisation),
    },
    Column {
        heading: "queue",
        definition: "Mean length of its queue over time, packets.",
        format: format::number,
        value: |link| Some(link.queue_pkts),
    },
    Column {
        heading: "drops",
        definition: "Packets that the queue dropped, those of a flood left out.",
        format: format::count,
        value: |link| Some(link.drops as f64),
    },
    Column {
        heading: "of packets",
        definition: "The same as a share of the packets that came to it.",
        format: format::percent,
        value: BottleneckSummary::drop_share,
    },
    Column {
        heading: "SYN drops",
        definition: "Of the drops, SYNs and SYN/ACKs.",
        format: format::count,
        value: |link| Some(link.opening_drops as f64),
    },
    Column {
        heading: "objects",
        definition: "Objects that were asked for in the window and came.",
        format: format::count,
        value: |link| Some(link.objects_done as f64),
    },
    Column {
        heading: "< 10 packets",
        definition: "Mean time of objects of fewer than 10 packets, from the client's first SYN to the last byte.",
        format: format::millis,
        value: |link| link.mean_between(1, 10),
    },
    Column {
        heading: ">= 100",
        definition: "The same of objects of 100 packets and more.",
        format: format::millis,
        value: |link| link.mean_between(100, u32::MAX),
    },
    Column {
        heading: "bulk MB/s",
        definition: "What the receivers of all bulk flows got in order, megabytes per second.",
        format: format::number,
        value: |link| Some(link.bulk_bytes_per_s.iter().sum::<f64>() / 1e6),
    },
];

impl Column {
    fn spread(&self, point: &Point) -> Option<Spread> {
        Spread::of(links(point).filter_map(|link| (self.value)(link)))
    }

    pub fn show(&self, point: &Point) -> String {
        self.spread(point).map_or_else(|| format::NOTHING.to_owned(), |spread| (self.format)(spread.median))
    }
}

pub(crate) fn links<'a>(point: &Point<'a>) -> impl Iterator<Item = &'a BottleneckSummary> {
    point.cells.iter().filter_map(|cell| cell.link.as_deref())
}

/// Whether a scenario's cells are of a bottleneck.
pub(crate) fn is_link(cells: &[Cell], scenario: &str) -> bool {
    cells.iter().any(|cell| cell.server == scenario && cell.link.is_some())
}

/// The section of a scenario.
pub(crate) fn link_section(run: &Run, scenario: &str, policies: &Policies) -> Markup {
    let points = run.points(scenario);
    let most = points.iter().map(|point| point.cells.len()).max().unwrap_or(0);
    let footnotes = Footnotes::of(&points);
    html! {
        section {
            h2 { "Scenario: " (scenario) }
            (policies.legend())
            div.plots {
                (over_flows(scenario, &points, policies))
                @for group in by_load(&points) { (distribution(scenario, group, policies)) (by_size(scenario, group, policies)) }
            }
            h3 { "Results" }
            @if most > 1 { p { "Each number is the median of " (most) " seeds; below it their range, where they differ." } }
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "queue" }
                            th scope="col" title="By what the number of bulk flows is multiplied." { "load" }
                            @for column in &COLUMNS { th scope="col" title=(column.definition) { (column.heading) } }
                        }
                    }
                    tbody { @for point in &points { (row(point, policies)) } }
                }
            }
            @if footnotes.iter().next().is_some() {
                p { "To be read with care:" }
                ul { @for (_, mark) in footnotes.iter() { li { (mark) } } }
            }
            dl.glossary { @for column in &COLUMNS { dt { (column.heading) } dd { (column.definition) } } }
        }
    }
}

fn row(point: &Point, policies: &Policies) -> Markup {
    html! {
        tr {
            th scope="row" { (policies.label(point.policy())) }
            td { (format::multiple(point.load())) "×" }
            @for column in &COLUMNS {
                td {
                    (column.show(point))
                    @if let Some(range) = column.spread(point).and_then(|spread| spread.range(column.format)) {
                        br; small { (range) }
                    }
                }
            }
        }
    }
}

/// Longest time that the plot of the distribution shows, seconds: beyond the second SYN of the
/// papers' systems.
const SHOWN_S: f64 = 8.0;
/// Between the points that are drawn, milliseconds.
const EVERY_MS: f64 = 100.0;

fn distribution(scenario: &str, points: &[Point], policies: &Policies) -> Markup {
    let of_point = |point: &Point| -> Vec<(f64, Option<Reading>)> {
        let steps = links(point).map(|link| link.done_by_ms.len()).min().unwrap_or(0);
        let at = |step: usize| {
            let spread = Spread::of(links(point).map(|link| link.done_by_ms[step].1))?;
            let ms = links(point).next()?.done_by_ms[step].0;
            let is_drawn = ms <= SHOWN_S * 1e3 && ms % EVERY_MS == 0.0;
            is_drawn.then_some((ms / 1e3, Some(Reading { spread, is_marked: false })))
        };
        (0..steps).filter_map(at).collect()
    };
    let y_label = "share of objects that had come";
    figure(
        &caption("Time of objects", points),
        scenario,
        Plot {
            y_tick: format::percent,
            ..plot("time since the first SYN, s", y_label, of_point, points, policies)
        },
    )
}

/// Decades of sizes on the horizontal axis.
fn by_size(scenario: &str, points: &[Point], policies: &Policies) -> Markup {
    let of_point = |point: &Point| -> Vec<(f64, Option<Reading>)> {
        let mut sizes: Vec<u32> =
            links(point).flat_map(|link| link.mean_by_pkts.iter().map(|(pkts, ..)| *pkts)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let at = |pkts: u32| {
            let spread = Spread::of(links(point).filter_map(|link| link.mean_between(pkts, pkts + 1)))?;
            Some((f64::from(pkts).log10(), Some(Reading { spread, is_marked: false })))
        };
        sizes.into_iter().filter_map(at).collect()
    };
    let y_label = "mean time (log axis)";
    let plot = plot("size, decimal logarithm of packets", y_label, of_point, points, policies);
    figure(
        &caption("Mean time by size", points),
        scenario,
        Plot { scale: Scale::Log, y_tick: format::millis_tick, ..plot },
    )
}

fn caption(what: &str, points: &[Point]) -> String {
    let load = points.first().map_or(1.0, Point::load);
    if load == 1.0 { what.to_owned() } else { format!("{what} at {}×", format::multiple(load)) }
}

pub(crate) fn plot<'a>(
    x_label: &'a str,
    y_label: &'a str,
    of_point: impl Fn(&Point) -> Vec<(f64, Option<Reading>)>,
    points: &[Point<'a>],
    policies: &Policies<'a>,
) -> Plot<'a> {
    let series = |point: &Point<'a>| Series {
        label: point.policy(),
        index: policies.index(point.policy()),
        points: of_point(point),
    };
    Plot {
        title: String::new(),
        x_label,
        y_label,
        scale: Scale::Linear,
        y_tick: format::tick,
        series: points.iter().map(series).filter(|series| !series.points.is_empty()).collect(),
        reference: None,
        moment: None,
    }
}

pub(crate) fn figure(caption: &str, scenario: &str, mut plot: Plot) -> Markup {
    plot.title = format!("{caption} of {scenario}; the numbers are in the file of results");
    html! {
        @if let Some(svg) = plot.svg() {
            figure { figcaption { (caption) } (PreEscaped(svg)) }
        }
    }
}

/// A scenario as text for the terminal.
pub(crate) fn link_text(run: &Run, scenario: &str) -> String {
    let points = run.points(scenario);
    let most = points.iter().map(|point| point.cells.len()).max().unwrap_or(0);
    let headings = ["load", "queue"].into_iter().chain(COLUMNS.iter().map(|column| column.heading));
    let mut grid = headed(headings, 2..COLUMNS.len() + 2);
    for point in &points {
        let mut row = vec![format!("{}×", format::multiple(point.load())), point.policy().to_owned()];
        row.extend(COLUMNS.iter().map(|column| column.show(point)));
        grid.add_row(row);
    }
    let seeds = if most == 1 { "1 seed".to_owned() } else { format!("median of {most} seeds") };
    let text = format!("{scenario}: {seeds}\n{}\n", grid.trim_fmt());
    text + &with_care(&points, "")
}

/// The marks of points, a line for each; `of` says whose they are, where that is not plain.
pub(crate) fn with_care(points: &[Point], of: &str) -> String {
    let line = |mark: &str| wrap(&format!("  {of}to be read with care: {mark}"), "    ");
    Footnotes::of(points).iter().map(|(_, mark)| line(mark)).collect()
}

/// The sentence for a run with bottlenecks: of its first scenario at its first load.
pub(crate) fn finding(run: &Run) -> Option<String> {
    let scenario = run.servers().into_iter().find(|server| is_link(&run.cells, server))?;
    let points = run.points(scenario);
    let first = by_load(&points).next()?;
    let each = first.iter().map(|point| {
        let [used, drops, opening] = [0, 2, 4].map(|column| COLUMNS[column].show(point));
        format!(
            "{} used {used} of the link and dropped {drops} packets, {opening} of them SYNs or SYN/ACKs",
            point.policy()
        )
    });
    Some(format!("In the scenario {scenario} {}.", each.collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::WIDTH;
    use crate::testing;

    fn cell(policy: &str, drops: u64) -> Cell {
        let link = BottleneckSummary {
            utilisation: 0.968,
            packets: 1000,
            drops,
            opening_drops: 7,
            objects_done: 10,
            done_by_ms: (1..=400).map(|step| (f64::from(step) * 50.0, f64::from(step) / 400.0)).collect(),
            mean_by_pkts: vec![(1, 5, 40.0), (10, 4, 80.0), (100, 1, 900.0)],
            bulk_bytes_per_s: vec![1e5, 2e5],
            ..BottleneckSummary::default()
        };
        testing::link_cell(policy, link)
    }

    fn run() -> Run {
        Run { cells: vec![cell("red", 123), cell("redfavor", 45)], ..testing::empty() }
    }

    #[test]
    fn bottleneck_has_a_section_a_table_and_a_sentence_of_its_own() {
        let run = run();
        let page = crate::page(&run);
        assert!(page.contains("Scenario: paper") && !page.contains("Server: paper"), "no server's section");
        assert_eq!(page.matches("<figure>").count(), 2);
        for shown in ["96.8%", "12.3%", "900 ms", "0.300"] {
            assert!(page.contains(shown), "{shown}");
        }
        let text = crate::table(&run);
        assert!(text.starts_with("paper: 1 seed\n") && text.contains("redfavor"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
        let said = crate::finding(&run);
        assert!(said.contains("red used 96.8% of the link and dropped 123 packets, 7 of them"), "{said}");
    }
}
