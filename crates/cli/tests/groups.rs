//! A guard of a container hangs at the control group of its server, so that many fit on a host.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use bpf::cgroup::{Hook, attached_at};

use crate::common::*;

const LISTEN: &str = "10.8.0.2:8081";

/// Programs of guards that hang there.
fn programs(group: &ControlGroup) -> usize {
    attached_at(&group.0, Hook::SocketOps).expect("ask").len()
}

fn serve(world: &World, group: &ControlGroup) -> Running {
    let script =
        format!("echo $$ >{}/cgroup.procs; exec {TIDEGATE} serve --listen {LISTEN}", group.0.display());
    let mut server = world.server.command("sh").expect("command");
    let server = Running(server.args(["-c", &script]).stdout(Stdio::null()).spawn().expect("start a server"));
    wait_until("an answer", || ask(world));
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

#[test]
fn root_guard_of_a_container_hangs_at_its_servers_group_also_when_that_is_another_or_made_anew() {
    let Some(world) = World::create() else { return };
    let Some(first) = ControlGroup::create("first") else { return };
    let Some(second) = ControlGroup::create("second") else { return };
    let server = serve(&world, &first);
    let mut guard = Command::new(TIDEGATE);
    guard.args(["guard", "--netns", world.server.name(), "--listen", LISTEN, "--json", "--state", "none"]);
    let mut guard = Running(guard.stdout(Stdio::piped()).spawn().expect("start a guard"));
    let mut lines = std::io::BufReader::new(guard.0.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    assert_eq!((programs(&first), programs(&second)), (1, 0));
    let mut is_answer_seen = |least: u64| {
        wait_until("an answer that the guard has seen", || {
            assert!(ask(&world));
            next_event(&mut lines)["service"]["answered"].as_u64().is_some_and(|answered| answered > least)
        });
    };
    is_answer_seen(0);
    drop(server);
    let server = serve(&world, &second);
    wait_until("the program is at the other group", || programs(&second) == 1);
    // As of a service that restarts.
    drop((server, second));
    let second = ControlGroup::create("second").expect("as before");
    let _server = serve(&world, &second);
    wait_until("the program is at the group that was made anew", || programs(&second) == 1);
    is_answer_seen(20);
    drop(guard);
    wait_until("no program is left", || programs(&first) + programs(&second) == 0);
}
