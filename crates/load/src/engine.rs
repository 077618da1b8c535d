//! What a run is: its configuration, and who watches it.

use std::net::SocketAddr;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use crowd::{Abort, Ended, Loop, MAX_COALESCE, Ports, Shard, Stacks, Totals};
use hdrhistogram::Histogram;
use ipnet::IpNet;
use port::{Mode, Port};
use results::CrowdSummary;
use tcp::Close;
use traffic::{Arrivals, Bursts, MAX_RATE, Replay, Sessions, Shape, Workload};
use units::Nanos;
use xsk::Steer;

use crate::flood::{self, Flood};
use crate::handover::Handover;
use crate::next_hop;
use crate::worker::{Place, TX_FRAMES, Worker};
use crate::workers;

/// Buffers to receive into, over all queues: at 200,000 frames a second, what arrives while the
/// reader is off its CPU for 300 ms.
pub const DEFAULT_RX_FRAMES: u32 = 65_536;
/// Most workers: each has a queue of the interface.
pub const MAX_WORKERS: usize = xsk::MAX_QUEUES as usize;

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
    /// Requests that a connection carries at most, of one user after the other.
    pub reuse: NonZeroU8,
    /// Users who go on to other pages; the rate is that of users then.
    pub sessions: Option<Sessions>,
    /// Which part of the crowd this generator sends.
    pub shard: Shard,
    /// How connections are closed.
    pub close: Close,
    /// The server closes first, because each request says so; else the client, when its reply is
    /// complete.
    pub server_closes_first: bool,
    /// The client says so before it closes: CLIENT_CLOSE of `[FTY97]`.
    pub says_client_close: bool,
    /// Ports that come back; without, every connection has a four-tuple of its own.
    pub ports: Option<Ports>,
    /// Users who come back as soon as they are answered, in place of a rate.
    pub users: Option<Loop>,
    /// The clients' systems.
    pub stacks: Stacks,
    /// Source addresses.
    pub clients: IpNet,
    /// Interface to the server.
    pub interface: String,
    /// How frames are received.
    pub mode: Mode,
    /// Threads that send and receive, each with a part of the crowd and, by AF_XDP, with a queue of
    /// the interface of its own: 1 to [`MAX_WORKERS`]. One is the thread that calls.
    pub workers: usize,
    /// The CPUs that they run on, in their order; where there are none the kernel chooses. A single
    /// worker's thread stays there.
    pub cpus: Vec<usize>,
    /// Time between turns of the generator, which receives and sends in bursts this far apart; 0 is
    /// as soon as possible.
    pub coalesce: Duration,
    /// Seed of arrivals and sequence numbers.
    pub seed: u64,
    /// Spoofed SYNs in what time the crowd leaves; of several workers, the first.
    pub flood: Option<flood::Config>,
}

/// How far a run is, all workers together.
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

/// Who watches a run, on the thread that calls.
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
/// Before anything is sent: a bad configuration, no privileges, an interface or a server that is
/// not there. Later: an interface that went away.
pub fn run(config: &Config, stop: &AtomicBool, observer: &mut impl Observer) -> Result<CrowdSummary> {
    let summary = workers::run(open(config)?, stop, observer)?;
    // Workers send parts of this part.
    Ok(CrowdSummary { shards: config.shard.name().into_iter().collect(), ..summary })
}

/// The workers of a run, before anything is sent.
pub fn open(config: &Config) -> Result<Vec<Worker>> {
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
    check_ends(config)?;
    let workers = config.workers;
    ensure!((1..=MAX_WORKERS).contains(&workers), "{workers} workers cannot be; 1 to {MAX_WORKERS}");
    ensure!(
        config.cpus.is_empty() || config.cpus.len() >= workers,
        "{workers} workers need as many CPUs, and the list has {}; name one for each, or none",
        config.cpus.len()
    );
    let interface = &config.interface;
    let found = next_hop::interface(interface)?;
    let ethernet = next_hop::resolve(config.server, interface, &found)?;
    let rings = xsk::Config {
        ifindex: found.index,
        interface: interface.clone(),
        mode: xsk::Mode::Auto,
        rx_frames: DEFAULT_RX_FRAMES,
        tx_frames: TX_FRAMES,
        steer: Steer {
            server: config.server,
            clients: (config.clients.network(), config.clients.prefix_len()),
        },
    };
    let ports = Port::open(config.mode, &rings, workers as u32)?;
    let needs_rings = workers > 1 && !ports[0].has_all_frames();
    let rings = if needs_rings { Handover::between(workers) } else { Ok(Vec::new()) };
    let mut handovers = rings.context("make the rings between the workers")?.into_iter();
    let mut flood =
        config.flood.as_ref().map(|flood| Flood::open(flood, config.server, config.seed)).transpose()?;
    let place = |(worker, port): (usize, Port)| Place {
        worker: worker as u32,
        cpu: config.cpus.get(worker).copied(),
        ethernet,
        port,
        handover: handovers.next(),
        flood: flood.take(),
    };
    let places = ports.into_iter().enumerate().map(place);
    Ok(places.map(|place| Worker::new(config, highest_rate, place)).collect())
}

/// Whether connections can end so.
fn check_ends(config: &Config) -> Result<()> {
    let is_one = config.workers == 1 && config.shard == Shard::WHOLE;
    ensure!(
        is_one || (config.ports.is_none() && config.users.is_none()),
        "users who come back, and ports that do, are those of one generator with one worker"
    );
    let ports = config.ports.as_ref();
    ensure!(
        ports.is_none_or(|ports| {
            ports.reuse_after.is_none_or(|after| after < Nanos::from_secs(ports.time_wait_s.into()))
        }),
        "a port is used again before its TIME_WAIT is over, or not at all: --tw-reuse-after is shorter than --time-wait"
    );
    ensure!(
        config.close != Close::Swap || config.server_closes_first,
        "to swap is for connections that the server closes first; say so (--first server)"
    );
    ensure!(
        !(config.says_client_close && config.server_closes_first),
        "a client that says that it closes is the one who does; leave one of them out"
    );
    ensure!(
        !(config.says_client_close && config.close == Close::Reset),
        "a client that says that it closes does so by FIN; leave one of them out"
    );
    ensure!(
        config.reuse.get() == 1 || !config.server_closes_first,
        "a connection that the server closes after its reply is not used again; leave one of them out"
    );
    Ok(())
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
