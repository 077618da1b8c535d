//! The thread that moves frames.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use path::Path;
use port::{Clock, Port, Promiscuous, thread_cpu_time};
use results::{LinkDirection, LinkSummary};
use units::Nanos;
use xsk::Steer;

use crate::direction::Direction;
use crate::interface::Interface;
use crate::pool::Pool;
use crate::service::Services;
use crate::way::Way;
use crate::{Config, ConfigError};

/// Frames taken from an interface, and sent to one, in one turn: a turn takes well below 100
/// microseconds.
const BATCH: u32 = 32;
/// To receive into, over all queues of an interface: at 300,000 frames a second, what comes while
/// the thread is off its CPU for 100 ms.
const RX_FRAMES: u32 = 32_768;
/// To send from. They come back within the kick that sends them.
const TX_FRAMES: u32 = 4096;
/// Below this, waiting costs more than looking again: the kernel may wake us 50 microseconds late
/// (`PR_SET_TIMERSLACK`).
const MIN_WAIT: Nanos = Nanos::from_micros(60);
/// Longest wait, so that a stop is noticed.
const MAX_WAIT: Nanos = Nanos::from_millis(20);
/// How often it is looked whether the interfaces are still there: what went away says nothing to
/// who only receives.
const CHECK_EVERY: Nanos = Nanos::from_millis(200);
const SECOND: Nanos = Nanos::from_secs(1);
const ETHERNET_HEADER: u32 = 14;
/// A tag does not count for the MTU.
const VLAN_TAG: u32 = 4;

/// A bottleneck between two interfaces, until it is dropped.
pub struct Link {
    config: Config,
    interfaces: [Interface; 2],
    ports: [Port; 2],
    directions: [Direction; 2],
    pool: Pool,
    services: Option<Services>,
    ran: Span,
    ended_by: Option<String>,
    _promiscuous: [Promiscuous; 2],
}

/// The time that is counted, as moments of the run.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    from: Nanos,
    until: Nanos,
    /// CPU time of the thread before it, and in it.
    cpu_before: Nanos,
    cpu: Nanos,
    /// Frames that each port had lost before it.
    lost: [u64; 2],
}

const READ_LOST: &str = "read a socket's counters";

/// How far a link is.
#[derive(Clone, Copy)]
pub struct Progress<'a> {
    /// Since the start.
    pub elapsed: Nanos,
    /// From the first interface to the second, and back; all counts are since the start.
    pub directions: &'a [Direction; 2],
}

impl Link {
    /// Takes the interfaces. From now on their frames are kept for [`Link::run`].
    ///
    /// # Errors
    ///
    /// One interface given twice, or both ends of a veth pair; one that is not there, down or not
    /// Ethernet; a path or a CPU that cannot be; no privileges; another program on an interface.
    /// Nothing is left behind then.
    pub fn open(config: &Config) -> Result<Self> {
        let [first, second] = &config.interfaces;
        config.check()?;
        let interfaces = [Interface::find(first)?, Interface::find(second)?];
        // By its name, or by another of its names.
        if interfaces[0].link.index == interfaces[1].link.index {
            return Err(ConfigError::SameInterface(second.clone()).into());
        }
        if interfaces[0].is_peer_of(&interfaces[1]) {
            return Err(ConfigError::OnePair(first.clone(), second.clone()).into());
        }
        try_cpu(config.cpu)?;
        let longest = interfaces.each_ref().map(|of| (of.link.mtu + ETHERNET_HEADER + VLAN_TAG) as usize);
        let path = |which: usize| -> Result<Direction> {
            let seed = config.seed.wrapping_mul(2).wrapping_add(which as u64);
            let path = Path::new(&config.paths[which], seed).with_context(|| {
                format!("from {} to {}", config.interfaces[which], config.interfaces[1 - which])
            })?;
            let way = Way::new(path, &config.access, seed).context("links of hosts")?;
            Ok(Direction::new(way, longest[1 - which], seed, BATCH))
        };
        let directions = [path(0)?, path(1)?];
        let promiscuous = |of: &Interface| {
            Promiscuous::set(of.link.index)
                .with_context(|| format!("set {} promiscuous, which needs CAP_NET_RAW", of.name))
        };
        Ok(Self {
            _promiscuous: [promiscuous(&interfaces[0])?, promiscuous(&interfaces[1])?],
            ports: [open_port(config, &interfaces[0])?, open_port(config, &interfaces[1])?],
            pool: Pool::new(config.buffers, longest[0].max(longest[1])),
            services: config.goes_by_response().then(|| Services::new(config.seed)),
            directions,
            interfaces,
            ran: Span::default(),
            ended_by: None,
            config: config.clone(),
        })
    }

    /// How each interface's frames are received, and why not by AF_XDP, where that was tried.
    pub fn receive_modes(&self) -> [(&'static str, Option<&str>); 2] {
        self.ports.each_ref().map(|port| (port.name(), port.instead()))
    }

    /// Moves frames until the time is over or `stop` is set; calls `on_second` after each second.
    /// [`Link::summary`] says what was seen, also after an error.
    ///
    /// # Errors
    ///
    /// A CPU that went away; an interface that went away or was set down.
    pub fn run(&mut self, stop: &AtomicBool, on_second: impl FnMut(&Progress<'_>)) -> Result<()> {
        if let Some(cpu) = self.config.cpu {
            netns::pin_to_cpu(cpu)?;
        }
        let ended = self.move_frames(stop, on_second);
        self.ran.cpu = thread_cpu_time().since(self.ran.cpu_before);
        self.ended_by = ended.as_ref().err().map(|error| format!("{error:#}"));
        ended
    }

    fn move_frames(&mut self, stop: &AtomicBool, mut on_second: impl FnMut(&Progress<'_>)) -> Result<()> {
        let warm_at = Nanos::from(self.config.warmup);
        let end = self.config.duration.map_or(Nanos::MAX, |duration| warm_at + duration.into());
        let clock = Clock::start();
        self.ran = Span { cpu_before: thread_cpu_time(), ..Span::default() };
        let (mut next_second, mut next_check) = (SECOND, CHECK_EVERY);
        let mut is_warm = warm_at == Nanos::ZERO;
        loop {
            let now = clock.now();
            self.ran.until = now;
            if now >= next_check {
                self.interfaces.iter().try_for_each(Interface::check)?;
                next_check = now + CHECK_EVERY;
            }
            if !is_warm && now >= warm_at {
                self.warmed_up(now)?;
                is_warm = true;
            }
            if now >= next_second {
                on_second(&Progress { elapsed: now, directions: &self.directions });
                next_second += SECOND;
            }
            if now >= end || stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let was_busy = self.turn(&clock).map_err(|error| self.why(error))?;
            if !was_busy && !self.config.busy_poll {
                let latest = next_second.min(next_check).min(end);
                self.wait(clock.now(), if is_warm { latest } else { latest.min(warm_at) })
                    .map_err(|error| self.why(error))?;
            }
        }
    }

    /// Counts from now on.
    fn warmed_up(&mut self, now: Nanos) -> Result<()> {
        for (direction, (port, lost)) in
            self.directions.iter_mut().zip(self.ports.iter().zip(&mut self.ran.lost))
        {
            direction.warmed_up(now);
            *lost = port.lost().context(READ_LOST)?;
        }
        self.ran = Span { from: now, cpu_before: thread_cpu_time(), ..self.ran };
        Ok(())
    }

    /// Receives, and sends what is due. Gives false when there was nothing to do.
    fn turn(&mut self, clock: &Clock) -> Result<bool> {
        let Self { ports, directions, pool, services, .. } = self;
        let mut frames = 0;
        for (port, direction) in ports.iter_mut().zip(&mut *directions) {
            let now = clock.now();
            let receive = |frame: &[u8]| direction.receive(now, frame, pool, services.as_mut());
            frames += port.split().0.receive(BATCH, receive);
        }
        for (port, direction) in ports.iter_mut().rev().zip(directions) {
            let (_, mut tx) = port.split();
            let sent = direction.send(clock.now(), BATCH, &mut tx, pool);
            if sent > 0 {
                tx.flush().context("send")?;
                direction.sent(clock.now());
                frames += sent;
            }
        }
        Ok(frames > 0)
    }

    /// Sleeps until a frame comes or the next one is due to leave.
    fn wait(&mut self, now: Nanos, latest: Nanos) -> Result<()> {
        let due = self.directions.iter().filter_map(Direction::next).min().unwrap_or(Nanos::MAX);
        let timeout = due.min(latest).since(now).min(MAX_WAIT);
        if timeout < MIN_WAIT {
            return Ok(());
        }
        let fds = self.ports.iter().flat_map(Port::fds);
        xsk::wait_readable(fds, Duration::from(timeout - MIN_WAIT)).context("wait for frames")
    }

    /// What went wrong, if it is that an interface is gone.
    fn why(&self, error: anyhow::Error) -> anyhow::Error {
        self.interfaces.iter().find_map(|of| of.check().err()).unwrap_or(error)
    }

    /// What was seen after the warm-up until [`Link::run`] ended.
    ///
    /// # Errors
    ///
    /// When the kernel's counts cannot be read.
    pub fn summary(&self) -> Result<LinkSummary> {
        let Span { from, until, cpu, lost, .. } = self.ran;
        let elapsed = until.since(from);
        let direction = |which: usize| -> Result<LinkDirection> {
            let port = &self.ports[which];
            Ok(LinkDirection {
                from: self.interfaces[which].name.clone(),
                to: self.interfaces[1 - which].name.clone(),
                receive_mode: port.name().to_owned(),
                receive_fallback: port.instead().map(str::to_owned),
                lost: port.lost().context(READ_LOST)? - lost[which],
                ..self.directions[which].summary(until)
            })
        };
        Ok(LinkSummary {
            warmup_s: from.as_secs_f64(),
            elapsed_s: elapsed.as_secs_f64(),
            cpu_share: cpu.as_secs_f64() / elapsed.as_secs_f64().max(1e-9),
            ended_by: self.ended_by.clone(),
            directions: vec![direction(0)?, direction(1)?],
        })
    }
}

/// Whether its thread could be there: by another one, which ends.
fn try_cpu(cpu: Option<usize>) -> Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    Ok(std::thread::spawn(move || netns::pin_to_cpu(cpu)).join().expect("pinning does not panic")?)
}

fn open_port(config: &Config, interface: &Interface) -> Result<Port> {
    let rings = xsk::Config {
        ifindex: interface.link.index,
        interface: interface.name.clone(),
        mode: xsk::Mode::Auto,
        rx_frames: RX_FRAMES,
        tx_frames: TX_FRAMES,
        steer: Steer::EVERY_FRAME,
    };
    let mut ports = Port::open(config.mode, &rings, 1)?;
    ports.pop().context("a port for the one worker")
}
