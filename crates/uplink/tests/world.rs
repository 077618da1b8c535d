//! A server and a client with a link between them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use netns::{Namespace, VethPair};
use uplink::{SentResponse, Setup, Uplink};

/// The server's interface.
pub(crate) const IF: &str = "s0";
/// The server's addresses.
pub(crate) const ADDRESSES: [&str; 2] = ["10.96.0.1", "fd96::1"];
const PATIENCE: Duration = Duration::from_secs(60);

/// Two namespaces.
pub(crate) struct World {
    pub(crate) server: Namespace,
    client: Namespace,
    _link: VethPair,
}

/// A connection, by both ends.
pub(crate) struct Connection {
    pub(crate) client: TcpStream,
    pub(crate) server: TcpStream,
}

impl World {
    /// `None` where kernel tests cannot run.
    pub(crate) fn create() -> Option<Self> {
        if let Err(why) = netns::root_or_reason() {
            eprintln!("{why}");
            return None;
        }
        let server = Namespace::create("uplink").expect("make a namespace");
        let client = Namespace::create("reader").expect("make a namespace");
        let link = VethPair::create(&server, IF, &client, "c0").expect("make a link");
        for (namespace, interface, host) in [(&server, IF, 1), (&client, "c0", 2)] {
            namespace.ip(&["addr", "add", &format!("10.96.0.{host}/24"), "dev", interface]).expect("address");
            let address = format!("fd96::{host}/64");
            namespace.ip(&["addr", "add", &address, "dev", interface, "nodad"]).expect("address");
            namespace.ip(&["link", "set", interface, "up"]).expect("up");
        }
        Some(Self { server, client, _link: link })
    }

    /// Runs the test where the server is.
    pub(crate) fn run(&self, test: impl FnOnce() + Send) {
        self.server.enter(test).expect("enter the namespace");
    }

    /// To be called where the server is.
    pub(crate) fn connect(&self, address: &str) -> Connection {
        let listener = TcpListener::bind((address.parse::<IpAddr>().expect("address"), 0)).expect("listen");
        let to: SocketAddr = listener.local_addr().expect("an address");
        let client =
            self.client.enter(|| TcpStream::connect(to).expect("connect")).expect("enter the namespace");
        client.set_read_timeout(Some(PATIENCE)).expect("set a time limit");
        let (server, _) = listener.accept().expect("accept");
        Connection { client, server }
    }

    /// As soon as somebody listens there; to be called where the server is.
    pub(crate) fn connect_to(&self, address: &str, port: u16) -> TcpStream {
        let start = Instant::now();
        loop {
            let connected =
                self.client.enter(|| TcpStream::connect((address, port))).expect("enter the namespace");
            match connected {
                Ok(client) => return client,
                Err(error) => assert!(start.elapsed() < PATIENCE, "connect: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Both ends of the link.
    pub(crate) fn ends(&self) -> [(&Namespace, &str); 2] {
        [(&self.server, IF), (&self.client, "c0")]
    }

    /// What tc says of the interface.
    pub(crate) fn qdiscs(&self) -> String {
        let mut command = self.server.command("tc").expect("a command");
        let output = command.args(["qdisc", "show", "dev", IF]).output().expect("start tc");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Connection {
    /// The client asks, the server answers, and the client reads all of it.
    pub(crate) fn exchange(&mut self, response: &[u8]) {
        self.ask();
        self.answer(response);
    }

    pub(crate) fn ask(&mut self) {
        self.client.write_all(b"GET").expect("ask");
        self.server.read_exact(&mut [0; 3]).expect("read the request");
    }

    pub(crate) fn answer(&mut self, response: &[u8]) {
        let mut server = self.server.try_clone().expect("a descriptor");
        std::thread::scope(|scope| {
            scope.spawn(move || server.write_all(response).expect("answer"));
            let mut read = vec![0; response.len()];
            self.client.read_exact(&mut read).expect("read the response");
            assert!(read == response, "it arrives whole and in order");
        });
    }
}

/// Of 10 Mbit/s. The lease outlasts a test, since an emulated machine may take minutes.
pub(crate) fn setup() -> Setup {
    Setup { lease: Duration::from_secs(600), ..Setup::new(IF, 10_000_000) }
}

/// As many responses as are wanted, once they were sent.
pub(crate) fn sent(uplink: &mut Uplink, wanted: usize) -> Vec<SentResponse> {
    let mut all = Vec::new();
    let start = Instant::now();
    while all.len() < wanted && start.elapsed() < PATIENCE {
        uplink.renew().expect("renew");
        all.extend(uplink.take_sent().expect("read"));
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(all.len(), wanted, "{all:?}");
    all
}

/// Packets that came to each band, and last those that were not placed.
pub(crate) fn packets(uplink: &Uplink) -> Vec<u64> {
    uplink.bands().expect("count").iter().map(|band| band.packets).collect()
}

/// A response of HTTP/1 that says `said` of a body of `body` bytes.
pub(crate) fn http(said: usize, body: usize) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {said}\r\n\r\n").into_bytes();
    response.resize(response.len() + body, b'x');
    response
}
