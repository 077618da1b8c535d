//! How many instructions the verifier goes through for each program on each kernel:
//! `kernel/verified.tsv`.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use script::Series;

/// How much a program may grow before somebody has to say so, percent.
const TOLERANCE_PERCENT: u32 = 5;
/// What the table has where a kernel refuses a program, and where nobody has looked.
const REFUSED: &str = "refused";
const NOT_SEEN: &str = "-";
const UPDATE: &str = "./dev kernels --record";

/// The table: of each program and each kernel series the count, or `None` where it was refused.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verified {
    counts: BTreeMap<String, BTreeMap<Series, Option<u32>>>,
}

impl Verified {
    /// Reads the table; one that is not there is empty.
    pub fn read(path: &Path) -> Result<Self> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            other => other.with_context(|| format!("read {}", path.display()))?,
        };
        Self::parse(&text).with_context(|| format!("read {}", path.display()))
    }

    fn parse(text: &str) -> Result<Self> {
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        let series =
            |cell: &str| Series::parse(cell).with_context(|| format!("{cell:?} is no kernel release"));
        let headings = lines.next().unwrap_or("program").split('\t').skip(1);
        let headings = headings.map(series).collect::<Result<Vec<Series>>>()?;
        let mut table = Self::default();
        for line in lines {
            let (program, cells) =
                line.split_once('\t').with_context(|| format!("{line:?} has no columns"))?;
            let cells: Vec<&str> = cells.split('\t').collect();
            ensure!(
                cells.len() == headings.len(),
                "{program} has {} columns of {}",
                cells.len(),
                headings.len()
            );
            let row = table.counts.entry(program.to_owned()).or_default();
            for (series, cell) in headings.iter().zip(cells).filter(|(_, cell)| *cell != NOT_SEEN) {
                let count = (cell != REFUSED).then(|| cell.parse()).transpose();
                row.insert(*series, count.with_context(|| format!("{program}: {cell:?} is no count"))?);
            }
        }
        Ok(table)
    }

    /// Writes the table.
    pub fn write(&self, path: &Path) -> Result<()> {
        fs::write(path, self.to_text()).with_context(|| format!("write {}", path.display()))
    }

    fn to_text(&self) -> String {
        let mut series: Vec<Series> = self.counts.values().flat_map(BTreeMap::keys).copied().collect();
        series.sort_unstable();
        series.dedup();
        let mut text = format!(
            "# Instructions that the verifier goes through, all paths together. Written by: {UPDATE}\nprogram"
        );
        series.iter().for_each(|series| text += &format!("\t{series}"));
        text.push('\n');
        for (program, row) in &self.counts {
            text += program;
            for series in &series {
                let cell = match row.get(series) {
                    None => NOT_SEEN.to_owned(),
                    Some(None) => REFUSED.to_owned(),
                    Some(Some(count)) => count.to_string(),
                };
                text += &format!("\t{cell}");
            }
            text.push('\n');
        }
        text
    }

    /// Takes what a kernel said into the table. Programs that are no more go.
    pub fn record(&mut self, kernel: &str, programs: &[(String, Result<u32, String>)]) {
        let Some(series) = Series::parse(kernel) else { return };
        self.counts.retain(|program, _| programs.iter().any(|(name, _)| name == program));
        for (program, count) in programs {
            self.counts.entry(program.clone()).or_default().insert(series, count.as_ref().ok().copied());
        }
    }

    /// Holds what a kernel said against the table: failures, and notes.
    pub fn compare(
        &self,
        kernel: &str,
        programs: &[(String, Result<u32, String>)],
    ) -> (Vec<String>, Vec<String>) {
        let (mut failures, mut notes) = (Vec::new(), Vec::new());
        let Some(series) = Series::parse(kernel) else { return (failures, notes) };
        let is_known = self.counts.values().any(|row| row.contains_key(&series));
        for (program, count) in programs {
            let recorded = self.counts.get(program).and_then(|row| row.get(&series));
            match (recorded, count) {
                (Some(Some(_)) | None, Err(why)) => failures.push(format!("{program} does not load: {why}")),
                (Some(None), Err(_)) => {}
                (Some(None), Ok(_)) => notes.push(format!("{program} loads on {series} now; write it down: {UPDATE}")),
                (None, Ok(_)) if is_known => {
                    failures.push(format!("{program} is not in kernel/verified.tsv; write it down: {UPDATE}"));
                }
                (None, Ok(_)) => {}
                (Some(Some(before)), Ok(now)) if has_grown(*before, *now) => failures.push(format!(
                    "the verifier goes through {now} instructions of {program}, and went through {before}; if that is what it \
                     takes: {UPDATE}"
                )),
                (Some(Some(_)), Ok(_)) => {}
            }
        }
        if !is_known {
            notes.push(format!("kernel/verified.tsv has no column for {series}; add it: {UPDATE}"));
        }
        (failures, notes)
    }
}

fn has_grown(before: u32, now: u32) -> bool {
    u64::from(now) * 100 > u64::from(before) * u64::from(100 + TOLERANCE_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(count: Result<u32, &str>) -> Vec<(String, Result<u32, String>)> {
        vec![("a.bpf.c x".to_owned(), count.map_err(str::to_owned))]
    }

    #[test]
    fn table_is_written_and_read_again() {
        let mut table = Verified::default();
        table.record("6.12.107+deb13", &said(Ok(100)));
        table.record("6.1.0-50", &said(Err("no such helper")));
        let text = table.to_text();
        assert!(text.ends_with("program\t6.1\t6.12\na.bpf.c x\trefused\t100\n"), "{text}");
        assert_eq!(Verified::parse(&text).expect("just written"), table);
    }

    #[test]
    fn table_of_this_repository_is_read() {
        let table = Verified::parse(include_str!("../../../kernel/verified.tsv")).expect("it is well formed");
        assert!(table.counts.contains_key("admit.bpf.c admit_tc"));
    }

    #[test]
    fn growth_of_more_than_a_twentieth_is_a_failure() {
        let mut table = Verified::default();
        table.record("6.12.0", &said(Ok(1000)));
        let failures = |count| table.compare("6.12.9", &said(count)).0.len();
        assert_eq!([failures(Ok(900)), failures(Ok(1050)), failures(Ok(1051))], [0, 0, 1]);
        assert_eq!(failures(Err("too complex")), 1);
        assert_eq!(
            table.compare("6.12.9", &[("b.bpf.c y".to_owned(), Ok(1))]).0.len(),
            1,
            "not written down"
        );
    }

    #[test]
    fn kernel_without_a_column_is_a_note() {
        let (failures, notes) = Verified::default().compare("9.9.1", &said(Ok(1)));
        assert_eq!((failures.len(), notes.len()), (0, 1));
    }
}
