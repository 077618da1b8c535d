//! What the crowd can send, against what a bare AF_XDP socket can.

use std::num::NonZeroU8;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::echo::{Echo, Requests};
use anyhow::{Context, Result, ensure};
use bpf::Hook;
use experiment::Layout;
use load::{Arrivals, Close, Config, Crowd, Mode, Progress, Shard, Stacks, Wheel, Workload};
use nix::net::if_::if_nametoindex;
use results::CrowdSummary;
use units::Nanos;

use crate::bare;
use crate::peers::{self, PEERS, Peer, Seen};
use crate::turns::Turns;
use crate::{CPU, Figure, REPETITIONS, SERVER_CPU, clients, go_on};
use lab::{CROWD_INTERFACE, CROWD_POLL, SERVER_INTERFACE, Testbed};

const WINDOW: Duration = Duration::from_secs(1);
/// First offered rate of the search for the highest that is kept, attempts/s.
const FROM: f64 = 10_000.0;
/// From one offered rate to the next, in the first search and in each round's.
const COARSE: f64 = 1.5;
const FINE: f64 = 1.05;
/// A round searches from this share of the most that was found.
const BELOW: f64 = 0.8;
/// Rounds of a repetition. Each has its turn in each, and the best counts: a machine that others
/// use, too, has slow stretches of some seconds.
const ROUNDS: usize = 3;
/// How often the server's end looks for frames.
const SERVER_INTERVAL: Duration = Duration::from_micros(50);
/// Memory per live connection that the project allows itself, bytes.
const BYTES_GOAL: f64 = 256.0;
/// Connections that are to be held at once, how fast they are opened, and the memory that the
/// project allows itself for them.
const MILLION: f64 = 1e6;
const HOLD_RATE: f64 = 60_000.0;
const MIB_GOAL: f64 = 256.0;
/// Of the timers that wait beside nobody's.
const SYN_TIMEOUT: Nanos = Nanos::from_secs(2);

/// The best of everybody's turns.
struct Pair {
    crowd: CrowdSummary,
    raw_frames_per_s: f64,
    exchanges_per_s: f64,
    /// As [`PEERS`]; without those that are not installed.
    peers_per_s: [Option<f64>; PEERS.len()],
}

impl Pair {
    /// A turn for each. The most that the crowd was ever found to keep becomes what it keeps now,
    /// if that is more.
    fn round(found: &mut f64, turns: &mut Turns<'_>) -> Result<Self> {
        turns.next()?;
        let raw_frames_per_s = bare::sends_per_s(WINDOW)?;
        turns.next()?;
        let exchanges_per_s = bare::exchanges_per_s(WINDOW)?;
        let mut peers_per_s = [None; PEERS.len()];
        for (rate, peer) in peers_per_s.iter_mut().zip(&PEERS) {
            *rate = peer.connections_per_s(turns)?;
        }
        let crowd = highest_kept(*found * BELOW, FINE, turns)?;
        *found = found.max(crowd.offered_per_s);
        Ok(Self { crowd, raw_frames_per_s, exchanges_per_s, peers_per_s })
    }

    fn best(self, other: Self) -> Self {
        let mut peers_per_s = self.peers_per_s;
        for (rate, others) in peers_per_s.iter_mut().zip(other.peers_per_s) {
            *rate = rate.zip(others).map(|(one, another)| one.max(another));
        }
        let is_more = other.crowd.goodput_per_s > self.crowd.goodput_per_s;
        Self {
            crowd: if is_more { other.crowd } else { self.crowd },
            raw_frames_per_s: self.raw_frames_per_s.max(other.raw_frames_per_s),
            exchanges_per_s: self.exchanges_per_s.max(other.exchanges_per_s),
            peers_per_s,
        }
    }

    fn repetition(found: &mut f64, turns: &mut Turns<'_>) -> Result<Self> {
        let first = Self::round(found, turns)?;
        (1..ROUNDS).try_fold(first, |best, _| Ok(best.best(Self::round(found, turns)?)))
    }
}

pub(crate) fn figures(stop: &AtomicBool) -> Result<Vec<Figure>> {
    let mut turns = Turns::new(stop)?;
    let mut found = highest_kept(FROM, COARSE, &mut turns)?.offered_per_s;
    let pairs: Vec<Pair> =
        (0..REPETITIONS).map(|_| Pair::repetition(&mut found, &mut turns)).collect::<Result<_>>()?;
    let frames_per_s = |pair: &Pair| pair.crowd.generator.frames_sent as f64 / pair.crowd.window_s;
    let connections: Vec<(f64, f64)> = pairs
        .iter()
        .map(|pair| {
            let frames_per_connection = frames_per_s(pair) / pair.crowd.goodput_per_s;
            (pair.crowd.goodput_per_s, pair.raw_frames_per_s / frames_per_connection)
        })
        .collect();
    let frames: Vec<(f64, f64)> =
        pairs.iter().map(|pair| (frames_per_s(pair), pair.raw_frames_per_s)).collect();
    let exchanges: Vec<(f64, f64)> =
        pairs.iter().map(|pair| (pair.crowd.goodput_per_s, pair.exchanges_per_s)).collect();
    let ticks: Vec<(f64, f64)> = (0..REPETITIONS).map(|_| (tick_ns(MILLION as u32), tick_ns(0))).collect();
    let million = [(million_connections_mib(stop)?, MIB_GOAL)];
    let bytes = [(Crowd::BYTES_PER_CONNECTION as f64, BYTES_GOAL)];
    let raw_for_frames = "raw AF_XDP send rate into a peer that drops, same cores";
    let raw_for_connections =
        "raw AF_XDP send rate divided by the frames that a connection sends, same cores";
    let bare_exchange =
        "a bare AF_XDP socket that exchanges a connection's frames with the same server, same cores";
    let nearest = "the shortest of them: all are measured when the cores are about as near";
    let allowed = "the most that the project allows itself";
    let mut figures = vec![
        Figure::new("load.connections_per_second", "connections/s", raw_for_connections, &connections),
        Figure::new("load.frames_per_second", "frames/s", raw_for_frames, &frames),
        Figure::new("load.vs_bare_exchange", "connections/s", bare_exchange, &exchanges),
        Figure::new("load.core_round_trip_ns", "ns", nearest, &turns.round_trips()),
        Figure::new("load.bytes_per_connection", "bytes", allowed, &bytes),
        Figure::new("load.million_connections_mib", "MiB", allowed, &million),
        Figure::new("load.timer_tick_ns", "ns", "the same without a timer", &ticks),
    ];
    let beside_httperf: Option<Vec<(Seen, Seen)>> =
        (0..REPETITIONS).map(|_| peers::beside_httperf(stop)).collect::<Result<_>>()?;
    match beside_httperf {
        Some(pairs) => {
            let reference = "httperf, before the same server at half its peak";
            let of = |what: fn(&Seen) -> f64| {
                pairs.iter().map(|(ours, theirs)| (what(ours), what(theirs))).collect::<Vec<_>>()
            };
            let (goodput, response) = (of(|seen| seen.replies_per_s), of(|seen| seen.response_ms));
            figures.push(Figure::new("load.vs_httperf_goodput", "replies/s", reference, &goodput));
            figures.push(Figure::new("load.vs_httperf_response_ms", "ms", reference, &response));
        }
        None => eprintln!("load.vs_httperf_* are left out: there is no httperf here"),
    }
    for (which, Peer { figure, bare_figure, program, reference, .. }) in PEERS.iter().enumerate() {
        let beside = |ours: f64, pair: &Pair| Some((ours, pair.peers_per_s[which]?));
        let all = |ours: fn(&Pair) -> f64| {
            pairs.iter().map(|pair| beside(ours(pair), pair)).collect::<Option<Vec<_>>>()
        };
        match (all(|pair| pair.crowd.goodput_per_s), all(|pair| pair.exchanges_per_s)) {
            (Some(crowds), Some(bare)) => {
                figures.push(Figure::new(figure, "connections/s", reference, &crowds));
                figures.push(Figure::new(bare_figure, "connections/s", reference, &bare));
            }
            _ => eprintln!("{figure} is left out: there is no {program} here"),
        }
    }
    Ok(figures)
}

/// The crowd at the highest rate, from `rate` on, at which it keeps its own schedule and every
/// attempt gets its reply.
fn highest_kept(mut rate: f64, factor: f64, turns: &mut Turns<'_>) -> Result<CrowdSummary> {
    let mut kept = loop {
        let crowd = crowd(rate, turns)?;
        if is_kept(&crowd) {
            break crowd;
        }
        rate /= COARSE;
        ensure!(
            rate > 100.0,
            "this machine does not keep {rate:.0} connections/s; is it busy with something else?"
        );
    };
    loop {
        rate *= factor;
        let crowd = crowd(rate, turns)?;
        if !is_kept(&crowd) {
            return Ok(kept);
        }
        kept = crowd;
    }
}

/// The starts were on time, every attempt got its reply, and the replies did not pile up in our own
/// ring: the responder answers within microseconds, so that what comes after the window was late on
/// our side.
fn is_kept(crowd: &CrowdSummary) -> bool {
    let in_time = crowd.goodput_per_s >= 0.99 * crowd.offered_per_s;
    !crowd.generator.limited && crowd.ok == crowd.offered && in_time
}

/// A crowd against the fastest responder that can be put behind veth.
fn crowd(rate: f64, turns: &mut Turns<'_>) -> Result<CrowdSummary> {
    turns.next()?;
    let (testbed, _echo) = before_echo(Requests::Answered, Hook::XdpNative, Cores::Own)?;
    let config = one_packet(&testbed, rate);
    let summary = testbed.crowd.enter(|| load::run(&config, turns.stop(), &mut |_: &Progress<'_>| {}))??;
    go_on(turns.stop())?;
    Ok(summary)
}

/// Where an XDP program answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Within the call that sends to it, as veth does by itself.
    Shared,
    /// On a CPU of its own, as behind a wire. Whoever asks receives on his. Before Linux 6.16 what
    /// finds its ring full is lost.
    Own,
}

/// A testbed with an XDP program for a server, which answers without a connection.
pub(crate) fn before_echo(requests: Requests, hook: Hook, cores: Cores) -> Result<(Testbed, Echo)> {
    let testbed = match cores {
        Cores::Shared => Testbed::join(clients())?,
        Cores::Own => Testbed::join_apart(clients(), (SERVER_CPU, SERVER_INTERVAL), (CPU, CROWD_POLL))?,
    };
    let echo = testbed
        .server
        .enter(|| Echo::attach(if_nametoindex(SERVER_INTERFACE)?, Layout::SERVER.port(), requests, hook))??;
    Ok((testbed, echo))
}

/// Resident memory of this process, MiB.
fn resident_mib() -> Result<f64> {
    Ok(crate::status_kib("VmRSS")? / 1024.0)
}

/// By how much this process grows from the moment before the first attempt until a million clients
/// wait for a server that has acknowledged their requests, MiB.
fn million_connections_mib(stop: &AtomicBool) -> Result<f64> {
    let (testbed, _echo) = before_echo(Requests::Acknowledged, Hook::XdpNative, Cores::Own)?;
    let config = Config {
        duration: Duration::from_secs_f64(MILLION / HOLD_RATE),
        drain: Duration::ZERO,
        timeout: Duration::from_secs(600),
        ..one_packet(&testbed, HOLD_RATE)
    };
    let mut seen: Vec<(usize, Result<f64>)> = Vec::new();
    let mut look = |progress: &Progress<'_>| seen.push((progress.live, resident_mib()));
    let summary = testbed.crowd.enter(|| load::run(&config, stop, &mut look))??;
    go_on(stop)?;
    let seen: Vec<(usize, f64)> =
        seen.into_iter().map(|(live, resident)| Ok((live, resident?))).collect::<Result<_>>()?;
    let (_, before) = *seen.first().context("no progress")?;
    let (live, full) = *seen.last().context("no progress")?;
    let opened = summary.generator.peak_connections;
    ensure!(opened as f64 >= 0.99 * MILLION, "{opened} connections were open at once, not a million");
    // The last look is up to a second before the last attempt.
    Ok((full - before) * opened as f64 / live as f64)
}

/// What it costs to pass a millisecond in which no timer fires, with so many that wait, ns.
fn tick_ns(timers: u32) -> f64 {
    let mut wheel = Wheel::with_capacity(timers as usize);
    for id in 0..timers {
        wheel.set(id, SYN_TIMEOUT + Nanos::from_micros(u64::from(id)));
    }
    let ticks = SYN_TIMEOUT.as_micros() / 1000 - 1;
    let start = Instant::now();
    for tick in 0..ticks {
        assert_eq!(wheel.pop(Nanos::from_millis(tick)), None, "no timer is due");
    }
    start.elapsed().as_nanos() as f64 / ticks as f64
}

/// The smallest of crowds: one request of one segment on each connection, evenly.
pub(crate) fn one_packet(testbed: &Testbed, rate: f64) -> Config {
    Config {
        server: testbed.server_address(),
        host: testbed.server_address().to_string(),
        path: "/".to_owned(),
        rate,
        arrivals: Arrivals::Fixed,
        bursts: None,
        shape: None,
        workload: Workload::default(),
        replay: None,
        abort: None,
        reuse: NonZeroU8::MIN,
        sessions: None,
        shard: Shard::WHOLE,
        warmup: Duration::ZERO,
        duration: WINDOW,
        drain: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        close: Close::Reset,
        stacks: Stacks::default(),
        clients: clients().into(),
        interface: CROWD_INTERFACE.to_owned(),
        mode: Mode::Native, // at both ends: the replies need no second buffer
        workers: 1,
        cpus: vec![],
        coalesce: Duration::ZERO,
        seed: 1,
        server_closes_first: false,
        says_client_close: false,
        ports: None,
        users: None,
        flood: None,
    }
}
