//! The count of who waits for a server is what a walk over its sockets finds, after every ending of
//! many connections.
//!
//! `TIDEGATE_ENDINGS=1000000` for as many; the guard goes and comes a hundred times then.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::common::frame::Segment;
use crate::common::*;
use guard::{Config, Guard, Listener, ServerSample};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{setsockopt, sockopt};

const LISTEN: &str = "10.9.0.2:8080";
const ENDINGS: u64 = 3_200;
const ENDINGS_PER_GUARD: u64 = 10_000;
const FEWEST_GUARDS: u64 = 10;
/// Longest wait for what must happen.
const LONG: Duration = Duration::from_secs(60);
/// Connections that are kept waiting meanwhile.
const KEPT: usize = 50;

/// How a connection ends, from the client's and the server's socket.
type Ending = fn(&mut TcpStream, &mut TcpStream);

const ANSWERED: [Ending; 3] = [
    |client, server| {
        ask(client, server);
        answer(server);
    },
    |client, server| {
        ask(client, server);
        client.shutdown(Shutdown::Write).expect("FIN");
        answer(server);
    },
    |_, server| answer(server),
];

const UNANSWERED: [Ending; 8] = [
    |_, _| {},
    |client, _| client.shutdown(Shutdown::Write).expect("FIN"),
    |client, _| abort(client),
    |_, server| abort(server),
    |client, server| {
        ask(client, server);
        abort(client);
    },
    |client, server| {
        ask(client, server);
        abort(server);
    },
    |client, server| {
        // Its bytes stay unread.
        client.write_all(b"GE").expect("send");
        server.peek(&mut [0; 1]).expect("receive");
    },
    |client, server| {
        ask(client, server);
        server.shutdown(Shutdown::Write).expect("FIN");
    },
];

fn ask(client: &mut TcpStream, server: &mut TcpStream) {
    client.write_all(b"GET").expect("send");
    server.read_exact(&mut [0; 3]).expect("receive");
}

fn answer(server: &mut TcpStream) {
    server.write_all(b"200").expect("answer");
}

/// RST when it is closed.
fn abort(stream: &mut TcpStream) {
    setsockopt(stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 }).expect("linger");
}

/// What there should be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Truth {
    established: u64,
    answered: u64,
    ended: u64,
}

struct Run<'a> {
    world: &'a World,
    listener: TcpListener,
    guard: Option<Guard>,
    /// Of this guard.
    truth: Truth,
    /// Connections that wait: client, which may be none of a kernel's, server, and whether this
    /// guard has seen them come.
    kept: VecDeque<(Option<TcpStream>, TcpStream, bool)>,
}

impl<'a> Run<'a> {
    fn new(world: &'a World) -> Self {
        let (listener, guard) = (listen(world), Some(start(world)));
        Self { world, listener, guard, truth: Truth::default(), kept: VecDeque::new() }
    }

    fn service(&self) -> ServerSample {
        let guard = self.guard.as_ref().expect("one is there");
        let sample = self.world.server.enter(|| guard.sample()).expect("enter").expect("sample");
        sample.listeners[0].service.expect("its policy asks")
    }

    /// In the client's namespace, where the test is: to enter it takes longer than to connect.
    fn connect(&self) -> TcpStream {
        TcpStream::connect(LISTEN).expect("there is room")
    }

    /// One connection to its end.
    fn end(&mut self, ending: Ending, is_answered: bool) {
        let (mut client, mut server) = (self.connect(), self.listener.accept().expect("one waits").0);
        ending(&mut client, &mut server);
        self.truth.established += 1;
        match is_answered {
            true => self.truth.answered += 1,
            false => self.truth.ended += 1,
        }
        drop(server);
        if !is_answered {
            // The client hears of the end. Its FIN could otherwise end a handshake by cookie again.
            let _ = client.read(&mut [0; 1]);
        }
    }

    /// One that waits, in place of the one that has waited longest.
    fn keep(&mut self, asks: bool) {
        let (mut client, mut server) = (self.connect(), self.listener.accept().expect("one waits").0);
        if asks {
            ask(&mut client, &mut server);
        }
        self.truth.established += 1;
        self.kept.push_back((Some(client), server, true));
        if self.kept.len() > KEPT {
            let (_, mut server, is_seen) = self.kept.pop_front().expect("it is not empty");
            answer(&mut server);
            self.truth.answered += u64::from(is_seen);
        }
    }

    /// The client goes while it is in the queue.
    fn give_up(&mut self) {
        let mut client = self.connect();
        abort(&mut client);
        drop(client);
        let (mut server, _) = self.listener.accept().expect("it is still there");
        // Until it has noticed.
        let _ = server.read(&mut [0; 1]);
        self.truth.established += 1;
        self.truth.ended += 1;
    }

    /// The listener goes with those in its queue, and another one comes.
    fn restart_server(&mut self) {
        let _queued: Vec<TcpStream> = (0..2).map(|_| self.connect()).collect();
        self.truth.established += 2;
        self.truth.ended += 2;
        let old = std::mem::replace(&mut self.listener, listen(self.world));
        close(old);
    }

    fn restart_guard(&mut self) {
        // XDP has place for one.
        drop(self.guard.take());
        self.guard = Some(start(self.world));
        self.truth = Truth::default();
        self.kept.iter_mut().for_each(|(_, _, is_seen)| *is_seen = false);
    }

    /// Holds the counts against the sockets of the server, once what was sent has come.
    #[track_caller]
    fn check(&self) {
        let seen = self.kept.iter().filter(|(_, _, is_seen)| *is_seen).count() as u64;
        let start = Instant::now();
        loop {
            let service = self.service();
            let ServerSample { established, answered, ended, silent, waiting, .. } = service;
            let is_true = Truth { established, answered, ended } == self.truth && silent + waiting == seen;
            if is_true && open_sockets(self.world) == self.kept.len() {
                return;
            }
            let sockets = open_sockets(self.world);
            assert!(
                start.elapsed() < LONG,
                "{service:?}; {:?}, {seen} kept of this guard, {} in all, and {sockets} sockets",
                self.truth,
                self.kept.len()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn listen(world: &World) -> TcpListener {
    let bind = || {
        let listener = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
            None,
        )
        .expect("socket");
        setsockopt(&listener, sockopt::ReuseAddr, &true).expect("reuse");
        setsockopt(&listener, sockopt::ReusePort, &true).expect("two at once");
        let address = nix::sys::socket::SockaddrIn::new(10, 9, 0, 2, PORT);
        nix::sys::socket::bind(std::os::fd::AsRawFd::as_raw_fd(&listener), &address).expect("bind");
        let backlog = nix::sys::socket::Backlog::new(128).expect("backlog");
        nix::sys::socket::listen(&listener, backlog).expect("listen");
        TcpListener::from(listener)
    };
    world.server.enter(bind).expect("enter")
}

fn start(world: &World) -> Guard {
    let listener =
        Listener::new(LISTEN.parse().expect("address"), "rst-syn+unserved:1000".parse().expect("policy"));
    let config = Config { listeners: vec![listener], interfaces: vec!["s0".to_owned()], ..Config::default() };
    world.server.enter(|| Guard::start(&config)).expect("enter").expect("start")
}

/// Sockets of the server whose connection is not over: ESTABLISHED and CLOSE_WAIT, as /proc says.
fn open_sockets(world: &World) -> usize {
    let read = || std::fs::read_to_string("/proc/thread-self/net/tcp").expect("read");
    let table = world.server.enter(read).expect("enter");
    let port = format!(":{PORT:04X}");
    let is_open = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next().unwrap_or_default(), words.nth(1).unwrap_or_default());
        local.ends_with(&port) && matches!(state, "01" | "08")
    };
    table.lines().filter(is_open).count()
}

#[test]
fn root_count_of_who_waits_is_what_a_walk_over_the_sockets_finds() {
    let Some(world) = World::create() else { return };
    let endings = std::env::var("TIDEGATE_ENDINGS").map_or(ENDINGS, |text| text.parse().expect("a number"));
    world.client.enter(|| end_many(&world, endings)).expect("enter");
}

fn end_many(world: &World, endings: u64) {
    let mut run = Run::new(world);
    let every = (endings / FEWEST_GUARDS).clamp(1, ENDINGS_PER_GUARD);
    for number in 0..endings {
        match number as usize % 16 {
            kind @ 0..3 => run.end(ANSWERED[kind], true),
            kind @ 3..11 => run.end(UNANSWERED[kind - 3], false),
            11 => run.give_up(),
            12 => run.keep(false),
            _ => run.keep(true),
        }
        if number % every != every - 1 {
            continue;
        }
        run.check();
        match number / every % 4 {
            0 => run.restart_server(),
            // Every handshake by a cookie, and by none.
            1 => world.server.set_sysctl("net.ipv4.tcp_syncookies", "2").expect("sysctl"),
            2 => world.server.set_sysctl("net.ipv4.tcp_syncookies", "1").expect("sysctl"),
            _ => {}
        }
        run.check();
        run.restart_guard();
    }
    for (client, mut server, is_seen) in std::mem::take(&mut run.kept) {
        answer(&mut server);
        run.truth.answered += u64::from(is_seen);
        drop((client, server));
    }
    run.check();
}

/// More than all `WAIT_WAYS` of kernel/follow.bpf.h have places for, so that what is known of some
/// stands in the storage of their sockets. Their clients are no sockets, of which a process may
/// have too few.
#[test]
fn root_more_wait_than_have_a_place_and_each_is_counted() {
    const MANY: u16 = 16_600;
    let Some(world) = World::create() else { return };
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("the limit of open descriptors");
    // A guest of `./dev kernels` begins with a hard limit of 4,096.
    let most = hard.max(u64::from(MANY) + 1000);
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("root may have as many");
    world.finish_checksums();
    let (tap, mut run) = (world.tap(), Run::new(&world));
    for port in 10_000..10_000 + MANY {
        let syn = Segment::syn("handshake", GHOST4, SERVER4, PORT);
        let handshake = Handshake::begin_with(&tap, syn.with("its port", |syn| syn.source_port = port));
        // Fewer than its policy lets wait.
        let asks = if port % 20 == 0 { &b"GET"[..] } else { b"" };
        tap.send(&handshake.end(asks).to_bytes());
        run.kept.push_back((None, run.listener.accept().expect("one waits").0, true));
        run.truth.established += 1;
    }
    run.check();
    for number in 0..MANY {
        let (_, mut server, _) = run.kept.pop_front().expect("it is not empty");
        if number % 2 == 0 {
            answer(&mut server);
            run.truth.answered += 1;
        } else {
            run.truth.ended += 1;
        }
    }
    run.check();
    // Another one is counted as ever.
    world
        .client
        .enter(|| {
            run.end(ANSWERED[0], true);
            run.check();
        })
        .expect("enter");
}

#[test]
fn root_connection_that_times_out_waits_no_more() {
    let Some(world) = World::create() else { return };
    let mut run = Run::new(&world);
    let tap = world.tap();
    let handshake = Handshake::begin(&tap, LISTEN);
    tap.send(&handshake.end(b"GET").to_bytes());
    let (server, _) = run.listener.accept().expect("one waits");
    setsockopt(&server, sockopt::KeepAlive, &true).expect("keep alive");
    setsockopt(&server, sockopt::TcpKeepIdle, &1).expect("after a second");
    setsockopt(&server, sockopt::TcpKeepInterval, &1).expect("a second later");
    setsockopt(&server, sockopt::TcpKeepCount, &1).expect("once");
    assert_eq!(run.service().waiting, 1);
    // Its host has gone: nobody answers.
    run.truth = Truth { established: 1, answered: 0, ended: 1 };
    run.check();
}
