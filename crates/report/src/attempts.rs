//! In which cause every attempt ended, and what the generator says of itself.

use maud::{Markup, html};
use results::{Cell, CrowdSummary, GeneratorHealth};

use crate::format;
use crate::policy::Policies;
use crate::results_table::{by_load, load_row};
use crate::run::Point;

/// A heading and what stands under it for one cell.
type Column<T> = (&'static str, fn(&T) -> String);

/// The cohort and its causes; from the third on they sum to the first. The last column is of
/// replies.
const CAUSES: [Column<CrowdSummary>; 13] = [
    ("attempts", |crowd| whole(crowd.offered)),
    ("sent", |crowd| whole(crowd.sent)),
    ("ok", |crowd| whole(crowd.ok)),
    ("refused", |crowd| whole(crowd.refused)),
    ("reset", |crowd| whole(crowd.reset)),
    ("timed out, connect", |crowd| whole(crowd.timed_out_connect)),
    ("timed out, response", |crowd| whole(crowd.timed_out_response)),
    ("aborted", |crowd| whole(crowd.aborted)),
    ("malformed", |crowd| whole(crowd.malformed)),
    ("no port", |crowd| whole(crowd.no_port)),
    ("not sent", |crowd| whole(crowd.not_sent)),
    ("unfinished", |crowd| whole(crowd.unfinished)),
    ("replies not 2xx", |crowd| whole(crowd.statuses.non_2xx().unwrap_or(0))),
];

/// Attempts that ended in the window, by the SYNs that they sent.
const BY_SYNS: [Column<CrowdSummary>; 7] = [
    ("1 SYN", |crowd| by_syns(&crowd.ended_by_syns, 1, 1)),
    ("2", |crowd| by_syns(&crowd.ended_by_syns, 2, 2)),
    ("3", |crowd| by_syns(&crowd.ended_by_syns, 3, 3)),
    ("4 or more", |crowd| by_syns(&crowd.ended_by_syns, 4, usize::MAX)),
    ("ok after 1", |crowd| by_syns(&crowd.answered_by_syns, 1, 1)),
    ("ok after 2", |crowd| by_syns(&crowd.answered_by_syns, 2, 2)),
    ("ok after 3 or more", |crowd| by_syns(&crowd.answered_by_syns, 3, usize::MAX)),
];

const HEALTH: [Column<GeneratorHealth>; 11] = [
    ("limited", |generator| if generator.limited { "yes" } else { "no" }.to_owned()),
    ("late starts", |generator| format::percent(generator.late_share)),
    ("latest start", |generator| format::millis(generator.late_max_ms)),
    ("frames sent", |generator| whole(generator.frames_sent)),
    ("frames received", |generator| whole(generator.frames_received)),
    ("frames lost", |generator| whole(generator.frames_lost)),
    ("CPU", |generator| format::percent(generator.cpu_share)),
    ("busy", |generator| {
        if generator.turns == 0 { format::NOTHING.to_owned() } else { format::percent(generator.busy_share) }
    }),
    ("peak connections", |generator| whole(generator.peak_connections)),
    ("bytes/connection", |generator| whole(generator.bytes_per_connection)),
    ("receive mode", |generator| generator.receive_mode.clone()),
];

/// Where every attempt of the window ended, one row per cell.
pub(crate) fn causes_table(points: &[Point], policies: &Policies) -> Markup {
    cell_table(points, policies, &CAUSES, |cell| &cell.crowd)
}

/// How many SYNs the attempts that ended in the window had sent, one row per cell.
pub(crate) fn syns_table(points: &[Point], policies: &Policies) -> Markup {
    cell_table(points, policies, &BY_SYNS, |cell| &cell.crowd)
}

/// The generator's own health, one row per cell.
pub(crate) fn health_table(points: &[Point], policies: &Policies) -> Markup {
    cell_table(points, policies, &HEALTH, |cell| &cell.crowd.generator)
}

fn cell_table<T>(
    points: &[Point],
    policies: &Policies,
    columns: &[Column<T>],
    part: fn(&Cell) -> &T,
) -> Markup {
    html! {
        div.scroll {
            table {
                thead {
                    tr {
                        th scope="col" { "policy" }
                        @for (heading, _) in columns { th scope="col" { (heading) } }
                    }
                }
                @for group in by_load(points) {
                    tbody {
                        (load_row(group[0].load(), columns.len() + 1))
                        @for point in group { @for cell in &point.cells {
                            tr {
                                th scope="row" { (policies.label(&cell.policy)) (repetition(point, cell)) }
                                @for (_, show) in columns { td { (show(part(cell))) } }
                            }
                        } }
                    }
                }
            }
        }
    }
}

/// ` #2` for the second of several repetitions.
pub(crate) fn repetition(point: &Point, cell: &Cell) -> Markup {
    html! {
        @if point.cells.len() > 1 { span.repetition { " #" (cell.repetition + 1) } }
    }
}

/// The counts of so many SYNs to so many, both included, from 1.
fn by_syns(counts: &[u64], from: usize, to: usize) -> String {
    let within = (1..).zip(counts).filter(|(syns, _)| (from..=to).contains(syns));
    whole(within.map(|(_, count)| count).sum())
}

fn whole(count: u64) -> String {
    format::count(count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ended_attempt_is_in_one_column() {
        let crowd = CrowdSummary { ended_by_syns: vec![1000, 200, 30, 4, 5], ..CrowdSummary::default() };
        let shown: Vec<String> = BY_SYNS[..4].iter().map(|(_, show)| show(&crowd)).collect();
        assert_eq!(shown, ["1,000", "200", "30", "9"]);
    }
}
