//! How a cell's counters grew while it ran.

use maud::{Markup, html};
use results::{Cell, Sample};

use crate::attempts::repetition;
use crate::counters::short_name;
use crate::format;
use crate::policy::Policies;
use crate::run::Point;

/// Width and height of a sparkline's view box, pixels.
const SIZE: (f64, f64) = (240.0, 48.0);

/// A quantity of a sample: its name and its value where it was sampled.
type Line = (&'static str, fn(&Sample) -> Option<f64>);

const LINES: [Line; 2] = [
    ("accept queue, connections", |sample| sample.accept_qlen.map(|length| length as f64)),
    ("ListenOverflows since the start", overflows),
];

/// Whether there is anything to draw.
pub(crate) fn has_samples(points: &[Point]) -> bool {
    points.iter().flat_map(|point| &point.cells).any(|cell| !cell.samples.is_empty())
}

/// Sparklines of every cell: the accept queue and ListenOverflows. All of one kind share their axes.
pub(crate) fn growth(points: &[Point], policies: &Policies) -> Markup {
    let cells = || points.iter().flat_map(|point| point.cells.iter().map(move |cell| (point, *cell)));
    let samples = || cells().flat_map(|(_, cell)| &cell.samples);
    let end_ms = samples().map(|sample| sample.at_ms).fold(0.0, f64::max);
    html! {
        p { "From the crowd's start to " (format::millis(end_ms)) ". All sparklines of one kind have the same scale." }
        div.sparks {
            @for (point, cell) in cells() {
                figure.spark {
                    figcaption {
                        (format::multiple(cell.load)) "× " (policies.label(&cell.policy)) (repetition(point, cell))
                    }
                    @for (name, value) in LINES {
                        @let top = samples().filter_map(value).fold(0.0, f64::max);
                        (spark(cell, name, value, end_ms, top))
                    }
                }
            }
        }
    }
}

/// One sparkline; the words below it say its largest value.
fn spark(cell: &Cell, name: &str, value: fn(&Sample) -> Option<f64>, end_ms: f64, top: f64) -> Markup {
    let values: Vec<(f64, f64)> =
        cell.samples.iter().filter_map(|sample| Some((sample.at_ms, value(sample)?))).collect();
    let largest = values.iter().map(|(_, value)| *value).reduce(f64::max);
    let (width, height) = SIZE;
    html! {
        svg.spark viewBox={ "0 0 " (width) " " (height) } preserveAspectRatio="none" aria-hidden="true" {
            polyline points=(outline(&values, end_ms, top)) {}
        }
        small { (name) ": " @if let Some(largest) = largest { "at most " (format::count(largest)) } @else { "not sampled" } }
    }
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

fn overflows(sample: &Sample) -> Option<f64> {
    let mut counters = sample.kernel.iter();
    let (_, value) = counters.find(|(name, _)| short_name(name) == "ListenOverflows")?;
    Some(*value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparkline_stays_within_its_box() {
        let corners = outline(&[(0.0, 0.0), (500.0, 64.0), (1000.0, 128.0)], 1000.0, 128.0);
        assert_eq!(corners, "0.0,46.0 120.0,24.0 240.0,2.0");
    }

    #[test]
    fn all_zero_is_a_flat_line_not_nan() {
        assert_eq!(outline(&[(0.0, 0.0), (10.0, 0.0)], 10.0, 0.0), "0.0,46.0 240.0,46.0");
    }
}
