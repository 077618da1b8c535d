//! When it is somebody's turn: as soon as the two cores are near each other.
//!
//! A hypervisor moves virtual CPUs about. Where both are on one chip a cache line goes from one to the other and back in 75 ns, where they are on two in 400
//! (an EPYC of today, for seconds to minutes at a time), and all that is handed from core to core takes that much longer, while what stays on one core does not. So a
//! ratio of the two says more of the hypervisor than of either, unless both are measured in the same state.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use netns::pin_to_cpu;

use super::{SERVER_CPU, go_on};

/// Of the shortest round trip that was seen, what still is near.
const NEAR: f64 = 3.0;
/// What is waited in all, and from one look to the next.
const PATIENCE: Duration = Duration::from_secs(180);
const PAUSE: Duration = Duration::from_millis(100);
/// A look takes the best of some samples, as either thread may be interrupted.
const SAMPLES: usize = 5;
const TRIPS_PER_SAMPLE: u32 = 1000;

/// Who is measured comes one after the other.
pub struct Turns<'a> {
    stop: &'a AtomicBool,
    patience: Duration,
    least_ns: f64,
    round_trips_ns: Vec<f64>,
}

impl<'a> Turns<'a> {
    pub fn new(stop: &'a AtomicBool) -> Self {
        Self { stop, patience: PATIENCE, least_ns: f64::INFINITY, round_trips_ns: Vec::new() }
    }

    /// Waits until the cores are about as near as they have ever been, or for as long as there is patience left.
    ///
    /// # Errors
    ///
    /// A stop; a CPU that is not to be had.
    pub fn next(&mut self) -> Result<()> {
        let start = Instant::now();
        let round_trip_ns = loop {
            go_on(self.stop)?;
            let now_ns = round_trip_ns()?;
            self.least_ns = self.least_ns.min(now_ns);
            if now_ns <= NEAR * self.least_ns || start.elapsed() >= self.patience {
                break now_ns;
            }
            sleep(PAUSE);
        };
        self.patience = self.patience.saturating_sub(start.elapsed());
        self.round_trips_ns.push(round_trip_ns);
        Ok(())
    }

    /// A cache line's round trip at the beginning of each turn, beside the shortest, ns.
    pub fn round_trips(&self) -> Vec<(f64, f64)> {
        self.round_trips_ns.iter().map(|&ns| (ns, self.least_ns)).collect()
    }

    pub fn stop(&self) -> &'a AtomicBool {
        self.stop
    }
}

/// Of a cache line from this core to the server's and back.
fn round_trip_ns() -> Result<f64> {
    const OURS: u32 = 0;
    const THEIRS: u32 = 1;
    const OVER: u32 = 2;
    let ball = AtomicU32::new(OURS);
    scope(|scope| {
        let other = scope.spawn(|| -> Result<()> {
            let pinned = pin_to_cpu(SERVER_CPU);
            loop {
                match ball.load(Ordering::Acquire) {
                    THEIRS => ball.store(OURS, Ordering::Release),
                    OVER => return pinned,
                    _ => {}
                }
            }
        });
        let mut least_ns = f64::INFINITY;
        for _ in 0..SAMPLES {
            let start = Instant::now();
            for _ in 0..TRIPS_PER_SAMPLE {
                ball.store(THEIRS, Ordering::Release);
                while ball.load(Ordering::Acquire) != OURS {}
            }
            least_ns = least_ns.min(start.elapsed().as_nanos() as f64 / f64::from(TRIPS_PER_SAMPLE));
        }
        ball.store(OVER, Ordering::Release);
        other.join().ok().context("look how near the cores are")??;
        Ok(least_ns)
    })
}
