//! What a guard shows on a terminal: the screen of `tidegate top`.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;

use top::{Fed, Hello, Look, Model, Source};

use crate::printer::{Incoming, Line, Printer, complain, print};

/// A printer that draws its events, until somebody types `q`: then `stop` is set. It keeps lines
/// and complaints until the screen is gone. Without a terminal that can be drawn on it prints them.
pub fn start(hello: &Hello, stop: Arc<AtomicBool>) -> Printer {
    let loading = Source::Loading("the guard's programs go into the kernel");
    let model = Model::new(hello.version.as_str(), hello.netns, loading);
    let pid = hello.pid;
    let printer = Printer::with(move |incoming| show(model, pid, &incoming, &stop));
    printer.show(hello.line());
    printer
}

fn show(mut model: Model, guard: u32, incoming: &Incoming, stop: &AtomicBool) {
    let mut kept = Vec::new();
    let is_silent = io::stderr().is_terminal();
    let mut feed = |model: &mut Model| -> io::Result<Fed> {
        let mut fed = Fed::Nothing;
        loop {
            match incoming.lines.try_recv() {
                Ok(Line::Event(line)) => model.line(guard, &line).expect("it is a line of ours"),
                Ok(Line::Complaint(line)) => {
                    model.say(line.as_str());
                    if is_silent {
                        kept.push(Line::Complaint(line));
                    } else {
                        complain(line);
                    }
                }
                Ok(line @ Line::Output(_)) => kept.push(line),
                Err(TryRecvError::Empty) => return Ok(fed),
                Err(TryRecvError::Disconnected) => return Ok(Fed::Over),
            }
            fed = Fed::News;
        }
    };
    match top::run(&mut model, Look::of_environment(), stop, &mut feed) {
        Ok(()) => stop.store(true, Ordering::Relaxed),
        // The guard does not end with its terminal.
        Err(error) => kept.push(Line::Complaint(format!("the screen is gone: {error}"))),
    }
    print(incoming, kept);
}
