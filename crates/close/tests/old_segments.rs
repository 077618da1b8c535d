//! No segment of an old connection enters a new one between the same addresses and ports.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use close::{Closing, Setup, Sockets, Way};
use netns::{Namespace, Tap, VethPair};
use nix::net::if_::if_nametoindex;
use wire::Ethernet;

const SERVER: &str = "10.8.0.2:8080";
/// Of a request, and of its answer, which is of this letter alone.
const REQUEST: usize = 4;
const RESPONSE: usize = 3000;

/// A client with one port, and what listens at both ends of the wire.
struct Wire {
    client: Namespace,
    server: Namespace,
    /// At the client's end: sends to the server.
    near: Tap,
    /// At the server's end: sends to the client.
    far: Tap,
}

impl Wire {
    fn create(timestamps: &str) -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let client = Namespace::create("client").expect("create");
        let server = Namespace::create("server").expect("create");
        VethPair::create(&client, "c0", &server, "s0").expect("create veth");
        client.ip(&["addr", "add", "10.8.0.1/24", "dev", "c0"]).expect("address");
        server.ip(&["addr", "add", "10.8.0.2/24", "dev", "s0"]).expect("address");
        client.set_sysctl("net.ipv4.tcp_timestamps", timestamps).expect("sysctl");
        client.set_sysctl("net.ipv4.tcp_tw_reuse", "1").expect("sysctl");
        client.set_sysctl("net.ipv4.ip_local_port_range", "2000 2001").expect("sysctl");
        client.set_sysctl("net.ipv4.ip_local_reserved_ports", "2001").expect("sysctl");
        let listener = server.enter(|| TcpListener::bind(SERVER)).expect("enter").expect("bind");
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let mut request = [0; REQUEST];
                if connection.read_exact(&mut request).is_ok() {
                    assert!(
                        request.iter().all(|byte| *byte == request[0]),
                        "{request:?} is of two connections"
                    );
                    connection.write_all(&[request[0]; RESPONSE]).ok();
                }
            }
        });
        let index = |namespace: &Namespace, name| namespace.enter(|| if_nametoindex(name)).expect("enter");
        let near = Tap::open(&client, index(&client, "c0").expect("c0")).expect("open");
        // What is on the way has passed the client's programs.
        near.bypass_egress().expect("bypass");
        let far = Tap::open(&server, index(&server, "s0").expect("s0")).expect("open");
        Some(Self { client, server, near, far })
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        let address: SocketAddr = SERVER.parse().expect("address");
        self.client.enter(|| TcpStream::connect_timeout(&address, Duration::from_secs(4))).expect("enter")
    }

    /// All TCP segments that have come to either end, whole, so that they can be sent again.
    fn segments(&self) -> [Vec<Vec<u8>>; 2] {
        [&self.far, &self.near].map(|tap| {
            let next = || tap.receive(Duration::from_millis(100)).expect("receive");
            std::iter::from_fn(next).filter_map(|frame| whole(&frame.bytes)).collect()
        })
    }

    /// Sends them once more, as if they had been on the way for long.
    fn send_again(&self, [to_server, to_client]: &[Vec<Vec<u8>>; 2]) {
        to_server.iter().for_each(|frame| self.near.send(frame).expect("send"));
        to_client.iter().for_each(|frame| self.far.send(frame).expect("send"));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// With the checksum that its sender has left to a device.
fn whole(frame: &[u8]) -> Option<Vec<u8>> {
    let (tuple, segment) = wire::parse(frame).ok()?;
    let (dst, src) = (frame[..6].try_into().ok()?, frame[6..12].try_into().ok()?);
    let mut whole = vec![0; wire::frame_len(&tuple, &segment)];
    wire::emit(&mut whole, &Ethernet { src, dst }, &tuple, &segment);
    Some(whole)
}

/// Data of the old connection with the numbers of the new one, of which these are the segments:
/// only its timestamps are old.
fn fitted(old: &[Vec<Vec<u8>>; 2], new: &[Vec<Vec<u8>>; 2]) -> [Vec<Vec<u8>>; 2] {
    [0, 1].map(|to_client| {
        let (_, syn_ack) = wire::parse(&new[1][0]).expect("the server's SYN/ACK");
        let (of_server, of_client) = (syn_ack.seq + 1, syn_ack.ack);
        let fit = |frame: &Vec<u8>| {
            let (tuple, segment) =
                wire::parse(frame).ok().filter(|(_, segment)| !segment.payload.is_empty())?;
            let (seq, ack) = if to_client == 1 { (of_server, of_client) } else { (of_client, of_server) };
            let fitted = wire::Segment { seq, ack, ..segment };
            let ethernet = Ethernet { dst: frame[..6].try_into().ok()?, src: frame[6..12].try_into().ok()? };
            let mut whole = vec![0; wire::frame_len(&tuple, &fitted)];
            wire::emit(&mut whole, &ethernet, &tuple, &fitted);
            Some(whole)
        };
        old[to_client].iter().filter_map(fit).collect()
    })
}

/// Asks, and reads all, with `between` when the server has answered.
fn exchange(mut stream: TcpStream, letter: u8, between: impl FnOnce()) {
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    stream.write_all(&[letter; REQUEST]).expect("write");
    std::thread::sleep(Duration::from_millis(50));
    between();
    let mut response = [0; RESPONSE];
    stream.read_exact(&mut response).expect("read");
    assert!(response.iter().all(|byte| *byte == letter), "the response has bytes of another one");
}

#[test]
fn root_old_segments_enter_no_new_connection() {
    for way in [Way::Swap, Way::Hold] {
        for timestamps in ["1", "0"] {
            let Some(wire) = Wire::create(timestamps) else { return };
            let setup = Setup {
                destinations: vec![SERVER.parse().expect("a destination")],
                way,
                quarantine: Duration::from_secs(1),
                sockets: Sockets::All,
                interfaces: Vec::new(),
                is_dry_run: false,
            };
            let mut closing = wire.client.enter(|| Closing::start(&setup)).expect("enter").expect("start");
            exchange(wire.connect().expect("connect"), b'a', || {});
            let old = wire.segments();
            assert!(old[0].len() >= 4 && old[1].len() >= 4, "{way:?}: {} and {}", old[0].len(), old[1].len());
            // While the ports are kept.
            wire.send_again(&old);
            std::thread::sleep(Duration::from_millis(1_100));
            closing.renew().expect("renew");
            assert_eq!(closing.counts().expect("read")[0].answered, 1, "our programs closed it");
            // What was sent again has come, too.
            wire.segments();
            let stream = match wire.connect() {
                Err(error) if timestamps == "0" => {
                    let kinds = [ErrorKind::TimedOut, ErrorKind::AddrNotAvailable];
                    assert!(kinds.contains(&error.kind()), "{way:?}: {error}");
                    continue;
                }
                stream => stream.expect("a new connection"),
            };
            assert_eq!(timestamps, "1", "{way:?}: without timestamps the port is kept for a minute");
            assert_eq!(stream.local_addr().expect("address").port(), 2000, "the same as before");
            let fitted = fitted(&old, &wire.segments());
            assert!(fitted.iter().all(|frames| !frames.is_empty()), "both have sent data");
            wire.send_again(&fitted);
            wire.send_again(&old);
            exchange(stream, b'b', || wire.send_again(&old));
            drop(wire.server);
        }
    }
}
