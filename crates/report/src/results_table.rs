//! The table of results of one server.

use maud::{Markup, html};

use crate::format;
use crate::marks::Footnotes;
use crate::metric::{Metric, columns};
use crate::policy::Policies;
use crate::run::Point;

/// Every point and every metric, grouped by load, and below it the text of every mark.
///
/// `anchor` makes the marks' links unique on the page; `rate` is the saturation rate per second.
pub(crate) fn results_table(
    points: &[Point],
    policies: &Policies,
    rate: Option<f64>,
    anchor: &str,
) -> Markup {
    let footnotes = Footnotes::of(points);
    let columns = columns(points.iter().flat_map(|point| point.cells.iter().copied()));
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th scope="col" { "policy" }
                        @for metric in &columns { th scope="col" title=(metric.definition) { (metric.heading) } }
                        th.text scope="col" { "marks" }
                    }
                }
                @for group in by_load(points) {
                    tbody {
                        (load_row(group[0].load(), columns.len() + 2))
                        @for point in group { (row(point, &columns, policies, rate, &footnotes, anchor)) }
                    }
                }
            }
        }
        (mark_list(&footnotes, anchor))
    }
}

/// Neighbouring points of the same load.
pub(crate) fn by_load<'p, 'a>(points: &'p [Point<'a>]) -> impl Iterator<Item = &'p [Point<'a>]> {
    points.chunk_by(|a, b| a.load() == b.load())
}

/// A heading across the table: `1.5 × saturation`.
pub(crate) fn load_row(load: f64, columns: usize) -> Markup {
    html! {
        tr.load { th scope="rowgroup" colspan=(columns) { span { (format::multiple(load)) " × saturation" } } }
    }
}

fn row(
    point: &Point,
    columns: &[&Metric],
    policies: &Policies,
    rate: Option<f64>,
    footnotes: &Footnotes,
    anchor: &str,
) -> Markup {
    let numbers = footnotes.numbers(point);
    html! {
        tr.marked[!numbers.is_empty()] {
            th scope="row" { (policies.label(point.policy())) (alone(point)) }
            @for metric in columns { (cell(metric, point, rate)) }
            td.text {
                @for number in numbers { a.mark href={ "#" (anchor) "-" (number) } { (number) } " " }
            }
        }
    }
}

/// ` #2` for a row that shows the second repetition by itself; a first one shown so bears no
/// number.
fn alone(point: &Point) -> Markup {
    let number = point.cells[0].repetition + 1;
    html! {
        @if point.cells.len() == 1 && number > 1 { span.repetition { " #" (number) } }
    }
}

fn cell(metric: &Metric, point: &Point, rate: Option<f64>) -> Markup {
    html! {
        td {
            (metric.show(point, rate))
            @if let Some(range) = metric.show_range(point, rate) { small.range { (range) } }
        }
    }
}

fn mark_list(footnotes: &Footnotes, anchor: &str) -> Markup {
    html! {
        @if footnotes.iter().next().is_some() {
            div.marks {
                p { strong { "Marks" } " — why a row should be read with care:" }
                ol { @for (number, text) in footnotes.iter() { li id={ (anchor) "-" (number) } { (text) } } }
            }
        }
    }
}
