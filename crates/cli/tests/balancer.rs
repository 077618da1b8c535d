//! A real HAProxy before guarded servers: what it makes of the guard's agent-check.

use std::fs;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use netns::{Namespace, VethPair};
use nix::sys::signal::Signal;

use crate::common::*;

/// Where Debian has it.
const HAPROXY: &str = "/usr/sbin/haproxy";
const AGENT_PORT: u16 = 9777;
const CLIENTS: usize = 8;

struct Balanced {
    folder: tempfile::TempDir,
    proxy: Namespace,
    servers: [Namespace; 2],
    /// What each request takes at the second server, milliseconds.
    slow_takes_ms: Arc<AtomicU64>,
    _haproxy: Running,
}

impl Balanced {
    /// Two servers that take a millisecond for a request.
    fn create() -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        if !Path::new(HAPROXY).exists() {
            eprintln!("skipped: no {HAPROXY} here");
            return None;
        }
        let proxy = Namespace::create("proxy").expect("create");
        let servers = ["a", "b"].map(|name| Namespace::create(name).expect("create"));
        let takes_ms = [1, 1].map(|ms| Arc::new(AtomicU64::new(ms)));
        for (number, (server, takes_ms)) in servers.iter().zip(&takes_ms).enumerate() {
            let interface = format!("p{number}");
            VethPair::create(&proxy, &interface, server, "s0").expect("create veth");
            proxy.ip(&["addr", "add", &format!("10.8.{number}.1/24"), "dev", &interface]).expect("address");
            server.ip(&["addr", "add", &format!("10.8.{number}.2/24"), "dev", "s0"]).expect("address");
            let listener = server.enter(|| TcpListener::bind(listen(number))).expect("enter").expect("bind");
            let takes_ms = Arc::clone(takes_ms);
            std::thread::spawn(move || listener.incoming().for_each(|client| drop(serve(client, &takes_ms))));
        }
        let folder = tempfile::tempdir().expect("folder");
        let configuration = folder.path().join("haproxy.cfg");
        fs::write(&configuration, configuration_of(&folder.path().join("socket"))).expect("write");
        let mut command = proxy.command(HAPROXY).expect("command");
        let haproxy = Running(command.args(["-q", "-db", "-f"]).arg(configuration).spawn().expect("start"));
        let [_, slow_takes_ms] = takes_ms;
        let balanced = Self { folder, proxy, servers, slow_takes_ms, _haproxy: haproxy };
        wait_until("HAProxy answers", || UnixStream::connect(balanced.folder.path().join("socket")).is_ok());
        Some(balanced)
    }

    /// A guard of a server, and its file.
    fn guard(&self, number: usize) -> (Child, PathBuf) {
        let file = self.folder.path().join(format!("{number}.toml"));
        write_guards(&file, number, false);
        let mut command = self.servers[number].command(TIDEGATE).expect("command");
        let agent = format!("10.8.{number}.2:{AGENT_PORT}");
        command.args(["guard", "--json", "--state", "none", "--agent-check", &agent, "--config"]).arg(&file);
        let mut guard = command.stdout(Stdio::piped()).spawn().expect("start");
        let mut lines = BufReader::new(guard.stdout.take().expect("piped"));
        assert_eq!(next_event(&mut lines)["event"], "attached");
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        (guard, file)
    }

    /// Whether HAProxy drains the second server, and the weight of 100 that it has.
    fn slow_server(&self) -> (bool, u32) {
        let mut socket = UnixStream::connect(self.folder.path().join("socket")).expect("connect");
        socket.write_all(b"show stat\n").expect("ask");
        let mut table = String::new();
        socket.read_to_string(&mut table).expect("a table");
        let mut rows = table.trim_start_matches("# ").lines().map(|row| row.split(',').collect::<Vec<_>>());
        let head = rows.next().expect("a head");
        let row = rows.find(|row| row.get(..2) == Some(&["web", "b"])).expect("the server");
        let field = |name| row[head.iter().position(|of| *of == name).expect("a column")];
        (field("status").starts_with("DRAIN"), field("weight").parse().expect("a weight"))
    }

    /// Requests that were answered, and others, until it is over.
    fn ask(&self, is_over: &AtomicBool, good: &AtomicU64, bad: &AtomicU64) {
        let ask = || {
            let mut stream = TcpStream::connect("127.0.0.1:80")?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok::<bool, std::io::Error>(reply.starts_with("HTTP/1.1 200 "))
        };
        let all = || {
            while !is_over.load(Ordering::Relaxed) {
                let count = if ask().unwrap_or(false) { good } else { bad };
                count.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(30));
            }
        };
        self.proxy.enter(all).expect("enter");
    }
}

/// One request after the other, each after a wait as for a disk.
fn serve(client: std::io::Result<TcpStream>, takes_ms: &AtomicU64) -> std::io::Result<()> {
    let mut client = client?;
    client.set_read_timeout(Some(PATIENCE))?;
    let _ = client.read(&mut [0; 1024])?;
    std::thread::sleep(Duration::from_millis(takes_ms.load(Ordering::Relaxed)));
    client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
}

fn listen(number: usize) -> String {
    format!("10.8.{number}.2:8080")
}

fn configuration_of(socket: &Path) -> String {
    let server = |name: &str, number: usize| {
        let listen = listen(number);
        format!(
            "  server {name} {listen} weight 100 agent-check agent-addr 10.8.{number}.2 agent-port {AGENT_PORT} agent-inter 500ms\n"
        )
    };
    format!(
        "global\n  nbthread 1\n  stats socket {}\n\
         defaults\n  mode http\n  option http-server-close\n  option redispatch 1\n  retries 3\n\
         \x20 timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
         listen web\n  bind 127.0.0.1:80\n  balance roundrobin\n{}{}",
        socket.display(),
        server("a", 0),
        server("b", 1)
    )
}

fn write_guards(file: &Path, number: usize, drain: bool) {
    let listen = listen(number);
    let text = format!(
        "interfaces = [\"s0\"]\n[[listener]]\nlisten = \"{listen}\"\npolicy = \"rst-syn+unserved+burst:0s\"\ndrain = {drain}\n"
    );
    fs::write(file, text).expect("write");
}

#[test]
fn root_haproxy_spares_the_slow_server_drains_it_on_request_and_hears_the_guard_end() {
    let Some(balanced) = Balanced::create() else { return };
    let (fast, _) = balanced.guard(0);
    let _fast = Running(fast);
    let (slow, file) = balanced.guard(1);
    let slow = Running(slow);

    let (is_over, good, bad) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for _ in 0..CLIENTS {
            scope.spawn(|| balanced.ask(&is_over, &good, &bad));
        }
        // Both guards see what is usual.
        wait_until("all is answered", || good.load(Ordering::Relaxed) > 1000);
        assert_eq!(balanced.slow_server(), (false, 100));
        balanced.slow_takes_ms.store(20, Ordering::Relaxed);
        wait_until("the slow server gets a quarter", || balanced.slow_server().1 <= 25);
    });
    let (good, bad) = (good.into_inner(), bad.into_inner());
    assert!(bad * 20 < good, "{good} were answered, and {bad} not");

    write_guards(&file, 1, true);
    signal(&slow.0, Signal::SIGHUP);
    wait_until("it is drained", || balanced.slow_server().0);
    write_guards(&file, 1, false);
    signal(&slow.0, Signal::SIGHUP);
    wait_until("it is ready again", || !balanced.slow_server().0);

    // A weight that is not whole when the guard ends.
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        for _ in 0..CLIENTS {
            scope.spawn(|| balanced.ask(&is_over, &AtomicU64::new(0), &AtomicU64::new(0)));
        }
        wait_until("it gets a part", || balanced.slow_server().1 < 100);
        drop(slow);
        wait_until("it has all of its share back", || balanced.slow_server() == (false, 100));
    });
}
