//! How a cell's counters grew while it ran.

use maud::{Markup, html};
use results::{Cell, GuardSample, Sample};

use crate::attempts::repetition;
use crate::counters::short_name;
use crate::format;
use crate::policy::Policies;
use crate::run::Point;

/// Width and height of a sparkline's view box, pixels.
const SIZE: (f64, f64) = (240.0, 48.0);

/// A quantity over time: milliseconds since the crowd's start, and its value.
type Values = Vec<(f64, f64)>;
type OfCell = fn(&Cell) -> Values;

/// One kind of sparkline.
struct Line {
    name: &'static str,
    values: OfCell,
    /// Dashed behind it, with its name: what the quantity is held against.
    bound: Option<(&'static str, OfCell)>,
}

/// Of every cell.
const LINES: [Line; 2] = [
    Line {
        name: "accept queue, connections",
        values: |cell| sampled(cell, |sample| sample.accept_qlen.map(|length| length as f64)),
        bound: None,
    },
    Line { name: "ListenOverflows since the start", values: |cell| sampled(cell, overflows), bound: None },
];

/// Of a cell whose guard follows connections into the server.
const WAITING: Line = Line {
    name: "wait for the server, connections",
    values: |cell| said(cell, |sample| sample.counted),
    bound: Some(("limit, dashed", |cell| said(cell, |sample| sample.limit))),
};

/// Whether there is anything to draw.
pub(crate) fn has_samples(points: &[Point]) -> bool {
    points.iter().flat_map(|point| &point.cells).any(|cell| !cell.samples.is_empty())
}

/// Sparklines of every cell: the accept queue, ListenOverflows, and who waits for the server as far
/// as a guard said. All of one kind share their axes.
pub(crate) fn growth(points: &[Point], policies: &Policies) -> Markup {
    let cells = || points.iter().flat_map(|point| point.cells.iter().map(move |cell| (point, *cell)));
    let lines: Vec<(&Line, f64)> =
        LINES.iter().chain([&WAITING]).map(|line| (line, top(line, cells().map(|(_, cell)| cell)))).collect();
    let kernel = cells().flat_map(|(_, cell)| &cell.samples).map(|sample| sample.at_ms);
    let guard = cells().flat_map(|(_, cell)| &cell.guard_samples).map(|sample| sample.at_ms);
    let end_ms = kernel.chain(guard).fold(0.0, f64::max);
    html! {
        p { "From the crowd's start to " (format::millis(end_ms)) ". All sparklines of one kind have the same scale." }
        div.sparks {
            @for (point, cell) in cells() {
                figure.spark {
                    figcaption {
                        (format::multiple(cell.load)) "× " (policies.label(&cell.policy)) (repetition(point, cell))
                    }
                    @for (line, top) in &lines { (spark(cell, line, end_ms, *top)) }
                }
            }
        }
    }
}

/// The largest value of all cells, bounds included.
fn top<'a>(line: &Line, cells: impl Iterator<Item = &'a Cell>) -> f64 {
    let of_cell =
        |cell| [(line.values)(cell), line.bound.map(|(_, bound)| bound(cell)).unwrap_or_default()].concat();
    cells.flat_map(of_cell).map(|(_, value)| value).fold(0.0, f64::max)
}

/// One sparkline; the words below it say its largest value. None of the guard's where it said
/// nothing.
fn spark(cell: &Cell, line: &Line, end_ms: f64, top: f64) -> Markup {
    let values = (line.values)(cell);
    let bound = line.bound.map(|(name, bound)| (name, bound(cell)));
    let (width, height) = SIZE;
    html! {
        @if !values.is_empty() || line.bound.is_none() {
            svg.spark viewBox={ "0 0 " (width) " " (height) } preserveAspectRatio="none" aria-hidden="true" {
                @if let Some((_, bound)) = &bound { polyline.bound points=(outline(bound, end_ms, top)) {} }
                polyline points=(outline(&values, end_ms, top)) {}
            }
            small {
                (line.name) ": " (largest(&values))
                @if let Some((name, bound)) = &bound { "; " (name) ": " (largest(bound)) }
            }
        }
    }
}

fn largest(values: &[(f64, f64)]) -> String {
    let largest = values.iter().map(|(_, value)| *value).reduce(f64::max);
    largest.map_or_else(|| "not sampled".to_owned(), |largest| format!("at most {}", format::count(largest)))
}

fn outline(values: &[(f64, f64)], end_ms: f64, top: f64) -> String {
    let (width, height) = SIZE;
    let place = |value: f64, end: f64| if end > 0.0 { value / end } else { 0.0 };
    let corners = values.iter().map(|(at_ms, value)| {
        let x = place(*at_ms, end_ms) * width;
        let y = height - 2.0 - place(*value, top) * (height - 4.0);
        format!("{x:.1},{y:.1}")
    });
    corners.collect::<Vec<_>>().join(" ")
}

fn sampled(cell: &Cell, value: fn(&Sample) -> Option<f64>) -> Values {
    cell.samples.iter().filter_map(|sample| Some((sample.at_ms, value(sample)?))).collect()
}

fn said(cell: &Cell, value: fn(&GuardSample) -> Option<u64>) -> Values {
    cell.guard_samples.iter().filter_map(|sample| Some((sample.at_ms, value(sample)? as f64))).collect()
}

fn overflows(sample: &Sample) -> Option<f64> {
    let mut counters = sample.kernel.iter();
    let (_, value) = counters.find(|(name, _)| short_name(name) == "ListenOverflows")?;
    Some(*value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn sparkline_stays_within_its_box() {
        let corners = outline(&[(0.0, 0.0), (500.0, 64.0), (1000.0, 128.0)], 1000.0, 128.0);
        assert_eq!(corners, "0.0,46.0 120.0,24.0 240.0,2.0");
    }

    #[test]
    fn all_zero_is_a_flat_line_not_nan() {
        assert_eq!(outline(&[(0.0, 0.0), (10.0, 0.0)], 10.0, 0.0), "0.0,46.0 240.0,46.0");
    }

    #[test]
    fn who_waits_is_drawn_with_its_limit_where_the_guard_said_so() {
        let (silent, mut cell) =
            (testing::guarded("a", 2.0, "rst-syn"), testing::guarded("a", 2.0, "unserved"));
        let sample = |at_ms, counted, limit| GuardSample {
            at_ms,
            counted: Some(counted),
            limit,
            ..GuardSample::default()
        };
        cell.guard_samples = vec![sample(500.0, 20, None), sample(1000.0, 30, Some(40))];
        let points = [Point { cells: vec![&silent] }, Point { cells: vec![&cell] }];
        let drawn = growth(&points, &Policies(vec!["rst-syn", "unserved"])).into_string();
        assert_eq!(drawn.matches("wait for the server").count(), 1, "{drawn}");
        assert!(drawn.contains("connections: at most 30; limit, dashed: at most 40"), "{drawn}");
        assert!(drawn.contains("points=\"120.0,24.0 240.0,13.0\""), "{drawn}");
        assert!(drawn.contains("class=\"bound\" points=\"240.0,2.0\""), "{drawn}");
    }
}
