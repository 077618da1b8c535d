//! Runs a dumbbell on the running kernel: hosts with its TCP in two namespaces, and `tidegate link`
//! between them, with the hosts' own links in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use experiment::{Dumbbell, Event, Job, Layout, Outcome, Writer};
use results::{BottleneckSummary, Cell, Environment, LinkDirection, Record};
use sim::dumbbell::{Bulk, Dumbbell as Network, Population};
use tcp::Algorithm;
use units::Nanos;

use super::bed::{Bed, HostTcp, address};
use super::hosts::{self, BulkSource, Clock, SINK_PORT, Seen, Side, UsersOf};
use crate::child::Running;
use crate::environment::machine;
use crate::hold;
use crate::middle::{self, LINK_LEFT, LINK_RIGHT};
use crate::stop::unless_stopped;

/// How long a program may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is looked whether the run is to stop, or the link has ended.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Of the sockets that serve objects; more than users ask for at once.
const BACKLOG: &str = "4096";
/// Bulk flows and users at most: each is two sockets of this machine, or some.
const MOST_FLOWS: f64 = 5000.0;
/// Of hosts' links, packets: what would be dropped there would not be the bottleneck's.
const ACCESS_LIMIT: u32 = 50_000;
/// Of users' requests.
const LATE_REQUEST: Duration = Duration::from_millis(50);
/// Initial retransmission timeout of the running kernel (`TCP_TIMEOUT_INIT`, Linux 3.1 and newer).
const INITIAL_RTO: Nanos = Nanos::from_secs(1);

/// Runs it, with its results in a folder of its own. When `stop` is set it ends with what was
/// complete by then.
///
/// # Errors
///
/// When the machine cannot run it, or something fails on the way; what was measured by then stays
/// in the results folder.
pub(crate) fn run(
    dumbbell: &Dumbbell,
    program: &Path,
    results: &Path,
    stop: &AtomicBool,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let (jobs, left_out) = possible(dumbbell);
    for note in &left_out {
        on_event(&Event::Note(note));
    }
    ensure!(!jobs.is_empty(), "nothing of {} can be run here; see the notes above", dumbbell.name);
    let sysctls = try_hosts(&jobs)?;
    let mut deviations = deviations(dumbbell);
    deviations.extend(left_out);
    let header = dumbbell.header(Environment { sysctls, ..machine() }, deviations);
    let mut writer = Writer::begin(results, header, jobs.len())?;
    let mut measure_all = || -> Result<()> {
        for (number, job) in (1..).zip(&jobs) {
            let [scenario, aqm] = job.names;
            let cell =
                cell(job, program, stop).with_context(|| format!("{scenario} at {}x, {aqm}", job.load))?;
            on_event(&Event::Cell(&cell, number, jobs.len()));
            writer.write(Record::Cell(Box::new(cell)))?;
        }
        Ok(())
    };
    let measured = unless_stopped(measure_all(), stop);
    writer.conclude(measured, stop, |writer| dumbbell.answer(writer))
}

/// What can be run on a kernel, and a word about each scenario that cannot.
fn possible(dumbbell: &Dumbbell) -> (Vec<Job<'_>>, Vec<String>) {
    let mut notes: Vec<String> = Vec::new();
    let mut jobs = dumbbell.jobs();
    jobs.retain(|job| {
        let ([name, _], flows) = (job.names, job.flows);
        let why = if job.has_flood {
            format!("{name} is left out: floods are simulated only")
        } else if flows > MOST_FLOWS {
            format!("{name} at {}x is left out: {flows} flows and users, {MOST_FLOWS} at most", job.load)
        } else {
            return true;
        };
        if !notes.contains(&why) {
            notes.push(why);
        }
        false
    });
    (jobs, notes)
}

/// Makes hosts of every kind once, so that what this kernel does not have is known before anything
/// is measured; gives what decides how the first send.
fn try_hosts(jobs: &[Job<'_>]) -> Result<BTreeMap<String, String>> {
    let mut tried: Vec<&str> = Vec::new();
    let mut sysctls = None;
    for job in jobs {
        let [scenario, _] = job.names;
        if !tried.contains(&scenario) {
            tried.push(scenario);
            let tcp = host_tcp(job, &job.network()?);
            let bed = Bed::create(tcp).with_context(|| format!("make the hosts of {scenario}"))?;
            sysctls.get_or_insert_with(|| bed.sysctls());
        }
    }
    hold::make_room(2 * MOST_FLOWS as u64)?;
    Ok(sysctls.unwrap_or_default())
}

fn host_tcp(job: &Job<'_>, network: &Network) -> HostTcp {
    HostTcp {
        algorithm: match network.algorithm {
            Algorithm::Classic | Algorithm::NewReno => "reno",
            Algorithm::Cubic => "cubic",
        },
        mss: network.stack.mss,
        has_sack: network.stack.sack,
        initial_window: network.stack.initial_window,
        least_rto: job.least_rto,
    }
}

fn deviations(dumbbell: &Dumbbell) -> Vec<String> {
    let mut deviations = vec![
        "Hosts are addresses of two network namespaces of one machine. Their links to the bottleneck, each with its rate and delay, and the bottleneck are one \
         tidegate link, which writes down how late frames left it."
            .to_owned(),
        "TCP is the running kernel's at both ends, its timers included: it is told congestion control, segment size, initial window and least timeout of the file, whether its \
         stack has selective acknowledgements, and no other word of its [tcp]. Timestamps are off, as is what it remembers of peers."
            .to_owned(),
        "TCP and generic segmentation offload are off, so that a frame is what a wire would carry.".to_owned(),
        "A client opens each connection and sends a request of one packet, and tidegate serve sends as many bytes, its head among them, and closes. Times are from connect(2) \
         to when the last byte was read."
            .to_owned(),
        "Which packet of its flow a drop is, is not counted.".to_owned(),
    ];
    if let Some(stack) = dumbbell.stacks().find(|stack| *stack != tcp::STACKS[0].name) {
        deviations.push(format!(
            "The file's TCP is {stack}'s; the running kernel's initial timeout is {} s.",
            INITIAL_RTO.as_secs_f64()
        ));
    }
    if dumbbell.is_quick {
        deviations.push("A quick run, which shows that all works and no more.".to_owned());
    }
    deviations
}

fn cell(job: &Job<'_>, program: &Path, stop: &AtomicBool) -> Result<Cell> {
    let network = job.network()?;
    let [warmup, duration] = job.times;
    let bed = Bed::create(host_tcp(job, &network))?;
    let mut command = bed.servers.command(program)?;
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, Layout::SERVER.port())).to_string();
    command.args(["serve", "--listen", &listen, "--backlog", BACKLOG, "--json"]);
    let mut serve = Running::start("tidegate serve", &mut command)?;
    serve.wait_for("listening", PATIENCE)?;
    let mut link = bed.middle.start(program, &link_arguments(&network, [warmup, duration]))?;
    let clock = Clock { start: Instant::now(), window: [warmup, warmup + duration] };
    let rate_bps = network.to_right.rate.map_or(f64::INFINITY, |rate| rate.bits_per_s() as f64);
    let seen = run_hosts(&bed, sides(network), clock, &mut link.running, stop)?;
    let (said, [forward, backward]) = link.finish()?;
    let marks = [&forward, &backward].into_iter().flat_map(middle::marks).chain(host_marks(&seen)).collect();
    let utilisation = forward.delivered.bytes as f64 * 8.0 / (rate_bps * said.elapsed_s);
    let summary = summary(job, utilisation, &forward, &seen);
    let [_, clients] = seen;
    Ok(job.cell(summary, &clients.completions, marks))
}

/// The bottleneck and the hosts' links, in words.
fn link_arguments(network: &Network, [warmup, duration]: [Duration; 2]) -> Vec<String> {
    let millis = |duration: Duration| format!("{}ms", duration.as_millis());
    let mut arguments = vec![LINK_LEFT.to_owned(), LINK_RIGHT.to_owned()];
    for (name, value) in [
        ("--forward", network.to_right.to_string()),
        ("--backward", network.to_left.to_string()),
        ("--warmup", millis(warmup)),
        ("--duration", millis(duration)),
        ("--seed", network.seed.to_string()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    for (host, delay) in (0..).zip(network.left.iter().chain(&network.right)) {
        let words = format!(
            "{} rate {}mbit delay {}ns limit {ACCESS_LIMIT}",
            address(host, hosts(network)),
            network.access_rate_bps / 1_000_000,
            delay.0
        );
        arguments.extend(["--access".to_owned(), words]);
    }
    arguments
}

/// On each side.
fn hosts(network: &Network) -> u32 {
    u32::try_from(network.left.len()).expect("1000 at most")
}

/// What the hosts on the left do, and those on the right.
fn sides(network: Network) -> [Side; 2] {
    let hosts = hosts(&network);
    let Network { bulk, users, seed, stack, .. } = network;
    let sink = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SINK_PORT));
    let source = |(number, bulk): (u16, Bulk)| BulkSource {
        number,
        from: address(bulk.from, hosts),
        to: (address(bulk.to, hosts), SINK_PORT).into(),
        starts: bulk.starts,
    };
    let (left, right): (Vec<_>, Vec<_>) = (0..).zip(bulk).partition(|(_, bulk)| bulk.from < hosts);
    let users = users.map(|users| UsersOf {
        crowd: Population::new(users, (hosts, hosts), seed),
        address: Box::new(move |host| address(host, hosts)),
        port: Layout::SERVER.port(),
        mss: stack.mss.into(),
    });
    [
        Side { sink, bulk: left.into_iter().map(source).collect(), users: None },
        Side { sink, bulk: right.into_iter().map(source).collect(), users },
    ]
}

/// Runs both sides until the window's end, the run's stop or the link's.
fn run_hosts(
    bed: &Bed,
    sides: [Side; 2],
    clock: Clock,
    link: &mut Running,
    stop: &AtomicBool,
) -> Result<[Seen; 2]> {
    let over = AtomicBool::new(false);
    scope(|scope| {
        let [left, right] = sides;
        // Both before either thread begins, which would else be waited for.
        let files = [netns::open(bed.servers.name())?, netns::open(bed.clients.name())?];
        let [of_servers, of_clients] = files;
        let start = |namespace: &'static str, side: Side, file: File| {
            let over = &over;
            let act = move || {
                let ran = netns::enter(&file, || hosts::run(side, clock, over))?;
                ran.with_context(|| format!("hosts of the {namespace}"))
            };
            scope.spawn(act)
        };
        let threads = [start("servers", left, of_servers), start("clients", right, of_clients)];
        let ended = watch(&threads, clock, link, stop);
        over.store(true, Ordering::Relaxed);
        let [left, right] = threads
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow!("a thread of hosts panicked"))));
        // What went wrong with the hosts is why they ended before their time.
        let seen = [left?, right?];
        ended?;
        Ok(seen)
    })
}

fn watch<T>(
    threads: &[ScopedJoinHandle<'_, T>],
    clock: Clock,
    link: &mut Running,
    stop: &AtomicBool,
) -> Result<()> {
    while !threads.iter().all(ScopedJoinHandle::is_finished) {
        ensure!(!stop.load(Ordering::Relaxed), "stopped");
        // It began a moment before, and may end so.
        let is_near_end = clock.start.elapsed() + PATIENCE / 10 > clock.window[1];
        if !is_near_end && link.has_ended() {
            return link.wait_for_end(PATIENCE).and_then(|()| bail!("tidegate link ended before its time"));
        }
        if !is_near_end && threads.iter().any(ScopedJoinHandle::is_finished) {
            return Ok(());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn summary(
    job: &Job<'_>,
    utilisation: f64,
    link: &LinkDirection,
    [left, right]: &[Seen; 2],
) -> BottleneckSummary {
    let [_, window] = job.times;
    let window_s = window.as_secs_f64();
    let lost = link.drops.get("loss").copied().unwrap_or(0);
    let mut drops_by_reason = link.drops.clone();
    drops_by_reason.remove("loss");
    let mut bulk_bytes_per_s = vec![0.0; job.bulk as usize];
    for (number, bytes) in left.bulk_bytes.iter().chain(&right.bulk_bytes) {
        if let Some(flow) = bulk_bytes_per_s.get_mut(usize::from(*number)) {
            *flow = *bytes as f64 / window_s;
        }
    }
    BottleneckSummary {
        utilisation,
        queue_pkts: link.queue_pkts,
        packets: link.arrived.packets,
        drops: drops_by_reason.values().sum(),
        drops_by_reason,
        lost,
        opening: link.opening,
        opening_drops: link.opening_drops,
        goodput_bytes_per_s: right.bytes as f64 / window_s,
        bulk_bytes_per_s,
        objects: right.asked,
        initial_rto_ms: INITIAL_RTO.as_millis_f64(),
        ..BottleneckSummary::default()
    }
}

fn host_marks(seen: &[Seen; 2]) -> Vec<String> {
    let latest = seen.iter().map(|seen| seen.latest).max().unwrap_or_default();
    let broken: u64 = seen.iter().map(|seen| seen.broken).sum();
    let late = (latest > LATE_REQUEST).then(|| format!("a request was made {} ms late", latest.as_millis()));
    let broken = (broken > 0)
        .then(|| format!("connections of bulk flows that broke off, each followed by another: {broken}"));
    let failed: u64 = seen.iter().map(|seen| seen.failed).sum();
    let failed = (failed > 0).then(|| format!("the connections of {failed} objects failed"));
    late.into_iter().chain(broken).chain(failed).collect()
}

#[cfg(test)]
mod tests {
    use experiment::Plan;

    use super::*;

    const PAPER: &str = "paper";
    const BEYOND: &str = "beyond";

    fn parse(name: &str) -> Dumbbell {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/syn-protection");
        let plan = Plan::read(&folder.join(format!("{name}.toml")), false).expect("it comes along");
        let Plan::Dumbbell(dumbbell) = plan else { panic!("{name} has a bottleneck") };
        *dumbbell
    }

    #[test]
    fn hosts_have_their_round_trips_in_the_words_of_the_link() {
        let paper = parse(PAPER);
        let (jobs, left_out) = possible(&paper);
        assert_eq!((jobs.len(), left_out.len()), (120, 0));
        let network = jobs[0].network().expect("it can be run");
        let arguments = link_arguments(&network, jobs[0].times);
        // 5 ms, of which the bottleneck has 2, and 100 ms.
        for words in [
            "10.78.0.1 rate 100mbit delay 1500000ns limit 50000",
            "10.78.0.9 rate 100mbit delay 49000000ns limit 50000",
            "10.79.0.9 rate 100mbit delay 0ns limit 50000",
        ] {
            assert!(arguments.iter().any(|argument| argument == words), "{words}: {arguments:?}");
            words.split_once(' ').expect("words").1.parse::<path::Config>().expect("the link takes them");
        }
        let forward = arguments.iter().position(|argument| argument == "--forward").expect("it is told") + 1;
        assert_eq!(arguments[forward].parse::<path::Config>(), Ok(network.to_right));
        assert!(deviations(&paper).iter().any(|text| text.contains("linux-2.4's")));
    }

    #[test]
    fn what_only_a_simulation_has_is_left_out_with_a_word() {
        let (beyond, paper) = (parse(BEYOND), parse(PAPER));
        let (jobs, left_out) = possible(&beyond);
        assert!(jobs.iter().all(|job| job.names[0] == "users" && job.load <= 100.0));
        assert_eq!(left_out.len(), 3, "{left_out:?}");
        assert!(deviations(&beyond).len() < deviations(&paper).len(), "it has the kernel's own timers");
    }

    #[test]
    fn flows_have_the_same_ends_as_in_virtual_time() {
        let paper = parse(PAPER);
        let (jobs, _) = possible(&paper);
        let [left, right] = sides(jobs[0].network().expect("it can be run"));
        assert_eq!((left.bulk.len(), right.bulk.len()), (9, 1));
        assert_eq!(left.bulk[3].from.to_string(), "10.78.0.4");
        assert_eq!(left.bulk[3].to.to_string(), "10.79.0.4:9");
        assert_eq!((right.bulk[0].number, right.bulk[0].from.to_string().as_str()), (9, "10.79.0.1"));
        assert!(left.users.is_none() && right.users.is_some());
    }
}
