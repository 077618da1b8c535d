//! Where the CPUs spent the time of each point.

use maud::{Markup, html};
use results::CpuShares;

use crate::format;
use crate::policy::Policies;
use crate::results_table::{by_load, load_row};
use crate::run::Point;

/// A kind of time: its name, which is its class in the style sheet too, and its share.
type Kind = (&'static str, fn(&CpuShares) -> f64);

const KINDS: [Kind; 5] = [
    ("user", |cpu| cpu.user),
    ("system", |cpu| cpu.system),
    ("softirq", |cpu| cpu.softirq),
    ("steal", |cpu| cpu.steal),
    ("idle", |cpu| cpu.idle),
];

/// Stacked bars of the server's CPU with their numbers, and how busy the crowd's CPU was.
pub(crate) fn cpu_table(points: &[Point], policies: &Policies) -> Markup {
    html! {
        div.scroll {
            table.cpu {
                thead {
                    tr {
                        th scope="col" { "policy" }
                        th.text scope="col" { "server's CPU, 0 to 100%" }
                        @for (name, _) in KINDS { th scope="col" { span class={ "key " (name) } {} (name) } }
                        th scope="col" { "crowd's CPU" }
                    }
                }
                @for group in by_load(points) {
                    tbody {
                        (load_row(group[0].load(), KINDS.len() + 3))
                        @for point in group { (row(point, policies)) }
                    }
                }
            }
        }
    }
}

fn row(point: &Point, policies: &Policies) -> Markup {
    let server = mean(point.cells.iter().map(|cell| cell.server_cpu));
    // A crowd that is simulated has no CPU.
    let has_crowd = point.cells.iter().any(|cell| !cell.crowd.generator.is_simulated());
    let crowd = mean(point.cells.iter().map(|cell| cell.crowd_cpu));
    html! {
        tr {
            th scope="row" { (policies.label(point.policy())) }
            td.bar { (bar(&server)) }
            @for (_, share) in KINDS { td { (format::percent(share(&server))) } }
            td { (if has_crowd { format::percent(1.0 - crowd.idle) } else { format::NOTHING.to_owned() }) }
        }
    }
}

/// A bar of 100 by 10 units, the kinds in their order from the left.
fn bar(cpu: &CpuShares) -> Markup {
    let mut left = 0.0;
    let parts = KINDS.map(|(class, share)| {
        let width = share(cpu).clamp(0.0, 1.0) * 100.0;
        let start = left;
        left += width;
        (class, start, width)
    });
    html! {
        svg.bar viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" {
            @for (class, start, width) in parts {
                rect class=(class) x=(format!("{start:.2}")) y="0" width=(format!("{width:.2}")) height="10" {}
            }
        }
    }
}

/// Mean of each share: unlike medians, means still sum to one.
fn mean(shares: impl ExactSizeIterator<Item = CpuShares>) -> CpuShares {
    let count = shares.len() as f64;
    shares.fold(CpuShares::default(), |sum, cpu| CpuShares {
        user: sum.user + cpu.user / count,
        system: sum.system + cpu.system / count,
        softirq: sum.softirq + cpu.softirq / count,
        idle: sum.idle + cpu.idle / count,
        steal: sum.steal + cpu.steal / count,
    })
}

#[cfg(test)]
mod tests {
    use results::GeneratorHealth;

    use super::*;
    use crate::run::Run;
    use crate::testing;

    #[test]
    fn mean_of_shares_sums_to_one() {
        let a = CpuShares { user: 0.5, idle: 0.5, ..CpuShares::default() };
        let b = CpuShares { softirq: 0.8, system: 0.1, steal: 0.1, ..CpuShares::default() };
        let mean = mean([a, b].into_iter());
        let sum: f64 = KINDS.iter().map(|(_, share)| share(&mean)).sum();
        assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn simulated_crowd_has_no_cpu() {
        let mut run = testing::demo();
        let page = |run: &Run| cpu_table(&run.points("built-in"), &Policies(run.policies())).into_string();
        let busy = page(&run).matches(format::NOTHING).count();
        for cell in &mut run.cells {
            GeneratorHealth::SIMULATED.clone_into(&mut cell.crowd.generator.receive_mode);
        }
        let rows = run.points("built-in").len();
        assert_eq!((busy, page(&run).matches(format::NOTHING).count()), (0, rows));
    }

    #[test]
    fn bar_stays_within_its_box() {
        let bar = bar(&CpuShares { user: 0.25, idle: 0.75, ..CpuShares::default() }).into_string();
        assert!(bar.contains("x=\"25.00\" y=\"0\" width=\"75.00\""), "{bar}");
    }
}
