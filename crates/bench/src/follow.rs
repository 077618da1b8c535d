//! What a whole connection costs more when it is guarded, from its SYN to its end, beside the same
//! one without a guard.
//!
//! Client and server are sockets of one thread on the loopback, so that all of it, and what the
//! kernel puts off until later, is on one CPU.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use guard::{Guard, ServerSample};
use netns::Namespace;

use crate::median;
use crate::program::{guard_at, listen_at};
use crate::{Figure, REPETITIONS, go_on};

/// Connections at a time, with a guard and without in turns: a machine changes its speed within
/// seconds.
const CONNECTIONS: u32 = 5_000;
const TURNS: usize = 4;
/// Between two looks of the agent: some 50 ms of them.
const CONNECTIONS_PER_LOOK: u32 = 1_000;
/// Largest error of the count, as a share of it: five standard deviations of one connection in
/// four.
const MOST_OFF: f64 = 0.13;
/// It learns for some seconds.
const MOST_ROUNDS: u32 = 200;

pub(crate) fn figure(stop: &AtomicBool) -> Result<Figure> {
    let namespace = Namespace::create("bench")?;
    let pairs =
        namespace.enter(|| (0..REPETITIONS).map(|_| repetition(stop)).collect::<Result<Vec<_>>>())??;
    let reference = "tcp.connection_ns: the same connection without a guard, request and answer of a few bytes, closed by RST";
    Ok(Figure::new("bpf.connection_ns", "ns", reference, &pairs))
}

/// What one costs more, and what it costs without, ns: medians of the turns.
fn repetition(stop: &AtomicBool) -> Result<(f64, f64)> {
    let address = SocketAddr::from(([127, 0, 0, 1], 80));
    let listener = TcpListener::from(listen_at(address, 128)?);
    let (mut more, mut without) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        go_on(stop)?;
        let plain = connections_ns(&listener, address, None)?;
        let mut guard = guard_at(address, "abort+rst-syn+unserved".parse()?)?;
        learn(&mut guard, &listener, address)?;
        let before = service(&guard)?.answered;
        let guarded = connections_ns(&listener, address, Some(&mut guard))?;
        let after = service(&guard)?;
        ensure!(after.follows_one_in > 1, "the guard follows all connections again");
        ensure_followed(after.answered - before)?;
        more.push(guarded - plain);
        without.push(plain);
    }
    Ok((median(more), median(without)))
}

fn connections_ns(listener: &TcpListener, address: SocketAddr, mut guard: Option<&mut Guard>) -> Result<f64> {
    let start = Instant::now();
    for number in 0..CONNECTIONS {
        if let Some(guard) = &mut guard
            && number % CONNECTIONS_PER_LOOK == 0
        {
            guard.pace()?;
        }
        connection(listener, address)?;
    }
    Ok(start.elapsed().as_nanos() as f64 / f64::from(CONNECTIONS))
}

fn connection(listener: &TcpListener, address: SocketAddr) -> Result<()> {
    let mut client = TcpStream::connect(address).context("connect")?;
    let (mut server, _) = listener.accept().context("accept")?;
    let mut bytes = [0; 8];
    client.write_all(b"request").context("ask")?;
    ensure!(server.read(&mut bytes).context("read the request")? > 0, "the request is not there");
    server.write_all(b"answer").context("answer")?;
    ensure!(client.read(&mut bytes).context("read the answer")? > 0, "the answer is not there");
    reset_at_close(&client)?;
    // By a RST, which a server that had closed first would not get.
    drop(client);
    drop(server);
    Ok(())
}

/// So that its ports are free at once.
fn reset_at_close(client: &TcpStream) -> Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (pointer, size) = ((&raw const linger).cast(), size_of_val(&linger) as libc::socklen_t);
    // SAFETY: the kernel reads `size` bytes.
    let done =
        unsafe { libc::setsockopt(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, pointer, size) };
    ensure!(done == 0, "set SO_LINGER: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Until the guard follows one connection in some, as on an ordinary day.
fn learn(guard: &mut Guard, listener: &TcpListener, address: SocketAddr) -> Result<()> {
    for _ in 0..MOST_ROUNDS {
        connections_ns(listener, address, Some(guard))?;
        if service(guard)?.follows_one_in > 1 {
            return Ok(());
        }
    }
    bail!("after {MOST_ROUNDS} times {CONNECTIONS} connections the guard still follows all of them")
}

fn service(guard: &Guard) -> Result<ServerSample> {
    guard.sample()?.listeners[0].service.context("who waits is counted")
}

fn ensure_followed(answered: u64) -> Result<()> {
    let seen = answered as f64 / f64::from(CONNECTIONS);
    ensure!((seen - 1.0).abs() < MOST_OFF, "of {CONNECTIONS} answers the guard counted {answered}");
    Ok(())
}
