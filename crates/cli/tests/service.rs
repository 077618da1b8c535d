//! The guard as deploy/tidegate.service starts it, without systemd: with its privileges, and what
//! it tells systemd. `./dev package --test` has the same by a real systemd, in a guest.

use std::fs;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::common::*;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/tidegate.service");
/// A second listener of the same server.
const OTHER: &str = "10.8.0.2:8081";

/// What the unit says of a key.
fn unit(key: &str) -> String {
    let unit = fs::read_to_string(UNIT).expect("read the unit");
    let value = unit.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.unwrap_or_else(|| panic!("the unit has no {key}")).to_owned()
}

/// The program, where nobody may execute it, and a configuration of both listeners.
fn installed(policy: &str) -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("let nobody in");
    let (program, file) = (folder.path().join("tidegate"), folder.path().join("guard.toml"));
    fs::copy(TIDEGATE, &program).expect("copy the program");
    let listener = |listen| format!("[[listener]]\nlisten = \"{listen}\"\npolicy = \"{policy}\"\n");
    fs::write(&file, listener(ADDRESS) + &listener(OTHER)).expect("write the configuration");
    (folder, program, file)
}

/// Waits until it is attached.
fn started(mut child: Child) -> (Child, BufReader<ChildStdout>) {
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    (child, lines)
}

fn guard<'a>(command: &'a mut Command, file: &Path) -> &'a mut Command {
    command.args(["guard", "--json", "--state", "none", "--config"]).arg(file)
}

#[test]
fn root_service_sees_by_its_capabilities_alone_that_two_listeners_are_one_servers() {
    let Some(world) = World::create() else { return };
    let _other = world.server.enter(|| TcpListener::bind(OTHER)).expect("enter").expect("bind");
    let (_folder, program, file) = installed("rst-syn+unserved:1");
    let capabilities = unit("CapabilityBoundingSet");
    assert_eq!(capabilities, unit("AmbientCapabilities"));
    let words = capabilities.split(' ').map(|name| format!(",+{}", name.trim_start_matches("CAP_")));
    let only = format!("-all{}", words.collect::<String>().to_lowercase());
    let mut command = world.server.command("setpriv").expect("command");
    command.args(["--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string(), "--clear-groups"]);
    for option in ["--inh-caps", "--ambient-caps", "--bounding-set"] {
        command.args([option, &only]);
    }
    let command = guard(command.arg("--no-new-privs").arg(&program), &file);
    // A process that changes its user loses the signal of its parent's death: it ends by itself.
    let child = command.args(["--duration", "5m"]).stdout(Stdio::piped()).spawn();
    let (mut child, mut lines) = started(child.expect("start"));

    let mut client = world.connect(PATIENCE).expect("nobody waits");
    let (_server, _) = world.listener.accept().expect("accept");
    client.write_all(b"GET").expect("send");
    while next_event(&mut lines)["service"]["counted"] != 1 {}
    let other = OTHER.parse().expect("address");
    let connect = || TcpStream::connect_timeout(&other, PATIENCE);
    let error = world.client.enter(connect).expect("enter").expect_err("one waits at the other listener");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().expect("wait").success());
}

#[test]
fn root_guard_that_cannot_see_who_holds_its_listeners_says_so() {
    let Some(world) = World::create() else { return };
    let _other = world.server.enter(|| TcpListener::bind(OTHER)).expect("enter").expect("bind");
    let (_folder, _, file) = installed("rst-syn+unserved");
    let mut command = world.server.command("unshare").expect("command");
    command.args(["--pid", "--fork", "--kill-child"]).arg(TIDEGATE);
    let output = guard(&mut command, &file).args(["--duration", "1s"]).output().expect("run");
    let said = String::from_utf8_lossy(&output.stderr);
    let unseen = format!("warning: the processes behind {ADDRESS}, {OTHER} cannot be seen from here");
    assert!(output.status.success() && said.matches(&unseen).count() == 1, "{said}");
}

#[test]
fn root_systemd_is_told_when_the_guard_is_attached() {
    let Some(world) = World::create() else { return };
    assert_eq!(unit("Type"), "notify");
    let (folder, _, file) = installed("rst-syn");
    let path = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&path).expect("bind");
    let mut command = world.server.command(TIDEGATE).expect("command");
    command.env("NOTIFY_SOCKET", &path);
    let child = guard(&mut command, &file).stdout(Stdio::piped()).spawn().expect("start");
    let (mut child, _lines) = started(child);
    systemd.set_read_timeout(Some(PATIENCE)).expect("set");
    let mut said = [0; 64];
    let length = systemd.recv(&mut said).expect("it is told");
    assert_eq!(&said[..length], b"READY=1\n");
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().expect("wait").success());
}

#[test]
fn root_guard_in_a_container_finds_the_whole_of_the_control_groups() {
    let Some(world) = World::create() else { return };
    let Some(group) = ControlGroup::create("container") else { return };
    let (_folder, _, file) = installed("rst-syn+unserved");
    // As a container of a DaemonSet: a control group namespace of its own, and the host's mount.
    let mut command = world.server.command("sh").expect("command");
    let enter = "echo $$ >\"$0/cgroup.procs\" && exec unshare --cgroup \"$@\"";
    command.args(["-c", enter]).arg(&group.0).arg(TIDEGATE);
    let child = guard(&mut command, &file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("start");
    let mut line = String::new();
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    std::io::BufRead::read_line(&mut lines, &mut line).expect("read");
    signal(&child, Signal::SIGTERM);
    let mut said = String::new();
    child.stderr.take().expect("piped").read_to_string(&mut said).expect("read");
    assert!(child.wait().expect("wait").success(), "{said}");
    assert!(line.contains("\"attached\""), "{line}{said}");
}
