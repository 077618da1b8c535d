//! `tidegate guard`: protects a listening port until it is told to stop.

use std::io::{self, IsTerminal};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use guard::{
    Attach, Attached, Config, ConfigError, Guard, Listener, ListenerSample, ListenerStats, OnFin, Policy,
    Sample, Verdict,
};
use ipnet::IpNet;
use serde_json::{Value, json};
use watch::Counter;

use crate::output::{or_dash, say};
use crate::printer::{Printer, complain};
use crate::signals;

/// Between two looks at what goes on.
const TURN: Duration = Duration::from_secs(1);
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
    /// Address and port of the listener; `0.0.0.0` stands for every IPv4 address of this host, `[::]` for every IPv6 one, and for both
    /// where the server's socket does
    #[arg(long, value_name = "ADDR:PORT", value_parser = guard::parse_listen, required_unless_present = "config")]
    listen: Option<SocketAddr>,

    /// What to do when the accept queue is full; mechanisms joined by +, as in abort+rst-syn
    ///
    /// default              nothing, and count
    /// early-syn-drop       drop a SYN before the kernel does
    /// rst-syn              answer it with RST
    /// abort                answer the end of a handshake with RST and forget it
    /// reserv               answer no SYN without a place left for its handshake;
    ///                      reserv:150 promises 150 for 100 places
    /// no-syn-drop          answer every SYN, with a SYN cookie when a queue is full, and act as
    ///                      abort does; no-syn-drop:kernel has cookies that every kernel takes back,
    ///                      which lose the client's options
    /// police:RATE[/BURST]  admit so many attempts a second (to compare with)
    /// persistent-drop:N    refuse N% of the attempts, each whenever it tries (to compare with)
    /// rst-fin              destroy a connection whose client sends FIN, unless bytes were not read
    ///                      or not acknowledged, and with rst-fin:always even then; only for
    ///                      servers whose clients never half-close
    /// observe              alone: attach nothing, and count why the kernel itself drops SYNs and
    ///                      handshakes
    ///
    /// reserv and the two to compare with drop in silence, or with rst-syn reset. reserv is not
    /// against an attack: half-open handshakes of forged senders hold its places.
    #[arg(long, value_name = "POLICY", verbatim_doc_comment, value_parser = Policy::from_str, required_unless_present = "config")]
    policy: Option<Policy>,

    /// Take listeners, policies and the rest from a TOML file; SIGHUP reads it again
    ///
    /// `[[listener]]` with listen, policy and, if wanted, dry_run and reserved = { slots = N, sources = ["CIDR"] }, for each; before
    /// them, if wanted, interfaces, attach, refusals_per_s and sockopt.
    /// Listeners that are not there yet are guarded once they are. A file with a mistake changes nothing, nor does one with
    /// other interfaces, attach or sockopt than at the start: for these, start another guard with --take-over.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "policy", "interfaces", "attach", "reserve", "reserve_for", "refusals", "sockopt"])]
    config: Option<PathBuf>,

    /// Keep the last N places of the accept queue for the sources of --reserve-for, as health probes and operators
    #[arg(long, value_name = "N", requires = "reserve_for", value_parser = clap::value_parser!(u32).range(1..))]
    reserve: Option<u32>,

    /// Networks of sources that always get in, as in 10.0.0.0/24,192.0.2.7/32
    #[arg(long, value_name = "CIDR,...", requires = "reserve", value_delimiter = ',', value_parser = guard::parse_network)]
    reserve_for: Vec<IpNet>,

    /// Let servers ask for rst-fin themselves, by a socket option on their listener (examples/)
    #[arg(long)]
    sockopt: bool,

    /// Refuse at most so many SYNs a second with RST, and drop the others; 0 is no limit (default: 500000)
    #[arg(long, value_name = "R")]
    refusals: Option<u32>,

    /// Interface to guard; repeatable. Without it, every one that is up and has an address
    #[arg(long = "interface", value_name = "IF")]
    interfaces: Vec<String>,

    /// Where on the interface; auto is tcx on veth and loopback, and native XDP where the driver has it
    #[arg(long, value_name = "HOOK", default_value = "auto", value_parser = PossibleValuesParser::new(Attach::NAMED.map(|(name, _)| name)))]
    attach: String,

    /// Guard listeners in another network namespace: a name of `ip netns`, the id of a process in it, or a path
    #[arg(long, value_name = "NETNS")]
    netns: Option<String>,

    /// Take the place of the guard with this process id, without a gap; it then ends. For upgrades
    #[arg(long, value_name = "PID")]
    take_over: Option<u32>,

    /// Count what would be done, and leave every packet alone; with --config, at every listener
    #[arg(long)]
    dry_run: bool,

    /// Only say whether all this can be guarded here: nothing is attached. Status 0, or the reason and status 1 or 2
    #[arg(long, conflicts_with = "take_over")]
    check: bool,

    /// Between two lines for a listener, in whole seconds
    #[arg(long, value_name = "D", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Print JSON lines, one for each listener and --interval: "attached", then "sample"s, at last "final"
    #[arg(long)]
    json: bool,

    /// Stop after this time, as in 10s
    #[arg(long, value_name = "D", value_parser = humantime::parse_duration)]
    duration: Option<Duration>,
}

/// Guards until a signal or the end of `--duration`.
pub fn run(args: Args) -> Result<()> {
    match &args.netns {
        Some(name) => netns::enter(&netns::open(name)?, || run_here(&args))
            .with_context(|| format!("network namespace {name}"))?,
        None => run_here(&args),
    }
}

fn run_here(args: &Args) -> Result<()> {
    if args.check {
        return check(args);
    }
    // Before anything is attached: a signal from now on ends the run in order.
    let signals = Signals { stop: signals::stop_flag()?, reload: signals::reload_flag()? };
    let mut guard = Guard::start(&config(args)?).map_err(|error| name_file(error, args))?;
    let printer = Printer::start();
    for warning in guard.warnings() {
        printer.complain(format_args!("warning: {warning}"));
    }
    watch(&mut guard, args, &signals, printer)
}

fn check(args: &Args) -> Result<()> {
    let config = config(args)?;
    let warnings = Guard::check(&config).map_err(|error| name_file(error, args))?;
    for warning in warnings {
        complain(format_args!("warning: {warning}"));
    }
    let listeners = match config.listeners.len() {
        1 => "1 listener".to_owned(),
        count => format!("{count} listeners"),
    };
    let whose = args.config.as_ref().map(|file| format!("{}: ", file.display())).unwrap_or_default();
    say(format_args!("{whose}{listeners} can be guarded here"))
}

/// Of what is wrong in a file, which file.
fn name_file(error: anyhow::Error, args: &Args) -> anyhow::Error {
    match &args.config {
        Some(file) if error.is::<ConfigError>() => error.context(format!("configuration {}", file.display())),
        _ => error,
    }
}

struct Signals {
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

fn config(args: &Args) -> Result<Config> {
    if let Some(file) = &args.config {
        let mut config = Config { take_over: args.take_over, ..Config::read(file, Some(LEASE))? };
        config.listeners.iter_mut().for_each(|listener| listener.dry_run |= args.dry_run);
        return Ok(config);
    }
    let policy = args.policy.expect("clap wants it without --config");
    let listener = Listener {
        listen: args.listen.expect("clap wants it without --config"),
        policy: Policy { reserved_slots: args.reserve.unwrap_or(0), ..policy },
        reserved: args.reserve_for.clone(),
        dry_run: args.dry_run,
    };
    let usual = Config::default();
    Ok(Config {
        listeners: vec![listener],
        interfaces: args.interfaces.clone(),
        attach: Attach::by_name(&args.attach).expect("clap checked the name"),
        lease: Some(LEASE),
        must_listen: true,
        refusals_per_s: args.refusals.map_or(usual.refusals_per_s, NonZeroU32::new),
        sockopt: args.sockopt,
        take_over: args.take_over,
    })
}

fn watch(guard: &mut Guard, args: &Args, signals: &Signals, printer: Printer) -> Result<()> {
    let start = Instant::now();
    // Longer than a clock can say is for ever.
    let end = args.duration.and_then(|duration| start.checked_add(duration));
    let mut out = Out { printer, json: args.json, lines: 0, columns: Vec::new() };
    let mut last = guard.sample()?;
    out.attached(guard, &last);
    let mut last_at = start.elapsed();
    let mut unleased = last.path.unleased;
    let mut taken_over = None;
    let mut due = start + TURN;
    while sleep_until(end.map_or(due, |end| end.min(due)), signals, guard)? {
        if signals.reload.swap(false, Ordering::Relaxed) {
            reload(guard, args, &out.printer);
            continue;
        }
        if end.is_some_and(|end| end < due) {
            break;
        }
        if is_replaced(guard, &mut taken_over, &out.printer)? {
            break;
        }
        if out.printer.is_closed() {
            break; // nobody reads any more
        }
        let sample = guard.sample()?;
        let hooks = hooks_of(guard);
        guard.follow(&sample).iter().for_each(|note| out.printer.complain(note));
        if hooks_of(guard) != hooks {
            out.attached(guard, &sample);
        }
        let left = sample.path.unleased - unleased;
        unleased = sample.path.unleased;
        if left > 0 {
            out.printer.complain(format_args!(
                "warning: {left} SYNs were left to the kernel, because this process did not run for a second"
            ));
        }
        let now = start.elapsed();
        // A turn may come a little early, after one that was late.
        if now - last_at + TURN / 2 > args.interval {
            out.sample(now, &sample, &last, now - last_at);
            (last, last_at) = (sample, now);
        }
        // Not `now + TURN`: a late line must not make all later ones late.
        while due <= Instant::now() {
            due += TURN;
        }
    }
    out.last(start.elapsed(), &guard.sample()?);
    Ok(())
}

/// Interfaces, and where on them.
fn hooks_of(guard: &Guard) -> Vec<(String, &'static str)> {
    let hook = |attached: &Attached| (attached.interface().to_owned(), attached.hook().name());
    guard.attached().iter().map(hook).collect()
}

/// Whether another guard has taken over for good. One that has not renewed its lease a while later has ended, and we go on.
fn is_replaced(guard: &Guard, taken_over: &mut Option<Instant>, printer: &Printer) -> Result<bool> {
    if !guard.is_taken_over() {
        return Ok(false);
    }
    if taken_over.get_or_insert_with(Instant::now).elapsed() < 2 * LEASE {
        return Ok(false);
    }
    *taken_over = None;
    let is_back = guard.take_back()?;
    printer.complain(match is_back {
        true => "another guard has taken over and ended at once; this one goes on",
        false => "another guard has taken over",
    });
    Ok(!is_back)
}

/// Reads the file again; what is wrong with it is said, and all stays as it was.
fn reload(guard: &mut Guard, args: &Args, printer: &Printer) {
    let Some(file) = &args.config else {
        return printer.complain("SIGHUP: there is no --config to read again");
    };
    let result =
        config(args).and_then(|config| guard.reload(&config).map_err(|error| name_file(error, args)));
    match result {
        Ok(warnings) => {
            printer.complain(format_args!("read {} again", file.display()));
            for warning in warnings {
                printer.complain(format_args!("warning: {warning}"));
            }
        }
        Err(error) => printer.complain(format_args!("{error:#}; the old policies stay")),
    }
}

/// Whether `wake` came before a signal did; renews the lease meanwhile.
fn sleep_until(wake: Instant, signals: &Signals, guard: &Guard) -> Result<bool> {
    while !signals.stop.load(Ordering::Relaxed) {
        guard.renew()?;
        if signals.reload.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let left = wake.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        std::thread::sleep(left.min(NAP));
    }
    Ok(false)
}

/// A word, and the counter that it stands for.
///
/// `None` where it does not count: a cause at a listener that is guarded, a hook that this kernel lacks.
type Refusal = (&'static str, fn(&ListenerSample) -> Option<u64>);

/// Lines for a person, or JSON.
struct Out {
    printer: Printer,
    json: bool,
    lines: u64,
    /// Words of the last header.
    columns: Vec<&'static str>,
}

impl Out {
    fn attached(&mut self, guard: &Guard, sample: &Sample) {
        let hooks = hooks_of(guard);
        if self.json {
            let hooks: Vec<Value> = hooks
                .iter()
                .map(|(interface, hook)| json!({ "interface": interface, "hook": hook }))
                .collect();
            return sample.listeners.iter().for_each(|ListenerSample { listener, .. }| {
                let mut line = object("attached", Duration::ZERO, listener);
                line["hooks"] = hooks.clone().into();
                self.printer.say(line);
            });
        }
        let hooks: Vec<String> =
            hooks.iter().map(|(interface, hook)| format!("{interface} ({hook})")).collect();
        for ListenerSample { listener, .. } in &sample.listeners {
            let Listener { listen, policy, reserved, dry_run } = listener;
            if policy.only_observes {
                self.printer.say(format_args!("observing {listen}"));
                continue;
            }
            let dry = if *dry_run { ", dry run" } else { "" };
            let kept = match (policy.reserved_slots, &reserved[..]) {
                (0, _) => String::new(),
                (slots, [source]) => format!(", {slots} places for {source}"),
                (slots, sources) => format!(", {slots} places for {} networks", sources.len()),
            };
            let hooks = if hooks.is_empty() { "no interface".to_owned() } else { hooks.join(", ") };
            self.printer.say(format_args!("guarding {listen} with {policy}{dry} on {hooks}{kept}"));
        }
    }

    fn sample(&mut self, elapsed: Duration, sample: &Sample, last: &Sample, span: Duration) {
        for now in &sample.listeners {
            if self.json {
                self.printer.say(counters("sample", elapsed, now, sample));
                continue;
            }
            let is_same = |before: &&ListenerSample| before.listener.listen == now.listener.listen;
            let before = last.listeners.iter().find(is_same);
            let is_alone = sample.listeners.len() == 1;
            let place = if is_alone { String::new() } else { format!("  {}", now.listener.listen) };
            let dry = if now.listener.dry_run { "  (dry run)" } else { "" };
            let columns = refusals(sample);
            self.header(&columns);
            self.printer.say(format_args!("{}{place}{dry}", row(now, before, span, &columns)));
        }
    }

    fn header(&mut self, columns: &[Refusal]) {
        let is_due = io::stdout().is_terminal() && self.lines.is_multiple_of(HEADER_EVERY);
        let words: Vec<&str> = columns.iter().map(|(word, _)| *word).collect();
        let is_changed = self.columns != words;
        self.columns = words;
        self.lines += 1;
        if !is_changed && !is_due {
            return;
        }
        let columns: Vec<String> =
            columns.iter().map(|(word, _)| format!(" {:>1$}", format!("{word}/s"), width(word))).collect();
        let columns = columns.concat();
        self.printer.say(format_args!("   accept queue       SYN queue     seen/s  admitted/s{columns}"));
    }

    fn last(&self, elapsed: Duration, sample: &Sample) {
        for listener in &sample.listeners {
            if self.json {
                self.printer.say(counters("final", elapsed, listener, sample));
                continue;
            }
            let place = match sample.listeners.len() {
                1 => String::new(),
                _ => format!("{}: ", listener.listener.listen),
            };
            self.printer.say(format_args!("{place}{}", totals(elapsed, listener, &refusals(sample))));
        }
    }
}

fn totals(elapsed: Duration, sample: &ListenerSample, refusals: &[Refusal]) -> String {
    let ListenerSample { listener, stats, observed, .. } = sample;
    let would = if listener.dry_run && observed.is_none() { "would have been " } else { "" };
    let refused: Vec<String> = refusals
        .iter()
        .filter_map(|(word, count)| Some((word, count(sample)?)))
        .map(|(word, count)| match observed {
            Some(_) => format!("{word} {count}"),
            None => format!("{count} {would}{word}"),
        })
        .collect();
    let seen = or_dash(seen(sample));
    let admitted = or_dash(admitted(sample));
    let head = format!(
        "{seen} SYNs seen in {:.1} s: {admitted} admitted, {}",
        elapsed.as_secs_f64(),
        refused.join(", ")
    );
    match observed {
        Some(_) => head,
        None => format!(
            "{head}; {} found the accept queue full, {} the SYN queue",
            stats.accept_full, stats.syn_full
        ),
    }
}

/// SYNs that came to the listener, as far as is known.
fn seen(sample: &ListenerSample) -> Option<u64> {
    match &sample.observed {
        Some(observed) => observed.counters.get(Counter::Syns),
        None => Some(sample.stats.seen),
    }
}

/// Those that were answered; when guarded, those that were left to the kernel.
fn admitted(sample: &ListenerSample) -> Option<u64> {
    match &sample.observed {
        Some(observed) => {
            Some(observed.counters.get(Counter::Answered)? + observed.counters.get(Counter::Cookies)?)
        }
        None => Some(sample.stats.admitted),
    }
}

/// What the policies may do to SYNs, ends of handshakes and FINs, or the kernel where it is observed: a word, and its counter.
fn refusals(sample: &Sample) -> Vec<Refusal> {
    let guarded = || sample.listeners.iter().filter(|of| of.observed.is_none());
    let any = |has: fn(&Policy) -> bool| guarded().any(|of| has(&of.listener.policy));
    let is_observed = sample.listeners.iter().any(|of| of.observed.is_some());
    let drops = any(|policy| policy.syn_when_full == Verdict::Drop);
    let resets = any(|policy| policy.syn_when_full == Verdict::Reset);
    let cookies = any(|policy| matches!(policy.syn_when_full, Verdict::Cookie | Verdict::KernelCookie));
    let is_held_back = any(|policy| policy.reserved_slots > 0);
    let is_guarded = guarded().next().is_some();
    let all: [(bool, Refusal); 12] = [
        (drops || is_held_back, ("dropped", |of| of_guarded(of, |stats| stats.dropped))),
        (
            resets || (is_guarded && !(drops || cookies || is_held_back)),
            ("reset", |of| of_guarded(of, |stats| stats.reset)),
        ),
        (cookies, ("cookie", |of| of_guarded(of, |stats| stats.cookies))),
        (is_held_back, ("ack-dropped", |of| of_guarded(of, |stats| stats.acks_dropped))),
        (
            any(|policy| policy.ack_when_full != Verdict::Admit),
            ("aborted", |of| of_guarded(of, |stats| stats.acks_reset)),
        ),
        (
            any(|policy| policy.on_fin != OnFin::Keep),
            ("rst-fin", |of| of_guarded(of, |stats| stats.fins_reset)),
        ),
        (is_observed, ("drops", |of| Some(of.observed.as_ref()?.drops))),
        (is_observed, (Counter::ListenQFullAtSyn.title(), |of| cause(of, Counter::ListenQFullAtSyn))),
        (is_observed, (Counter::ListenQOverflow.title(), |of| cause(of, Counter::ListenQOverflow))),
        (is_observed, (Counter::SynQ34Full.title(), |of| cause(of, Counter::SynQ34Full))),
        (is_observed, (Counter::SynQFullDropped.title(), |of| cause(of, Counter::SynQFullDropped))),
        (is_observed, (Counter::SynQFullCookie.title(), |of| cause(of, Counter::SynQFullCookie))),
    ];
    all.into_iter().filter_map(|(is_shown, refusal)| is_shown.then_some(refusal)).collect()
}

fn of_guarded(sample: &ListenerSample, count: fn(&ListenerStats) -> u64) -> Option<u64> {
    sample.observed.is_none().then(|| count(&sample.stats))
}

fn cause(sample: &ListenerSample, counter: Counter) -> Option<u64> {
    sample.observed.as_ref()?.counters.get(counter)
}

fn object(event: &str, elapsed: Duration, listener: &Listener) -> Value {
    json!({
        "event": event,
        "elapsed_s": (elapsed.as_secs_f64() * 1e3).round() / 1e3,
        "listen": listener.listen.to_string(),
        "policy": listener.policy.to_string(),
        "reserved_slots": listener.policy.reserved_slots,
        "dry_run": listener.dry_run,
    })
}

/// Absolute counters since the start; `passed` is of all listeners together. The queues are null when nothing listens. Of an
/// observed listener it is what the kernel did, and null what this kernel lacks the hook for.
fn counters(event: &str, elapsed: Duration, of: &ListenerSample, sample: &Sample) -> Value {
    let (ListenerSample { listener, load, stats, observed }, path) = (of, &sample.path);
    let mut object = object(event, elapsed, listener);
    object["accept_qlen"] = load.map(|load| load.accept_qlen).into();
    object["accept_limit"] = load.map(|load| load.accept_limit).into();
    object["syn_qlen"] = load.map(|load| load.syn_qlen).into();
    object["syn_limit"] = load.map(|load| load.syn_limit).into();
    if let Some(observed) = observed {
        object["drops"] = observed.drops.into();
        object["counters"] = crate::output::counters(&observed.counters);
        return object;
    }
    object["syns"] = json!({
        "seen": stats.seen,
        "admitted": stats.admitted,
        "dropped": stats.dropped,
        "reset": stats.reset,
        "cookies": stats.cookies,
        "late": stats.late,
        "unsent": stats.unsent,
        "over_budget": stats.over_budget,
        "accept_full": stats.accept_full,
        "syn_full": stats.syn_full,
    });
    object["acks"] = json!({
        "full": stats.acks_full,
        "implied": stats.acks_implied,
        "dropped": stats.acks_dropped,
        "reset": stats.acks_reset,
        "cookies_back": stats.cookies_back,
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

/// Rates over `span`, which is longer than a second when a busy machine made the line late. One that a reload brought has
/// counted from zero.
fn row(now: &ListenerSample, before: Option<&ListenerSample>, span: Duration, columns: &[Refusal]) -> String {
    let per_s = |count: fn(&ListenerSample) -> Option<u64>| {
        let earlier = before.and_then(count).unwrap_or(0);
        or_dash(count(now).map(|now| (now.saturating_sub(earlier) as f64 / span.as_secs_f64()).round()))
    };
    let queue = |length: Option<(u32, u32)>| match length {
        Some((length, limit)) => format!("{length}/{limit}"),
        None => "no listener".to_owned(),
    };
    let accept = queue(now.load.map(|load| (load.accept_qlen, load.accept_limit)));
    let syn = queue(now.load.map(|load| (load.syn_qlen, load.syn_limit)));
    let refused: Vec<String> =
        columns.iter().map(|(word, count)| format!(" {:>1$}", per_s(*count), width(word))).collect();
    format!("{accept:>15} {syn:>15} {:>10} {:>11}{}", per_s(seen), per_s(admitted), refused.concat())
}

/// Of a column with rates under this word.
fn width(word: &str) -> usize {
    (word.len() + "/s".len()).max(11)
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if interval.as_secs() == 0 || interval.subsec_nanos() > 0 {
        return Err("whole seconds are wanted, as in 10s or 1m".to_owned());
    }
    Ok(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_is_whole_seconds() {
        assert_eq!(interval("1m"), Ok(Duration::from_secs(60)));
        for wrong in ["0s", "500ms", "1500ms", "10"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
