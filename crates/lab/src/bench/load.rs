//! What the crowd can send, against what a bare AF_XDP socket can.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bpf::Hook;
use load::{Arrivals, Close, Config, Crowd, Mode, Shard, Stacks, Workload};
use nix::net::if_::if_nametoindex;
use results::CrowdSummary;
use xsk::echo::Echo;
use xsk::{Socket, Steer};

use super::{Figure, REPETITIONS, clients};
use crate::testbed::{CROWD_INTERFACE, PORT, SERVER_INTERFACE, Testbed};

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

/// One repetition: what the crowd did, and the raw send rate just before.
struct Pair {
    crowd: CrowdSummary,
    raw_frames_per_s: f64,
}

pub fn figures() -> Result<Vec<Figure>> {
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
    let raw_for_frames = "raw AF_XDP send rate into a peer that drops, same core";
    let raw_for_connections = "raw AF_XDP send rate divided by the frames that a connection sends, same core";
    Ok(vec![
        Figure::new("load.connections_per_second", "connections/s", raw_for_connections, &connections),
        Figure::new("load.frames_per_second", "frames/s", raw_for_frames, &frames),
        Figure::new("load.bytes_per_connection", "bytes", "the most that the project allows itself", &bytes),
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
        bursts: None,
        shape: None,
        workload: Workload::default(),
        replay: None,
        abort: None,
        shard: Shard::WHOLE,
        warmup: Duration::ZERO,
        duration: WINDOW,
        drain: Duration::from_secs(1),
        timeout: Duration::from_secs(1),
        close: Close::Reset,
        stacks: Stacks::default(),
        clients: clients().into(),
        interface: CROWD_INTERFACE.to_owned(),
        mode: Mode::Generic, // at both ends: lossless, and all on this core
        coalesce: Duration::ZERO,
        seed: 1,
        flood: None,
    };
    testbed.crowd.enter(|| load::run(&config, &AtomicBool::new(false), &mut |_: &load::Progress<'_>| {}))?
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
    let segment = wire::Segment { seq, ack, flags, window: 1000, options: Default::default(), payload: &[] };
    let ethernet = wire::Ethernet { src: [2, 0, 0, 0, 0, 0x0b], dst: [2, 0, 0, 0, 0, 0x0a] };
    let mut frame = vec![0; wire::frame_len(&tuple, &segment)];
    wire::emit(&mut frame, &ethernet, &tuple, &segment);
    frame
}
