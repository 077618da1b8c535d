//! Workers on a real veth pair of two queues. The server's kernel spreads replies over them by a
//! hash of its own; in generic XDP all come by the first.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use netns::{Namespace, VethPair, mac_text};
use tcp::Close;
use traffic::{Arrivals, Workload};

use super::*;
use crate::engine::{Config, open};
use crate::{Mode, Shard, Stacks};

const SERVER: ([u8; 4], u16) = ([10, 76, 0, 1], 80);
const RATE: f64 = 1000.0;
const DURATION: Duration = Duration::from_secs(2);
const ATTEMPTS: u64 = 2000;

/// A server behind two queues.
struct World {
    server: Namespace,
    crowd: Namespace,
}

impl World {
    fn create() -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let server = Namespace::create("server").expect("a namespace");
        let crowd = Namespace::create("crowd").expect("a namespace");
        let pair = VethPair::create_with_queues(&server, "tgs0", &crowd, "tgc0", 2).expect("a veth pair");
        for (namespace, own, other, end, peer) in [
            (&server, "10.76.0.1", "10.76.0.2", &pair.a, &pair.b),
            (&crowd, "10.76.0.2", "10.76.0.1", &pair.b, &pair.a),
        ] {
            namespace.ip(&["addr", "add", &format!("{own}/30"), "dev", &end.name]).expect("an address");
            let mac = mac_text(peer.mac);
            namespace
                .ip(&["neigh", "replace", other, "lladdr", &mac, "dev", &end.name])
                .expect("a neighbour");
        }
        server.ip(&["route", "add", "10.77.0.0/16", "via", "10.76.0.2"]).expect("a route");
        Some(Self { server, crowd })
    }

    /// Does something in the crowd's namespace while the server answers.
    fn while_served<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let listener = self.server.enter(|| TcpListener::bind(SocketAddr::from(SERVER))).expect("enter");
        let listener = listener.expect("a listener");
        listener.set_nonblocking(true).expect("an option");
        let is_over = AtomicBool::new(false);
        scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| serve(&listener, &is_over));
            }
            let result = catch_unwind(AssertUnwindSafe(|| self.crowd.enter(act)));
            is_over.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| resume_unwind(panic)).expect("enter")
        })
    }
}

/// One connection after the other. (`crates/serve` is no server for a process that forks, as other
/// tests make this one do: epoll knows a descriptor until all its copies are closed.)
fn serve(listener: &TcpListener, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        match listener.accept() {
            // Whoever goes away meanwhile is none of the server's business.
            Ok((stream, _)) => drop(answer(stream)),
            Err(_) => sleep(Duration::from_micros(200)),
        }
    }
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(1)))?;
    let (mut request, mut len) = ([0; 1024], 0);
    while !request[..len].ends_with(b"\r\n\r\n") {
        match stream.read(&mut request[len..])? {
            0 => return Ok(()),
            more => len += more,
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
}

fn config(mode: Mode, workers: usize) -> Config {
    Config {
        server: SERVER.into(),
        host: "test".to_owned(),
        path: "/".to_owned(),
        rate: RATE,
        arrivals: Arrivals::Fixed,
        bursts: None,
        shape: None,
        workload: Workload::default(),
        replay: None,
        warmup: Duration::ZERO,
        duration: DURATION,
        drain: Duration::from_secs(10),
        timeout: Duration::from_secs(10),
        abort: None,
        reuse: std::num::NonZeroU8::MIN,
        sessions: None,
        shard: Shard::WHOLE,
        close: Close::Fin,
        stacks: Stacks::default(),
        clients: "10.77.0.0/16".parse().expect("a network"),
        interface: "tgc0".to_owned(),
        mode,
        workers,
        cpus: vec![],
        coalesce: Duration::ZERO,
        seed: 1,
        server_closes_first: false,
        says_client_close: false,
        ports: None,
        users: None,
        flood: None,
    }
}

/// What an observer heard.
#[derive(Default)]
struct Heard {
    seconds: u64,
    last: Totals,
    replies: u64,
    ended: Vec<(u64, SocketAddr)>,
}

impl Heard {
    fn hear(&mut self, progress: &Progress<'_>) {
        self.last = progress.totals;
        self.replies += progress.interval.len();
    }
}

impl Observer for Heard {
    fn progress(&mut self, progress: &Progress<'_>) {
        self.seconds += 1;
        self.hear(progress);
    }

    fn last_interval(&mut self, progress: &Progress<'_>) {
        self.hear(progress);
    }

    fn wants_ended(&self) -> bool {
        true
    }

    fn ended(&mut self, attempts: &mut dyn Iterator<Item = Ended>) {
        self.ended.extend(attempts.map(|ended| (ended.user, ended.client)));
    }
}

/// What each of two workers saw, and the observer.
fn run_two(world: &World, mode: Mode) -> (Vec<CrowdSummary>, Heard) {
    world.while_served(|| {
        let stop = AtomicBool::new(false);
        let workers = open(&config(mode, 2)).expect("workers");
        let mut heard = Heard::default();
        let parts = run_all(workers, &Run::of(&stop, 2), &mut heard).expect("a run");
        (parts, heard)
    })
}

#[track_caller]
fn check_sums(parts: &[CrowdSummary], mut heard: Heard) {
    for part in parts {
        assert_eq!((part.ok, part.offered), (ATTEMPTS / 2, ATTEMPTS / 2), "{part:?}");
        assert_eq!(part.generator.frames_lost, 0, "{part:?}");
    }
    let whole = add(parts).expect("parts of one run");
    assert_eq!((whole.ok, whole.offered), (ATTEMPTS, ATTEMPTS));
    // The last replies may come after the window has closed, and are no part of its times then.
    let in_window: u64 = parts.iter().map(|part| part.response_ms.count).sum();
    assert!(in_window > 0 && in_window == whole.response_ms.count, "{in_window} {whole:?}");
    assert_eq!((whole.generator.workers, whole.window_s), (2, 2.0));
    assert_eq!((heard.last.ok, heard.last.offered, heard.replies), (ATTEMPTS, ATTEMPTS, ATTEMPTS));
    assert!(heard.seconds >= 2, "at the start, and after a second");
    heard.ended.sort();
    let users: Vec<u64> = heard.ended.iter().map(|(user, _)| *user).collect();
    assert_eq!(users, (0..ATTEMPTS).collect::<Vec<_>>());
    heard.ended.sort_by_key(|(_, client)| *client);
    heard.ended.dedup_by_key(|(_, client)| *client);
    assert_eq!(heard.ended.len() as u64, ATTEMPTS, "no endpoint was used twice");
}

#[test]
fn root_two_workers_hand_over_what_is_the_others_and_all_is_answered() {
    let Some(world) = World::create() else { return };
    let (parts, heard) = run_two(&world, Mode::Native);
    for health in parts.iter().map(|part| &part.generator) {
        assert!(health.frames_handed_over > 0, "{health:?}");
        assert!(health.frames_handed_over < health.frames_received, "{health:?}");
    }
    check_sums(&parts, heard);
}

#[test]
fn root_worker_whose_queue_is_silent_hears_from_the_other() {
    let Some(world) = World::create() else { return };
    let (parts, heard) = run_two(&world, Mode::Generic);
    let (first, second) = (&parts[0].generator, &parts[1].generator);
    assert!(first.frames_handed_over > 0 && second.frames_received == 0, "{first:?} {second:?}");
    check_sums(&parts, heard);
}

#[test]
fn root_two_workers_over_packet_sockets_take_their_own_of_what_both_hear() {
    let Some(world) = World::create() else { return };
    let (parts, heard) = run_two(&world, Mode::Packet);
    assert!(parts.iter().all(|part| part.generator.frames_handed_over == 0), "{parts:?}");
    let received: u64 = parts.iter().map(|part| part.generator.frames_received).sum();
    assert!(received < 6 * ATTEMPTS, "each frame is counted by one: {received}");
    check_sums(&parts, heard);
}

#[test]
fn root_one_worker_hears_both_queues() {
    let Some(world) = World::create() else { return };
    let summary = world.while_served(|| {
        let stop = AtomicBool::new(false);
        crate::run(&config(Mode::Native, 1), &stop, &mut |_: &Progress<'_>| {}).expect("a run")
    });
    assert_eq!((summary.ok, summary.offered), (ATTEMPTS, ATTEMPTS), "{summary:?}");
    let health = &summary.generator;
    assert_eq!((health.workers, health.frames_lost), (1, 0));
    // Attempts are 1 ms apart, so that none leaves with another; what follows each may.
    assert!((ATTEMPTS..=health.frames_sent).contains(&health.turns), "{health:?}");
    assert!(health.busy_share > 0.0 && health.busy_share < 1.0, "{health:?}");
}

#[test]
fn root_part_of_a_crowd_keeps_its_name_whoever_sends_it() {
    let Some(world) = World::create() else { return };
    let shard = Shard::new(1, 4).expect("a part");
    let config = Config { shard, ..config(Mode::Generic, 2) };
    let summary = world.while_served(|| {
        crate::run(&config, &AtomicBool::new(false), &mut |_: &Progress<'_>| {}).expect("a run")
    });
    assert_eq!((summary.shards, summary.ok), (vec!["2/4".to_owned()], ATTEMPTS / 4));
}

#[test]
fn root_stop_ends_all_workers_in_one_window() {
    let Some(world) = World::create() else { return };
    let summary = world.while_served(|| {
        let stop = AtomicBool::new(false);
        let mut seconds = 0;
        let mut observer = |_: &Progress<'_>| {
            seconds += 1;
            stop.store(seconds == 2, Ordering::Relaxed);
        };
        let config = Config { duration: Duration::from_secs(600), ..config(Mode::Generic, 2) };
        crate::run(&config, &stop, &mut observer).expect("a run")
    });
    assert!(summary.offered >= RATE as u64 && summary.window_s < 500.0, "{summary:?}");
    assert_eq!(summary.ok + summary.unfinished + summary.not_sent, summary.offered, "{summary:?}");
}

#[test]
fn root_interface_that_goes_away_ends_all_workers_and_is_said() {
    let Some(world) = World::create() else { return };
    let error = world.while_served(|| {
        let mut seconds = 0;
        let mut observer = |_: &Progress<'_>| {
            seconds += 1;
            if seconds == 2 {
                world.crowd.ip(&["link", "del", "tgc0"]).expect("delete");
            }
        };
        let config = Config { duration: Duration::from_secs(600), ..config(Mode::Generic, 2) };
        let result = crate::run(&config, &AtomicBool::new(false), &mut observer);
        format!("{:#}", result.expect_err("nothing can be sent"))
    });
    assert!(error.starts_with("worker ") && error.contains("did the interface go down?"), "{error}");
}

#[test]
fn root_workers_that_cannot_be_are_refused_before_anything_is_sent() {
    let Some(world) = World::create() else { return };
    let error = |config: &Config| {
        let mut has_begun = false;
        let result = world.while_served(|| {
            crate::run(config, &AtomicBool::new(false), &mut |_: &Progress<'_>| has_begun = true)
        });
        assert!(!has_begun);
        format!("{:#}", result.expect_err("refused"))
    };
    let many = error(&config(Mode::Auto, 3));
    assert!(many.starts_with("tgc0 has 2 receive queues, so at most 2 workers"), "{many}");
    let cpus = error(&Config { cpus: vec![0], ..config(Mode::Generic, 2) });
    assert_eq!(cpus, "2 workers need as many CPUs, and the list has 1; name one for each, or none");
    let nowhere = error(&Config { cpus: vec![0, 1000], ..config(Mode::Generic, 2) });
    assert!(nowhere.starts_with("worker 2: pin to CPU 1000"), "{nowhere}");
}
