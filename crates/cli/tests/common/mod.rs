//! A world for `tidegate guard` as a process.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use netns::{Namespace, VethPair};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;

pub const TIDEGATE: &str = env!("CARGO_BIN_EXE_tidegate");
pub const ADDRESS: &str = "10.8.0.2:8080";
/// Nobody, without any privilege.
pub const NOBODY: u32 = 65534;
/// Longest wait for what must happen; only a failing test waits so long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Says so when it goes, also when the test fails: otherwise its threads would wait for ever.
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A client and a server with a listener that holds two connections.
pub struct World {
    pub client: Namespace,
    pub server: Namespace,
    pub listener: TcpListener,
}

impl World {
    pub fn create() -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let client = Namespace::create("client").expect("create client");
        let server = Namespace::create("server").expect("create server");
        VethPair::create(&client, "c0", &server, "s0").expect("create veth");
        client.ip(&["addr", "add", "10.8.0.1/24", "dev", "c0"]).expect("address");
        server.ip(&["addr", "add", "10.8.0.2/24", "dev", "s0"]).expect("address");
        // std listens with a large backlog; the kernel caps it.
        server.set_sysctl("net.core.somaxconn", "1").expect("sysctl");
        let listener = server.enter(|| TcpListener::bind(ADDRESS)).expect("enter").expect("bind");
        Some(Self { client, server, listener })
    }

    pub fn guard(&self, arguments: &[&str]) -> Command {
        let mut command = self.server.command(TIDEGATE).expect("command");
        command.args(["guard", "--listen", ADDRESS, "--policy", "rst-syn"]).args(arguments);
        command
    }

    /// Starts a guard and waits until it is attached.
    pub fn start(&self, arguments: &[&str]) -> (Child, BufReader<ChildStdout>) {
        let mut child =
            self.guard(&["--json"]).args(arguments).stdout(Stdio::piped()).spawn().expect("start tidegate");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        assert_eq!(next_event(&mut lines)["event"], "attached");
        (child, lines)
    }

    /// Connects from outside; a SYN that nobody answers ends in a timeout.
    pub fn connect(&self, timeout: Duration) -> std::io::Result<TcpStream> {
        let address: SocketAddr = ADDRESS.parse().expect("address");
        self.client.enter(|| TcpStream::connect_timeout(&address, timeout)).expect("enter")
    }

    /// Connects until the guard refuses; two connections fit the queue.
    pub fn fill(&self) -> Vec<TcpStream> {
        let mut streams = Vec::new();
        for _ in 0..10 {
            match self.connect(Duration::from_secs(5)) {
                Ok(stream) => streams.push(stream),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                    return streams;
                }
            }
        }
        panic!("the guard refuses nobody");
    }

    /// Makes a device of this kind in the server's namespace by a call of `ip`; false, with the
    /// reason printed, where the kernel has none of that kind.
    pub fn makes(&self, kind: &str, line: &str) -> bool {
        const UNKNOWN: [&str; 3] = ["Unknown device type", "Operation not supported", "open: No such file"];
        let Err(error) = self.server.ip(&line.split(' ').collect::<Vec<_>>()) else { return true };
        let error = error.to_string();
        assert!(UNKNOWN.iter().any(|why| error.contains(why)), "{line}: {error}");
        eprintln!("skipped: this kernel has no device of kind {kind}");
        false
    }

    pub fn link_details(&self) -> String {
        link_details(&self.server, "s0")
    }
}

/// Waits until `parent` has a child that is `tidegate WORD`; only a failing test waits for as long
/// as the test runner lets it.
///
/// # Panics
///
/// When `parent` ends before that.
pub fn child_of(parent: &mut Child, word: &str) -> Pid {
    loop {
        if let Some(pid) = find_child(parent.id(), word) {
            return pid;
        }
        if let Some(status) = parent.try_wait().expect("its status") {
            let mut said = String::new();
            parent.stderr.as_mut().map(|stderr| stderr.read_to_string(&mut said));
            panic!("it ended ({status}) without a child that is tidegate {word}: {said}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub fn find_child(parent: u32, word: &str) -> Option<Pid> {
    let of_parent = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        let command = std::fs::read(entry.path().join("cmdline")).ok()?;
        // After the name in parentheses: state, parent.
        let its_parent: u32 = stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()?;
        let is_it = command.split(|byte| *byte == 0).nth(1) == Some(word.as_bytes());
        (its_parent == parent && is_it).then_some(Pid::from_raw(pid))
    };
    std::fs::read_dir("/proc").expect("processes").flatten().find_map(of_parent)
}

pub fn next_event(lines: &mut impl BufRead) -> Value {
    let mut line = String::new();
    lines.read_line(&mut line).expect("read a line");
    serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"))
}

pub fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, signal).expect("signal the child");
}

/// Waits for a condition that must come to hold.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited for this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A control group below the root; it goes once its processes have gone.
pub struct ControlGroup(pub PathBuf);

impl ControlGroup {
    /// `None`, with the reason printed, where none can be made.
    pub fn create(name: &str) -> Option<Self> {
        let folder = format!("tg-{}-{name}", std::process::id());
        let root = bpf::cgroup::root("the test").map_err(|error| error.to_string());
        let create = |root: PathBuf| {
            let folder = root.join(folder);
            std::fs::create_dir(&folder).map(|()| Self(folder)).map_err(|error| error.to_string())
        };
        root.and_then(create)
            .inspect_err(|error| eprintln!("skipped: no control group can be made: {error}"))
            .ok()
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        let start = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Nothing in the list of namespaces has the process id in its name.
#[track_caller]
pub fn assert_no_namespaces_of(child: u32) {
    let output = Command::new("ip").args(["netns", "list"]).output().expect("run ip");
    let list = String::from_utf8_lossy(&output.stdout);
    assert!(!list.contains(&format!("-{child}-")), "left behind: {list}");
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What ip(8) says of an interface.
pub fn link_details(namespace: &Namespace, interface: &str) -> String {
    let mut command = namespace.command("ip").expect("command");
    let output = command.args(["-d", "link", "show", interface]).output().expect("run ip");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn ended_in_order(mut guard: Child, by: Signal) {
    signal(&guard, by);
    assert_eq!(guard.wait().expect("wait").code(), Some(0), "SIG{by}");
}

/// What an HTTP server answers, head and all.
pub fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("connect");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").expect("ask");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).expect("a reply");
    reply
}

/// A program that ends in order when this is dropped, also when a test fails.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        signal(&self.0, Signal::SIGTERM);
        self.0.wait().ok();
    }
}
