//! `tidegate serve`: the lab's own HTTP server, until Ctrl-C or SIGTERM.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use serve::{Accept, Config, Server};

use crate::output::say;
use crate::printer::complain;
use crate::signals;

/// An event-driven HTTP server with one thread, one prepared reply and a backlog of your choice
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080", value_parser = socket_addr)]
    listen: SocketAddr,

    /// The listen(2) argument; the kernel queues one connection more and caps it at
    /// net.core.somaxconn
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    backlog: u32,

    /// CPU time that each request burns before its reply, as in 150us
    #[arg(long, value_name = "D", default_value = "0s", value_parser = cpu_time)]
    cpu_time: Duration,

    /// Another --cpu-time from so long after the start on, as 10s:1ms: a server that becomes
    /// slower, or faster
    #[arg(long, value_name = "AFTER:D", value_parser = later)]
    cpu_time_later: Option<(Duration, Duration)>,

    /// How much of the accept queue to take when the listener is ready
    #[arg(long, value_enum, default_value_t = AcceptArg::Inf)]
    accept: AcceptArg,

    /// Length of the reply's body; up to about 1300 the reply fits one segment
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = reply_bytes)]
    reply_bytes: usize,

    /// Frame that reply by chunks, where the connection goes on, and not by its length
    #[arg(long)]
    chunks: bool,

    /// Print JSON lines instead of sentences
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum AcceptArg {
    /// All of it, then serve (Accept-INF)
    Inf,
    /// One connection, then serve it (Accept-1)
    One,
}

/// Most CPU time of a request: so long a signal may have to wait for the end of one.
const MAX_CPU_TIME: Duration = Duration::from_secs(60);
/// Longest reply body; replies are made in memory at start.
const MAX_REPLY_BYTES: usize = 1 << 30;

/// Serves until a signal, then prints what was done.
pub fn run(args: Args) -> Result<()> {
    let stop = signals::stop_flag()?;
    if let Err(error) = serve::raise_descriptor_limit() {
        complain(format_args!("raise the limit of open descriptors: {error}; raise it with ulimit -n"));
    }
    let mut server = Server::bind(&args.config())?;
    if server.backlog() < args.backlog {
        let (asked, given) = (args.backlog, server.backlog());
        complain(format_args!("net.core.somaxconn caps the backlog {asked} at {given}"));
    }
    let (address, backlog) = (server.local_addr(), server.backlog());
    if args.json {
        say(json!({"event": "listening", "address": address, "backlog": backlog}))?;
    } else {
        say(format_args!("listening on {address}, backlog {backlog}"))?;
    }

    let totals = server.run(&stop)?;
    if args.json {
        return say(json!({
            "event": "stopped",
            "accepted": totals.accepted,
            "requests": totals.requests,
            "errors": totals.errors(),
            "refused": totals.refused,
            "lost": totals.lost,
            "accept_failures": totals.accept_failures,
        }));
    }
    say(format_args!(
        "accepted {}, requests {}, errors {} (refused {}, lost {}, failed accepts {})",
        totals.accepted,
        totals.requests,
        totals.errors(),
        totals.refused,
        totals.lost,
        totals.accept_failures,
    ))
}

impl Args {
    fn config(&self) -> Config {
        Config {
            listen: self.listen,
            backlog: self.backlog,
            accept: match self.accept {
                AcceptArg::Inf => Accept::Inf,
                AcceptArg::One => Accept::One,
            },
            cpu_time: self.cpu_time,
            later: self.cpu_time_later,
            reply_bytes: self.reply_bytes,
            in_chunks: self.chunks,
        }
    }
}

fn socket_addr(text: &str) -> Result<SocketAddr, &'static str> {
    let hint = "an address and a port are wanted, as in 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| hint)
}

fn cpu_time(text: &str) -> Result<Duration, String> {
    let time = spelling::time(text).ok().filter(|time| *time <= MAX_CPU_TIME);
    time.ok_or_else(|| format!("{text:?} is no CPU time up to {MAX_CPU_TIME:?}, as in 150us"))
}

fn later(text: &str) -> Result<(Duration, Duration), String> {
    const LIKE: &str = "a time after the start and a CPU time, as in 10s:1ms";
    let (after, time) = text.split_once(':').ok_or(LIKE)?;
    Ok((spelling::time(after).map_err(|_| LIKE)?, cpu_time(time)?))
}

fn reply_bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|_| "a number of bytes is wanted, as in 512".to_owned())?;
    if bytes > MAX_REPLY_BYTES {
        return Err(format!("at most {MAX_REPLY_BYTES} bytes"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_times_that_a_signal_would_wait_for_too_long_are_refused() {
        assert_eq!(cpu_time("150us"), Ok(Duration::from_micros(150)));
        assert_eq!(cpu_time("60s"), Ok(MAX_CPU_TIME));
        assert_eq!(later("10s:1ms"), Ok((Duration::from_secs(10), Duration::from_millis(1))));
        assert!(later("500y:1ms").is_ok(), "it is never later");
        for (bad, why) in [
            ("1s:500y", "\"500y\" is no CPU time up to 60s, as in 150us"),
            ("1s:61s", "\"61s\" is no CPU time"),
            ("1s", "a time after the start and a CPU time"),
            ("soon:1ms", "a time after the start and a CPU time"),
        ] {
            let error = later(bad).expect_err(bad);
            assert!(error.contains(why) && !error.contains('\n'), "{bad}: {error}");
        }
        assert!(cpu_time("500y").is_err() && cpu_time("much").is_err());
    }
}
