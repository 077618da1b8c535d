//! When it is somebody's turn: as soon as the two cores are near each other.

use std::sync::atomic::AtomicBool;

use anyhow::Result;

use super::{CPU, SERVER_CPU};
use crate::nearness::{Nearness, PATIENCE};

/// Who is measured comes one after the other.
pub struct Turns<'a> {
    stop: &'a AtomicBool,
    cores: Nearness,
    round_trips_ns: Vec<f64>,
}

impl<'a> Turns<'a> {
    pub fn new(stop: &'a AtomicBool) -> Self {
        Self { stop, cores: Nearness::of([CPU, SERVER_CPU]), round_trips_ns: Vec::new() }
    }

    /// See [`Nearness::wait`].
    pub fn next(&mut self) -> Result<()> {
        self.round_trips_ns.push(self.cores.wait(PATIENCE, self.stop)?);
        Ok(())
    }

    /// A cache line's round trip at the beginning of each turn, beside the shortest, ns.
    pub fn round_trips(&self) -> Vec<(f64, f64)> {
        self.round_trips_ns.iter().map(|&ns| (ns, self.cores.least_ns())).collect()
    }

    pub fn stop(&self) -> &'a AtomicBool {
        self.stop
    }
}
