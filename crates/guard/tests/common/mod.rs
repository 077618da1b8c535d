//! Two namespaces, a veth pair, a listener that never accepts, and raw frames.

pub mod frame;
pub mod tap;

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use guard::{Attach, Config, Guard, Listener, ListenerLoad, ListenerStats, PathStats, Policy};
use netns::{Lan, Namespace, Offload, VethEnd};
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, SockaddrStorage, bind, listen, setsockopt,
    shutdown, socket, sockopt,
};
use nix::sys::time::TimeVal;

use frame::{ACK, Segment, syn_ack_to};
use tap::Tap;

/// The listener's; small, so that a test fills it with three connections.
pub const BACKLOG: usize = 2;
/// The guarded port.
pub const PORT: u16 = 8080;
/// A port where nothing listens.
pub const CLOSED_PORT: u16 = 9;
/// Longest wait for what must happen; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const SERVER4: &str = Lan::SERVER[0];
pub const SERVER6: &str = Lan::SERVER[1];
/// Addresses of the client's kernel.
pub const CLIENT4: &str = Lan::CLIENT[0];
/// Addresses behind the client's interface that no kernel owns, so that no one but the test
/// answers.
pub const GHOST4: &str = Lan::GHOST[0];
pub const GHOST6: &str = Lan::GHOST[1];
/// The same, for what must always get in.
pub const PROBE4: &str = Lan::PROBE[0];
pub const PROBE6: &str = Lan::PROBE[1];

/// Client and server, joined by c0 and s0. One for each hook that is tried: a test that runs beside
/// may hold a copy of an old link for a moment, and an interface has only one XDP program.
pub struct World {
    pub client: Namespace,
    pub server: Namespace,
    pub c0: VethEnd,
    pub s0: VethEnd,
}

impl World {
    /// `None`, with the reason printed, where kernel tests cannot run.
    pub fn create() -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let Lan { client, server, c0, s0 } = Lan::create().expect("create client and server");
        Some(Self { client, server, c0, s0 })
    }

    /// The same for tests of one hook; `None`, with the reason printed, where this kernel lacks it.
    pub fn create_for(attach: Attach) -> Option<Self> {
        let world = Self::create()?;
        let count_tcx = || bpf::count_tcx_ingress(world.s0.ifindex);
        if attach == Attach::Tcx && world.server.enter(count_tcx).expect("enter").is_err() {
            eprintln!("skipped: no tcx in this kernel (Linux 6.6 and newer)");
            return None;
        }
        Some(world)
    }

    /// A socket at `address` of the server with a backlog of [`BACKLOG`].
    pub fn listen(&self, address: &str) -> TcpListener {
        let address: SocketAddr = address.parse().expect("address");
        let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        self.server
            .enter(|| {
                let fd = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("socket");
                setsockopt(&fd, sockopt::ReuseAddr, &true).expect("reuse");
                // Ends accept(), or a test whose connection never comes would never end.
                setsockopt(&fd, sockopt::ReceiveTimeout, &TimeVal::new(PATIENCE.as_secs() as i64, 0))
                    .expect("a timeout");
                bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).expect("bind");
                listen(&fd, Backlog::new(BACKLOG as i32).expect("backlog")).expect("listen");
                TcpListener::from(fd)
            })
            .expect("enter")
    }

    /// Connects from the client's kernel.
    pub fn connect(&self, address: &str) -> std::io::Result<TcpStream> {
        let address: SocketAddr = address.parse().expect("address");
        self.client.enter(|| TcpStream::connect_timeout(&address, PATIENCE)).expect("enter")
    }

    /// Connects until the accept queue is full, and waits until the guard sees it.
    pub fn fill(&self, guarded: &Guarded) -> Vec<TcpStream> {
        let address = guarded.connect_to.clone();
        let streams = (0..=BACKLOG).map(|_| self.connect(&address).expect("there is room")).collect();
        guarded.wait("a full accept queue", |sample| {
            sample.load.is_some_and(|load| load.is_accept_queue_full())
        });
        streams
    }

    /// Starts a guard for `listen` on s0.
    pub fn guard(&self, listen: &str, policy: Policy, attach: Attach, dry_run: bool) -> Guarded<'_> {
        let listener = Listener { dry_run, ..Listener::new(listen.parse().expect("address"), policy) };
        let config = Config {
            listeners: vec![listener],
            interfaces: vec!["s0".to_owned()],
            attach,
            must_listen: true,
            ..Config::default()
        };
        self.guard_with(&config).expect("start the guard")
    }

    /// Starts a guard as configured.
    pub fn guard_with(&self, config: &Config) -> anyhow::Result<Guarded<'_>> {
        let guard = self.server.enter(|| Guard::start(config)).expect("enter")?;
        let listen = config.listeners[0].listen;
        let ip = match listen.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => SERVER4.parse().expect("address"),
            IpAddr::V6(ip) if ip.is_unspecified() => SERVER6.parse().expect("address"),
            ip => ip,
        };
        Ok(Guarded { world: self, connect_to: SocketAddr::new(ip, listen.port()).to_string(), guard })
    }

    /// What `attach` needs at the client's end: XDP_TX on veth is for peers with an XDP program.
    pub fn peer_for(&self, attach: Attach) -> Option<bpf::Link> {
        let pass = || bpf::Link::pass(self.c0.ifindex).expect("attach XDP_PASS");
        (attach == Attach::Xdp).then(|| self.client.enter(pass).expect("enter"))
    }

    /// Has the server's stack finish checksums before they reach s0, as on hardware without
    /// offload.
    pub fn finish_checksums(&self) {
        netns::set_offload(&self.server, "s0", Offload::TransmitChecksum, false).expect("switch off");
    }

    /// Makes the server's end receive what has come in 50 ms at once, as a busy NIC does; at most
    /// the first frame is received alone.
    pub fn receive_in_batches(&self) {
        // veth receives through NAPI what comes from an end that does not segment
        // (veth_skb_is_eligible_for_gro()).
        netns::set_offload(&self.client, "c0", Offload::TcpSegmentation, false).expect("switch off");
        netns::set_offload(&self.server, "s0", Offload::GenericReceive, true).expect("switch on");
        for (file, value) in [("gro_flush_timeout", "50000000"), ("napi_defer_hard_irqs", "100")] {
            self.server.write_sysfs(&format!("class/net/s0/{file}"), value).expect("write");
        }
    }

    /// A raw socket on the client's end.
    pub fn tap(&self) -> Tap {
        Tap(netns::Tap::open(&self.client, self.c0.ifindex).expect("open a tap"))
    }
}

/// Ends a listener at once. Another test may be between fork and exec with a copy of the
/// descriptor, which would keep it alive if it were only closed.
pub fn close(listener: TcpListener) {
    shutdown(listener.as_raw_fd(), Shutdown::Both).expect("shut down");
}

/// What a guard of one listener sees.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub load: Option<ListenerLoad>,
    pub stats: ListenerStats,
    pub path: PathStats,
}

/// A running guard, and where a client reaches what it guards.
pub struct Guarded<'a> {
    world: &'a World,
    connect_to: String,
    pub guard: Guard,
}

impl Guarded<'_> {
    pub fn sample(&self) -> Sample {
        let sample = self.world.server.enter(|| self.guard.sample()).expect("enter").expect("sample");
        let first = &sample.listeners[0];
        Sample { load: first.load, stats: first.stats, path: sample.path }
    }

    /// Waits until `holds`; `what` is for the failure.
    pub fn wait(&self, what: &str, holds: impl Fn(&Sample) -> bool) -> Sample {
        let start = Instant::now();
        loop {
            let sample = self.sample();
            if holds(&sample) {
                return sample;
            }
            assert!(start.elapsed() < PATIENCE, "waited for {what}: {sample:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until a counter is one more than in `before`.
    pub fn wait_more(&self, what: &str, before: &Sample, counter: impl Fn(&Sample) -> u64) -> Sample {
        self.wait(what, |sample| counter(sample) > counter(before))
    }
}

/// A SYN from a host that no kernel owns, which the server has answered.
pub struct Handshake {
    pub syn: Segment,
    pub server_seq: u32,
}

impl Handshake {
    /// With an IPv6 listener when `listen` begins with a bracket.
    pub fn begin(tap: &Tap, listen: &str) -> Self {
        let (ghost, server) = if listen.starts_with('[') { (GHOST6, SERVER6) } else { (GHOST4, SERVER4) };
        Self::begin_with(tap, Segment::syn("handshake", ghost, server, PORT))
    }

    /// With this SYN.
    pub fn begin_with(tap: &Tap, syn: Segment) -> Self {
        tap.send(&syn.to_bytes());
        let answer = tap.receive("a SYN/ACK", |frame| syn_ack_to(frame, &syn).is_some());
        let server_seq = syn_ack_to(&answer, &syn).expect("just seen");
        Self { syn, server_seq }
    }

    /// The segment that ends it.
    pub fn end(&self, payload: &[u8]) -> Segment {
        self.syn.clone().with("the end of a handshake", |segment| {
            segment.seq = segment.seq.wrapping_add(1);
            segment.ack = self.server_seq.wrapping_add(1);
            segment.flags = ACK;
            segment.tcp_options = Vec::new();
            segment.payload = payload.to_vec();
        })
    }
}
