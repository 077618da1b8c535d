//! Clients that are far from the server: `tidegate link` between the two, and what it counts.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use results::{LinkDirection, PathSummary};
use sim::PathCounts;

use crate::crowd::Send;
use crate::experiment::{Layout, Way};
use crate::middle::{self, LINK_LEFT, LINK_RIGHT, RunningLink};
use crate::testbed::Testbed;

/// Starts a link between the crowd and the server of a testbed; it counts when the warm-up is over.
pub fn start(
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
        ("--cpu", layout.link_cpu().to_string()),
    ];
    let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    [LINK_RIGHT.to_owned(), LINK_LEFT.to_owned()].into_iter().chain(options).collect()
}

/// Ends a link, and gives what it saw since the warm-up, and why that should be read with care.
pub fn finish(link: RunningLink, way: &Way) -> Result<(PathSummary, Vec<String>)> {
    link.running.terminate();
    let (_, directions) = link.finish()?;
    let counters = ["to_server", "to_clients"].into_iter().zip(&directions).flat_map(|(name, direction)| {
        let LinkDirection { arrived, delivered, drops, reordered, opening, opening_drops, .. } = direction;
        let lost = drops.get("loss").copied().unwrap_or(0);
        let all = Counted {
            arrived: arrived.packets,
            delivered: delivered.packets,
            dropped: drops.values().sum::<u64>() - lost,
            lost,
            reordered: *reordered,
            opening: *opening,
            opening_dropped: *opening_drops,
        };
        all.named(name)
    });
    let summary = PathSummary {
        counters: counters.collect(),
        late_p99_ms: directions.iter().map(|direction| direction.late.p99_ms).fold(0.0, f64::max),
        ..words(way)
    };
    Ok((summary, directions.iter().flat_map(middle::marks).collect()))
}

/// What paths of virtual time counted between two moments.
pub fn simulated(way: &Way, before: &[PathCounts; 2], after: &[PathCounts; 2]) -> PathSummary {
    let pairs = before.iter().zip(after);
    let counters = ["to_server", "to_clients"].into_iter().zip(pairs).flat_map(|(name, (before, after))| {
        let of = |count: fn(&PathCounts) -> u64| count(after) - count(before);
        let all = Counted {
            arrived: of(|counts| counts.packets.arrived.packets),
            delivered: of(|counts| counts.packets.delivered.packets),
            dropped: of(|counts| counts.packets.dropped.packets - counts.packets.lost),
            lost: of(|counts| counts.packets.lost),
            reordered: of(|counts| counts.packets.reordered),
            opening: of(|counts| counts.opening),
            opening_dropped: of(|counts| counts.opening_dropped),
        };
        all.named(name)
    });
    PathSummary { counters: counters.collect(), ..words(way) }
}

fn words(way: &Way) -> PathSummary {
    PathSummary {
        to_server: way.to_server.to_string(),
        to_clients: way.to_clients.to_string(),
        ..PathSummary::default()
    }
}

/// Packets of one direction, as [`PathSummary::counters`] has them.
struct Counted {
    arrived: u64,
    delivered: u64,
    dropped: u64,
    lost: u64,
    reordered: u64,
    opening: u64,
    opening_dropped: u64,
}

impl Counted {
    fn named(self, direction: &str) -> BTreeMap<String, u64> {
        let Self { arrived, delivered, dropped, lost, reordered, opening, opening_dropped } = self;
        let counts = [
            ("arrived", arrived),
            ("delivered", delivered),
            ("dropped", dropped),
            ("lost", lost),
            ("reordered", reordered),
            ("opening", opening),
            ("opening_dropped", opening_dropped),
        ];
        counts.map(|(name, count)| (format!("{direction}.{name}"), count)).into()
    }
}
