//! Who waits for the server, and who does not, on a real kernel.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::common::frame::{Segment, checksum};
use crate::common::*;
use guard::{Attach, Config, Guard, Listener, ListenerSample, ListenerStats, Policy, ServerSample};

const LISTEN: &str = "10.9.0.2:8080";
const OTHER: &str = "10.9.0.2:8081";
/// How long each handshake takes, and a little longer.
const TOOK: Duration = Duration::from_millis(40);
/// Longest wait for what must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Of the client's and the server's socket.
type End = fn(TcpStream, TcpStream);

struct Followed<'a> {
    world: &'a World,
    guard: Guard,
}

fn follow<'a>(world: &'a World, policy: &str) -> Followed<'a> {
    follow_all(world, &[LISTEN], policy)
}

fn follow_all<'a>(world: &'a World, listens: &[&str], policy: &str) -> Followed<'a> {
    let named =
        |listen: &&str| Listener::new(listen.parse().expect("address"), policy.parse().expect("policy"));
    let listeners = listens.iter().map(named).collect();
    let config = Config { listeners, interfaces: vec!["s0".to_owned()], ..Config::default() };
    let guard = world.server.enter(|| Guard::start(&config)).expect("enter").expect("start");
    Followed { world, guard }
}

impl Followed<'_> {
    fn first(&self) -> ListenerSample {
        let mut sample = self.world.server.enter(|| self.guard.sample()).expect("enter").expect("sample");
        sample.listeners.swap_remove(0)
    }

    fn service(&self) -> ServerSample {
        self.first().service.expect("its policy asks")
    }

    fn stats(&self) -> ListenerStats {
        self.first().stats
    }

    #[track_caller]
    fn wait(&self, what: &str, holds: impl Fn(&ServerSample) -> bool) -> ServerSample {
        let start = Instant::now();
        loop {
            let service = self.service();
            if holds(&service) {
                return service;
            }
            assert!(start.elapsed() < PATIENCE, "waited for {what}: {service:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A listener with room.
fn listen(world: &World) -> TcpListener {
    world.server.enter(|| TcpListener::bind(LISTEN)).expect("enter").expect("bind")
}

fn connect(world: &World, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = world.connect(LISTEN).expect("there is room");
    let (server, _) = listener.accept().expect("one waits");
    (client, server)
}

#[test]
fn root_reload_that_asks_who_waits_follows_from_then_on() {
    let Some(world) = World::create() else { return };
    let listener = listen(&world);
    let mut followed = follow(&world, "rst-syn");
    assert_eq!(followed.first().service, None, "nobody asks");
    let _before = connect(&world, &listener);
    let policy = "rst-syn+unserved:5".parse().expect("policy");
    let listeners = vec![Listener::new(LISTEN.parse().expect("address"), policy)];
    let config = Config { listeners, interfaces: vec!["s0".to_owned()], ..Config::default() };
    let guard = &mut followed.guard;
    world.server.enter(|| guard.reload(&config)).expect("enter").expect("reload");
    world.server.enter(|| guard.pace()).expect("enter").expect("look");
    let _after = connect(&world, &listener);
    followed.wait("the connection after the reload", |service| service.silent + service.waiting == 1);
}

#[test]
fn root_connection_waits_from_its_request_to_the_first_byte_of_the_response() {
    let Some(world) = World::create() else { return };
    let listener = listen(&world);
    let followed = follow(&world, "rst-syn+unserved:100");
    let client = world.connect(LISTEN).expect("there is room");
    followed.wait("a connection in the queue", |service| service.silent == 1);
    let (mut client, mut server) = (client, listener.accept().expect("one waits").0);
    client.write_all(b"GET").expect("send");
    followed.wait("its request", |service| (service.silent, service.waiting, service.counted) == (0, 1, 1));
    server.read_exact(&mut [0; 3]).expect("receive");
    assert_eq!(followed.service().waiting, 1, "to be read is not to be answered");
    server.write_all(b"200").expect("answer");
    let after = followed.service();
    assert_eq!((after.silent, after.waiting, after.counted), (0, 0, 0));
    assert_eq!((after.established, after.answered, after.answered_silent, after.ended), (1, 1, 0, 0));
    assert!(after.response_time > Duration::ZERO && after.response_time < PATIENCE, "{after:?}");
    // What comes later is not looked at.
    client.write_all(b"GET").expect("send");
    server.write_all(b"200").expect("answer");
    drop((client, server));
    assert_eq!(followed.service(), after);
}

#[test]
fn root_server_is_idle_until_somebody_comes() {
    const CALM: Duration = Duration::from_millis(50);
    let Some(world) = World::create() else { return };
    let listener = listen(&world);
    let followed = follow(&world, "rst-syn+unserved:100+first-byte");
    std::thread::sleep(CALM);
    let (_client, mut server) = connect(&world, &listener);
    server.write_all(b"220 ready").expect("speak");
    let idle_time = followed.service().idle_time;
    assert!(idle_time >= CALM, "{idle_time:?}");
}

#[test]
fn root_server_that_speaks_first_is_seen_as_one() {
    let Some(world) = World::create() else { return };
    let listener = listen(&world);
    let followed = follow(&world, "rst-syn+unserved:100");
    let (_client, mut server) = connect(&world, &listener);
    server.write_all(b"220 ready").expect("speak");
    let after = followed.service();
    assert_eq!((after.answered, after.answered_silent, after.silent), (1, 1, 0));
}

#[test]
fn root_every_end_of_a_connection_ends_its_wait() {
    let Some(world) = World::create() else { return };
    let listener = listen(&world);
    let followed = follow(&world, "rst-syn+unserved:100");
    let ends: [(&str, End); 5] = [
        ("the server closes", |client, server| {
            drop(server);
            drop(client);
        }),
        ("both close their halves", |client, server| {
            client.shutdown(Shutdown::Write).expect("FIN");
            drop(server);
            drop(client);
        }),
        ("the server resets, with a request unread", |mut client, server| {
            client.write_all(b"GET").expect("send");
            // So that it is there when the server closes.
            server.peek(&mut [0; 3]).expect("receive");
            drop(server);
            drop(client);
        }),
        ("the client resets", |client, server| {
            abort(client);
            let _ = (&server).read(&mut [0; 1]);
            drop(server);
        }),
        ("the client resets after its request", |mut client, server| {
            client.write_all(b"GET").expect("send");
            server.peek(&mut [0; 3]).expect("receive");
            abort(client);
            drop(server);
        }),
    ];
    for (number, (what, end)) in (1..).zip(ends) {
        let (client, server) = connect(&world, &listener);
        end(client, server);
        let is_over =
            |service: &ServerSample| service.ended == number && service.silent + service.waiting == 0;
        let after = followed.wait(what, is_over);
        assert_eq!((after.established, after.answered), (number, 0), "{what}");
    }
    // Never accepted: the listener takes it along.
    let _client = world.connect(LISTEN).expect("there is room");
    followed.wait("one in the queue", |service| service.silent == 1);
    close(listener);
    followed.wait("the listener's end", |service| service.ended == 6 && service.silent == 0);
}

/// Ends a connection with RST.
fn abort(stream: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    nix::sys::socket::setsockopt(&stream, nix::sys::socket::sockopt::Linger, &linger).expect("linger");
}

/// On a slow machine one gets in now and then, since nobody was answered for long.
fn refused(world: &World, address: &str) {
    let start = Instant::now();
    loop {
        match world.connect(address) {
            Ok(client) => drop(client),
            Err(error) => return assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        }
        assert!(start.elapsed() < PATIENCE, "nobody is refused");
    }
}

#[test]
fn root_full_server_refuses_and_takes_again_once_it_has_answered() {
    let Some(world) = World::create() else { return };
    let listener = listen(&world);
    let followed = follow(&world, "rst-syn+unserved:2");
    let mut waiting: Vec<(TcpStream, TcpStream)> = Vec::new();
    for number in 1..=2 {
        let (mut client, server) = connect(&world, &listener);
        client.write_all(b"GET").expect("send");
        waiting.push((client, server));
        followed.wait("a request", |service| service.counted == number);
    }
    refused(&world, LISTEN);
    waiting[0].1.write_all(b"200").expect("answer");
    connect(&world, &listener);
    let sample = world.server.enter(|| followed.guard.sample()).expect("enter").expect("sample");
    assert_eq!(sample.listeners[0].stats.reset, 1);
    assert_eq!(sample.listeners[0].stats.accept_full, 0, "its queue had room all the while");
}

#[test]
fn root_half_a_request_does_not_keep_others_out() {
    let Some(world) = World::create() else { return };
    let listener = listen(&world);
    let followed = follow(&world, "rst-syn+unserved:1");
    let (mut slow, _served) = connect(&world, &listener);
    slow.write_all(b"GE").expect("send");
    followed.wait("half a request", |service| service.counted == 1);
    // Nobody is answered, so that only time can tell.
    let start = Instant::now();
    let (mut client, mut server) = loop {
        match world.connect(LISTEN) {
            Ok(client) => break (client, listener.accept().expect("one waits").0),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        }
        assert!(start.elapsed() < PATIENCE, "{:?}", followed.service());
        std::thread::sleep(Duration::from_millis(10));
    };
    client.write_all(b"GET").expect("send");
    server.read_exact(&mut [0; 3]).expect("receive");
    followed.wait("a request", |service| service.waiting == 2);
    server.write_all(b"200").expect("answer");
    let after = followed.service();
    assert_eq!((after.waiting, after.answered_in_turn), (1, 1));
    // What comes of it at last waits for the server again.
    slow.write_all(b"T").expect("send");
    followed.wait("the rest", |service| (service.waiting, service.counted) == (1, 1));
}

#[test]
fn root_listeners_of_one_server_have_one_count() {
    let Some(world) = World::create() else { return };
    let listener = listen(&world);
    let _other = world.server.enter(|| TcpListener::bind(OTHER)).expect("enter").expect("bind");
    let followed = follow_all(&world, &[LISTEN, OTHER], "rst-syn+unserved:1");
    let (mut client, mut server) = connect(&world, &listener);
    client.write_all(b"GET").expect("send");
    followed.wait("a request", |service| service.counted == 1);
    refused(&world, OTHER);
    server.write_all(b"200").expect("answer");
    world.connect(OTHER).expect("nobody waits");
}

#[test]
fn root_reserved_places_are_kept_while_the_kernel_decides() {
    let Some(world) = World::create() else { return };
    let _listener = world.listen(LISTEN);
    let policy: Policy = "rst-syn+unserved".parse().expect("policy");
    let listener = Listener {
        reserved: vec!["10.9.0.77/32".parse().expect("network")],
        ..Listener::new(LISTEN.parse().expect("address"), Policy { reserved_slots: BACKLOG as u32, ..policy })
    };
    let config = Config { listeners: vec![listener], interfaces: vec!["s0".to_owned()], ..Config::default() };
    let guarded = world.guard_with(&config).expect("start");
    let _first = world.connect(LISTEN).expect("the crowd has one place");
    guarded.wait("it in the queue", |sample| sample.load.is_some_and(|load| load.accept_qlen == 1));
    let tap = world.tap();
    for number in 1..=3 {
        let before = guarded.sample();
        let change = |segment: &mut Segment| segment.source_port = 20_000 + number;
        let syn = Segment::syn("one too many", CLIENT4, SERVER4, PORT).with("of its own port", change);
        tap.send(&syn.to_bytes());
        let after = guarded.wait_more("the SYN", &before, |sample| sample.stats.seen);
        assert_eq!(after.stats.admitted, before.stats.admitted, "the others are kept");
    }
}

/// Those who fill the server's queue and wait, after a tenth of a second in which nobody did.
fn fill_after_quiet(world: &World, listener: &TcpListener, guarded: &Guarded) -> Vec<TcpStream> {
    let (mut client, mut server) = connect(world, listener);
    client.write_all(b"GET").expect("send");
    server.write_all(b"200").expect("answer");
    std::thread::sleep(Duration::from_millis(100));
    let mut waiting = world.fill(guarded);
    for client in &mut waiting {
        client.write_all(b"GET").expect("send");
    }
    waiting
}

#[test]
fn root_burst_that_may_take_no_time_is_refused_at_once() {
    let Some(world) = World::create() else { return };
    let listener = world.listen(LISTEN);
    let policy = "rst-syn+unserved+burst:0s".parse().expect("policy");
    let guarded = world.guard(LISTEN, policy, Attach::Auto, false);
    let _waiting = fill_after_quiet(&world, &listener, &guarded);
    for _ in 0..3 {
        let error = world.connect(LISTEN).expect_err("the queue is full");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

/// The kernel cannot say how long a handshake by cookie took, and a flood in which nothing is known
/// of the honest ones is one in which too many or too few are let in.
#[test]
fn root_handshake_by_cookie_is_timed() {
    let Some(world) = World::create() else { return };
    if !guard::takes_own_cookies() {
        return eprintln!("skipped: no bpf_sk_assign_tcp_reqsk in this kernel (Linux 6.9 and newer)");
    }
    let _listener = world.listen(LISTEN);
    let guarded = follow(&world, "rst-syn+unserved+cookies");
    let tap = world.tap();
    let syn = |number: u16| {
        Segment::syn("one of some", GHOST4, SERVER4, PORT)
            .with("of its own port", |segment| segment.source_port = 20_000 + number)
    };
    // One at a time, until what is full is the SYN queue, and long after the handshakes before are
    // not expected any more.
    let last = (0..).map(|number| {
        let began = Instant::now();
        let handshake = Handshake::begin_with(&tap, syn(number));
        std::thread::sleep(TOOK);
        (began, handshake)
    });
    let mut last = last.take(100);
    let (began, last) = last.find(|_| guarded.stats().cookies == 1).expect("a full SYN queue");
    tap.send(&last.end(b"").to_bytes());
    let median = guarded.wait("the end", |service| service.established == 1).handshake_median;
    assert_eq!(guarded.stats().cookies_back, 1);
    // The end of the bucket: less than twice as much.
    assert!((TOOK..2 * began.elapsed()).contains(&median), "{median:?} in {:?}", began.elapsed());
}

#[test]
fn root_router_that_says_a_packet_is_too_large_answers_nobody() {
    let Some(world) = World::create() else { return };
    let _listener = listen(&world);
    let followed = follow(&world, "rst-syn+unserved:100");
    let tap = world.tap();
    let handshake = Handshake::begin(&tap, LISTEN);
    tap.send(&handshake.end(b"GET").to_bytes());
    followed.wait("a request", |service| service.waiting == 1);
    tap.send(&too_large(&handshake));
    let start = Instant::now();
    while netns::namespace_counters(&world.server).expect("counters")["Icmp.InDestUnreachs"] == 0 {
        assert!(start.elapsed() < PATIENCE, "the router's message has not come");
    }
    let service = followed.service();
    assert_eq!(
        (service.waiting, service.answered),
        (1, 0),
        "the kernel asks for the size of a segment, and sends none"
    );
}

/// "Fragmentation needed" (RFC 1191) for what the server may have sent: from anybody who knows its
/// sequence number, as the client does.
fn too_large(handshake: &Handshake) -> Vec<u8> {
    const HEADERS: usize = 14 + 20;
    let mut sent = handshake.end(&[]);
    std::mem::swap(&mut sent.source, &mut sent.destination);
    std::mem::swap(&mut sent.source_port, &mut sent.destination_port);
    sent.seq = handshake.server_seq.wrapping_add(1);
    let mut icmp = vec![3, 4, 0, 0, 0, 0];
    icmp.extend(1000_u16.to_be_bytes());
    icmp.extend(&sent.to_bytes()[14..HEADERS + 8]);
    let sum = checksum(&icmp);
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    // In a frame of the handshake's addresses.
    let mut frame = handshake.end(&[]).to_bytes()[..HEADERS].to_vec();
    frame[14 + 2..14 + 4].copy_from_slice(&((20 + icmp.len()) as u16).to_be_bytes());
    frame[14 + 9] = 1;
    frame[14 + 10..14 + 12].fill(0);
    let sum = checksum(&frame[14..]);
    frame[14 + 10..14 + 12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(icmp);
    frame
}
