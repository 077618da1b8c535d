//! Sockets on real veth pairs. Each test has namespaces of its own.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bpf::{Hook, SoleLink};
use etherparse::{PacketBuilder, TcpHeader};
use netns::{Namespace, VethEnd, VethPair, pin_to_cpu};
use xsk::{Config, Error, Interface, Mode, Queues, Socket, Steer, wait_for_any};

const SERVER: [u8; 4] = [10, 0, 0, 1];
const CLIENT: [u8; 4] = [10, 1, 0, 5];
const CLIENT_PORT: u16 = 1000;
/// Only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);
const XDP_PASS: i32 = 2;

/// A crowd and a server, each in its namespace, joined by a veth pair.
struct Link {
    pair: VethPair,
    crowd: Namespace,
    server: Namespace,
}

impl Link {
    fn create() -> Self {
        Self::create_with_queues(1)
    }

    fn create_with_queues(queues: u32) -> Self {
        let crowd = Namespace::create("crowd").expect("namespace");
        let server = Namespace::create("server").expect("namespace");
        let pair = VethPair::create_with_queues(&crowd, "crowd0", &server, "server0", queues).expect("veth");
        Self { pair, crowd, server }
    }

    /// A socket on the crowd's end, for what the server sends.
    fn crowd_socket(&self, mode: Mode, rx_frames: u32) -> Socket {
        open(&self.crowd, &self.crowd_config(mode, rx_frames)).expect("open the crowd's socket")
    }

    fn crowd_config(&self, mode: Mode, rx_frames: u32) -> Config {
        let steer = Steer { server: (SERVER, 80).into(), clients: ([10, 1, 0, 0].into(), 16) };
        config(&self.pair.a, mode, rx_frames, steer)
    }

    /// A socket on the server's end, for what [`CLIENT`] sends.
    fn server_socket(&self, mode: Mode, rx_frames: u32) -> Socket {
        open(&self.server, &self.server_config(mode, rx_frames)).expect("open the server's socket")
    }

    fn server_config(&self, mode: Mode, rx_frames: u32) -> Config {
        let steer = Steer { server: (CLIENT, CLIENT_PORT).into(), clients: (SERVER.into(), 32) };
        config(&self.pair.b, mode, rx_frames, steer)
    }

    fn to_server(&self) -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
        PacketBuilder::ethernet2(self.pair.a.mac, self.pair.b.mac)
    }

    fn to_crowd(&self) -> etherparse::PacketBuilderStep<etherparse::Ethernet2Header> {
        PacketBuilder::ethernet2(self.pair.b.mac, self.pair.a.mac)
    }

    /// A segment from the server to [`CLIENT`] with this data.
    fn reply(&self, data: &[u8]) -> Vec<u8> {
        let builder = self.to_crowd().ipv4(SERVER, CLIENT, 64);
        frame(builder.tcp(80, CLIENT_PORT, 1, 1024), data)
    }
}

fn config(end: &VethEnd, mode: Mode, rx_frames: u32, steer: Steer) -> Config {
    Config { ifindex: end.ifindex, interface: end.name.clone(), mode, rx_frames, tx_frames: 256, steer }
}

fn open(namespace: &Namespace, config: &Config) -> Result<Socket, Error> {
    namespace.enter(|| Socket::open(config)).expect("enter the namespace")
}

fn frame<T>(builder: etherparse::PacketBuilderStep<T>, data: &[u8]) -> Vec<u8>
where
    etherparse::PacketBuilderStep<T>: Build,
{
    builder.build(data)
}

/// The transports that these tests build.
trait Build {
    fn build(self, data: &[u8]) -> Vec<u8>;
}

impl Build for etherparse::PacketBuilderStep<TcpHeader> {
    fn build(self, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes, data).expect("build a segment");
        bytes
    }
}

impl Build for etherparse::PacketBuilderStep<etherparse::UdpHeader> {
    fn build(self, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(&mut bytes, data).expect("build a datagram");
        bytes
    }
}

fn send(socket: &mut Socket, frame: &[u8]) {
    let queued = socket.tx.transmit(|buffer| {
        buffer[..frame.len()].copy_from_slice(frame);
        frame.len()
    });
    assert!(queued, "a buffer is free");
    assert_eq!(socket.tx.flush().expect("flush"), 1, "the kernel takes it");
}

/// Receives until `count` frames are here.
fn receive(socket: &mut Socket, count: usize) -> Vec<Vec<u8>> {
    let start = Instant::now();
    let mut frames = Vec::new();
    while frames.len() < count && start.elapsed() < PATIENCE {
        socket.rx.wait(Duration::from_millis(10)).expect("wait");
        socket.rx.receive(64, |frame| frames.push(frame.to_vec()));
    }
    frames
}

fn wait_until(holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "it never does");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The only frame that arrives.
fn receive_one(socket: &mut Socket) -> Vec<u8> {
    let mut frames = receive(socket, 1);
    assert_eq!(frames.len(), 1, "one frame arrives");
    frames.remove(0)
}

macro_rules! need_root {
    () => {
        if let Err(reason) = netns::root_or_reason() {
            return eprintln!("{reason}");
        }
    };
}

#[test]
fn root_frames_arrive_byte_for_byte() {
    need_root!();
    for (mode, expected) in [(Mode::Auto, Mode::Native), (Mode::Generic, Mode::Generic)] {
        let link = Link::create();
        let mut crowd = link.crowd_socket(mode, 256);
        let mut server = link.server_socket(mode, 256);
        assert_eq!(crowd.mode(), expected);
        for len in [0, 1, 6, 512, 1459, 1460] {
            let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let request = link.to_server().ipv4(CLIENT, SERVER, 64).tcp(CLIENT_PORT, 80, 7, 9);
            let request = frame(request, &data);
            send(&mut crowd, &request);
            assert_eq!(receive_one(&mut server), request, "{mode:?}, to the server");
            let reply = link.reply(&data);
            send(&mut server, &reply);
            assert_eq!(receive_one(&mut crowd), reply, "{mode:?}, to the crowd");
        }
        let statistics = crowd.statistics().expect("statistics");
        assert_eq!((statistics.steered, statistics.lost(), statistics.tx_invalid), (6, 0, 0));
    }
}

/// Frames leave by the queue of their socket, and veth receives them by the same; generic XDP sees
/// all of them on the first.
#[test]
fn root_frames_of_each_queue_come_to_its_socket() {
    need_root!();
    let link = Link::create_with_queues(2);
    let attach = |namespace: &Namespace, config: &Config| {
        namespace.enter(|| Interface::attach(config)).expect("enter").expect("attach")
    };
    let crowd = attach(&link.crowd, &link.crowd_config(Mode::Native, 256));
    let server = attach(&link.server, &link.server_config(Mode::Native, 256));
    assert_eq!(crowd.queues(), Queues { receive: 2, transmit: 2 });
    let open = |namespace: &Namespace, interface: &Interface, queue, sends| {
        namespace.enter(|| interface.open(queue, sends)).expect("enter")
    };
    let mut from = [0, 1].map(|queue| open(&link.server, &server, queue, true).expect("open"));
    let mut first = open(&link.crowd, &crowd, 0, true).expect("open");
    send(&mut from[1], &link.reply(b"early"));
    wait_until(|| first.statistics().expect("statistics").unclaimed == 1);
    assert_eq!(first.rx.receive(64, |_| ()), 0, "it came to the other queue");
    let mut second = open(&link.crowd, &crowd, 1, false).expect("open");
    for (queue, data) in [(0, b"to queue 0"), (1, b"to queue 1")] {
        send(&mut from[queue], &link.reply(data));
    }
    assert_eq!(receive_one(&mut first), link.reply(b"to queue 0"));
    assert_eq!(receive_one(&mut second), link.reply(b"to queue 1"));
    send(&mut from[1], &link.reply(b"woken"));
    wait_for_any([&first.rx, &second.rx], None, Duration::from_secs(10)).expect("wait");
    assert_eq!(receive_one(&mut second), link.reply(b"woken"));
    assert!(!second.tx.transmit(|_| unreachable!()), "it has nothing to send from");
    assert_eq!(second.tx.flush().expect("flush"), 0);
    let statistics = [&first, &second].map(|socket| socket.statistics().expect("statistics"));
    assert!(
        statistics.iter().all(|counted| (counted.steered, counted.dropped()) == (3, 0)),
        "{statistics:?}"
    );
    for (queue, why) in
        [(1, "bind to queue 1 of interface crowd0: device"), (2, "bind to queue 2 of interface")]
    {
        let error = open(&link.crowd, &crowd, queue, false).err().expect("refused").to_string();
        assert!(error.starts_with(why), "{error}");
    }
}

#[test]
fn root_only_steered_frames_are_received_and_others_reach_the_kernel() {
    need_root!();
    let link = Link::create();
    link.crowd.ip(&["addr", "add", "10.2.0.2/32", "dev", "crowd0"]).expect("address");
    link.crowd.ip(&["route", "add", "10.0.0.0/8", "dev", "crowd0"]).expect("route");
    let kernel = link.crowd.enter(|| UdpSocket::bind("10.2.0.2:53")).expect("enter").expect("bind");
    kernel.set_read_timeout(Some(PATIENCE)).expect("timeout");
    let mut crowd = link.crowd_socket(Mode::Generic, 256);
    let mut server = link.server_socket(Mode::Generic, 256);
    let before = crowd.statistics().expect("statistics");

    let other =
        |builder: etherparse::PacketBuilderStep<etherparse::IpHeaders>| frame(builder.tcp(80, 1, 1, 1), b"");
    let passed = [
        frame(link.to_crowd().ipv4(SERVER, CLIENT, 64).tcp(81, 1, 1, 1), b""),
        other(link.to_crowd().ipv4([10, 0, 0, 2], CLIENT, 64)),
        other(link.to_crowd().ipv4(SERVER, [10, 2, 0, 2], 64)),
        other(link.to_crowd().ipv6([1; 16], [2; 16], 64)),
        frame(link.to_crowd().ipv4(SERVER, CLIENT, 64).udp(80, 1), b""),
        link.reply(b"")[..40].to_vec(),
        frame(link.to_crowd().ipv4(SERVER, [10, 2, 0, 2], 64).udp(99, 53), b"hello"),
    ];
    for frame in &passed {
        send(&mut server, frame);
    }
    let steered = link.reply(b"crowd");
    send(&mut server, &steered);

    assert_eq!(receive_one(&mut crowd), steered);
    assert_eq!(crowd.rx.receive(64, |_| ()), 0, "nothing else is the crowd's");
    let mut datagram = [0; 16];
    assert_eq!(kernel.recv(&mut datagram).expect("the kernel got the datagram"), 5);
    let after = crowd.statistics().expect("statistics");
    assert_eq!(after.steered - before.steered, 1);
    assert_eq!(after.passed - before.passed, passed.len() as u64);
}

#[test]
fn root_ipv6_frames_are_steered_by_address_and_port() {
    need_root!();
    let link = Link::create();
    let (mut server_address, mut client) = ([0; 16], [0; 16]);
    (server_address[0], client[0], client[7], client[15]) = (0xfd, 0xfd, 1, 9);
    let steer = Steer { server: (server_address, 80).into(), clients: (client.into(), 64) };
    let mut crowd = open(&link.crowd, &config(&link.pair.a, Mode::Generic, 64, steer)).expect("open");
    let mut server = link.server_socket(Mode::Generic, 64);
    let ours = frame(link.to_crowd().ipv6(server_address, client, 64).tcp(80, 1, 1, 1), b"six");
    let mut stranger = client;
    stranger[7] = 2;
    for frame in
        [frame(link.to_crowd().ipv6(server_address, stranger, 64).tcp(80, 1, 1, 1), b""), link.reply(b"four")]
    {
        send(&mut server, &frame);
    }
    send(&mut server, &ours);
    assert_eq!(receive_one(&mut crowd), ours);
    assert_eq!(crowd.statistics().expect("statistics").steered, 1);
}

#[test]
fn root_rings_that_wrap_many_times_lose_and_reorder_nothing() {
    need_root!();
    send_numbered(&Link::create(), 100_000);
}

/// The kernel fills the RX ring on one CPU while we give buffers back on another: it publishes the
/// buffer before it says that it took it (`make_rings`).
#[test]
fn root_frames_received_on_another_cpu_find_room_in_the_fill_ring() {
    need_root!();
    if pin_to_cpu(1).is_err() {
        return eprintln!("skipped: needs two CPUs");
    }
    let link = Link::create();
    link.crowd.write_sysfs("class/net/crowd0/queues/rx-0/rps_cpus", "1").expect("RPS");
    send_numbered(&link, 300_000);
}

/// Sends frames that carry their number from server to crowd, at most 64 on the way, and checks
/// each.
fn send_numbered(link: &Link, frames: u64) {
    const ON_THE_WAY: u64 = 64;
    let mut crowd = link.crowd_socket(Mode::Generic, 64);
    let mut server = link.server_socket(Mode::Generic, 64);
    let template = link.reply(&[0; 8]);
    let number_at = template.len() - 8;
    let (mut sent, mut expected) = (0, 0);
    let mut last = Instant::now();
    while expected < frames {
        while sent < frames
            && sent - expected < ON_THE_WAY
            && server.tx.transmit(|buffer| {
                buffer[..template.len()].copy_from_slice(&template);
                buffer[number_at..template.len()].copy_from_slice(&u64::to_be_bytes(sent));
                template.len()
            })
        {
            sent += 1;
        }
        server.tx.flush().expect("flush");
        let received = crowd.rx.receive(77, |frame| {
            let number = frame[number_at..].try_into().expect("eight bytes");
            assert_eq!(u64::from_be_bytes(number), expected, "in order, none missing");
            expected += 1;
        });
        if received > 0 {
            last = Instant::now();
        }
        assert!(last.elapsed() < PATIENCE, "{expected} of {sent} arrived");
    }
    assert_eq!(crowd.statistics().expect("statistics").lost(), 0);
    assert_eq!(server.tx.transmit_room(), 256, "all buffers to send from are back");
}

#[test]
fn root_sleeping_reader_with_a_small_ring_loses_frames_and_counts_them() {
    need_root!();
    let link = Link::create();
    let mut crowd = link.crowd_socket(Mode::Generic, 64);
    let mut server = link.server_socket(Mode::Generic, 64);
    let frame = link.reply(b"");
    for _ in 0..1000 {
        send(&mut server, &frame);
    }
    wait_until(|| crowd.statistics().expect("statistics").steered == 1000);
    assert_eq!(crowd.statistics().expect("statistics").lost(), 1000 - 64, "what the ring has no room for");
    assert_eq!(receive(&mut crowd, 64).len(), 64);
    send(&mut server, &frame);
    assert_eq!(receive_one(&mut crowd), frame, "it recovers");
}

#[test]
fn root_socket_is_reopened_at_once() {
    need_root!();
    let link = Link::create();
    let mut server = link.server_socket(Mode::Generic, 64);
    for _ in 0..5 {
        let mut crowd = link.crowd_socket(Mode::Generic, 64);
        let frame = link.reply(b"again");
        send(&mut server, &frame);
        assert_eq!(receive_one(&mut crowd), frame);
    }
}

#[test]
fn root_program_is_gone_though_somebody_has_its_link_open() {
    need_root!();
    let link = Link::create();
    let first = link.crowd_socket(Mode::Generic, 64);
    let held = bpf::links_of_process(std::process::id()).expect("the links of this process");
    assert!(!held.is_empty());
    drop(first);
    link.crowd_socket(Mode::Generic, 64);
    drop(held);
}

#[test]
fn root_socket_that_cannot_be_opened_says_what_and_why() {
    need_root!();
    let link = Link::create();
    let refused =
        |config: &Config| open(&link.crowd, config).err().map(|error| error.to_string()).expect("refused");
    let good = link.crowd_config(Mode::Generic, 64);

    let no_interface = refused(&Config { interface: "none0".to_owned(), ..good.clone() });
    assert!(no_interface.contains("none0"), "{no_interface}");
    let odd = refused(&Config { rx_frames: 100, ..good.clone() });
    assert!(odd.contains("rx ring of 100"), "{odd}");
    let first = open(&link.crowd, &good).expect("the first");
    let second = refused(&good);
    assert!(second.contains("crowd0") && second.contains("busy"), "{second}");
    drop(first);
    link.crowd.ip(&["link", "set", "crowd0", "mtu", "9000"]).expect("mtu");
    let large = refused(&good);
    assert!(large.contains("MTU 9000"), "{large}");
}

/// Gives false, for a condition that may come true later.
fn sleep_a_little() -> bool {
    std::thread::sleep(Duration::from_millis(20));
    false
}

#[test]
fn root_dropped_socket_leaves_no_program_behind() {
    need_root!();
    let link = Link::create();
    for mode in [Mode::Generic, Mode::Native] {
        drop(link.crowd_socket(mode, 64));
        let hook = if mode == Mode::Generic { Hook::XdpNative } else { Hook::XdpGeneric };
        let program = bpf::constant_program(hook, XDP_PASS).expect("load another program");
        let attach = || {
            let attach = || SoleLink::attach(program.as_fd(), link.pair.a.ifindex, hook).map(drop);
            link.crowd.enter(attach).expect("enter")
        };
        // Another test's fork holds a copy of every descriptor until it executes its program.
        let is_free = (0..100).any(|_| attach().is_ok() || sleep_a_little());
        assert!(is_free, "{mode:?}: {:?}", attach());
    }
}
