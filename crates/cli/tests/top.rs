//! `tidegate top`, and `tidegate guard` on a terminal: a terminal of tmux, as users have them.

use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::common::*;

/// A tmux server of its own with one terminal.
struct Tmux(TempDir);

impl Tmux {
    /// Runs a command line of sh there; `None` without tmux.
    fn start(width: usize, height: usize, line: &str) -> Option<Self> {
        let tmux = Self(tempfile::tempdir().expect("a folder"));
        let size = [width.to_string(), height.to_string()];
        let line = format!("export LC_ALL=C.UTF-8; unset NO_COLOR; {line}; exec sleep 600");
        let arguments = ["new-session", "-d", "-x", &size[0], "-y", &size[1], &line];
        match tmux.command(&arguments).output() {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            Err(error) => {
                eprintln!("skipped: no tmux here: {error}");
                return None;
            }
        }
        Some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        let socket = self.0.path().join("tmux");
        command.arg("-u").args(["-f", "/dev/null", "-S"]).arg(socket).args(arguments);
        command.env_remove("TMUX").stdin(Stdio::null());
        command
    }

    fn tell(&self, arguments: &[&str]) -> Output {
        let output = self.command(arguments).output().expect("run tmux");
        assert!(output.status.success(), "{output:?}");
        output
    }

    fn keys(&self, keys: &str) {
        self.tell(&["send-keys", keys]);
    }

    /// The terminal's lines, without what is blank at their ends. A line that the terminal itself
    /// has wrapped is joined with its rest, and so is longer than the terminal is wide.
    fn lines(&self) -> Vec<String> {
        let output = self.tell(&["capture-pane", "-p", "-J"]);
        let text = String::from_utf8(output.stdout).expect("text");
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    /// Waits until some line has all of these words.
    fn line_with(&self, words: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let lines = self.lines();
            if let Some(line) = lines.iter().find(|line| words.iter().all(|word| line.contains(word))) {
                return line.clone();
            }
            assert!(start.elapsed() < PATIENCE, "no line with {words:?} in\n{}", lines.join("\n"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    #[track_caller]
    fn assert_nothing_is_wrapped(&self, width: usize, height: usize) {
        let lines = self.lines();
        let text = lines.join("\n");
        assert!(lines.len() <= height, "{text}");
        for line in &lines {
            assert!(line.chars().count() <= width, "wider than {width}: {line}\n{text}");
        }
        assert!(lines[0].starts_with("tidegate "), "{text}");
        assert!(lines[1].starts_with("listener "), "{text}");
        assert!(lines[2].contains(ADDRESS), "the first listener is in the line below\n{text}");
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.command(&["kill-server"]).output().ok();
    }
}

#[test]
fn root_top_shows_a_guard_in_each_size_without_a_wrapped_line() {
    let Some(world) = World::create() else { return };
    let state = tempfile::tempdir().expect("a folder");
    let folder = state.path().to_str().expect("text");
    let (guard, _lines) = world.start(&["--state", folder]);
    let Some(tmux) = Tmux::start(80, 24, &format!("{TIDEGATE} top --state {folder}; echo status $?")) else {
        return ended_in_order(guard, Signal::SIGTERM);
    };
    tmux.line_with(&["loading"]);
    let line = tmux.line_with(&[ADDRESS, "idle"]);
    assert!(line.ends_with(" -"), "nobody was refused: {line}");
    assert!(tmux.line_with(&["listener", "state"]).ends_with("minute     last"));
    tmux.assert_nothing_is_wrapped(80, 24);

    let _waiting = world.fill();
    let line = tmux.line_with(&[ADDRESS, "refusing"]);
    assert!(line.contains("2/1") && line.ends_with("accept"), "{line}");
    tmux.assert_nothing_is_wrapped(80, 24);

    tmux.tell(&["resize-window", "-x", "120", "-y", "40"]);
    tmux.line_with(&["listener", "minute               last"]);
    tmux.line_with(&[ADDRESS, "accept queue full"]);
    tmux.assert_nothing_is_wrapped(120, 40);

    tmux.tell(&["resize-window", "-x", "40", "-y", "10"]);
    tmux.line_with(&["q quit"]);
    tmux.assert_nothing_is_wrapped(40, 10);

    tmux.tell(&["resize-window", "-x", "80", "-y", "40"]);
    tmux.keys("Enter");
    tmux.line_with(&["hooks", "s0"]);
    tmux.line_with(&["syns.reset", "answered with RST"]);
    assert!(tmux.lines().iter().all(|line| line.chars().count() <= 80), "{:?}", tmux.lines());
    tmux.keys("q");
    tmux.line_with(&["status 0"]);
    ended_in_order(guard, Signal::SIGTERM);
    assert_eq!(std::fs::read_dir(state.path()).expect("list").count(), 0, "the socket is gone");
}

#[test]
fn root_guard_that_is_stopped_has_lost_its_lease_and_without_one_the_kernel_is_asked() {
    let Some(world) = World::create() else { return };
    let state = tempfile::tempdir().expect("a folder");
    let folder = state.path().to_str().expect("text");
    let (guard, _lines) = world.start(&["--state", folder]);
    let Some(tmux) = Tmux::start(100, 30, &format!("{TIDEGATE} top --state {folder}")) else {
        return ended_in_order(guard, Signal::SIGTERM);
    };
    tmux.line_with(&[ADDRESS, "idle"]);
    signal(&guard, Signal::SIGSTOP);
    tmux.line_with(&[ADDRESS, "lease lost"]);
    signal(&guard, Signal::SIGCONT);
    tmux.line_with(&[ADDRESS, "idle"]);
    drop(world.listener);
    tmux.line_with(&[ADDRESS, "no listener"]);
    ended_in_order(guard, Signal::SIGTERM);
    tmux.line_with(&["no guard runs here"]);
}

/// A guard on a terminal of tmux, then the end of it by `end`.
fn guard_on_a_terminal(end: impl FnOnce(&Tmux, Pid)) {
    let Some(world) = World::create() else { return };
    let name = world.server.name();
    let guard = format!("{TIDEGATE} guard --netns {name} --listen {ADDRESS} --policy rst-syn --state none");
    let settings = "stty -a | grep -o -- '-*icanon'";
    let line = format!("echo $$; {guard}; echo status $?; {settings}");
    let Some(tmux) = Tmux::start(80, 24, &line) else { return };
    tmux.line_with(&["guard", name]);
    tmux.line_with(&[ADDRESS, "idle"]);
    // It is in the namespace that it guards: so is its listener, whose name is the address alone.
    tmux.assert_nothing_is_wrapped(80, 24);
    let panes = tmux.tell(&["list-panes", "-F", "#{pane_pid}"]);
    let shell = String::from_utf8_lossy(&panes.stdout).trim().parse().expect("a process");
    end(&tmux, find_child(shell, "guard").expect("it runs"));
    tmux.line_with(&["0 SYNs seen in"]);
    tmux.line_with(&["status 0"]);
    let lines = tmux.lines();
    assert!(lines.iter().any(|line| line == "icanon"), "the terminal is as it was: {lines:?}");
    assert!(!lines.iter().any(|line| line.contains("q quit")), "the screen is gone: {lines:?}");
}

#[test]
fn root_guard_on_a_terminal_shows_the_screen_until_q() {
    guard_on_a_terminal(|tmux, _| tmux.keys("q"));
}

#[test]
fn root_guard_on_a_terminal_ends_in_order_at_ctrl_c() {
    guard_on_a_terminal(|tmux, _| tmux.keys("C-c"));
}

#[test]
fn root_guard_on_a_terminal_restores_it_at_sigterm() {
    guard_on_a_terminal(|_, guard| nix::sys::signal::kill(guard, Signal::SIGTERM).expect("signal"));
}

#[test]
fn root_guard_in_the_background_of_a_terminal_prints_lines() {
    let Some(world) = World::create() else { return };
    let name = world.server.name();
    let guard = format!("{TIDEGATE} guard --netns {name} --listen {ADDRESS} --policy rst-syn --state none");
    let Some(tmux) = Tmux::start(120, 24, &format!("set -m; {guard} & wait")) else { return };
    tmux.line_with(&["guarding", ADDRESS]);
    tmux.line_with(&["accept queue", "seen/s"]);
}

#[test]
fn root_guard_on_a_terminal_without_a_size_prints_lines_and_top_says_so() {
    let Some(world) = World::create() else { return };
    let name = world.server.name();
    let guard = format!("{TIDEGATE} guard --netns {name} --listen {ADDRESS} --policy rst-syn --state none");
    let line = format!("stty rows 0 cols 0; {TIDEGATE} top; {guard}");
    let Some(tmux) = Tmux::start(120, 24, &line) else { return };
    tmux.line_with(&["without a size", "stty rows 24 cols 80"]);
    tmux.line_with(&["guarding", ADDRESS]);
}

#[test]
fn root_guard_goes_on_after_its_terminal_has_gone() {
    let Some(world) = World::create() else { return };
    let state = tempfile::tempdir().expect("a folder");
    let folder = state.path().to_str().expect("text");
    let name = world.server.name();
    let guard =
        format!("exec {TIDEGATE} guard --netns {name} --listen {ADDRESS} --policy rst-syn --state {folder}");
    let Some(tmux) = Tmux::start(80, 24, &format!("trap '' HUP; {guard}")) else { return };
    tmux.line_with(&[ADDRESS, "idle"]);
    let panes = tmux.tell(&["list-panes", "-F", "#{pane_pid}"]);
    let pid: i32 = String::from_utf8_lossy(&panes.stdout).trim().parse().expect("a process");
    drop(tmux);
    let _waiting = world.fill();
    let used = |pid: i32| -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it goes on");
        let fields: Vec<&str> = stat.rsplit(')').next().expect("fields").split_whitespace().collect();
        fields[11].parse::<u64>().expect("ticks") + fields[12].parse::<u64>().expect("ticks")
    };
    let before = used(pid);
    std::thread::sleep(Duration::from_secs(2));
    // A thread that tried to read the terminal again and again would take all of a CPU: 200 ticks.
    let ticks = used(pid) - before;
    nix::sys::signal::kill(Pid::from_raw(pid), Signal::SIGTERM).expect("signal");
    wait_until_it_is_gone(pid);
    assert!(ticks < 60, "{ticks} ticks of a hundredth");
}

fn wait_until_it_is_gone(pid: i32) {
    let start = Instant::now();
    while nix::sys::signal::kill(Pid::from_raw(pid), None).is_ok() {
        assert!(start.elapsed() < PATIENCE, "it does not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn top_without_a_terminal_is_one_line() {
    let output = Command::new(TIDEGATE).arg("top").stdin(Stdio::null()).output().expect("run");
    assert_eq!((output.status.code(), stderr(&output).lines().count()), (Some(2), 1), "{output:?}");
    assert!(
        stderr(&output).contains("no terminal") && stderr(&output).contains("tidegate listeners"),
        "{output:?}"
    );
}

#[test]
fn guard_of_another_version_is_shown_and_both_versions_are_said() {
    let state = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(state.path().join("guard-4194305.sock")).expect("bind");
    let line = format!("{TIDEGATE} top --state {}", state.path().display());
    let Some(tmux) = Tmux::start(120, 24, &line) else { return };
    let (mut guard, _) = listener.accept().expect("it connects");
    let sample =
        r#"{"event":"sample","listen":"10.8.0.2:8080","elapsed_s":1.0,"news":[1],"syns":{"seen":7}}"#;
    write!(guard, "{{\"event\":\"hello\",\"version\":\"0.0.1\",\"pid\":4194305,\"netns\":1}}\n{sample}\n")
        .expect("write");
    tmux.line_with(&["guard 4194305 is tidegate 0.0.1, and this is"]);
    let row = tmux.line_with(&["10.8.0.2:8080"]);
    assert!(row.contains(" - "), "what it does not say is unknown: {row}");
}

#[test]
fn what_is_no_guard_is_one_line_and_status_1() {
    let state = tempfile::tempdir().expect("a folder");
    let listener = UnixListener::bind(state.path().join("guard-4194305.sock")).expect("bind");
    let line = format!("{TIDEGATE} top --state {}; echo status $?", state.path().display());
    let Some(tmux) = Tmux::start(160, 24, &line) else { return };
    let (mut guard, _) = listener.accept().expect("it connects");
    guard.write_all(b"220 mail.example.com ESMTP\n").expect("write");
    tmux.line_with(&["status 1"]);
    let lines = tmux.lines();
    assert_eq!(lines.iter().filter(|line| !line.is_empty()).count(), 2, "{lines:?}");
    assert!(lines[0].contains("guard 4194305 speaks another language"), "{lines:?}");
}

#[test]
fn root_socket_of_another_user_is_one_line_that_names_the_user() {
    if let Err(reason) = netns::root_or_reason() {
        return eprintln!("{reason}");
    }
    let state = tempfile::tempdir().expect("a folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode;
    std::fs::set_permissions(state.path(), mode(0o755)).expect("let all look");
    let path = state.path().join("guard-4194305.sock");
    let _listener = UnixListener::bind(&path).expect("bind");
    std::fs::set_permissions(&path, mode(0o600)).expect("as a guard has it");
    let top = format!("{TIDEGATE} top --state {}", state.path().display());
    let line = format!("setpriv --reuid {NOBODY} --clear-groups {top}; echo status $?");
    let Some(tmux) = Tmux::start(240, 24, &line) else { return };
    tmux.line_with(&["status"]);
    let lines = tmux.lines();
    if lines[0].contains("Permission denied") {
        return eprintln!("skipped: nobody may not run {TIDEGATE}");
    }
    assert!(lines[0].contains("guard 4194305 belongs to root") && lines[0].contains("sudo"), "{lines:?}");
    assert_eq!(lines[1], "status 1", "{lines:?}");
}
