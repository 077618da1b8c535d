//! What `tidegate link` moves on one core, and how precisely it delays.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aqm::Rate;
use link::{Config, DEFAULT_BUFFERS, Link};
use netns::{Frame, Namespace, Tap, VethEnd, VethPair, link_counters, pin_to_cpu};
use port::{Clock, Mode};
use units::Nanos;
use xsk::{Socket, Steer};

use crate::median;
use crate::rate::raw_send_rate;
use crate::{CPU, Figure, REPETITIONS, go_on};

const WINDOW: Duration = Duration::from_secs(1);
/// Of what sends and receives beside the link.
const OTHER_CPU: usize = 0;
/// An ethertype for local experiments (IEEE 802): no kernel answers.
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Shortest and longest frame of Ethernet, bytes without FCS.
const SHORT: usize = 60;
const LONG: usize = 1514;
/// Where a long frame has its number.
const NUMBER: Range<usize> = 14..22;
/// Of the path whose precision is measured: a long frame takes 121 us.
const BITS_PER_S: u64 = 100_000_000;
const DELAY: Nanos = Nanos::from_millis(10);
const GAP: Nanos = Nanos::from_micros(125);
/// Frames before those that are measured: the link's thread is still on its way to its CPU.
const WARMUP: usize = 800;
/// How late, or early, 99 of 100 frames of a slice may arrive at most by what the project demands
/// of itself, microseconds.
const ERROR_GOAL_US: f64 = 100.0;
/// Frames of a twentieth of a second.
const SLICE: usize = 400;
/// Packets a second that the project demands of itself.
const PACKETS_GOAL: f64 = 300_000.0;
/// Longest wait for the last frames.
const PATIENCE: Nanos = Nanos::from_millis(200);

pub(crate) fn figures(stop: &AtomicBool) -> Result<Vec<Figure>> {
    let (mut packets, mut errors, mut clocks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPETITIONS {
        go_on(stop)?;
        packets.push((packets_per_s()?, PACKETS_GOAL));
        errors.push((p99_of_most_slices(&errors_us()?), ERROR_GOAL_US));
        clocks.push((p99_of_most_slices(&late_us()), ERROR_GOAL_US));
    }
    Ok(vec![
        Figure::new("link.packets_per_second", "packets/s", "what the project demands of itself", &packets),
        Figure::new("link.delay_error_us", "us", "the most that the project allows itself", &errors),
        Figure::new("link.clock_error_us", "us", "the most that the link's delays may be off", &clocks),
    ])
}

/// A host on each side of the link: l0 - m0, m1 - r0.
struct Wires {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
    l0: VethEnd,
    r0: VethEnd,
}

impl Wires {
    fn create() -> Result<Self> {
        let [left, middle, right] =
            [Namespace::create("left")?, Namespace::create("middle")?, Namespace::create("right")?];
        let VethPair { a: l0, .. } = VethPair::create(&left, "l0", &middle, "m0")?;
        let VethPair { b: r0, .. } = VethPair::create(&middle, "m1", &right, "r0")?;
        Ok(Self { left, middle, right, l0, r0 })
    }

    /// Runs the link on its CPU, and `act` on the other one meanwhile.
    fn beside_link<T>(&self, path: path::Config, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let config = Config {
            interfaces: ["m0".to_owned(), "m1".to_owned()],
            paths: [path.clone(), path],
            access: Vec::new(),
            mode: Mode::Auto,
            cpu: Some(CPU),
            busy_poll: true,
            buffers: DEFAULT_BUFFERS,
            seed: 1,
            warmup: Duration::ZERO,
            duration: None,
        };
        let mut link = self.middle.enter(|| Link::open(&config))??;
        let (over, namespace) = (AtomicBool::new(false), &self.middle);
        scope(|scope| {
            // In its namespace, where its interfaces have their names.
            let linked = scope.spawn(|| namespace.enter(|| link.run(&over, |_| {})));
            let done = pin_to_cpu(OTHER_CPU).map_err(Into::into).and_then(|()| act());
            over.store(true, Ordering::Relaxed);
            pin_to_cpu(CPU)?;
            linked.join().expect("the link does not panic")??;
            done
        })
    }
}

fn socket(namespace: &Namespace, end: &VethEnd) -> Result<Socket> {
    let config = xsk::Config {
        ifindex: end.ifindex,
        interface: end.name.clone(),
        mode: xsk::Mode::Generic,
        rx_frames: 4096,
        tx_frames: 4096,
        steer: Steer::EVERY_FRAME,
    };
    Ok(namespace.enter(|| Socket::open(&config))??)
}

fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![0; len];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a]);
    frame[12..14].copy_from_slice(&ETHERTYPE);
    frame
}

/// Short frames that reach the other host, while as many are sent as can be; the core of the link
/// also does what the kernel does for its sending.
fn packets_per_s() -> Result<f64> {
    let wires = Wires::create()?;
    let mut socket = socket(&wires.left, &wires.l0)?;
    let before = link_counters(&wires.right, "r0")?.received;
    let elapsed = wires.beside_link(path::Config::default(), || {
        Ok(raw_send_rate(&mut socket.tx, &frame(SHORT), WINDOW).context("send")?.elapsed)
    })?;
    let received = link_counters(&wires.right, "r0")?.received - before;
    Ok(received as f64 / elapsed.as_secs_f64())
}

/// What 99 of 100 values of a twentieth of a second are below, in the median slice. A virtual
/// machine's CPU is away for milliseconds several times a second: of the whole second these moments
/// alone would be seen, and of most of its slices what the link does.
fn p99_of_most_slices(values: &[f64]) -> f64 {
    let p99 = |slice: &[f64]| {
        let mut slice = slice.to_vec();
        slice.sort_by(f64::total_cmp);
        slice[slice.len() * 99 / 100]
    };
    median(values.chunks_exact(SLICE).map(p99).collect())
}

/// By how much each frame arrives later or earlier than it would by the path alone, from one host
/// to the other, in microseconds. The kernel's way through two veth pairs is part of it.
fn errors_us() -> Result<Vec<f64>> {
    let wires = Wires::create()?;
    let (mut left, right) = (socket(&wires.left, &wires.l0)?, Tap::open(&wires.right, wires.r0.ifindex)?);
    let path =
        path::Config { rate: Rate::from_bits_per_s(BITS_PER_S), delay: DELAY, ..path::Config::default() };
    wires.beside_link(path, || send_and_receive(&mut left, &right))
}

/// By how much moments as far apart as the frames are seen late by a thread on the link's CPU that
/// does nothing but look at the clock, microseconds: what the hypervisor and the kernel's own work
/// take from it, and no link can give back.
fn late_us() -> Vec<f64> {
    let clock = Clock::start();
    let late = |number: u64| {
        let moment = Nanos(number * GAP.0);
        clock.spin_until(moment).since(moment).0 as f64 / 1e3
    };
    (1..=Nanos::from(WINDOW).0 / GAP.0).map(late).collect()
}

/// Sends a frame every [`GAP`], and gives for each but the first how far off its arrival was, by
/// the kernel's time of it, microseconds.
fn send_and_receive(left: &mut Socket, right: &Tap) -> Result<Vec<f64>> {
    let transmission = Nanos(8 * LONG as u64 * 1_000_000_000 / BITS_PER_S);
    let clock = Clock::start();
    let mut template = frame(LONG);
    let count = WARMUP + (Nanos::from(WINDOW).0 / GAP.0) as usize;
    // By its number, when each is to arrive; and when the transmitter is free again.
    let (mut meant, mut free_at) = (Vec::with_capacity(count), Nanos::ZERO);
    let mut errors = Vec::with_capacity(count);
    let (mut arrived, mut next) = (0, GAP);
    while arrived < count {
        let now = clock.now();
        if meant.len() < count && now >= next {
            template[NUMBER].copy_from_slice(&u64::to_be_bytes(meant.len() as u64));
            left.tx.transmit(|buffer| {
                buffer[..LONG].copy_from_slice(&template);
                LONG
            });
            free_at = free_at.max(now) + transmission;
            meant.push(free_at + DELAY);
            next += GAP;
            left.tx.flush().context("send")?;
        }
        while let Some(Frame { bytes, age }) = right.receive(Duration::ZERO)? {
            let at = clock.now().since(age.into());
            let number = bytes[NUMBER].try_into().map_or(u64::MAX, u64::from_be_bytes);
            let Some(meant) = meant.get(number as usize).filter(|_| bytes[12..14] == ETHERTYPE) else {
                continue;
            };
            if number >= WARMUP as u64 {
                errors.push((at.0 as f64 - meant.0 as f64).abs() / 1e3);
            }
            arrived += 1;
        }
        if now > next + PATIENCE {
            break;
        }
    }
    // The receiving socket may have been full while this thread was off its CPU.
    ensure!(10 * arrived >= 9 * count, "{arrived} of {count} frames came through the link");
    Ok(errors)
}
