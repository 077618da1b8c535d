//! Line plots as SVG, one picture for light and dark.
//!
//! Plotters writes colours as attributes. Ours are names, not colours: `#010101` is ink, `#0102NN`
//! series NN; `style.css` gives each its colour in either theme. Pixels are whole numbers there, so
//! a plot is drawn at twice its size.

use std::fmt::Write;
use std::ops::Range;

use plotters::chart::ChartContext;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::spread::Spread;

/// Width and height of a plot's view box, half pixels.
const SIZE: (u32, u32) = (1080, 660);
/// Height of the text, half pixels; plotters divides by 1.24.
const TEXT: f64 = 25.0 * 1.24;
/// Average width of a character of that text, half pixels, generous.
const CHARACTER: u32 = 14;
/// Characters of a label's line; a longer label has several.
const LABEL_CHARACTERS: usize = 16;
/// Distance between two lines of labels, half pixels.
const LABEL_STEP: i32 = 32;
/// Width of the last line that is drawn, and what each before it is wider, so that none hides
/// another, half pixels.
const LINE: u32 = 5;
const WIDER: u32 = 4;
/// What a plot says of a series that has nothing to show.
const NOTHING: &str = "(no answer)";
/// What a plot says of a series that has nothing to show from some load on.
const NOTHING_BEYOND: &str = "(none beyond)";

const INK: RGBColor = RGBColor(1, 1, 1);
const MUTED: RGBColor = RGBColor(1, 1, 2);
const GRID: RGBColor = RGBColor(1, 1, 3);
const SURFACE: RGBColor = RGBColor(1, 1, 4);
const REFERENCE: RGBColor = RGBColor(1, 1, 5);

/// Number of colours that `style.css` knows.
const COLOURS: usize = 6;
/// Number of marker shapes. It shares no factor with [`COLOURS`] but 1, so that pairs repeat late.
const SHAPES: usize = 5;

/// A line plot.
pub(crate) struct Plot<'a> {
    /// What a screen reader says.
    pub title: String,
    /// Label of the horizontal axis, with its unit.
    pub x_label: &'a str,
    /// Label of the vertical axis, with its unit.
    pub y_label: &'a str,
    /// How values go up the vertical axis.
    pub scale: Scale,
    /// How ticks of the vertical axis are shown.
    pub y_tick: fn(f64) -> String,
    /// The lines.
    pub series: Vec<Series<'a>>,
    /// A line to compare with, without points, and its name.
    pub reference: Option<(&'a str, Vec<(f64, f64)>)>,
    /// A vertical line and its name, when it lies within the axis.
    pub moment: Option<(&'a str, f64)>,
}

/// How values go up an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    /// From 0.
    Linear,
    /// Decades; values that are not above 0 are left out.
    Log,
}

/// One line of a plot.
pub(crate) struct Series<'a> {
    /// Name beside its end.
    pub label: &'a str,
    /// Which colour and marker.
    pub index: usize,
    /// From left to right; a missing value breaks the line.
    pub points: Vec<(f64, Option<Reading>)>,
}

/// One point of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    /// Median, drawn as a marker, and range, drawn as a bar.
    pub spread: Spread,
    /// Whether to read it with care: drawn hollow.
    pub is_marked: bool,
}

impl Plot<'_> {
    /// The plot as an `<svg>` element; `None` when it has no value to show.
    pub fn svg(&self) -> Option<String> {
        let axes = Axes::of(self)?;
        let mut body = String::new();
        let root = SVGBackend::with_string(&mut body, SIZE).into_drawing_area();
        self.draw(&root, &axes).expect("writing to a string cannot fail");
        drop(root);
        Some(retitle(&body, &self.title))
    }

    fn draw(&self, root: &Area, axes: &Axes) -> Drawn {
        let mut chart = ChartBuilder::on(root)
            .margin_top(58)
            .margin_left(6)
            .margin_right(self.label_width())
            .x_label_area_size(78)
            .y_label_area_size(axes.y.tick_width(self.y_tick))
            .build_cartesian_2d(axes.x.clone(), axes.y.clone())?;
        self.draw_mesh(&mut chart)?;
        root.draw(&text(self.y_label, (8, 8), HPos::Left, VPos::Top, MUTED))?;
        self.draw_references(root, &mut chart, axes)?;
        for (below, series) in (0..self.series.len()).rev().zip(&self.series) {
            draw_line(&mut chart, series, axes, LINE + WIDER * below.min(4) as u32)?;
        }
        for (below, series) in (0..self.series.len()).rev().zip(&self.series) {
            draw_markers(&mut chart, series, axes, 11 + 3 * below.min(4) as i32)?;
        }
        self.draw_labels(root, &chart, axes)
    }

    fn draw_mesh(&self, chart: &mut Chart) -> Drawn {
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID.stroke_width(2))
            .light_line_style(TRANSPARENT)
            .axis_style(GRID.stroke_width(2))
            .label_style(font().color(&MUTED))
            .axis_desc_style(font().color(&MUTED))
            .set_all_tick_mark_size(8)
            .x_desc(self.x_label)
            .x_label_formatter(&|x| crate::format::tick(*x))
            .y_label_formatter(&|y| (self.y_tick)(*y))
            .draw()
    }

    fn draw_references(&self, root: &Area, chart: &mut Chart, axes: &Axes) -> Drawn {
        let dashed = REFERENCE.stroke_width(3);
        if let Some((_, points)) = &self.reference {
            chart.draw_series([PathElement::new(points.clone(), dashed)])?;
        }
        let Some((name, x)) = self.moment.filter(|(_, x)| axes.x.range.contains(x)) else {
            return Ok(());
        };
        let Range { start, end } = axes.y.range;
        chart.draw_series([PathElement::new(vec![(x, start), (x, end)], dashed)])?;
        let (left, bottom) = chart.backend_coord(&(x, start));
        let at = (left + 10, bottom - 10);
        root.draw(&text(name, at, HPos::Left, VPos::Bottom, MUTED))
    }

    /// Names of the lines at the right, each as near to its line's end as the others let it.
    fn draw_labels(&self, root: &Area, chart: &Chart, axes: &Axes) -> Drawn {
        let mut labels: Vec<Label> =
            self.series.iter().map(|series| Label::of(series, chart, axes)).collect();
        if let Some((name, points)) = &self.reference {
            let end = points.last().map(|end| chart.backend_coord(end));
            labels.extend(end.map(|(_, y)| Label::new(name, None, y)));
        }
        labels.sort_by_key(|label| label.y);
        let (_, plot) = chart.plotting_area().get_pixel_range();
        spread_out(&mut labels, plot.start, plot.end);
        let (columns, _) = chart.plotting_area().get_pixel_range();
        labels.iter().try_for_each(|label| label.draw(root, columns.end))
    }

    fn label_width(&self) -> u32 {
        let labels = self.series.iter().map(|series| series.label);
        let labels = labels.chain(self.reference.iter().map(|(name, _)| *name));
        let lines = labels.flat_map(broken).map(|line| line.chars().count());
        56 + lines.max().unwrap_or(0).max(NOTHING_BEYOND.len()) as u32 * CHARACTER
    }
}

type Backend<'b> = SVGBackend<'b>;
type Area<'b> = DrawingArea<Backend<'b>, Shift>;
type Chart<'b, 'c> = ChartContext<'b, Backend<'c>, Cartesian2d<Axis, Axis>>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Both axes of a plot.
struct Axes {
    x: Axis,
    y: Axis,
}

impl Axes {
    /// Axes that hold every value; `None` when there is none.
    fn of(plot: &Plot) -> Option<Self> {
        let shown = || plot.series.iter().flat_map(|series| &series.points);
        let readings = || shown().filter_map(|(_, reading)| reading.as_ref());
        let x = Spread::of(shown().filter(|(_, reading)| reading.is_some()).map(|(x, _)| *x))?;
        let y = match plot.scale {
            Scale::Linear => {
                let readings = Spread::of(readings().map(|reading| reading.spread.max))?;
                let reference = plot.reference.iter().flat_map(|(_, points)| points);
                let highest = reference.map(|(_, y)| *y).fold(readings.max, f64::max);
                Axis::linear(highest * 1.06)
            }
            Scale::Log => Axis::decades(readings())?,
        };
        let x = Axis::linear(x.max * 1.02);
        Some(Self { x, y })
    }
}

/// Range, ticks and scale of one axis.
#[derive(Debug, Clone)]
struct Axis {
    range: Range<f64>,
    ticks: Vec<f64>,
    scale: Scale,
}

impl Axis {
    /// From 0 to `end`, or to 1 when that is 0.
    fn linear(end: f64) -> Self {
        let end = if end > 0.0 { end } else { 1.0 };
        Self { range: 0.0..end, ticks: linear_ticks(end, 6), scale: Scale::Linear }
    }

    /// Whole decades that hold every reading above 0; `None` when there is none.
    fn decades<'r>(readings: impl Iterator<Item = &'r Reading>) -> Option<Self> {
        let ends = readings.flat_map(|reading| [reading.spread.min, reading.spread.max]);
        let powers = Spread::of(ends.filter(|value| *value > 0.0).map(f64::log10))?;
        let first = powers.min.floor() as i32;
        let last = (powers.max.ceil() as i32).max(first + 1);
        let ticks: Vec<f64> = (first..=last).map(|power| 10_f64.powi(power)).collect();
        Some(Self { range: ticks[0]..ticks[ticks.len() - 1], ticks, scale: Scale::Log })
    }

    /// Whether the axis has a place for the value.
    fn shows(&self, value: f64) -> bool {
        self.scale == Scale::Linear || value > 0.0
    }

    /// Room for the longest tick, half pixels.
    fn tick_width(&self, show: fn(f64) -> String) -> u32 {
        let lengths = self.ticks.iter().map(|tick| show(*tick).chars().count());
        20 + lengths.max().unwrap_or(0) as u32 * CHARACTER
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let place = |value: f64| match self.scale {
            Scale::Linear => value,
            Scale::Log => value.max(self.range.start).log10(),
        };
        let [start, end, value] = [self.range.start, self.range.end, *value].map(place);
        from + ((value - start) / (end - start) * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

/// Round numbers from 0 to `end`, about `count` of them.
fn linear_ticks(end: f64, count: u32) -> Vec<f64> {
    let rough = end / f64::from(count);
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    (0..).map(|index| f64::from(index) * step).take_while(|tick| *tick <= end).collect()
}

fn draw_line(chart: &mut Chart, series: &Series, axes: &Axes, width: u32) -> Drawn {
    let style = colour(series.index).stroke_width(width);
    for run in series.points.split(|(_, reading)| visible(reading, axes).is_none()) {
        let path: Vec<_> =
            run.iter().filter_map(|(x, reading)| Some((*x, reading.as_ref()?.spread.median))).collect();
        chart.draw_series([PathElement::new(path, style)])?;
    }
    Ok(())
}

fn draw_markers(chart: &mut Chart, series: &Series, axes: &Axes, radius: i32) -> Drawn {
    let style = colour(series.index);
    for (x, reading) in &series.points {
        let Some(reading) = visible(reading, axes) else {
            continue;
        };
        if reading.spread.count > 1 {
            let bar = [reading.spread.min, reading.spread.max].map(|y| (*x, y));
            chart.draw_series([PathElement::new(bar.to_vec(), style.stroke_width(3))])?;
        }
        let at = (*x, reading.spread.median);
        let outline = marker(series.index, radius);
        let inside = if reading.is_marked { SURFACE } else { style };
        chart.draw_series([EmptyElement::at(at)
            + Polygon::new(outline.clone(), inside.filled())
            + PathElement::new(closed(outline), style.stroke_width(4))])?;
    }
    Ok(())
}

/// The reading, when the axis can show it.
fn visible<'r>(reading: &'r Option<Reading>, axes: &Axes) -> Option<&'r Reading> {
    let is_shown = |reading: &&Reading| axes.y.shows(reading.spread.median);
    reading.as_ref().filter(is_shown)
}

/// Name of a line and where its end is.
struct Label {
    lines: Vec<String>,
    /// Colour and marker; none for a reference.
    index: Option<usize>,
    /// Height of its first line's centre, half pixels from the top.
    y: i32,
}

impl Label {
    fn new(text: &str, index: Option<usize>, y: i32) -> Self {
        Self { lines: broken(text), index, y }
    }

    /// At the end of the series; at the foot of the plot if it has nothing to show.
    fn of(series: &Series, chart: &Chart, axes: &Axes) -> Self {
        let mut shown = series.points.iter().rev();
        let Some((x, reading)) = shown.find_map(|(x, reading)| Some((*x, visible(reading, axes)?))) else {
            let (_, plot) = chart.plotting_area().get_pixel_range();
            let mut label = Self::new(series.label, Some(series.index), plot.end);
            label.lines.push(NOTHING.to_owned());
            return label;
        };
        let (_, y) = chart.backend_coord(&(x, reading.spread.median));
        let mut label = Self::new(series.label, Some(series.index), y);
        if series.points.last().is_some_and(|(_, last)| visible(last, axes).is_none()) {
            label.lines.push(NOTHING_BEYOND.to_owned());
        }
        label
    }

    /// Half pixels.
    fn height(&self) -> i32 {
        self.lines.len() as i32 * LABEL_STEP
    }

    fn draw(&self, root: &Area, right_end: i32) -> Drawn {
        let colour_of_text = if self.index.is_some() { INK } else { MUTED };
        if let Some(index) = self.index {
            let outline = marker(index, 9);
            root.draw(
                &(EmptyElement::at((right_end + 22, self.y)) + Polygon::new(outline, colour(index).filled())),
            )?;
        }
        for (number, line) in (0..).zip(&self.lines) {
            let at = (right_end + 38, self.y + number * LABEL_STEP);
            root.draw(&text(line, at, HPos::Left, VPos::Center, colour_of_text))?;
        }
        Ok(())
    }
}

/// Moves labels, sorted from the top, so that none overlaps another and as many as can stay within
/// the plot.
fn spread_out(labels: &mut [Label], top: i32, bottom: i32) {
    let mut least = top;
    for label in labels.iter_mut() {
        label.y = label.y.max(least);
        least = label.y + label.height();
    }
    let mut most = bottom + LABEL_STEP;
    for label in labels.iter_mut().rev() {
        label.y = label.y.min(most - label.height());
        most = label.y;
    }
}

/// A label's lines: broken behind a space or a hyphen, and before a plus sign.
fn broken(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, c) in label.char_indices() {
        let end = if c == '+' { at } else { at + c.len_utf8() };
        if " -+".contains(c) && end > start {
            parts.push(&label[start..end]);
            start = end;
        }
    }
    parts.push(&label[start..]);
    for part in parts {
        let line = lines.last_mut().expect("one at least");
        if !line.is_empty() && line.chars().count() + part.trim_end().chars().count() > LABEL_CHARACTERS {
            lines.push(part.to_owned());
        } else {
            line.push_str(part);
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// Colour of a series, by the name that `style.css` knows.
fn colour(index: usize) -> RGBColor {
    RGBColor(1, 2, (index % COLOURS) as u8)
}

/// Outline of a series' marker around the origin.
fn marker(index: usize, radius: i32) -> Vec<(i32, i32)> {
    let r = radius;
    match index % SHAPES {
        0 => (0..16)
            .map(|step| f64::from(step) * std::f64::consts::TAU / 16.0)
            .map(|angle| (angle.cos() * f64::from(r), angle.sin() * f64::from(r)))
            .map(|(x, y)| (x.round() as i32, y.round() as i32))
            .collect(),
        1 => vec![(-r, -r), (r, -r), (r, r), (-r, r)],
        2 => vec![(0, -r - 2), (r + 2, r), (-r - 2, r)],
        3 => vec![(0, -r - 3), (r + 3, 0), (0, r + 3), (-r - 3, 0)],
        _ => vec![(-r - 2, -r), (r + 2, -r), (0, r + 2)],
    }
}

fn closed(mut outline: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
    outline.extend(outline.first().copied());
    outline
}

/// A series' marker alone, for legends and tables: an `<svg>` element of the height of the text.
pub(crate) fn swatch(index: usize) -> String {
    let RGBColor(red, green, blue) = colour(index);
    let points = marker(index, 11).iter().fold(String::new(), |mut points, (x, y)| {
        write!(points, "{x},{y} ").expect("writing to a string cannot fail");
        points
    });
    format!(
        "<svg class=\"swatch\" viewBox=\"-15 -15 30 30\" aria-hidden=\"true\">\
         <polygon fill=\"#{red:02X}{green:02X}{blue:02X}\" points=\"{}\"/></svg>",
        points.trim_end()
    )
}

fn font() -> FontDesc<'static> {
    ("sans-serif", TEXT).into_font()
}

fn text(
    words: &str,
    at: (i32, i32),
    across: HPos,
    along: VPos,
    colour: RGBColor,
) -> Text<'static, (i32, i32), String> {
    let style = font().color(&colour).pos(Pos::new(across, along));
    Text::new(words.to_owned(), at, style)
}

/// Replaces plotters' opening tag: the size comes from the style sheet, the name from us.
fn retitle(body: &str, title: &str) -> String {
    let (_, content) = body.split_once('>').expect("plotters opens an svg element");
    let (width, height) = SIZE;
    let title = maud::html! { (title) }.into_string();
    format!(
        "<svg class=\"plot\" role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {width} {height}\">{content}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(value: f64) -> Option<Reading> {
        let spread = Spread::of([value])?;
        Some(Reading { spread, is_marked: false })
    }

    fn plot<'a>(scale: Scale, points: Vec<(f64, Option<Reading>)>) -> Plot<'a> {
        Plot {
            title: "goodput".to_owned(),
            x_label: "offered load, requests/s",
            y_label: "replies/s",
            scale,
            y_tick: crate::format::tick,
            series: vec![Series { label: "stock", index: 0, points }],
            reference: None,
            moment: None,
        }
    }

    #[test]
    fn nothing_to_show_gives_no_plot() {
        for scale in [Scale::Linear, Scale::Log] {
            assert_eq!(plot(scale, vec![]).svg(), None);
            assert_eq!(plot(scale, vec![(1.0, None)]).svg(), None);
        }
        assert_eq!(plot(Scale::Log, vec![(1.0, reading(0.0))]).svg(), None);
    }

    #[test]
    fn zeros_are_plotted_on_a_linear_axis() {
        assert!(plot(Scale::Linear, vec![(0.0, reading(0.0))]).svg().is_some());
    }

    #[test]
    fn every_colour_has_a_name_in_the_style_sheet() {
        let style = include_str!("style.css");
        let names = [INK, MUTED, GRID, SURFACE, REFERENCE].into_iter().chain((0..COLOURS).map(colour));
        for RGBColor(red, green, blue) in names {
            let name = format!("#{red:02X}{green:02X}{blue:02X}");
            assert!(style.contains(&name), "{name}");
        }
    }

    #[test]
    fn plot_uses_no_colour_that_the_themes_do_not_know() {
        let svg = plot(Scale::Linear, vec![(1.0, reading(1.0)), (2.0, reading(2.0))]).svg().expect("values");
        for (at, _) in svg.match_indices("=\"#") {
            assert!(svg[at + 3..].starts_with("01"), "{}", &svg[at..at + 10]);
        }
    }

    #[test]
    fn missing_value_breaks_the_line() {
        let svg = plot(Scale::Linear, vec![(1.0, reading(1.0)), (2.0, None), (3.0, reading(2.0))])
            .svg()
            .expect("values");
        let lines =
            svg.lines().filter(|line| line.starts_with("<polyline") && line.contains("stroke-width=\"5\""));
        assert_eq!(lines.count(), 2);
    }

    #[test]
    fn log_axis_covers_whole_decades() {
        let readings = [reading(2.0), reading(1040.0)];
        let axis = Axis::decades(readings.iter().flatten()).expect("above 0");
        assert_eq!(axis.ticks, [1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
        assert_eq!(axis.map(&100.0, (0, 400)), 200);
        let axis = Axis::decades([reading(10.0)].iter().flatten()).expect("above 0");
        assert_eq!(axis.range, 10.0..100.0);
    }

    #[test]
    fn ticks_are_round_and_within_the_axis() {
        assert_eq!(linear_ticks(100_000.0, 5), [0.0, 20_000.0, 40_000.0, 60_000.0, 80_000.0, 100_000.0]);
        for end in [0.3, 1.0, 7.0, 23_450.0] {
            let ticks = linear_ticks(end, 5);
            assert!((3..=7).contains(&ticks.len()), "{end}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=end).contains(tick)), "{end}: {ticks:?}");
        }
    }

    #[test]
    fn long_label_is_broken_and_not_cut() {
        for (label, lines) in [
            ("stock", vec!["stock"]),
            ("abort+rst-syn+unserved+burst:10s", vec!["abort+rst-syn", "+unserved", "+burst:10s"]),
            ("a label of several words", vec!["a label of", "several words"]),
        ] {
            assert_eq!(broken(label), lines);
        }
    }

    #[test]
    fn series_without_an_answer_says_so() {
        let mut plot = plot(Scale::Log, vec![(1.0, reading(2.0)), (2.0, reading(3.0))]);
        assert!(!plot.svg().expect("values").contains(NOTHING));
        plot.series.push(Series { label: "abort", index: 1, points: vec![(1.0, None)] });
        let svg = plot.svg().expect("values");
        assert!(svg.contains("abort") && svg.contains(NOTHING), "{svg}");
        plot.series[0].points.push((3.0, None));
        assert!(plot.svg().expect("values").contains(NOTHING_BEYOND));
    }

    #[test]
    fn series_of_the_same_values_are_both_seen() {
        let points = vec![(1.0, reading(2.0)), (2.0, reading(3.0))];
        let mut plot = plot(Scale::Linear, points.clone());
        plot.series.push(Series { label: "abort", index: 1, points });
        let svg = plot.svg().expect("values");
        let widths: Vec<u32> = svg
            .lines()
            .filter(|line| line.starts_with("<polyline") && line.contains("#0102"))
            .filter_map(|line| line.split("stroke-width=\"").nth(1)?.split('"').next()?.parse().ok())
            .filter(|width| *width >= LINE)
            .collect();
        assert_eq!(widths, [LINE + WIDER, LINE], "{svg}");
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut labels: Vec<Label> = [290, 291, 295].map(|y| Label::new("x", None, y)).into();
        spread_out(&mut labels, 0, 300);
        for pair in labels.windows(2) {
            assert!(pair[1].y - pair[0].y >= LABEL_STEP);
        }
        assert!(labels.iter().all(|label| (0..=300).contains(&label.y)));
    }

    #[test]
    fn first_thirty_series_differ_in_colour_or_marker() {
        let mut looks: Vec<_> = (0..30).map(|index| (colour(index).2, marker(index, 9))).collect();
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), 30);
    }
}
