//! `tidegate guard` as a process: how it starts, how it ends, and what it says when it cannot.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::*;
use crate::promtool;
use netns::Namespace;
use nix::sys::signal::Signal;
use serde_json::Value;

fn ping(from: &mut TcpStream, to: &mut TcpStream) {
    from.write_all(b"ping").expect("write");
    let mut buffer = [0; 4];
    to.read_exact(&mut buffer).expect("read");
    assert_eq!(&buffer, b"ping");
}

#[test]
fn root_guard_whose_output_nobody_reads_goes_on_guarding() {
    let Some(world) = World::create() else { return };
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    let size = 4096;
    nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETPIPE_SZ(size)).expect("make it small");
    writer.write_all(&vec![b'x'; 4096]).expect("fill it");
    let mut child = world.guard(&["--json"]).stdout(writer).spawn().expect("start");
    let ifindex = world.server.enter(|| nix::net::if_::if_nametoindex("s0")).expect("enter").expect("s0");
    let count = || world.server.enter(|| bpf::count_tcx_ingress(ifindex)).expect("enter");
    if count().is_err() {
        child.kill().expect("kill");
        child.wait().expect("wait");
        return eprintln!("skipped: no tcx in this kernel (Linux 6.6 and newer)");
    }
    let start = Instant::now();
    while count().expect("tcx") == 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "it never attaches");
        std::thread::sleep(Duration::from_millis(20));
    }
    let _waiting = world.fill();
    // Twice the lease.
    std::thread::sleep(Duration::from_secs(2));
    let error = world.connect(Duration::from_secs(5)).expect_err("the queue is full");
    signal(&child, Signal::SIGTERM);
    child.wait().expect("it ends without a reader, too");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn root_listener_in_another_namespace_is_found_and_guarded_from_here() {
    let Some(world) = World::create() else { return };
    let name = world.server.name().to_owned();
    let guard = |arguments: &[&str]| {
        let mut command = Command::new(TIDEGATE);
        command.args(["guard", "--listen", ADDRESS, "--policy", "rst-syn", "--json"]).args(arguments);
        command
    };
    let output = guard(&[]).output().expect("run");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    // The listener of another test will do.
    assert!(
        error.contains("if that is meant, add --netns tg-server-") && error.lines().count() == 1,
        "{error}"
    );

    let mut child = guard(&["--netns", &name]).stdout(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    let attached = next_event(&mut lines);
    assert!(attached["hooks"].to_string().contains("\"s0\""), "{attached}");
    let _waiting = world.fill();
    signal(&child, Signal::SIGTERM);
    assert!(child.wait().expect("wait").success());

    let output = guard(&["--netns", "/etc/passwd"]).output().expect("run");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("network namespace /etc/passwd: enter the namespace: the file is none"),
        "{error}"
    );
    let output = guard(&["--netns", "tg-nowhere"]).output().expect("run");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("network namespace tg-nowhere: open /run/netns/tg-nowhere"), "{error}");
}

fn killed_guard_leaves_nothing(arguments: &[&str]) {
    let Some(world) = World::create() else { return };
    let (mut guard, _lines) = world.start(arguments);
    let mut client = world.connect(Duration::from_secs(5)).expect("there is room");
    let (mut server, _) = world.listener.accept().expect("accept");
    ping(&mut client, &mut server);
    let waiting = world.fill();

    guard.kill().expect("kill -9");
    let status = guard.wait().expect("wait");
    assert_eq!(status.signal(), Some(9));
    assert!(!world.link_details().contains("xdp"), "{}", world.link_details());
    // Stock: the SYN is dropped without a word.
    let error = world.connect(Duration::from_millis(100)).expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    ping(&mut client, &mut server);
    ping(&mut server, &mut client);
    for _ in &waiting {
        let (mut accepted, address) = world.listener.accept().expect("it still waits");
        let mut stream = waiting
            .iter()
            .find(|stream| stream.local_addr().expect("address") == address)
            .expect("one of ours");
        stream.write_all(b"late").expect("write");
        let mut buffer = [0; 4];
        accepted.read_exact(&mut buffer).expect("read");
    }
}

#[test]
fn root_killed_guard_leaves_stock_behaviour_and_every_connection() {
    killed_guard_leaves_nothing(&[]);
}

#[test]
fn root_killed_guard_at_xdp_leaves_stock_behaviour_and_every_connection() {
    killed_guard_leaves_nothing(&["--attach", "xdp-generic", "--interface", "s0"]);
}

#[test]
fn root_stopped_guard_leaves_stock_behaviour_until_it_goes_on() {
    let Some(world) = World::create() else { return };
    let (guard, _lines) = world.start(&[]);
    let _waiting = world.fill();
    let attempt = || world.connect(Duration::from_millis(100)).expect_err("the queue is full").kind();
    assert_eq!(attempt(), ErrorKind::ConnectionRefused);
    signal(&guard, Signal::SIGSTOP);
    // The lease is a second; more can pass on a busy machine, but it ends.
    wait_until("the lease ends", || attempt() == ErrorKind::TimedOut);
    signal(&guard, Signal::SIGCONT);
    wait_until("the guard is back", || attempt() == ErrorKind::ConnectionRefused);
    ended_in_order(guard, Signal::SIGINT);
}

#[test]
fn root_file_is_read_again_at_sighup_and_a_mistake_in_it_changes_nothing() {
    let Some(world) = World::create() else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let write = |policy: &str| {
        let text =
            format!("interfaces = [\"s0\"]\n[[listener]]\nlisten = \"{ADDRESS}\"\npolicy = \"{policy}\"\n");
        std::fs::write(file.path(), text).expect("write");
    };
    write("rst-syn");
    let mut command = world.server.command(TIDEGATE).expect("command");
    command.args(["guard", "--json", "--config"]).arg(file.path());
    let mut guard = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start");
    let mut lines = BufReader::new(guard.stdout.take().expect("piped"));
    let mut errors = BufReader::new(guard.stderr.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    let mut said = || {
        let mut line = String::new();
        errors.read_line(&mut line).expect("read a line");
        line
    };
    let _waiting = world.fill();
    let attempt = || world.connect(Duration::from_millis(100)).expect_err("the queue is full").kind();
    assert_eq!(attempt(), ErrorKind::ConnectionRefused);

    write("default");
    signal(&guard, Signal::SIGHUP);
    assert!(said().contains("again"));
    assert_eq!(attempt(), ErrorKind::TimedOut);

    write("rst-sin");
    signal(&guard, Signal::SIGHUP);
    let line = said();
    assert!(line.contains("line 4") && line.contains("the old policies stay"), "{line}");
    assert_eq!(attempt(), ErrorKind::TimedOut);
    ended_in_order(guard, Signal::SIGTERM);
}

#[test]
fn root_check_says_whether_a_file_can_be_guarded_and_attaches_nothing() {
    let Some(world) = World::create() else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let check = |policy: &str| {
        let text = format!(
            "interfaces = [\"s0\"]\n[[listener]]\nlisten = \"{ADDRESS}\"\npolicy = \"{policy}\"\n\
             [[listener]]\nlisten = \"[::]:80\"\npolicy = \"abort\"\n"
        );
        std::fs::write(file.path(), text).expect("write");
        let mut command = world.server.command(TIDEGATE).expect("command");
        command.args(["guard", "--check", "--config"]).arg(file.path()).output().expect("run")
    };
    let good = check("rst-syn");
    let (said, warned) = (String::from_utf8_lossy(&good.stdout), String::from_utf8_lossy(&good.stderr));
    assert_eq!(good.status.code(), Some(0), "{warned}");
    assert_eq!(said, format!("{}: 2 listeners can be guarded here\n", file.path().display()));
    assert_eq!(warned, "tidegate: warning: nothing listens at [::]:80 yet; guarded from when it does\n");
    let bad = check("rst-sin");
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
    // With the sysctl against it, as at the start.
    world.server.set_sysctl("net.ipv4.tcp_syncookies", "0").expect("sysctl");
    let unfit = check("no-syn-drop:kernel");
    assert_eq!((unfit.status.code(), unfit.stdout.len()), (Some(2), 0), "{unfit:?}");
    assert!(String::from_utf8_lossy(&unfit.stderr).contains("tcp_syncookies"), "{unfit:?}");
    // Beside a guard that goes on meanwhile.
    let (guard, _lines) = world.start(&["--interface", "s0"]);
    let _waiting = world.fill();
    assert_eq!(check("default").status.code(), Some(0));
    assert_eq!(world.connect(PATIENCE).expect_err("it is full").kind(), ErrorKind::ConnectionRefused);
    ended_in_order(guard, Signal::SIGTERM);
}

#[test]
fn root_guard_ends_with_the_namespace_that_it_was_told_of() {
    let Some(world) = World::create() else { return };
    let netns = Namespace::create("short").expect("create");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("[[listener]]\nlisten = \"{ADDRESS}\"\npolicy = \"rst-syn\"\n"))
        .expect("write");
    let mut child = Command::new(TIDEGATE)
        .args(["guard", "--duration=1m", "--json", "--netns", netns.name(), "--config"])
        .arg(file.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    let name = netns.name().to_owned();
    drop((netns, world));
    let output = child.wait_with_output().expect("wait");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("network namespace {name} is gone")), "{said}");
}

#[test]
fn check_takes_no_option_of_a_run() {
    for option in ["--json", "--duration=1s", "--interval=1s"] {
        let output = Command::new(TIDEGATE)
            .args(["guard", "--check", "--config=no-such.toml", option])
            .output()
            .expect("run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("cannot be used with"), "{said}");
    }
}

#[test]
fn root_file_can_be_tried_without_touching_a_packet_and_with_few_lines() {
    let Some(world) = World::create() else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("interfaces = [\"s0\"]\n[[listener]]\nlisten = \"{ADDRESS}\"\npolicy = \"rst-syn\"\n");
    std::fs::write(file.path(), text).expect("write");
    let mut command = world.server.command(TIDEGATE).expect("command");
    // Ends by itself if no line ever says what is waited for.
    command
        .args(["guard", "--dry-run", "--interval", "2s", "--duration", "2m", "--json", "--config"])
        .arg(file.path());
    let mut child = command.stdout(Stdio::piped()).spawn().expect("start tidegate");
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["dry_run"], true);
    let _waiting: Vec<TcpStream> = (0..2).map(|_| world.connect(PATIENCE).expect("there is room")).collect();
    let error = world.connect(Duration::from_millis(100)).expect_err("the queue is full");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "the kernel's own answer");
    let mut before = 0.0;
    loop {
        let line = next_event(&mut lines);
        assert_eq!(line["event"], "sample", "the refusal was never counted: {line}");
        let elapsed = line["elapsed_s"].as_f64().expect("seconds");
        assert!(elapsed - before > 1.5, "{before} {line}");
        before = elapsed;
        if line["syns"]["reset"].as_u64().is_some_and(|reset| reset > 0) {
            break;
        }
    }
    ended_in_order(child, Signal::SIGTERM);
}

#[test]
fn root_guard_at_xdp_is_seen_on_the_link_while_it_runs() {
    let Some(world) = World::create() else { return };
    let (guard, _lines) = world.start(&["--attach", "xdp-generic", "--interface", "s0"]);
    assert!(world.link_details().contains("xdp"), "{}", world.link_details());
    ended_in_order(guard, Signal::SIGINT);
    assert!(!world.link_details().contains("xdp"), "{}", world.link_details());
}

#[test]
fn root_guard_ends_with_its_totals_at_sigterm_and_sigint() {
    for by in [Signal::SIGTERM, Signal::SIGINT] {
        let Some(world) = World::create() else { return };
        let (guard, mut lines) = world.start(&[]);
        let streams = world.fill();
        ended_in_order(guard, by);
        let mut last = next_event(&mut lines);
        while last["event"] == "sample" {
            last = next_event(&mut lines);
        }
        assert_eq!(last["event"], "final");
        assert_eq!(last["syns"]["admitted"], streams.len());
        assert_eq!(last["syns"]["reset"], 1);
        assert_eq!(last["accept_qlen"], streams.len());
        assert_eq!(last["policy"], "rst-syn");
    }
}

#[test]
fn root_prometheus_sees_a_guarded_listener_and_a_taken_address_is_refused() {
    let Some(world) = World::create() else { return };
    const METRICS: &str = "127.0.0.1:9464";
    let (guard, _lines) = world.start(&["--prometheus", METRICS]);
    let _waiting = world.fill();
    let page = || world.server.enter(|| get(METRICS, "/metrics")).expect("enter");
    let reset =
        format!("tidegate_guard_syns_total{{listen=\"{ADDRESS}\",outcome=\"reset\",dry_run=\"false\"}} 1.0");
    let start = Instant::now();
    while !page().contains(&reset) {
        assert!(start.elapsed() < PATIENCE, "{}", page());
        std::thread::sleep(Duration::from_millis(100));
    }
    for wanted in [
        format!("tidegate_guard_queue_limit{{listen=\"{ADDRESS}\",queue=\"accept\"}} 1.0"),
        format!("tidegate_guard_syns_found_full_total{{listen=\"{ADDRESS}\",place=\"accept\"}} 1.0"),
    ] {
        assert!(page().contains(&wanted), "{wanted} is not in {}", page());
    }
    let head = page();
    let (head, body) = head.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("Content-Type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("tidegate_guard_hook{interface=\"s0\",hook="), "{body}");
    promtool::assert_clean(body);
    let status = world.server.enter(|| get(METRICS, "/status")).expect("enter");
    let status: Value = serde_json::from_str(status.lines().last().expect("a body")).expect("JSON");
    let listener = &status["listeners"][0];
    // Two wait where one may, and such a policy follows no server.
    assert_eq!((&listener["listen"], &listener["utilisation"]), (&ADDRESS.into(), &1.0.into()), "{status}");
    assert_eq!((&listener["waiting"], &listener["limit"]), (&Value::Null, &Value::Null), "{status}");
    let output = world.guard(&["--prometheus", METRICS]).output().expect("run");
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--prometheus 127.0.0.1:9464: Address already in use"), "{error}");
    let output = world.guard(&["--agent-check", METRICS]).output().expect("run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("--agent-check 127.0.0.1:9464: Address already in use"), "{error}");
    assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    ended_in_order(guard, Signal::SIGTERM);
}

#[test]
fn root_guard_for_a_duration_ends_by_itself() {
    let Some(world) = World::create() else { return };
    let output = world.guard(&["--duration", "1200ms"]).output().expect("run");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("guarding 10.8.0.2:8080 with rst-syn on lo ("), "{text}");
    assert!(text.contains("0/1"), "accept queue: {text}");
    assert!(text.lines().last().expect("a line").starts_with("0 SYNs seen"), "{text}");
}

#[test]
fn root_guard_that_is_told_no_policy_follows_who_waits_for_the_server() {
    let Some(world) = World::create() else { return };
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), format!("[[listener]]\nlisten = \"{ADDRESS}\"\n")).expect("write");
    let by_file = ["--config", file.path().to_str().expect("UTF-8")];
    for arguments in [["--listen", ADDRESS], by_file] {
        let mut command = world.server.command(TIDEGATE).expect("command");
        command.args(["guard", "--json"]).args(arguments);
        let mut guard = command.stdout(Stdio::piped()).spawn().expect("start");
        let mut lines = BufReader::new(guard.stdout.take().expect("piped"));
        assert_eq!(next_event(&mut lines)["policy"], "abort+rst-syn+unserved", "{arguments:?}");
        let mut client = world.connect(PATIENCE).expect("there is room");
        let (mut server, _) = world.listener.accept().expect("one waits");
        client.write_all(b"GET").expect("send");
        server.read_exact(&mut [0; 3]).expect("receive");
        server.write_all(b"200").expect("answer");
        ended_in_order(guard, Signal::SIGTERM);
        let mut last = next_event(&mut lines);
        while last["event"] == "sample" {
            last = next_event(&mut lines);
        }
        let service = &last["service"];
        assert_eq!((&service["established"], &service["answered"]), (&1.into(), &1.into()), "{service}");
        assert_eq!((&service["waiting"], &service["limit"]), (&0.into(), &Value::Null), "{service}");
        assert_eq!(service["learning"], true, "one answer says little: {service}");
        assert!(service["completed_share"].as_f64().expect("a number") > 0.99, "{service}");
    }
}

/// The one line that a person gets when the world says no.
fn refusal(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(output.stdout.is_empty(), "{output:?}");
    text
}

#[test]
fn unknown_policy_is_a_usage_error_that_lists_the_known() {
    let output = Command::new(TIDEGATE)
        .args(["guard", "--listen", "10.8.0.2:80", "--policy", "rst-sin"])
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("rst-sin") && text.contains("rst-syn"), "{text}");
}

#[test]
fn mistake_in_a_file_is_a_usage_error_that_names_it() {
    let listener =
        |listen: &str, policy: &str| format!("[[listener]]\nlisten = \"{listen}\"\npolicy = \"{policy}\"\n");
    let cases = [
        (listener("10.8.0.2:80", "abort+reserv"), "line 3"),
        (listener("10.8.0.2:80", "abort") + &listener("0.0.0.0:80", "abort"), "overlap"),
        (listener("10.8.0.2:0", "abort"), "port 0"),
    ];
    for (text, what) in cases {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), &text).expect("write");
        let mut command = Command::new(TIDEGATE);
        let output = command.args(["guard", "--config"]).arg(file.path()).output().expect("run");
        assert_eq!(output.status.code(), Some(2), "{text}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(what) && said.lines().count() == 1, "{said}");
    }
}

#[test]
fn listen_without_a_port_is_a_usage_error_with_an_example() {
    let output = Command::new(TIDEGATE)
        .args(["guard", "--listen", "10.8.0.2", "--policy", "rst-syn"])
        .output()
        .expect("run");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("10.0.0.1:80"));
}

#[test]
fn root_port_without_listener_is_refused_with_the_names_of_those_that_listen() {
    let Some(world) = World::create() else { return };
    let output = world
        .server
        .command(TIDEGATE)
        .expect("command")
        .args(["guard", "--listen", "10.8.0.2:8081", "--policy", "rst-syn"])
        .output()
        .expect("run");
    let text = refusal(&output);
    let this = std::fs::read_to_string("/proc/self/comm").expect("the name of this process");
    let known = format!("listening: 10.8.0.2:8080 ({});", this.trim_end());
    assert!(text.starts_with("tidegate: guard 10.8.0.2:8081: nothing listens there; "), "{text}");
    assert!(text.contains(&known), "{known} {text}");
}

#[test]
fn root_unknown_interface_is_refused_with_the_names_of_the_known() {
    let Some(world) = World::create() else { return };
    let output = world.guard(&["--interface", "eth7"]).output().expect("run");
    assert!(refusal(&output).contains("interface eth7: there is none of that name; there are: lo, s0"));
}

#[test]
fn root_xdp_is_refused_where_driver_or_mtu_forbids_it_and_nothing_stays() {
    let Some(world) = World::create() else { return };
    let output =
        world.guard(&["--attach", "xdp", "--interface", "s0", "--interface", "lo"]).output().expect("run");
    let text = refusal(&output);
    assert!(
        text.contains("xdp to lo: a loopback has no native XDP; name the NIC with --interface"),
        "{text}"
    );
    // s0 came first and had been attached.
    assert!(!world.link_details().contains("xdp"), "{}", world.link_details());

    for (namespace, name) in [(&world.server, "s0"), (&world.client, "c0")] {
        namespace.ip(&["link", "set", name, "mtu", "9000"]).expect("set MTU");
    }
    let output = world.guard(&["--attach", "xdp", "--interface", "s0"]).output().expect("run");
    let text = refusal(&output);
    assert!(text.contains("MTU of 9000") && text.contains("mtu 1500"), "{text}");
}

#[test]
fn root_guard_without_privileges_is_refused_with_their_names() {
    let Some(world) = World::create() else { return };
    // Nobody may not be allowed to read the build's directory.
    let copy = std::env::temp_dir().join(format!("tidegate-nobody-{}", std::process::id()));
    std::fs::copy(TIDEGATE, &copy).expect("copy the program");
    let output = world
        .server
        .command("setpriv")
        .expect("command")
        .args(["--reuid", &NOBODY.to_string(), "--clear-groups"])
        .arg(&copy)
        .args(["guard", "--listen", ADDRESS, "--policy", "rst-syn"])
        .output();
    std::fs::remove_file(&copy).expect("remove the copy");
    let text = refusal(&output.expect("run"));
    assert!(text.contains("no CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF; run as root"), "{text}");
}

#[test]
fn root_guard_without_btf_is_refused_with_what_the_kernel_lacks() {
    let Some(world) = World::create() else { return };
    let mut command = world.server.command("unshare").expect("command");
    let output = command
        .args(["--mount", "sh", "-c", "mount -t tmpfs none /sys/kernel/btf && exec \"$0\" \"$@\""])
        .arg(TIDEGATE)
        .args(["guard", "--listen", ADDRESS, "--policy", "rst-syn"])
        .output()
        .expect("run");
    let text = refusal(&output);
    assert!(text.contains("/sys/kernel/btf/vmlinux") && text.contains("CONFIG_DEBUG_INFO_BTF=y"), "{text}");
}
