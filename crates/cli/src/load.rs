//! `tidegate load`: sends a crowd.

use std::fmt::Write as _;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use load::{Arrivals, Bursts, Close, Config, Flood, Mode, Progress};
use results::{CrowdSummary, LatencySummary};
use serde_json::json;

use crate::output::say;
use crate::signals;

/// Send an open-loop crowd to an HTTP server: thousands of clients with a TCP of their own, from one core
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to ask for, as in http://192.0.2.1:8080/index.html
    #[arg(value_parser = parse_url)]
    url: Url,

    /// Attempts per second; 20k is 20000
    #[arg(long, value_name = "R", value_parser = parse_rate)]
    rate: f64,

    /// How long to start attempts, after the warm-up; as in 10s
    #[arg(long, value_name = "D", default_value = "10s", value_parser = parse_span)]
    duration: Duration,

    /// How long a user waits for the complete reply, from the intended start
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
    #[arg(long, value_name = "D", default_value = "0s", value_parser = humantime::parse_duration)]
    warmup: Duration,

    /// How long to wait at the end for open attempts; the timeout, unless given
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration)]
    drain: Option<Duration>,

    /// How a connection ends once the reply is complete or patience is lost
    #[arg(long, value_enum, default_value_t = CloseArg::Fin)]
    close: CloseArg,

    /// How attempts follow each other
    #[arg(long, value_enum, default_value_t = ArrivalsArg::Poisson)]
    arrivals: ArrivalsArg,

    /// Come in bursts of ON with gaps of OFF, as 10s/5s; in a gap one attempt starts each second. --rate is the mean over
    /// both, which the measured window shows if it holds a whole number of them
    #[arg(long, value_name = "ON/OFF", value_parser = parse_bursts)]
    bursts: Option<Bursts>,

    /// Seed of the arrivals; the same seed gives the same crowd
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where replies are taken from the kernel
    #[arg(long, value_enum, default_value_t = XdpArg::Auto)]
    xdp: XdpArg,

    /// Receive and send in bursts this far apart, as a NIC with interrupt moderation hands frames over
    #[arg(long, value_name = "D", default_value = "0s", value_parser = parse_coalesce)]
    coalesce: Duration,

    /// CPU to run on
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,

    /// Send spoofed SYNs through this veth in what time the crowd leaves; for the lab
    #[arg(long, value_name = "IF", hide = true)]
    flood: Option<String>,

    /// SYNs per second of the flood; inf is as many as there is time for
    #[arg(long, value_name = "R", hide = true, requires = "flood", default_value = "inf", value_parser = parse_flood_rate)]
    flood_rate: f64,

    /// Print one JSON object at the end, and one a second before it
    #[arg(long)]
    json: bool,
}

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
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ArrivalsArg {
    /// Independent users
    Poisson,
    /// Even gaps, as httperf
    Fixed,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum XdpArg {
    /// Native if the driver can, else generic
    Auto,
    /// In the driver
    Native,
    /// After the kernel made a socket buffer
    Generic,
}

/// Sends the crowd and prints what it saw.
pub fn run(args: Args) -> Result<()> {
    let stop = signals::stop_flag()?;
    if let Some(cpu) = args.cpu {
        netns::pin_to_cpu(cpu)?;
    }
    let config = config(&args)?;
    let json = args.json;
    let mut before = None;
    let summary = load::run(&config, &stop, |progress| {
        let line = progress_line(progress, before.replace(*progress), json);
        if line.is_some_and(|line| say(line).is_err()) {
            stop.store(true, Ordering::Relaxed); // nobody reads any more
        }
    })
    .with_context(|| format!("load {}", args.url.authority))?;
    if json {
        let mut line = serde_json::to_value(&summary).context("write the summary as JSON")?;
        line["event"] = json!("summary");
        say(line)?;
    } else {
        say(summary_text(&summary).trim_end())?;
    }
    ensure!(
        summary.generator.frames_received > 0 || summary.generator.frames_sent == 0,
        "nothing came back at all; has the server a route to {0} that leads here (ip route add {0} via ...)?",
        args.clients
    );
    Ok(())
}

fn config(args: &Args) -> Result<Config> {
    Ok(Config {
        server: resolve(&args.url.authority, args.clients)?,
        host: args.url.authority.clone(),
        path: args.url.path.clone(),
        rate: args.rate,
        arrivals: match args.arrivals {
            ArrivalsArg::Poisson => Arrivals::Poisson,
            ArrivalsArg::Fixed => Arrivals::Fixed,
        },
        bursts: args.bursts,
        warmup: args.warmup,
        duration: args.duration,
        drain: args.drain.unwrap_or(args.timeout),
        timeout: args.timeout,
        close: match args.close {
            CloseArg::Fin => Close::Fin,
            CloseArg::Rst => Close::Reset,
        },
        clients: args.clients,
        interface: args.interface.clone(),
        mode: match args.xdp {
            XdpArg::Auto => Mode::Auto,
            XdpArg::Native => Mode::Native,
            XdpArg::Generic => Mode::Generic,
        },
        coalesce: args.coalesce,
        seed: args.seed,
        flood: args.flood.clone().map(|interface| Flood { interface, rate: args.flood_rate }),
    })
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

/// One line a second: what happened since the last. The first progress, at time zero, is only an event for scripts.
fn progress_line(now: &Progress, before: Option<Progress>, json: bool) -> Option<String> {
    let Some(before) = before else {
        return json.then(|| json!({"event": "started"}).to_string());
    };
    let span = now.elapsed.since(before.elapsed).as_secs_f64();
    let per_s = |count: fn(&Progress) -> u64| (count(now) - count(&before)) as f64 / span;
    let replies = now.totals.ok - before.totals.ok;
    let response_us = now.totals.response_us - before.totals.response_us;
    let mean_ms = if replies > 0 { response_us as f64 / replies as f64 / 1e3 } else { 0.0 };
    let offered = per_s(|at| at.totals.offered);
    let ok = per_s(|at| at.totals.ok);
    let refused = per_s(|at| at.totals.refused);
    let failed = per_s(|at| at.totals.failed);
    let syns = per_s(|at| at.totals.syns);
    let elapsed = now.elapsed.as_secs_f64();
    let live = now.live;
    if json {
        let line = json!({
            "event": "progress",
            "elapsed_s": elapsed,
            "offered_per_s": offered,
            "ok_per_s": ok,
            "refused_per_s": refused,
            "failed_per_s": failed,
            "syns_per_s": syns,
            "mean_response_ms": mean_ms,
            "live": live,
        });
        return Some(line.to_string());
    }
    Some(format!(
        "{elapsed:>4.0} s  offered {offered:>7.0}/s  ok {ok:>7.0}/s  refused {refused:>7.0}/s  \
         failed {failed:>6.0}/s  SYNs {syns:>7.0}/s  mean {mean_ms:>8.2} ms  open {live}"
    ))
}

fn summary_text(summary: &CrowdSummary) -> String {
    let mut text = String::new();
    let share = |count: u64| 100.0 * count as f64 / summary.offered.max(1) as f64;
    let mut line =
        |text_of_line: std::fmt::Arguments<'_>| writeln!(text, "{text_of_line}").expect("a String takes all");
    line(format_args!(
        "\noffered {:.0}/s for {:.1} s, answered {:.0}/s, {:.2} SYNs per attempt",
        summary.offered_per_s, summary.window_s, summary.goodput_per_s, summary.syns_per_attempt
    ));
    let causes = [
        ("ok", summary.ok),
        ("refused", summary.refused),
        ("reset", summary.reset),
        ("timed out connecting", summary.timed_out_connect),
        ("timed out waiting", summary.timed_out_response),
        ("malformed reply", summary.malformed),
        ("not sent", summary.not_sent),
        ("unfinished", summary.unfinished),
    ];
    for (name, count) in causes.into_iter().filter(|&(_, count)| count > 0) {
        line(format_args!("  {name:<21} {count:>10}  {:>5.1}%", share(count)));
    }
    line(format_args!("response time  {}", latency_text(&summary.response_ms)));
    if summary.refusal_ms.count > 0 {
        line(format_args!("refused after  {}", latency_text(&summary.refusal_ms)));
    }
    let generator = &summary.generator;
    line(format_args!(
        "generator      {} frames sent, {} received ({}), at most {} connections of {} bytes",
        generator.frames_sent,
        generator.frames_received,
        generator.receive_mode,
        generator.peak_connections,
        generator.bytes_per_connection,
    ));
    for reason in &generator.reasons {
        line(format_args!("GENERATOR-LIMITED: {reason}"));
    }
    text
}

fn latency_text(latency: &LatencySummary) -> String {
    if latency.count == 0 {
        return "no replies".to_owned();
    }
    let LatencySummary { mean, p50, p90, p99, p999, max, .. } = latency;
    format!("mean {mean:.2}  p50 {p50:.2}  p90 {p90:.2}  p99 {p99:.2}  p99.9 {p999:.2}  max {max:.2} ms")
}

fn parse_url(text: &str) -> Result<Url, String> {
    let Some(rest) = text.strip_prefix("http://") else {
        return Err("a URL of the form http://ADDR:PORT/path; there is no TLS here".to_owned());
    };
    let (host, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
    let authority = if has_port { host.to_owned() } else { format!("{host}:80") };
    if rest.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err("there is a blank or a control character; encode it, as in %20".to_owned());
    }
    let port = authority.rsplit_once(':').map_or("", |(_, port)| port);
    if host.is_empty() || !port.parse::<u16>().is_ok_and(|port| port > 0) {
        return Err(format!("{authority:?} is not a host and a port; as in http://192.0.2.1:8080/"));
    }
    Ok(Url { authority, path: path.to_owned() })
}

/// A time between bursts.
fn parse_coalesce(text: &str) -> Result<Duration, String> {
    let gap = humantime::parse_duration(text).ok().filter(|&gap| gap <= load::MAX_COALESCE);
    gap.ok_or_else(|| format!("a time up to {:?}, as in 50us", load::MAX_COALESCE))
}

/// A time above zero, and up to a year.
fn parse_span(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(span) if !span.is_zero() && span <= Duration::from_secs(366 * 86_400) => Ok(span),
        _ => Err("a time above 0, as in 10s or 500ms".to_owned()),
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
    fn bursts_are_two_times_above_zero() {
        let bursts = parse_bursts("10s/500ms").expect("valid");
        assert_eq!((bursts.on().as_secs_f64(), bursts.cycle().as_secs_f64()), (10.0, 10.5));
        let error = |text| parse_bursts(text).expect_err(text);
        assert_eq!(error("10s"), "a burst and a gap with a slash between them, as in 10s/5s");
        assert_eq!(error("10s/0s"), "the gap: a time above 0, as in 10s or 500ms");
        assert_eq!(error("0s/5s"), "the burst: a time above 0, as in 10s or 500ms");
        for bad in ["", "/", "10s/", "/5s", "10s/5s/5s", "10/5", "-1s/5s", "10s 5s"] {
            assert!(!error(bad).contains('\n'), "{bad}");
        }
    }
}
