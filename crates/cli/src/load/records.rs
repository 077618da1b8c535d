//! Files of a run: a line for each attempt, a histogram for each second. Written by a thread of its
//! own, so that a slow disk makes no attempt late.

use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use load::Ended;

use crate::mistake::Mistake;

/// Columns of the file with a line for each attempt (docs/crowd.md).
const COLUMNS: [&str; 13] = [
    "user",
    "reloads",
    "stack",
    "client",
    "intended_start_s",
    "ended_s",
    "waited_ms",
    "cause",
    "syns",
    "replies",
    "requests",
    "object",
    "status",
];

/// Files that are being written.
pub struct Records {
    /// None when there are none.
    sender: Option<Sender<Message>>,
    thread: Option<JoinHandle<Result<()>>>,
    wants_ended: bool,
    /// What was created.
    paths: Vec<PathBuf>,
}

enum Message {
    Ended(Vec<Ended>),
    Interval { start: Duration, span: Duration, responses: Histogram<u64> },
}

struct NewFile {
    path: PathBuf,
    file: BufWriter<File>,
}

impl NewFile {
    fn create(path: &Path) -> Result<Self> {
        let file = File::create_new(path).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => {
                anyhow!(
                    "{} is there already, and an old file is never written over; name another",
                    path.display()
                )
            }
            _ => anyhow!(error).context(format!("create {}", path.display())),
        })?;
        Ok(Self { path: path.to_owned(), file: BufWriter::new(file) })
    }
}

impl Records {
    /// Creates the files that are wanted.
    ///
    /// # Errors
    ///
    /// One that is there already, or cannot be made.
    pub fn create(attempts: Option<&Path>, intervals: Option<&Path>) -> Result<Self> {
        if let Some(file) = attempts.filter(|file| intervals == Some(file)) {
            let why = format!("--csv and --hdr-log are two files; {} cannot be both", file.display());
            return Err(Mistake(why).into());
        }
        let attempts = attempts.map(NewFile::create).transpose()?;
        let intervals = intervals.map(NewFile::create).transpose().inspect_err(|_| {
            if let Some(new) = &attempts {
                std::fs::remove_file(&new.path).ok();
            }
        })?;
        let wants_ended = attempts.is_some();
        let paths: Vec<PathBuf> = attempts.iter().chain(&intervals).map(|new| new.path.clone()).collect();
        if paths.is_empty() {
            return Ok(Self { sender: None, thread: None, wants_ended, paths });
        }
        let (sender, receiver) = channel();
        let thread = std::thread::spawn(move || write(attempts, intervals, &receiver));
        Ok(Self { sender: Some(sender), thread: Some(thread), wants_ended, paths })
    }

    /// Whether [`Records::ended`] has a use.
    pub fn wants_ended(&self) -> bool {
        self.wants_ended
    }

    /// Attempts that have ended.
    pub fn ended(&self, attempts: &mut dyn Iterator<Item = Ended>) {
        let attempts: Vec<Ended> = attempts.collect();
        if !attempts.is_empty() {
            self.send(|| Message::Ended(attempts));
        }
    }

    /// Response times of the replies between two moments of the run, microseconds.
    pub fn interval(&self, start: Duration, end: Duration, responses: &Histogram<u64>) {
        self.send(|| Message::Interval {
            start,
            span: end.saturating_sub(start),
            responses: responses.clone(),
        });
    }

    /// What the thread could not write it says in the end.
    fn send(&self, message: impl FnOnce() -> Message) {
        if let Some(sender) = &self.sender {
            sender.send(message()).ok();
        }
    }

    /// Removes the files: the run never began.
    pub fn discard(mut self) {
        drop(self.sender.take());
        self.thread.take().map(JoinHandle::join);
        for path in &self.paths {
            std::fs::remove_file(path).ok();
        }
    }

    /// Waits until all is written.
    ///
    /// # Errors
    ///
    /// What could not be.
    pub fn finish(mut self) -> Result<()> {
        drop(self.sender.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(result) => result.map_err(|_| anyhow!("the thread that writes the records panicked"))?,
            None => Ok(()),
        }
    }
}

fn write(attempts: Option<NewFile>, intervals: Option<NewFile>, messages: &Receiver<Message>) -> Result<()> {
    let mut rows = attempts.map(|NewFile { path, file }| (path, csv::Writer::from_writer(file)));
    if let Some((path, rows)) = &mut rows {
        rows.write_record(COLUMNS).with_context(|| written(path))?;
    }
    let mut serializer = V2DeflateSerializer::new();
    let mut intervals = intervals;
    let log_path = intervals.as_ref().map(|new| new.path.clone()).unwrap_or_default();
    let now = SystemTime::now();
    let mut log = match &mut intervals {
        Some(NewFile { file, .. }) => Some(
            IntervalLogWriterBuilder::new()
                .add_comment("tidegate load: response times, microseconds")
                .with_start_time(now)
                .with_base_time(now)
                .with_max_value_divisor(1000.0)
                .begin_log_with(file, &mut serializer)
                .with_context(|| written(&log_path))?,
        ),
        None => None,
    };
    for message in messages {
        match message {
            Message::Ended(attempts) => {
                let Some((path, rows)) = &mut rows else { continue };
                for attempt in attempts {
                    rows.write_record(row(&attempt)).with_context(|| written(path))?;
                }
            }
            Message::Interval { start, span, responses } => {
                // What is there after a second is there also when the program is killed.
                if let Some((path, rows)) = &mut rows {
                    rows.flush().with_context(|| written(path))?;
                }
                let Some(log) = &mut log else { continue };
                log.write_histogram(&responses, start, span, None)
                    .map_err(|error| anyhow!("{}: {error:?}", written(&log_path)))?;
            }
        }
    }
    drop(log);
    if let Some((path, mut rows)) = rows {
        rows.flush().with_context(|| written(&path))?;
    }
    if let Some(NewFile { path, mut file }) = intervals {
        std::io::Write::flush(&mut file).with_context(|| written(&path))?;
    }
    Ok(())
}

fn written(path: &Path) -> String {
    format!("write {}", path.display())
}

fn row(ended: &Ended) -> [String; COLUMNS.len()] {
    let waited = ended.ended.since(ended.intended_start);
    [
        ended.user.to_string(),
        ended.reloads.to_string(),
        ended.stack.name.to_owned(),
        ended.client.to_string(),
        format!("{:.6}", ended.intended_start.as_secs_f64()),
        format!("{:.6}", ended.ended.as_secs_f64()),
        format!("{:.3}", waited.as_millis_f64()),
        ended.cause.name().to_owned(),
        ended.syns.to_string(),
        ended.replies.to_string(),
        ended.requests.to_string(),
        ended.object.to_string(),
        if ended.status > 0 { ended.status.to_string() } else { String::new() },
    ]
}

#[cfg(test)]
mod tests {
    use std::io::BufRead;

    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use super::*;

    #[test]
    fn intervals_are_a_log_that_others_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.hlog");
        let records = Records::create(None, Some(&path)).expect("a file");
        let mut responses = Histogram::new(3).expect("digits");
        responses.record_n(1500, 7).expect("a time");
        records.interval(Duration::from_secs(1), Duration::from_secs(2), &responses);
        records.finish().expect("written");
        let bytes = std::fs::read(&path).expect("the log");
        let entries: Vec<_> =
            IntervalLogIterator::new(&bytes).map(|entry| entry.expect("an entry")).collect();
        let intervals: Vec<_> = entries
            .iter()
            .filter_map(|entry| match entry {
                LogEntry::Interval(interval) => Some(interval),
                _ => None,
            })
            .collect();
        assert_eq!(intervals.len(), 1);
        assert_eq!(intervals[0].duration(), Duration::from_secs(1));
        let bytes = STANDARD.decode(intervals[0].encoded_histogram()).expect("base64");
        let read: Histogram<u64> =
            Deserializer::new().deserialize(&mut std::io::Cursor::new(bytes)).expect("a histogram");
        assert_eq!((read.len(), read.min()), (7, 1500));
    }

    #[test]
    fn old_file_is_not_written_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("attempts.csv");
        Records::create(Some(&path), None).expect("a file").finish().expect("written");
        let lines = File::open(&path).map(std::io::BufReader::new).expect("the file").lines();
        assert_eq!(lines.map_while(Result::ok).collect::<Vec<_>>(), [COLUMNS.join(",")]);
        let error = Records::create(Some(&path), None).err().expect("refused");
        assert!(format!("{error:#}").contains("never written over"), "{error:#}");
        let error = Records::create(Some(Path::new("/nowhere/a.csv")), None).err().expect("no folder");
        assert!(!format!("{error:#}").contains("written over"), "{error:#}");
        let second = folder.path().join("second.csv");
        Records::create(Some(&second), None).expect("a file").discard();
        assert!(!second.exists() && path.exists());
    }
}
