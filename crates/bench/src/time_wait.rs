//! What connections in TIME_WAIT cost a server of today: memory, looking for others, and two
//! transfers, as in `[FTY97]` table 1.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::close::{Closing, Destination, QUARANTINE, Setup, Sockets, Way};
use anyhow::{Context, Result, ensure};
use bpf::Hook;
use experiment::Layout;
use lab::{CROWD_POLL, Testbed};
use load::{Close, Config};
use netns::pin_to_cpu;
use wire::{Flags, FourTuple};

use crate::load::one_packet;
use crate::program::frame;
use crate::{CPU, Figure, SERVER_CPU, clients, go_on, median};

/// More than a server of one core closes in the 60 s that each lasts.
const BUCKETS: &str = "2000000";
const RATE: f64 = 30_000.0;
const FILLS: Duration = Duration::from_secs(62);
const TRANSFER: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);
const BULK_PORT: u16 = 5001;
/// Each looks into another chain, and finds nothing.
const LOOKUPS: u16 = 4000;
const FEWEST: u64 = 300_000;
const FEW_BYTES: f64 = 1e6;
const FORGOTTEN: Duration = Duration::from_secs(70);
const REPETITIONS: usize = 3;
const SERVER_INTERVAL: Duration = Duration::from_micros(50);

/// What was measured with so many.
#[derive(Debug, Clone, Copy)]
struct Point {
    bytes_per_s: f64,
    lookup_ns: f64,
    /// Of the kernel's memory for TIME_WAIT.
    slab_bytes: f64,
    time_waits: u64,
}

pub(crate) fn figures(stop: &AtomicBool) -> Result<Vec<Figure>> {
    let points = (0..REPETITIONS).map(|_| repetition(stop)).collect::<Result<Vec<_>>>()?;
    let of = |value: fn(&[Point; 2]) -> (f64, f64)| points.iter().map(value).collect::<Vec<_>>();
    Ok(vec![
        Figure::new("time_wait.count", "connections", "none", &of(|[_, with]| (with.time_waits as f64, 1.0))),
        Figure::new(
            "time_wait.bytes",
            "bytes",
            "struct tcp_timewait_sock in its slab, 256 bytes",
            &of(|[without, with]| ((with.slab_bytes - without.slab_bytes) / with.time_waits as f64, 256.0)),
        ),
        Figure::new(
            "time_wait.lookup_ns",
            "ns",
            "the same without TIME_WAITs",
            &of(|[without, with]| (with.lookup_ns, without.lookup_ns)),
        ),
        Figure::new(
            "time_wait.transfer",
            "bytes/s",
            "the same without TIME_WAITs",
            &of(|[without, with]| (with.bytes_per_s, without.bytes_per_s)),
        ),
    ])
}

/// Without, and with as many as a crowd of a minute leaves.
fn repetition(stop: &AtomicBool) -> Result<[Point; 2]> {
    go_on(stop)?;
    // The kernel takes some time to forget those of an earlier namespace.
    let start = Instant::now();
    while slab_bytes()? > FEW_BYTES && start.elapsed() < FORGOTTEN {
        go_on(stop)?;
        std::thread::sleep(Duration::from_millis(200));
    }
    let testbed = Testbed::join_apart(clients(), (SERVER_CPU, SERVER_INTERVAL), (CPU, CROWD_POLL))?;
    testbed.server.set_sysctl("net.ipv4.tcp_max_tw_buckets", BUCKETS)?;
    let bulk = SocketAddr::new(testbed.server_address().ip(), BULK_PORT);
    let listener = testbed.server.enter(|| TcpListener::bind(bulk))?.context("listen")?;
    let config =
        serve::Config { listen: testbed.server_address(), backlog: 4096, ..serve::Config::default() };
    let mut server = testbed.server.enter(|| serve::Server::bind(&config))?.context("serve")?;
    let mut closing = testbed.server.enter(|| Closing::start(&lookups()))?.context("load a look-up")?;
    // First, as in the paper: in a list they would be last.
    let mut streams = Vec::new();
    for _ in 0..2 {
        let client = testbed.crowd.enter(|| TcpStream::connect(bulk))?.context("connect")?;
        streams.push((client, listener.accept().context("accept")?.0));
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| {
            pin_to_cpu(SERVER_CPU).ok();
            server.run(&ends)
        });
        let mut measure = || {
            // They end as fast as they came.
            let (time_waits, slab_bytes) = (netns::time_waits(&testbed.server)?, slab_bytes()?);
            Ok::<_, anyhow::Error>(Point {
                lookup_ns: testbed.server.enter(|| lookup_ns(&mut closing))??,
                bytes_per_s: transfer(&mut streams)?,
                slab_bytes,
                time_waits,
            })
        };
        let measured = (|| {
            let without = measure()?;
            let config = Config {
                duration: FILLS,
                server_closes_first: true,
                close: Close::Fin,
                ..one_packet(&testbed, RATE)
            };
            testbed.crowd.enter(|| load::run(&config, stop, &mut |_: &load::Progress<'_>| ()))??;
            go_on(stop)?;
            Ok([without, measure()?])
        })();
        ends.store(true, Ordering::Relaxed);
        serving.join().expect("the server does not panic").context("serve")?;
        let measured: Result<[Point; 2]> = measured;
        let [without, with] = measured?;
        ensure!(with.time_waits >= FEWEST, "{} are too few to measure", with.time_waits);
        Ok([without, with])
    })
}

/// Programs that look for a FIN's connection in the kernel's table; its clients are their
/// destinations.
fn lookups() -> Setup {
    Setup {
        destinations: vec![Destination { network: clients().into(), port: Layout::SERVER.port() }],
        way: Way::Hold,
        quarantine: QUARANTINE,
        sockets: Sockets::All,
        interfaces: vec![lab::SERVER_INTERFACE.to_owned()],
        is_dry_run: true,
    }
}

/// How long the program takes for a FIN of nobody, each from another address: the median.
fn lookup_ns(closing: &mut Closing) -> Result<f64> {
    closing.renew()?;
    let look_for = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let src = SocketAddr::from(([10, 77, high, low], Layout::SERVER.port()));
        let dst = SocketAddr::new((*Layout::SERVER.ip()).into(), 33_000 + n);
        let frame = frame(&FourTuple { src, dst }, Flags::FIN | Flags::ACK);
        Ok(closing.time(Hook::TcxIngress, &frame, 1)?.as_nanos() as f64)
    };
    Ok(median((0..LOOKUPS).map(look_for).collect::<Result<_>>()?))
}

/// Both at once, bytes/s of the two together.
fn transfer(streams: &mut [(TcpStream, TcpStream)]) -> Result<f64> {
    let received = AtomicU64::new(0);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for (client, server) in streams {
            server.set_read_timeout(Some(PAUSE)).ok();
            scope.spawn(move || {
                let piece = [0; 65_536];
                client.set_write_timeout(Some(PAUSE)).ok();
                while start.elapsed() < TRANSFER {
                    // A buffer that is full is no failure.
                    let _ = client.write(&piece).is_ok();
                }
            });
            let received = &received;
            scope.spawn(move || {
                let mut piece = [0; 65_536];
                loop {
                    let read = server.read(&mut piece).unwrap_or(0);
                    let is_over = start.elapsed() >= TRANSFER;
                    if is_over && read == 0 {
                        return;
                    }
                    received.fetch_add(if is_over { 0 } else { read as u64 }, Ordering::Relaxed);
                }
            });
        }
    });
    Ok(received.into_inner() as f64 / TRANSFER.as_secs_f64())
}

/// Source: `/proc/slabinfo` (slabinfo(5)): objects in use, and bytes of each.
fn slab_bytes() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/slabinfo").context("read /proc/slabinfo")?;
    let line =
        text.lines().find(|line| line.starts_with("tw_sock_TCP ")).context("find tw_sock_TCP there")?;
    let numbers: Vec<f64> = line.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    let [objects, _, bytes, ..] = numbers[..] else { anyhow::bail!("read {line:?}") };
    Ok(objects * bytes)
}
