//! A guard of a container hangs at the control group of its server, so that many fit on a host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bpf::cgroup::{Hook, attached_at};

use crate::common::{PATIENCE, TIDEGATE, World, next_event};

const LISTEN: &str = "10.8.0.2:8081";

/// A control group that goes with its processes.
struct Group(PathBuf);

impl Group {
    fn create(root: &Path, name: &str) -> std::io::Result<Self> {
        let folder = root.join(format!("tg-{}-{name}", std::process::id()));
        std::fs::create_dir(&folder).map(|()| Self(folder))
    }

    /// Programs that hang here.
    fn programs(&self) -> usize {
        attached_at(&self.0, Hook::SocketOps).expect("ask").len()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that has just ended may still be in it.
        let start = Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && start.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Ended when the test does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(world: &World, group: &Group) -> Running {
    let script =
        format!("echo $$ >{}/cgroup.procs; exec {TIDEGATE} serve --listen {LISTEN}", group.0.display());
    let mut server = world.server.command("sh").expect("command");
    let server = Running(server.args(["-c", &script]).stdout(Stdio::null()).spawn().expect("start a server"));
    wait("an answer", || ask(world));
    server
}

/// Whether it answers.
fn ask(world: &World) -> bool {
    let address: SocketAddr = LISTEN.parse().expect("address");
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(5));
    let Ok(mut stream) = world.client.enter(connect).expect("enter") else { return false };
    stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").is_ok()
        && stream.read(&mut [0; 64]).is_ok_and(|got| got > 0)
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn root_guard_of_a_container_hangs_at_its_servers_group_also_when_that_is_another() {
    let Some(world) = World::create() else { return };
    let Ok(root) = bpf::cgroup::root("test") else { return eprintln!("skipped: no cgroup2 is mounted") };
    let (first, second) = match (Group::create(&root, "first"), Group::create(&root, "second")) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => {
            return eprintln!("skipped: no control group can be made: {error}");
        }
    };
    let server = serve(&world, &first);
    let mut guard = Command::new(TIDEGATE);
    guard.args(["guard", "--netns", world.server.name(), "--listen", LISTEN, "--json", "--state", "none"]);
    let mut guard = Running(guard.stdout(Stdio::piped()).spawn().expect("start a guard"));
    let mut lines = std::io::BufReader::new(guard.0.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    assert_eq!((first.programs(), second.programs()), (1, 0));
    let mut is_answer_seen = |least: u64| {
        wait("an answer that the guard has seen", || {
            assert!(ask(&world));
            next_event(&mut lines)["service"]["answered"].as_u64().is_some_and(|answered| answered > least)
        });
    };
    is_answer_seen(0);
    drop(server);
    let _server = serve(&world, &second);
    wait("the program at the other group", || second.programs() == 1);
    is_answer_seen(20);
    drop(guard);
    wait("no program", || first.programs() + second.programs() == 0);
}
