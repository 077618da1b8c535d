//! Servers that ask for rst-fin by a socket option, on a real kernel.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::*;
use guard::{Attach, Config, Listener};

const LISTEN: &str = "10.9.0.2:8080";
const SOL_TIDEGATE: i32 = 0x7467;
const TIDEGATE_RST_FIN: i32 = 1;

fn guard<'a>(world: &'a World, policy: &str, attach: Attach) -> Guarded<'a> {
    let config = Config {
        listeners: vec![Listener::new(LISTEN.parse().expect("address"), policy.parse().expect("policy"))],
        interfaces: vec!["s0".to_owned()],
        attach,
        sockopt: true,
        ..Config::default()
    };
    world.guard_with(&config).expect("start")
}

fn ask(socket: &impl AsRawFd, name: i32, value: i32) -> Result<(), Error> {
    let pointer = (&raw const value).cast();
    // SAFETY: the kernel reads four bytes.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), SOL_TIDEGATE, name, pointer, 4) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn asked(socket: &impl AsRawFd) -> Result<i32, Error> {
    let (mut value, mut size) = (-1, 4);
    let pointer = (&raw mut value).cast();
    // SAFETY: the kernel writes four bytes at most.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), SOL_TIDEGATE, TIDEGATE_RST_FIN, pointer, &raw mut size)
    };
    if done == 0 { Ok(value) } else { Err(Error::last_os_error()) }
}

/// Connects, lets the client send FIN, and tells what the server reads.
fn close_half(world: &World, listener: &TcpListener) -> Result<usize, ErrorKind> {
    let client = world.connect(LISTEN).expect("there is room");
    let (server, _) = listener.accept().expect("one waits");
    end(&client, server)
}

fn end(client: &TcpStream, mut server: TcpStream) -> Result<usize, ErrorKind> {
    client.shutdown(Shutdown::Write).expect("send FIN");
    server.read(&mut [0; 16]).map_err(|error| error.kind())
}

#[test]
fn root_listener_that_asks_has_its_connections_reset_by_a_fin() {
    for attach in [Attach::Tcx, Attach::Xdp] {
        let Some(world) = World::create_for(attach) else { return };
        if attach == Attach::Xdp && World::create_for(Attach::Tcx).is_none() {
            return; // the FIN stage is at tcx
        }
        let _peer = world.peer_for(attach);
        let listener = world.listen(LISTEN);
        let guarded = guard(&world, "default", attach);
        assert_eq!(close_half(&world, &listener), Ok(0), "before it asks");
        ask(&listener, TIDEGATE_RST_FIN, 1).expect("the guard allows it");
        assert_eq!(asked(&listener).expect("it was set"), 1);
        assert_eq!(close_half(&world, &listener), Err(ErrorKind::ConnectionReset));
        let stats = guarded.sample().stats;
        assert_eq!((stats.fins, stats.fins_reset), (1, 1), "{attach:?}");
    }
}

#[test]
fn root_connection_that_asks_goes_before_listener_and_policy() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN);
    let guarded = guard(&world, "rst-fin", Attach::Tcx);
    assert_eq!(close_half(&world, &listener), Err(ErrorKind::ConnectionReset), "by the policy");
    ask(&listener, TIDEGATE_RST_FIN, 0).expect("the guard allows it");
    assert_eq!(close_half(&world, &listener), Ok(0), "the listener wants none");
    let client = world.connect(LISTEN).expect("there is room");
    let (server, _) = listener.accept().expect("one waits");
    assert_eq!(asked(&server).expect("inherited"), 0);
    ask(&server, TIDEGATE_RST_FIN, 2).expect("the guard allows it");
    assert_eq!(end(&client, server), Err(ErrorKind::ConnectionReset), "the connection does");
    assert_eq!(guarded.sample().stats.fins_reset, 2);
}

#[test]
fn root_wrong_option_is_refused_and_none_is_known_after_the_guard() {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let listener = world.listen(LISTEN);
    let errno = |result: Result<(), Error>| result.expect_err("refused").raw_os_error();
    let guarded = guard(&world, "default", Attach::Tcx);
    assert_eq!(asked(&listener).expect("known"), 0, "nothing was asked");
    assert_eq!(errno(ask(&listener, TIDEGATE_RST_FIN, 3)), Some(libc::EINVAL));
    assert_eq!(errno(ask(&listener, TIDEGATE_RST_FIN, -1)), Some(libc::EINVAL));
    assert_eq!(errno(ask(&listener, 2, 1)), Some(libc::ENOPROTOOPT));
    assert_eq!(asked(&listener).expect("known"), 0, "and nothing was set");
    ask(&listener, TIDEGATE_RST_FIN, 1).expect("allowed");
    assert_eq!(asked(&listener).expect("known"), 1);
    drop(guarded);
    // The kernel detaches a moment after the last descriptor was closed.
    let is_unknown = || asked(&listener).is_err();
    assert!((0..100).any(|_| is_unknown() || sleep_a_little()), "{:?}", asked(&listener));
}

fn sleep_a_little() -> bool {
    std::thread::sleep(std::time::Duration::from_millis(20));
    false
}

struct Example(Child);

impl Drop for Example {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Starts a server of examples/ and reads what it prints.
fn start(world: &World, command: &mut Command) -> (Example, impl FnMut() -> String) {
    command.arg(PORT.to_string()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = world.server.enter(|| command.spawn()).expect("enter").expect("start the example");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    (Example(child), move || lines.next().expect("it prints").expect("text"))
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

fn example_is_granted_rst_fin(command: &mut Command) {
    let Some(world) = World::create_for(Attach::Tcx) else { return };
    let guarded = guard(&world, "default", Attach::Tcx);
    let (_example, mut line) = start(&world, command);
    assert_eq!(line(), "rst-fin is granted");
    let client = world.connect(LISTEN).expect("it listens");
    client.shutdown(Shutdown::Write).expect("send FIN");
    assert_eq!(line(), "the client's FIN has reset the connection");
    assert_eq!(guarded.sample().stats.fins_reset, 1);
}

#[test]
fn root_python_example_is_granted_rst_fin() {
    if !has("python3") {
        return eprintln!("skipped: no python3 here");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rst_fin.py");
    example_is_granted_rst_fin(Command::new("python3").arg(path));
}

#[test]
fn root_c_example_is_granted_rst_fin() {
    if !has("cc") {
        return eprintln!("skipped: no cc here");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (source, program) = (
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/rst_fin.c"),
        folder.path().join("rst_fin"),
    );
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-o"]).arg(&program).arg(&source);
    assert!(cc.status().expect("run cc").success());
    example_is_granted_rst_fin(&mut Command::new(program));
}
