//! What becomes of a connection whose client sends FIN, on a real kernel.

use crate::common::frame::{ACK, FIN, Segment, is_reset_to};
use crate::common::*;
use guard::{Attach, Config, Listener, Policy};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

const LISTEN4: &str = "10.9.0.2:8080";
const LISTEN6: &str = "[fd09::2]:8080";

fn policy(text: &str) -> Policy {
    text.parse().expect("policy")
}

/// Both ends of a connection.
fn connect(world: &World, listener: &TcpListener, listen: &str) -> (TcpStream, TcpStream) {
    let client = world.connect(listen).expect("there is room");
    let (server, _) = listener.accept().expect("one waits");
    (client, server)
}

/// The error of a read, or what it gave.
fn read(stream: &mut TcpStream) -> Result<usize, ErrorKind> {
    stream.read(&mut [0; 16]).map_err(|error| error.kind())
}

#[test]
fn root_fin_of_an_idle_connection_resets_both_ends() {
    for listen in [LISTEN4, LISTEN6] {
        for attach in [Attach::Tcx, Attach::Xdp] {
            let Some(world) = World::create_for(attach) else { return };
            let _peer = world.peer_for(attach);
            let listener = world.listen(listen);
            let guarded = world.guard(listen, policy("rst-fin"), attach, false);
            let (mut client, mut server) = connect(&world, &listener, listen);
            client.shutdown(Shutdown::Write).expect("send FIN");
            assert_eq!(read(&mut server), Err(ErrorKind::ConnectionReset), "{listen} {attach:?}");
            assert_eq!(read(&mut client), Err(ErrorKind::ConnectionReset), "{listen} {attach:?}");
            let sample = guarded.sample();
            assert_eq!((sample.stats.fins, sample.stats.fins_reset), (1, 1));
        }
    }
}

#[test]
fn root_without_rst_fin_the_client_half_closes() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, policy("abort+rst-syn"), Attach::Tcx, false);
    let (mut client, mut server) = connect(&world, &listener, LISTEN4);
    client.shutdown(Shutdown::Write).expect("send FIN");
    assert_eq!(read(&mut server), Ok(0));
    server.write_all(b"late").expect("the other half is open");
    assert_eq!(read(&mut client), Ok(4));
    assert_eq!(guarded.sample().stats.fins, 0);
}

#[test]
fn root_fin_behind_an_unread_request_is_kept_unless_always() {
    for (text, is_reset) in [("rst-fin", false), ("rst-fin:always", true)] {
        let Some(world) = World::create_for(Attach::Tcx) else { return };
        let listener = world.listen(LISTEN4);
        let guarded = world.guard(LISTEN4, policy(text), Attach::Tcx, false);
        let (mut client, mut server) = connect(&world, &listener, LISTEN4);
        client.write_all(b"request").expect("send");
        client.shutdown(Shutdown::Write).expect("send FIN");
        let sample = guarded.wait("the FIN", |sample| sample.stats.fins == 1);
        assert_eq!(sample.stats.fins_reset, u64::from(is_reset), "{text}");
        if is_reset {
            assert_eq!(read(&mut client), Err(ErrorKind::ConnectionReset));
        } else {
            assert_eq!((read(&mut server), read(&mut server)), (Ok(7), Ok(0)));
        }
    }
}

#[test]
fn root_fin_with_data_is_kept() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, policy("rst-fin:always"), Attach::Tcx, false);
    let tap = world.tap();
    let (mut server, fin) = ghost_connection(&world, &listener, &tap);
    let fin = fin.with("FIN with data", |fin| {
        fin.ack = fin.ack.wrapping_add(4);
        fin.payload = b"last words".to_vec();
    });
    tap.send(&fin.to_bytes());
    assert_eq!((read(&mut server), read(&mut server)), (Ok(10), Ok(0)));
    let sample = guarded.sample();
    assert_eq!((sample.stats.fins, sample.stats.fins_reset), (1, 0));
}

/// A connection with a host that no kernel owns, to which the server has written four bytes.
fn ghost_connection(world: &World, listener: &TcpListener, tap: &tap::Tap) -> (TcpStream, Segment) {
    let handshake = Handshake::begin(tap, LISTEN4);
    let end = handshake.end(b"");
    tap.send(&end.to_bytes());
    let (mut server, peer) = world.server.enter(|| listener.accept()).expect("enter").expect("one waits");
    assert_eq!(peer.ip().to_string(), GHOST4);
    server.write_all(b"pong").expect("write");
    let fin = end.with("FIN", |segment| segment.flags = FIN | ACK);
    (server, fin)
}

#[test]
fn root_fin_is_kept_while_the_response_is_under_way_and_when_out_of_order() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, policy("rst-fin"), Attach::Tcx, false);
    let tap = world.tap();
    let (_server, fin) = ghost_connection(&world, &listener, &tap);
    let early = fin.clone().with("a byte is missing before it", |fin| {
        fin.seq = fin.seq.wrapping_add(1);
        fin.ack = fin.ack.wrapping_add(4);
    });
    for (count, segment) in [(1, &early), (2, &fin)] {
        tap.send(&segment.to_bytes());
        let sample = guarded.wait(segment.name, |sample| sample.stats.fins == count);
        assert_eq!(sample.stats.fins_reset, 0, "{}", segment.name);
    }
}

#[test]
fn root_guard_whose_lease_is_over_resets_nobody_and_counts_those_alone_whom_it_would() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let config = Config {
        listeners: vec![Listener::new(LISTEN4.parse().expect("address"), policy("rst-fin"))],
        interfaces: vec!["s0".to_owned()],
        lease: Some(Duration::from_nanos(1)),
        must_listen: true,
        ..Config::default()
    };
    let guarded = world.guard_with(&config).expect("start the guard");
    let (mut client, mut server) = connect(&world, &listener, LISTEN4);
    // Its request is not read, so that rst-fin would keep it.
    client.write_all(b"request").expect("send");
    client.shutdown(Shutdown::Write).expect("send FIN");
    let kept = guarded.wait("the FIN", |sample| sample.stats.fins == 1);
    assert_eq!(kept.path.unleased, 0);
    assert_eq!((read(&mut server), read(&mut server)), (Ok(7), Ok(0)));
    let (client, mut server) = connect(&world, &listener, LISTEN4);
    client.shutdown(Shutdown::Write).expect("send FIN");
    assert_eq!(read(&mut server), Ok(0), "half-closed, as the kernel has it");
    let after = guarded.sample();
    assert_eq!((after.stats.fins, after.stats.fins_reset, after.path.unleased), (2, 0, 1));
}

#[test]
fn root_fin_with_a_wrong_checksum_is_the_kernels_to_drop() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, policy("rst-fin"), Attach::Tcx, false);
    let tap = world.tap();
    let (mut server, fin) = ghost_connection(&world, &listener, &tap);
    let fin = fin.with("FIN", |fin| fin.ack = fin.ack.wrapping_add(4));
    let mut damaged = fin.to_bytes();
    damaged[50] ^= 0x55;
    tap.send(&damaged);
    assert_eq!(guarded.wait("the FIN", |sample| sample.stats.fins == 1).stats.fins_reset, 0);
    tap.send(&fin.to_bytes());
    tap.receive("a RST", |frame| is_reset_to(frame, &fin));
    assert_eq!(read(&mut server), Err(ErrorKind::ConnectionReset));
}

#[test]
fn root_fin_that_acknowledges_the_response_gets_a_reset_that_its_sender_accepts() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    world.finish_checksums();
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, policy("rst-fin"), Attach::Tcx, false);
    let tap = world.tap();
    let (mut server, fin) = ghost_connection(&world, &listener, &tap);
    let fin = fin.with("FIN", |fin| fin.ack = fin.ack.wrapping_add(4));
    tap.send(&fin.to_bytes());
    let reset = tap.receive("a RST", |frame| is_reset_to(frame, &fin));
    // RFC 9293 3.10.7.1: the sequence number that the FIN waits for, and no ACK.
    assert_eq!(reset[38..42], fin.ack.to_be_bytes());
    assert_eq!((reset[47] & ACK, reset.len()), (0, 54));
    let (source, destination) = (fin.destination, fin.source);
    assert_eq!(frame::tcp_checksum(source, destination, &reset[34..54]), 0);
    assert_eq!(read(&mut server), Err(ErrorKind::ConnectionReset));
    assert_eq!(guarded.sample().stats.fins_reset, 1);
}

#[test]
fn root_dry_run_counts_a_fin_and_keeps_the_connection() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN4);
    let guarded = world.guard(LISTEN4, policy("rst-fin"), Attach::Tcx, true);
    let (client, mut server) = connect(&world, &listener, LISTEN4);
    client.shutdown(Shutdown::Write).expect("send FIN");
    assert_eq!(read(&mut server), Ok(0));
    let sample = guarded.sample();
    assert_eq!((sample.stats.fins, sample.stats.fins_reset), (1, 1));
}
