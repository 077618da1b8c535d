//! One run of the lab, as the report looks at it.

use std::fmt;

use results::{Cell, ClaimAnswer, Header, Record, Saturation, Trace};

/// One run of the lab: what a results file holds.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What was run, and where.
    pub header: Header,
    /// One for each server whose saturation was found, in the order of the file.
    pub saturations: Vec<Saturation>,
    /// Every measured point, in the order of the file.
    pub cells: Vec<Cell>,
    /// Every run of a packet script, in the order of the file.
    pub traces: Vec<Trace>,
    /// What the run says of each claim, in the order of the file.
    pub claims: Vec<ClaimAnswer>,
}

impl Run {
    /// A run from the text of a results file: one JSON record per line, empty lines ignored.
    pub fn from_json_lines(text: &str) -> Result<Self, ReadError> {
        Self::from_lines(text.lines().map(|line| Ok(line.to_owned())))
    }

    /// The same from its lines, as they are read.
    pub fn from_lines<E: From<ReadError>>(lines: impl Iterator<Item = Result<String, E>>) -> Result<Self, E> {
        let mut records = Vec::new();
        for (number, line) in (1..).zip(lines) {
            let line = line?;
            if !line.trim().is_empty() {
                records.push(parse_record(number, &line)?);
            }
        }
        Ok(Self::from_records(records)?)
    }

    /// A run from its records, which must hold exactly one header, anywhere.
    pub fn from_records(records: impl IntoIterator<Item = Record>) -> Result<Self, ReadError> {
        let mut headers = Vec::new();
        let mut saturations = Vec::new();
        let (mut cells, mut traces) = (Vec::new(), Vec::new());
        let mut claims = Vec::new();
        for record in records {
            match record {
                Record::Header(header) => headers.push(*header),
                Record::Saturation(saturation) => saturations.push(saturation),
                Record::Cell(cell) => cells.push(*cell),
                Record::SetAside(_) => {}
                Record::Trace(trace) => traces.push(*trace),
                Record::Claim(claim) => claims.push(*claim),
            }
        }
        if headers.len() > 1 {
            return Err(ReadError::SecondHeader);
        }
        let header = headers.pop().ok_or(ReadError::NoHeader)?;
        Ok(Self { header, saturations, cells, traces, claims })
    }

    /// How much of the run there is, where it is not all: so many cells, or runs of packet scripts,
    /// of so many.
    pub fn part(&self) -> Option<(u64, u64)> {
        let there = (self.cells.len() + self.traces.len()) as u64;
        let planned = self.header.planned?;
        (there < planned).then_some((there, planned))
    }

    /// Names of the servers, in the order of the file.
    pub(crate) fn servers(&self) -> Vec<&str> {
        let saturated = self.saturations.iter().map(|saturation| saturation.server.as_str());
        distinct(saturated.chain(self.cells.iter().map(|cell| cell.server.as_str())))
    }

    /// Names of the policies: stock first, then in the order of the file. A policy's place here is
    /// its colour in every plot.
    pub(crate) fn policies(&self) -> Vec<&str> {
        let mut policies = distinct(self.cells.iter().map(|cell| cell.policy.as_str()));
        policies.sort_by_key(|policy| *policy != STOCK);
        policies
    }

    /// The saturation of a server, when it was found.
    pub(crate) fn saturation(&self, server: &str) -> Option<&Saturation> {
        self.saturations.iter().find(|saturation| saturation.server == server)
    }

    /// The points of a server, by load, then by policy as in [`Run::policies`].
    pub(crate) fn points(&self, server: &str) -> Vec<Point<'_>> {
        let mut points: Vec<Point> = Vec::new();
        for cell in self.cells.iter().filter(|cell| cell.server == server) {
            match points.iter_mut().find(|point| point.holds(cell)) {
                Some(point) => point.cells.push(cell),
                None => points.push(Point { cells: vec![cell] }),
            }
        }
        let policies = self.policies();
        let place = |policy: &str| policies.iter().position(|other| *other == policy);
        points.sort_by(|a, b| {
            let by_load = a.load().total_cmp(&b.load());
            by_load.then_with(|| place(a.policy()).cmp(&place(b.policy())))
        });
        points
    }
}

/// What the lab calls the kernel without a guard and with its default sysctls.
pub(crate) const STOCK: &str = "stock";

/// One server under one policy at one load: all its repetitions, at least one.
#[derive(Debug, Clone)]
pub(crate) struct Point<'a> {
    /// The repetitions, in the order of the file.
    pub cells: Vec<&'a Cell>,
}

impl<'a> Point<'a> {
    /// Offered load as a multiple of the saturation rate.
    pub fn load(&self) -> f64 {
        self.cells[0].load
    }

    /// Name of the policy.
    pub fn policy(&self) -> &'a str {
        &self.cells[0].policy
    }

    /// Whether a guard was attached.
    pub fn is_guarded(&self) -> bool {
        self.cells.iter().any(|cell| cell.guard.is_some())
    }

    /// Whether a flood came beside the crowd.
    pub fn is_flooded(&self) -> bool {
        self.cells.iter().any(|cell| cell.flood.is_some())
    }

    fn holds(&self, cell: &Cell) -> bool {
        self.load() == cell.load && self.policy() == cell.policy
    }
}

/// Each item once, in the order of first appearance.
pub(crate) fn distinct<'a>(items: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn parse_record(line: usize, text: &str) -> Result<Record, ReadError> {
    serde_json::from_str(text).map_err(|cause| ReadError::Parse { line, cause })
}

/// Why records are not a run.
#[derive(Debug)]
pub enum ReadError {
    /// A line is not a record.
    Parse {
        /// Line of the file, from 1.
        line: usize,
        /// What JSON says.
        cause: serde_json::Error,
    },
    /// No record says what was run.
    NoHeader,
    /// Two records say what was run.
    SecondHeader,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parse { line, cause } => write!(f, "line {line}: {cause}"),
            Self::NoHeader => {
                write!(
                    f,
                    "no header record; is this the results.jsonl of `tidegate lab run` or `tidegate sim`?"
                )
            }
            Self::SecondHeader => write!(f, "two header records; give one run at a time"),
        }
    }
}

/// What it says has its cause in it: as a source of its own it would be said twice.
impl std::error::Error for ReadError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn json_lines_give_back_the_run_that_was_written() {
        let run = testing::demo();
        let read = Run::from_json_lines(&testing::json_lines(&run)).expect("valid");
        /* serde_json may differ from what was written in the last bit of a float */
        assert!(crate::page(&read) == crate::page(&run), "pages differ");
    }

    #[test]
    fn what_was_measured_again_is_no_cell_of_the_run() {
        let run = testing::demo();
        let aside = Record::SetAside(Box::new(run.cells[0].clone()));
        let line = serde_json::to_string(&aside).expect("finite numbers");
        let read = Run::from_json_lines(&format!("{}{line}\n", testing::json_lines(&run))).expect("valid");
        assert_eq!(read.cells.len(), run.cells.len());
    }

    #[test]
    fn bad_line_is_named_by_its_number() {
        let text = format!("{}\n\nnot json\n", testing::json_lines(&testing::empty()).trim());
        let error = Run::from_json_lines(&text).expect_err("line 3 is not JSON").to_string();
        assert!(error.starts_with("line 3: "), "{error}");
    }

    #[test]
    fn run_has_exactly_one_header() {
        assert!(matches!(Run::from_json_lines(""), Err(ReadError::NoHeader)));
        let twice = testing::json_lines(&testing::empty()).repeat(2);
        assert!(matches!(Run::from_json_lines(&twice), Err(ReadError::SecondHeader)));
    }

    #[test]
    fn run_that_ended_early_says_which_share_is_missing_wherever_it_is_shown() {
        let mut run = testing::demo();
        let there = run.cells.len();
        run.header.planned = Some(there as u64);
        assert_eq!((run.part(), crate::finding(&run).contains("missing")), (None, false));
        run.header.planned = Some(4 * there as u64);
        let sentence = format!(
            "The run ended early and judges nothing: {} of its {} cells are missing (75.0%).",
            3 * there,
            4 * there
        );
        let shown = [crate::finding(&run), crate::page(&run), crate::book("Figures", &[run.clone()])];
        for shown in shown {
            assert!(shown.contains(&sentence), "{sentence} is not in {shown}");
        }
        run.cells.clear();
        assert!(crate::finding(&run).contains("cells are missing (100%)."), "{}", crate::finding(&run));
    }

    #[test]
    fn quick_run_says_first_that_it_judges_nothing() {
        let mut run = testing::demo();
        assert!(!crate::page(&run).contains("judges nothing"));
        run.header.is_quick = true;
        let quick = "A quick run judges nothing";
        assert!(crate::finding(&run).starts_with(quick));
        for shown in [crate::page(&run), crate::book("Figures", &[run.clone()])] {
            assert!(shown.contains(quick), "{shown}");
        }
    }

    #[test]
    fn simulated_run_says_so_above_all_and_at_each_figure() {
        let mut run = testing::demo();
        assert!(!crate::page(&run).contains("SIMULATED:"));
        run.header.environment.kernel = results::Environment::SIMULATED.to_owned();
        for shown in [crate::page(&run), crate::book("Figures", &[run.clone()])] {
            assert!(shown.contains("SIMULATED:") && shown.contains("class=\"simulated\""), "{shown}");
        }
    }

    #[test]
    fn stock_comes_first_and_the_rest_keep_the_order_of_the_file() {
        let run = testing::run(vec![
            testing::guarded("a", 1.0, "rst-syn"),
            testing::cell("a", 1.0, "abort"),
            testing::cell("a", 1.0, "stock"),
        ]);
        assert_eq!(run.policies(), ["stock", "rst-syn", "abort"]);
    }

    #[test]
    fn points_hold_every_cell_once() {
        let run = testing::repeated();
        let points: usize =
            run.servers().iter().flat_map(|server| run.points(server)).map(|point| point.cells.len()).sum();
        assert_eq!(points, run.cells.len());
    }
}
