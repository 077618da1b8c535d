//! A whole experiment: saturation, then the grid, with results written as they come.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use netns::Namespace;
use report::Run;
use results::{Cell, Record, Saturation};

use crate::cell::{self, Lab};
use crate::environment;
use crate::experiment::{Experiment, Server, ServerKind};
use crate::policy::Policy;
use crate::probe::{QUIET, settle};
use crate::saturation;
use crate::{nft, nginx};

/// How to run an experiment.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder in which the run makes its own.
    pub results: PathBuf,
    /// `tidegate` itself, which the lab starts as server, guard and crowd.
    pub program: PathBuf,
}

/// Something happened that a watcher would like to know.
#[derive(Debug)]
pub enum Event<'a> {
    /// A word to the reader, such as a server that was left out.
    Note(&'a str),
    /// A probe for a server's saturation: offered and goodput, per second.
    Probe(&'a Server, f64, f64),
    /// A server's saturation rate was found.
    Saturated(&'a Saturation),
    /// A cell was measured; so many of so many are done.
    Cell(&'a Cell, usize, usize),
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

/// Runs an experiment. When `stop` is set it ends within a moment, with what was complete by then.
///
/// # Errors
///
/// When the machine cannot run it, or something fails on the way; what was measured by then stays in the results folder.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    stop: &AtomicBool,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    if !nix::unistd::geteuid().is_root() {
        bail!("run experiment {}: network namespaces need root; run it with sudo", experiment.name);
    }
    for name in netns::sweep()? {
        on_event(&Event::Note(&format!("removed namespace {name}, which an earlier run left behind")));
    }
    let (servers, mut notes) = available(experiment);
    let (policies, missing) = available_policies(experiment);
    notes.extend(missing);
    notes.extend(busy(experiment)?);
    notes.extend(quick(experiment));
    for note in &notes {
        on_event(&Event::Note(note));
    }
    ensure!(!servers.is_empty(), "none of the experiment's servers is here; see the notes above");
    ensure!(!policies.is_empty(), "none of the experiment's policies is here; see the notes above");
    try_policies(&policies)?;
    let folder = options.results.join(format!(
        "{}-{}",
        experiment.name,
        jiff::Zoned::now().strftime("%Y%m%d-%H%M%S-%3f")
    ));
    let mut writer = Writer::create(&folder)?;
    writer.write(Record::Header(Box::new(environment::header(experiment, notes)?)))?;
    let lab = Lab { experiment, program: &options.program, stop };
    let result = measure_all(lab, &servers, &policies, &mut writer, &mut on_event);
    writer.answer(experiment)?;
    let stopped = stop.load(Ordering::Relaxed);
    let outcome = writer.finish(stopped)?;
    match result {
        Err(error) if !stopped => {
            Err(error.context(format!("incomplete results are in {}", folder.display())))
        }
        _ => Ok(outcome),
    }
}

/// Sets what every policy sets, once, so that a wrong name or value is known before anything is measured.
fn try_policies(policies: &[&Policy]) -> Result<()> {
    for policy in policies.iter().filter(|policy| policy.nft.is_some() || !policy.sysctls.is_empty()) {
        let namespace = Namespace::create("try")?;
        cell::prepare(&namespace, &policy.for_saturation(1.0))
            .with_context(|| format!("policy {:?}", policy.name))?;
    }
    Ok(())
}

/// A word about a machine that does something else.
fn busy(experiment: &Experiment) -> Result<Option<String>> {
    let busy = settle(&experiment.testbed)?;
    Ok((busy > 1.0 - QUIET).then(|| {
        format!(
            "a CPU was {:.0}% busy with something else before the run: read all that follows with care",
            busy * 100.0
        )
    }))
}

/// The servers that this machine has, and a word about each that it has not.
fn available(experiment: &Experiment) -> (Vec<&Server>, Vec<String>) {
    let (mut servers, mut notes) = (Vec::new(), Vec::new());
    for server in &experiment.servers {
        match nginx::missing().filter(|_| server.kind == ServerKind::Nginx) {
            Some(note) => notes.push(note),
            None => servers.push(server),
        }
    }
    (servers, notes)
}

/// The policies that this machine has, and a word about each that it has not.
fn available_policies(experiment: &Experiment) -> (Vec<&Policy>, Vec<String>) {
    let has_nft = nft::version().is_some();
    let (there, missing): (Vec<&Policy>, Vec<&Policy>) =
        experiment.policies.iter().partition(|policy| has_nft || policy.nft.is_none());
    let note = |policy: &Policy| format!("{} is left out: there is no nft (install nftables)", policy.name);
    (there, missing.into_iter().map(note).collect())
}

fn measure_all(
    lab: Lab<'_>,
    servers: &[&Server],
    policies: &[&Policy],
    writer: &mut Writer,
    on_event: &mut impl FnMut(&Event<'_>),
) -> Result<()> {
    let experiment = lab.experiment;
    let grid = &experiment.grid;
    let cells = servers.len() * grid.loads.len() * policies.len() * grid.repetitions as usize;
    let mut done = 0;
    for server in servers {
        let found = saturation::find(lab, server, |offered, goodput| {
            on_event(&Event::Probe(server, offered, goodput));
        })
        .with_context(|| format!("find the saturation rate of {}", server.name))?;
        on_event(&Event::Saturated(&found));
        let saturation = found.rate_per_s;
        writer.write(Record::Saturation(found))?;
        for repetition in 0..grid.repetitions {
            for &load in &grid.loads {
                // Policies alternate, so that a drift of the machine meets them all.
                for policy in policies {
                    let cell = cell::measure(lab, server, policy, load, load * saturation, repetition)
                        .with_context(|| {
                            format!("{} under {} at {load} times saturation", server.name, policy.name)
                        })?;
                    done += 1;
                    on_event(&Event::Cell(&cell, done, cells));
                    writer.write(Record::Cell(Box::new(cell)))?;
                }
            }
        }
    }
    Ok(())
}

/// The results folder of a run: each record is on disk before the next is measured.
struct Writer {
    folder: PathBuf,
    file: BufWriter<File>,
    records: Vec<Record>,
}

impl Writer {
    fn create(folder: &Path) -> Result<Self> {
        let parent = folder.parent().unwrap_or(Path::new("."));
        // Two runs that begin at the same moment must not share a folder.
        fs::create_dir_all(parent)
            .and_then(|()| fs::create_dir(folder))
            .with_context(|| format!("make the results folder {}", folder.display()))?;
        let path = folder.join("results.jsonl");
        let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { folder: folder.to_owned(), file: BufWriter::new(file), records: Vec::new() })
    }

    fn write(&mut self, record: Record) -> Result<()> {
        serde_json::to_writer(&mut self.file, &record).context("write a result")?;
        self.file.write_all(b"\n").and_then(|()| self.file.flush()).context("write a result")?;
        self.records.push(record);
        Ok(())
    }

    /// Says of each claim what has been measured by now.
    fn answer(&mut self, experiment: &Experiment) -> Result<()> {
        let cells: Vec<Cell> = self.records.iter().filter_map(as_cell).cloned().collect();
        let mut servers: Vec<&str> = Vec::new();
        for cell in &cells {
            if !servers.contains(&cell.server.as_str()) {
                servers.push(&cell.server);
            }
        }
        for server in servers {
            for claim in &experiment.claims {
                let mut answer = claim.answer(&experiment.name, server, &experiment.grid.loads, &cells);
                answer.marks.extend(quick(experiment));
                self.write(Record::Claim(Box::new(answer)))?;
            }
        }
        Ok(())
    }

    fn finish(self, stopped: bool) -> Result<Outcome> {
        let run = Run::from_records(self.records).context("assemble the results")?;
        let page = self.folder.join("report.html");
        fs::write(&page, report::page(&run)).with_context(|| format!("write {}", page.display()))?;
        Ok(Outcome { run, lines: self.folder.join("results.jsonl"), page, stopped })
    }
}

fn as_cell(record: &Record) -> Option<&Cell> {
    match record {
        Record::Cell(cell) => Some(cell),
        _ => None,
    }
}

fn quick(experiment: &Experiment) -> Option<String> {
    experiment.is_quick.then(|| "a quick run, which shows that all works and no more".to_owned())
}
