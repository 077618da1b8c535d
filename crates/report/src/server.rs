//! What the page shows of one server.

use maud::{Markup, PreEscaped, html};
use results::{PathSummary, Saturation};

use crate::attempts::{causes_table, health_table, syns_table};
use crate::counters::{guard_table, kernel_tables, path_table};
use crate::cpu::cpu_table;
use crate::format;
use crate::growth::{growth, has_samples};
use crate::link::{is_link, link_section};
use crate::marks;
use crate::metric::{MEAN, Metric, P99, STEADY_GOODPUT, STEADY_OFFERED, SYNS};
use crate::plot::{Plot, Reading, Scale, Series};
use crate::policy::Policies;
use crate::results_table::results_table;
use crate::run::{Point, Run};
use crate::spread::Spread;

const OFFERED_AXIS: &str = "offered load, requests/s";
const USERS_AXIS: &str = "users in a closed loop";

/// The section of a server: saturation, plots, results and what lies behind them; or of a scenario,
/// where a bottleneck is in its place.
///
/// `number` makes its anchors unique on the page.
pub(crate) fn section(run: &Run, server: &str, policies: &Policies, number: usize) -> Markup {
    if is_link(&run.cells, server) {
        link_section(run, server, policies)
    } else {
        server_section(run, server, policies, number)
    }
}

fn server_section(run: &Run, server: &str, policies: &Policies, number: usize) -> Markup {
    let points = run.points(server);
    let saturation = run.saturation(server);
    let rate = saturation.and_then(Saturation::rate);
    html! {
        section {
            h2 { "Server: " (server) }
            (found(saturation))
            @if let Some(way) = way(&points) { p { "Its " (way) "." } }
            @if points.is_empty() {
                p { "No cells were measured for this server." }
            } @else {
                (policies.legend())
                div.plots { (plots(server, &points, policies, rate, saturation.and_then(|found| found.users))) }
                h3 { "Results" }
                (repetitions(&points))
                (results_table(&points, policies, rate, &format!("mark-{number}")))
                h3 { "Where the CPU went" }
                (cpu_table(&points, policies))
                h3 { "Behind the numbers" }
                (behind(&points, policies, rate, number))
            }
            (probes(server, saturation))
        }
    }
}

/// Its results, and no more.
pub(crate) fn numbers(run: &Run, server: &str, policies: &Policies, number: usize) -> Markup {
    let rate = run.saturation(server).and_then(Saturation::rate);
    results_table(&run.points(server), policies, rate, &format!("mark-{number}"))
}

fn found(saturation: Option<&Saturation>) -> Markup {
    html! {
        p.saturation {
            @match saturation {
                Some(Saturation { users: Some(users), .. }) => {
                    "A load of 1 is " strong { (users) " users" } " in a closed loop, who ask again when they are answered."
                }
                Some(saturation) => {
                    "Saturates at " strong { (format::number(saturation.rate_per_s)) " requests/s" }
                    ", the most that stock Linux held for as long as a cell is measured; found by " (probe_count(saturation)) "."
                    @for mark in &saturation.marks { " Read with care: " (mark) "." }
                }
                None => "Its saturation rate was not found, so goodput has no peak to be compared with.",
            }
        }
    }
}

/// How far its clients are, where they are far away.
pub(crate) fn way(points: &[Point]) -> Option<String> {
    let path = points.iter().flat_map(|point| &point.cells).find_map(|cell| cell.path.as_ref())?;
    let PathSummary { to_server, to_clients, .. } = &**path;
    Some(if to_server == to_clients {
        format!("clients are behind a path each way: {to_server}")
    } else {
        format!("clients are behind a path to the server: {to_server}; and back: {to_clients}")
    })
}

fn probe_count(saturation: &Saturation) -> String {
    match saturation.probes.len() {
        1 => "1 probe".to_owned(),
        count => format!("{count} probes"),
    }
}

fn repetitions(points: &[Point]) -> Markup {
    let most = points.iter().map(|point| point.cells.len()).max().unwrap_or(0);
    html! {
        @if most > 1 {
            p { "Each number is the median of " (most) " repetitions; below it their range, smallest to largest, where they differ." }
        }
    }
}

fn plots(
    server: &str,
    points: &[Point],
    policies: &Policies,
    rate: Option<f64>,
    users: Option<u32>,
) -> Markup {
    let ideal = rate.map(|rate| ("ideal", ideal(rate, most_offered(points))));
    let line = |metric, y_label, scale, y_tick| Plot {
        title: String::new(),
        x_label: if users.is_some() { USERS_AXIS } else { OFFERED_AXIS },
        y_label,
        scale,
        y_tick,
        series: series(points, policies, metric, users),
        reference: None,
        moment: rate.map(|rate| ("saturation", rate)),
    };
    let goodput =
        Plot { reference: ideal, ..line(&STEADY_GOODPUT, "goodput, replies/s", Scale::Linear, format::tick) };
    let mean = line(&MEAN, "mean response time (log axis)", Scale::Log, format::millis_tick);
    let p99 = line(&P99, "99th percentile response time (log axis)", Scale::Log, format::millis_tick);
    let syns = line(&SYNS, "SYNs per attempt", Scale::Linear, format::tick);
    html! {
        (figure("Goodput", server, goodput))
        (figure("Mean response time", server, mean))
        (figure("99th percentile of response time", server, p99))
        (figure("SYNs per attempt", server, syns))
    }
}

/// The largest offered load of the points, per second.
fn most_offered(points: &[Point]) -> f64 {
    let medians = points.iter().filter_map(|point| STEADY_OFFERED.spread(point, None));
    medians.map(|spread| spread.median).fold(0.0, f64::max)
}

/// A server that answers everything up to saturation and as much beyond it.
fn ideal(rate: f64, end: f64) -> Vec<(f64, f64)> {
    let knee = rate.min(end);
    vec![(0.0, 0.0), (knee, knee), (end, knee)]
}

pub(crate) fn figure(caption: &str, server: &str, mut plot: Plot) -> Markup {
    plot.title =
        format!("{caption} of {server} against offered load; the numbers are in the table of results");
    html! {
        figure {
            figcaption { (caption) }
            @match plot.svg() {
                Some(svg) => (PreEscaped(svg)),
                None => p.hint { "Nothing to plot." },
            }
        }
    }
}

fn series<'a>(
    points: &[Point<'a>],
    policies: &Policies<'a>,
    metric: &Metric,
    users: Option<u32>,
) -> Vec<Series<'a>> {
    let of_policy = |policy: &str| {
        let own = points.iter().filter(|point| point.policy() == policy);
        own.filter_map(|point| {
            let x = match users {
                Some(users) => point.load() * f64::from(users),
                None => STEADY_OFFERED.spread(point, None)?.median,
            };
            Some((x, reading(point, metric)))
        })
        .collect()
    };
    let all = policies.0.iter().enumerate().map(|(index, policy)| Series {
        label: policy,
        index,
        points: of_policy(policy),
    });
    all.filter(|series| !series.points.is_empty()).collect()
}

pub(crate) fn reading(point: &Point, metric: &Metric) -> Option<Reading> {
    Some(Reading { spread: metric.spread(point, None)?, is_marked: marks::is_marked(point) })
}

/// All that is folded away.
fn behind(points: &[Point], policies: &Policies, rate: Option<f64>, number: usize) -> Markup {
    let single: Vec<Point> = each_alone(points);
    html! {
        @if single.len() > points.len() {
            (folded("Every repetition by itself", results_table(&single, policies, rate, &format!("mark-{number}-each"))))
        }
        (folded("Where every attempt ended", causes_table(points, policies)))
        (folded("How many SYNs the attempts sent that ended in the window", syns_table(points, policies)))
        (folded("Kernel counters, growth over the window", kernel_tables(points, policies)))
        @if points.iter().any(Point::is_guarded) {
            (folded("Guard counters, warm-up included", guard_table(points, policies)))
        }
        @if way(points).is_some() {
            (folded("The way between clients and server, packets in the window", path_table(points, policies)))
        }
        @if has_samples(points) {
            (folded("Accept queue, overflows and who waits over time", growth(points, policies)))
        }
        @if points.iter().flat_map(|point| &point.cells).any(|cell| !cell.crowd.generator.is_simulated()) {
            (folded("The generator's health", health_table(points, policies)))
        }
    }
}

fn each_alone<'a>(points: &[Point<'a>]) -> Vec<Point<'a>> {
    let cells = points.iter().flat_map(|point| &point.cells);
    cells.map(|cell| Point { cells: vec![*cell] }).collect()
}

pub(crate) fn folded(summary: &str, content: Markup) -> Markup {
    html! {
        details { summary { (summary) } (content) }
    }
}

/// The search for saturation: a plot and its numbers.
fn probes(server: &str, saturation: Option<&Saturation>) -> Markup {
    let Some(saturation) = saturation.filter(|saturation| !saturation.probes.is_empty()) else {
        return html! {};
    };
    let end = saturation.probes.iter().map(|(offered, _)| *offered).fold(0.0, f64::max);
    let plot = Plot {
        title: String::new(),
        x_label: OFFERED_AXIS,
        y_label: "goodput, replies/s",
        scale: Scale::Linear,
        y_tick: format::tick,
        series: vec![probe_series(saturation)],
        reference: Some(("ideal", ideal(saturation.rate_per_s, end))),
        moment: Some(("saturation", saturation.rate_per_s)),
    };
    let content = html! {
        div.probes {
            (figure("Probes under stock Linux", server, plot))
            div.scroll {
                table {
                    thead { tr { th scope="col" { "probe" } th scope="col" { "offered/s" } th scope="col" { "goodput/s" } } }
                    tbody {
                        @for (number, (offered, goodput)) in (1..).zip(&saturation.probes) {
                            tr {
                                th scope="row" { (number) }
                                td { (format::number(*offered)) }
                                td { (format::number(*goodput)) }
                            }
                        }
                    }
                }
            }
        }
    };
    folded("How saturation was found", content)
}

fn probe_series(saturation: &Saturation) -> Series<'static> {
    let mut probes = saturation.probes.clone();
    probes.sort_by(|a, b| a.0.total_cmp(&b.0));
    let reading = |goodput| {
        let spread = Spread::of([goodput])?;
        Some(Reading { spread, is_marked: false })
    };
    Series {
        label: "stock",
        index: 0,
        points: probes.into_iter().map(|(offered, goodput)| (offered, reading(goodput))).collect(),
    }
}
