//! `tidegate close`: who keeps TIME_WAIT when a server closes first.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ::close::{Closing, Counts, Destination, Setup, Sockets, Way};
use anyhow::{Result, bail};
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser, TypedValueParser};
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::Timed;
use crate::printer::{Printer, complain};
use crate::signals;

/// Longest time until a signal is noticed.
const NAP: Duration = Duration::from_millis(50);
/// Between two sweeps.
const TURN: Duration = Duration::from_secs(1);
/// Of `--way`: it leaves every end of file where it is.
const WAY: &str = "swap";

/// Keep TIME_WAIT at this host when a server closes first, so that the server has none
///
/// For a client of servers that suffer from TIME_WAIT, and not for a proxy that runs out of ports:
/// `tidegate ports` tells which it is, and docs/closing.md who should use what. Runs until Ctrl-C
/// or SIGTERM, and leaves no trace. Needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN, and
/// Linux 6.1.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Servers, as `10.0.0.0/8:80`, `192.0.2.1:443` or `[2001:db8::]/32:80`; repeatable
    #[arg(long = "to", value_name = "NET:PORT", required = true)]
    destinations: Vec<Destination>,

    /// swap: a RST frees the server, and ports are kept from use for --quarantine. hold, on trial:
    /// this host's kernel keeps TIME_WAIT
    ///
    /// hold is for programs that know the end of a response by its length or its chunks and then
    /// close. One that waits for the end of the connection gets it when the server sends it again,
    /// after some 0.2 s. If the server is gone by then, it takes one to two seconds.
    #[arg(long, value_name = "WAY", default_value = WAY, value_parser = way())]
    way: Way,

    /// With swap: how long a port is kept from use towards the same server; 60s at least where an
    /// end has no timestamps
    #[arg(long, value_name = "D", default_value = "1s", value_parser = spelling::time)]
    quarantine: Duration,

    /// Only sockets that were made in this control group or below it: its folder, as
    /// `/sys/fs/cgroup/system.slice/app.service`
    #[arg(long, value_name = "FOLDER")]
    cgroup: Option<PathBuf>,

    /// Only sockets whose program asks: the option TIDEGATE_CLOSE, docs/sockopt.md
    #[arg(long, conflicts_with = "cgroup")]
    must_ask: bool,

    /// Interface by which the connections go; repeatable (default: by which the destinations are
    /// reached)
    #[arg(long = "interface", value_name = "IF")]
    interfaces: Vec<String>,

    /// Interfaces of another network namespace: a name of `ip netns`, host, a process id or a
    /// path
    #[arg(long, value_name = "NETNS", value_parser = NonEmptyStringValueParser::new())]
    netns: Option<String>,

    /// Count, and leave every segment alone
    #[arg(long)]
    dry_run: bool,

    /// Between two lines
    #[arg(long, value_name = "D", default_value = "1s", value_parser = crate::uplink::interval)]
    interval: Duration,

    /// Print JSON lines: "started", then a "sample" in each interval, at last "final"
    #[arg(long)]
    json: bool,

    /// Stop after this time, as in 10s
    #[arg(long, value_name = "D", value_parser = spelling::time)]
    duration: Option<Duration>,
}

fn way() -> impl TypedValueParser<Value = Way> {
    let named =
        |name: String| Way::NAMED.into_iter().find(|(one, _)| *one == name).expect("a name of a way").1;
    PossibleValuesParser::new(Way::NAMED.map(|(name, _)| name)).map(named)
}

/// A line of `tidegate close --json`, told apart by its `event` key.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum CloseEvent {
    /// At the start.
    Started {
        /// `swap` or `hold`.
        way: &'static str,
        /// Whether every segment is left alone.
        dry_run: bool,
        /// Interfaces at which the programs are.
        interfaces: Vec<String>,
        /// With `swap`, for how long ports are kept from use where both ends have timestamps, s.
        quarantine_s: f64,
    },
    /// Once in each `--interval`.
    Sample(Counted),
    /// The last line.
    Final(Counted),
}

/// What was counted since the start.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Counted {
    /// Since the start, seconds.
    elapsed_s: f64,
    /// Connections whose ports are kept from use now.
    in_quarantine: usize,
    /// As they were named.
    destinations: Vec<OfDestination>,
}

/// Closes of one destination.
#[derive(Debug, Clone, Serialize, JsonSchema)]
struct OfDestination {
    /// As it was named.
    to: String,
    /// What became of them.
    #[serde(flatten)]
    counts: Counts,
}

/// Runs until a signal or the end of `--duration`.
pub fn run(args: &Args) -> Result<()> {
    match &args.netns {
        Some(name) => netns::enter(&netns::open(name)?, || run_here(args))?,
        None => run_here(args),
    }
}

fn run_here(args: &Args) -> Result<()> {
    let (name, way) = (args.way.name(), args.way);
    let setup = Setup {
        destinations: args.destinations.clone(),
        way,
        quarantine: args.quarantine,
        sockets: match &args.cgroup {
            Some(folder) => Sockets::Of(folder.clone()),
            None if args.must_ask => Sockets::ThatAsk,
            None => Sockets::All,
        },
        interfaces: args.interfaces.clone(),
        is_dry_run: args.dry_run,
    };
    // Before anything is attached: a signal from now on ends the run in order.
    let stop = signals::stop_flag_in_order()?;
    let mut closing = Closing::start(&setup)?;
    let printer = Printer::start();
    let quarantine_s = args.quarantine.as_secs_f64();
    if args.json {
        let interfaces = closing.interfaces().map(str::to_owned).collect();
        let dry_run = args.dry_run;
        printer.say(Timed::json(CloseEvent::Started { way: name, dry_run, interfaces, quarantine_s }));
    } else {
        let what = if args.dry_run { "counts, and changes nothing" } else { "is at work" };
        let interfaces = closing.interfaces().collect::<Vec<_>>().join(", ");
        printer.say(format_args!("{name} {what} at {interfaces}; Ctrl-C ends it"));
    }
    let start = Instant::now();
    let ended = watch(&mut closing, args, &stop, &printer, start);
    let last = counted(&closing, args, start)?;
    printer.say(if args.json { Timed::json(CloseEvent::Final(last)) } else { line(&last, None, way) });
    ended
}

fn watch(
    closing: &mut Closing,
    args: &Args,
    stop: &Arc<AtomicBool>,
    printer: &Printer,
    start: Instant,
) -> Result<()> {
    let end = args.duration.and_then(|duration| start.checked_add(duration));
    let (mut line_due, mut turn_due) = (start + args.interval, start + TURN);
    let mut before = counted(closing, args, start)?;
    loop {
        let now = Instant::now();
        if stop.load(Ordering::Relaxed) || printer.is_closed() || end.is_some_and(|end| now >= end) {
            return Ok(());
        }
        if now >= turn_due {
            turn_due = now + TURN;
            for place in closing.renew()? {
                complain(format_args!(
                    "{}: more than half of the FINs that were held were held in vain, as programs wait for the end or read for a second: none is held for a minute",
                    args.destinations[place]
                ));
            }
        }
        if now >= line_due {
            line_due = now + args.interval;
            if let Some(netns) = &args.netns
                && netns::is_elsewhere(netns)
            {
                bail!("network namespace {netns} is gone, and its interfaces with it");
            }
            closing.check()?;
            let present = counted(closing, args, start)?;
            printer.say(match args.json {
                true => Timed::json(CloseEvent::Sample(present.clone())),
                false => line(&present, Some(&before), args.way),
            });
            before = present;
        }
        let next = end.map_or(line_due, |end| end.min(line_due)).min(turn_due);
        sleep(next.saturating_duration_since(Instant::now()).min(NAP));
    }
}

fn counted(closing: &Closing, args: &Args, start: Instant) -> Result<Counted> {
    let destinations = args.destinations.iter().zip(closing.counts()?);
    Ok(Counted {
        elapsed_s: (start.elapsed().as_secs_f64() * 1e3).round() / 1e3,
        in_quarantine: closing.quarantined()?,
        destinations: destinations.map(|(to, counts)| OfDestination { to: to.to_string(), counts }).collect(),
    })
}

/// What came since `before`, or in all.
fn line(now: &Counted, before: Option<&Counted>, way: Way) -> String {
    let sum = |of: fn(&Counts) -> u64| {
        let all = |counted: &Counted| counted.destinations.iter().map(|one| of(&one.counts)).sum::<u64>();
        all(now) - before.map_or(0, all)
    };
    let first = if before.is_some() { format!("{:4.0} s", now.elapsed_s) } else { "in all".to_owned() };
    let closes = match way {
        Way::Swap => format!(
            "{} closes by servers, {} freed by a RST; {} connects waited, {} ports in quarantine",
            sum(|counts| counts.noted),
            sum(|counts| counts.answered),
            sum(|counts| counts.quarantined),
            now.in_quarantine
        ),
        Way::Hold => format!(
            "{} FINs held, {} kept here, {} given up, {} overdue, {} late; {} came when all was read",
            sum(|counts| counts.held),
            sum(|counts| counts.released),
            sum(|counts| counts.given_up),
            sum(|counts| counts.overdue),
            sum(|counts| counts.late),
            sum(|counts| counts.idle)
        ),
    };
    let alone = [
        (sum(|counts| counts.signed_or_joined), "signed or joined"),
        (sum(|counts| counts.full), "a map was full"),
        (sum(|counts| counts.failed), "the kernel refused"),
        (sum(|counts| counts.backed_off), "backed off"),
        (sum(|counts| counts.unchecked), "checksum not checked by the interface"),
    ];
    let alone: Vec<String> =
        alone.iter().filter(|(count, _)| *count > 0).map(|(count, why)| format!("{count} ({why})")).collect();
    let alone = if alone.is_empty() { String::new() } else { format!("; left alone: {}", alone.join(", ")) };
    format!("{first}: {closes}{alone}")
}
