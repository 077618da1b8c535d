//! One thread that runs a crowd over an interface.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use ipnet::IpNet;
use nix::net::if_::if_nametoindex;
use results::{CrowdSummary, GeneratorHealth};
use tcp::Close;
use traffic::{Arrivals, Bursts, Replay, Schedule, Sessions, Shape, Workload};
use units::Nanos;
use wire::{Ethernet, FourTuple, Segment};
use xsk::Steer;

use crate::asks::Asks;
use crate::attempt::{Abort, Ended};
use crate::clients::{Clients, Endpoint};
use crate::clock::{Clock, thread_cpu_time};
use crate::crowd::{Crowd, Manners, Shard};
use crate::flood::{self, Flood};
use crate::next_hop;
use crate::port::{Mode, Port};
use crate::stacks::Stacks;
use crate::tally::{Totals, Window};

/// Frames taken from the ring, deadlines handled and attempts started in one turn, each: small enough that a turn
/// takes well below a millisecond.
const BATCH: u32 = 64;
/// Most frames that one received frame, one deadline or one start can cause.
const FRAMES_PER_EVENT: u32 = 4;
/// Buffers to send from. They come back within the kick that sends them.
const TX_FRAMES: u32 = 4096;
/// Buffers to receive into: at 200,000 frames a second, what arrives while the reader is off its CPU for 300 ms.
pub const DEFAULT_RX_FRAMES: u32 = 65_536;
/// Highest rate that a schedule takes, attempts/s: far beyond any machine, and its gaps are still nanoseconds.
pub const MAX_RATE: f64 = 1e8;
/// Longest time between turns: more would make attempts late by what the generator calls late.
pub const MAX_COALESCE: Duration = Duration::from_micros(500);
/// Live connections for which memory is set aside at most; more make the tables grow during the run.
const MAX_RESERVED: f64 = 2_000_000.0;
/// Below this, waiting costs more than looking again.
const MIN_WAIT: Nanos = Nanos::from_micros(60);
/// A generator that is this far behind at the end does not catch up: what is left was not sent.
const LATEST_START: Nanos = Nanos::from_millis(100);
/// A run that is stopped does not count as unsent what the next turn would have started.
const STOP_GRACE: Nanos = Nanos::from_millis(1);
/// Longest wait, so that a stop is noticed.
const MAX_WAIT: Nanos = Nanos::from_millis(20);

/// What to send, from where, to whom.
#[derive(Debug, Clone)]
pub struct Config {
    /// The server.
    pub server: SocketAddr,
    /// What the request calls it, `Host` (RFC 9110 section 7.2).
    pub host: String,
    /// Path and query of the request.
    pub path: String,
    /// Attempts per second; of bursts, the mean over burst and gap.
    pub rate: f64,
    /// How attempts follow each other.
    pub arrivals: Arrivals,
    /// In bursts, if not evenly; the first begins at time zero, and so with the warm-up.
    pub bursts: Option<Bursts>,
    /// Times what a shape says at each moment, if not evenly.
    pub shape: Option<Shape>,
    /// What clients ask for, and how much on one connection.
    pub workload: Workload,
    /// The times and sizes of a log in place of rate, arrivals, bursts, shape and workload.
    pub replay: Option<Arc<Replay>>,
    /// Time before the measured window.
    pub warmup: Duration,
    /// The measured window.
    pub duration: Duration,
    /// How long to wait after the window for open attempts; what is open then is unfinished.
    pub drain: Duration,
    /// How long a user waits for the complete reply.
    pub timeout: Duration,
    /// Users who stop waiting earlier, and reload.
    pub abort: Option<Abort>,
    /// Users who go on to other pages; the rate is that of users then.
    pub sessions: Option<Sessions>,
    /// Which part of the crowd this generator sends.
    pub shard: Shard,
    /// How connections are closed.
    pub close: Close,
    /// The clients' systems.
    pub stacks: Stacks,
    /// Source addresses.
    pub clients: IpNet,
    /// Interface to the server.
    pub interface: String,
    /// How frames are received.
    pub mode: Mode,
    /// Time between turns of the generator, which receives and sends in bursts this far apart; 0 is as soon as possible.
    pub coalesce: Duration,
    /// Seed of arrivals and sequence numbers.
    pub seed: u64,
    /// Spoofed SYNs in what time the crowd leaves.
    pub flood: Option<flood::Config>,
}

/// How far a run is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Since the start.
    pub elapsed: Nanos,
    /// Counts since the start.
    pub totals: Totals,
    /// Live connections.
    pub live: usize,
    /// Frames received.
    pub frames_received: u64,
    /// Response times of the replies since the last progress, microseconds.
    pub interval: &'a Histogram<u64>,
}

/// Who watches a run.
pub trait Observer {
    /// Once a second, and first at time zero, when the first attempt is about to start.
    fn progress(&mut self, progress: &Progress<'_>);

    /// At the end, for what came since the last call of [`Observer::progress`].
    fn last_interval(&mut self, _progress: &Progress<'_>) {}

    /// Whether [`Observer::ended`] is to be called.
    fn wants_ended(&self) -> bool {
        false
    }

    /// Some attempts have ended.
    fn ended(&mut self, _attempts: &mut dyn Iterator<Item = Ended>) {}
}

impl<F: FnMut(&Progress<'_>)> Observer for F {
    fn progress(&mut self, progress: &Progress<'_>) {
        self(progress);
    }
}

/// Runs a crowd to its end, or until `stop` is set.
///
/// # Errors
///
/// Before anything is sent: a bad configuration, no privileges, an interface or a server that is not there. Later: an
/// interface that went away.
pub fn run(config: &Config, stop: &AtomicBool, observer: &mut impl Observer) -> Result<CrowdSummary> {
    let mut engine = Engine::open(config)?;
    if observer.wants_ended() {
        engine.crowd.keep_ended();
    }
    let clock = Clock::start();
    let cpu_before = thread_cpu_time();
    let mut next_progress = Nanos::ZERO;
    let mut next_turn = Nanos::ZERO;
    let turn = if config.flood.is_some() { config.coalesce.max(flood::TURN) } else { config.coalesce };
    let end = engine.window.end + config.drain.into();
    loop {
        let now = engine.pause_until(&clock, next_turn)?;
        next_turn = now + turn.into();
        if next_progress <= now {
            observer.progress(&engine.progress(now));
            engine.crowd.begin_interval();
            next_progress += Nanos::from_secs(1);
        }
        if stop.load(Ordering::Relaxed) || engine.is_done(now, end) {
            engine.crowd.stop(now, STOP_GRACE);
            observer.last_interval(&engine.progress(now));
            observer.ended(&mut engine.crowd.take_ended());
            return engine.summary(now, thread_cpu_time().since(cpu_before));
        }
        let was_busy = engine.turn(&clock)?;
        if observer.wants_ended() {
            observer.ended(&mut engine.crowd.take_ended());
        }
        if !was_busy {
            engine.wait(clock.now(), next_progress)?;
        }
    }
}

struct Engine {
    crowd: Crowd,
    clients: Clients,
    server: SocketAddr,
    ethernet: Ethernet,
    port: Port,
    flood: Option<Flood>,
    window: Window,
    frames_sent: u64,
    frames_unsent: u64,
    frames_received: u64,
}

impl Engine {
    fn open(config: &Config) -> Result<Self> {
        ensure!(
            config.rate > 0.0 && config.rate <= MAX_RATE,
            "a rate of {} per second cannot be sent; above 0 and up to {MAX_RATE:.0}",
            config.rate
        );
        let highest_rate = highest_rate(config)?;
        ensure!(
            config.coalesce <= MAX_COALESCE,
            "bursts {:?} apart would make every attempt late; up to {MAX_COALESCE:?}",
            config.coalesce
        );
        ensure!(
            config.sessions.is_none() || config.replay.is_none(),
            "a log has its own users; leave out the sessions, or the log"
        );
        ensure!(
            config.clients.addr().is_ipv4() == config.server.is_ipv4(),
            "clients {} and server {} are of two address families; name a client network of the server's",
            config.clients,
            config.server
        );
        let interface = &config.interface;
        let ifindex = if_nametoindex(interface.as_str()).ok().with_context(|| {
            format!("interface {interface}: there is none of that name here; see `ip link`")
        })?;
        let ethernet = next_hop::resolve(config.server, interface)?;
        let steer =
            Steer { server: config.server, clients: (config.clients.network(), config.clients.prefix_len()) };
        let rings = xsk::Config {
            ifindex,
            interface: interface.clone(),
            mode: xsk::Mode::Auto,
            rx_frames: DEFAULT_RX_FRAMES,
            tx_frames: TX_FRAMES,
            steer,
        };
        let port = Port::open(config.mode, &rings, config.clients)?;
        let flood =
            config.flood.as_ref().map(|flood| Flood::open(flood, config.server, config.seed)).transpose()?;
        let window =
            Window { start: config.warmup.into(), end: Nanos::from(config.warmup) + config.duration.into() };
        let clients = Clients::new(config.clients);
        // Every object of a session is an attempt.
        let per_user = config.sessions.as_ref().map_or(1.0, Sessions::mean_objects);
        let own_rate = highest_rate * per_user / f64::from(config.shard.count());
        let capacity = (own_rate * config.timeout.as_secs_f64()).min(MAX_RESERVED) as usize;
        let crowd = Crowd::new(manners(config, window), asks(config), clients, schedule(config), capacity);
        let server = config.server;
        Ok(Self {
            crowd,
            clients,
            server,
            ethernet,
            port,
            flood,
            window,
            frames_sent: 0,
            frames_unsent: 0,
            frames_received: 0,
        })
    }

    /// Lets time pass until the next turn, and gives the time then.
    fn pause_until(&mut self, clock: &Clock, moment: Nanos) -> Result<Nanos> {
        match &mut self.flood {
            Some(flood) => flood.send_until(clock, moment),
            None => Ok(clock.spin_until(moment)),
        }
    }

    /// Receives, handles deadlines, starts attempts, sends. Gives false when there was nothing to do.
    fn turn(&mut self, clock: &Clock) -> Result<bool> {
        let Self { crowd, clients, server, ethernet, port, .. } = self;
        let (mut rx, mut tx) = port.split();
        let (clients, server, ethernet) = (*clients, *server, *ethernet);
        // No more than there are buffers for: what the kernel has not taken yet makes starts late, which is counted,
        // and not frames lost.
        const { assert!(TX_FRAMES >= 3 * BATCH * FRAMES_PER_EVENT) };
        let batch = BATCH.min(tx.transmit_room() / (3 * FRAMES_PER_EVENT));
        let (mut queued, mut unsent) = (0u64, 0u64);
        let mut send = |endpoint: Endpoint, segment: &Segment<'_>| {
            let src = SocketAddr::new(clients.address(endpoint.client), endpoint.port);
            let tuple = FourTuple { src, dst: server };
            let was_queued = tx.transmit(|buffer| wire::emit(buffer, &ethernet, &tuple, segment));
            *if was_queued { &mut queued } else { &mut unsent } += 1;
        };
        let now = clock.now();
        let received = rx.receive(batch, |frame| {
            let Ok((tuple, segment)) = wire::parse(frame) else {
                return;
            };
            // A packet socket gives us what is others', too.
            let Some(client) = clients.index(tuple.dst.ip()).filter(|_| tuple.src == server) else {
                return;
            };
            crowd.on_segment(Endpoint { client, port: tuple.dst.port() }, &segment, now, &mut send);
        });
        let mut events = received;
        let now = clock.now();
        events += (0..batch).take_while(|_| crowd.on_deadline(now, &mut send)).count() as u32;
        events += (0..batch).take_while(|_| crowd.start_next(now, &mut send)).count() as u32;
        tx.flush().context("send; did the interface go down?")?;
        self.frames_sent += queued;
        self.frames_unsent += unsent;
        self.frames_received += u64::from(received);
        Ok(events > 0 || batch < BATCH)
    }

    /// Sleeps until a frame arrives or the next thing is due.
    fn wait(&mut self, now: Nanos, next_progress: Nanos) -> Result<()> {
        if self.flood.is_some() {
            return Ok(()); // which has no time to lose
        }
        let next = self.crowd.next_start().unwrap_or(Nanos::MAX).min(next_progress);
        // The wheel ticks every millisecond, so deadlines are looked at that often while there are connections.
        let tick = if self.crowd.live() > 0 { Nanos::from_millis(1) } else { MAX_WAIT };
        let timeout = next.since(now).min(tick);
        if timeout >= MIN_WAIT {
            self.port.split().0.wait((timeout - MIN_WAIT).into()).context("wait for frames")?;
        }
        Ok(())
    }

    /// All attempts have their cause, or the time for that is up. Starts that are a little late are still made.
    fn is_done(&self, now: Nanos, end: Nanos) -> bool {
        let time_is_up = now >= end && (self.crowd.next_start().is_none() || now >= end + LATEST_START);
        time_is_up || (now >= self.window.end && self.crowd.is_over())
    }

    fn progress(&self, elapsed: Nanos) -> Progress<'_> {
        let frames_received = self.frames_received;
        let tally = self.crowd.tally();
        let (totals, live, interval) = (tally.totals, self.crowd.live(), tally.interval());
        Progress { elapsed, totals, live, frames_received, interval }
    }

    fn summary(&self, stopped: Nanos, cpu: Nanos) -> Result<CrowdSummary> {
        let health = GeneratorHealth {
            frames_lost: self.port.lost().context("read the socket's counters")?,
            frames_unsent: self.frames_unsent,
            frames_sent: self.frames_sent,
            frames_received: self.frames_received,
            cpu_share: cpu.as_secs_f64() / stopped.as_secs_f64().max(1e-9),
            peak_connections: self.crowd.peak() as u64,
            bytes_per_connection: Crowd::BYTES_PER_CONNECTION as u64,
            receive_mode: self.port.name().to_owned(),
            receive_fallback: self.port.instead().map(ToString::to_string),
            ..GeneratorHealth::default()
        };
        let shards = self.crowd.shard().name().into_iter().collect();
        Ok(CrowdSummary { shards, ..self.crowd.tally().summary(stopped, health) })
    }
}

/// Differs from run to run, so that no SYN meets a socket that the run before left behind: that one would answer with a
/// challenge ACK. And goes on from run to run, so that no timestamp is older than one that the server has seen.
fn micros_since_epoch() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_micros() as u64
}

/// Attempts per second while they come.
fn highest_rate(config: &Config) -> Result<f64> {
    ensure!(
        config.bursts.is_none() || config.shape.is_none(),
        "bursts and a shape are two schedules; name one"
    );
    let Some(bursts) = config.bursts else {
        let peak = config.rate * config.shape.as_ref().map_or(1.0, Shape::peak);
        ensure!(
            peak <= MAX_RATE,
            "{peak:.0} per second at the peak of the shape cannot be sent; up to {MAX_RATE:.0}; lower the rate"
        );
        return Ok(peak);
    };
    let in_burst = bursts.rate_in_burst(config.rate).with_context(|| {
        format!(
            "a mean of {} per second leaves nothing for the bursts: {} in {} start between them already; raise the rate",
            config.rate,
            bursts.starts_in_gap(),
            bursts.cycle()
        )
    })?;
    ensure!(
        in_burst <= MAX_RATE,
        "bursts of {in_burst:.0} per second cannot be sent; up to {MAX_RATE:.0}; lower the rate"
    );
    Ok(in_burst)
}

fn schedule(config: &Config) -> Schedule {
    if let Some(replay) = &config.replay {
        return Schedule::of_log(Arc::clone(replay));
    }
    let Config { arrivals, rate, bursts, ref shape, seed, .. } = *config;
    match (bursts, shape) {
        (Some(bursts), _) => Schedule::in_bursts(arrivals, rate, bursts, seed),
        (None, Some(shape)) => Schedule::shaped(arrivals, rate, shape.clone(), seed),
        (None, None) => Schedule::new(arrivals, rate, seed),
    }
}

fn asks(config: &Config) -> Asks {
    let workload = match &config.replay {
        Some(replay) => Workload::of_log(Arc::clone(replay)),
        None => config.workload.clone(),
    };
    Asks::new(workload, config.seed, &config.host, &config.path)
}

fn manners(config: &Config, window: Window) -> Manners {
    Manners {
        timeout: config.timeout.into(),
        abort: config.abort,
        sessions: config.sessions,
        shard: config.shard,
        close: config.close,
        window,
        stacks: if config.server.is_ipv6() { config.stacks.over_ipv6() } else { config.stacks.clone() },
        clock: (micros_since_epoch() / 1000) as u32,
        seed: config.seed,
        first_endpoint: micros_since_epoch(),
    }
}
