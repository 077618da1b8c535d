//! The rate at which a server saturates, by crowds against the stock server.

use anyhow::Result;
use experiment::{Policy, Probe, Probed, ServerSpec};
use results::Saturation;

use crate::cell::{self, Lab};
use crate::crowd::Send;

/// How often a probe must be unanswered: one stall of the machine must not end the search.
const TRIES: u32 = 2;

/// Finds the rate, before clients beside the server.
///
/// # Errors
///
/// See [`experiment::Experiment::find_saturation`]; and when a crowd cannot be sent.
pub(crate) fn find(
    lab: Lab<'_>,
    server: &ServerSpec,
    mut on_probe: impl FnMut(f64, f64),
) -> Result<Saturation> {
    let (near, stock) = (near(server), Policy::stock());
    lab.experiment.find_saturation(server, TRIES, |Probe { rate, warmup, window, timeout }| {
        let send = Send::evenly(rate, warmup, window, timeout);
        let measured = cell::run(lab, &near, &stock, &send)?;
        let (offered, goodput) = (measured.crowd.offered_per_s, measured.crowd.goodput_per_s);
        on_probe(offered, goodput);
        let round_trip_us = cell::micros(measured.round_trip);
        Ok(Probed { offered, goodput, round_trip_us, marks: measured.marks() })
    })
}

/// The same server with its clients beside it.
pub(crate) fn near(server: &ServerSpec) -> ServerSpec {
    let mut near = server.clone();
    near.way = None;
    near
}
