//! `tidegate listeners` and `tidegate guard --policy observe` as processes.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::TIDEGATE;
use netns::Namespace;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, listen, socket,
};
use serde_json::Value;

const ADDRESS: &str = "127.0.0.1:8080";
/// Nobody, without any privilege.
const NOBODY: u32 = 65534;
/// In which std sleeps.
const SLEEP: i64 = libc::SYS_clock_nanosleep;
/// Longest wait for what must happen; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace with a listener that holds two connections, which are there.
struct World {
    namespace: Namespace,
    _listener: TcpListener,
    _waiting: [TcpStream; 2],
}

impl World {
    fn create() -> Option<Self> {
        if let Err(reason) = netns::root_or_reason() {
            eprintln!("{reason}");
            return None;
        }
        let namespace = Namespace::create("listeners").expect("create");
        let listener = namespace.enter(|| listener(1)).expect("enter");
        let address: SocketAddr = ADDRESS.parse().expect("address");
        let connect = || TcpStream::connect_timeout(&address, PATIENCE).expect("there is room");
        let waiting = namespace.enter(|| [connect(), connect()]).expect("enter");
        Some(Self { namespace, _listener: listener, _waiting: waiting })
    }

    /// A SYN that the kernel drops, because the queue is full. Its client would repeat it.
    fn knock(&self) {
        self.namespace
            .enter(|| {
                let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
                let fd = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("socket");
                let address: SocketAddr = ADDRESS.parse().expect("address");
                connect(fd.as_raw_fd(), &SockaddrStorage::from(address)).expect_err("it is not answered");
            })
            .expect("enter");
    }

    fn kernel_drops(&self) -> u64 {
        netns::namespace_counters(&self.namespace).expect("read")["TcpExt.ListenDrops"]
    }
}

fn listener(backlog: i32) -> TcpListener {
    let address: SocketAddr = ADDRESS.parse().expect("address");
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("socket");
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).expect("bind");
    listen(&fd, Backlog::new(backlog).expect("backlog")).expect("listen");
    TcpListener::from(fd)
}

fn run(arguments: &[&str]) -> Output {
    Command::new(TIDEGATE).arg("listeners").args(arguments).output().expect("run tidegate")
}

fn json_lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn root_listener_of_another_namespace_is_listed_with_its_load_and_owner() {
    let Some(world) = World::create() else { return };
    let lines = json_lines(&run(&["--json"]));
    let is_ours = |line: &&Value| line["netns"]["name"] == world.namespace.name();
    let [line] = lines.iter().filter(is_ours).collect::<Vec<_>>()[..] else {
        panic!("one listener is there: {lines:?}");
    };
    assert_eq!((&line["listen"], &line["event"]), (&ADDRESS.into(), &"listener".into()));
    assert_eq!(
        (&line["accept_qlen"], &line["accept_limit"], &line["syn_qlen"]),
        (&2.into(), &1.into(), &0.into())
    );
    let owners = line["owners"].as_array().expect("owners");
    assert!(owners.iter().any(|owner| owner["pid"] == std::process::id()), "{line}");
    // The table says the same, and the full queue comes before all that are not.
    let table = String::from_utf8(run(&[]).stdout).expect("UTF-8");
    let row = table.lines().find(|row| row.contains(world.namespace.name())).expect("a row");
    assert!(row.contains(ADDRESS) && row.contains(" 2/1 ") && row.contains(" 0/1 "), "{table}");
    assert!(table.starts_with(" listener "), "{table}");
}

#[test]
fn root_listener_of_the_host_has_the_name_by_which_a_guard_elsewhere_finds_it() {
    let Some(world) = World::create() else { return };
    if netns::path_of(netns::HOST) != std::path::Path::new("/proc/1/ns/net") {
        return eprintln!("{} is a name of ip netns here", netns::HOST);
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("bound").to_string();
    // A host whose process 1 is the shell, and in our network namespace.
    let on_host = |script: &str| {
        let unshare = ["--pid", "--fork", "--mount-proc", "sh", "-c", script];
        Command::new("unshare").args(unshare).output().expect("run unshare")
    };
    let lines = json_lines(&on_host(&format!("{TIDEGATE} listeners --json; exit $?")));
    let line = lines.iter().find(|line| line["listen"] == address).expect("it listens");
    assert_eq!(line["netns"]["name"], "host");
    let guard = |more: &str| {
        let elsewhere = world.namespace.path();
        let guard = format!("{TIDEGATE} guard --interface lo --check --listen {address} {more}");
        on_host(&format!("nsenter --net={} {guard}; exit $?", elsewhere.display()))
    };
    let refused = String::from_utf8(guard("").stderr).expect("UTF-8");
    assert!(refused.contains("if that is meant, add --netns host"), "{refused}");
    let checked = guard("--netns host");
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "1 listener can be guarded here\n", "{checked:?}");
}

#[test]
fn root_watch_counts_what_happens_meanwhile() {
    let Some(world) = World::create() else { return };
    world.knock();
    let before = world.kernel_drops();
    let mut child = start(&["listeners", "--watch", "1h", "--json"]);
    wait_until_it_sleeps(&child);
    world.knock();
    nix::sys::signal::kill(pid(&child), nix::sys::signal::Signal::SIGINT).expect("signal");
    let out = BufReader::new(child.stdout.take().expect("piped"));
    let lines: Vec<Value> =
        out.lines().map(|line| serde_json::from_str(&line.expect("read")).expect("JSON")).collect();
    assert!(child.wait().expect("wait").success());
    let line = lines.iter().find(|line| line["netns"]["name"] == world.namespace.name()).expect("it listens");
    let dropped = world.kernel_drops() - before;
    assert_eq!(line["drops"], dropped, "not the one from before: {line}");
    assert_eq!(line["counters"]["listenq_overflow_acks"].as_u64().unwrap_or(0), 0);
    // Where the kernel lacks the hook it is null, and a line says so.
    match line["counters"]["listenq_full_at_syn"].as_u64() {
        Some(count) => assert_eq!(count, dropped),
        None => assert!(lines.iter().any(|line| line["event"] == "missing"), "{lines:?}"),
    }
}

#[test]
fn root_killed_watcher_leaves_no_program_behind() {
    let Some(_world) = World::create() else { return };
    let mut child = start(&["listeners", "--watch", "1h"]);
    wait_until_it_sleeps(&child);
    let links = links(&child);
    assert!(!links.is_empty(), "the lister at least is a link");
    child.kill().expect("kill");
    child.wait().expect("wait");
    let begin = Instant::now();
    for id in links {
        while bpf::link_exists(id) {
            assert!(begin.elapsed() < PATIENCE, "link {id} is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

#[test]
fn without_privileges_the_list_is_what_proc_shows_and_says_what_is_missing() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = socket.local_addr().expect("address").to_string();
    let mut command = Command::new(TIDEGATE);
    command.args(["listeners", "--json"]);
    if nix::unistd::geteuid().is_root() {
        std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
    }
    let lines = match command.output() {
        Ok(output) => json_lines(&output),
        Err(error) => return eprintln!("skipped: nobody may not run {TIDEGATE}: {error}"),
    };
    let line = lines.iter().find(|line| line["listen"] == *address).expect("it listens");
    assert_eq!((&line["accept_qlen"], &line["accept_limit"]), (&0.into(), &Value::Null));
    assert_eq!((&line["counters"], &line["drops"]), (&Value::Null, &Value::Null));
    let gaps: Vec<&Value> = lines.iter().filter(|line| line["event"] == "missing").collect();
    assert!(gaps.iter().any(|gap| gap["what"].as_str().expect("text").contains("CAP_BPF")), "{gaps:?}");
}

#[test]
fn root_observed_listener_shows_its_queues_and_drops_and_nothing_is_attached() {
    let Some(world) = World::create() else { return };
    let mut command = world.namespace.command(TIDEGATE).expect("command");
    let arguments = ["guard", "--listen", ADDRESS, "--policy", "observe", "--json", "--duration", "1h"];
    let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("start tidegate");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut next = || {
        let mut line = String::new();
        assert_ne!(out.read_line(&mut line).expect("read"), 0, "tidegate has ended");
        serde_json::from_str::<Value>(&line).expect("JSON")
    };
    let attached = next();
    assert_eq!((&attached["event"], &attached["policy"]), (&"attached".into(), &"observe".into()));
    assert_eq!(attached["hooks"].as_array().map(Vec::len), Some(0), "no interface, no program");
    world.knock();
    let dropped = world.kernel_drops();
    let sample = next();
    assert_eq!((&sample["accept_qlen"], &sample["accept_limit"]), (&2.into(), &1.into()));
    assert_eq!(sample["drops"], dropped);
    let count = &sample["counters"]["listenq_full_at_syn"];
    assert!(*count == dropped || count.is_null(), "{sample}");
    assert!(
        sample["syns"].is_null() && sample["passed"].is_null(),
        "no program of ours saw a frame: {sample}"
    );
    child.kill().expect("kill");
    child.wait().expect("wait");
}

fn start(arguments: &[&str]) -> Child {
    Command::new(TIDEGATE).args(arguments).stdout(Stdio::piped()).spawn().expect("start tidegate")
}

fn pid(child: &Child) -> nix::unistd::Pid {
    nix::unistd::Pid::from_raw(child.id().cast_signed())
}

/// Waits until the process holds a link, and has then read its first list: it sleeps.
fn wait_until_it_sleeps(child: &Child) {
    let begin = Instant::now();
    let is_asleep = || {
        let file = std::fs::read_to_string(format!("/proc/{}/syscall", child.id())).unwrap_or_default();
        let number = file.split(' ').next().and_then(|word| word.parse().ok());
        number == Some(SLEEP) && !links(child).is_empty()
    };
    while !is_asleep() {
        assert!(begin.elapsed() < PATIENCE, "it never came to wait");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn links(child: &Child) -> Vec<u32> {
    bpf::link_ids_of_process(child.id()).expect("it runs")
}
