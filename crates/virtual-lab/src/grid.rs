//! An experiment in virtual time: the same file, the same results, on a machine that a profile
//! describes (`tidegate sim`).
//!
//! Every cell is a world of its own ([`sim::World`]), so that they run on as many threads as there
//! are CPUs and come out the same on any number of them. What the simulator has not is left out,
//! with a word: rules of nft, floods, held connections, and sysctls that it does not know.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use crowd::{Shard, Stacks};
use experiment::{
    CrowdSpec, ENDS, Event, Experiment, First, KERNEL_DROPPED, Layout, Outcome, PathCounted, Policy, Probe,
    Probed, SAMPLE_EVERY, ServerKind, ServerSpec, Stopped, TIME_WAITS, TURNS, Uplink, Writer,
};
use results::{
    Cell, CpuShares, CrowdSummary, GeneratorHealth, GuardSample, PathSummary, Record, Sample, Saturation,
    UplinkSeries, UplinkSummary,
};
use sim::{
    Accept, Capture, Closes, Config, Generation, GuardStats, PathCounts, Profile, ServerCounts, Serving,
    Setup, UplinkConfig, UplinkCounts, Waiting, World,
};
use tcp::Stack;
use telemetry::Reading;
use traffic::Schedule;
use units::Nanos;

use crate::jobs::{Options, Steps, in_order};
use crate::rates::{Moment, Rates, RatesError};
use crate::simulated;

/// How long a process that has closed its way waits for the client's FIN: `lingering_close()` of
/// Apache 1.3.
const LINGERS: Nanos = Nanos::from_secs(2);
/// The page of `tidegate serve`.
const REPLY_BYTES: u64 = 512;

/// Runs an experiment in virtual time. When it is stopped it ends with what was complete by then.
///
/// # Errors
///
/// When nothing of it can be simulated, or the results cannot be written.
pub(crate) fn run(
    experiment: &Experiment,
    options: &Options<'_>,
    mut on_event: impl FnMut(&Event<'_>),
) -> Result<Outcome> {
    let own = experiment.profile.as_deref().and_then(Profile::shipped);
    let profile = own.as_ref().or(options.profile).with_context(|| {
        format!(
            "{} names no profile: give --profile a name or a file, as --profile round-numbers",
            experiment.name
        )
    })?;
    let (servers, mut notes) = servers(experiment, profile);
    let (policies, left_out) = policies(experiment);
    notes.extend(left_out);
    notes.extend(meaningless(experiment, &policies));
    notes.extend(experiment.note_of_quick());
    notes.extend(experiment.notes_of_demand());
    if let (Some(own), Some(other)) = (&own, options.profile.filter(|other| other.name != profile.name)) {
        notes.push(format!("the machine is {}, as the file says, and not {}", own.name, other.name));
    }
    for note in &notes {
        on_event(&Event::Note(note));
    }
    ensure!(!servers.is_empty(), "none of the experiment's servers can be simulated; see the notes above");
    ensure!(!policies.is_empty(), "none of the experiment's policies can be simulated; see the notes above");
    let machine = Machine { experiment, profile, options };
    let rates = options.rates_of.map(|run| Rates::of(run, profile, experiment)).transpose()?;
    notes.extend(rates.map(Rates::words));
    let places = places(experiment, rates, &servers, &policies)?;
    let planned = places.len();
    let grid = &experiment.grid;
    let all = servers.len() * policies.len() * grid.loads.len() * grid.repetitions as usize;
    if planned < all {
        let note = format!(
            "{} of the grid's {all} cells are left out: the run whose rates are to be had has not measured them",
            all - planned
        );
        on_event(&Event::Note(&note));
        notes.push(note);
    }
    if let Some(captures) = options.captures {
        captures.make_room(planned)?;
    }
    let header = experiment.header(simulated(&profile.name), deviations(experiment, profile, notes));
    let mut writer = Writer::begin(options.results, header, planned)?;
    let measured = measure_all(machine, &servers, &places, &mut writer, &mut on_event);
    // The reasons in the file are of whole runs on the papers' machines.
    let has_reasons = !experiment.is_quick && profile.system.linux != Generation::Linux410;
    writer.conclude(measured, options.stop, |writer| experiment.answer(&servers, writer, has_reasons))
}

/// Which can be simulated, and a word about each that cannot, or for which something else stands.
fn servers<'a>(experiment: &'a Experiment, profile: &Profile) -> (Vec<&'a ServerSpec>, Vec<String>) {
    let (there, missing): (Vec<&ServerSpec>, Vec<&ServerSpec>) =
        experiment.servers.iter().partition(|server| lacks(server, profile).is_none());
    let note =
        |server: &ServerSpec| Some(format!("{} is left out: {}", server.name, lacks(server, profile)?));
    let pools = there.iter().filter(|server| server.kind == ServerKind::Apache);
    let mut notes: Vec<String> = pools
        .map(|server| {
            format!(
                "{}: a pool of {} processes without the server's own timeouts stands for it",
                server.name,
                server.processes.unwrap_or(ServerKind::PROCESSES)
            )
        })
        .collect();
    notes.extend(missing.into_iter().filter_map(note));
    (there, notes)
}

/// Why a server cannot be simulated.
fn lacks(server: &ServerSpec, profile: &Profile) -> Option<String> {
    match server.kind {
        ServerKind::BuiltIn => None,
        ServerKind::InKernel if profile.in_kernel.is_some() => None,
        ServerKind::InKernel => {
            Some(format!("the profile {} has no costs of a server in the kernel", profile.name))
        }
        ServerKind::Apache if profile.process_pool.is_some() => None,
        ServerKind::Apache => Some(format!("the profile {} has no costs of a process pool", profile.name)),
        ServerKind::Nginx => Some("kind = \"nginx\" is not simulated".to_owned()),
    }
}

/// The same of policies.
fn policies(experiment: &Experiment) -> (Vec<&Policy>, Vec<String>) {
    let (mut there, mut notes) = (Vec::new(), Vec::new());
    for policy in &experiment.policies {
        match lack(policy) {
            Some(lack) => notes.push(format!("{} is left out: {lack} is not simulated", policy.name)),
            None => there.push(policy),
        }
    }
    (there, notes)
}

/// What a policy asks for that is not simulated.
fn lack(policy: &Policy) -> Option<String> {
    if policy.nft.is_some() {
        return Some("nft".to_owned());
    }
    if policy.crowd.flood_per_s.is_some() || policy.crowd.hold.is_some() {
        return Some("a flood, or connections that are held,".to_owned());
    }
    let mut config = Config::default();
    policy.sysctls.iter().find_map(|(name, value)| config.set_sysctl(name, value).err())
}

/// A word about what a file asks for that has no meaning here.
fn meaningless(experiment: &Experiment, policies: &[&Policy]) -> Vec<String> {
    let attached = policies.iter().filter_map(|policy| Some((policy, policy.attach.as_ref()?)));
    let mut notes: Vec<String> = attached
        .map(|(policy, hook)| {
            format!(
                "{}: attach = {hook:?} has no meaning here; a profile has one cost of each decision",
                policy.name
            )
        })
        .collect();
    let usual = Layout { patience: experiment.testbed.patience, ..Layout::default() };
    if experiment.testbed != usual {
        notes.push(
            "[testbed] is of the lab, and has no meaning here: a profile says how frames come".to_owned(),
        );
    }
    notes
}

fn deviations(experiment: &Experiment, profile: &Profile, notes: Vec<String>) -> Vec<String> {
    let crowd = &profile.crowd;
    let (delay, turns, poll) = (crowd.delay(), crowd.turns(), crowd.poll());
    let machines = if turns > Nanos::ZERO {
        format!(
            "clients share a machine that takes, answers and begins what is due in turns at least {turns} apart, and costs nothing"
        )
    } else {
        "clients' machines cost nothing".to_owned()
    };
    let looks =
        if poll > Nanos::ZERO { format!("; replies are looked for every {poll}") } else { String::new() };
    let mut deviations = vec![
        format!(
            "In virtual time: no kernel ran. The server is a model of Linux with one CPU, the machine is the profile {:?} ({}).",
            profile.name, profile.about
        ),
        format!(
            "The wire between crowd and server takes {delay} each way, and has no rate of its own; {machines}{looks}."
        ),
        format!(
            "The crowd is that of tidegate load: its TCP has the options, timers and manners of {} (docs/crowd.md).",
            experiment.crowd.stacks.clone().unwrap_or_else(|| usual_stacks(profile))
        ),
    ];
    if let Some(near) = experiment.note_of_distance() {
        deviations.push(format!(
            "Clients are far away: a path between {delay} of wire and the server, each way. Replies are not under congestion control, so that those longer than an \
             initial window come sooner than a real kernel's. {near}"
        ));
    }
    deviations.extend(notes);
    deviations
}

/// What all that is simulated in a run shares.
#[derive(Clone, Copy)]
struct Machine<'a> {
    experiment: &'a Experiment,
    profile: &'a Profile,
    options: &'a Options<'a>,
}

/// A cell of the grid.
#[derive(Clone, Copy)]
struct Place<'a> {
    server: &'a ServerSpec,
    policy: &'a Policy,
    load: f64,
    repetition: u32,
    /// When that other run measured it, whose rates are to be had.
    moment: Option<Moment>,
}

/// All of the grid, in the order in which they are measured; or those of the run whose rates are to
/// be had.
fn places<'a>(
    experiment: &Experiment,
    rates: Option<Rates<'_>>,
    servers: &[&'a ServerSpec],
    policies: &[&'a Policy],
) -> Result<Vec<Place<'a>>> {
    let grid = &experiment.grid;
    let mut places = Vec::new();
    for &server in servers {
        for repetition in 0..grid.repetitions {
            for &load in &grid.loads {
                for &policy in policies {
                    let moment = match rates {
                        None => None,
                        Some(rates) => match rates.moment(server, policy, load, repetition) {
                            None => continue,
                            moment => moment,
                        },
                    };
                    places.push(Place { server, policy, load, repetition, moment });
                }
            }
        }
    }
    if places.is_empty() {
        return Err(RatesError::Cells(experiment.name.clone()).into());
    }
    Ok(places)
}

/// What is simulated once.
#[derive(Debug, Clone)]
struct Job<'a> {
    experiment: &'a Experiment,
    server: &'a ServerSpec,
    policy: Policy,
    profile: &'a Profile,
    /// Over that when the profile was measured, where it is another.
    speed: Option<f64>,
    /// The same just before, by which the rate was chosen.
    speed_before: Option<f64>,
    rate: f64,
    warmup: Duration,
    window: Duration,
    timeout: Duration,
    /// For the saturation rate: evenly, from beside the server, by users who ask once.
    is_probe: bool,
    seed: u64,
    /// Frames of the server's link to keep, at most.
    frames: Option<usize>,
}

/// What came of it.
#[derive(Debug)]
struct Done {
    crowd: CrowdSummary,
    /// At the beginning of the window, and at its end.
    before: ServerCounts,
    after: ServerCounts,
    /// Most ends of connections at the server, and TIME_WAITs.
    kept: (u32, u32),
    path: Option<PathSummary>,
    samples: Vec<Sample>,
    guard_samples: Vec<GuardSample>,
    uplink: Option<UplinkSummary>,
    capture: Option<Capture>,
}

fn measure_all(
    machine: Machine<'_>,
    servers: &[&ServerSpec],
    places: &[Place<'_>],
    writer: &mut Writer,
    on_event: &mut impl FnMut(&Event<'_>),
) -> Result<()> {
    let Machine { experiment, profile, options } = machine;
    let mut all_found: Vec<Saturation> = Vec::new();
    for server in servers {
        let found = match experiment.known_saturation(server, &all_found) {
            Some(found) => found,
            None => saturate(machine, server, &mut *on_event)
                .with_context(|| format!("find the saturation rate of {}", server.name))?,
        };
        on_event(&Event::Saturated(&found));
        writer.write(Record::Saturation(found.clone()))?;
        all_found.push(found);
    }
    let saturation_of = |server: &ServerSpec| {
        let found = all_found.iter().find(|found| found.server == server.name);
        found.expect("each was looked for").rate_per_s
    };
    let mut cells = Vec::new();
    for &Place { server, policy, load, repetition, moment } in places {
        let saturation = moment.map_or_else(|| saturation_of(server), |moment| moment.load_one);
        let crowd = experiment.crowd_of(server, policy);
        let job = Job {
            experiment,
            server,
            policy: policy.for_saturation(saturation),
            profile,
            speed: moment.and_then(|moment| moment.speed),
            speed_before: moment.and_then(|moment| moment.speed_before),
            rate: crowd.mean_rate(load * saturation),
            warmup: experiment.grid.warmup,
            window: experiment.window(server),
            timeout: crowd.timeout,
            is_probe: false,
            seed: u64::from(repetition) + 1,
            frames: options.captures.map(|captures| captures.frames),
        };
        cells.push((job, load, repetition));
    }
    let time = cells.iter().map(|(job, ..)| Nanos::from(job.warmup + job.window).0).sum();
    options.watch.grid_begins(cells.len(), Nanos(time));
    in_order(
        &cells,
        options,
        |(job, load, repetition), steps| cell(job, *load, *repetition, options, steps),
        |cell, done| {
            on_event(&Event::Cell(&cell, done, cells.len()));
            writer.write(Record::Cell(Box::new(cell)))
        },
    )
}

/// The rate at which a server saturates, as the lab finds it.
fn saturate(
    Machine { experiment, profile, options }: Machine<'_>,
    server: &ServerSpec,
    on_event: &mut impl FnMut(&Event<'_>),
) -> Result<Saturation> {
    // A rate is of connections, with one request or several.
    let requests = experiment.crowd_of(server, &Policy::stock()).workload.workload().mean_requests();
    // To ask once more before a no is believed would give the same here.
    experiment.find_saturation(server, 1, |Probe { rate, warmup, window, timeout }| {
        let job = Job {
            experiment,
            server,
            policy: Policy::stock(),
            profile,
            speed: None,
            speed_before: None,
            rate,
            warmup,
            window,
            timeout,
            is_probe: true,
            seed: 1,
            frames: None,
        };
        let crowd = simulate(&job, &Steps::alone(options))?.ok_or(Stopped)?.crowd;
        let (offered, goodput) = (crowd.offered_per_s, crowd.goodput_per_s / requests);
        on_event(&Event::Probe(server, offered, goodput));
        Ok(Probed { offered, goodput, round_trip_us: 0.0, marks: Vec::new() })
    })
}

fn cell(
    job: &Job<'_>,
    load: f64,
    repetition: u32,
    options: &Options<'_>,
    steps: &Steps<'_>,
) -> Result<Option<Cell>> {
    let Some(done) = simulate(job, steps)? else {
        return Ok(None);
    };
    let Done { crowd, before, after, kept, path, samples, guard_samples, uplink, capture } = done;
    if let (Some(captures), Some(capture)) = (options.captures, capture) {
        let (server, policy) = (&job.server.name, &job.policy.name);
        let name = format!("{policy}-{load}x-{}.pcap", repetition + 1);
        captures.write(&[&job.experiment.name, server, &name], &capture)?;
    }
    let marks = only_accepts(job, &before, &after).into_iter().collect();
    let window_s = job.window.as_secs_f64();
    let mut kernel = grown(&before, &after);
    let CrowdSpec { ports, closed_loop, .. } = job.experiment.crowd_of(job.server, &job.policy);
    if ports.is_some() || closed_loop.is_some() {
        kernel.extend([(ENDS.to_owned(), kept.0.into()), (TIME_WAITS.to_owned(), kept.1.into())]);
    }
    let guard = reading(job.window, &after.guard);
    let has_guard = job.policy.guard.is_some();
    let mut guard_per_s = guard.per_s(&reading(Duration::ZERO, &before.guard));
    let dropped = after.kernel.syns_dropped - before.kernel.syns_dropped;
    guard_per_s.insert(KERNEL_DROPPED.to_owned(), dropped as f64 / window_s);
    let share = |from: Nanos, to: Nanos| (to - from).as_secs_f64() / window_s;
    let (softirq, user) = (share(before.softirq, after.softirq), share(before.program, after.program));
    let idle = (1.0 - softirq - user).max(0.0);
    Ok(Some(Cell {
        server: job.server.name.clone(),
        policy: job.policy.name.clone(),
        load,
        repetition,
        machine_speed: job.speed,
        speed_before: job.speed_before,
        crowd,
        kernel,
        samples,
        server_cpu: CpuShares { user, softirq, idle, ..CpuShares::default() },
        guard: has_guard.then_some(guard.counts),
        guard_per_s: if has_guard { guard_per_s } else { BTreeMap::new() },
        guard_samples: if has_guard { guard_samples } else { Vec::new() },
        lost_before_server: after.frames_lost - before.frames_lost,
        path: path.map(Box::new),
        uplink: uplink.map(Box::new),
        marks,
        ..Cell::default()
    }))
}

/// Says so when the program had the CPU and answered nobody, which a real one could not go on with
/// for ever.
fn only_accepts(job: &Job<'_>, before: &ServerCounts, after: &ServerCounts) -> Option<String> {
    /// Of the CPU's time. With less than that, others kept it from answering.
    const HAD_THE_CPU: f64 = 0.01;
    let is_bounded = job.server.kind != ServerKind::BuiltIn || job.profile.system.descriptors.is_some();
    let share = (after.program - before.program).as_secs_f64() / job.window.as_secs_f64();
    (!is_bounded && after.answered == before.answered && share > HAD_THE_CPU).then(|| {
        format!(
            "the program had {:.0}% of the CPU and answered nobody: it accepts all that wait before it serves one; \
             descriptors in the profile's [system] bounds how many it has open",
            100.0 * share
        )
    })
}

fn grown(before: &ServerCounts, after: &ServerCounts) -> BTreeMap<String, u64> {
    let pairs = after.kernel.named().into_iter().zip(before.kernel.named());
    let of_kernel = pairs.map(|((name, after), (_, before))| (name.to_owned(), after - before));
    let grown = of_kernel.chain([(TURNS.to_owned(), after.turns - before.turns)]);
    grown.filter(|(_, by)| *by > 0).collect()
}

/// What the guard has counted, as a guard says it.
fn reading(elapsed: Duration, stats: &GuardStats) -> Reading {
    let reading = Reading::at(elapsed).with(&stats.listener, |counter| counter.is_simulated);
    reading.with(&stats.path, |counter| counter.is_simulated)
}

/// Simulates a crowd before a server, from the warm-up to the window's end; `None` when it was
/// stopped.
fn simulate(job: &Job<'_>, steps: &Steps<'_>) -> Result<Option<Done>> {
    let mut world = World::new(setup(job)?, crowd(job)?);
    let way = job.server.way.as_deref().filter(|_| !job.is_probe);
    if let Some(way) = way {
        if way.groups.is_empty() {
            world.far_away(&way.to_server, &way.to_clients, job.seed)?;
        } else {
            world.far_away_in_groups(&way.groups, job.seed)?;
        }
    }
    let uplink = uplink(job)?.map(|uplink| uplink.link);
    if let Some(uplink) = &uplink {
        world.narrow(uplink.clone(), job.seed).map_err(|why| anyhow!("{why}"))?;
    }
    if let Some(frames) = job.frames {
        world.capture(Layout::SERVER.into(), frames);
    }
    let start = Nanos::from(job.warmup);
    let end = start + job.window.into();
    if let Some(uplink) = uplink {
        return simulate_uplink(job, world, &uplink, steps);
    }
    let (mut samples, mut guard_samples, mut kept) = (Vec::new(), Vec::new(), (0, 0));
    let mut sample = |world: &mut World, now: Nanos| {
        let before = world.happened();
        world.run_until(now);
        let (ends, time_waits) = world.kept(now);
        if now > start {
            kept = (ends.max(kept.0), time_waits.max(kept.1));
        }
        let (at_ms, load) = (now.as_millis_f64(), world.load());
        let accept_qlen = Some(u64::from(load.accept_qlen));
        let kernel = grown(&ServerCounts::default(), &world.server());
        samples.push(Sample { at_ms, kernel, accept_qlen });
        let syn_qlen = Some(u64::from(load.syn_qlen));
        let waiting = world.waiting();
        let of = |count: fn(&Waiting) -> u64| waiting.as_ref().map(count);
        guard_samples.push(GuardSample {
            at_ms,
            accept_qlen,
            syn_qlen,
            silent: of(|waiting| waiting.silent.into()),
            waiting: of(|waiting| waiting.waiting.into()),
            counted: of(|waiting| waiting.counted.into()),
            limit: waiting.and_then(|waiting| waiting.limit).map(u64::from),
            answered: of(|waiting| waiting.answered),
        });
        world.happened() - before
    };
    if steps.run((Nanos::ZERO, start), SAMPLE_EVERY.into(), |now| sample(&mut world, now)).is_none() {
        return Ok(None);
    }
    let (before, paths_before) = (world.server(), world.paths());
    if steps.run((start, end), SAMPLE_EVERY.into(), |now| sample(&mut world, now)).is_none() {
        return Ok(None);
    }
    world.stop(end);
    let health = GeneratorHealth {
        receive_mode: GeneratorHealth::SIMULATED.to_owned(),
        peak_connections: world.crowd().peak() as u64,
        ..GeneratorHealth::default()
    };
    let crowd = world.crowd().tally().summary(end, health);
    let paths = paths_before.zip(world.paths());
    let path = way.zip(paths).map(|(way, (before, after))| way.summary(&counted(&before, &after)));
    let (after, capture) = (world.server(), world.take_capture());
    let uplink = None;
    Ok(Some(Done { crowd, before, after, kept, path, samples, guard_samples, uplink, capture }))
}

/// The same behind an uplink: looked at once a second, because such runs are long.
fn simulate_uplink(
    job: &Job<'_>,
    mut world: World,
    link: &UplinkConfig,
    steps: &Steps<'_>,
) -> Result<Option<Done>> {
    let start = Nanos::from(job.warmup);
    let end = start + job.window.into();
    let warmup_s = job.warmup.as_secs() as u32;
    let mut series = UplinkSeries { warmup_s, ..UplinkSeries::default() };
    let (mut before, mut last) = (None, (UplinkCounts::default(), 0));
    let second = Nanos::from_secs(1);
    let way = job.server.way.as_deref();
    let mut look = |world: &mut World, now: Nanos| {
        let events = world.happened();
        world.run_until(now);
        let (counts, load) = (world.uplink().unwrap_or_default(), world.load());
        let syns_dropped = world.server().kernel.syns_dropped;
        series.connections.push(world.connections());
        series.syn_qlen.push(load.syn_qlen);
        series.accept_qlen.push(load.accept_qlen);
        series.syns_dropped.push((syns_dropped - last.1) as u32);
        series.dropped.push((counts.dropped - last.0.dropped) as u32);
        series.sent_bytes.push((counts.sent_bytes - last.0.sent_bytes) as u32);
        last = (counts, syns_dropped);
        world.happened() - events
    };
    for (from, to) in [(Nanos::ZERO, start), (start, end)] {
        if from == start {
            before = Some((world.server(), world.uplink().unwrap_or_default(), world.paths()));
        }
        if steps.run((from, to), second, |now| look(&mut world, now)).is_none() {
            return Ok(None);
        }
    }
    world.stop(end);
    let health = GeneratorHealth {
        receive_mode: GeneratorHealth::SIMULATED.to_owned(),
        peak_connections: world.crowd().peak() as u64,
        ..GeneratorHealth::default()
    };
    let crowd = world.crowd().tally().summary(end, health);
    let (before, counts_before, paths_before) = before.context("the window has begun")?;
    let paths = paths_before.zip(world.paths());
    let path = way.zip(paths).map(|(way, (before, after))| way.summary(&counted(&before, &after)));
    let counts = world.uplink().unwrap_or_default();
    let of = |count: fn(&UplinkCounts) -> u64| count(&counts) - count(&counts_before);
    let summary = UplinkSummary {
        rate_bps: link.rate.bits_per_s(),
        frames: of(|counts| counts.frames),
        sent: of(|counts| counts.sent),
        sent_bytes: of(|counts| counts.sent_bytes),
        payload_bytes: of(|counts| counts.sent_payload),
        dropped: of(|counts| counts.dropped),
        dropped_opening: of(|counts| counts.dropped_opening),
        dropped_data: of(|counts| counts.dropped_data),
        utilisation: of(|counts| counts.busy.0) as f64 / (end - start).0 as f64,
        series,
    };
    Ok(Some(Done {
        crowd,
        before,
        after: world.server(),
        kept: world.kept(end),
        path,
        samples: Vec::new(),
        guard_samples: Vec::new(),
        uplink: Some(summary),
        capture: world.take_capture(),
    }))
}

/// What paths counted between two moments.
fn counted(before: &[PathCounts; 2], after: &[PathCounts; 2]) -> [PathCounted; 2] {
    std::array::from_fn(|direction| {
        let of = |count: fn(&PathCounts) -> u64| count(&after[direction]) - count(&before[direction]);
        PathCounted {
            arrived: of(|counts| counts.packets.arrived.packets),
            delivered: of(|counts| counts.packets.delivered.packets),
            dropped: of(|counts| counts.packets.dropped.packets - counts.packets.lost),
            lost: of(|counts| counts.packets.lost),
            reordered: of(|counts| counts.packets.reordered),
            opening: of(|counts| counts.opening),
            opening_dropped: of(|counts| counts.opening_dropped),
        }
    })
}

fn setup(job: &Job<'_>) -> Result<Setup> {
    let mut profile = Profile { speed: job.speed.unwrap_or(1.0), ..job.profile.clone() };
    let mut kernel = Config {
        backlog: job.server.backlog,
        policy: match &job.policy.guard {
            Some(name) => name.parse()?,
            None => verdict::Policy::DEFAULT,
        },
        dry_run: job.policy.dry_run,
        seed: job.seed,
        sending: uplink(job)?.map(|uplink| uplink.sending),
        initial_rto: job.server.initial_rto.map(Nanos::from),
        dummies: job.policy.extra_time_waits,
        ..profile.system.config()
    };
    kernel.stack = adapted(kernel.stack, job.server);
    for (name, value) in &job.policy.sysctls {
        kernel.set_sysctl(name, value).map_err(anyhow::Error::msg)?;
    }
    let cpu_time = job.server.cpu_time.into();
    let descriptors = profile.system.descriptors;
    let mut service = Serving {
        accept: Accept::Inf,
        cpu_time,
        backend: Nanos::ZERO,
        reply_bytes: REPLY_BYTES,
        descriptors,
        closes: None,
    };
    match job.server.kind {
        ServerKind::InKernel => {
            profile.server = profile.in_kernel.context("costs of a server in the kernel")?;
            service.accept = Accept::One;
        }
        ServerKind::Apache => {
            profile.server = profile.process_pool.context("costs of a process pool")?;
            service.accept = Accept::Each(job.server.processes.unwrap_or(ServerKind::PROCESSES));
            service.closes = job.server.closes_after.map(|after| Closes { after, lingers: LINGERS });
        }
        ServerKind::BuiltIn | ServerKind::Nginx => {}
    }
    Ok(Setup { kernel, service, profile })
}

/// The server's uplink; a probe is of what the server itself can do.
fn uplink(job: &Job<'_>) -> Result<Option<Uplink>> {
    let uplink = job.experiment.uplink_of(&job.policy).map_err(anyhow::Error::msg)?;
    Ok(uplink.filter(|_| !job.is_probe))
}

/// A stack with the server's largest segment and first timeout, where it has its own. It lives as
/// long as this process, as all stacks do: there is one for each cell that needs one.
fn adapted(stack: &'static Stack, server: &ServerSpec) -> &'static Stack {
    if server.mss.is_none() && server.initial_rto.is_none() {
        return stack;
    }
    let (mss, rto) = (server.mss.unwrap_or(stack.mss), server.initial_rto.map(Nanos::from));
    let syn_timeouts = rto.map_or(stack.syn_timeouts, |first| {
        let doubled = |n: usize| Nanos(first.0 << n.min(9)).min(stack.rto.most);
        Box::leak((0..stack.syn_timeouts.len()).map(doubled).collect::<Vec<_>>().into_boxed_slice())
    });
    let initial_rto = rto.unwrap_or(stack.initial_rto);
    Box::leak(Box::new(Stack { mss, syn_timeouts, initial_rto, ..*stack }))
}

/// The clients' system, where an experiment names none.
fn usual_stacks(profile: &Profile) -> Stacks {
    let name = profile.system.clients.as_deref();
    name.map_or_else(Stacks::default, |name| name.parse().expect("checked when the profile was read"))
}

/// Groups of clients before a server.
fn groups(server: &ServerSpec) -> u8 {
    let groups = server.way.as_ref().map_or(0, |way| way.groups.len());
    u8::try_from(groups.max(1)).expect("32 at most")
}

fn crowd(job: &Job<'_>) -> Result<crowd::Crowd> {
    let clients = job.experiment.crowd_of(job.server, &job.policy);
    let (ports, closed_loop, first) = (clients.ports(), clients.closed_loop, clients.first);
    let start = Nanos::from(job.warmup);
    let abort = clients.abort.filter(|_| !job.is_probe);
    let stacks = clients.stacks.unwrap_or_else(|| usual_stacks(job.profile));
    let stacks = stacks.map(|stack| adapted(stack, job.server));
    let manners = crowd::Manners {
        timeout: job.timeout.into(),
        abort,
        reuse: if job.is_probe { 1 } else { clients.reuse.get() },
        groups: if job.is_probe { 1 } else { groups(job.server) },
        sessions: None,
        shard: Shard::WHOLE,
        close: clients.close,
        window: crowd::Window { start, end: start + job.window.into() },
        stacks,
        clock: 0,
        seed: job.seed,
        first_endpoint: 0,
    };
    let bursts = clients.bursts.filter(|_| !job.is_probe);
    let schedule = match bursts {
        Some(bursts) => {
            let lengths =
                traffic::Bursts::new(bursts.on.into(), bursts.off.into()).context("bursts that cannot be")?;
            ensure!(
                lengths.rate_in_burst(job.rate).is_some(),
                "a mean of {}/s over bursts and gaps of {bursts} is no more than starts in the gaps; raise the load, or shorten the gap",
                job.rate
            );
            Schedule::in_bursts(clients.arrivals, job.rate, lengths, job.seed)
        }
        None => match clients.demand.filter(|_| !job.is_probe) {
            Some(demand) => Schedule::shaped(clients.arrivals, job.rate, demand.shape().clone(), job.seed),
            None => Schedule::new(clients.arrivals, job.rate, job.seed),
        },
    };
    let asks = crowd::Asks::new(clients.workload.workload(), job.seed, "server", "/");
    let mut crowd =
        crowd::Crowd::new(manners, asks, crowd::Clients::new(clients.clients.into()), schedule, 0);
    if let Some(ports) = ports {
        crowd = crowd.with_ports(ports);
    }
    if let Some(closed_loop) = closed_loop {
        crowd = crowd.in_a_loop(closed_loop.of(job.rate));
    }
    Ok(match first {
        First::Client => crowd,
        First::ClientClose => crowd.say_client_close(),
        First::Server => crowd.let_server_close_first(),
    })
}
