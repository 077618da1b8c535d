//! What an AF_XDP socket can do without a TCP behind it: about as much as a crowd over it could,
//! which might only send in other batches. No more answers are on the way than there is room for.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::echo::Requests;
use anyhow::{Context, Result, ensure};
use bpf::Hook;
use nix::net::if_::if_nametoindex;
use wire::{Ethernet, Flags, FourTuple, Segment, SeqNumber};
use xsk::{Socket, Steer};

use crate::clients;
use crate::load::{Cores, before_echo};
use crate::rate::raw_send_rate;
use lab::{CROWD_INTERFACE, Testbed};

/// Connections whose frames are sent together.
const BATCH: u32 = 32;
/// Most answers that may be owed. The ring for them has 256 places (`VETH_RING_SIZE`, v6.18).
const OWED: u64 = 192;
/// An answer that has not come by then is lost.
const PATIENCE: Duration = Duration::from_secs(1);
/// To the SYN, and to the request.
const ANSWERS: u64 = 2;
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 10.77.0.1\r\nConnection: close\r\n\r\n";

/// Frames/s of the smallest frame, into a peer whose program drops what the echo does not answer.
pub(crate) fn sends_per_s(window: Duration) -> Result<f64> {
    let (testbed, _echo) = before_echo(Requests::Answered, Hook::XdpNative, Cores::Own)?;
    testbed.crowd.enter(|| -> Result<f64> {
        let mut socket = socket(&testbed)?;
        let rate =
            raw_send_rate(&mut socket.tx, &frame(&testbed, Flags::ACK, &[])?, window).context("send")?;
        Ok(rate.per_second())
    })?
}

/// Connections/s whose frames are exchanged with the echo: as many as a connection of the crowd
/// sends, and what the echo answers. Frames are written once and nothing is read of what comes, so
/// that nobody needs to wait for the answer to one before the next is sent.
pub(crate) fn exchanges_per_s(window: Duration) -> Result<f64> {
    let (testbed, _echo) = before_echo(Requests::Answered, Hook::XdpNative, Cores::Own)?;
    testbed.crowd.enter(|| -> Result<f64> {
        let mut socket = socket(&testbed)?;
        let of = |flags, payload| frame(&testbed, flags, payload);
        let ack = of(Flags::ACK, &[])?;
        let frames = [
            of(Flags::SYN, &[])?,
            ack.clone(),
            of(Flags::PSH | Flags::ACK, REQUEST)?,
            ack,
            of(Flags::RST | Flags::ACK, &[])?,
        ];
        let (start, mut connections, mut came) = (Instant::now(), 0, 0);
        while start.elapsed() < window {
            queue(&mut socket, &frames)?;
            connections += u64::from(BATCH);
            came += receive(&mut socket, ANSWERS * connections - came)?;
        }
        Ok(came as f64 / ANSWERS as f64 / start.elapsed().as_secs_f64())
    })?
}

/// Queues a batch of connections.
fn queue(socket: &mut Socket, frames: &[Vec<u8>]) -> Result<()> {
    for frame in (0..BATCH).flat_map(|_| frames) {
        let is_written = socket.tx.transmit(|buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        });
        ensure!(is_written, "a bare exchange found its ring full");
    }
    Ok(())
}

/// Sends what is queued and receives until few answers are owed; gives how many came.
fn receive(socket: &mut Socket, owed: u64) -> Result<u64> {
    let (start, mut came) = (Instant::now(), 0);
    loop {
        socket.tx.flush().context("send")?;
        came += u64::from(socket.rx.receive(BATCH, |_| {}));
        if owed - came <= OWED {
            return Ok(came);
        }
        ensure!(start.elapsed() < PATIENCE, "of {owed} answers of a bare exchange {came} came");
    }
}

fn socket(testbed: &Testbed) -> Result<Socket> {
    Ok(Socket::open(&xsk::Config {
        ifindex: if_nametoindex(CROWD_INTERFACE)?,
        interface: CROWD_INTERFACE.to_owned(),
        mode: xsk::Mode::Native, // as the crowd
        rx_frames: 4096,
        tx_frames: 4096,
        steer: Steer {
            server: testbed.server_address(),
            clients: (clients().network().into(), clients().prefix_len()),
        },
    })?)
}

/// A frame of a client.
fn frame(testbed: &Testbed, flags: Flags, payload: &[u8]) -> Result<Vec<u8>> {
    let client = clients().hosts().next().context("a network has hosts")?;
    let tuple = FourTuple { src: SocketAddr::from((client, 40_000)), dst: testbed.server_address() };
    let (seq, ack) = (SeqNumber(1), SeqNumber(1));
    let segment = Segment { seq, ack, flags, window: 1000, options: Default::default(), payload };
    let ethernet = Ethernet { src: [2, 0, 0, 0, 0, 0x0b], dst: [2, 0, 0, 0, 0, 0x0a] };
    let mut frame = vec![0; wire::frame_len(&tuple, &segment)];
    wire::emit(&mut frame, &ethernet, &tuple, &segment);
    Ok(frame)
}
