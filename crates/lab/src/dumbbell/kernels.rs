//! Runs a dumbbell on the running kernel: hosts with its TCP in two namespaces, and `tidegate link` between them, with the hosts' own links in it.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use results::{BottleneckSummary, Cell, LinkDirection, LinkSummary, Record};
use sim::dumbbell::{Bulk, Crowd};
use units::Nanos;

use super::bed::{Bed, HostTcp, address};
use super::hosts::{self, BulkSource, Clock, SINK_PORT, Seen, Side, UsersOf};
use super::run::{Job, answer, delays, jobs};
use super::times::{distribution, means};
use super::{AlgorithmName, Dumbbell, Scenario};
use crate::child::Running;
use crate::grid::Event;
use crate::middle::{self, LINK_LEFT, LINK_RIGHT};
use crate::outcome::{Options, Outcome, Writer, unless_stopped};
use crate::testbed::PORT;
use crate::{environment, hold};

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

/// Runs it, with its results in a folder of its own. When `stop` is set it ends with what was complete by then.
///
/// # Errors
///
/// When the machine cannot run it, or something fails on the way; what was measured by then stays in the results folder.
pub fn run(
    dumbbell: &Dumbbell,
    options: &Options,
    stop: &AtomicBool,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let (jobs, left_out) = possible(dumbbell);
    for note in &left_out {
        on_event(&Event::Note(note));
    }
    ensure!(!jobs.is_empty(), "nothing of {} can be run here; see the notes above", dumbbell.name);
    let sysctls = try_hosts(&jobs)?;
    let mut writer = Writer::create(&options.results, &dumbbell.name)?;
    let mut deviations = deviations(dumbbell);
    deviations.extend(left_out);
    let header = environment::of_real_dumbbell(dumbbell, deviations, sysctls);
    writer.begin(header, jobs.len())?;
    let mut measure_all = || -> Result<()> {
        for (number, job) in (1..).zip(&jobs) {
            let cell = cell(job, options, stop)
                .with_context(|| format!("{} at {}x, {}", job.scenario.name, job.load, job.aqm.name))?;
            on_event(&Event::Cell(&cell, number, jobs.len()));
            writer.write(Record::Cell(Box::new(cell)))?;
        }
        Ok(())
    };
    let measured = unless_stopped(measure_all(), stop);
    writer.conclude(measured, stop, |writer| answer(dumbbell, writer))
}

/// What can be run on a kernel, and a word about each scenario that cannot.
fn possible(dumbbell: &Dumbbell) -> (Vec<Job<'_>>, Vec<String>) {
    let mut notes: Vec<String> = Vec::new();
    let mut jobs = jobs(dumbbell);
    jobs.retain(|job| {
        let Scenario { name, flood_per_s, sessions, reverse, .. } = job.scenario;
        let flows = f64::from(job.bulk()) + f64::from(*reverse) + f64::from(*sessions);
        let why = if *flood_per_s > 0.0 {
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

/// Makes hosts of every kind once, so that what this kernel does not have is known before anything is measured; gives what decides how the first send.
fn try_hosts(jobs: &[Job<'_>]) -> Result<BTreeMap<String, String>> {
    let mut tried: Vec<&str> = Vec::new();
    let mut sysctls = None;
    for job in jobs {
        if !tried.contains(&job.scenario.name.as_str()) {
            tried.push(&job.scenario.name);
            let bed = Bed::create(host_tcp(job)?)
                .with_context(|| format!("make the hosts of {}", job.scenario.name))?;
            sysctls.get_or_insert_with(|| bed.sysctls());
        }
    }
    hold::make_room(2 * MOST_FLOWS as u64)?;
    Ok(sysctls.unwrap_or_default())
}

fn host_tcp(job: &Job<'_>) -> Result<HostTcp> {
    Ok(HostTcp {
        algorithm: match job.tcp().algorithm {
            AlgorithmName::Classic | AlgorithmName::Reno => "reno",
            AlgorithmName::Cubic => "cubic",
        },
        mss: job.tcp().mss,
        initial_window: job.stack()?.initial_window,
        least_rto: job.tcp().least_rto,
    })
}

fn deviations(dumbbell: &Dumbbell) -> Vec<String> {
    let mut deviations = vec![
        "Hosts are addresses of two network namespaces of one machine. Their links to the bottleneck, each with its rate and delay, and the bottleneck are one \
         tidegate link, which writes down how late frames left it."
            .to_owned(),
        "TCP is the running kernel's at both ends, its timers included: it is told congestion control, segment size, initial window and least timeout of the file, and no \
         other word of its [tcp]. Timestamps are off, as is what it remembers of peers."
            .to_owned(),
        "TCP and generic segmentation offload are off, so that a frame is what a wire would carry.".to_owned(),
        "A client opens each connection and sends a request of one packet, and tidegate serve sends as many bytes, its head among them, and closes. Times are from connect(2) \
         to when the last byte was read."
            .to_owned(),
        "Which packet of its flow a drop is, is not counted.".to_owned(),
    ];
    let tcps = dumbbell.scenarios.iter().filter_map(|scenario| scenario.tcp.as_ref());
    let others = [&dumbbell.tcp].into_iter().chain(tcps).filter(|tcp| tcp.stack != tcp::STACKS[0].name);
    let others: Vec<&str> = others.map(|tcp| tcp.stack.as_str()).collect();
    if let Some(stack) = others.first() {
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

fn cell(job: &Job<'_>, options: &Options, stop: &AtomicBool) -> Result<Cell> {
    let grid = &job.dumbbell.grid;
    let bed = Bed::create(host_tcp(job)?)?;
    let mut command = bed.servers.command(&options.program)?;
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).to_string();
    command.args(["serve", "--listen", &listen, "--backlog", BACKLOG, "--json"]);
    let mut serve = Running::start("tidegate serve", &mut command)?;
    serve.wait_for("listening", PATIENCE)?;
    let sides = sides(job)?;
    let mut link = bed.middle.start(&options.program, &link_arguments(job))?;
    let clock = Clock { start: Instant::now(), window: [grid.warmup, grid.warmup + grid.duration] };
    let seen = run_hosts(&bed, sides, clock, &mut link.running, stop)?;
    let (said, [forward, backward]) = link.finish()?;
    let marks = [&forward, &backward].into_iter().flat_map(middle::marks).chain(host_marks(&seen)).collect();
    Ok(Cell {
        server: job.scenario.name.clone(),
        policy: job.aqm.name.clone(),
        load: job.load,
        repetition: job.repetition,
        link: Some(Box::new(summary(job, &said, &forward, seen))),
        marks,
        ..Cell::default()
    })
}

/// The bottleneck and the hosts' links, in words.
fn link_arguments(job: &Job<'_>) -> Vec<String> {
    let network = &job.dumbbell.network;
    let [forward, backward] = job.paths();
    let millis = |duration: Duration| format!("{}ms", duration.as_millis());
    let mut arguments = vec![LINK_LEFT.to_owned(), LINK_RIGHT.to_owned()];
    for (name, value) in [
        ("--forward", forward.to_string()),
        ("--backward", backward.to_string()),
        ("--warmup", millis(job.dumbbell.grid.warmup)),
        ("--duration", millis(job.dumbbell.grid.duration)),
        ("--seed", job.seed().to_string()),
    ] {
        arguments.extend([name.to_owned(), value]);
    }
    let (left, right) = delays(job.dumbbell);
    for (host, delay) in (0..).zip(left.iter().chain(&right)) {
        let words = format!(
            "{} rate {}mbit delay {}ns limit {ACCESS_LIMIT}",
            address(host, network.hosts),
            network.access_mbit,
            delay.0
        );
        arguments.extend(["--access".to_owned(), words]);
    }
    arguments
}

/// What the hosts on the left do, and those on the right.
fn sides(job: &Job<'_>) -> Result<[Side; 2]> {
    let hosts = job.dumbbell.network.hosts;
    let sink = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SINK_PORT));
    let source = |(number, bulk): (u16, Bulk)| BulkSource {
        number,
        from: address(bulk.from, hosts),
        to: (address(bulk.to, hosts), SINK_PORT).into(),
        starts: bulk.starts,
    };
    let (left, right): (Vec<_>, Vec<_>) = (0..).zip(job.flows()).partition(|(_, bulk)| bulk.from < hosts);
    let users = job.users()?.map(|users| UsersOf {
        crowd: Crowd::new(users, (hosts, hosts), job.seed()),
        address: Box::new(move |host| address(host, hosts)),
        port: PORT,
        mss: job.tcp().mss.into(),
    });
    Ok([
        Side { sink, bulk: left.into_iter().map(source).collect(), users: None },
        Side { sink, bulk: right.into_iter().map(source).collect(), users },
    ])
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
    said: &LinkSummary,
    link: &LinkDirection,
    [left, right]: [Seen; 2],
) -> BottleneckSummary {
    let window_s = job.dumbbell.grid.duration.as_secs_f64();
    let lost = link.drops.get("loss").copied().unwrap_or(0);
    let mut drops_by_reason = link.drops.clone();
    drops_by_reason.remove("loss");
    let rate_bps = job.dumbbell.network.link.rate.map_or(f64::INFINITY, |rate| rate.bits_per_s() as f64);
    let mut bulk_bytes_per_s = vec![0.0; job.bulk() as usize];
    for (number, bytes) in left.bulk_bytes.iter().chain(&right.bulk_bytes) {
        if let Some(flow) = bulk_bytes_per_s.get_mut(usize::from(*number)) {
            *flow = *bytes as f64 / window_s;
        }
    }
    BottleneckSummary {
        utilisation: link.delivered.bytes as f64 * 8.0 / (rate_bps * said.elapsed_s),
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
        objects_done: right.completions.len() as u64,
        done_by_ms: distribution(&right.completions),
        mean_by_pkts: means(&right.completions),
        initial_rto_ms: INITIAL_RTO.as_millis_f64(),
        ..BottleneckSummary::default()
    }
}

fn host_marks(seen: &[Seen; 2]) -> Vec<String> {
    let latest = seen.iter().map(|seen| seen.latest).max().unwrap_or_default();
    let broken: u64 = seen.iter().map(|seen| seen.broken).sum();
    let late = (latest > LATE_REQUEST).then(|| format!("a request was made {} ms late", latest.as_millis()));
    let broken = (broken > 0).then(|| format!("{broken} bulk flows broke off"));
    let failed: u64 = seen.iter().map(|seen| seen.failed).sum();
    let failed = (failed > 0).then(|| format!("the connections of {failed} objects failed"));
    late.into_iter().chain(broken).chain(failed).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PAPER: &str = include_str!("../../../../experiments/syn-protection/paper.toml");
    const BEYOND: &str = include_str!("../../../../experiments/syn-protection/beyond.toml");

    fn parse(text: &str) -> Dumbbell {
        Dumbbell::parse(Path::new("d.toml"), text.to_owned()).expect("it comes along")
    }

    #[test]
    fn hosts_have_their_round_trips_in_the_words_of_the_link() {
        let paper = parse(PAPER);
        let (jobs, left_out) = possible(&paper);
        assert_eq!((jobs.len(), left_out.len()), (120, 0));
        let arguments = link_arguments(&jobs[0]);
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
        assert_eq!(arguments[forward].parse::<path::Config>(), Ok(jobs[0].paths()[0].clone()));
        assert!(deviations(&paper).iter().any(|text| text.contains("linux-2.4's")));
    }

    #[test]
    fn what_only_a_simulation_has_is_left_out_with_a_word() {
        let (beyond, paper) = (parse(BEYOND), parse(PAPER));
        let (jobs, left_out) = possible(&beyond);
        assert!(jobs.iter().all(|job| job.scenario.name == "users" && job.load <= 100.0));
        assert_eq!(left_out.len(), 3, "{left_out:?}");
        assert!(deviations(&beyond).len() < deviations(&paper).len(), "it has the kernel's own timers");
    }

    #[test]
    fn flows_have_the_same_ends_as_in_virtual_time() {
        let paper = parse(PAPER);
        let (jobs, _) = possible(&paper);
        let [left, right] = sides(&jobs[0]).expect("it can be run");
        assert_eq!((left.bulk.len(), right.bulk.len()), (9, 1));
        assert_eq!(left.bulk[3].from.to_string(), "10.78.0.4");
        assert_eq!(left.bulk[3].to.to_string(), "10.79.0.4:9");
        assert_eq!((right.bulk[0].number, right.bulk[0].from.to_string().as_str()), (9, "10.79.0.1"));
        assert!(left.users.is_none() && right.users.is_some());
    }
}
