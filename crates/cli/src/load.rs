//! `tidegate load`: sends a crowd.

mod fail_if;
mod lines;
mod metrics;
mod ports;
mod records;

use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU8;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use load::{
    Abort, Arrivals, Bursts, Close, Config, Ended, Flood, Log, Mode, Observer, Progress, Replay, Sessions,
    Shape, Shard, Stacks, Totals, Workload,
};
use results::LoadEvent;

use fail_if::FailIf;
pub use lines::{json_line, summary_text};
use lines::{progress_since, progress_text};
use metrics::Responses;
use records::Records;
use units::Nanos;

use crate::answerer;
use crate::exporter::Exporter;
use crate::mistake::unless_out_of_reach;
use crate::output::say;
use crate::printer::complain;
use crate::signals;

/// Send an open-loop crowd to an HTTP server: thousands of clients with a TCP of their own, from
/// one core or several
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to ask for, as in http://192.0.2.1:8080/index.html
    #[arg(value_parser = parse_url)]
    url: Url,

    /// Attempts per second; 20k is 20000
    #[arg(long, value_name = "R", value_parser = parse_rate, required_unless_present_any = ["replay", "users"])]
    rate: Option<f64>,

    /// How long to start attempts, after the warm-up; as in 10s
    #[arg(long, value_name = "D", default_value = "10s", value_parser = parse_span)]
    duration: Duration,

    /// How long a complete reply may take, from when its request should have been sent
    #[arg(long, value_name = "T", default_value = "10s", value_parser = parse_span)]
    timeout: Duration,

    /// Network of the source addresses; the server needs a route to it by this machine, as
    /// `ip route add 198.51.100.0/24 via ADDRESS` there makes it
    #[arg(long, value_name = "CIDR", value_parser = guard::parse_network)]
    clients: IpNet,

    /// Interface that leads to the server
    #[arg(long, value_name = "IF")]
    interface: String,

    /// Attempts before the measured window, which are sent but not counted
    #[arg(long, value_name = "D", default_value = "0s", value_parser = spelling::time)]
    warmup: Duration,

    /// How long to wait at the end for open attempts; as long as users are patient, unless given
    #[arg(long, value_name = "D", value_parser = spelling::time)]
    drain: Option<Duration>,

    /// How a connection ends once the reply is complete or patience is lost
    #[arg(long, value_enum, default_value_t = CloseArg::Fin)]
    close: CloseArg,

    #[command(flatten)]
    ends: ports::Ends,

    /// Systems of the clients, whose TCP they have, with shares that sum to 1: linux, linux-6.4,
    /// linux-2.4, linux-2.2, win-emu, windows-10, windows-xp, windows-nt, freebsd, freebsd-5.3,
    /// macos, macos-10.3
    #[arg(long, value_name = "NAME[:SHARE],...", default_value_t = Stacks::default())]
    stacks: Stacks,

    /// How attempts follow each other
    #[arg(long, value_enum, default_value_t = ArrivalsArg::Poisson)]
    arrivals: ArrivalsArg,

    /// Come in bursts of ON with gaps of OFF, as 10s/5s; in a gap one attempt starts each second.
    /// --rate is the mean over both, which the measured window shows if it holds a whole number of
    /// them
    #[arg(long, value_name = "ON/OFF", value_parser = parse_bursts)]
    bursts: Option<Bursts>,

    /// Rate over time, as multiples of --rate: w1 to w10 of `[SH06]`, pieces as 25s:0.2,25s:1.2, a
    /// ramp as 60s:0.2-1.5; from the start of the warm-up on, and then again
    #[arg(long, value_name = "SHAPE", value_parser = load::parse_shape, conflicts_with = "bursts")]
    shape: Option<Shape>,

    /// What clients ask for in place of the URL's path: specweb99, specweb99-2.62, specweb99-7.2,
    /// world-cup, world-cup-5, nasa, redfavor, a table as '{ kind = "specweb99", directories = 5
    /// }', or a TOML file with one. `tidegate serve` answers all of them
    #[arg(long, value_name = "WORKLOAD", default_value = "one-packet", value_parser = experiment::parse_workload)]
    workload: Workload,

    /// Users look at one page after another and think in between; --rate is that of users. redfavor
    /// is `[RF]` table I, or a table as '{ pages = 10, objects = 3, think = "5s", between_objects =
    /// "100ms" }' has the means
    #[arg(long, value_name = "SESSIONS", value_parser = load::parse_sessions, conflicts_with = "replay")]
    sessions: Option<Sessions>,

    /// Repeat a log: its times and the sizes of its replies. Common Log Format, or the World Cup's
    /// of 1998; plain or gzip
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rate", "bursts", "shape", "workload", "arrivals"])]
    replay: Option<PathBuf>,

    /// How many times as fast as in the log
    #[arg(long, value_name = "X", default_value_t = 1.0, requires = "replay", value_parser = parse_speed)]
    speed: f64,

    /// Users stop waiting after so long and load the page again
    #[arg(long, value_name = "T", value_parser = parse_span)]
    abort_after: Option<Duration>,

    /// How often they do
    #[arg(long, value_name = "N", default_value_t = 3, requires = "abort_after")]
    reloads: u8,

    /// Requests that a connection carries at most, of one user after the other
    #[arg(long, value_name = "N", default_value = "1")]
    reuse: NonZeroU8,

    /// Seed of the arrivals; the same seed gives the same crowd
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where replies are taken from the kernel
    #[arg(long, value_enum, default_value_t = XdpArg::Auto)]
    xdp: XdpArg,

    /// Receive and send in bursts this far apart, as a NIC with interrupt moderation hands frames
    /// over
    #[arg(long, value_name = "D", default_value = "0s", value_parser = parse_coalesce)]
    coalesce: Duration,

    /// Send part I of N of this crowd, from 1, as 2/3: each of several hosts its own, with a client
    /// network of its own. --rate is that of all together. `tidegate merge` adds what they print
    /// with --json
    #[arg(long, value_name = "I/N", value_parser = parse_shard, default_value = "1/1")]
    shard: Shard,

    /// Threads that send and receive, each with a queue of the interface of its own; 1 to 64
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_workers)]
    workers: usize,

    /// CPUs to run on, one for each worker in their order, as 0, 1-4 or 0,2,4
    #[arg(long, value_name = "LIST", value_parser = parse_cpus)]
    cpu: Option<Cpus>,

    /// Send spoofed SYNs through this veth in what time the crowd leaves; for the lab
    #[arg(long, value_name = "IF", hide = true)]
    flood: Option<String>,

    /// SYNs per second of the flood; inf is as many as there is time for
    #[arg(long, value_name = "R", hide = true, requires = "flood", default_value = "inf", value_parser = parse_flood_rate)]
    flood_rate: f64,

    /// Fail (exit status 1) if a result is beyond this bound; may be given several times
    ///
    /// Times as p99>50ms (mean, p50, p90, p99, p99.9, max), shares of the attempts as refused>1%
    /// (ok, refused, reset, timed-out, aborted, malformed; failed is all but ok, late is started
    /// more than 1 ms late), and goodput<20k. Replies by status as non-2xx>0 or 5xx>1% of them
    /// (2xx, 3xx, 4xx, 5xx, non-2xx): a complete reply is ok whatever its status. A generator that
    /// was the limit is no failure by itself: late>5% makes it one.
    #[arg(long, value_name = "BOUND")]
    fail_if: Vec<FailIf>,

    /// Write a new file with the histogram of response times of each second, as HdrHistogram's
    /// tools read it (microseconds)
    #[arg(long, value_name = "FILE")]
    hdr_log: Option<PathBuf>,

    /// Write a new CSV file with a line for each attempt that was sent
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// Show the counts to Prometheus at http://ADDR:PORT/metrics while the crowd comes
    #[arg(long, value_name = "ADDR:PORT", value_parser = answerer::parse_address)]
    prometheus: Option<SocketAddr>,

    /// Print one JSON object at the end, and one a second before it
    #[arg(long)]
    json: bool,
}

/// CPUs by their numbers, each once.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Cpus(Vec<usize>);

#[derive(Debug, Clone)]
struct Url {
    /// Host and port.
    authority: String,
    path: String,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum CloseArg {
    /// close(2)
    Fin,
    /// Abortive: a RST, and neither end keeps anything
    Rst,
    /// Where the server closes first its last ACK is answered by a RST, so that TIME_WAIT is here:
    /// LAST_ACK_SWAP of `[FTY97]`
    Swap,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ArrivalsArg {
    /// Independent users
    Poisson,
    /// Even gaps, as httperf
    Fixed,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum XdpArg {
    /// Native if the driver can, else generic, and where there is no AF_XDP off
    Auto,
    /// In the driver
    Native,
    /// After the kernel made a socket buffer
    Generic,
    /// Not by XDP: a packet socket, which every kernel has; slower
    Off,
}

impl XdpArg {
    /// As the tools name it.
    pub fn mode(self) -> Mode {
        match self {
            Self::Auto => Mode::Auto,
            Self::Native => Mode::Native,
            Self::Generic => Mode::Generic,
            Self::Off => Mode::Packet,
        }
    }
}

/// Sends the crowd and prints what it saw.
pub fn run(args: Args) -> Result<()> {
    // Before it has a CPU, which the thread that answers would share.
    let exporter = args.prometheus.map(|address| Exporter::bind(address, false)).transpose()?;
    // Several workers have each its own, and this thread any.
    if let (1, Some(Cpus(cpus))) = (args.workers, &args.cpu) {
        netns::pin_to_cpu(cpus[0])?;
    }
    let config = config(&args)?;
    // Not before: a log may be a pipe to which nobody writes, and a signal is to end the wait for
    // that.
    let stop = signals::stop_flag()?;
    let json = args.json;
    let records = Records::create(args.csv.as_deref(), args.hdr_log.as_deref())?;
    let mut watch = Watch {
        json,
        before: None,
        records,
        exporter,
        responses: Responses::default(),
        has_bounds: !args.fail_if.is_empty(),
        stop: &stop,
        clients: Some(args.clients),
    };
    let result = load::run(&config, &stop, &mut watch);
    let context = || format!("load {}", args.url.authority);
    let (summary, written) = match result {
        // Nothing was sent.
        Err(error) if watch.before.is_none() => {
            watch.records.discard();
            return Err(error).with_context(context);
        }
        result => {
            let written = watch.records.finish();
            (result.with_context(context)?, written)
        }
    };
    let said = if json {
        say(json_line(&LoadEvent::Summary(Box::new(summary.clone()))))
    } else {
        say(summary_text(&summary).trim_end())
    };
    ensure!(
        summary.generator.frames_received > 0 || summary.generator.frames_sent == 0,
        "nothing came back at all; {}",
        route_hint(args.clients)
    );
    // Whether or not anybody read the result, and whether or not it could be kept.
    let complaints: Vec<String> =
        args.fail_if.iter().filter_map(|fail_if| fail_if.complaint(&summary)).collect();
    ensure!(complaints.is_empty(), "failed by --fail-if {}", complaints.join("; "));
    written?;
    said
}

/// Prints a line a second, and keeps records.
struct Watch<'a> {
    json: bool,
    /// When the last line was printed, and what had been counted then.
    before: Option<(Nanos, Totals)>,
    records: Records,
    exporter: Option<Exporter>,
    responses: Responses,
    stop: &'a AtomicBool,
    /// Somebody asks whether it failed.
    has_bounds: bool,
    /// Of the network whose replies should come; until it was said that none do.
    clients: Option<IpNet>,
}

impl Watch<'_> {
    /// Says it early, once: a crowd of a minute that hears nothing is a minute lost.
    fn complain_of_silence(&mut self, progress: &Progress<'_>) {
        let is_silent = progress.frames_received == 0 && progress.elapsed >= Nanos::from_secs(2);
        if is_silent && let Some(clients) = self.clients.take() {
            complain(format_args!("nothing has come back so far; {}", route_hint(clients)));
        }
    }
}

fn route_hint(clients: IpNet) -> String {
    format!(
        "has the server a route to {clients} that leads here (ip route add {clients} via THIS_HOST, there)?"
    )
}

impl Observer for Watch<'_> {
    fn progress(&mut self, progress: &Progress<'_>) {
        let before = self.before.replace((progress.elapsed, progress.totals));
        if let Some((since, _)) = before {
            self.records.interval(since.into(), progress.elapsed.into(), progress.interval);
        }
        self.complain_of_silence(progress);
        if let Some(exporter) = &self.exporter {
            self.responses.add(progress.interval);
            exporter.publish(self.responses.metrics(progress));
        }
        let since = progress_since(before, progress);
        let line = if self.json {
            Some(json_line(&since.map_or(LoadEvent::Started, LoadEvent::Progress)))
        } else {
            since.as_ref().map(progress_text)
        };
        // Nobody reads any more, and nobody waits for how it ends.
        if line.is_some_and(|line| say(line).is_err()) && !self.has_bounds {
            self.stop.store(true, Ordering::Relaxed);
        }
    }

    fn last_interval(&mut self, progress: &Progress<'_>) {
        let since = self.before.map_or(Nanos::ZERO, |(since, _)| since);
        self.records.interval(since.into(), progress.elapsed.into(), progress.interval);
    }

    fn wants_ended(&self) -> bool {
        self.records.wants_ended()
    }

    fn ended(&mut self, attempts: &mut dyn Iterator<Item = Ended>) {
        self.records.ended(attempts);
    }
}

fn config(args: &Args) -> Result<Config> {
    let replay = args.replay.as_deref().map(|path| replay(path, args.speed)).transpose()?;
    // Of a log the mean, for the size of tables.
    let rate = args
        .rate
        .or_else(|| replay.as_ref().map(|replay| replay.len() as f64 / replay.span().as_secs_f64().max(1.0)));
    Ok(Config {
        server: resolve(&args.url.authority, args.clients)?,
        host: args.url.authority.clone(),
        path: args.url.path.clone(),
        rate: rate.unwrap_or(1.0),
        replay,
        arrivals: match args.arrivals {
            ArrivalsArg::Poisson => Arrivals::Poisson,
            ArrivalsArg::Fixed => Arrivals::Fixed,
        },
        bursts: args.bursts,
        shape: args.shape.clone(),
        workload: args.workload.clone(),
        sessions: args.sessions,
        shard: args.shard,
        reuse: args.reuse,
        abort: args.abort_after.map(|after| Abort { after: after.into(), reloads: args.reloads }),
        warmup: args.warmup,
        duration: args.duration,
        drain: args.drain.unwrap_or_else(|| patience(args)),
        timeout: args.timeout,
        close: match args.close {
            CloseArg::Fin => Close::Fin,
            CloseArg::Rst => Close::Reset,
            CloseArg::Swap => Close::Swap,
        },
        ports: args.ends.ports(),
        users: args.ends.users(),
        server_closes_first: args.ends.server_first(),
        says_client_close: args.ends.says_client_close(),
        stacks: args.stacks.clone(),
        clients: args.clients,
        interface: args.interface.clone(),
        mode: args.xdp.mode(),
        workers: args.workers,
        cpus: args.cpu.clone().map(|Cpus(cpus)| cpus).unwrap_or_default(),
        coalesce: args.coalesce,
        seed: args.seed,
        flood: args.flood.clone().map(|interface| Flood { interface, rate: args.flood_rate }),
    })
}

/// How long a user who began last may take to give up.
fn patience(args: &Args) -> Duration {
    let reloaded = args.abort_after.map(|after| after.min(args.timeout) * (u32::from(args.reloads) + 1));
    reloaded.unwrap_or_default().max(args.timeout)
}

fn replay(path: &Path, speed: f64) -> Result<Arc<Replay>> {
    let Log { replay, skipped } = unless_out_of_reach(load::read_log(path, speed))?;
    complain(format_args!(
        "{}: {} requests in {:.0} s at this speed{}",
        path.display(),
        replay.len(),
        replay.span().as_secs_f64(),
        match skipped {
            0 => String::new(),
            1 => "; 1 line is none and is left out".to_owned(),
            skipped => format!("; {skipped} lines are none and are left out"),
        }
    ));
    Ok(Arc::new(replay))
}

/// Address of the server, of the clients' family.
fn resolve(authority: &str, clients: IpNet) -> Result<SocketAddr> {
    let is_ipv4 = clients.addr().is_ipv4();
    let mut addresses = authority.to_socket_addrs().with_context(|| format!("look up {authority}"))?;
    let found = addresses.find(|address| address.is_ipv4() == is_ipv4);
    found.with_context(|| {
        format!("{authority} has no address of the family of the clients {clients}; name others")
    })
}

fn parse_url(text: &str) -> Result<Url, String> {
    let Some(rest) = text.strip_prefix("http://") else {
        return Err("a URL of the form http://ADDR:PORT/path; there is no TLS here".to_owned());
    };
    let (host, path) = rest.find(['/', '?', '#']).map_or((rest, ""), |at| rest.split_at(at));
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
    if rest.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("there is a blank or a control character; encode it, as in %20".to_owned());
    }
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    if host.is_empty() || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!("{authority:?} is not a host and a port; as in http://192.0.2.1:8080/"));
    }
    Ok(Url { authority, path })
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed = text.parse().ok().filter(|speed: &f64| *speed > 0.0 && speed.is_finite());
    speed.ok_or_else(|| "a number above 0: 2 is twice as fast".to_owned())
}

/// `2/3`: the second of three parts.
fn parse_shard(text: &str) -> Result<Shard, String> {
    let read = || {
        let (index, count) = text.split_once('/')?;
        let (index, count): (u32, u32) = (index.parse().ok()?, count.parse().ok()?);
        Shard::new(index.checked_sub(1)?, count)
    };
    read().ok_or_else(|| "a part of so many, from 1, as in 2/3".to_owned())
}

fn parse_workers(text: &str) -> Result<usize, String> {
    let workers = text.parse().ok().filter(|workers| (1..=load::MAX_WORKERS).contains(workers));
    workers.ok_or_else(|| format!("a number of threads, 1 to {}", load::MAX_WORKERS))
}

/// `1-4` or `0,2,4`, or of both.
fn parse_cpus(text: &str) -> Result<Cpus, String> {
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        // As many as a kernel can have fit.
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some(usize::from(first)..=usize::from(last))
    };
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    let cpus: Vec<usize> =
        ranges.ok_or("CPUs by their numbers, as 0, 1-4 or 0,2,4")?.into_iter().flatten().collect();
    let mut sorted = cpus.clone();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("CPU {} is there twice; each worker has its own", pair[0])),
        None => Ok(Cpus(cpus)),
    }
}

/// A time between bursts.
fn parse_coalesce(text: &str) -> Result<Duration, String> {
    let gap = spelling::time(text).ok().filter(|&gap| gap <= load::MAX_COALESCE);
    gap.ok_or_else(|| format!("a time up to {:?}, as in 50us", load::MAX_COALESCE))
}

/// A time above zero, and up to a year.
fn parse_span(text: &str) -> Result<Duration, String> {
    match spelling::time(text) {
        Ok(span) if !span.is_zero() && span <= Duration::from_secs(366 * 86_400) => Ok(span),
        _ => Err("a time above 0 and up to a year, as in 10s or 500ms".to_owned()),
    }
}

/// Lengths of a burst and of a gap, both above zero.
fn parse_bursts(text: &str) -> Result<Bursts, String> {
    let (on, off) =
        text.split_once('/').ok_or("a burst and a gap with a slash between them, as in 10s/5s")?;
    let on = parse_span(on).map_err(|why| format!("the burst: {why}"))?;
    let off = parse_span(off).map_err(|why| format!("the gap: {why}"))?;
    Ok(Bursts::new(on.into(), off.into()).expect("both above zero"))
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1e3),
        None => (text, 1.0),
    };
    match digits.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate * factor <= load::MAX_RATE => Ok(rate * factor),
        _ => Err("a number of attempts per second above 0 and up to 100 million, as 20000 or 20k".to_owned()),
    }
}

fn parse_flood_rate(text: &str) -> Result<f64, String> {
    if text == "inf" { Ok(f64::INFINITY) } else { parse_rate(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_gives_server_and_path() {
        let url = parse_url("http://127.0.0.1:8080/a/b?c=d").expect("valid");
        assert_eq!((url.authority.as_str(), url.path.as_str()), ("127.0.0.1:8080", "/a/b?c=d"));
        let url = parse_url("http://[::1]").expect("valid");
        assert_eq!((url.authority.as_str(), url.path.as_str()), ("[::1]:80", "/"));
    }

    #[test]
    fn query_may_follow_the_host() {
        let url = parse_url("http://127.0.0.1?q=1").expect("valid");
        assert_eq!((url.authority.as_str(), url.path.as_str()), ("127.0.0.1:80", "/?q=1"));
    }

    #[test]
    fn url_that_would_split_the_request_is_refused() {
        assert!(parse_url("http://127.0.0.1/a b").is_err());
        assert!(parse_url("http://127.0.0.1/a\r\nX: y").is_err());
        assert!(parse_url("https://127.0.0.1/").is_err());
        assert!(parse_url("http://").is_err());
        assert!(parse_url("http://127.0.0.1:x/").is_err());
    }

    #[test]
    fn rate_is_a_number_above_zero() {
        assert_eq!(parse_rate("20k"), Ok(20_000.0));
        assert_eq!(parse_rate("0.5"), Ok(0.5));
        for bad in ["0", "-1", "nan", "inf", "1e9", "1e306k", "fast", ""] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn cpus_are_a_list_of_numbers_and_ranges() {
        for (text, cpus) in
            [("1", vec![1]), ("1-4", vec![1, 2, 3, 4]), ("4,0,2", vec![4, 0, 2]), ("0-1,5", vec![0, 1, 5])]
        {
            assert_eq!(parse_cpus(text), Ok(Cpus(cpus)));
        }
        for bad in ["", "-1", "1-", "4-1", "one", "1,", "0-99999999999", "1 2", "1--2"] {
            assert!(parse_cpus(bad).is_err_and(|why| why.starts_with("CPUs by their numbers")), "{bad}");
        }
        assert_eq!(parse_cpus("0-2,1"), Err("CPU 1 is there twice; each worker has its own".to_owned()));
        assert_eq!(parse_workers("64"), Ok(64));
        for bad in ["0", "65", "-1", "two"] {
            assert_eq!(parse_workers(bad), Err("a number of threads, 1 to 64".to_owned()));
        }
    }

    #[test]
    fn bursts_are_two_times_above_zero() {
        let bursts = parse_bursts("10s/500ms").expect("valid");
        assert_eq!((bursts.on().as_secs_f64(), bursts.cycle().as_secs_f64()), (10.0, 10.5));
        let error = |text| parse_bursts(text).expect_err(text);
        assert_eq!(error("10s"), "a burst and a gap with a slash between them, as in 10s/5s");
        assert_eq!(error("10s/0s"), "the gap: a time above 0 and up to a year, as in 10s or 500ms");
        assert_eq!(error("0s/5s"), "the burst: a time above 0 and up to a year, as in 10s or 500ms");
        assert_eq!(
            error("99999999999999999999s/5s"),
            "the burst: a time above 0 and up to a year, as in 10s or 500ms"
        );
        for bad in ["", "/", "10s/", "/5s", "10s/5s/5s", "10/5", "-1s/5s", "10s 5s"] {
            assert!(!error(bad).contains('\n'), "{bad}");
        }
    }
}
