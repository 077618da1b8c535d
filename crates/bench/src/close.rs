//! What it costs a client to keep TIME_WAIT, for each segment and for each close.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::close::{Closing, Destination, QUARANTINE, Setup, Sockets, Way};
use anyhow::{Context, Result, ensure};
use bpf::{Hook, RunCounting};
use netns::{Namespace, VethPair};
use wire::{Flags, FourTuple};

use crate::program::frame;
use crate::{Figure, REPETITIONS, go_on};

const CLIENT: &str = "10.96.1.2";
const SERVER: &str = "10.96.1.1";
const RUNS: u32 = 1_000_000;
const CLOSES: usize = 300;
/// tcx's "the next one".
const PASS: i32 = -1;
const PROGRAMS: [&str; 2] = ["arriving", "leaving"];

pub(crate) fn figures(stop: &AtomicBool) -> Result<Vec<Figure>> {
    let (server, client) = (Namespace::create("bench-s")?, Namespace::create("bench-c")?);
    let _link = VethPair::create(&server, "s0", &client, "c0")?;
    server.ip(&["addr", "add", &format!("{SERVER}/24"), "dev", "s0"])?;
    client.ip(&["addr", "add", &format!("{CLIENT}/24"), "dev", "c0"])?;
    let listener = server.enter(|| TcpListener::bind((SERVER, 0)))?.context("listen")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            connection.read_exact(&mut [0; 3]).and_then(|()| connection.write_all(&[0; 1000])).ok();
        }
    });
    let _counting = RunCounting::begin().context("have the kernel count how long programs run")?;
    let mut figures = Vec::new();
    for (way, per_segment, per_close) in [
        (Way::Hold, "bpf.hold_segment_ns", "bpf.hold_close_ns"),
        (Way::Swap, "bpf.swap_segment_ns", "bpf.swap_close_ns"),
    ] {
        let measure = || (0..REPETITIONS).map(|_| repetition(address, way, stop)).collect::<Result<Vec<_>>>();
        let all = client.enter(measure)??;
        let segments: Vec<_> = all.iter().map(|one| one.segment).collect();
        let closes: Vec<_> = all.iter().map(|one| one.close).collect();
        figures.push(Figure::new(per_segment, "ns", "a program that does nothing", &segments));
        let reference =
            "the programs for as many connections that are none of theirs, with what it costs to count";
        figures.push(Figure::new(per_close, "ns", reference, &closes));
    }
    Ok(figures)
}

struct Repetition {
    segment: (f64, f64),
    close: (f64, f64),
}

fn repetition(address: SocketAddr, way: Way, stop: &AtomicBool) -> Result<Repetition> {
    go_on(stop)?;
    let closing = |port: u16| {
        let destinations = vec![Destination { network: address.ip().into(), port }];
        let setup = Setup {
            destinations,
            way,
            quarantine: QUARANTINE,
            sockets: Sockets::All,
            interfaces: Vec::new(),
            is_dry_run: false,
        };
        Closing::start(&setup).context("start")
    };
    let other = closing(9)?;
    let others = spent_on_closes(address)?;
    drop(other);
    let ours = closing(address.port())?;
    let spent = spent_on_closes(address)?;
    let counts = ours.counts()?[0];
    let kept = counts.released + counts.answered;
    ensure!(kept as usize > CLOSES / 2, "of {CLOSES} closes {kept} were ours: {counts:?}");

    let client: SocketAddr = format!("{CLIENT}:9").parse().expect("an address");
    let mut segment = 0.0;
    let empty = bpf::constant_program(Hook::TcxEgress, PASS).context("load an empty program")?;
    let none = nanos(bpf::test_run(
        empty.as_fd(),
        &frame(&FourTuple { src: client, dst: address }, Flags::ACK),
        RUNS,
    )?);
    for (hook, four_tuple) in [
        (Hook::TcxIngress, FourTuple { src: address, dst: client }),
        (Hook::TcxEgress, FourTuple { src: client, dst: address }),
    ] {
        segment += nanos(ours.time(hook, &frame(&four_tuple, Flags::ACK), RUNS)?) - none;
    }
    let per_close = |spent: Duration| spent.as_nanos() as f64 / CLOSES as f64;
    Ok(Repetition {
        segment: (segment / 2.0, none),
        close: (per_close(spent) - per_close(others), per_close(others)),
    })
}

/// Connections that the server closes first.
fn spent_on_closes(address: SocketAddr) -> Result<Duration> {
    let before = bpf::run_time_of(&PROGRAMS)?;
    for _ in 0..CLOSES {
        let mut stream = TcpStream::connect(address).context("connect")?;
        stream.write_all(b"GET").context("ask")?;
        // Not before the server's FIN is here.
        stream.peek(&mut [0; 1000]).context("wait")?;
        std::thread::sleep(Duration::from_micros(300));
        stream.read_exact(&mut [0; 1000]).context("read")?;
    }
    std::thread::sleep(Duration::from_millis(50));
    Ok(bpf::run_time_of(&PROGRAMS)? - before)
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}
