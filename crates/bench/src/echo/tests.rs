//! The responder, asked segment by segment.

use std::time::{Duration, Instant};

use etherparse::{PacketBuilder, PacketBuilderStep, SlicedPacket, TcpHeader, TransportSlice};
use libbpf_rs::{MapCore, MapFlags};
use netns::{Namespace, VethPair};
use xsk::{Config, Mode, Socket, Steer};

use super::*;

/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 1, 0, 5];
const CLIENT_PORT: u16 = 1000;
/// The body of every response.
const BODY: &[u8] = b"hello!\n";
/// Of the counters: SYNs, requests, FINs, bare ACKs and RSTs, and what could not be answered.
const COUNTERS: usize = 5;
const SILENT: usize = 3;

/// A crowd and a server, each in its namespace, joined by a veth pair.
struct Link {
    pair: VethPair,
    crowd: Namespace,
    server: Namespace,
}

impl Link {
    fn create() -> Self {
        let crowd = Namespace::create("crowd").expect("namespace");
        let server = Namespace::create("server").expect("namespace");
        let pair = VethPair::create(&crowd, "crowd0", &server, "server0").expect("veth");
        Self { pair, crowd, server }
    }

    fn crowd_socket(&self, mode: Mode) -> Socket {
        let config = Config {
            ifindex: self.pair.a.ifindex,
            interface: self.pair.a.name.clone(),
            mode,
            rx_frames: 256,
            tx_frames: 256,
            steer: Steer { server: (SERVER, 80).into(), clients: ([10, 1, 0, 0].into(), 16) },
        };
        self.crowd.enter(|| Socket::open(&config)).expect("enter").expect("open the crowd's socket")
    }

    fn to_server(&self) -> PacketBuilderStep<etherparse::Ethernet2Header> {
        PacketBuilder::ethernet2(self.pair.a.mac, self.pair.b.mac)
    }
}

fn frame(builder: PacketBuilderStep<TcpHeader>, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    builder.write(&mut bytes, data).expect("build a segment");
    bytes
}

fn send(socket: &mut Socket, frame: &[u8]) {
    let queued = socket.tx.transmit(|buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    });
    assert!(queued, "a buffer is free");
    assert_eq!(socket.tx.flush().expect("flush"), 1, "the kernel takes it");
}

/// The only frame that arrives.
fn receive_one(socket: &mut Socket) -> Vec<u8> {
    let start = Instant::now();
    let mut frames = Vec::new();
    while frames.is_empty() && start.elapsed() < PATIENCE {
        socket.rx.wait(Duration::from_millis(10)).expect("wait");
        socket.rx.receive(64, |frame| frames.push(frame.to_vec()));
    }
    assert_eq!(frames.len(), 1, "one frame arrives");
    frames.remove(0)
}

/// Segments since the responder was attached, by what they were.
fn counters(echo: &Echo) -> [u64; COUNTERS] {
    let mut sums = [0; COUNTERS];
    let values = echo.counters.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).expect("counters");
    for values in values.expect("an entry") {
        for (sum, value) in sums.iter_mut().zip(values.as_chunks::<8>().0) {
            *sum += u64::from_ne_bytes(*value);
        }
    }
    sums
}

/// Gives false, for a condition that may come true later.
fn sleep_a_little() -> bool {
    std::thread::sleep(Duration::from_millis(20));
    false
}

#[test]
fn root_echo_answers_handshake_request_and_close_with_right_checksums() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    for (crowd_mode, echo_hook) in [(Mode::Native, Hook::XdpNative), (Mode::Generic, Hook::XdpGeneric)] {
        let link = Link::create();
        let echo = link
            .server
            .enter(|| Echo::attach(link.pair.b.ifindex, 80, Requests::Answered, echo_hook))
            .expect("enter")
            .expect("attach");
        let mut crowd = link.crowd_socket(crowd_mode);
        let segment = |seq| link.to_server().ipv4(CLIENT, SERVER, 64).tcp(CLIENT_PORT, 80, seq, 1024);
        let mss = segment(100).syn().options_raw(&[2, 4, 5, 0xb4]).expect("options");

        send(&mut crowd, &frame(mss, b""));
        let (syn_ack, body) = parse(&receive_one(&mut crowd));
        assert!(syn_ack.syn && syn_ack.ack && !syn_ack.fin && body.is_empty());
        assert_eq!(syn_ack.acknowledgment_number, 101);
        let ours = syn_ack.sequence_number.wrapping_add(1);

        send(&mut crowd, &frame(segment(101).ack(ours), b""));
        send(&mut crowd, &frame(segment(101).ack(ours).psh(), b"GET / HTTP/1.1\r\n\r\n"));
        let (reply, body) = parse(&receive_one(&mut crowd));
        assert!(reply.ack && reply.psh && !reply.syn && !reply.fin);
        assert_eq!((reply.sequence_number, reply.acknowledgment_number), (ours, 101 + 18));
        assert!(body.starts_with(b"HTTP/1.1 200 OK\r\n") && body.ends_with(BODY));

        let after = ours.wrapping_add(body.len() as u32);
        send(&mut crowd, &frame(segment(119).ack(after).fin(), b""));
        let (fin, body) = parse(&receive_one(&mut crowd));
        assert!(fin.fin && fin.ack && body.is_empty());
        assert_eq!((fin.sequence_number, fin.acknowledgment_number), (after, 120));
        send(&mut crowd, &frame(segment(120).rst(), b""));

        // Nothing comes back that would say that the RST has come, and its softirq may run a moment
        // later.
        let _has_come = (0..3000).any(|_| counters(&echo)[SILENT] >= 2 || sleep_a_little());
        assert_eq!(counters(&echo), [1, 1, 1, 2, 0]);
    }
}

/// The TCP header and data of a frame from the server to the client, checksums and addresses
/// verified.
fn parse(frame: &[u8]) -> (TcpHeader, Vec<u8>) {
    let sliced = SlicedPacket::from_ethernet(frame).expect("parse");
    let Some(etherparse::NetSlice::Ipv4(ip)) = &sliced.net else {
        panic!("not IPv4: {sliced:?}");
    };
    let ip = ip.header().to_header();
    assert_eq!(ip.header_checksum, ip.calc_header_checksum());
    assert_eq!((ip.source, ip.destination), (SERVER, CLIENT));
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else {
        panic!("not TCP: {sliced:?}");
    };
    let header = tcp.to_header();
    assert_eq!((header.source_port, header.destination_port), (80, CLIENT_PORT));
    let checksum = header.calc_checksum_ipv4(&ip, tcp.payload()).expect("checksum");
    assert_eq!(header.checksum, checksum);
    (header, tcp.payload().to_vec())
}
