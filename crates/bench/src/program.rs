//! What the guard's programs cost for a frame, against what the kernel pays to drop the same SYN.
//!
//! A program's time is that of `BPF_PROG_TEST_RUN`, less that of a program that only returns. A
//! refusal rewrites its SYN, so it cannot be repeated on its own output: it is timed in single
//! runs, and what it takes more than an admission in single runs is added to an admission in many.
//! The kernel's cost is by whole-system difference: how much longer a sender on the same core takes
//! for a frame when the peer's kernel drops it at a full accept queue than when a program drops it
//! at once.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bpf::{Hook, Link};
use guard::{Attach, Config, Guard, Listener, Policy};

use netns::Namespace;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, socket};
use wire::{Ethernet, Flags, FourTuple, Options, Segment, SeqNumber};
use xsk::{Socket, Steer};

use crate::median;
use crate::rate::raw_send_rate;
use crate::{Figure, REPETITIONS, clients, go_on};
use lab::{CROWD_INTERFACE, SERVER_INTERFACE, Testbed};

/// Runs of one measurement, where the program leaves the frame as it is.
const RUNS: u32 = 100_000;
/// Single runs, of which the median counts.
const SINGLE_RUNS: usize = 5_001;
const WINDOW: Duration = Duration::from_millis(500);
const TC_ACT_UNSPEC: i32 = -1;
const TC_ACT_SHOT: i32 = 2;
const XDP_PASS: i32 = 2;

/// Nanoseconds per frame.
struct Times {
    admit: f64,
    admit_unserved: f64,
    refuse_tcx: f64,
    refuse_xdp: f64,
    data_segment: f64,
    ack_armed: f64,
    cookie: f64,
    rst_fin: f64,
    kernel_drop: f64,
}

pub(crate) fn figures(stop: &AtomicBool) -> Result<Vec<Figure>> {
    let namespace = Namespace::create("bench")?;
    // Both kinds of cookies may be made.
    namespace.set_sysctl("net.ipv4.tcp_syncookies", "2")?;
    // For the two guards in native XDP, of which an interface takes one program.
    namespace.ip(&["link", "add", "x80", "type", "veth", "peer", "name", "x81"])?;
    let times: Vec<Times> = (0..REPETITIONS)
        .map(|_| {
            go_on(stop)?;
            let kernel_drop = kernel_drop_ns()?;
            namespace.enter(|| programs(kernel_drop))?
        })
        .collect::<Result<_>>()?;
    let figure = |name, of: fn(&Times) -> f64| {
        let pairs: Vec<(f64, f64)> = times.iter().map(|times| (of(times), times.kernel_drop)).collect();
        let reference =
            "kernel.syn_drop_ns: the kernel's own cost of dropping the same SYN at a full accept queue";
        Figure::new(name, "ns", reference, &pairs)
    };
    Ok(vec![
        figure("bpf.admit_ns", |times| times.admit),
        figure("bpf.admit_unserved_ns", |times| times.admit_unserved),
        figure("bpf.refuse_tcx_ns", |times| times.refuse_tcx),
        figure("bpf.refuse_xdp_ns", |times| times.refuse_xdp),
        figure("bpf.data_segment_ns", |times| times.data_segment),
        figure("bpf.ack_armed_ns", |times| times.ack_armed),
        figure("bpf.cookie_ns", |times| times.cookie),
        figure("bpf.rst_fin_ns", |times| times.rst_fin),
    ])
}

/// In the namespace of the calling thread, whose loopback a test run pretends to receive from.
fn programs(kernel_drop: f64) -> Result<Times> {
    let (healthy_address, full_address) =
        (SocketAddr::from(([127, 0, 0, 1], 80)), SocketAddr::from(([127, 0, 0, 1], 81)));
    let (_healthy, _full) = (listen_at(healthy_address, 128)?, listen_at(full_address, 0)?);
    let _fills = TcpStream::connect(full_address).context("fill the accept queue")?;
    let connection = TcpStream::connect(healthy_address).context("connect")?;
    let refusing: Policy = "abort+rst-syn".parse()?;
    let cookies: Policy =
        if guard::takes_own_cookies() { Policy::NO_SYN_DROP } else { "no-syn-drop:kernel".parse()? };
    let (at_healthy, at_full) = (guard_at(healthy_address, refusing)?, guard_at(full_address, refusing)?);
    let (xdp_at_healthy, xdp_at_full) =
        (guard_in_xdp(healthy_address, refusing)?, guard_in_xdp(full_address, refusing)?);
    let with_cookies = guard_at(full_address, cookies)?;
    // Of handshakes that never end, as many as no slot of time has.
    let following = guard_at(healthy_address, "rst-syn+unserved:1000000".parse()?)?;
    let empty = Empty::load()?;

    let stranger: SocketAddr = "127.0.0.2:40000".parse().expect("an address");
    let syn = |server| frame(&FourTuple { src: stranger, dst: server }, Flags::SYN);
    let data = frame(&FourTuple { src: connection.local_addr()?, dst: healthy_address }, Flags::ACK);
    let admit_by = |guard: &Guard, hook| -> Result<f64> {
        Ok(nanos(guard.time(hook, &syn(healthy_address), RUNS)?) - empty.many(hook)?)
    };
    // An admission, and what a refusal takes more, both in single runs.
    let refuse = |at_healthy: &Guard, at_full: &Guard, hook| -> Result<f64> {
        let refused = single(|| at_full.time(hook, &syn(full_address), 1))?;
        let more = refused - single(|| at_healthy.time(hook, &syn(healthy_address), 1))?;
        Ok(admit_by(at_healthy, hook)? + more)
    };
    let tcx = Hook::TcxIngress;
    let data_segment = nanos(at_healthy.time(tcx, &data, RUNS)?) - empty.many(tcx)?;
    let (refuse_tcx, refuse_xdp) =
        (refuse(&at_healthy, &at_full, tcx)?, refuse(&xdp_at_healthy, &xdp_at_full, Hook::XdpNative)?);
    let cookie_more = single(|| with_cookies.time(tcx, &syn(full_address), 1))?
        - single(|| at_healthy.time(tcx, &syn(healthy_address), 1))?;
    for guard in [&at_full, &xdp_at_full] {
        let stats = guard.sample()?.listeners[0].stats;
        ensure!(stats.reset == stats.seen, "the full listener admitted a SYN: {stats:?}");
    }
    let admit_unserved = admit_by(&following, tcx)?;
    let stats = following.sample()?.listeners[0].stats;
    ensure!(stats.admitted == stats.seen, "the healthy listener refused a SYN: {stats:?}");
    let stats = with_cookies.sample()?.listeners[0].stats;
    ensure!(stats.cookies == stats.seen, "a SYN to the full listener got no cookie: {stats:?}");
    let admit = admit_by(&at_healthy, tcx)?;
    Ok(Times {
        admit,
        admit_unserved,
        cookie: admit + cookie_more,
        rst_fin: rst_fin_ns(&empty)?,
        refuse_tcx,
        refuse_xdp,
        data_segment,
        ack_armed: armed_ns(&at_full, full_address, &empty)?,
        kernel_drop,
    })
}

pub(crate) fn guard_at(listen: SocketAddr, policy: Policy) -> Result<Guard> {
    guard_by(listen, policy, "lo", Attach::Tcx)
}

/// A loopback has no native XDP; a test run goes by the loopback all the same.
fn guard_in_xdp(listen: SocketAddr, policy: Policy) -> Result<Guard> {
    let name = format!("x{}", listen.port());
    guard_by(listen, policy, &name, Attach::Xdp)
}

fn guard_by(listen: SocketAddr, policy: Policy, interface: &str, attach: Attach) -> Result<Guard> {
    Guard::start(&Config {
        listeners: vec![Listener::new(listen, policy)],
        interfaces: vec![interface.to_owned()],
        attach,
        must_listen: true,
        ..Config::default()
    })
}

/// The FIN of a client that has all its answers, in single runs of one connection each, since it
/// destroys them. What the kernel does with the RST that it is handed comes later and is not in it.
fn rst_fin_ns(empty: &Empty) -> Result<f64> {
    let address = SocketAddr::from(([127, 0, 0, 1], 82));
    let listener = TcpListener::from(listen_at(address, 128)?);
    let guard = guard_at(address, "rst-fin".parse()?)?;
    let mut frames = Vec::new();
    let with_guard = single(|| {
        let client = TcpStream::connect(address).context("connect")?;
        let _server = listener.accept().context("accept")?;
        let (seq, ack) = sequence_numbers(&client)?;
        let tuple = FourTuple { src: client.local_addr()?, dst: address };
        let segment = Segment {
            seq,
            ack,
            flags: Flags::FIN | Flags::ACK,
            window: 1000,
            options: Options::default(),
            payload: &[],
        };
        frames.push(emit_segment(&Ethernet { src: [0; 6], dst: [0; 6] }, &tuple, &segment));
        guard.time(Hook::TcxIngress, frames.last().expect("just pushed"), 1)
    })?;
    let nothing = single(|| Ok(bpf::test_run(empty.tc.as_fd(), &frames[0], 1)?))?;
    let stats = guard.sample()?.listeners[0].stats;
    ensure!(stats.fins_reset == SINGLE_RUNS as u64, "rst-fin did not act on every FIN: {stats:?}");
    Ok(with_guard - nothing)
}

/// What the client sends next and what it waits for, by TCP_REPAIR; it says nothing more, not even
/// when it is closed.
fn sequence_numbers(client: &TcpStream) -> Result<(SeqNumber, SeqNumber)> {
    /// `TCP_RECV_QUEUE` and `TCP_SEND_QUEUE` of include/uapi/linux/tcp.h.
    const QUEUES: [i32; 2] = [2, 1];
    set_tcp_option(client, libc::TCP_REPAIR, 1)?;
    let [seq, ack] = QUEUES.map(|queue| -> Result<SeqNumber> {
        set_tcp_option(client, libc::TCP_REPAIR_QUEUE, queue)?;
        let (mut number, mut size) = (0_u32, 4);
        let pointer = (&raw mut number).cast();
        // SAFETY: the kernel writes four bytes at most.
        let done = unsafe {
            libc::getsockopt(
                client.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_QUEUE_SEQ,
                pointer,
                &raw mut size,
            )
        };
        ensure!(done == 0, "read a sequence number: {}", std::io::Error::last_os_error());
        Ok(SeqNumber(number))
    });
    Ok((seq?, ack?))
}

fn set_tcp_option(socket: &TcpStream, name: i32, value: i32) -> Result<()> {
    let pointer = (&raw const value).cast();
    // SAFETY: the kernel reads four bytes.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, name, pointer, 4) };
    ensure!(done == 0, "set TCP option {name}: {}", std::io::Error::last_os_error());
    Ok(())
}

/// A segment with ACK to the full listener's port while it is armed, in single runs, since its
/// flags change.
fn armed_ns(guard: &Guard, full: SocketAddr, empty: &Empty) -> Result<f64> {
    let source: SocketAddr = "127.0.0.3:40000".parse().expect("an address");
    let tuple = FourTuple { src: source, dst: full };
    let (syn, ack) = (frame(&tuple, Flags::SYN), frame(&tuple, Flags::ACK));
    guard.time(Hook::TcxIngress, &syn, 1)?; // it is armed from here on
    let armed = single(|| guard.time(Hook::TcxIngress, &ack, 1))?;
    let nothing = single(|| Ok(bpf::test_run(empty.tc.as_fd(), &ack, 1)?))?;
    let stats = guard.sample()?.listeners[0].stats;
    ensure!(stats.acks_reset >= SINGLE_RUNS as u64, "the ACK stage did not look at every segment: {stats:?}");
    Ok(armed - nothing)
}

/// Programs that only return.
struct Empty {
    tc: OwnedFd,
    xdp: OwnedFd,
}

impl Empty {
    fn load() -> Result<Self> {
        let load = |hook, value| bpf::constant_program(hook, value).context("load an empty program");
        Ok(Self { tc: load(Hook::TcxIngress, TC_ACT_UNSPEC)?, xdp: load(Hook::XdpNative, XDP_PASS)? })
    }

    fn many(&self, hook: Hook) -> Result<f64> {
        let program = if hook == Hook::TcxIngress { &self.tc } else { &self.xdp };
        Ok(nanos(bpf::test_run(program.as_fd(), &[0; 64], RUNS)?))
    }
}

/// Median of single runs.
fn single(mut run: impl FnMut() -> Result<Duration>) -> Result<f64> {
    let times: Vec<f64> = (0..SINGLE_RUNS).map(|_| Ok(nanos(run()?))).collect::<Result<_>>()?;
    Ok(median(times))
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// The kernel's time for a SYN to a full listener, beyond that of a frame that a program drops at
/// tcx.
fn kernel_drop_ns() -> Result<f64> {
    let testbed = Testbed::join(clients())?;
    let server = testbed.server_address();
    let _full = testbed.server.enter(|| listen_at(server, 0))??;
    let _fills = testbed.crowd.enter(|| TcpStream::connect(server))?.context("fill the accept queue")?;
    let by_kernel = frame_ns(&testbed)?;
    let drop = bpf::constant_program(Hook::TcxIngress, TC_ACT_SHOT).context("load a program that drops")?;
    let _link = testbed.server.enter(|| -> Result<Link> {
        Ok(Link::attach(drop.as_fd(), if_nametoindex(SERVER_INTERFACE)?, Hook::TcxIngress)?)
    })??;
    let by_program = frame_ns(&testbed)?;
    Ok(by_kernel - by_program)
}

/// Time for which a SYN occupies the core, from the sender's ring to its end.
fn frame_ns(testbed: &Testbed) -> Result<f64> {
    let server = testbed.server_address();
    let tuple = FourTuple { src: SocketAddr::from(([10, 77, 0, 1], 40_000)), dst: server };
    let ethernet = Ethernet { src: [2, 0, 0, 0, 0, 0x0b], dst: [2, 0, 0, 0, 0, 0x0a] };
    let syn = emit(&ethernet, &tuple, Flags::SYN);
    testbed.crowd.enter(|| -> Result<f64> {
        let mut socket = Socket::open(&xsk::Config {
            ifindex: if_nametoindex(CROWD_INTERFACE)?,
            interface: CROWD_INTERFACE.to_owned(),
            mode: xsk::Mode::Generic,
            rx_frames: 64,
            tx_frames: 4096,
            steer: Steer { server, clients: (server.ip(), 32) },
        })?;
        let rate = raw_send_rate(&mut socket.tx, &syn, WINDOW).context("send")?;
        Ok(1e9 / rate.per_second())
    })?
}

pub(crate) fn listen_at(address: SocketAddr, backlog: i32) -> Result<OwnedFd> {
    let fd = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).with_context(|| format!("bind {address}"))?;
    listen(&fd, Backlog::new(backlog)?).with_context(|| format!("listen at {address}"))?;
    Ok(fd)
}

/// To a loopback, whose Ethernet address is zero.
pub(crate) fn frame(tuple: &FourTuple, flags: Flags) -> Vec<u8> {
    emit(&Ethernet { src: [0; 6], dst: [0; 6] }, tuple, flags)
}

fn emit(ethernet: &Ethernet, tuple: &FourTuple, flags: Flags) -> Vec<u8> {
    let (seq, ack) = (SeqNumber(1), SeqNumber(1));
    let options = Options { mss: (flags == Flags::SYN).then_some(1460), ..Default::default() };
    emit_segment(ethernet, tuple, &Segment { seq, ack, flags, window: 1000, options, payload: &[] })
}

fn emit_segment(ethernet: &Ethernet, tuple: &FourTuple, segment: &Segment<'_>) -> Vec<u8> {
    let mut frame = vec![0; wire::frame_len(tuple, segment)];
    wire::emit(&mut frame, ethernet, tuple, segment);
    frame
}
