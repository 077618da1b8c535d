//! What it costs to know a packet's band, beside a program that does nothing.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

use ::uplink::{Setup, Uplink};
use anyhow::{Context, Result, ensure};
use bpf::{Hook, RunCounting, SoleLink};
use netns::{Namespace, VethPair};
use nix::net::if_::if_nametoindex;

use crate::{Figure, REPETITIONS, go_on};

const SERVER: &str = "10.96.0.1";
const INTERFACE: &str = "s0";
/// tcx's "the next one".
const PASS: i32 = -1;
/// Of a response: header and body are some 70 segments.
const BODY_BYTES: usize = 100_000;
const RESPONSES: usize = 500;

pub(crate) fn figure(stop: &AtomicBool) -> Result<Figure> {
    let (server, client) = (Namespace::create("bench-s")?, Namespace::create("bench-c")?);
    let _link = VethPair::create(&server, INTERFACE, &client, "c0")?;
    for (namespace, interface, host) in [(&server, INTERFACE, 1), (&client, "c0", 2)] {
        namespace.ip(&["addr", "add", &format!("10.96.0.{host}/24"), "dev", interface])?;
        namespace.ip(&["link", "set", interface, "up"])?;
    }
    // As TBF cuts them: each segment is a packet.
    server.ip(&["link", "set", INTERFACE, "gso_max_segs", "1"])?;
    let _counting = RunCounting::begin().context("have the kernel count how long programs run")?;
    let pairs = server
        .enter(|| (0..REPETITIONS).map(|_| repetition(&client, stop)).collect::<Result<Vec<_>>>())??;
    let reference = "a program at the same place that does nothing, with what it costs to count";
    Ok(Figure::new("bpf.uplink_ns", "ns", reference, &pairs))
}

/// What a packet costs more than with an empty program, and what it costs with that, ns.
fn repetition(client: &Namespace, stop: &AtomicBool) -> Result<(f64, f64)> {
    go_on(stop)?;
    let listener = TcpListener::bind((SERVER, 0)).context("listen")?;
    let address = listener.local_addr()?;
    let asking = client.enter(|| TcpStream::connect(address))?.context("connect")?;
    let (mut answering, _) = listener.accept().context("accept")?;

    // The dry run has the same body as the filter, at tcx egress.
    let mut uplink = Uplink::start(&Setup { is_dry_run: true, rate_bps: None, ..Setup::new(INTERFACE, 1) })?;
    uplink.renew()?;
    let before = bpf::run_time_of(&["only_count"])?;
    send_all(&asking, &mut answering)?;
    let spent = bpf::run_time_of(&["only_count"])? - before;
    let packets: u64 = uplink.bands()?.iter().map(|band| band.packets).sum();
    let sent = uplink.take_sent()?.len();
    ensure!(sent == RESPONSES, "of {RESPONSES} responses the uplink saw {sent}");
    let least = (RESPONSES * BODY_BYTES / 1_500) as u64;
    ensure!(packets > least, "{packets} packets are buffers of several segments");
    drop(uplink);

    let empty = bpf::constant_program(Hook::TcxEgress, PASS).context("load an empty program")?;
    let _link = SoleLink::attach(empty.as_fd(), if_nametoindex(INTERFACE)?, Hook::TcxEgress)?;
    let before = bpf::run_time_of(&["constant"])?;
    send_all(&asking, &mut answering)?;
    let empty = bpf::run_time_of(&["constant"])? - before;
    // As many packets: the same bytes, and all segments are full.
    let per_packet = |spent: std::time::Duration| spent.as_nanos() as f64 / packets as f64;
    Ok((per_packet(spent) - per_packet(empty), per_packet(empty)))
}

/// Responses over one connection, each after a request.
fn send_all(mut asking: &TcpStream, answering: &mut TcpStream) -> Result<()> {
    let mut response = format!("HTTP/1.1 200 OK\r\nServer: bench\r\nContent-Type: text/html\r\nContent-Length: {BODY_BYTES}\r\nConnection: keep-alive\r\n\r\n").into_bytes();
    response.resize(response.len() + BODY_BYTES, b'x');
    let mut read = vec![0; response.len()];
    for _ in 0..RESPONSES {
        asking.write_all(b"GET").context("ask")?;
        answering.read_exact(&mut [0; 3]).context("read the request")?;
        std::thread::scope(|scope| {
            let answer = scope.spawn(|| answering.write_all(&response));
            asking.read_exact(&mut read).context("read the response")?;
            answer.join().expect("it only writes").context("answer")
        })?;
    }
    Ok(())
}
