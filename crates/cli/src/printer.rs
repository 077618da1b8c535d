//! Lines of a program that must not wait for whoever reads them.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::output::{printable, with_short_numbers};

/// Lines that may wait: some seconds of 64 listeners.
const ROOM: usize = 1024;
/// How long the last lines may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Prints from a thread of its own: a terminal that is held or a log that is stuck costs lines, and
/// not what the program does.
#[derive(Debug)]
pub struct Printer {
    lines: Option<SyncSender<Line>>,
    thread: Option<JoinHandle<()>>,
    is_closed: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

/// A line on its way.
#[derive(Debug)]
pub enum Line {
    /// For standard output.
    Output(String),
    /// For standard error.
    Complaint(String),
    /// JSON for a screen; nothing where there is none.
    Event(String),
}

/// What the printer's thread gets.
#[derive(Debug)]
pub struct Incoming {
    /// Until the printer is dropped.
    pub lines: Receiver<Line>,
    is_closed: Arc<AtomicBool>,
    lost: Arc<AtomicU64>,
}

impl Printer {
    /// Starts the thread.
    pub fn start() -> Self {
        Self::with(|incoming| print(&incoming, []))
    }

    /// Starts a thread that does something else with the lines.
    pub fn with(consume: impl FnOnce(Incoming) + Send + 'static) -> Self {
        let (sender, lines) = sync_channel(ROOM);
        let (is_closed, lost) = (Arc::default(), Arc::default());
        let incoming = Incoming { lines, is_closed: Arc::clone(&is_closed), lost: Arc::clone(&lost) };
        let thread = std::thread::spawn(move || consume(incoming));
        Self { lines: Some(sender), thread: Some(thread), is_closed, lost }
    }

    /// Prints a line on standard output, soon; or loses it, if too many wait already.
    pub fn say(&self, line: impl Display) {
        self.send(Line::Output(line.to_string()));
    }

    /// The same on standard error.
    pub fn complain(&self, line: impl Display) {
        self.send(Line::Complaint(line.to_string()));
    }

    /// Shows JSON on the screen, if there is one.
    pub fn show(&self, event: impl Display) {
        self.send(Line::Event(event.to_string()));
    }

    /// Whether nobody reads standard output any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    fn send(&self, line: Line) {
        let lines = self.lines.as_ref().expect("there until it is dropped");
        if let Err(TrySendError::Full(_)) = lines.try_send(line) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Waits a moment for what is not printed yet.
impl Drop for Printer {
    fn drop(&mut self) {
        self.lines = None;
        let Some(thread) = self.thread.take() else { return };
        let deadline = Instant::now() + PATIENCE;
        while !thread.is_finished() && Instant::now() < deadline {
            sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

/// Prints the lines that came before, and then all that come.
pub fn print(incoming: &Incoming, before: impl IntoIterator<Item = Line>) {
    let mut has_failed = false;
    for line in before.into_iter().chain(incoming.lines.iter()) {
        match line {
            Line::Output(line) => match write(io::stdout().lock(), &line) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    incoming.is_closed.store(true, Ordering::Relaxed);
                }
                Err(error) if !has_failed => {
                    has_failed = true;
                    complain(format_args!("write to standard output: {error}; lines are lost from here on"));
                }
                Err(_) => {}
            },
            Line::Complaint(line) => complain(line),
            Line::Event(_) => {}
        }
        match incoming.lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lost => complain(format_args!(
                "{lost} lines were not printed, because nobody read what was before them"
            )),
        }
    }
}

fn write(mut to: impl Write, line: &str) -> io::Result<()> {
    writeln!(to, "{line}").and_then(|()| to.flush())
}

/// A line on standard error, and one line only, whatever is in a name. Where that cannot be
/// written, there is nobody to tell.
pub fn complain(line: impl Display) {
    let line = with_short_numbers(&printable(&format!("tidegate: {line}")));
    let _ = write(io::stderr().lock(), &line);
}
