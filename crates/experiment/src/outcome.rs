//! Where the results of a run go.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use files::write_whole;
use report::Run;
use results::{Cell, Header, Record};

/// Where the results are, and what they are.
#[derive(Debug)]
pub struct Outcome {
    /// The results that were measured.
    pub run: Run,
    /// The JSON lines.
    pub lines: PathBuf,
    /// The page.
    pub page: PathBuf,
    /// Whether the run was stopped before its end.
    pub stopped: bool,
}

/// The user stopped the run.
#[derive(Debug, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

/// The lines of a run, and what they are called until it has ended.
const LINES: &str = "results.jsonl";
const LINES_SO_FAR: &str = "results.jsonl.part";

/// The results folder of a run: each record is written as soon as all before it are. Files get
/// their names when the run ends, so that none of them is a part.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    file: File,
    /// Of whole records, bytes.
    length: u64,
    records: Vec<Record>,
    /// A record could not be written.
    is_broken: bool,
}

impl Writer {
    /// Begins the results of a run that is to have so many cells, or runs of packet scripts, in a
    /// folder of its own below `results`.
    ///
    /// # Errors
    ///
    /// When the folder cannot be made, or written to.
    pub fn begin(results: &Path, header: Header, planned: usize) -> Result<Self> {
        let mut writer = Self::create(results, &header.experiment)?;
        writer.write(Record::Header(Box::new(Header { planned: Some(planned as u64), ..header })))?;
        Ok(writer)
    }

    /// Makes the folder, named by the experiment and the time.
    fn create(results: &Path, experiment: &str) -> Result<Self> {
        let moment = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S-%3f");
        let folder = results.join(format!("{experiment}-{moment}"));
        // Two runs that begin at the same moment must not share a folder.
        fs::create_dir_all(results)
            .and_then(|()| fs::create_dir(&folder))
            .with_context(|| format!("make the results folder {}", folder.display()))?;
        let path = folder.join(LINES_SO_FAR);
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { folder, file, length: 0, records: Vec::new(), is_broken: false })
    }

    /// The cells that were written by now.
    pub(crate) fn cells(&self) -> Vec<Cell> {
        let cell = |record: &Record| match record {
            Record::Cell(cell) => Some((**cell).clone()),
            _ => None,
        };
        self.records.iter().filter_map(cell).collect()
    }

    /// Whether every cell that was planned is there.
    pub(crate) fn is_whole(&self) -> bool {
        let cells =
            self.records.iter().filter(|record| matches!(record, Record::Cell(_) | Record::Trace(_))).count();
        let planned = self.records.iter().find_map(|record| match record {
            Record::Header(header) => header.planned,
            _ => None,
        });
        planned.is_none_or(|planned| cells as u64 == planned)
    }

    /// Adds a record, all of it or nothing.
    ///
    /// # Errors
    ///
    /// A full disk, mostly. What was written before stays under the name that it has until the run
    /// ends, and nothing else can be added.
    pub fn write(&mut self, record: Record) -> Result<()> {
        let mut line = serde_json::to_vec(&record).context("write a result as JSON")?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            self.is_broken = true;
            // A shorter file needs no room.
            self.file.set_len(self.length).ok();
            let (path, before) = (self.folder.join(LINES_SO_FAR), self.records.len());
            return Err(error).with_context(|| {
                format!("write to {}, which has the {before} records before", path.display())
            });
        }
        self.length += line.len() as u64;
        self.records.push(record);
        Ok(())
    }

    /// Ends a run, of which `measured` became: says by `answer` what it shows of the claims, and
    /// writes the page of what is complete.
    ///
    /// # Errors
    ///
    /// What went wrong with the run, unless it is that the user [stopped](Stopped) it; and when
    /// something cannot be written.
    pub fn conclude(
        mut self,
        measured: Result<()>,
        stop: &AtomicBool,
        answer: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Outcome> {
        let measured = match measured {
            Err(error) if self.is_broken => return Err(error),
            measured => measured,
        };
        answer(&mut self)?;
        let stopped = stop.load(Ordering::Relaxed);
        let folder = self.folder.clone();
        let outcome = self.finish(stopped)?;
        match measured {
            Err(error) if !error.is::<Stopped>() => {
                Err(error.context(format!("incomplete results are in {}", folder.display())))
            }
            _ => Ok(outcome),
        }
    }

    /// Gives the lines their name, and writes the page.
    fn finish(self, stopped: bool) -> Result<Outcome> {
        let run = Run::from_records(self.records).context("assemble the results")?;
        let lines = self.folder.join(LINES);
        fs::rename(self.folder.join(LINES_SO_FAR), &lines)
            .with_context(|| format!("name the results {}", lines.display()))?;
        let page = self.folder.join("report.html");
        write_whole(&page, report::page(&run).as_bytes())
            .with_context(|| format!("write {}", page.display()))?;
        Ok(Outcome { run, lines, page, stopped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn results_have_their_name_when_the_run_has_ended_and_not_before() {
        let folder = tempfile::tempdir().expect("a folder");
        let writer = Writer::create(folder.path(), "test").expect("a folder");
        let own = writer.folder.clone();
        assert_eq!(names(&own), [LINES_SO_FAR]);
        writer.finish(false).expect_err("no header was written");
        assert_eq!(names(&own), [LINES_SO_FAR], "nothing that could be taken for results");
    }
}
