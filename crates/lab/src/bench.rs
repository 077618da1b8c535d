//! `tidegate bench`: figures of this machine, each beside its reference of the same run.
//!
//! A figure is a median over repetitions that alternate with its reference, because a shared machine drifts.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bpf::Hook;
use ipnet::Ipv4Net;
use load::{Arrivals, Close, Config, Crowd, Mode};
use netns::pin_to_cpu;
use nix::net::if_::if_nametoindex;
use results::CrowdSummary;
use serde::Serialize;
use xsk::echo::Echo;
use xsk::{Socket, Steer};

use crate::testbed::{CROWD_INTERFACE, PORT, SERVER_INTERFACE, Testbed};

/// Names of all figures. They stay: scripts compare them over time.
pub const NAMES: [&str; 3] =
    ["load.connections_per_second", "load.frames_per_second", "load.bytes_per_connection"];

/// CPU of the crowd, and of all that it causes: the peer receives and answers inline.
const CPU: usize = 1;
const REPETITIONS: usize = 5;
const WINDOW: Duration = Duration::from_secs(1);
/// First offered rate of the search for the highest that is kept, attempts/s.
const FROM: f64 = 10_000.0;
/// From one offered rate to the next, in the first search and in each repetition's.
const COARSE: f64 = 1.5;
const FINE: f64 = 1.05;
/// A repetition searches from this share of what the first search found.
const BELOW: f64 = 0.8;
/// Memory per live connection that the project allows itself, bytes.
const BYTES_GOAL: f64 = 256.0;

/// One figure, as `./dev bench` prints it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// One of [`NAMES`].
    pub name: &'static str,
    /// Median over the repetitions.
    pub value: f64,
    /// Unit of value and reference.
    pub unit: &'static str,
    /// What it is held against, measured in the same run.
    pub reference: f64,
    /// `value / reference`.
    pub ratio: f64,
    /// What the reference is.
    pub reference_is: &'static str,
    /// How often both were measured.
    pub repetitions: usize,
    /// Smallest and largest value.
    pub spread: [f64; 2],
}

impl Figure {
    fn new(name: &'static str, unit: &'static str, reference_is: &'static str, pairs: &[(f64, f64)]) -> Self {
        let values: Vec<f64> = pairs.iter().map(|pair| pair.0).collect();
        let references: Vec<f64> = pairs.iter().map(|pair| pair.1).collect();
        let (value, reference) = (median(values.clone()), median(references));
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (repetitions, spread) = (pairs.len(), [least, most]);
        Self { name, value, unit, reference, ratio: value / reference, reference_is, repetitions, spread }
    }
}

/// Measures figures, those of `names` ([`NAMES`]), or all when there are none.
///
/// # Errors
///
/// No root; fewer than two CPUs; a machine that is too busy to measure.
pub fn run(names: &[String], mut on_figure: impl FnMut(&Figure)) -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "the bench makes network namespaces, which needs root; run it with sudo"
    );
    let figures = load_figures()?;
    for figure in
        figures.iter().filter(|figure| names.is_empty() || names.iter().any(|name| name == figure.name))
    {
        on_figure(figure);
    }
    Ok(())
}

/// One repetition: what the crowd did, and the raw send rate just before.
struct Pair {
    crowd: CrowdSummary,
    raw_frames_per_s: f64,
}

fn load_figures() -> Result<Vec<Figure>> {
    pin_to_cpu(CPU)?;
    let found = highest_kept(FROM, COARSE)?.offered_per_s;
    let pairs: Vec<Pair> = (0..REPETITIONS)
        .map(|_| Ok(Pair { raw_frames_per_s: raw_send_rate()?, crowd: highest_kept(found * BELOW, FINE)? }))
        .collect::<Result<_>>()?;
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
    let bytes = [(Crowd::BYTES_PER_CONNECTION as f64, BYTES_GOAL)];
    let [connections_name, frames_name, bytes_name] = NAMES;
    let raw_for_frames = "raw AF_XDP send rate into a peer that drops, same core";
    let raw_for_connections = "raw AF_XDP send rate divided by the frames that a connection sends, same core";
    Ok(vec![
        Figure::new(connections_name, "connections/s", raw_for_connections, &connections),
        Figure::new(frames_name, "frames/s", raw_for_frames, &frames),
        Figure::new(bytes_name, "bytes", "the most that the project allows itself", &bytes),
    ])
}

/// The crowd at the highest rate, from `rate` on, at which it keeps its own schedule and every attempt gets its reply.
fn highest_kept(mut rate: f64, factor: f64) -> Result<CrowdSummary> {
    let mut kept = crowd(rate)?;
    while !is_kept(&kept) {
        rate /= COARSE;
        ensure!(
            rate > 100.0,
            "this machine does not keep {rate:.0} connections/s; is it busy with something else?"
        );
        kept = crowd(rate)?;
    }
    loop {
        rate *= factor;
        let next = crowd(rate)?;
        if !is_kept(&next) {
            return Ok(kept);
        }
        kept = next;
    }
}

/// The starts were on time, every attempt got its reply, and the replies did not pile up in our own ring: the responder
/// answers within microseconds, so that what comes after the window was late on our side.
fn is_kept(crowd: &CrowdSummary) -> bool {
    let in_time = crowd.goodput_per_s >= 0.99 * crowd.offered_per_s;
    !crowd.generator.limited && crowd.ok == crowd.offered && in_time
}

/// A crowd against the fastest responder that can be put behind veth: an XDP program that answers without a connection,
/// on the crowd's own core.
fn crowd(rate: f64) -> Result<CrowdSummary> {
    let testbed = Testbed::join(clients())?;
    let _echo = testbed.server.enter(|| -> Result<Echo> {
        Ok(Echo::attach(if_nametoindex(SERVER_INTERFACE)?, PORT, Hook::XdpGeneric)?)
    })??;
    let config = Config {
        server: testbed.server_address(),
        host: testbed.server_address().to_string(),
        path: "/".to_owned(),
        rate,
        arrivals: Arrivals::Fixed,
        warmup: Duration::ZERO,
        duration: WINDOW,
        drain: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        close: Close::Reset,
        clients: clients().into(),
        interface: CROWD_INTERFACE.to_owned(),
        mode: Mode::Generic, // at both ends: lossless, and all on this core
        coalesce: Duration::ZERO,
        seed: 1,
    };
    testbed.crowd.enter(|| load::run(&config, &AtomicBool::new(false), |_| {}))?
}

/// Frames/s of the smallest frame, into a peer whose program drops what the echo does not answer.
fn raw_send_rate() -> Result<f64> {
    let testbed = Testbed::join(clients())?;
    let server = testbed.server_address();
    let _echo = testbed.server.enter(|| -> Result<Echo> {
        Ok(Echo::attach(if_nametoindex(SERVER_INTERFACE)?, PORT, Hook::XdpGeneric)?)
    })??;
    testbed.crowd.enter(|| -> Result<f64> {
        let mut socket = Socket::open(&xsk::Config {
            ifindex: if_nametoindex(CROWD_INTERFACE)?,
            interface: CROWD_INTERFACE.to_owned(),
            mode: Mode::Generic, // at both ends: lossless, and all on this core
            rx_frames: 64,
            tx_frames: 4096,
            steer: Steer { server, clients: (server.ip(), 32) },
        })?;
        let rate = xsk::raw_send_rate(&mut socket.tx, &bare_ack(server), WINDOW).context("send")?;
        Ok(rate.per_second())
    })?
}

/// A bare ACK, which the echo drops.
fn bare_ack(server: SocketAddr) -> Vec<u8> {
    let tuple = wire::FourTuple { src: SocketAddr::from(([10, 77, 0, 1], 40_000)), dst: server };
    let flags = wire::Flags::ACK;
    let (seq, ack) = (wire::SeqNumber(1), wire::SeqNumber(1));
    let segment = wire::Segment { seq, ack, flags, window: 1000, mss: None, payload: &[] };
    let ethernet = wire::Ethernet { src: [2, 0, 0, 0, 0, 0x0b], dst: [2, 0, 0, 0, 0, 0x0a] };
    let mut frame = vec![0; wire::frame_len(&tuple, &segment)];
    wire::emit(&mut frame, &ethernet, &tuple, &segment);
    frame
}

fn clients() -> Ipv4Net {
    "10.77.0.0/16".parse().expect("a network")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_is_the_median_with_its_spread() {
        let figure = Figure::new("x", "things", "others", &[(3.0, 4.0), (1.0, 4.0), (2.0, 8.0)]);
        assert_eq!((figure.value, figure.reference, figure.ratio), (2.0, 4.0, 0.5));
        assert_eq!((figure.spread, figure.repetitions), ([1.0, 3.0], 3));
    }
}
