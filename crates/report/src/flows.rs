//! What becomes of users as the number of bulk flows beside them grows: where one queue discipline
//! makes another unnecessary, and where it does not.

use maud::{Markup, html};
use results::BottleneckSummary;

use crate::format;
use crate::link::{figure, links};
use crate::plot::{Plot, Reading, Scale, Series};
use crate::policy::Policies;
use crate::run::Point;
use crate::spread::Spread;

/// A quantity of users, over the number of flows.
struct OverFlows {
    caption: &'static str,
    y_label: &'static str,
    scale: Scale,
    y_tick: fn(f64) -> String,
    value: fn(&BottleneckSummary) -> Option<f64>,
}

const QUANTITIES: [OverFlows; 2] = [
    OverFlows {
        caption: "Short objects beside bulk flows",
        y_label: "mean time of objects below 10 packets (log axis)",
        scale: Scale::Log,
        y_tick: format::millis_tick,
        value: |link| link.mean_between(1, 10),
    },
    OverFlows {
        caption: "SYNs and SYN/ACKs lost beside bulk flows",
        y_label: "share of those that came to the queue",
        scale: Scale::Linear,
        y_tick: format::percent,
        value: |link| (link.opening > 0).then(|| link.opening_drops as f64 / link.opening as f64),
    },
];

/// Plots over the number of flows of a scenario that has several.
pub(crate) fn over_flows(scenario: &str, points: &[Point], policies: &Policies) -> Markup {
    html! {
        @if has_several(points) {
            @for quantity in &QUANTITIES { (figure(quantity.caption, scenario, quantity.plot(points, policies))) }
        }
    }
}

fn has_several(points: &[Point]) -> bool {
    let mut flows = points.iter().filter_map(flows);
    flows.next().is_some_and(|first| flows.any(|other| other != first))
}

/// Bulk flows of a point; none has no place on a logarithmic axis.
fn flows(point: &Point) -> Option<usize> {
    links(point).map(|link| link.bulk_bytes_per_s.len()).find(|flows| *flows > 0)
}

impl OverFlows {
    fn plot<'a>(&self, points: &[Point<'a>], policies: &Policies<'a>) -> Plot<'a> {
        let mut series: Vec<Series<'a>> = Vec::new();
        for point in points {
            let (Some(flows), Some(spread)) = (flows(point), Spread::of(links(point).filter_map(self.value)))
            else {
                continue;
            };
            let at =
                ((flows as f64).log10(), Some(Reading { spread, is_marked: crate::marks::is_marked(point) }));
            match series.iter_mut().find(|series| series.label == point.policy()) {
                Some(series) => series.points.push(at),
                None => series.push(Series {
                    label: point.policy(),
                    index: policies.index(point.policy()),
                    points: vec![at],
                }),
            }
        }
        Plot {
            title: String::new(),
            x_label: "bulk flows, decimal logarithm",
            y_label: self.y_label,
            scale: self.scale,
            y_tick: self.y_tick,
            series,
            reference: None,
            moment: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use results::Cell;

    use crate::run::Run;
    use crate::testing;

    fn cell(policy: &str, flows: usize, mean_ms: f64) -> Cell {
        let link = results::BottleneckSummary {
            opening: 100,
            opening_drops: 7,
            bulk_bytes_per_s: vec![1e4; flows],
            mean_by_pkts: vec![(1, 5, mean_ms)],
            ..Default::default()
        };
        Cell {
            server: "users".to_owned(),
            policy: policy.to_owned(),
            load: flows as f64,
            link: Some(Box::new(link)),
            ..Cell::default()
        }
    }

    #[test]
    fn scenario_with_several_numbers_of_flows_has_plots_over_them() {
        let cells = [
            ("redfavor", 10, 150.0),
            ("redfavor", 1000, 600.0),
            ("fq-codel", 10, 150.0),
            ("fq-codel", 1000, 4100.0),
        ];
        let mut run = Run {
            cells: cells.map(|(policy, flows, ms)| cell(policy, flows, ms)).into(),
            ..testing::empty()
        };
        let page = crate::page(&run);
        assert!(page.contains("Short objects beside bulk flows"), "the figure");
        assert!(page.contains("SYNs and SYN/ACKs lost beside bulk flows"), "the other");
        run.cells.retain(|cell| cell.load == 10.0);
        assert!(!crate::page(&run).contains("beside bulk flows"), "one number of flows is no axis");
    }
}
