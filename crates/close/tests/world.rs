//! A client and a server that closes first, each in a namespace.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use close::{Closing, Setup, Sockets, Way};
use netlink::{Interface, TcpState};
use netns::{Namespace, VethPair};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

/// Addresses of the server.
pub(crate) const SERVERS: usize = 5;
pub(crate) const RESPONSE: [u8; 3000] = [b'.'; 3000];

pub(crate) struct World {
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
    pub(crate) address: SocketAddr,
    /// One for each connection that the server has closed.
    pub(crate) closed: Mutex<Receiver<()>>,
}

impl World {
    /// A server that answers and closes.
    pub(crate) fn create(is_ipv6: bool) -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let client = Namespace::create("client").expect("create");
        let server = Namespace::create("server").expect("create");
        VethPair::create(&client, "c0", &server, "s0").expect("create veth");
        for (namespace, device, host) in [(&client, "c0", 1), (&server, "s0", 2)] {
            namespace.ip(&["addr", "add", &format!("10.8.0.{host}/24"), "dev", device]).expect("address");
            let address = format!("fd08::{host}/64");
            namespace.ip(&["addr", "add", &address, "dev", device, "nodad"]).expect("address");
        }
        for host in 3..2 + SERVERS {
            server.ip(&["addr", "add", &format!("10.8.0.{host}/24"), "dev", "s0"]).expect("address");
            server.ip(&["addr", "add", &format!("fd08::{host}/64"), "dev", "s0", "nodad"]).expect("address");
        }
        let address = if is_ipv6 { "[fd08::2]:8080" } else { "10.8.0.2:8080" };
        let any = if is_ipv6 { "[::]:8080" } else { "0.0.0.0:8080" };
        let listener = server.enter(|| TcpListener::bind(any)).expect("enter").expect("bind");
        let (sender, closed) = channel();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let mut request = [0; 4];
                if connection.read_exact(&mut request).is_ok() {
                    connection.write_all(&RESPONSE).ok();
                }
                drop(connection);
                sender.send(()).ok();
            }
        });
        Some(Self { client, server, address: address.parse().expect("address"), closed: Mutex::new(closed) })
    }

    /// The server waits for 30 s before it sends anything again.
    pub(crate) fn make_server_patient(&self) {
        self.server.set_sysctl("net.ipv4.tcp_early_retrans", "0").expect("sysctl");
        // As the kernel made them, which has another metric for IPv6.
        for (network, metric) in [("10.8.0.0/24", "0"), ("fd08::/64", "256")] {
            let route = ["route", "replace", network, "dev", "s0", "metric", metric, "rto_min", "30s"];
            self.server.ip(&route).expect("route");
        }
    }

    /// The client knows the server's link-layer address for good.
    pub(crate) fn keep_neighbour(&self) {
        let server = self.server.enter(|| Interface::find("s0")).expect("enter").expect("ask").expect("s0");
        let mac = netns::mac_text(server.address.expect("an Ethernet"));
        let ip = self.address.ip().to_string();
        let neighbour = ["neigh", "replace", &ip, "lladdr", &mac, "dev", "c0", "nud", "permanent"];
        self.client.ip(&neighbour).expect("neighbour");
    }

    pub(crate) fn setup(&self, way: Way) -> Setup {
        let text = if self.address.is_ipv6() { "[fd08::]/64:8080" } else { "10.8.0.0/24:8080" };
        Setup {
            destinations: vec![text.parse().expect("a destination")],
            way,
            quarantine: Duration::from_secs(60),
            sockets: Sockets::All,
            interfaces: Vec::new(),
            is_dry_run: false,
        }
    }

    /// Asks, and waits until the server has closed and its FIN has come here, or is held.
    pub(crate) fn await_close(&self, stream: &mut TcpStream, closing: Option<&Closing>) {
        let held = || closing.map_or(0, |closing| closing.counts().expect("read")[0].held);
        let before = held();
        stream.write_all(b"GET\n").expect("write");
        let closed = self.closed.lock().expect("no panic");
        closed.recv_timeout(Duration::from_secs(20)).expect("the server closes first");
        let start = Instant::now();
        while held() == before && !is_closed_by_peer(stream) {
            assert!(start.elapsed() < Duration::from_secs(20), "a FIN");
        }
    }

    /// A client who knows how long the response is, and reads it late.
    pub(crate) fn ask(&self, closing: Option<&Closing>) -> std::io::Result<()> {
        let stream = self.client.enter(|| TcpStream::connect(self.address)).expect("enter")?;
        self.ask_over(stream, closing)
    }

    pub(crate) fn ask_over(&self, mut stream: TcpStream, closing: Option<&Closing>) -> std::io::Result<()> {
        self.await_close(&mut stream, closing);
        let mut response = [0; RESPONSE.len()];
        stream.read_exact(&mut response)?;
        assert_eq!(response, RESPONSE);
        Ok(())
    }
}

/// Again, while the kernel chooses ports that are in quarantine, of which it knows nothing.
pub(crate) fn connect_unless_quarantined(address: SocketAddr) -> std::io::Result<TcpStream> {
    let mut tries = (0..50).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(200)));
    let is_over = |tried: &std::io::Result<TcpStream>| {
        !tried.as_ref().is_err_and(|error| error.kind() == ErrorKind::TimedOut)
    };
    tries.find(is_over).unwrap_or_else(|| Err(ErrorKind::TimedOut.into()))
}

/// Whether the peer's FIN has come.
pub(crate) fn is_closed_by_peer(stream: &TcpStream) -> bool {
    let epoll = Epoll::new(EpollCreateFlags::empty()).expect("epoll");
    epoll.add(stream, EpollEvent::new(EpollFlags::EPOLLRDHUP, 0)).expect("add");
    epoll.wait(&mut [EpollEvent::empty()], 1_u8).expect("wait") > 0
}

/// Connections in TIME_WAIT, and others that are not listening.
pub(crate) fn sockets(namespace: &Namespace) -> (usize, usize) {
    let count = || {
        let (mut time_wait, mut others) = (0, 0);
        netlink::each_tcp_socket(|socket| match socket.state {
            TcpState::TimeWait => time_wait += 1,
            TcpState::Listen => {}
            TcpState::Other => others += 1,
        })
        .expect("ask");
        (time_wait, others)
    };
    namespace.enter(count).expect("enter")
}

/// Waits until nothing is open.
pub(crate) fn settled(world: &World) -> (usize, usize) {
    let start = Instant::now();
    loop {
        let ((server, still), (client, open)) = (sockets(&world.server), sockets(&world.client));
        if still + open == 0 {
            return (server, client);
        }
        assert!(
            start.elapsed() < Duration::from_secs(20),
            "server {server}, {still}; client {client}, {open}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn start(world: &World, setup: &Setup) -> Closing {
    world.client.enter(|| Closing::start(setup)).expect("enter").expect("start")
}
