//! One point of the grid, in a testbed of its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use experiment::{Experiment, Layout, Policy, SAMPLE_EVERY, ServerSpec, TIME_WAITS};
use netns::Namespace;
use results::{Cell, CrowdSummary, Flood, GuardSample, Held, PathSummary, Sample, Saturation};
use telemetry::{Reading, counter};

use crate::child::Running;
use crate::crowd::{self, Send};
use crate::distance;
use crate::gauge::Gauge;
use crate::guard;
use crate::hold::{self, Holders};
use crate::middle::RunningLink;
use crate::nearness::Nearness;
use crate::nft;
use crate::pages;
use crate::probe::{Difference, SLEEPS, Snapshot, grown, settle};
use crate::saturation;
use crate::server::{self, Given};
use crate::stop::STOP_EVERY;
use crate::testbed::Testbed;
use crate::undisturbed::{Undisturbed, undisturbed};
use crate::uplink;

/// Speeds of a CPU that differ by less than this factor are as one.
const SAME_SPEED: f64 = 1.15;
/// Share of a CPU that a hypervisor may take without a mark.
const MOST_STEAL: f64 = 0.02;
/// Held connections are there when this share of them is open at the end.
const HELD: f64 = 0.9;
/// Of a look at the machine, a tenth of its window: three of the gauge's looks, and as many as say
/// more.
const SHORTEST_MOMENT: Duration = Duration::from_millis(300);
const LONGEST_MOMENT: Duration = Duration::from_secs(2);
/// A crowd waits for CPUs that are near each other no longer than so many times what it takes
/// itself.
const WAITS: u32 = 3;

/// What every cell of a run shares.
#[derive(Debug, Clone, Copy)]
pub struct Lab<'a> {
    /// The experiment.
    pub experiment: &'a Experiment,
    /// `tidegate` itself.
    pub program: &'a Path,
    /// How near the server's and the crowd's CPU are to each other.
    pub nearness: &'a Nearness,
    /// Set when the run is to stop.
    pub stop: &'a AtomicBool,
}

impl Lab<'_> {
    /// Finds the rate at which a server saturates, requests/s; each probe is told, offered and
    /// answered.
    ///
    /// # Errors
    ///
    /// When there is none, or a crowd cannot be sent.
    pub fn saturation_rate(self, server: &ServerSpec, on_probe: impl FnMut(f64, f64)) -> Result<f64> {
        Ok(saturation::find(self, server, on_probe)?.rate_per_s)
    }

    /// Sends a crowd of so many attempts a second, and again up to `again` times where the CPUs
    /// were far from each other.
    ///
    /// # Errors
    ///
    /// When that cannot be done.
    pub fn crowd(self, server: &ServerSpec, policy: &Policy, rate: f64, again: u32) -> Result<Measured> {
        let Experiment { grid, crowd, .. } = self.experiment;
        let timeout = crowd.timeout.max(Duration::from_millis(1));
        let send = Send::evenly(rate, grid.warmup, grid.duration, timeout);
        let measure = || {
            let measured = run(self, server, policy, &send)?;
            let is_far = measured.far.is_some();
            Ok((measured, is_far))
        };
        let Undisturbed { measured, failed, .. } = undisturbed(again, measure, |_| Ok(()))?;
        failed.map_or(Ok(measured), Err)
    }
}

/// One crowd against one server under one policy.
#[derive(Debug)]
pub struct Measured {
    /// What the crowd saw.
    pub crowd: CrowdSummary,
    /// What the kernel counted in the window.
    pub difference: Difference,
    /// What it counted as the crowd went on.
    pub(crate) samples: Vec<Sample>,
    /// Replies lost between the server's transmit and the generator, warm-up included.
    pub(crate) lost_replies: u64,
    /// What the guard counted, when there was one.
    pub(crate) guard: Option<BTreeMap<String, u64>>,
    /// How fast that grew in the window, per second.
    pub guard_per_s: BTreeMap<String, f64>,
    /// Otherwise the guard said nothing in the warm-up, and that is how fast it grew since its
    /// start.
    pub(crate) is_rate_of_window: bool,
    /// Who waited, by what the guard said.
    pub(crate) guard_samples: Vec<GuardSample>,
    /// What became of the connections that were held beside the crowd, by kind.
    pub(crate) held: BTreeMap<String, Held>,
    /// What went between clients and server, where they are far from each other, and why that
    /// should be read with care.
    pub(crate) path: Option<(PathSummary, Vec<String>)>,
    /// What the server's CPU took for a small datagram in the window: the mean of some looks.
    pub round_trip: Duration,
    /// A cache line's round trip between the server's CPU and the crowd's, before or after,
    /// whichever was longer.
    pub(crate) cores_ns: Option<f64>,
    /// Why that should be read with care.
    pub far: Option<String>,
}

impl Measured {
    /// Why that should be read with care: what the generator did.
    fn of_generator(&self) -> Vec<String> {
        let limited = |reason: &String| format!("generator-limited: {reason}");
        let lost = (self.lost_replies > 0).then(|| {
            format!(
                "{} replies were lost at the crowd's end: the generator's fault, not the server's",
                self.lost_replies
            )
        });
        self.crowd.generator.reasons.iter().map(limited).chain(lost).collect()
    }

    /// What the machine did: it had other work, or its CPUs were far from each other.
    fn of_machine(&self) -> Vec<String> {
        let cpus = [self.difference.server_cpu.steal, self.difference.crowd_cpu.steal];
        let steal = cpus.into_iter().fold(0.0, f64::max);
        let stolen =
            (steal > MOST_STEAL).then(|| format!("the hypervisor took {:.0}% of a CPU", steal * 100.0));
        stolen.into_iter().chain(self.far.clone()).collect()
    }

    /// Why that should be read with care.
    pub(crate) fn marks(&self) -> Vec<String> {
        let mut marks = self.of_generator();
        marks.extend(self.of_machine());
        marks
    }
}

/// Measures one point of the grid, and says whether the machine disturbed it: had other work, or
/// its CPUs far from each other. The cell's marks say so. A cell at another speed than just before
/// is marked as well, and not disturbed: it may have been that moment which was not as usual.
pub(crate) fn measure(
    lab: Lab<'_>,
    server: &ServerSpec,
    policy: &Policy,
    load: f64,
    saturation: &Saturation,
    look: &Look,
    repetition: u32,
) -> Result<(Cell, bool)> {
    let experiment = lab.experiment;
    let rate_per_s = saturation.rate_per_s * look.speed.unwrap_or(1.0);
    let crowd = experiment.crowd_of(server, policy);
    let send = Send {
        rate: crowd.mean_rate(load * rate_per_s),
        bursts: crowd.bursts,
        is_cell: true,
        warmup: experiment.grid.warmup,
        duration: experiment.window(server),
        timeout: crowd.timeout,
        seed: u64::from(repetition) + 1,
        flood_per_s: policy.crowd.flood_per_s,
        hold: policy.crowd.hold,
        abort: crowd.abort,
    };
    let measured = run(lab, server, &policy.for_saturation(rate_per_s), &send)?;
    let speeds = look.speed.map(|before| (before, saturation.round_trip_us / micros(measured.round_trip)));
    let mut marks = measured.of_generator();
    let of_machine = measured.of_machine();
    let is_disturbed = !of_machine.is_empty();
    let Measured { crowd, difference, samples, guard, guard_per_s, guard_samples, lost_replies, .. } =
        measured;
    if !measured.is_rate_of_window {
        marks.push("the guard said nothing in the warm-up: its rates are from its start on".to_owned());
    }
    if let Some((before, speed)) = speeds.filter(|_| *policy == Policy::stock()) {
        marks.extend(underestimated(&crowd, saturation.rate_per_s * speed.max(before)));
    }
    marks.extend(unguarded(guard.as_ref()));
    let (path, of_path) = measured.path.unzip();
    marks.extend(of_path.unwrap_or_default());
    marks.extend(measured.held.iter().filter_map(|(kind, held)| let_go(kind, held)));
    marks.extend(speeds.and_then(|(before, speed)| drifted(speed / before)));
    marks.extend(of_machine);
    marks.extend(look.marks.iter().map(|mark| format!("the look at the machine before: {mark}")));
    let flood = send.flood_per_s.map(|_| flood(&difference, send.duration));
    let cell = Cell {
        server: server.name.clone(),
        policy: policy.name.clone(),
        load,
        repetition,
        marks,
        crowd,
        kernel: difference.kernel,
        samples,
        server_cpu: difference.server_cpu,
        crowd_cpu: difference.crowd_cpu,
        guard,
        guard_per_s,
        guard_samples,
        flood,
        held: measured.held,
        machine_speed: speeds.map(|(_, speed)| speed),
        speed_before: look.speed,
        core_round_trip_ns: measured.cores_ns,
        times_set_aside: 0,
        lost_before_server: difference.lost_before_server,
        lost_replies,
        link: None,
        uplink: None,
        path: path.map(Box::new),
    };
    Ok((cell, is_disturbed))
}

/// What the machine can do just before the cells of a load.
#[derive(Debug)]
pub(crate) struct Look {
    /// Over that when the saturation rate was found; none where loads are of a bandwidth, whatever
    /// the machine can do.
    speed: Option<f64>,
    /// Why it should be read with care.
    marks: Vec<String>,
}

/// Looks at the machine's speed: by a crowd of the saturation rate against the stock server, for a
/// moment. Idle, the server's CPU would not have the crowd's beside it, which may be the other
/// hardware thread of its core. One that is disturbed is repeated once.
pub(crate) fn look(lab: Lab<'_>, server: &ServerSpec, saturation: &Saturation) -> Result<Look> {
    if !lab.experiment.is_searched(server) {
        return Ok(Look { speed: None, marks: Vec::new() });
    }
    let first = look_once(lab, server, saturation)?;
    if first.marks.is_empty() { Ok(first) } else { look_once(lab, server, saturation) }
}

fn look_once(lab: Lab<'_>, server: &ServerSpec, saturation: &Saturation) -> Result<Look> {
    let moment = (lab.experiment.grid.duration / 10).clamp(SHORTEST_MOMENT, LONGEST_MOMENT);
    let timeout = lab.experiment.probe_timeout(server);
    let send = Send::evenly(saturation.rate_per_s, moment, moment, timeout);
    let measured =
        run(lab, &saturation::near(server), &Policy::stock(), &send).context("look at the machine")?;
    let speed = saturation.round_trip_us / micros(measured.round_trip);
    Ok(Look { speed: Some(speed), marks: measured.marks() })
}

fn flood(difference: &Difference, window: Duration) -> Flood {
    let per_s = |count: u64| count as f64 / window.as_secs_f64();
    Flood { syns_per_s: per_s(difference.flood_syns), answers_per_s: per_s(difference.flood_answers) }
}

/// Makes a testbed, starts server, guard and crowd, and watches the kernel meanwhile.
pub(crate) fn run(lab: Lab<'_>, server: &ServerSpec, policy: &Policy, send: &Send) -> Result<Measured> {
    let Lab { experiment, program, nearness, stop } = lab;
    let layout = &experiment.testbed;
    settle(layout, experiment.patience())?;
    let patience = experiment.patience().min(WAITS * (send.warmup + send.duration));
    // Elsewhere the link is what is busy, or nobody, and not the CPUs.
    let is_of_cpus = experiment.is_searched(server);
    let cores_before_ns = is_of_cpus.then(|| nearness.wait(patience, stop)).transpose()?;
    let scratch = tempfile::tempdir().context("make a folder for the server's files")?;
    let clients = experiment.crowd.clients;
    let mut testbed = match server.way {
        Some(_) => Testbed::create_far(layout, clients)?,
        None => Testbed::create(layout, clients)?,
    };
    if send.flood_per_s.is_some() {
        testbed.join_flood(layout)?;
    }
    if send.hold.is_some() {
        testbed.join_holders(layout)?;
    }
    prepare(&testbed.server, policy)?;
    // The same under every policy.
    let room = experiment.most_held().map(hold::make_room).transpose()?;
    let asks = experiment.crowd_of(server, policy);
    let folder = scratch.path().join("pages");
    let has_pages = server.kind.has_files() && pages::write(&folder, &asks, send)?;
    let given = Given { scratch: scratch.path(), pages: has_pages.then_some(&*folder), room };
    let running = server::start(server, &testbed, program, layout.server_cpu, given)?;
    let uplink = experiment.uplink_of(policy).map_err(anyhow::Error::msg)?;
    let uplink =
        uplink.map(|uplink| uplink::start(&uplink, &testbed, program, clients)).transpose()?.flatten();
    let guard = guard::start(policy, &testbed, program)?;
    let holders = send.hold.map(|hold| Holders::start(hold, &testbed, layout, stop)).transpose()?;
    let way = server.way.as_deref();
    let mut link = way.map(|way| distance::start(way, &testbed, send, program, layout)).transpose()?;
    let crowd = crowd::start(send, &asks, &testbed, program, layout)?;

    let start = Instant::now();
    let first = Snapshot::take(&testbed, layout)?;
    let mut samples = Vec::new();
    let mut watch = |until: Duration| -> Result<()> {
        watch_until(until, start, (&testbed, link.as_mut()), &first, &mut samples, stop)
    };
    watch(send.warmup)?;
    let before = Snapshot::take(&testbed, layout)?;
    let sleeps_before = netns::sleeps(running.id())?;
    let (said_before, mut guard_samples) = asked(guard.as_ref(), start);
    let gauge = Gauge::start(layout.server_cpu);
    watch(send.warmup + send.duration)?;
    let round_trip = gauge.finish()?;
    let after = Snapshot::take(&testbed, layout)?;
    let mut difference = after.since(&before);
    difference.kernel.insert(SLEEPS.to_owned(), netns::sleeps(running.id())? - sleeps_before);
    if asks.ports.is_some() || asks.closed_loop.is_some() {
        difference.kernel.insert(TIME_WAITS.to_owned(), netns::time_waits(&testbed.server)?);
    }
    let (said_after, in_window) = asked(guard.as_ref(), start);
    guard_samples.extend(in_window);

    let crowd = crowd::finish(crowd, send)?;
    uplink.map(uplink::finish).transpose()?;
    let path = way.zip(link).map(|(way, link)| distance::finish(link, way)).transpose()?;
    let held = holders.map(Holders::finish).transpose()?.unwrap_or_default();
    let guard = guard.map(guard::finish).transpose()?;
    let is_rate_of_window = guard.is_none() || said_before.is_some();
    let said_before = said_before.unwrap_or_default();
    let guard_per_s = said_after.or(guard.clone()).map(|after| after.per_s(&said_before));
    let lost_replies = after.since(&first).lost_replies + crowd.generator.frames_lost;
    let cores_ns = match cores_before_ns {
        Some(before) => Some(before.max(nearness.look()?)),
        None => None,
    };
    Ok(Measured {
        crowd,
        difference,
        samples,
        guard: guard.map(|said| said.counts),
        guard_per_s: guard_per_s.unwrap_or_default(),
        lost_replies,
        held,
        path,
        round_trip,
        cores_ns,
        far: cores_ns.and_then(|cores_ns| far(nearness, cores_ns)),
        is_rate_of_window,
        guard_samples,
    })
}

fn asked(guard: Option<&Running>, start: Instant) -> (Option<Reading>, Vec<GuardSample>) {
    guard.map(|guard| guard::ask(guard, start)).unwrap_or_default()
}

/// Sets what a policy sets in the server's namespace, before there is a server.
pub(crate) fn prepare(namespace: &Namespace, policy: &Policy) -> Result<()> {
    // First the rules: some sysctls are there only once a rule has made connection tracking come.
    if let Some(rules) = &policy.nft {
        nft::load(namespace, rules)?;
    }
    for (name, value) in &policy.sysctls {
        namespace.set_sysctl(name, value)?;
    }
    Ok(())
}

/// Samples the kernel's counters until a moment of the crowd, as long as the link runs, if there is
/// one.
fn watch_until(
    until: Duration,
    start: Instant,
    (testbed, mut link): (&Testbed, Option<&mut RunningLink>),
    first: &Snapshot,
    samples: &mut Vec<Sample>,
    stop: &AtomicBool,
) -> Result<()> {
    let mut next_sample = start.elapsed() + SAMPLE_EVERY;
    loop {
        let now = start.elapsed();
        if stop.load(Ordering::Relaxed) {
            bail!("stopped");
        }
        let is_cut = link.as_mut().is_some_and(|link| link.running.has_ended());
        ensure!(!is_cut, "tidegate link ended before its time; its own message is above");
        if now >= until {
            return Ok(());
        }
        if now >= next_sample {
            next_sample += SAMPLE_EVERY;
            samples.push(Sample {
                at_ms: now.as_secs_f64() * 1e3,
                kernel: listen_counters(grown(&netns::namespace_counters(&testbed.server)?, &first.kernel)),
                accept_qlen: netns::accept_queue(&testbed.server, Layout::SERVER.port())?,
            });
        }
        std::thread::sleep(STOP_EVERY.min(until.saturating_sub(now)));
    }
}

/// Microseconds, as they are recorded.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// The counters that say what becomes of SYNs: few enough to keep for every sample.
fn listen_counters(mut counters: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    const KEPT: [&str; 6] = [
        "TcpExt.ListenOverflows",
        "TcpExt.ListenDrops",
        "TcpExt.TCPReqQFullDoCookies",
        "TcpExt.TCPReqQFullDrop",
        "Tcp.PassiveOpens",
        "Tcp.OutRsts",
    ];
    counters.retain(|name, _| KEPT.contains(&name.as_str()));
    counters
}

/// The offered rate was for another speed, so that the load was another.
fn drifted(change: f64) -> Option<String> {
    (!(1.0 / SAME_SPEED..SAME_SPEED).contains(&change))
        .then(|| format!("the server's CPU ran at {:.0}% of its speed just before", change * 100.0))
}

/// What goes from one CPU to the other took several times as long as at other times.
fn far(nearness: &Nearness, cores_ns: f64) -> Option<String> {
    nearness.is_far(cores_ns).then(|| {
        format!(
            "the server's CPU and the crowd's were far from each other: a cache line took {cores_ns:.0} ns there and back, {:.0} at other times",
            nearness.least_ns()
        )
    })
}

/// Most that were to be held are gone, or never came.
fn let_go(kind: &str, held: &Held) -> Option<String> {
    let Held { asked, held, refused, closed, .. } = *held;
    ((held as f64) < HELD * asked as f64).then(|| {
        format!("of {asked} {kind} to be held, {held} were open at the end: {refused} times refused, {closed} closed by the server")
    })
}

/// A guard that did not run for a second leaves SYNs, and the ends of handshakes and connections,
/// to the kernel.
fn unguarded(guard: Option<&BTreeMap<String, u64>>) -> Option<String> {
    let left = guard?.get(counter::unleased).copied().filter(|&left| left > 0)?;
    Some(format!(
        "{left} segments were left to the kernel, because the guard's process did not run for a second"
    ))
}

/// A machine that was disturbed while the saturation rate was searched makes every load of the grid
/// too low. Only stock can tell, under which the rate was found: another policy may well answer
/// more.
fn underestimated(crowd: &CrowdSummary, saturation: f64) -> Option<String> {
    let share = crowd.goodput_per_s / saturation;
    (share > 1.05)
        .then(|| format!("goodput is {:.0}% of the saturation rate, which was underestimated", share * 100.0))
}
