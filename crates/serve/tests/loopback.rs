//! The server over loopback, from a client's side.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use serve::{Accept, BindError, Config, Server, Totals};

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: tide\r\n\r\n";
const GET_CLOSE: &[u8] = b"GET / HTTP/1.1\r\nHost: tide\r\nConnection: close\r\n\r\n";

#[test]
fn reply_has_the_chosen_body_and_the_connection_closes_when_asked() {
    with_server(&config(), |address| {
        let reply = exchange(address, GET_CLOSE);
        let (head, body) = split(&reply);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("\r\nContent-Length: 512\r\n"), "{head}");
        assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
        assert_eq!(body.len(), 512);
    });
}

#[test]
fn path_of_a_workload_names_the_length_of_the_reply() {
    with_server(&config(), |address| {
        for (path, length) in [
            ("/bytes/0", 0),
            ("/bytes/1", 1),
            ("/bytes/1000003", 1_000_003),
            ("/file_set/dir00007/class2_5", 51_200),
        ] {
            let request = format!("GET {path} HTTP/1.1\r\nHost: tide\r\nConnection: close\r\n\r\n");
            let reply = exchange(address, request.as_bytes());
            let (head, body) = split(&reply);
            assert!(head.contains(&format!("\r\nContent-Length: {length}\r\n")), "{head}");
            let lines = b"tidegate serve\n".iter().cycle();
            assert!(
                body.len() == length && body.iter().eq(lines.take(length)),
                "{path}: {} bytes",
                body.len()
            );
        }
        let request = b"HEAD /bytes/70000 HTTP/1.1\r\nHost: tide\r\nConnection: close\r\n\r\n";
        let reply = exchange(address, request);
        let (head, body) = split(&reply);
        assert!(head.contains("\r\nContent-Length: 70000\r\n") && body.is_empty(), "{head}");
    });
}

#[test]
fn request_in_single_bytes_is_served() {
    let totals = with_server(&config(), |address| {
        let mut client = connect(address);
        client.set_nodelay(true).expect("nodelay");
        for byte in GET_CLOSE {
            client.write_all(&[*byte]).expect("send one byte");
            thread::yield_now();
        }
        assert!(read_all(&mut client).starts_with(b"HTTP/1.1 200 OK"));
    });
    assert_eq!(totals.requests, 1);
}

#[test]
fn two_pipelined_requests_get_two_replies_on_one_connection() {
    let totals = with_server(&config(), |address| {
        let replies = exchange(address, &[GET, GET_CLOSE].concat());
        assert_eq!(count(&replies, b"HTTP/1.1 200 OK"), 2);
    });
    assert_eq!((totals.accepted, totals.requests, totals.errors()), (1, 2, 0));
}

#[test]
fn connection_stays_open_between_requests() {
    let totals = with_server(&config(), |address| {
        let mut client = connect(address);
        for _ in 0..3 {
            client.write_all(GET).expect("send");
            assert!(read_reply(&mut client).starts_with(b"HTTP/1.1 200 OK"));
        }
        client.shutdown(Shutdown::Write).expect("half-close");
        assert_eq!(read_all(&mut client), b"", "the server closes when the client does");
    });
    assert_eq!((totals.accepted, totals.requests, totals.errors()), (1, 3, 0));
}

#[test]
fn http_1_0_connection_closes_after_one_reply() {
    with_server(&config(), |address| {
        let reply = exchange(address, b"GET / HTTP/1.0\r\n\r\n");
        assert_eq!(split(&reply).1.len(), 512);
    });
}

#[test]
fn half_closed_client_still_gets_its_reply() {
    with_server(&config(), |address| {
        let mut client = connect(address);
        client.write_all(GET).expect("send");
        client.shutdown(Shutdown::Write).expect("half-close");
        assert_eq!(split(&read_all(&mut client)).1.len(), 512);
    });
}

#[test]
fn request_body_is_skipped_and_the_next_request_served() {
    let post = [b"POST / HTTP/1.1\r\nContent-Length: 20000\r\n\r\n".to_vec(), vec![b'G'; 20_000]].concat();
    let totals = with_server(&config(), |address| {
        let replies = exchange(address, &[&post, GET_CLOSE].concat());
        assert_eq!(count(&replies, b"HTTP/1.1 200 OK"), 2);
    });
    assert_eq!((totals.requests, totals.errors()), (2, 0));
}

#[test]
fn head_request_gets_the_head_alone() {
    with_server(&config(), |address| {
        let reply = exchange(address, b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n");
        let (head, body) = split(&reply);
        assert!(head.contains("Content-Length: 512"), "{head}");
        assert!(body.is_empty());
    });
}

/// The reply is far larger than any send buffer, so the server must stop, serve others, and go on.
#[test]
fn slow_reader_gets_a_large_reply_whole_while_others_are_served() {
    let reply_bytes = 32 << 20;
    let config = Config { reply_bytes, ..config() };
    let totals = with_server(&config, |address| {
        let mut slow = connect(address);
        slow.write_all(&[GET, GET_CLOSE].concat()).expect("send");
        let mut start = [0; 1000];
        slow.read_exact(&mut start).expect("start of the reply");
        let other = exchange(address, b"HEAD / HTTP/1.1\r\nConnection: close\r\n\r\n");
        assert!(other.starts_with(b"HTTP/1.1 200 OK"));
        let rest = read_all(&mut slow);
        let first = start.iter().chain(&rest);
        let lines = first.filter(|&&byte| byte == b'\r').count();
        assert_eq!(lines, 4 + 5, "two heads, the second with Connection: close, and nothing else");
        assert!(start.len() + rest.len() > 2 * reply_bytes);
    });
    assert_eq!((totals.requests, totals.errors()), (3, 0));
}

#[test]
fn reply_of_100_kb_is_written_in_pieces_to_a_reader_of_pieces() {
    let config = Config { reply_bytes: 100_000, ..config() };
    with_server(&config, |address| {
        let mut client = connect(address);
        client.write_all(GET_CLOSE).expect("send");
        let mut reply = Vec::new();
        let mut piece = [0; 777];
        loop {
            match client.read(&mut piece).expect("read") {
                0 => break,
                len => reply.extend_from_slice(&piece[..len]),
            }
            thread::yield_now();
        }
        let body = split(&reply).1;
        assert_eq!(body.len(), 100_000);
        assert!(body.starts_with(b"tidegate serve\ntidegate"));
    });
}

#[test]
fn malformed_request_gets_400_and_the_connection_ends() {
    let totals = with_server(&config(), |address| {
        // More behind it, which must not turn into a RST that destroys the answer.
        let request = [b"\x16\x03\x01 no http\r\n\r\n".to_vec(), vec![b'x'; 30_000]].concat();
        let reply = exchange(address, &request);
        assert!(reply.starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
    });
    assert_eq!((totals.requests, totals.refused, totals.errors()), (0, 1, 1));
}

#[test]
fn head_above_8_kib_gets_431() {
    with_server(&config(), |address| {
        let request = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000));
        let reply = exchange(address, request.as_bytes());
        assert!(reply.starts_with(b"HTTP/1.1 431 "));
    });
}

#[test]
fn chunked_request_gets_501() {
    with_server(&config(), |address| {
        let reply = exchange(address, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
        assert!(reply.starts_with(b"HTTP/1.1 501 "));
    });
}

#[test]
fn client_that_leaves_in_the_middle_of_a_request_is_counted_as_lost() {
    let totals = with_server(&config(), |address| {
        let mut client = connect(address);
        client.write_all(b"GET / HT").expect("send");
        client.shutdown(Shutdown::Write).expect("half-close");
        assert_eq!(read_all(&mut client), b"");
    });
    assert_eq!((totals.requests, totals.lost, totals.errors()), (0, 1, 1));
}

#[test]
fn two_hundred_connections_are_served_at_once_in_both_accept_modes() {
    for accept in [Accept::Inf, Accept::One] {
        let config = Config { accept, ..config() };
        let totals = with_server(&config, |address| {
            let mut clients: Vec<_> = (0..200).map(|_| connect(address)).collect();
            for client in &mut clients {
                client.write_all(GET).expect("send");
            }
            for client in &mut clients {
                assert!(read_reply(client).starts_with(b"HTTP/1.1 200 OK"));
            }
        });
        assert_eq!((totals.accepted, totals.requests, totals.errors()), (200, 200, 0), "{accept:?}");
    }
}

#[test]
fn cpu_time_does_not_change_the_reply() {
    let config = Config { cpu_time: Duration::from_micros(300), ..config() };
    let totals = with_server(&config, |address| {
        assert_eq!(split(&exchange(address, GET_CLOSE)).1.len(), 512);
    });
    assert_eq!(totals.requests, 1);
}

#[test]
fn requests_take_longer_from_a_moment_on() {
    const LONGER: Duration = Duration::from_millis(20);
    let config = Config { later: Some((Duration::ZERO, LONGER)), ..config() };
    with_server(&config, |address| {
        let start = std::time::Instant::now();
        exchange(address, GET_CLOSE);
        assert!(start.elapsed() >= LONGER);
    });
}

#[test]
fn backlog_is_what_the_kernel_has() {
    // Below every net.core.somaxconn: its default was 128 before Linux 5.4 and is 4096 since.
    for backlog in [0, 7, 128] {
        let server = Server::bind(&Config { backlog, ..config() }).expect("bind");
        assert_eq!(server.backlog(), backlog);
    }
    let most = Config { backlog: u32::MAX, ..config() };
    let somaxconn = std::fs::read_to_string("/proc/sys/net/core/somaxconn").expect("read the sysctl");
    let server = Server::bind(&most).expect("bind");
    assert_eq!(server.backlog().to_string(), somaxconn.trim());
}

#[test]
fn address_in_use_is_named_with_a_way_out() {
    let server = Server::bind(&config()).expect("bind");
    let listen = server.local_addr();
    match Server::bind(&Config { listen, ..config() }) {
        Err(error @ BindError::InUse(_)) => {
            let message = error.to_string();
            assert!(message.contains(&listen.to_string()), "{message}");
            assert!(message.contains(&format!("sport = :{}", listen.port())), "{message}");
        }
        other => panic!("{:?}", other.map(|server| server.local_addr())),
    }
}

#[test]
fn address_of_nobody_is_named() {
    let listen = "192.0.2.1:0".parse().expect("an address"); // TEST-NET-1
    let result = Server::bind(&Config { listen, ..config() });
    assert!(matches!(result, Err(BindError::NotLocal(_))));
}

#[test]
fn ipv6_is_served() {
    let listen = "[::1]:0".parse().expect("an address");
    match Server::bind(&Config { listen, ..config() }) {
        Err(BindError::NotLocal(_) | BindError::System { .. }) => println!("skipped: no IPv6 on this host"),
        Err(error) => panic!("{error}"),
        Ok(server) => {
            serve_while(server, |address| {
                assert_eq!(split(&exchange(address, GET_CLOSE)).1.len(), 512);
            });
        }
    }
}

#[test]
fn server_stops_with_connections_open() {
    let server = Server::bind(&config()).expect("bind");
    let mut client = None;
    let totals = serve_while(server, |address| {
        let mut idle = connect(address);
        idle.write_all(GET).expect("send");
        read_reply(&mut idle);
        client = Some(idle);
    });
    assert_eq!(totals.requests, 1);
    let mut byte = [0];
    let end = client.expect("connected").read(&mut byte);
    assert!(matches!(end, Ok(0)), "the server is gone and so is the connection: {end:?}");
}

fn config() -> Config {
    Config { listen: "127.0.0.1:0".parse().expect("an address"), backlog: 256, ..Config::default() }
}

fn with_server(config: &Config, client: impl FnOnce(SocketAddr)) -> Totals {
    serve_while(Server::bind(config).expect("bind"), client)
}

/// Runs the server until the client is done, or has failed.
fn serve_while(mut server: Server, client: impl FnOnce(SocketAddr)) -> Totals {
    struct StopOnDrop<'a>(&'a AtomicBool);
    impl Drop for StopOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let address = server.local_addr();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = scope.spawn(|| {
            let totals = server.run(&stop).expect("run");
            drop(server);
            totals
        });
        let stopper = StopOnDrop(&stop);
        client(address);
        drop(stopper);
        running.join().expect("the server does not panic")
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).expect("connect")
}

fn exchange(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut client = connect(address);
    client.write_all(request).expect("send");
    read_all(&mut client)
}

fn read_all(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Ok(_) => bytes,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => panic!("reset after {bytes:?}"),
        Err(error) => panic!("{error}"),
    }
}

/// One reply of a connection that stays open.
fn read_reply(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).expect("head of the reply");
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes.clone()).expect("an ASCII head");
    let len = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; len.expect("a length").parse().expect("a number")];
    client.read_exact(&mut body).expect("body of the reply");
    bytes.extend(body);
    bytes
}

fn split(reply: &[u8]) -> (&str, &[u8]) {
    let end = reply.windows(4).position(|window| window == b"\r\n\r\n").expect("an empty line") + 4;
    (str::from_utf8(&reply[..end]).expect("an ASCII head"), &reply[end..])
}

fn count(bytes: &[u8], pattern: &[u8]) -> usize {
    bytes.windows(pattern.len()).filter(|window| *window == pattern).count()
}
