//! A guard starts, is killed, reads its file again and is taken over, while its server is at work.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use nix::sys::signal::Signal;
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, SockaddrIn};
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// Of 35 clients in a second twenty ask, five poll and ten say half of what they want.
const KINDS: [&[u8]; 7] = [b"GET\n", b"PO", b"GET\n", b"POLL\n", b"GET\n", b"PO", b"GET\n"];
const EVERY: Duration = Duration::from_micros(1_000_000 / 35);
const POLL: Duration = Duration::from_secs(10);
const STEP: Duration = Duration::from_secs(4);

#[derive(Debug, Default)]
struct Counts {
    asked: AtomicU64,
    refused: AtomicU64,
}

/// Answers each after its own time, exponential with this mean.
fn serve(listener: TcpListener, mean: Duration) {
    for (number, connection) in (1_u64..).zip(listener.incoming()) {
        let Ok(mut connection) = connection else { return };
        // Evenly spread, and the same in each run.
        let unit = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
        let work = mean.mul_f64(-(1.0 - unit).ln());
        std::thread::spawn(move || {
            let mut line = String::new();
            if BufReader::new(&connection).read_line(&mut line).is_ok() && line.ends_with('\n') {
                std::thread::sleep(if line == "POLL\n" { POLL } else { work });
                connection.write_all(b"200\n").ok();
            }
            // Until the client goes.
            connection.read_to_end(&mut Vec::new()).ok();
        });
    }
}

/// Clients, one after the other, until it is to stop.
fn ask(world: &World, counts: &Counts, stop: &AtomicBool) {
    let asking = || {
        let mut open: VecDeque<(Instant, TcpStream)> = VecDeque::new();
        let address = ADDRESS.parse().expect("address");
        let start = Instant::now();
        for (number, kind) in (0..).zip(KINDS.iter().cycle()) {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep((start + number * EVERY).saturating_duration_since(Instant::now()));
            counts.asked.fetch_add(1, Ordering::Relaxed);
            match TcpStream::connect_timeout(&address, PATIENCE).and_then(|mut stream| {
                stream.write_all(kind)?;
                Ok(stream)
            }) {
                Ok(stream) => open.push_back((Instant::now() + POLL, stream)),
                Err(_) => drop(counts.refused.fetch_add(1, Ordering::Relaxed)),
            }
            while open.front().is_some_and(|(end, _)| *end < Instant::now()) {
                open.pop_front();
            }
        }
    };
    world.client.enter(asking).expect("enter");
}

fn start(world: &World, folder: &Path, arguments: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut command = world.server.command(TIDEGATE).expect("command");
    command.args(["guard", "--json", "--config"]).arg(folder.join("guard.toml"));
    command.arg("--state").arg(folder.join("state")).args(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("start tidegate");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    (child, lines)
}

/// A world whose listener has room, and a folder with a guard's file.
fn begin() -> Option<(World, tempfile::TempDir)> {
    let world = World::create()?;
    world.server.set_sysctl("net.core.somaxconn", "128").expect("sysctl");
    // Not closed and bound again: a child of another thread's fork(2) holds it until exec(2).
    let backlog = Backlog::new(128).expect("backlog");
    socket::listen(&world.listener, backlog).expect("a second listen(2) sets the backlog");
    let folder = tempfile::tempdir().expect("folder");
    let text = format!("[[listener]]\nlisten = \"{ADDRESS}\"\n");
    std::fs::write(folder.path().join("guard.toml"), text).expect("write");
    Some((world, folder))
}

/// What of the clients was refused in each step.
fn steps(mean: Duration) -> Option<Vec<(&'static str, u64, u64)>> {
    let (world, folder) = begin()?;
    let (counts, stop) = (Counts::default(), AtomicBool::new(false));
    let listener = world.listener.try_clone().expect("clone");
    std::thread::spawn(move || serve(listener, mean));
    let mut seen = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| ask(&world, &counts, &stop));
        let mut step = |what| {
            let now = || [&counts.asked, &counts.refused].map(|count| count.load(Ordering::Relaxed));
            let before = now();
            std::thread::sleep(STEP);
            let after = now();
            seen.push((what, after[0] - before[0], after[1] - before[1]));
        };
        step("before");
        let (mut first, _lines) = start(&world, folder.path(), &[]);
        step("start");
        first.kill().expect("kill -9");
        first.wait().expect("wait");
        let (mut second, _lines) = start(&world, folder.path(), &[]);
        step("restart");
        signal(&second, Signal::SIGHUP);
        step("reload");
        let (mut third, _lines) = start(&world, folder.path(), &["--take-over", &second.id().to_string()]);
        step("take-over");
        assert!(second.wait().expect("wait").success(), "it ends when another has its place");
        signal(&third, Signal::SIGTERM);
        assert!(third.wait().expect("wait").success());
        stop.store(true, Ordering::Relaxed);
    });
    Some(seen)
}

#[test]
fn root_guard_that_starts_before_a_server_at_work_refuses_as_good_as_nobody() {
    let means = [10, 100, 2_000, 5_000].map(Duration::from_millis);
    let results = std::thread::scope(|scope| {
        let running: Vec<_> = means.map(|mean| scope.spawn(move || (mean, steps(mean)))).into();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
    });
    for (mean, steps) in results {
        let Some(steps) = steps else { return };
        println!("{mean:?}: {steps:?}");
        let sum = |of: fn(&(&str, u64, u64)) -> u64| steps.iter().map(of).sum::<u64>();
        let (asked, refused) = (sum(|step| step.1), sum(|step| step.2));
        assert!(asked > 300, "{mean:?}: {steps:?}");
        assert!(100 * refused <= asked, "before answers of {mean:?}: {steps:?}");
    }
}

#[test]
fn root_guard_goes_on_while_its_state_folder_is_stuck() {
    let Some((world, folder)) = begin() else { return };
    let (counts, stop) = (Counts::default(), AtomicBool::new(false));
    let listener = world.listener.try_clone().expect("clone");
    std::thread::spawn(move || serve(listener, Duration::from_millis(10)));
    std::thread::scope(|scope| {
        let _over = Over(&stop);
        scope.spawn(|| ask(&world, &counts, &stop));
        let (mut guard, lines) = start(&world, folder.path(), &[]);
        let page = || {
            let files = std::fs::read_dir(folder.path().join("state")).ok()?;
            files
                .flatten()
                .map(|file| file.path())
                .find(|path| path.extension().is_some_and(|of| of == "json"))
        };
        let (begin, process) = (Instant::now(), guard.id());
        // To open a pipe for writing waits for a reader, as a disk may for long.
        let make = |page: PathBuf| mkfifo(&page.with_extension(format!("{process}.new")), Mode::S_IRWXU);
        while page().is_none_or(|page| make(page).is_err()) {
            assert!(begin.elapsed() < PATIENCE, "nothing is known of the server");
            std::thread::sleep(Duration::from_millis(50));
        }
        let (sender, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || lines.lines().try_for_each(|line| sender.send(line)));
        let goes_on = (0..8).all(|_| told.recv_timeout(Duration::from_secs(5)).is_ok());
        if !goes_on {
            guard.kill().expect("kill -9");
        }
        assert!(goes_on, "it is stuck, too");
        ended_in_order(guard, Signal::SIGTERM);
    });
}

/// One that nobody waits for, until it is closed.
fn knock(address: SockaddrIn) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket::socket(AddressFamily::Inet, SockType::Stream, flags, None).ok()?;
    socket::connect(fd.as_raw_fd(), &address).err();
    Some(fd)
}

/// A server of one worker that takes two milliseconds, and four times as many clients.
#[test]
fn root_guard_that_is_killed_in_a_crowd_is_back_at_work_within_ten_seconds() {
    let Some((world, folder)) = begin() else { return };
    let (world, stop) = (Arc::new(world), Arc::new(AtomicBool::new(false)));
    let listener = world.listener.try_clone().expect("clone");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            std::thread::sleep(Duration::from_millis(2));
            connection.write_all(b"200\n").ok();
        }
    });
    let crowd = std::thread::spawn({
        let (world, stop) = (Arc::clone(&world), Arc::clone(&stop));
        move || {
            let knocking = || {
                let address = SockaddrIn::new(10, 8, 0, 2, 8080);
                let mut open = VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    open.extend((0..2).filter_map(|_| knock(address)));
                    if open.len() > 1_000 {
                        open.drain(..2);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            };
            world.client.enter(knocking).expect("enter");
        }
    });
    for what in ["start", "restart"] {
        let (mut guard, mut lines) = start(&world, folder.path(), &[]);
        let began = Instant::now();
        while next_event(&mut lines)["syns"]["reset"] == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "nobody is refused after the {what}");
        }
        guard.kill().expect("kill -9");
        guard.wait().expect("wait");
    }
    stop.store(true, Ordering::Relaxed);
    crowd.join().expect("no panic");
}
