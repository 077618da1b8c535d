//! Random ordinary days on the running kernel: a sample of crates/sim/tests/differential.rs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use netns::{Namespace, Tap};
use nix::net::if_::if_nametoindex;
use nix::sys::signal::Signal;
use nix::sys::socket::{Backlog, listen};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use wire::{Ethernet, Flags, FourTuple, Options, Segment, SeqNumber};

const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Of senders that do not exist; the server sends what is for them to the client's namespace, which
/// drops it.
const FORGED: &str = "198.51.100.0/24";
const LONG: Duration = Duration::from_secs(8);

#[derive(Debug, Clone, Copy)]
struct Day {
    backlog: u32,
    work: Duration,
    /// Clients one by one, and how many come at once how often.
    gap: Duration,
    burst: u32,
    every: Duration,
    /// Forged SYNs at once, in the middle of each such time.
    forged: u32,
}

/// What became of the clients.
#[derive(Debug, Default)]
struct Seen {
    asked: AtomicU64,
    answered: AtomicU64,
}

impl Day {
    /// Below 70% of what the server can do.
    fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut between = |low: f64, high: f64| (low.ln() + (high / low).ln() * random.random::<f64>()).exp();
        let backlog = between(5.0, 1_000.0) as u32;
        let work_s = between(0.002, 0.02);
        let every_s = between(0.5, 3.0);
        let burst = between(4.0, (0.4 * every_s / work_s).clamp(5.0, 60.0));
        let forged = between(1.0, 1_000.0) as u32;
        let [work, gap, every] = [work_s, work_s / 0.25, every_s].map(Duration::from_secs_f64);
        Self { backlog, work, gap, burst: burst as u32, every, forged }
    }

    fn serve(self, listener: &TcpListener) {
        for mut connection in listener.incoming().flatten() {
            let mut line = String::new();
            BufReader::new(&connection).read_line(&mut line).ok();
            std::thread::sleep(self.work);
            connection.write_all(b"200\n").ok();
        }
    }

    /// Clients come for so long. All have ended when it returns.
    fn run(self, client: &Namespace, tap: &Tap) -> Seen {
        let seen = Seen::default();
        let (start, ask) = (Instant::now(), || {
            seen.asked.fetch_add(1, Ordering::Relaxed);
            let answer = || -> std::io::Result<()> {
                let mut stream = TcpStream::connect_timeout(&address(), PATIENCE)?;
                stream.write_all(b"GET\n")?;
                stream.read_exact(&mut [0; 4])
            };
            seen.answered.fetch_add(u64::from(answer().is_ok()), Ordering::Relaxed);
        });
        let clients = || {
            std::thread::scope(|scope| {
                let (mut next, mut burst, mut pulse) = (start, start, start + self.every / 2);
                while start.elapsed() < LONG {
                    let now = Instant::now();
                    if now >= next {
                        next += self.gap;
                        scope.spawn(ask);
                    }
                    if now >= burst {
                        burst += self.every;
                        (0..self.burst).for_each(|_| drop(scope.spawn(ask)));
                    }
                    if now >= pulse {
                        pulse += self.every;
                        (0..self.forged).for_each(|number| forge(tap, number));
                    }
                    let until = next.min(burst).min(pulse);
                    std::thread::sleep(until.saturating_duration_since(Instant::now()));
                }
            });
        };
        client.enter(clients).expect("enter");
        seen
    }
}

fn address() -> SocketAddr {
    ADDRESS.parse().expect("address")
}

fn forge(tap: &Tap, number: u32) {
    let source = SocketAddr::from(([198, 51, 100, number as u8], 1024 + (number >> 8) as u16));
    let tuple = FourTuple { src: source, dst: address() };
    let ethernet = Ethernet { src: [2, 0, 0, 0, 0, 1], dst: SERVER_MAC };
    let (seq, ack) = (SeqNumber(number), SeqNumber(0));
    let options = Options { mss: Some(1460), ..Options::default() };
    let syn = Segment { seq, ack, flags: Flags::SYN, window: 64_000, options, payload: &[] };
    let mut frame = vec![0; wire::frame_len(&tuple, &syn)];
    wire::emit(&mut frame, &ethernet, &tuple, &syn);
    tap.send(&frame).expect("send");
}

/// Clients that were answered of those that asked, without a guard and with one; SYNs that it
/// refused.
fn day(day: Day) -> Option<([u64; 4], u64)> {
    let world = World::create()?;
    world.server.ip(&["link", "set", "s0", "address", "02:00:00:00:00:02"]).expect("address");
    world.server.ip(&["route", "add", FORGED, "via", "10.8.0.1"]).expect("route");
    world.server.set_sysctl("net.core.somaxconn", "4096").expect("sysctl");
    let backlog = Backlog::new(day.backlog as i32).expect("a backlog");
    world.server.enter(|| listen(&world.listener, backlog)).expect("enter").expect("listen again");
    let listener = world.listener.try_clone().expect("clone");
    std::thread::spawn(move || day.serve(&listener));
    let ifindex = world.client.enter(|| if_nametoindex("c0")).expect("enter").expect("c0");
    let tap = Tap::open(&world.client, ifindex).expect("tap");
    let stock = day.run(&world.client, &tap);
    let mut command = world.server.command(TIDEGATE).expect("command");
    command.args(["guard", "--json", "--listen", ADDRESS, "--state", "none"]);
    let mut guard = command.stdout(Stdio::piped()).spawn().expect("start tidegate");
    let mut lines = BufReader::new(guard.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    let guarded = day.run(&world.client, &tap);
    signal(&guard, Signal::SIGTERM);
    let ended = loop {
        let event = next_event(&mut lines);
        if event["event"] == "final" {
            break event;
        }
    };
    assert!(guard.wait().expect("wait").success());
    // Nobody takes connections any more.
    nix::sys::socket::shutdown(world.listener.as_raw_fd(), nix::sys::socket::Shutdown::Both).ok();
    let counts = [stock.asked, stock.answered, guarded.asked, guarded.answered].map(AtomicU64::into_inner);
    Some((counts, ended["syns"]["reset"].as_u64().expect("a count")))
}

#[test]
fn root_whenever_this_kernel_answers_all_without_a_guard_nobody_is_refused_with_one() {
    let results = std::thread::scope(|scope| {
        let running: Vec<_> = (1..=6).map(|seed| scope.spawn(move || (seed, day(Day::new(seed))))).collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    let mut calm = 0;
    for (seed, result) in results {
        let Some(([asked, answered, asked_then, answered_then], reset)) = result else { return };
        let what = format!(
            "{:?}: {answered} of {asked}, {answered_then} of {asked_then}, {reset} reset",
            Day::new(seed)
        );
        println!("{what}");
        if answered == asked {
            calm += 1;
            assert_eq!((reset, answered_then), (0, asked_then), "{what}");
        }
    }
    assert!(calm >= 3, "{calm} of six days are calm without a guard");
}
