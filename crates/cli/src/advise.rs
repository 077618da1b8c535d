//! `tidegate advise`: would the guard help this listener?

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ::advise::{Advice, Answer, Look, Outlook, Record};
use anyhow::{Context, Result, bail};
use clap::builder::NonEmptyStringValueParser;
use guard::{Config, Guard, LOOK_EVERY, Listener, Policy, Reading, Trigger};
use nix::time::{ClockId, clock_gettime};
use schemars::JsonSchema;
use serde::Serialize;
use watch::Watch;

use crate::mistake::Mistake;
use crate::output::{or_dash, say};
use crate::printer::complain;
use crate::signals;

/// How often it is looked whether the guard sees all connections.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// So many of the clients may get lost otherwise: one in twenty.
const LOST_ONE_IN: u64 = 20;

/// Say whether the guard would help a listener: yes, no or not yet, and why
///
/// Watches for a time, and changes no packet. Then it lets the clients that came come once more, in
/// virtual time, before the guard's own decision and a server as fast as yours. Needs what `guard`
/// needs; CAP_SYS_ADMIN, too, to say what following costs. Ctrl-C ends it early, with an answer.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address and port of the listener, as `guard` has it
    #[arg(long, value_name = "ADDR:PORT", value_parser = guard::parse_listen)]
    listen: SocketAddr,

    /// For how long to watch. It can only judge what it sees: let it see your peak
    #[arg(long = "for", value_name = "D", default_value = "60s", value_parser = spelling::time)]
    watches_for: Duration,

    /// The policy that would guard, with `unserved`
    #[arg(long, value_name = "POLICY", default_value_t = Policy::UNSERVED)]
    policy: Policy,

    /// Interface by which clients come; repeatable. Without it, every one that is up and has an
    /// address
    #[arg(long = "interface", value_name = "IF")]
    interfaces: Vec<String>,

    /// A listener in another network namespace: a name of `ip netns`, host, the id of a process in
    /// it, or a path
    #[arg(long, value_name = "NETNS", value_parser = NonEmptyStringValueParser::new())]
    netns: Option<String>,

    /// Print one JSON object in place of the text
    #[arg(long)]
    json: bool,
}

/// What `advise --json` prints.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AdviceReport {
    /// The listener.
    listen: SocketAddr,
    #[serde(flatten)]
    advice: Advice,
    /// SYNs and ends of handshakes that the kernel dropped at the listener, for whatever cause;
    /// null where it cannot be read.
    kernel_drops: Option<u64>,
    /// What it costs to follow the connections.
    cost: Cost,
    /// The answer in words.
    sentence: String,
    /// The command that comes next.
    next: String,
}

/// Percent of one CPU, while the listener was watched.
#[derive(Debug, Clone, Copy, Serialize, JsonSchema)]
struct Cost {
    /// Of the programs in the kernel, with what it costs to time them; null without CAP_SYS_ADMIN.
    programs: Option<f64>,
    /// Of the agent.
    agent: f64,
}

/// Watches, then says what it thinks.
pub fn run(args: &Args) -> Result<()> {
    if args.policy.trigger != Trigger::Unserved(None) {
        let why = "advise knows what the guard does where it finds the limit itself";
        return Err(Mistake(format!("--policy {}: {why}; name one with unserved", args.policy)).into());
    }
    let report = match &args.netns {
        Some(name) => netns::enter(&netns::open(name)?, || watch(args))
            .with_context(|| format!("network namespace {name}"))??,
        None => watch(args)?,
    };
    if args.json {
        return say(serde_json::to_string(&report).context("write the advice as JSON")?);
    }
    show(&report)
}

fn watch(args: &Args) -> Result<AdviceReport> {
    let stop = signals::stop_flag()?;
    let mut guard = Guard::start(&config(args))?;
    guard.warnings().iter().for_each(|warning| complain(format_args!("warning: {warning}")));
    let meter = Meter::start(args.listen);
    let mut record = Record::default();
    look(&guard, &mut record)?;
    if !args.json {
        let time = humantime::format_duration(args.watches_for);
        say(format_args!("watches {} for {time}, and changes no packet", args.listen))?;
    }
    let (start, mut due, mut agent) = (Instant::now(), Instant::now(), Duration::ZERO);
    let mut checked = start;
    while start.elapsed() < args.watches_for && !stop.load(Ordering::Relaxed) {
        due += LOOK_EVERY;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let before = thread_time()?;
        guard.pace()?;
        agent += thread_time()?.saturating_sub(before);
        look(&guard, &mut record)?;
        if checked.elapsed() >= CHECK_EVERY {
            let sample = guard.sample()?;
            guard.follow(&sample).iter().for_each(|note| complain(format_args!("{note}")));
            checked = Instant::now();
        }
    }
    let (kernel_drops, programs) = meter.stop(args.listen, &guard);
    if record.span().is_zero() {
        bail!(
            "advise {}: nothing was seen; watch for a second at least, while the server listens",
            args.listen
        );
    }
    let percent = |time: Duration| 100.0 * time.as_secs_f64() / start.elapsed().as_secs_f64();
    let cost = Cost { programs: programs.map(percent), agent: percent(agent) };
    let advice = Advice::new(&record, args.policy);
    let lost = lost(&advice, kernel_drops);
    if guard.has_others() && lost > advice.seen.clients / LOST_ONE_IN {
        bail!(
            "advise {}: {lost} of {} clients were neither answered nor dropped by the kernel: another guard here refuses them, and what \
             its server does says nothing of one without; stop that guard, or let it count only (dry_run), and ask again",
            args.listen,
            advice.seen.clients
        );
    }
    let (sentence, next) = (advice.to_string(), next(args, &advice));
    Ok(AdviceReport { listen: args.listen, advice, kernel_drops, cost, sentence, next })
}

/// Clients that had no answer, of which neither the kernel nor a queue knows.
fn lost(advice: &Advice, kernel_drops: Option<u64>) -> u64 {
    let Advice { seen, waiting, .. } = advice;
    let in_queues = u64::from(waiting.accept_queue_most) + waiting.inside as u64 + waiting.syn_queue as u64;
    // Those of `seen` met a full queue, and the kernel may never have seen them.
    let dropped = kernel_drops.unwrap_or(seen.syns_dropped);
    seen.clients.saturating_sub(seen.answered + seen.ended + in_queues + dropped)
}

/// Nothing listens for a moment while a server starts again.
fn look(guard: &Guard, record: &mut Record) -> Result<()> {
    let Reading { at, load, stats, service } = guard.read()?;
    if let Some(load) = load {
        record.add(Look { at, load, stats, service });
    }
    Ok(())
}

fn config(args: &Args) -> Config {
    let listener = Listener { dry_run: true, ..Listener::new(args.listen, args.policy) };
    Config {
        listeners: vec![listener],
        interfaces: args.interfaces.clone(),
        must_listen: true,
        ..Config::default()
    }
}

/// What the kernel counts.
struct Meter {
    watch: Option<Watch>,
    drops: Option<u32>,
    /// While it is there, how long programs run.
    counting: Option<bpf::RunCounting>,
}

impl Meter {
    fn start(listen: SocketAddr) -> Self {
        let watch = Watch::start(&[]).ok();
        let drops = watch.as_ref().and_then(|watch| drops(watch, listen));
        Self { watch, drops, counting: bpf::RunCounting::begin().ok() }
    }

    /// Drops at the listener, and how long the guard's programs ran.
    fn stop(self, listen: SocketAddr, guard: &Guard) -> (Option<u64>, Option<Duration>) {
        let drops = self.watch.as_ref().and_then(|watch| drops(watch, listen)).zip(self.drops);
        let run_time = self.counting.and_then(|_| guard.run_time().ok());
        (drops.map(|(now, before)| now.wrapping_sub(before).into()), run_time)
    }
}

/// Of the sockets that serve the address.
fn drops(watch: &Watch, listen: SocketAddr) -> Option<u32> {
    let serves = |address: SocketAddr| {
        let (own, ip) = (address.ip().to_canonical(), listen.ip().to_canonical());
        address.port() == listen.port() && (own == ip || own.is_unspecified() || ip.is_unspecified())
    };
    let listeners = watch.list().ok()?;
    let drops =
        listeners.iter().filter(|listener| serves(listener.address)).filter_map(|listener| listener.drops);
    drops.reduce(u32::wrapping_add)
}

/// CPU time of this thread.
fn thread_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("read the thread's clock")?.into())
}

fn next(args: &Args, advice: &Advice) -> String {
    let mut options = format!(" --listen {}", args.listen);
    for interface in &args.interfaces {
        options += &format!(" --interface {interface}");
    }
    if let Some(netns) = &args.netns {
        options += &format!(" --netns {netns}");
    }
    let has_own = args.policy != Policy::UNSERVED;
    let policy = if has_own { format!(" --policy {}", args.policy) } else { String::new() };
    match advice.answer {
        Answer::Yes => format!("tidegate guard{options}{policy}"),
        Answer::NotYet => format!("tidegate advise{options}{policy} --for 10m"),
        Answer::No if advice.is_for_short_crowds() && !has_own => {
            format!("tidegate advise{options} --policy abort+rst-syn+unserved+burst:10s")
        }
        Answer::No => "tidegate listeners --watch 10s".to_owned(),
    }
}

fn show(report: &AdviceReport) -> Result<()> {
    let AdviceReport { advice, cost, .. } = report;
    let Advice { seen, waiting, server, without, with, .. } = advice;
    let row = |name: &str, text: String| say(format_args!("{name:<16}{text}"));
    let known = |is_known: bool, text: String| or_dash(is_known.then_some(text));
    let soon = |of: &Outlook| known(seen.clients > 0, format!("{:.1}%", 100.0 * of.soon));
    let ms = |ms: f64| known(ms > 0.0, format!("{ms:.1} ms"));
    row(
        "clients",
        format!(
            "{} in {:.0} s, with {} SYNs; {} answered, {} not",
            seen.clients,
            advice.seconds,
            seen.syns,
            seen.answered,
            seen.clients.saturating_sub(seen.answered)
        ),
    )?;
    row("stock Linux", format!("dropped {} SYNs and ends of handshakes", or_dash(report.kernel_drops)))?;
    row(
        "waiting, mean",
        format!(
            "SYN queue {:.1}; accept queue {:.1}, at most {} of {}; inside the server {:.1}",
            waiting.syn_queue,
            waiting.accept_queue,
            waiting.accept_queue_most,
            waiting.accept_queue_limit,
            waiting.inside
        ),
    )?;
    let rate = server
        .answers_per_s
        .map_or("no queue ever stood".to_owned(), |rate| format!("{rate:.0} answers/s while a queue stood"));
    row("the server", format!("{rate}; {} for an answer when the fewest waited", ms(server.answer_ms)))?;
    row("without a guard", format!("{} of the clients answered within a second", soon(without)))?;
    row(
        "with the guard",
        format!(
            "{} of the clients answered within a second, after {} in the mean; {} refused",
            soon(with),
            ms(with.wait_ms),
            with.refused
        ),
    )?;
    let programs = cost.programs.map(|percent| format!("{percent:.2}% of a CPU in the kernel"));
    row("following costs", format!("{}, {:.2}% for the agent", or_dash(programs), cost.agent))?;
    row("next", report.next.clone())?;
    say(&report.sentence)
}
