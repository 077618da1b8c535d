//! `tidegate listeners`: who listens on this host, how full the queues are, and why clients wait.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use watch::{Counter, Counters, Entry, Hook, Inventory, Process, Watch};

use crate::output::{or_dash, printable, say};
use crate::printer::complain;
use crate::signals;

/// Longest time until a signal is noticed.
const NAP: Duration = Duration::from_millis(50);

/// List the listening TCP sockets of all network namespaces by their load
///
/// The fullest accept queue comes first. Nothing is changed, and nothing stays behind. Needs root,
/// or CAP_BPF and CAP_PERFMON for limits and rates, and CAP_SYS_ADMIN for other network namespaces;
/// without, it lists what /proc shows and says what is missing.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Measure for this long, as in 10s: SYNs, accepts, times in the accept queue, and why SYNs and
    /// handshakes were dropped
    #[arg(long, value_name = "D", value_parser = spelling::time)]
    watch: Option<Duration>,

    /// Print JSON lines: a "listener" for each socket, a "group" for those that share an address, a
    /// "missing" for each gap
    #[arg(long)]
    json: bool,
}

/// Lists once, at the end of `--watch` if there is one.
pub fn run(args: Args) -> Result<()> {
    let wanted: &[Hook] = if args.watch.is_some() { &Hook::ALL } else { &[] };
    let (watch, refusal) = match Watch::start(wanted) {
        Ok(watch) => (Some(watch), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    let mut inventory = Inventory::take(watch.as_ref())?;
    let mut span = None;
    if let Some(duration) = args.watch {
        let start = Instant::now();
        wait(duration)?;
        inventory = Inventory::take(watch.as_ref())?.since(&inventory);
        span = Some(start.elapsed());
    }
    let missing = watch.iter().flat_map(Watch::gaps);
    let missing: Vec<String> = refusal.into_iter().chain(missing).chain(inventory.gaps.clone()).collect();
    if args.json { lines(&inventory, span, &missing) } else { table(&inventory, span, &missing) }
}

/// Until the time is over, or a signal.
fn wait(duration: Duration) -> Result<()> {
    let (start, stop) = (Instant::now(), signals::stop_flag()?);
    while start.elapsed() < duration && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(NAP.min(duration.saturating_sub(start.elapsed())));
    }
    Ok(())
}

fn table(inventory: &Inventory, span: Option<Duration>, missing: &[String]) -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let measured = ["SYNs/s", "accepts/s", "wait p50", "p99", "causes"];
    let mut header = vec!["listener", "accept queue", "SYN queue", "drops"];
    if span.is_some() {
        header[3] = "drops/s";
        header.extend(measured);
    }
    header.extend(["netns", "command", "cgroup"]);
    table.set_header(&header);
    for (index, word) in header.iter().enumerate() {
        let is_number = (1..header.len() - 3).contains(&index) && *word != "causes";
        let column = table.column_mut(index).expect("it was just named");
        column.set_cell_alignment(if is_number { CellAlignment::Right } else { CellAlignment::Left });
    }
    for group in &inventory.groups {
        if group.len() > 1 {
            let address = format!("{} ({} sockets)", group[0].listener.address, group.len());
            table.add_row(row(address, &Entry::sum(group), span));
        }
        for entry in group {
            let indent = if group.len() > 1 { "  " } else { "" };
            table.add_row(row(format!("{indent}{}", entry.listener.address), entry, span));
        }
    }
    for line in table.lines() {
        say(line.trim_end())?;
    }
    missing.iter().for_each(complain);
    Ok(())
}

fn row(address: String, entry: &Entry, span: Option<Duration>) -> Vec<String> {
    let queues = entry.listener.queues;
    let limit = queues.and_then(|queues| queues.accept_limit);
    let queue = |length: Option<u32>| format!("{}/{}", or_dash(length), or_dash(limit));
    let drops = entry.listener.drops.map(u64::from);
    let mut row = vec![
        address,
        queue(queues.map(|queues| queues.accept_qlen)),
        queue(queues.and_then(|queues| queues.syn_qlen)),
        or_dash(span.map_or(drops, |span| drops.map(|drops| per_s(drops, span)))),
    ];
    if let Some(span) = span {
        let rate = |count: Option<u64>| or_dash(count.map(|count| per_s(count, span)));
        let counters = entry.counters.as_ref();
        let wait = |share: f64| or_dash(counters.and_then(|all| all.sojourns_us()?.below(share)).map(Below));
        row.extend([
            rate(counters.and_then(Counters::all_syns)),
            rate(counters.and_then(|all| all.get(Counter::Accepted))),
            wait(0.5),
            wait(0.99),
            counters.map_or_else(|| "-".to_owned(), |counters| causes(counters, span)),
        ]);
    }
    let netns = entry.netns.clone().unwrap_or_else(|| entry.listener.netns_inode.to_string());
    row.extend([netns, command(&entry.owners), or_dash(entry.cgroup.as_deref())]);
    row.iter().map(|cell| printable(cell)).collect()
}

/// Those that occurred, with their rates; those that are not known.
fn causes(counters: &Counters, span: Duration) -> String {
    let mut words = Vec::new();
    for cause in Counter::CAUSES {
        match counters.get(cause) {
            Some(0) => {}
            Some(count) => words.push(format!("{} {}/s", cause.title(), per_s(count, span))),
            None => words.push(format!("{} -", cause.title())),
        }
    }
    words.join(", ")
}

/// `nginx[812] and 3 more`.
fn command(owners: &[Process]) -> String {
    match owners {
        [] => "-".to_owned(),
        [one] => format!("{}[{}]", one.command, one.pid),
        [first, others @ ..] => format!("{}[{}] and {} more", first.command, first.pid, others.len()),
    }
}

/// A time that is above most, us.
struct Below(u64);

impl std::fmt::Display for Below {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            us if us < 1000 => write!(f, "<{us}us"),
            us if us < 1_000_000 => write!(f, "<{}ms", us.div_ceil(1000)),
            us => write!(f, "<{}s", us.div_ceil(1_000_000)),
        }
    }
}

fn per_s(count: u64, span: Duration) -> u64 {
    (count as f64 / span.as_secs_f64()).round() as u64
}

fn lines(inventory: &Inventory, span: Option<Duration>, missing: &[String]) -> Result<()> {
    for group in &inventory.groups {
        if group.len() > 1 {
            let mut line = object("group", &Entry::sum(group), span);
            line["sockets"] = group.len().into();
            say(line)?;
        }
        group.iter().try_for_each(|entry| {
            let mut line = object("listener", entry, span);
            line["cookie"] = entry.listener.cookie.into();
            line["inode"] = entry.listener.socket_inode.into();
            say(line)
        })?;
    }
    missing.iter().try_for_each(|gap| say(json!({ "event": "missing", "what": gap })))
}

/// Counts are of `span_s`, and `drops` as well; without it `drops` is of all time. What is not
/// known is null.
fn object(event: &str, entry: &Entry, span: Option<Duration>) -> Value {
    let Entry { listener, netns, owners, cgroup, counters } = entry;
    let owners: Vec<Value> =
        owners.iter().map(|owner| json!({ "pid": owner.pid, "command": owner.command })).collect();
    json!({
        "event": event,
        "listen": listener.address.to_string(),
        "netns": { "inode": listener.netns_inode, "name": netns },
        "cgroup": cgroup,
        "owners": owners,
        "accept_qlen": listener.queues.map(|queues| queues.accept_qlen),
        "accept_limit": listener.queues.and_then(|queues| queues.accept_limit),
        "syn_qlen": listener.queues.and_then(|queues| queues.syn_qlen),
        "drops": listener.drops,
        "span_s": span.map(|span| (span.as_secs_f64() * 1e3).round() / 1e3),
        "counters": counters.as_ref().map(crate::output::counters),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bounds_in_the_unit_that_fits() {
        let texts: Vec<String> = [1, 512, 1024, 65536, 1 << 21].map(|us| Below(us).to_string()).into();
        assert_eq!(texts, ["<1us", "<512us", "<2ms", "<66ms", "<3s"]);
    }

    #[test]
    fn command_names_the_first_of_many() {
        let process = |pid| Process { pid, command: "nginx".to_owned(), cgroup: None };
        assert_eq!(command(&[process(8), process(9), process(10)]), "nginx[8] and 2 more");
        assert_eq!((command(&[process(8)]), command(&[])), ("nginx[8]".to_owned(), "-".to_owned()));
    }
}
