//! `tidegate guard`: protects a listening port until it is told to stop.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::builder::PossibleValuesParser;
use guard::{Attach, Config, Guard, ListenerStats, OnFin, Policy, Sample, Verdict};
use serde_json::{Value, json};

use crate::output::say;
use crate::signals;

/// Between two lines.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest time until a signal is noticed.
const NAP: Duration = Duration::from_millis(50);
/// How long the programs decide without hearing of us; a process that is stopped or hangs guards nothing.
const LEASE: Duration = Duration::from_secs(1);
/// Lines between two headers on a terminal.
const HEADER_EVERY: u64 = 20;

/// Guard a listening port: refuse at once what the kernel would drop because the accept queue is full
///
/// Runs until Ctrl-C or SIGTERM. Nothing stays behind, however it ends. Needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port of the listener; `0.0.0.0` and `[::]` stand for every address of this host
    #[arg(long, value_name = "ADDR:PORT", value_parser = socket_addr)]
    listen: SocketAddr,

    /// What to do when the accept queue is full; mechanisms joined by +, as in abort+rst-syn
    ///
    /// default: nothing. early-syn-drop: drop a SYN before the kernel does. rst-syn: answer it with RST. abort: answer the
    /// end of a handshake with RST and forget it. reserv: answer no SYN without a place left for its handshake (reserv:150
    /// promises 150 for 100 places). To compare with: police:RATE or police:RATE/BURST admits so many attempts a second;
    /// persistent-drop:PERCENT refuses a fixed share of attempts, each time they try. The last three drop, or with
    /// rst-syn reset. rst-fin: destroy a connection whose client sends FIN, unless bytes were not read or not acknowledged
    /// (rst-fin:always: even then); only for servers whose clients never half-close.
    #[arg(long, value_name = "POLICY", value_parser = Policy::from_str)]
    policy: Policy,

    /// Interface to guard; repeatable. Without it, every one that is up and has an address
    #[arg(long = "interface", value_name = "IF")]
    interfaces: Vec<String>,

    /// Where on the interface; auto is tcx on veth and loopback, and native XDP where the driver has it
    #[arg(long, value_name = "HOOK", default_value = "auto", value_parser = PossibleValuesParser::new(Attach::NAMED.map(|(name, _)| name)))]
    attach: String,

    /// Count what would be done, and leave every packet alone
    #[arg(long)]
    dry_run: bool,

    /// Print JSON lines, one a second: "attached", then "sample"s, at last "final"
    #[arg(long)]
    json: bool,

    /// Stop after this time, as in 10s
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
}

/// Guards until a signal or the end of `--duration`.
pub fn run(args: Args) -> Result<()> {
    // Before anything is attached: a signal from now on ends the run in order.
    let stop = signals::stop_flag()?;
    let guard = Guard::start(&config(&args))?;
    for warning in guard.warnings() {
        eprintln!("tidegate: warning: {warning}");
    }
    let mut out = Out::new(&args);
    watch(&guard, &args, &stop, &mut out)
}

fn config(args: &Args) -> Config {
    let attach = Attach::NAMED.into_iter().find(|(name, _)| *name == args.attach);
    Config {
        listen: args.listen,
        policy: args.policy,
        interfaces: args.interfaces.clone(),
        attach: attach.expect("clap checked the name").1,
        dry_run: args.dry_run,
        lease: Some(LEASE),
    }
}

fn watch(guard: &Guard, args: &Args, stop: &AtomicBool, out: &mut Out) -> Result<()> {
    let start = Instant::now();
    // Longer than a clock can say is for ever.
    let end = args.duration.and_then(|duration| start.checked_add(duration));
    out.attached(guard)?;
    let mut last = guard.sample()?;
    let mut last_at = start.elapsed();
    let mut due = start + INTERVAL;
    while sleep_until(end.map_or(due, |end| end.min(due)), stop, guard)? && end.is_none_or(|end| due <= end) {
        let sample = guard.sample()?;
        let now = start.elapsed();
        out.sample(now, &sample, &last, now - last_at)?;
        (last, last_at) = (sample, now);
        // Not `now + INTERVAL`: a late line must not make all later ones late.
        while due <= Instant::now() {
            due += INTERVAL;
        }
    }
    out.last(start.elapsed(), &guard.sample()?)
}

/// Whether `wake` came before a signal did; renews the lease meanwhile.
fn sleep_until(wake: Instant, stop: &AtomicBool, guard: &Guard) -> Result<bool> {
    while !stop.load(Ordering::Relaxed) {
        guard.renew()?;
        let left = wake.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        std::thread::sleep(left.min(NAP));
    }
    Ok(false)
}

/// A word, and the counter that it stands for.
type Refusal = (&'static str, fn(&ListenerStats) -> u64);

/// Lines for a person, or JSON.
struct Out<'a> {
    args: &'a Args,
    lines: u64,
}

impl<'a> Out<'a> {
    fn new(args: &'a Args) -> Self {
        Self { args, lines: 0 }
    }

    fn attached(&mut self, guard: &Guard) -> Result<()> {
        let hooks: Vec<(&str, &str)> =
            guard.attached().iter().map(|attached| (attached.interface(), attached.hook().name())).collect();
        if self.args.json {
            let hooks: Vec<Value> = hooks
                .iter()
                .map(|(interface, hook)| json!({ "interface": interface, "hook": hook }))
                .collect();
            let mut object = self.object("attached", Duration::ZERO);
            object["hooks"] = hooks.into();
            return say(object);
        }
        let hooks: Vec<String> =
            hooks.iter().map(|(interface, hook)| format!("{interface} ({hook})")).collect();
        let Args { listen, policy, .. } = self.args;
        let dry = if self.args.dry_run { ", dry run" } else { "" };
        say(format_args!("guarding {listen} with {policy}{dry} on {}", hooks.join(", ")))
    }

    fn sample(&mut self, elapsed: Duration, sample: &Sample, last: &Sample, span: Duration) -> Result<()> {
        if self.args.json {
            return say(self.counters("sample", elapsed, sample));
        }
        let is_first = self.lines == 0;
        let is_due = io::stdout().is_terminal() && self.lines.is_multiple_of(HEADER_EVERY);
        self.lines += 1;
        if is_first || is_due {
            let columns: Vec<String> =
                self.refusals().iter().map(|(word, _)| format!(" {:>11}", format!("{word}/s"))).collect();
            say(format_args!("   accept queue       SYN queue     seen/s  admitted/s{}", columns.concat()))?;
        }
        say(row(sample, last, span, &self.refusals()))
    }

    fn last(&mut self, elapsed: Duration, sample: &Sample) -> Result<()> {
        if self.args.json {
            return say(self.counters("final", elapsed, sample));
        }
        let stats = &sample.stats;
        let would = if self.args.dry_run { "would have been " } else { "" };
        let refused: Vec<String> =
            self.refusals().iter().map(|(word, count)| format!("{} {would}{word}", count(stats))).collect();
        say(format_args!(
            "{} SYNs seen in {:.1} s: {} admitted, {}; {} found the accept queue full, {} the SYN queue",
            stats.seen,
            elapsed.as_secs_f64(),
            stats.admitted,
            refused.join(", "),
            stats.accept_full,
            stats.syn_full
        ))
    }

    /// What the policy may do to SYNs and to ends of handshakes: a word, and its counter.
    fn refusals(&self) -> Vec<Refusal> {
        let Policy { syn_when_full, ack_when_full, on_fin, .. } = self.args.policy;
        let mut refusals: Vec<Refusal> = vec![match syn_when_full {
            Verdict::Drop => ("dropped", |stats| stats.dropped),
            Verdict::Admit | Verdict::Reset => ("reset", |stats| stats.reset),
        }];
        if ack_when_full != Verdict::Admit {
            refusals.push(("aborted", |stats| stats.acks_reset));
        }
        if on_fin != OnFin::Keep {
            refusals.push(("rst-fin", |stats| stats.fins_reset));
        }
        refusals
    }

    fn object(&self, event: &str, elapsed: Duration) -> Value {
        json!({
            "event": event,
            "elapsed_s": (elapsed.as_secs_f64() * 1e3).round() / 1e3,
            "listen": self.args.listen.to_string(),
            "policy": self.args.policy.to_string(),
            "dry_run": self.args.dry_run,
        })
    }

    /// Absolute counters since the start. The queues are null when nothing listens any more.
    fn counters(&self, event: &str, elapsed: Duration, sample: &Sample) -> Value {
        let Sample { load, stats, path } = sample;
        let mut object = self.object(event, elapsed);
        object["accept_qlen"] = load.map(|load| load.accept_qlen).into();
        object["accept_limit"] = load.map(|load| load.accept_limit).into();
        object["syn_qlen"] = load.map(|load| load.syn_qlen).into();
        object["syn_limit"] = load.map(|load| load.syn_limit).into();
        object["syns"] = json!({
            "seen": stats.seen,
            "admitted": stats.admitted,
            "dropped": stats.dropped,
            "reset": stats.reset,
            "unsent": stats.unsent,
            "accept_full": stats.accept_full,
            "syn_full": stats.syn_full,
        });
        object["acks"] = json!({
            "full": stats.acks_full,
            "dropped": stats.acks_dropped,
            "reset": stats.acks_reset,
        });
        object["fins"] = json!({ "seen": stats.fins, "reset": stats.fins_reset });
        object["passed"] = json!({
            "frames": path.frames,
            "not_ip": path.not_ip,
            "not_tcp": path.not_tcp,
            "fragment": path.fragment,
            "malformed": path.malformed,
            "not_syn": path.not_syn,
            "syn_ack": path.syn_ack,
            "not_guarded": path.not_guarded,
            "other_host": path.other_host,
            "martian": path.martian,
            "no_listener": path.no_listener,
            "known": path.known,
            "unleased": path.unleased,
        });
        object
    }
}

/// Rates over `span`, which is longer than a second when a busy machine made the line late.
fn row(sample: &Sample, last: &Sample, span: Duration, refusals: &[Refusal]) -> String {
    let per_s = |now: u64, before: u64| ((now - before) as f64 / span.as_secs_f64()).round();
    let queue = |length: Option<(u32, u32)>| match length {
        Some((length, limit)) => format!("{length}/{limit}"),
        None => "no listener".to_owned(),
    };
    let accept = queue(sample.load.map(|load| (load.accept_qlen, load.accept_limit)));
    let syn = queue(sample.load.map(|load| (load.syn_qlen, load.syn_limit)));
    let refused: Vec<String> = refusals
        .iter()
        .map(|(_, count)| format!(" {:>11}", per_s(count(&sample.stats), count(&last.stats))))
        .collect();
    format!(
        "{accept:>15} {syn:>15} {:>10} {:>11}{}",
        per_s(sample.stats.seen, last.stats.seen),
        per_s(sample.stats.admitted, last.stats.admitted),
        refused.concat()
    )
}

fn socket_addr(text: &str) -> Result<SocketAddr, &'static str> {
    let hint = "an address and a port are wanted, as in 10.0.0.1:80, 0.0.0.0:80 or [::]:80";
    let address: SocketAddr = text.parse().map_err(|_| hint)?;
    if address.port() == 0 {
        return Err("port 0 is no port that can be guarded");
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_address_needs_a_port() {
        assert!(socket_addr("[::]:80").is_ok());
        for wrong in ["", "80", "10.0.0.1", "localhost:80", "10.0.0.1:0", "10.0.0.1:65536"] {
            assert!(socket_addr(wrong).is_err(), "{wrong}");
        }
    }
}
