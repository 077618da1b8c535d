//! Tables of counters: the kernel's, the guard's, and those of the way between clients and server.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use results::Cell;

use crate::format;
use crate::policy::Policies;
use crate::results_table::by_load;
use crate::run::Point;
use crate::spread::Spread;

/// Kernel counters that explain overload, in the order of a connection's life, and what each
/// counts.
///
/// Source: Linux `include/uapi/linux/snmp.h` and its users in `net/ipv4/`.
const EXPLAINED: [(&str, &str); 16] = [
    ("ListenOverflows", "SYNs and handshake ACKs that found the accept queue full"),
    (
        "ListenDrops",
        "SYNs and handshake ACKs dropped by a listener, for any reason; includes ListenOverflows",
    ),
    ("TCPReqQFullDrop", "SYNs dropped because the SYN queue was full, cookies off"),
    ("TCPReqQFullDoCookies", "SYNs answered with a cookie because the SYN queue was full"),
    ("SyncookiesSent", "cookies sent"),
    ("SyncookiesRecv", "valid cookies received"),
    ("SyncookiesFailed", "invalid cookies received"),
    ("AttemptFails", "handshakes that failed"),
    ("EmbryonicRsts", "handshakes ended by a RST, received or sent (tcp_abort_on_overflow)"),
    ("PassiveOpens", "connections accepted by the stack"),
    ("EstabResets", "established connections reset"),
    ("OutRsts", "RSTs sent by the stack; the guard's are not among them"),
    ("RetransSegs", "segments retransmitted"),
    ("TCPTimeouts", "retransmission timeouts"),
    ("TCPSynRetrans", "SYNs and SYN/ACKs retransmitted"),
    ("TCPBacklogDrop", "segments dropped because a socket's backlog was full"),
];

/// Kernel counters that moved: those that explain overload, and all others folded away.
pub(crate) fn kernel_tables(points: &[Point], policies: &Policies) -> Markup {
    let (explained, others): (Vec<&str>, Vec<&str>) =
        moved(points, |cell| Some(&cell.kernel)).into_iter().partition(|name| rank(name).is_some());
    let mut explained = explained;
    explained.sort_by_key(|name| rank(name));
    html! {
        @if explained.is_empty() && others.is_empty() { p { "No counter moved." } }
        @if !explained.is_empty() { (counter_table(&explained, points, policies, |cell| Some(&cell.kernel))) }
        @if !others.is_empty() {
            details {
                summary { "All other counters that moved (" (others.len()) ")" }
                (counter_table(&others, points, policies, |cell| Some(&cell.kernel)))
            }
        }
    }
}

/// What the guards counted, zeros included: a counter that stayed at 0 says that nothing of its
/// kind came.
pub(crate) fn guard_table(points: &[Point], policies: &Policies) -> Markup {
    let guarded: Vec<Point> = points.iter().filter(|point| point.is_guarded()).cloned().collect();
    counter_table(&all(&guarded, |cell| cell.guard.as_ref()), &guarded, policies, |cell| cell.guard.as_ref())
}

/// What went between clients that are far away and the server, zeros included.
pub(crate) fn path_table(points: &[Point], policies: &Policies) -> Markup {
    counter_table(&all(points, path_counters), points, policies, path_counters)
}

fn path_counters(cell: &Cell) -> Option<&BTreeMap<String, u64>> {
    cell.path.as_ref().map(|path| &path.counters)
}

/// Names of the counters of some cell, in alphabetical order.
fn all<'a>(
    points: &[Point<'a>],
    counters: fn(&'a Cell) -> Option<&'a BTreeMap<String, u64>>,
) -> Vec<&'a str> {
    let maps = points.iter().flat_map(|point| &point.cells).filter_map(|cell| counters(cell));
    let names: BTreeSet<&str> = maps.flat_map(|counters| counters.keys().map(String::as_str)).collect();
    names.into_iter().collect()
}

/// Which counters of a cell a table shows.
type Counters = fn(&Cell) -> Option<&BTreeMap<String, u64>>;

/// One row per counter, one column per point, in groups of the same load.
fn counter_table(names: &[&str], points: &[Point], policies: &Policies, counters: Counters) -> Markup {
    html! {
        div.scroll {
            table.counters {
                thead {
                    tr {
                        th rowspan="2" scope="col" { "counter" }
                        @for group in by_load(points) {
                            th.group scope="colgroup" colspan=(group.len()) { (format::multiple(group[0].load())) "×" }
                        }
                    }
                    tr { @for point in points { th scope="col" { (policies.label(point.policy())) } } }
                }
                tbody {
                    @for name in names {
                        tr {
                            th scope="row" { (name) @if let Some(meaning) = meaning(name) { small { (meaning) } } }
                            @for point in points { (cell(name, point, counters)) }
                        }
                    }
                }
            }
        }
    }
}

fn cell(name: &str, point: &Point, counters: Counters) -> Markup {
    let maps = point.cells.iter().filter_map(|cell| counters(cell));
    let spread = Spread::of(maps.map(|map| map.get(name).copied().unwrap_or(0) as f64));
    html! {
        td {
            @match spread {
                Some(spread) => {
                    (format::count(spread.median))
                    @if let Some(range) = spread.range(format::count) { small.range { (range) } }
                }
                None => (format::NOTHING),
            }
        }
    }
}

/// Names of the counters that are above 0 in some cell, in alphabetical order.
fn moved<'a>(
    points: &[Point<'a>],
    counters: fn(&'a Cell) -> Option<&'a BTreeMap<String, u64>>,
) -> Vec<&'a str> {
    let names: BTreeSet<&str> = points
        .iter()
        .flat_map(|point| &point.cells)
        .filter_map(|cell| counters(cell))
        .flatten()
        .filter(|(_, value)| **value > 0)
        .map(|(name, _)| name.as_str())
        .collect();
    names.into_iter().collect()
}

/// The counter's own name, without its table: `ListenDrops` for `TcpExt.ListenDrops`.
pub(crate) fn short_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn rank(name: &str) -> Option<usize> {
    EXPLAINED.iter().position(|(known, _)| *known == short_name(name))
}

fn meaning(name: &str) -> Option<&'static str> {
    rank(name).map(|index| EXPLAINED[index].1)
}
