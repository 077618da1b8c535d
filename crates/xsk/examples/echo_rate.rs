//! Connections per second of the simplest possible crowd against the echo, for each way to attach the two, the raw send rate,
//! and the cost of a received frame. As root: `cargo run --release -p xsk --example echo_rate`. The crowd is pinned to CPU 1; frames that it lost are printed.
//!
//! The crowd keeps a window of connections open and no state: every frame is answered from what it says. A connection is five
//! frames: SYN, SYN|ACK, request, response, RST.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bpf::Hook;
use etherparse::PacketBuilder;
use netns::{Namespace, VethEnd, VethPair, pin_to_cpu};
use xsk::echo::Echo;
use xsk::{Config, Mode, Rx, Socket, Steer, Tx, raw_send_rate};

const SECONDS: u64 = 2;
const RX_FRAMES: u32 = 65_536;
/// Connections open at once: fewer than the 256 frames that a native veth holds, and many more.
const WINDOWS: [u64; 2] = [100, 2000];
const SERVER: [u8; 4] = [10, 0, 0, 1];
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 10.0.0.1\r\n\r\n";
const IP_AT: usize = 14;
const TCP_AT: usize = 34;
const DATA_AT: usize = 54;

/// Which CPU receives at the server's end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Receive {
    /// The sender's, in softirq.
    Inline,
    /// CPU 0, by RPS.
    Rps,
    /// CPU 0, by threaded NAPI.
    Threaded,
    /// CPU 0 for the server, CPU 1 at real-time priority for the crowd, by threaded NAPI.
    BothThreaded,
}

fn main() -> Result<()> {
    pin_to_cpu(1)?;
    for (crowd, echo, receive) in [
        (Mode::Native, Hook::XdpNative, Receive::Inline),
        (Mode::Native, Hook::XdpNative, Receive::Threaded),
        (Mode::Native, Hook::XdpNative, Receive::BothThreaded),
        (Mode::Generic, Hook::XdpGeneric, Receive::Inline),
        (Mode::Generic, Hook::XdpGeneric, Receive::Rps),
        (Mode::Native, Hook::XdpGeneric, Receive::Inline),
    ] {
        for window in WINDOWS {
            let result = measure(crowd, echo, receive, window).unwrap_or_else(|error| format!("{error:#}"));
            println!("crowd {crowd:?}, echo {}, {receive:?}, {window} open: {result}", echo.name());
        }
    }
    for mode in [Mode::Generic, Mode::Native] {
        for rx_frames in [1024, 4096, 16_384, RX_FRAMES] {
            let cost = receive_cost(mode, rx_frames)?;
            println!("{mode:?}, {rx_frames} buffers: {cost:.3} us to send and receive a frame");
        }
    }
    Ok(())
}

/// Microseconds of one CPU to send a frame and to receive it at the other end.
fn receive_cost(mode: Mode, rx_frames: u32) -> Result<f64> {
    let crowd = Namespace::create("crowd")?;
    let server = Namespace::create("server")?;
    let pair = VethPair::create(&crowd, "crowd0", &server, "server0")?;
    let mut from = crowd.enter(|| Socket::open(&config(&pair.a, mode, rx_frames, SERVER)))??;
    let mut to = server.enter(|| Socket::open(&config(&pair.b, mode, rx_frames, [10, 1, 0, 0])))??;
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(pair.a.mac, pair.b.mac)
        .ipv4([10, 1, 0, 0], [10, 1, 0, 1], 64)
        .tcp(80, 1000, 0, 0)
        .write(&mut frame, &[0; 6])?;
    let start = Instant::now();
    let mut received = 0;
    while start.elapsed() < Duration::from_secs(1) {
        for _ in 0..64 {
            from.tx.transmit(|buffer| {
                buffer[..frame.len()].copy_from_slice(&frame);
                frame.len()
            });
        }
        from.tx.flush()?;
        received += u64::from(to.rx.receive(64, |frame| {
            std::hint::black_box(frame[TCP_AT]);
        }));
    }
    let elapsed = start.elapsed().as_secs_f64();
    ensure!(to.statistics()?.lost() == 0, "frames were lost");
    Ok(elapsed * 1e6 / received as f64)
}

fn config(end: &VethEnd, mode: Mode, rx_frames: u32, server: [u8; 4]) -> Config {
    Config {
        ifindex: end.ifindex,
        interface: end.name.clone(),
        mode,
        rx_frames,
        tx_frames: 4096,
        steer: Steer { server: (server, 80).into(), clients: ([10, 1, 0, 0].into(), 16) },
    }
}

fn measure(mode: Mode, hook: Hook, receive: Receive, window: u64) -> Result<String> {
    let crowd = Namespace::create("crowd")?;
    let server = Namespace::create("server")?;
    let pair = VethPair::create(&crowd, "crowd0", &server, "server0")?;
    let echo = server.enter(|| Echo::attach(pair.b.ifindex, 80, hook))??;
    let config = config(&pair.a, mode, RX_FRAMES, SERVER);
    let mut socket = crowd.enter(|| Socket::open(&config))??;
    place(&crowd, &server, receive)?;
    let mut engine = Engine::new(&pair, window);
    let start = Instant::now();
    engine.run(&mut socket)?;
    let elapsed = start.elapsed().as_secs_f64();
    let statistics = socket.statistics()?;
    let counters = echo.counters()?;
    ensure!(engine.done > 0, "no connection; {counters:?} {statistics:?}");
    let raw = raw_send_rate(&mut socket.tx, &passed_frame(&pair), Duration::from_secs(1))?;
    Ok(format!(
        "{:.0} conn/s, {} of them lost in the veth in {} stalls, {} in our ring, {} not answered; raw send {:.3} us a frame",
        engine.done as f64 / elapsed,
        engine.vanished,
        engine.stalls,
        statistics.lost(),
        counters.failed,
        1e6 / raw.per_second(),
    ))
}

/// Has the server's end, and perhaps ours, receive where `receive` says.
fn place(crowd: &Namespace, server: &Namespace, receive: Receive) -> Result<()> {
    if receive == Receive::Rps {
        server.write_sysfs("class/net/server0/queues/rx-0/rps_cpus", "1")?;
    }
    if matches!(receive, Receive::Threaded | Receive::BothThreaded) {
        server.write_sysfs("class/net/server0/threaded", "1")?;
        place_thread("napi/server0-", 0, false)?;
    }
    if receive == Receive::BothThreaded {
        crowd.write_sysfs("class/net/crowd0/threaded", "1")?;
        place_thread("napi/crowd0-", 1, true)?;
    }
    Ok(())
}

/// Moves the kernel threads whose name starts so to a CPU.
fn place_thread(name: &str, cpu: usize, real_time: bool) -> Result<()> {
    let script = format!(
        "for p in /proc/[0-9]*; do case $(cat $p/comm 2>/dev/null) in {name}*) taskset -pc {cpu} ${{p#/proc/}} >/dev/null; \
         {real_time} && chrt -f -p 10 ${{p#/proc/}}; found=1;; esac; done; test -n \"$found\""
    );
    let status = std::process::Command::new("sh").args(["-c", &script]).status()?;
    ensure!(status.success(), "no thread {name}");
    Ok(())
}

/// A stateless crowd.
struct Engine {
    syn: Vec<u8>,
    request: Vec<u8>,
    reset: Vec<u8>,
    window: u64,
    started: u64,
    /// Given up because a frame of theirs was lost on the way.
    vanished: u64,
    done: u64,
    stalls: u64,
}

impl Engine {
    fn new(pair: &VethPair, window: u64) -> Self {
        let tcp = |seq| {
            PacketBuilder::ethernet2(pair.a.mac, pair.b.mac)
                .ipv4([10, 1, 0, 0], SERVER, 64)
                .tcp(0, 80, seq, 1024)
        };
        let build = |step: etherparse::PacketBuilderStep<etherparse::TcpHeader>, data: &[u8]| {
            let mut bytes = Vec::new();
            step.write(&mut bytes, data).expect("a Vec takes all");
            bytes
        };
        Self {
            syn: build(tcp(0).syn(), b""),
            request: build(tcp(1).ack(0).psh(), REQUEST),
            reset: build(tcp(1 + REQUEST.len() as u32).rst(), b""),
            window,
            started: 0,
            vanished: 0,
            done: 0,
            stalls: 0,
        }
    }

    fn open(&self) -> u64 {
        self.started - self.done - self.vanished
    }

    fn run(&mut self, socket: &mut Socket) -> Result<()> {
        let Socket { rx, tx, .. } = socket;
        let end = Instant::now() + Duration::from_secs(SECONDS);
        while Instant::now() < end {
            while self.open() < self.window && self.start_one(tx) {}
            tx.flush()?;
            if self.receive(rx, tx) == 0 {
                rx.wait(Duration::from_millis(10))?;
                if self.receive(rx, tx) == 0 {
                    // All that was open is lost: begin again.
                    self.stalls += 1;
                    self.vanished += self.open();
                }
            }
        }
        loop {
            tx.flush()?;
            rx.wait(Duration::from_millis(50))?;
            if self.receive(rx, tx) == 0 {
                self.vanished += self.open();
                return Ok(());
            }
        }
    }

    fn start_one(&mut self, tx: &mut Tx) -> bool {
        let number = self.started as u32;
        let client = [(number >> 24) as u8 | 1, number as u8, (number >> 8) as u8, (number >> 16) as u8];
        if !tx.transmit(|buffer| write(buffer, &self.syn, client, 0)) {
            return false;
        }
        self.started += 1;
        true
    }

    fn receive(&mut self, rx: &mut Rx, tx: &mut Tx) -> u32 {
        let (request, reset, done) = (&self.request, &self.reset, &mut self.done);
        rx.receive(64, |frame| {
            let is_syn_ack = frame[TCP_AT + 13] & 2 != 0;
            let client = [frame[TCP_AT + 2], frame[TCP_AT + 3], frame[IP_AT + 18], frame[IP_AT + 19]];
            let mut seq = [0; 4];
            seq.copy_from_slice(&frame[TCP_AT + 4..TCP_AT + 8]);
            let ack = u32::from_be_bytes(seq).wrapping_add(1);
            if is_syn_ack {
                tx.transmit(|buffer| write(buffer, request, client, ack));
            } else {
                *done += 1;
                tx.transmit(|buffer| write(buffer, reset, client, 0));
            }
        })
    }
}

/// Copies a template and sets the client (port and last two bytes of its address) and the acknowledgement, without checksums:
/// the echo checks none.
fn write(buffer: &mut [u8], template: &[u8], client: [u8; 4], ack: u32) -> usize {
    buffer[..template.len()].copy_from_slice(template);
    buffer[TCP_AT..TCP_AT + 2].copy_from_slice(&client[..2]);
    buffer[IP_AT + 14..IP_AT + 16].copy_from_slice(&client[2..]);
    buffer[TCP_AT + 8..TCP_AT + 12].copy_from_slice(&ack.to_be_bytes());
    template.len().max(DATA_AT)
}

/// A frame of 60 bytes that the echo does not answer: a RST.
fn passed_frame(pair: &VethPair) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2(pair.a.mac, pair.b.mac)
        .ipv4([10, 1, 0, 0], SERVER, 64)
        .tcp(1, 80, 0, 0)
        .rst()
        .write(&mut frame, &[0; 6])
        .expect("a Vec takes all");
    frame
}
