//! Clients that are far from the server: `tidegate link` between the two, and what it counts.

use std::path::Path;

use anyhow::{Context, Result};
use experiment::{Layout, PathCounted, Way};
use results::{LinkDirection, PathSummary};

use crate::crowd::Send;
use crate::middle::{self, LINK_LEFT, LINK_RIGHT, RunningLink};
use crate::testbed::{Testbed, link_cpu};

/// Starts a link between the crowd and the server of a testbed; it counts when the warm-up is over.
pub(crate) fn start(
    way: &Way,
    testbed: &Testbed,
    send: &Send,
    program: &Path,
    layout: &Layout,
) -> Result<RunningLink> {
    let middle = testbed.middle.as_ref().context("a testbed whose ends are far from each other")?;
    middle.start(program, &arguments(way, send, layout))
}

/// Forward is to the server, whose side is the left.
fn arguments(way: &Way, send: &Send, layout: &Layout) -> Vec<String> {
    let options = [
        ("--forward", way.to_server.to_string()),
        ("--backward", way.to_clients.to_string()),
        ("--warmup", format!("{}ms", send.warmup.as_millis())),
        ("--seed", send.seed.to_string()),
        ("--cpu", link_cpu(layout).to_string()),
    ];
    let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    [LINK_RIGHT.to_owned(), LINK_LEFT.to_owned()].into_iter().chain(options).collect()
}

/// Ends a link, and gives what it saw since the warm-up, and why that should be read with care.
pub(crate) fn finish(link: RunningLink, way: &Way) -> Result<(PathSummary, Vec<String>)> {
    link.running.terminate();
    let (_, directions) = link.finish()?;
    let counted = directions.each_ref().map(|direction| {
        let LinkDirection { arrived, delivered, drops, reordered, opening, opening_drops, .. } = direction;
        let lost = drops.get("loss").copied().unwrap_or(0);
        PathCounted {
            arrived: arrived.packets,
            delivered: delivered.packets,
            dropped: drops.values().sum::<u64>() - lost,
            lost,
            reordered: *reordered,
            opening: *opening,
            opening_dropped: *opening_drops,
        }
    });
    let late_p99_ms = directions.iter().map(|direction| direction.late.p99_ms).fold(0.0, f64::max);
    let summary = PathSummary { late_p99_ms, ..way.summary(&counted) };
    Ok((summary, directions.iter().flat_map(middle::marks).collect()))
}
