//! When it is somebody's turn: as soon as the two cores are near each other.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;

use crate::{CPU, SERVER_CPU};
use experiment::Layout;
use lab::Nearness;

/// Who is measured comes one after the other.
pub(crate) struct Turns<'a> {
    stop: &'a AtomicBool,
    cores: Nearness,
    patience: Duration,
    round_trips_ns: Vec<f64>,
}

impl<'a> Turns<'a> {
    pub(crate) fn new(stop: &'a AtomicBool) -> Result<Self> {
        let layout = Layout { server_cpu: SERVER_CPU, crowd_cpu: CPU, ..Layout::default() };
        let cores = Nearness::of(&layout)?;
        Ok(Self { stop, cores, patience: layout.patience, round_trips_ns: Vec::new() })
    }

    /// See [`Nearness::wait`].
    pub(crate) fn next(&mut self) -> Result<()> {
        self.round_trips_ns.push(self.cores.wait(self.patience, self.stop)?);
        Ok(())
    }

    /// A cache line's round trip at the beginning of each turn, beside the shortest, ns.
    pub(crate) fn round_trips(&self) -> Vec<(f64, f64)> {
        let least_ns = self.round_trips_ns.iter().copied().fold(f64::INFINITY, f64::min);
        self.round_trips_ns.iter().map(|&ns| (ns, least_ns)).collect()
    }

    pub(crate) fn stop(&self) -> &'a AtomicBool {
        self.stop
    }
}
