//! `tidegate link` as a process, between two namespaces.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::thread::spawn;
use std::time::{Duration, Instant};

use crate::common::{PATIENCE, TIDEGATE, link_details, signal};
use netns::{Namespace, VethPair};
use nix::sys::signal::Signal;
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::RcvBufForce;
use serde_json::Value;
use tempfile::NamedTempFile;

const MODES: [(&str, &str); 3] = [("native", "xdp-native"), ("generic", "xdp-skb"), ("off", "af-packet")];

/// Two hosts, and between them one with an interface to each: l0 - m0, m1 - r0.
struct World {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

/// A link that runs, with what it says and what it will write.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
    json: NamedTempFile,
    /// The lines before it ran: one for each direction.
    begin: Vec<String>,
}

impl World {
    fn create() -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let create = |role| Namespace::create(role).expect("create a namespace");
        let world = Self { left: create("left"), middle: create("middle"), right: create("right") };
        // In this order, which gives both hosts addresses of their own.
        VethPair::create(&world.left, "l0", &world.middle, "m0").expect("create veth");
        VethPair::create(&world.middle, "m1", &world.right, "r0").expect("create veth");
        world.left.ip(&["addr", "add", "10.8.1.1/24", "dev", "l0"]).expect("address");
        world.right.ip(&["addr", "add", "10.8.1.2/24", "dev", "r0"]).expect("address");
        Some(world)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.middle.command(TIDEGATE).expect("command");
        command.arg("link").args(arguments);
        command
    }

    /// Starts a link and waits until it runs.
    fn start(&self, arguments: &[&str]) -> Running {
        let json = NamedTempFile::new().expect("a file");
        let path = json.path().to_str().expect("text").to_owned();
        let mut command = self.command(&["m0", "m1", "--json", &path]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = Running::of(command.spawn().expect("start tidegate"), json);
        loop {
            let mut line = String::new();
            running.lines.read_line(&mut line).expect("a line");
            assert!(!line.is_empty(), "it ended: {}", complaint(&mut running.child));
            if line.trim_end() == "running" {
                return running;
            }
            running.begin.push(line);
        }
    }

    fn refused(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = self.command(arguments).output().expect("run");
        let text = String::from_utf8_lossy(&stderr).into_owned();
        assert_eq!(text.lines().count(), 1, "{text}");
        (status.code(), text)
    }

    /// UDP sockets of both hosts, connected to each other.
    fn sockets(&self) -> (UdpSocket, UdpSocket) {
        let bind = |namespace: &Namespace, own: &str, other: &str| {
            let socket = namespace.enter(|| UdpSocket::bind(own)).expect("enter").expect("bind");
            socket.connect(other).expect("connect");
            socket.set_read_timeout(Some(PATIENCE)).expect("set a timeout");
            socket
        };
        (bind(&self.left, "10.8.1.1:9", "10.8.1.2:9"), bind(&self.right, "10.8.1.2:9", "10.8.1.1:9"))
    }
}

impl Running {
    fn of(mut child: Child, json: NamedTempFile) -> Self {
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines, json, begin: Vec::new() }
    }

    /// Ends it, and gives what it wrote and what it said.
    fn end(mut self) -> (Value, String) {
        signal(&self.child, Signal::SIGTERM);
        let mut said = String::new();
        self.lines.read_to_string(&mut said).expect("lines");
        assert_eq!(self.child.wait().expect("wait").code(), Some(0), "{said}");
        let text = std::fs::read_to_string(self.json.path()).expect("read the JSON");
        (serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")), said)
    }

    /// Waits for its own end, and gives its exit status and complaint.
    fn ended(mut self) -> (Option<i32>, String) {
        let complaint = if self.child.stderr.is_some() { complaint(&mut self.child) } else { String::new() };
        (self.child.wait().expect("wait").code(), complaint)
    }
}

/// What it says on standard error until it closes that.
fn complaint(child: &mut Child) -> String {
    let mut text = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
    text
}

/// A question and its answer, and the time between.
fn round_trip(left: &UdpSocket, right: &UdpSocket) -> Duration {
    let mut buffer = [0; 100];
    let start = Instant::now();
    left.send(b"ping").expect("send");
    let len = right.recv(&mut buffer).expect("receive");
    right.send(&buffer[..len]).expect("send back");
    let len = left.recv(&mut buffer).expect("receive the answer");
    assert_eq!(&buffer[..len], b"ping");
    start.elapsed()
}

#[test]
fn root_frames_cross_and_take_their_delay_in_every_mode() {
    let Some(world) = World::create() else { return };
    for (xdp, mode) in MODES {
        let link = world.start(&["--xdp", xdp, "--delay", "20ms", "--backward", "delay 30ms"]);
        assert!(link.begin[0].starts_with("m0 > m1: delay 20ms"), "{:?}", link.begin);
        assert!(link.begin[1].starts_with("m1 > m0: delay 30ms"), "{:?}", link.begin);
        let (left, right) = world.sockets();
        // The first one waits for ARP, which takes the same way.
        for _ in 0..3 {
            let time = round_trip(&left, &right);
            assert!(time >= Duration::from_millis(50), "{mode}: {time:?}");
        }
        let (summary, said) = link.end();
        for direction in [0, 1] {
            let direction = &summary["directions"][direction];
            assert_eq!(direction["receive_mode"], mode);
            assert!(direction["delivered"]["packets"].as_u64() >= Some(3), "{summary}");
            assert!(
                direction["checksums_finished"].as_u64() >= Some(3),
                "the sender leaves them to its device: {summary}"
            );
        }
        assert!(said.contains("m0 > m1: "), "{said}");
    }
}

#[test]
fn root_tcp_goes_through_a_lossy_bottleneck_whole_and_not_faster_than_its_rate() {
    let Some(world) = World::create() else { return };
    let link = world.start(&[
        "--rate",
        "20mbit",
        "--delay",
        "2ms",
        "--loss",
        "1%",
        "--aqm",
        "redfavor:limit=100,min=5,max=15",
    ]);
    const BYTES: usize = 3_000_000;
    let listener = world.right.enter(|| TcpListener::bind("10.8.1.2:80")).expect("enter").expect("bind");
    let server = spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).expect("receive");
        received
    });
    let start = Instant::now();
    let mut client = world.left.enter(|| TcpStream::connect("10.8.1.2:80")).expect("enter").expect("connect");
    let data: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
    client.write_all(&data).expect("send");
    drop(client);
    let received = server.join().expect("the server");
    let elapsed = start.elapsed().as_secs_f64();
    assert!(received == data, "{} of {BYTES} bytes, or other ones", received.len());
    // All but the last are behind the transmitter once the last is received.
    assert!(elapsed > 0.99 * 8.0 * BYTES as f64 / 20e6, "{elapsed} s");
    let (summary, _) = link.end();
    let forward = &summary["directions"][0];
    let count = |key: &str| forward[key]["packets"].as_u64().expect("a count");
    let drops: u64 = forward["drops"].as_object().expect("drops").values().filter_map(Value::as_u64).sum();
    let inside = forward["inside"].as_u64().expect("a count");
    assert_eq!(count("arrived"), count("delivered") + drops + inside, "{summary}");
    let lost = forward["drops"]["loss"].as_u64().expect("some are lost") as f64;
    let share = lost / count("arrived") as f64;
    assert!(share > 0.002 && share < 0.03, "{summary}");
    assert_eq!(forward["too_long"], 0);
}

#[test]
fn root_burst_leaves_at_the_rate_and_losses_are_counted() {
    let Some(world) = World::create() else { return };
    for (xdp, mode) in MODES {
        let link = world.start(&["--xdp", xdp, "--forward", "rate 8mbit loss 20%"]);
        let (left, right) = world.sockets();
        // Room for the whole burst, if the reader is late.
        setsockopt(&right, RcvBufForce, &(4 << 20)).expect("a larger buffer");
        // Until ARP is through, so that the burst is one.
        right.set_read_timeout(Some(Duration::from_millis(100))).expect("set a timeout");
        while left.send(b"first").and_then(|_| right.recv(&mut [0; 100])).is_err() {}
        right.set_read_timeout(Some(PATIENCE)).expect("set a timeout");
        const PACKETS: usize = 500;
        for _ in 0..PACKETS {
            left.send(&[7; 958]).expect("send");
        }
        // They come behind, and not all are lost.
        const MARKERS: usize = 20;
        for _ in 0..MARKERS {
            left.send(b"end").expect("send");
        }
        let mut received = 0;
        loop {
            match right.recv(&mut [0; 1500]).expect("a packet") {
                3 => break,
                958 => received += 1,
                _ => {}
            }
        }
        let (summary, _) = link.end();
        let forward = &summary["directions"][0];
        let lost = forward["drops"]["loss"].as_u64().expect("some are lost") as usize;
        assert!((64..=144).contains(&lost), "{mode}: {lost} lost of {PACKETS} and {MARKERS}");
        let least = PACKETS - lost - 5;
        assert!(
            (least..=least + MARKERS + 15).contains(&received),
            "{mode}: {received} of {PACKETS}, {lost} lost"
        );
        // 1000 bytes with their headers take a millisecond.
        assert!(forward["sojourn"]["max_ms"].as_f64() > Some(300.0), "{mode}: {summary}");
    }
}

/// Answers `GET /BYTES` with so many bytes, and a head that says so.
fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) => request.push(byte[0]),
            _ => return,
        }
    }
    let digits = request[5..].iter().take_while(|byte| byte.is_ascii_digit());
    let bytes = digits.fold(0, |bytes, digit| 10 * bytes + usize::from(digit - b'0'));
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n");
    // Who asked for much goes away before it is there.
    let _ = stream.write_all(&[head.as_bytes(), &vec![7; bytes]].concat());
}

/// Asks the server on the left from the right, and gives the time until so many bytes are there.
fn get(right: &Namespace, bytes: usize) -> Duration {
    let start = Instant::now();
    let mut stream = right.enter(|| TcpStream::connect("10.8.1.1:80")).expect("enter").expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("set a timeout");
    stream.write_all(format!("GET /{bytes} HTTP/1.1\r\n\r\n").as_bytes()).expect("ask");
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("a reply");
    assert!(reply.len() > bytes, "{} bytes", reply.len());
    start.elapsed()
}

/// Mean time of short responses beside eight long ones on 10 Mbit/s, and what the link says of its
/// queue.
fn short_beside_long(aqm: &str) -> Option<(Duration, Value)> {
    const SHORT: u32 = 10;
    let world = World::create()?;
    let link = world.start(&["--rate", "10mbit", "--delay", "1ms", "--aqm", aqm]);
    let listener = world.left.enter(|| TcpListener::bind("10.8.1.1:80")).expect("enter").expect("bind");
    spawn(move || listener.incoming().flatten().for_each(|stream| drop(spawn(|| answer(stream)))));
    let long: Vec<_> = (0..8)
        .map(|_| {
            let connect = || TcpStream::connect("10.8.1.1:80");
            let mut stream = world.right.enter(connect).expect("enter").expect("connect");
            stream.write_all(b"GET /8000000 HTTP/1.1\r\n\r\n").expect("ask");
            let mut reader = stream.try_clone().expect("a second handle");
            (stream, spawn(move || std::io::copy(&mut reader, &mut std::io::sink()).unwrap_or(0)))
        })
        .collect();
    // Until all of them are under way and the link is full.
    std::thread::sleep(Duration::from_millis(1500));
    let took: Duration = (0..SHORT).map(|_| get(&world.right, 20_000)).sum();
    for (stream, _) in &long {
        stream.shutdown(std::net::Shutdown::Both).expect("close");
    }
    let bytes: u64 = long.into_iter().map(|(_, reader)| reader.join().expect("a reader")).sum();
    assert!(bytes > 1_000_000, "{bytes} bytes of long responses: the link was not full");
    Some((took / SHORT, link.end().0))
}

#[test]
fn root_srpt_at_a_router_answers_short_responses_before_long_ones() {
    let Some((fifo, _)) = short_beside_long("droptail:limit=100") else { return };
    let Some((srpt, summary)) = short_beside_long("srpt") else { return };
    println!("{srpt:?} under SRPT, {fifo:?} under drop-tail");
    // 20 kB take 16 ms alone, and nine times as long in a fair share.
    assert!(srpt < fifo / 2, "{srpt:?} under SRPT, {fifo:?} under drop-tail: {summary}");
    assert!(summary["directions"][0]["path"].as_str().is_some_and(|path| path.contains("srpt")), "{summary}");
}

#[test]
fn root_nothing_is_left_behind_when_the_link_ends() {
    let Some(world) = World::create() else { return };
    for by in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGKILL] {
        let mut link = world.start(&["--delay", "1ms"]);
        assert!(link_details(&world.middle, "m0").contains("xdp"), "the program is there");
        assert!(link_details(&world.middle, "m1").contains("promiscuity 1"));
        signal(&link.child, by);
        link.child.wait().expect("wait");
        for interface in ["m0", "m1"] {
            let details = link_details(&world.middle, interface);
            assert!(!details.contains("xdp") && details.contains("promiscuity 0"), "SIG{by}: {details}");
        }
    }
}

#[test]
fn root_interface_that_disappears_or_is_set_down_ends_the_link_with_a_line() {
    let Some(world) = World::create() else { return };
    for xdp in ["auto", "off"] {
        let link = world.start(&["--xdp", xdp]);
        world.middle.ip(&["link", "set", "m1", "down"]).expect("set down");
        let (code, complaint) = link.ended();
        assert_eq!(code, Some(1), "{complaint}");
        assert_eq!(
            complaint,
            "tidegate: interface m1 was set down while the link ran; set it up and start the link again\n"
        );
        world.middle.ip(&["link", "set", "m1", "up"]).expect("set up");
    }
    let mut link = world.start(&[]);
    let (left, right) = world.sockets();
    round_trip(&left, &right);
    world.middle.ip(&["link", "del", "m1"]).expect("delete");
    let complaint = complaint(&mut link.child);
    let why = "interface m1 went away while the link ran; start the link again once it is back";
    assert_eq!(complaint, format!("tidegate: {why}\n"));
    let text = std::fs::read_to_string(link.json.path()).expect("what was counted is written all the same");
    let summary: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(summary["ended_by"], why);
    for direction in [0, 1] {
        let delivered = &summary["directions"][direction]["delivered"]["packets"];
        assert!(delivered.as_u64() >= Some(1), "{summary}");
    }
    assert_eq!(link.ended().0, Some(1));
}

#[test]
fn root_hosts_have_links_of_their_own_and_the_warm_up_is_not_counted() {
    let Some(world) = World::create() else { return };
    let link = world.start(&[
        "--rate",
        "100mbit",
        "--access",
        "10.8.1.1 delay 30ms",
        "--access",
        "10.8.1.2 delay 10ms",
        "--access",
        "10.8.1.9 delay 10s",
        "--warmup",
        "3s",
    ]);
    let (left, right) = world.sockets();
    let start = Instant::now();
    for _ in 0..3 {
        let time = round_trip(&left, &right);
        assert!(time >= Duration::from_millis(80), "both links, both ways: {time:?}");
    }
    while start.elapsed() < Duration::from_millis(3100) {
        std::thread::sleep(Duration::from_millis(10));
    }
    const COUNTED: u64 = 2;
    for _ in 0..COUNTED {
        round_trip(&left, &right);
    }
    let (summary, _) = link.end();
    assert!(summary["warmup_s"].as_f64() >= Some(3.0), "{summary}");
    for direction in [0, 1] {
        let direction = &summary["directions"][direction];
        let count = |key: &str| direction[key].as_u64().expect("a count");
        let packets = |key: &str| direction[key]["packets"].as_u64().expect("a count");
        // ARP may be asked again in between; the round trips before are not there.
        assert!((COUNTED..COUNTED + 2).contains(&packets("arrived")), "{summary}");
        assert_eq!(
            packets("arrived") + count("inside_before"),
            packets("delivered") + count("inside"),
            "{summary}"
        );
        assert_eq!((count("opening"), count("access_drops")), (0, 0), "{summary}");
    }
}

#[test]
fn root_interfaces_that_cannot_be_the_ends_are_refused_in_one_line() {
    let Some(world) = World::create() else { return };
    world.middle.ip(&["link", "add", "d0", "type", "veth", "peer", "name", "d1"]).expect("add");
    world.middle.ip(&["link", "add", "e0", "up", "type", "veth", "peer", "name", "e1"]).expect("add");
    world.middle.ip(&["link", "set", "e1", "up"]).expect("set up");
    for (ends, code, why) in [
        (["m0", "m0"], 2, "interface m0 is given twice; a link is between two"),
        (
            ["e0", "e1"],
            2,
            "interfaces e0 and e1 are the two ends of one veth pair, between which frames would go round for ever; name the near ends of two pairs",
        ),
        (["m0", "none"], 1, "interface none: there is none of that name here; `ip link` lists them"),
        (["d0", "m0"], 1, "interface d0: it is down; set it up: ip link set d0 up"),
        (["m0", "lo"], 1, "interface lo: a loopback has no other end; name an Ethernet interface"),
    ] {
        let (status, text) = world.refused(&ends);
        assert_eq!((status, text), (Some(code), format!("tidegate: {why}\n")));
    }
    let (status, text) = world.refused(&["m0", "m1", "--cpu", "999"]);
    assert!(status == Some(1) && text.starts_with("tidegate: pin to CPU 999; is it online?"), "{text}");
    let _running = world.start(&[]);
    let (code, text) = world.refused(&["m0", "m1"]);
    assert!(code == Some(1) && text.contains("another crowd or XDP program has it"), "{text}");
}

#[test]
fn words_that_cannot_be_are_refused_in_one_line_before_anything_is_touched() {
    for (arguments, why) in [
        (&["--rate", "10Mbps"][..], "rate 10Mbps: a number with its unit"),
        (&["--limit", "0"], "limit=0: nothing could wait"),
        (&["--aqm", "red:min=90,max=30"], "min=90 is not below max=30"),
        (&["--delay", "1ms", "--jitter", "2ms"], "jitter 2ms is above delay 1ms"),
        (&["--backward", "speed 1mbit"], "--backward: \"speed\" is no word of a path"),
        (&["--loss", "120%"], "a probability from 0 to 1"),
        (&["--limit", "1", "--aqm", "red"], "cannot be used with"),
        (&["--buffers", "0"], "0 is not in 1.."),
        (&["--access", "delay 1ms"], "--access \"delay 1ms\": it begins with the address of a host"),
        (&["--access", "10.0.0.1 delay"], "--access \"10.0.0.1 delay\": delay: a value is missing"),
        (&["--rate", "-5mbit"], "rate -5mbit: a number with its unit"),
        (
            &["--access", "10.0.0.1 delay 1ms", "--access", "10.0.0.1 delay 2ms"],
            "host 10.0.0.1 is given two links of its own; leave one",
        ),
    ] {
        let output = Command::new(TIDEGATE).args(["link", "a", "b"]).args(arguments).output().expect("run");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(why) && text.lines().count() == 1, "{arguments:?}: {text}");
        assert_eq!(output.status.code(), Some(2), "{text}");
    }
}
