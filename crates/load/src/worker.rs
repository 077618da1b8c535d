//! One thread that runs a crowd, or a worker's part of it, over an interface.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use crowd::{Asks, Clients, Crowd, Endpoint, Manners, Window};
use port::{Clock, Port, thread_cpu_time};
use results::{CrowdSummary, GeneratorHealth};
use traffic::{Schedule, Sessions, Workload};
use units::Nanos;
use wire::{Ethernet, FourTuple, Segment};

use crate::engine::{Config, Observer, Progress};
use crate::flood::{self, Flood};
use crate::handover::Handover;
use crate::workers::Run;

/// Frames taken from the queues, and from other workers, deadlines handled and attempts started in
/// one turn, each: small enough that a turn takes well below a millisecond.
const BATCH: u32 = 64;
/// So many kinds of events there are.
const KINDS: u32 = 4;
/// Most frames that one received frame, one deadline or one start can cause.
const FRAMES_PER_EVENT: u32 = 4;
/// Buffers to send from. They come back within the kick that sends them.
pub const TX_FRAMES: u32 = 4096;
/// Live connections for which memory is set aside at most; more make the tables grow during the
/// run.
const MAX_RESERVED: f64 = 2_000_000.0;
/// Below this, waiting costs more than looking again.
const MIN_WAIT: Nanos = Nanos::from_micros(60);
/// A generator that is this far behind at the end does not catch up: what is left was not sent.
const LATEST_START: Nanos = Nanos::from_millis(100);
/// A run that is stopped does not count as unsent what the next turn would have started.
const STOP_GRACE: Nanos = Nanos::from_millis(1);
/// Longest wait, so that a stop is noticed.
const MAX_WAIT: Nanos = Nanos::from_millis(20);

/// Where a worker works.
pub struct Place {
    /// Which it is, from 0.
    pub worker: u32,
    /// Its CPU, if not any.
    pub cpu: Option<usize>,
    /// Of the way to the server.
    pub ethernet: Ethernet,
    /// What it receives and sends by.
    pub port: Port,
    /// To and from the others, where they have each other's frames.
    pub handover: Option<Handover>,
    /// Spoofed SYNs beside the crowd.
    pub flood: Option<Flood>,
}

/// A worker with its part of the crowd.
pub struct Worker {
    crowd: Crowd,
    clients: Clients,
    server: SocketAddr,
    place: Place,
    window: Window,
    /// When its attempts should have ended.
    end: Nanos,
    /// Between turns.
    turn: Duration,
    frames_sent: u64,
    frames_unsent: u64,
    frames_received: u64,
    /// Turns in which frames were sent, and how long those took that had something to do.
    turns: u64,
    busy: Nanos,
}

impl Worker {
    /// One that has not begun, of as many as the configuration has. Its memory is for
    /// `highest_rate` attempts per second of the whole crowd.
    pub fn new(config: &Config, highest_rate: f64, place: Place) -> Self {
        let window =
            Window { start: config.warmup.into(), end: Nanos::from(config.warmup) + config.duration.into() };
        let workers = config.workers as u32;
        let manners = manners(config, window, place.worker);
        // Every object of a session is an attempt.
        let per_user = config.sessions.as_ref().map_or(1.0, Sessions::mean_objects);
        let own_rate = highest_rate * per_user / f64::from(manners.shard.count());
        let capacity = (own_rate * config.timeout.as_secs_f64()).min(MAX_RESERVED) as usize;
        let clients = Clients::new(config.clients).of_worker(place.worker, workers);
        let has_flood = place.flood.is_some();
        Self {
            crowd: ending(Crowd::new(manners, asks(config), clients, schedule(config), capacity), config),
            clients,
            server: config.server,
            place,
            window,
            end: window.end + config.drain.into(),
            turn: if has_flood { config.coalesce.max(flood::TURN) } else { config.coalesce },
            frames_sent: 0,
            frames_unsent: 0,
            frames_received: 0,
            turns: 0,
            busy: Nanos::ZERO,
        }
    }

    /// Works until the run is over, which is when every worker has done its part.
    ///
    /// # Errors
    ///
    /// A CPU that is not there, an interface that went away. The run is over for all then.
    pub fn run(mut self, clock: &Clock, run: &Run<'_>, observer: &mut impl Observer) -> Result<CrowdSummary> {
        let _over = run.over_when_dropped(clock);
        if let Some(cpu) = self.place.cpu {
            netns::pin_to_cpu(cpu)?;
        }
        if observer.wants_ended() {
            self.crowd.keep_ended();
        }
        let cpu_before = thread_cpu_time();
        let mut next_progress = Nanos::ZERO;
        let mut next_turn = Nanos::ZERO;
        let mut is_done = false;
        loop {
            let now = self.pause_until(clock, next_turn)?;
            next_turn = now + self.turn.into();
            if next_progress <= now {
                observer.progress(&self.progress(now));
                self.crowd.begin_interval();
                next_progress += Nanos::from_secs(1);
            }
            // One that is done works on: what comes to its queue may be others'.
            if !is_done && self.is_done(now) {
                is_done = true;
                run.one_is_done();
            }
            if let Some(stopped) = run.stopped(now) {
                // Late is not unsent: its CPU may have been another's when the signal came.
                if !is_done {
                    self.turn(clock)?;
                }
                self.crowd.stop(stopped, STOP_GRACE);
                observer.last_interval(&self.progress(stopped));
                observer.ended(&mut self.crowd.take_ended());
                return self.summary(stopped, thread_cpu_time().since(cpu_before));
            }
            let was_busy = self.turn(clock)?;
            if was_busy {
                self.busy += clock.now().since(now);
            }
            if observer.wants_ended() {
                observer.ended(&mut self.crowd.take_ended());
            }
            if !was_busy {
                self.wait(clock.now(), next_progress)?;
            }
        }
    }

    /// Lets time pass until the next turn, and gives the time then.
    fn pause_until(&mut self, clock: &Clock, moment: Nanos) -> Result<Nanos> {
        match &mut self.place.flood {
            Some(flood) => flood.send_until(clock, moment),
            None => Ok(clock.spin_until(moment)),
        }
    }

    /// Receives, handles deadlines, starts attempts, sends. Gives false when there was nothing to
    /// do.
    fn turn(&mut self, clock: &Clock) -> Result<bool> {
        let Self { crowd, clients, server, place, .. } = self;
        let Place { ethernet, port, handover, .. } = place;
        let (mut rx, mut tx) = port.split();
        let (clients, server, ethernet) = (*clients, *server, *ethernet);
        // No more than there are buffers for: what the kernel has not taken yet makes starts late,
        // which is counted, and not frames lost.
        const { assert!(TX_FRAMES >= KINDS * BATCH * FRAMES_PER_EVENT) };
        let batch = BATCH.min(tx.transmit_room() / (KINDS * FRAMES_PER_EVENT));
        let (mut queued, mut unsent) = (0u64, 0u64);
        let mut send = |endpoint: Endpoint, segment: &Segment<'_>| {
            let src = SocketAddr::new(clients.address(endpoint.client), endpoint.port);
            let tuple = FourTuple { src, dst: server };
            let was_queued = tx.transmit(|buffer| wire::emit(buffer, &ethernet, &tuple, segment));
            *if was_queued { &mut queued } else { &mut unsent } += 1;
        };
        let now = clock.now();
        let mut others = 0;
        let received = rx.receive(batch, |frame| {
            let Some((endpoint, segment)) = read(frame, clients, server) else {
                return;
            };
            if clients.has(endpoint) {
                crowd.on_segment(endpoint, &segment, now, &mut send);
            } else if let Some(handover) = handover.as_mut() {
                handover.give(clients.owner(endpoint), frame);
            } else {
                others += 1;
            }
        });
        let mut events = received;
        if let Some(handover) = handover {
            handover.ring();
            let now = clock.now();
            events += handover.take(batch, |frame| {
                if let Some((endpoint, segment)) = read(frame, clients, server) {
                    crowd.on_segment(endpoint, &segment, now, &mut send);
                }
            });
        }
        let now = clock.now();
        events += (0..batch).take_while(|_| crowd.on_deadline(now, &mut send)).count() as u32;
        events += (0..batch).take_while(|_| crowd.start_next(now, &mut send)).count() as u32;
        tx.flush().context("send; did the interface go down?")?;
        self.turns += u64::from(queued > 0);
        self.frames_sent += queued;
        self.frames_unsent += unsent;
        self.frames_received += u64::from(received - others);
        Ok(events > 0 || batch < BATCH)
    }

    /// Sleeps until a frame arrives or the next thing is due.
    fn wait(&mut self, now: Nanos, next_progress: Nanos) -> Result<()> {
        let Place { port, handover, flood, .. } = &mut self.place;
        if flood.is_some() {
            return Ok(()); // which has no time to lose
        }
        let next = self.crowd.next_start().unwrap_or(Nanos::MAX).min(next_progress);
        // The wheel ticks every millisecond, so deadlines are looked at that often while there are
        // connections.
        let tick = if self.crowd.live() > 0 { Nanos::from_millis(1) } else { MAX_WAIT };
        let timeout = next.since(now).min(tick);
        if timeout >= MIN_WAIT {
            let timeout = (timeout - MIN_WAIT).into();
            let waited = match handover {
                Some(handover) => handover.wait(|bell| port.wait(Some(bell), timeout)),
                None => port.wait(None, timeout),
            };
            waited.context("wait for frames")?;
        }
        Ok(())
    }

    /// All attempts have their cause, or the time for that is up. Starts that are a little late are
    /// still made.
    fn is_done(&self, now: Nanos) -> bool {
        let time_is_up =
            now >= self.end && (self.crowd.next_start().is_none() || now >= self.end + LATEST_START);
        time_is_up || (now >= self.window.end && self.crowd.is_over())
    }

    fn progress(&self, elapsed: Nanos) -> Progress<'_> {
        let frames_received = self.frames_received;
        let tally = self.crowd.tally();
        let (totals, live, interval) = (tally.totals, self.crowd.live(), tally.interval());
        Progress { elapsed, totals, live, frames_received, interval }
    }

    fn summary(&self, stopped: Nanos, cpu: Nanos) -> Result<CrowdSummary> {
        let Place { port, handover, .. } = &self.place;
        let (given, lost) = handover.as_ref().map_or((0, 0), |rings| (rings.given(), rings.lost()));
        let health = GeneratorHealth {
            workers: 1,
            frames_lost: port.lost().context("read the socket's counters")? + lost,
            frames_unsent: self.frames_unsent,
            frames_sent: self.frames_sent,
            frames_received: self.frames_received,
            frames_handed_over: given,
            cpu_share: cpu.as_secs_f64() / stopped.as_secs_f64().max(1e-9),
            turns: self.turns,
            busy_share: self.busy.as_secs_f64() / stopped.as_secs_f64().max(1e-9),
            peak_connections: self.crowd.peak() as u64,
            bytes_per_connection: Crowd::BYTES_PER_CONNECTION as u64,
            receive_mode: port.name().to_owned(),
            receive_fallback: port.instead().map(str::to_owned),
            ..GeneratorHealth::default()
        };
        let shards = self.crowd.shard().name().into_iter().collect();
        Ok(CrowdSummary { shards, ..self.crowd.tally().summary(stopped, health) })
    }
}

/// A segment from the server to one of our clients, and whose it is. A packet socket gives us what
/// is neither, too.
fn read(frame: &[u8], clients: Clients, server: SocketAddr) -> Option<(Endpoint, Segment<'_>)> {
    let (tuple, segment) = wire::parse(frame).ok()?;
    let client = clients.index(tuple.dst.ip()).filter(|_| tuple.src == server)?;
    Some((Endpoint { client, port: tuple.dst.port() }, segment))
}

/// Differs from run to run, so that no SYN meets a socket that the run before left behind: that one
/// would answer with a challenge ACK. And goes on from run to run, so that no timestamp is older
/// than one that the server has seen.
fn micros_since_epoch() -> u64 {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since_epoch.as_micros() as u64
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

/// Its connections end as they should.
fn ending(mut crowd: Crowd, config: &Config) -> Crowd {
    if let Some(ports) = config.ports {
        crowd = crowd.with_ports(ports);
    }
    if let Some(users) = config.users {
        crowd = crowd.in_a_loop(users);
    }
    match (config.server_closes_first, config.says_client_close) {
        (true, _) => crowd.let_server_close_first(),
        (false, true) => crowd.say_client_close(),
        (false, false) => crowd,
    }
}

fn manners(config: &Config, window: Window, worker: u32) -> Manners {
    Manners {
        timeout: config.timeout.into(),
        abort: config.abort,
        reuse: config.reuse.get(),
        groups: 1,
        sessions: config.sessions,
        shard: config.shard.of_worker(worker, config.workers as u32),
        close: config.close,
        window,
        stacks: if config.server.is_ipv6() { config.stacks.over_ipv6() } else { config.stacks.clone() },
        clock: (micros_since_epoch() / 1000) as u32,
        seed: config.seed,
        first_endpoint: micros_since_epoch(),
    }
}
