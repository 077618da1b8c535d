//! How far a simulation has come, as a bar on a terminal; nothing where standard error is none.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use units::Nanos;
use virtual_lab::Watch;

/// While rates are searched, before it is known how much there is to do.
const SEARCH: &str = "searching  {simulated} simulated  {speed} events/s";
const GRID: &str = "{bar:24} {prefix} cells  {simulated} simulated  {speed} events/s  {left} left";

/// One experiment's bar.
#[derive(Debug)]
pub struct Bar {
    /// Its length and position are milliseconds of virtual time.
    bar: ProgressBar,
    sums: Arc<Sums>,
}

/// Of all worlds so far.
#[derive(Debug, Default)]
struct Sums {
    simulated_ns: AtomicU64,
    events: AtomicU64,
    /// Cells of the grid; 0 before it begins.
    cells: AtomicU64,
    /// Of the grid alone, whose whole milliseconds are the bar's position.
    grid_ns: AtomicU64,
}

impl Bar {
    /// Draws one on standard error, if that is a terminal.
    pub fn new() -> Self {
        let bar = ProgressBar::no_length();
        let sums = Arc::new(Sums::default());
        bar.set_style(style(SEARCH, &sums));
        Self { bar, sums }
    }

    /// Does something that prints lines, and draws the bar again below them.
    pub fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }

    /// So many cells are done.
    pub fn done(&self, cells: usize) {
        self.bar.set_prefix(format!("{cells}/{}", self.sums.cells.load(Ordering::Relaxed)));
    }

    /// Takes it away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Bar {
    fn grid_begins(&self, cells: usize, time: Nanos) {
        self.sums.cells.store(cells as u64, Ordering::Relaxed);
        self.bar.set_length(time.as_micros() / 1000);
        self.bar.set_style(style(GRID, &self.sums));
        self.bar.reset_eta();
        self.done(0);
    }

    fn simulated(&self, time: Nanos, events: u64) {
        self.sums.simulated_ns.fetch_add(time.0, Ordering::Relaxed);
        self.sums.events.fetch_add(events, Ordering::Relaxed);
        if self.sums.cells.load(Ordering::Relaxed) > 0 {
            // Whole milliseconds of the sum: threads add to it at once.
            let before = self.sums.grid_ns.fetch_add(time.0, Ordering::Relaxed);
            self.bar.inc((before + time.0) / 1_000_000 - before / 1_000_000);
        } else {
            self.bar.tick();
        }
    }
}

fn style(template: &str, sums: &Arc<Sums>) -> ProgressStyle {
    let [time, speed] = [Arc::clone(sums), Arc::clone(sums)];
    ProgressStyle::with_template(template)
        .expect("the templates are ours")
        .with_key("simulated", move |_: &ProgressState, to: &mut dyn Write| {
            let seconds = time.simulated_ns.load(Ordering::Relaxed) / 1_000_000_000;
            write!(to, "{}", humantime::format_duration(Duration::from_secs(seconds))).ok();
        })
        .with_key("speed", move |state: &ProgressState, to: &mut dyn Write| {
            let events = speed.events.load(Ordering::Relaxed) as f64;
            write!(to, "{}", in_millions(events, state.elapsed())).ok();
        })
        .with_key("left", |state: &ProgressState, to: &mut dyn Write| {
            // Before anything was simulated nobody knows.
            let left = (state.pos() > 0).then(|| Duration::from_secs(state.eta().as_secs()));
            write!(
                to,
                "{}",
                left.map_or("?".to_owned(), |left| humantime::format_duration(left).to_string())
            )
            .ok();
        })
        .progress_chars("=> ")
}

fn in_millions(events: f64, elapsed: Duration) -> String {
    format!("{:.1} million", events / elapsed.as_secs_f64().max(1e-3) / 1e6)
}
