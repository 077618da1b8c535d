//! Two runs as one page, with both lines in every plot.

use maud::{DOCTYPE, Markup, html};

use super::server::{HEADINGS, row, sum, title};
use super::{Compared, about, of_servers};
use crate::format;
use crate::metric::{GOODPUT, MEAN, Metric, OFFERED};
use crate::page::{circumstances, head, theme_choice};
use crate::plot::{Plot, Reading, Scale, Series};
use crate::run::{Run, distinct};
use crate::server::{figure, folded, reading};

/// One self-contained HTML page of the servers that two runs have in common, as [`crate::page()`]
/// otherwise; `most` is by which share numbers may differ, if that was asked for.
pub fn comparison_page(runs: [&Run; 2], compared: &[Compared<'_>], most: Option<f64>) -> String {
    let points: Vec<&Compared<'_>> = compared.iter().filter(|point| !point.is_link()).collect();
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            (head(&runs[0].header.experiment))
            body {
                (theme_choice())
                main {
                    header {
                        p.eyebrow { "Tidegate · " (runs[0].header.experiment) " · two runs" }
                        h1 { (runs[0].header.title) }
                        p.finding { (sum(&points, most)) }
                        dl.facts { @for (name, run) in ["A", "B"].into_iter().zip(runs) { dt { (name) } dd { (about(run)) } } }
                    }
                    @for (server, points) in of_servers(&points) { (section(runs, server, points)) }
                    @for (name, run) in ["A", "B"].into_iter().zip(runs) {
                        (folded(&format!("Circumstances of {name}"), circumstances(&run.header)))
                    }
                }
            }
        }
    };
    html.into_string()
}

fn section(runs: [&Run; 2], server: &str, points: &[&Compared<'_>]) -> Markup {
    let policies = distinct(points.iter().map(|point| point.policy));
    html! {
        section {
            h2 { "Server: " (server) }
            p { (title(runs, server)) "." }
            p.hint { "Lines are medians, bars the range over repetitions; the table has means. Hollow markers: read with care, see the marks on the run's own page." }
            div.plots {
                @for policy in policies {
                    @for (metric, y_label, scale, y_tick) in [
                        (&GOODPUT, "goodput, replies/s", Scale::Linear, format::tick as fn(f64) -> String),
                        (&MEAN, "mean response time (log axis)", Scale::Log, format::millis_tick),
                    ] {
                        @let plot = Plot {
                            title: String::new(),
                            x_label: "offered load, requests/s",
                            y_label,
                            scale,
                            y_tick,
                            series: series(points, policy, metric),
                            reference: None,
                            moment: None,
                        };
                        (figure(&format!("{policy}: {}", metric.heading), server, plot))
                    }
                }
            }
            (numbers(points))
        }
    }
}

/// A's line and B's.
fn series(points: &[&Compared<'_>], policy: &str, metric: &'static Metric) -> Vec<Series<'static>> {
    let line = |which: usize| -> Vec<(f64, Option<Reading>)> {
        let own = points.iter().filter(|point| point.policy == policy).map(|point| &point.points[which]);
        own.filter_map(|point| Some((OFFERED.spread(point, None)?.median, reading(point, metric)))).collect()
    };
    [("A", 0), ("B", 1)].map(|(label, index)| Series { label, index, points: line(index) }).into()
}

fn numbers(points: &[&Compared<'_>]) -> Markup {
    html! {
        div.scroll {
            table {
                thead { tr { @for heading in HEADINGS { th scope="col" { (heading) } } } }
                tbody {
                    @for point in points {
                        tr {
                            th scope="row" { (format::multiple(point.load)) "×" }
                            td.text { (point.policy) }
                            @for value in row(point) { td { (value) } }
                        }
                    }
                }
            }
        }
    }
}
