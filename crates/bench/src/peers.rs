//! Other load generators, beside ours.

use std::io::ErrorKind;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::echo::Requests;
use anyhow::{Context, Result};
use bpf::{Hook, Link};
use load::{Close, Config, Progress};
use nix::net::if_::if_nametoindex;

use crate::load::{Cores, before_echo, one_packet};
use crate::turns::Turns;
use crate::{SERVER_CPU, clients, go_on};
use lab::{CROWD_INTERFACE, Testbed};

/// Of the comparison with httperf: attempts/s, half of what the server can do, and attempts.
const HTTPERF_RATE: f64 = 100.0;
const HTTPERF_CONNECTIONS: f64 = 200.0;
/// What we may have told the C library: they run as anybody starts them.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// How long it may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// One that opens as many connections as it can.
pub(crate) struct Peer {
    pub figure: &'static str,
    /// Of a bare socket beside it: as much as any crowd over AF_XDP could have.
    pub bare_figure: &'static str,
    pub program: &'static str,
    /// Before the URL.
    arguments: &'static [&'static str],
    /// Of what it prints.
    rate: fn(&str) -> Option<f64>,
    pub reference: &'static str,
}

/// Both open a connection for each request: wrk where the server says that it will close, h2load
/// when it has as many clients as requests.
pub(crate) const PEERS: [Peer; 2] = [
    Peer {
        figure: "load.vs_wrk",
        bare_figure: "load.bare_exchange_vs_wrk",
        program: "wrk",
        arguments: &["-t1", "-c64", "-d1s"],
        rate: |text| text.lines().find_map(|line| line.strip_prefix("Requests/sec:")?.trim().parse().ok()),
        reference: "wrk with 64 connections, each for one request, before the same server where it is fastest",
    },
    Peer {
        figure: "load.vs_h2load",
        bare_figure: "load.bare_exchange_vs_h2load",
        program: "h2load",
        arguments: &["--h1", "-n5000", "-c5000"],
        rate: |text| {
            let line = text.lines().find(|line| line.starts_with("finished in"))?;
            line.split(", ").nth(1)?.strip_suffix(" req/s")?.parse().ok()
        },
        reference: "h2load with 5,000 connections, each for one request, before the same server where it is fastest",
    },
];

impl Peer {
    /// The most that it does before an XDP echo, be that where the crowd has it, on this core, or
    /// where the kernel's own sockets may have it cheaper; `None` where it is not installed.
    pub(crate) fn connections_per_s(&self, turns: &mut Turns<'_>) -> Result<Option<f64>> {
        let (mut most, mut failed) = (None, None);
        for hook in [Hook::XdpNative, Hook::XdpGeneric] {
            for cores in [Cores::Shared, Cores::Own] {
                turns.next()?;
                match self.before(hook, cores) {
                    Ok(None) => return Ok(None),
                    Ok(Some(rate)) => most = Some(rate.max(most.unwrap_or(rate))),
                    // One way in which it cannot do it says nothing of the others.
                    Err(error) => failed = Some(error),
                }
            }
        }
        match (most, failed) {
            (None, Some(error)) => Err(error),
            (most, _) => Ok(most),
        }
    }

    fn before(&self, hook: Hook, cores: Cores) -> Result<Option<f64>> {
        let (testbed, _echo) = before_echo(Requests::Answered, hook, cores)?;
        // What a native program answers reaches only who has one as well.
        let pass = || -> Result<Link> {
            Link::pass(if_nametoindex(CROWD_INTERFACE)?).context("pass what is answered")
        };
        let _pass = if hook == Hook::XdpNative { Some(testbed.crowd.enter(pass)??) } else { None };
        testbed.crowd.set_sysctl("net.ipv4.ip_local_port_range", "1024 65535")?;
        let url = format!("http://{}/", testbed.server_address());
        let mut command = testbed.crowd.command(self.program)?;
        let output = match command.args(self.arguments).arg(&url).env_remove(TUNABLES).output() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            output => output.with_context(|| format!("start {}", self.program))?,
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let rate =
            (self.rate)(&text).filter(|_| !text.contains("Socket errors") && !text.contains(" 0 succeeded"));
        rate.map(Some)
            .with_context(|| format!("{} did not do what it was told: {}", self.program, one_line(&text)))
    }
}

/// What a generator saw of a server that was below its peak.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    pub replies_per_s: f64,
    pub response_ms: f64,
}

/// Ours and httperf's view of the same server, one after the other: `tidegate serve` on a CPU of
/// its own, with requests that take long enough for httperf's tenths of a millisecond. `None` where
/// httperf is not installed.
pub(crate) fn beside_httperf(stop: &AtomicBool) -> Result<Option<(Seen, Seen)>> {
    let testbed = Testbed::join(clients())?;
    let address = testbed.server_address();
    let program = std::env::current_exe().context("find this program")?;
    let _server = testbed.serve(&program, SERVER_CPU, &["--cpu-time", "5ms"])?;
    let config = Config {
        duration: Duration::from_secs_f64(HTTPERF_CONNECTIONS / HTTPERF_RATE),
        timeout: PATIENCE,
        close: Close::Fin,
        ..one_packet(&testbed, HTTPERF_RATE)
    };
    let ours = testbed.crowd.enter(|| load::run(&config, stop, &mut |_: &Progress<'_>| {}))??;
    go_on(stop)?;
    let mut httperf = testbed.crowd.command("httperf")?;
    httperf.env_remove(TUNABLES).args([
        "--hog",
        "--uri",
        "/",
        "--timeout",
        "5",
        "--server",
        &address.ip().to_string(),
    ]);
    httperf.args(["--port", &address.port().to_string(), "--rate", &HTTPERF_RATE.to_string()]);
    let output = match httperf.args(["--num-conns", &HTTPERF_CONNECTIONS.to_string()]).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        output => output.context("start httperf")?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |after: &str| text.split_once(after)?.1.split_whitespace().next()?.parse::<f64>().ok();
    let seen = || {
        // From connect(2) on; the handshake's end is in "connect".
        let response_ms = number("Connection time [ms]: connect ")?
            + number("Reply time [ms]: response ")?
            + number(" transfer ")?;
        Some(Seen { replies_per_s: number(" replies ")? / number("test-duration ")?, response_ms })
    };
    let is_whole = number(" replies ") == Some(HTTPERF_CONNECTIONS) && number("Errors: total ") == Some(0.0);
    let theirs = seen()
        .filter(|_| is_whole)
        .with_context(|| format!("httperf did not do what it was told: {}", one_line(&text)))?;
    Ok(Some((Seen { replies_per_s: ours.goodput_per_s, response_ms: ours.response_ms.mean }, theirs)))
}

/// What a program printed, as the end of an error.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
