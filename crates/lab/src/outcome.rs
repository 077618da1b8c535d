//! Where the results of a run go.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use report::Run;
use results::Record;

/// How to run an experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder in which the run makes its own.
    pub results: PathBuf,
    /// `tidegate` itself, which the lab starts as server, guard and crowd.
    pub program: PathBuf,
}

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

/// The results folder of a run: each record is on disk before the next is measured.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    file: BufWriter<File>,
    records: Vec<Record>,
}

impl Writer {
    /// Makes the folder, named by the experiment and the time.
    pub fn create(results: &Path, experiment: &str) -> Result<Self> {
        let moment = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S-%3f");
        let folder = results.join(format!("{experiment}-{moment}"));
        // Two runs that begin at the same moment must not share a folder.
        fs::create_dir_all(results)
            .and_then(|()| fs::create_dir(&folder))
            .with_context(|| format!("make the results folder {}", folder.display()))?;
        let path = folder.join("results.jsonl");
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { folder, file: BufWriter::new(file), records: Vec::new() })
    }

    /// Where it writes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was written by now.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Adds a record.
    pub fn write(&mut self, record: Record) -> Result<()> {
        serde_json::to_writer(&mut self.file, &record).context("write a result")?;
        self.file.write_all(b"\n").and_then(|()| self.file.flush()).context("write a result")?;
        self.records.push(record);
        Ok(())
    }

    /// Writes the page.
    pub fn finish(self, stopped: bool) -> Result<Outcome> {
        let run = Run::from_records(self.records).context("assemble the results")?;
        let page = self.folder.join("report.html");
        fs::write(&page, report::page(&run)).with_context(|| format!("write {}", page.display()))?;
        Ok(Outcome { run, lines: self.folder.join("results.jsonl"), page, stopped })
    }
}
