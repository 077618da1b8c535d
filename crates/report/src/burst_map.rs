//! Where, over lengths of bursts and gaps, one policy does better than another: a heat map, and the
//! crossover in it.

use maud::{Markup, html};
use results::BurstLengths;

use crate::format;
use crate::marks::is_marked;
use crate::metric::{GOODPUT, MEAN, Metric};
use crate::run::{Point, Run};
use crate::terminal::{headed, wrap};

/// One server before crowds of many bursts and gaps, under policies at one load.
pub(crate) struct BurstMap<'a> {
    /// Bursts, seconds, rising.
    on: Vec<f64>,
    /// Gaps, seconds, rising.
    off: Vec<f64>,
    /// For each burst, for each gap: its points.
    points: Vec<Vec<Vec<Point<'a>>>>,
    policies: Vec<&'a str>,
    loads: Vec<f64>,
}

/// One number for each burst and gap, and who is compared.
pub(crate) struct Compared<'m> {
    map: &'m BurstMap<'m>,
    metric: &'static Metric,
    policy: &'m str,
    /// The one that it is held against; the best of all others if there is none.
    against: Option<&'m str>,
    load: f64,
}

/// From which burst on a policy does as well as another, at one length of gaps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Crossover {
    /// At the shortest already.
    Always,
    /// Not even at the longest.
    Never,
    /// From there on, seconds; between two that were measured as a straight line over the logarithm
    /// of the burst has it.
    From(f64),
    /// Something is missing.
    Unknown,
}

impl<'a> BurstMap<'a> {
    /// The maps of a run: each of a server for every pair of two bursts and two gaps or more.
    pub fn of(run: &'a Run) -> Option<Self> {
        let pairs: Vec<(BurstLengths, &str)> = run
            .saturations
            .iter()
            .filter_map(|saturation| Some((saturation.bursts?, saturation.server.as_str())))
            .collect();
        let on = rising(pairs.iter().map(|(lengths, _)| lengths.on_s));
        let off = rising(pairs.iter().map(|(lengths, _)| lengths.off_s));
        if on.len() < 2
            || off.len() < 2
            || pairs.len() != on.len() * off.len()
            || pairs.len() != run.servers().len()
        {
            return None;
        }
        let server = |on_s: f64, off_s: f64| {
            pairs
                .iter()
                .find(|(lengths, _)| *lengths == BurstLengths { on_s, off_s })
                .map(|(_, server)| *server)
        };
        let mut points = Vec::new();
        for on_s in &on {
            let row: Option<Vec<_>> =
                off.iter().map(|off_s| server(*on_s, *off_s).map(|server| run.points(server))).collect();
            points.push(row?);
        }
        let loads = rising(run.cells.iter().map(|cell| cell.load));
        let policies = run.policies();
        (policies.len() > 1).then_some(Self { on, off, points, policies, loads })
    }

    /// Every policy against the first, and the last against the best of all others, at each load.
    pub fn compared(&self) -> impl Iterator<Item = Compared<'_>> {
        let (first, rest) = self.policies.split_first().expect("two or more");
        let last = (rest.len() > 1).then(|| (rest[rest.len() - 1], None));
        let pairs: Vec<_> = rest.iter().map(|policy| (*policy, Some(*first))).chain(last).collect();
        self.loads.iter().flat_map(move |load| {
            let pairs = pairs.clone();
            pairs.into_iter().flat_map(move |(policy, against)| {
                [&GOODPUT, &MEAN].map(|metric| Compared { map: self, metric, policy, against, load: *load })
            })
        })
    }

    fn point(&self, row: usize, column: usize, policy: &str, load: f64) -> Option<&Point<'a>> {
        self.points[row][column].iter().find(|point| point.policy() == policy && point.load() == load)
    }
}

impl Compared<'_> {
    fn is_goodput(&self) -> bool {
        std::ptr::eq(self.metric, &raw const GOODPUT)
    }

    fn value(&self, row: usize, column: usize, policy: &str) -> Option<f64> {
        let point = self.map.point(row, column, policy, self.load)?;
        self.metric.spread(point, None).map(|spread| spread.median)
    }

    /// How many times the other's.
    fn ratio(&self, row: usize, column: usize) -> Option<f64> {
        let others = self.map.policies.iter().filter(|other| match self.against {
            Some(against) => **other == against,
            None => **other != self.policy,
        });
        let values = others.map(|other| self.value(row, column, other)).collect::<Option<Vec<f64>>>()?;
        let best = match self.is_goodput() {
            true => values.into_iter().fold(0.0, f64::max),
            false => values.into_iter().fold(f64::INFINITY, f64::min),
        };
        Some(self.value(row, column, self.policy)? / best).filter(|ratio| !ratio.is_nan())
    }

    /// Of a burst and a gap, as a table has it; a star where a cell of either is marked.
    fn text(&self, row: usize, column: usize) -> String {
        let Some(ratio) = self.ratio(row, column) else { return format::NOTHING.to_owned() };
        let is_marked = self.map.policies.iter().any(|policy| {
            let is_shown = *policy == self.policy || self.against.is_none_or(|against| against == *policy);
            is_shown && self.map.point(row, column, policy, self.load).is_some_and(is_marked)
        });
        let text = match ratio {
            f64::INFINITY => "∞".to_owned(),
            0.0 => "0".to_owned(),
            small if small < 0.095 => format::number(small),
            _ => format!("{ratio:.2}"),
        };
        if is_marked { text + "*" } else { text }
    }

    /// Of a column: from which burst on, and at all longer ones, the policy does as well as the
    /// other.
    pub fn crossover(&self, column: usize) -> Crossover {
        let ratios = (0..self.map.on.len()).map(|row| self.ratio(row, column)).collect::<Option<Vec<f64>>>();
        let Some(ratios) = ratios else { return Crossover::Unknown };
        // Of one that answers nobody the line would have no end.
        let ratio = |ratio: f64| ratio.clamp(1e-3, 1e3).ln();
        let better = |value: f64| if self.is_goodput() { ratio(value) } else { -ratio(value) };
        let by: Vec<f64> = ratios.into_iter().map(better).collect();
        match by.iter().rposition(|by| *by < 0.0) {
            None => Crossover::Always,
            Some(worse) if worse + 1 == by.len() => Crossover::Never,
            Some(worse) => {
                let share = by[worse] / (by[worse] - by[worse + 1]);
                let (shorter, longer) = (self.map.on[worse].ln(), self.map.on[worse + 1].ln());
                Crossover::From((shorter + share * (longer - shorter)).exp())
            }
        }
    }

    fn title(&self) -> String {
        let what = if self.is_goodput() { "goodput" } else { "mean response time" };
        let whom = match self.against {
            Some(against) => against.to_owned(),
            None => "the best of all others".to_owned(),
        };
        format!(
            "{what} of {} over that of {whom}, in bursts of {}× saturation",
            self.policy,
            format::multiple(self.load)
        )
    }

    fn crossovers(&self) -> Option<Vec<String>> {
        self.is_goodput().then(|| {
            let columns = 0..self.map.off.len();
            columns.map(|column| self.crossover(column).text(self.map.on[self.map.on.len() - 1])).collect()
        })
    }
}

impl Crossover {
    fn text(self, longest: f64) -> String {
        match self {
            Self::Always => "all".to_owned(),
            Self::Never => format!("> {}", seconds(longest)),
            Self::From(on_s) => seconds(on_s),
            Self::Unknown => format::NOTHING.to_owned(),
        }
    }
}

const EVEN: &str = "even from";

/// The maps for the terminal.
pub(crate) fn maps_text(map: &BurstMap<'_>) -> String {
    let mut text = String::new();
    for compared in map.compared() {
        text += &wrap(&compared.title(), "");
        let gaps = map.off.iter().map(|off_s| seconds(*off_s));
        let headings = std::iter::once("burst \\ gap".to_owned()).chain(gaps);
        let mut table = headed(headings, 1..map.off.len() + 1);
        for (row, on_s) in map.on.iter().enumerate() {
            let ratios = (0..map.off.len()).map(|column| compared.text(row, column));
            table.add_row(std::iter::once(seconds(*on_s)).chain(ratios));
        }
        if let Some(crossovers) = compared.crossovers() {
            table.add_row(std::iter::once(EVEN.to_owned()).chain(crossovers));
        }
        text += &table.trim_fmt();
        text += "\n\n";
    }
    text
}

/// The maps as tables whose cells are coloured.
pub(crate) fn maps_section(map: &BurstMap<'_>) -> Markup {
    html! {
        section {
            h2 { "Bursts and gaps" }
            p { "Down: how long a burst is. Across: the gap after it. Numbers above 1 are more than the other's; blue is better than it, orange worse. In the last line of a map of goodput: from which burst on, and at all longer ones, the policy answers at least as many." }
            div.maps {
                @for compared in map.compared() {
                    figure {
                        figcaption { (compared.title()) }
                        div.scroll { (one_map(map, &compared)) }
                    }
                }
            }
        }
    }
}

fn one_map(map: &BurstMap<'_>, compared: &Compared<'_>) -> Markup {
    html! {
        table.map {
            thead { tr { th scope="col" { "burst \\ gap" } @for off_s in &map.off { th scope="col" { (seconds(*off_s)) } } } }
            tbody {
                @for (row, on_s) in map.on.iter().enumerate() {
                    tr {
                        th scope="row" { (seconds(*on_s)) }
                        @for column in 0..map.off.len() { (coloured(compared, row, column)) }
                    }
                }
            }
            @if let Some(crossovers) = compared.crossovers() {
                tfoot { tr { th scope="row" { (EVEN) } @for text in crossovers { td { (text) } } } }
            }
        }
    }
}

/// Deepest at a half or twice as much.
fn coloured(compared: &Compared<'_>, row: usize, column: usize) -> Markup {
    let by = compared.ratio(row, column).map_or(0.0, |ratio| ratio.max(1e-3).log2().clamp(-1.0, 1.0));
    let class = if (by > 0.0) == compared.is_goodput() { "better" } else { "worse" };
    html! { td class=(class) style=(format!("--by: {:.0}%", 60.0 * by.abs())) { (compared.text(row, column)) } }
}

/// What the first map of goodput says, in a sentence.
pub(crate) fn finding(map: &BurstMap<'_>) -> String {
    let compared = map.compared().find(Compared::is_goodput).expect("each policy has one");
    let told: Vec<String> = (0..map.off.len())
        .map(|column| {
            let gap = seconds(map.off[column]);
            match compared.crossover(column) {
                Crossover::Always => format!("of any length with gaps of {gap}"),
                Crossover::Never => {
                    format!("of no length up to {} with gaps of {gap}", seconds(map.on[map.on.len() - 1]))
                }
                Crossover::From(on_s) => format!("from {} on with gaps of {gap}", seconds(on_s)),
                Crossover::Unknown => format!("that were not all measured with gaps of {gap}"),
            }
        })
        .collect();
    format!(
        "In bursts of {}× saturation {} answers as many as {} where they are {}.",
        format::multiple(compared.load),
        compared.policy,
        compared.against.expect("the first map is against one"),
        told.join(", ")
    )
}

fn seconds(s: f64) -> String {
    if s < 1.0 {
        format::millis_tick(1000.0 * s)
    } else {
        format!("{} s", format::tick((10.0 * s).round() / 10.0))
    }
}

fn rising(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::WIDTH;
    use crate::testing;

    /// Goodput of rst-syn over stock's, bursts of 1, 10 and 100 s, gaps of 1 and 10 s.
    const RATIOS: [[f64; 2]; 3] = [[0.5, 0.25], [2.0, 0.5], [4.0, 0.8]];

    fn run() -> Run {
        testing::mapped(&[1.0, 10.0, 100.0], &[1.0, 10.0], |row, column| RATIOS[row][column])
    }

    #[test]
    fn crossover_is_where_a_line_over_the_logarithm_meets_one() {
        let run = run();
        let map = BurstMap::of(&run).expect("a map");
        let compared = map.compared().next().expect("goodput");
        assert_eq!(compared.crossover(1), Crossover::Never);
        let Crossover::From(on_s) = compared.crossover(0) else { panic!("{:?}", compared.crossover(0)) };
        assert!((on_s - 10.0_f64.sqrt()).abs() < 1e-9, "half way from a half to twice as much: {on_s}");
    }

    #[test]
    fn shorter_bursts_that_do_well_do_not_count_before_longer_ones_that_do_not() {
        let run = testing::mapped(&[1.0, 10.0, 100.0], &[1.0, 2.0], |row, column| {
            [[2.0, 1.0], [0.5, 1.5], [2.0, 1.1]][row][column]
        });
        let map = BurstMap::of(&run).expect("a map");
        let compared = map.compared().next().expect("goodput");
        assert!(
            matches!(compared.crossover(0), Crossover::From(on_s) if on_s > 10.0),
            "{:?}",
            compared.crossover(0)
        );
        assert_eq!(compared.crossover(1), Crossover::Always);
    }

    #[test]
    fn terminal_and_page_have_every_number() {
        let run = run();
        let (text, page) = (crate::table(&run), crate::page(&run));
        for ratio in RATIOS.as_flattened() {
            let number = format!("{ratio:.2}");
            assert!(text.contains(&number) && page.contains(&format!(">{number}</td>")), "{number}");
        }
        assert!(text.contains("even from") && text.contains("3.2 s") && text.contains("> 100 s"), "{text}");
        assert!(crate::finding(&run).contains("from 3.2 s on with gaps of 1 s"), "{}", crate::finding(&run));
        assert!(text.lines().all(|line| line.chars().count() <= usize::from(WIDTH)), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_not_made_up() {
        let mut run = run();
        run.cells.retain(|cell| !(cell.server == "b-10-1" && cell.policy == "rst-syn"));
        let map = BurstMap::of(&run).expect("a map");
        let compared = map.compared().next().expect("goodput");
        assert_eq!(
            (compared.crossover(0), compared.text(1, 0)),
            (Crossover::Unknown, format::NOTHING.to_owned())
        );
        run.saturations.pop();
        assert!(BurstMap::of(&run).is_none(), "a pair is missing");
        assert!(BurstMap::of(&testing::demo()).is_none(), "no bursts");
    }

    #[test]
    fn policy_that_answers_nobody_is_worse_and_one_beside_it_better() {
        let ratio = |row: usize, _| [0.0, 2.0, 4.0][row];
        let mut run = testing::mapped(&[1.0, 10.0, 100.0], &[1.0, 2.0], ratio);
        let map = BurstMap::of(&run).expect("a map");
        let compared = map.compared().next().expect("goodput");
        assert!(matches!(compared.crossover(0), Crossover::From(on_s) if (1.0..10.0).contains(&on_s)));
        assert_eq!(compared.text(0, 0), "0");
        for cell in run.cells.iter_mut().filter(|cell| cell.policy == "stock") {
            cell.crowd.goodput_per_s = 0.0;
        }
        let map = BurstMap::of(&run).expect("a map");
        let compared = map.compared().next().expect("goodput");
        assert_eq!(compared.text(1, 0), "∞");
        assert_eq!(compared.text(0, 0), format::NOTHING, "nobody by nobody");
    }

    #[test]
    fn last_policy_is_held_against_the_best_of_the_others() {
        let mut run = run();
        for row in 0..6 {
            let mut cell = run.cells[2 * row].clone();
            "unserved".clone_into(&mut cell.policy);
            cell.crowd.goodput_per_s = 10_000.0;
            run.cells.push(cell);
        }
        let map = BurstMap::of(&run).expect("a map");
        let best = map.compared().find(|compared| compared.against.is_none()).expect("three policies");
        assert_eq!((best.text(0, 0), best.text(2, 0)), ("1.00".to_owned(), "0.25".to_owned()));
    }
}
