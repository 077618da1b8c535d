//! `tidegate guard`: protects a listening port until it is told to stop.

mod agent_check;
mod event;
mod lines;
mod live;
mod metrics;
mod screen;
mod status;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::ArgGroup;
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};
use guard::{Attach, Config, ConfigError, Guard, Listener, NothingLeft, Policy, Sample, Succession};
use ipnet::IpNet;
use sd_notify::NotifyState;

use crate::answerer::parse_address;
use crate::exporter::Exporter;
use crate::output::{Timed, say};
use crate::printer::{Printer, complain};
use crate::signals;
use agent_check::AgentCheck;
pub use event::GuardEvent;
use lines::{Form, Lines};
use live::Live;
use status::Seconds;
pub use status::Status;

/// Between two looks at what goes on.
const TURN: Duration = Duration::from_secs(1);
/// How long the programs decide without hearing of us; a process that is stopped or hangs guards
/// nothing.
const LEASE: Duration = Duration::from_secs(1);

/// Guard a listening port: refuse at once whom the server could not answer soon
///
/// Runs until Ctrl-C or SIGTERM. Nothing stays behind, however it ends. Needs root, or CAP_BPF,
/// CAP_PERFMON and CAP_NET_ADMIN.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new("guarded").args(["listen", "config"]).required(true))]
pub struct Args {
    /// Address and port of the listener; `0.0.0.0` stands for every IPv4 address of this host,
    /// `[::]` for every IPv6 one, and for both where the server's socket does
    #[arg(long, value_name = "ADDR:PORT", value_parser = guard::parse_listen)]
    listen: Option<SocketAddr>,

    /// Words joined by +: when the listener is full, and what happens then
    #[arg(long, value_name = "POLICY", long_help = crate::policies::help(), value_parser = Policy::from_str)]
    policy: Option<Policy>,

    /// Take listeners, policies and the rest from a TOML file; SIGHUP reads it again
    ///
    /// Each `[[listener]]` has listen. It may have policy, dry_run, drain, server = "NAME",
    /// exempt = ["CIDR"] and reserved = { slots = N, sources = ["CIDR"] }. Before them may stand
    /// interfaces, attach, refusals_per_s and sockopt. Listeners that are not there yet are guarded
    /// once they are. A file with a mistake changes nothing, nor does one with other
    /// interfaces, attach or sockopt than at the start: for these, start another guard with
    /// --take-over.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "interfaces", "attach", "reserve", "reserve_for", "exempt", "refusals", "sockopt"])]
    config: Option<PathBuf>,

    /// Keep the last N places of the accept queue for the sources of --reserve-for, as health
    /// probes and operators
    #[arg(long, value_name = "N", requires = "reserve_for", value_parser = clap::value_parser!(u32).range(1..))]
    reserve: Option<u32>,

    /// Networks of sources that may take those places, as in 10.0.0.0/24,192.0.2.7/32
    #[arg(long, value_name = "CIDR,...", requires = "reserve", value_delimiter = ',', value_parser = guard::parse_network)]
    reserve_for: Vec<IpNet>,

    /// Leave these sources to the kernel: they are never reset, as a balancer that would take this
    /// server out for it
    #[arg(long, value_name = "CIDR,...", value_delimiter = ',', value_parser = guard::parse_network)]
    exempt: Vec<IpNet>,

    /// Let servers ask for rst-fin themselves, by a socket option on their listener (examples/)
    #[arg(long)]
    sockopt: bool,

    /// Answer at most so many SYNs a second with RST or a cookie, and drop the others; 0 is no
    /// limit (default: 500000)
    #[arg(long, value_name = "R")]
    refusals: Option<u32>,

    /// Interface to guard; repeatable. Without it, every one that is up and has an address
    #[arg(long = "interface", value_name = "IF")]
    interfaces: Vec<String>,

    /// Where on the interface; auto is tcx, or xdp-generic before Linux 6.6. For xdp some drivers
    /// reset the link
    #[arg(long, value_name = "HOOK", default_value = "auto", value_parser = PossibleValuesParser::new(Attach::NAMED.map(|(name, _)| name)))]
    attach: String,

    /// Guard listeners in another network namespace: a name of `ip netns`, the id of a process in
    /// it, or a path. Without such a name host is that of process 1
    #[arg(long, value_name = "NETNS", value_parser = NonEmptyStringValueParser::new())]
    netns: Option<String>,

    /// Take the place of the guard with this process id, without a gap; it then ends. For upgrades
    #[arg(long, value_name = "PID")]
    take_over: Option<u32>,

    /// Folder in which it keeps what it learns of servers, so that the next guard knows it, and its
    /// socket for top; none keeps nothing, and top cannot show it
    #[arg(long, value_name = "DIR", default_value = "/run/tidegate")]
    state: PathBuf,

    /// Count what would be done, and leave every packet alone; with --config, at every listener.
    /// Nobody is turned away, so this counts far more than would be refused; `advise` says how many
    #[arg(long)]
    dry_run: bool,

    /// Only say whether all this can be guarded here: nothing is attached. Status 0, or the reason
    /// and status 1 or 2
    #[arg(long, conflicts_with_all = ["take_over", "json", "duration", "interval", "prometheus", "agent_check"])]
    check: bool,

    /// Between two lines for a listener, in whole seconds
    #[arg(long, value_name = "D", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Print lines on a terminal, too, and draw no screen
    #[arg(long)]
    lines: bool,

    /// Print JSON lines, one for each listener and --interval: "attached", then "sample"s, at last
    /// "final"
    #[arg(long)]
    json: bool,

    /// Show the counts to Prometheus at http://ADDR:PORT/metrics, and at /status each server's
    /// utilisation as JSON
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    prometheus: Option<SocketAddr>,

    /// Answer HAProxy's agent-check there, with what it should send the server: "up 75%"
    ///
    /// The share falls while SYNs are refused, or half of the answers take over four times as long
    /// as usual. It falls to 5% at most, and grows again. It is 100% of a server that is not known,
    /// and in a dry run.
    ///
    /// HAProxy's server line wants "weight 100" beside "agent-check agent-port PORT agent-inter
    /// 1s", since 75% of its usual weight of 1 is 0. It wants "check" as well: the guard does not
    /// say that a server is gone.
    ///
    /// A listener with drain = true in the file is "drain": HAProxy sends it no new connection.
    /// Take it out, let the guard read the file again, and for a minute it is "up ready". A guard
    /// that ends meanwhile leaves it drained.
    ///
    /// A guard of several listeners answers for the worst of them, or for the one that HAProxy
    /// names: agent-send "192.0.2.1:443\n". At its end the guard takes up to 3 s to tell HAProxy
    /// 100%. One that is killed cannot, and HAProxy keeps its last word until the next guard's.
    #[arg(long, value_name = "ADDR:PORT", value_parser = parse_address)]
    agent_check: Option<SocketAddr>,

    /// Stop after this time, as in 10s
    #[arg(long, value_name = "D", value_parser = spelling::time)]
    duration: Option<Duration>,
}

/// Guards until a signal or the end of `--duration`.
pub fn run(args: Args) -> Result<()> {
    // Where the guard was started, and not in the namespace that it guards.
    let told = Told::bind(&args)?;
    match &args.netns {
        Some(name) => netns::enter(&netns::open(name)?, || run_here(&args, &told))
            .with_context(|| format!("network namespace {name}"))?,
        None => run_here(&args, &told),
    }
}

/// Programs that ask how the servers do.
struct Told {
    exporter: Option<Exporter>,
    agent: Option<AgentCheck>,
}

impl Told {
    fn bind(args: &Args) -> Result<Self> {
        let may_wait = args.take_over.is_some();
        Ok(Self {
            exporter: args.prometheus.map(|address| Exporter::bind(address, may_wait)).transpose()?,
            agent: args.agent_check.map(|address| AgentCheck::bind(address, may_wait)).transpose()?,
        })
    }

    /// What was seen in the last second.
    fn publish(&self, seconds: &mut Seconds, sample: &Sample, guard: &Guard, leased_until: Instant) {
        let now = Instant::now();
        let listeners = seconds.next(sample, now, leased_until > now);
        if let Some(agent) = &self.agent {
            agent.tell(&listeners, now);
        }
        if let Some(exporter) = &self.exporter {
            let hooks = lines::hooks_of(guard);
            let lease_end = SystemTime::now() + leased_until.saturating_duration_since(now)
                - now.saturating_duration_since(leased_until);
            exporter.publish(metrics::metrics(sample, &listeners, &hooks, lease_end));
            exporter.publish_status(&Timed::json(Status { listeners }));
        }
    }
}

fn run_here(args: &Args, told: &Told) -> Result<()> {
    if args.check {
        return check(args);
    }
    // Before anything is attached: a signal from now on ends the run in order.
    let (stop, reload) = signals::stop_and_reload_flags()?;
    let signals = Signals { stop, reload };
    let config = config(args)?;
    let hello = live::hello(args.netns.as_deref())?;
    let form = match args.json {
        true => Form::Json,
        false if !args.lines && top::is_ours() => Form::Screen,
        false => Form::Words,
    };
    let printer = match form {
        Form::Screen => screen::start(&hello, Arc::clone(&signals.stop)),
        _ => Printer::start(),
    };
    let mut guard = Guard::start(&config).map_err(|error| name_file(error, args))?;
    for warning in guard.warnings() {
        printer.complain(format_args!("warning: {warning}"));
    }
    let live = Live::open(config.state.as_deref(), &hello);
    let live = live.unwrap_or_else(|error| {
        printer.complain(format_args!("warning: {error:#}; tidegate top cannot show this guard"));
        Live::default()
    });
    watch(&mut guard, args, told, &signals, live, Lines::new(printer, form))
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
        let mut config = Config {
            take_over: args.take_over,
            follow_at_servers: args.netns.is_some(),
            state: state(args),
            ..Config::read(file, Some(LEASE))?
        };
        config.listeners.iter_mut().for_each(|listener| listener.dry_run |= args.dry_run);
        return Ok(config);
    }
    let policy = args.policy.unwrap_or(Policy::UNSERVED);
    let listener = Listener {
        listen: args.listen.expect("clap wants it without --config"),
        policy: Policy { reserved_slots: args.reserve.unwrap_or(0), ..policy },
        reserved: args.reserve_for.clone(),
        exempt: args.exempt.clone(),
        server: None,
        dry_run: args.dry_run,
        drain: false,
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
        follow_at_servers: args.netns.is_some(),
        take_over: args.take_over,
        state: state(args),
    })
}

fn state(args: &Args) -> Option<PathBuf> {
    (args.state != Path::new("none")).then(|| args.state.clone())
}

fn watch(
    guard: &mut Guard,
    args: &Args,
    told: &Told,
    signals: &Signals,
    mut live: Live,
    mut lines: Lines,
) -> Result<()> {
    let start = Instant::now();
    // Longer than a clock can say is for ever.
    let end = args.duration.and_then(|duration| start.checked_add(duration));
    let mut last = guard.sample()?;
    let mut troubles = Troubles::new();
    let mut seconds = Seconds::default();
    told.publish(&mut seconds, &last, guard, troubles.leased_until);
    lines.attached(guard, &last);
    // systemd's `Type=notify`: it guards. Without systemd nobody is told.
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        lines.printer.complain(format_args!("warning: tell systemd that the guard has started: {error}"));
    }
    let mut last_at = start.elapsed();
    let mut unleased = last.path.unleased;
    let mut taken_over = None;
    let mut due = start + TURN;
    while sleep_until(end.map_or(due, |end| end.min(due)), signals, guard, &mut troubles, &lines.printer)? {
        if signals.reload.swap(false, Ordering::Relaxed) {
            reload(guard, args, &lines.printer);
            continue;
        }
        if end.is_some_and(|end| end < due) {
            break;
        }
        if is_replaced(guard, &mut taken_over, &mut troubles, &lines.printer)? {
            // The other one answers balancers from now on.
            told.agent.iter().for_each(AgentCheck::hand_over);
            break;
        }
        if let Some(netns) = &args.netns
            && netns::is_elsewhere(netns)
        {
            bail!("network namespace {netns} is gone, and what was guarded in it");
        }
        if lines.printer.is_closed() {
            break; // nobody reads any more
        }
        // Not `now + TURN`: a late line must not make all later ones late.
        while due <= Instant::now() {
            due += TURN;
        }
        let sample = guard.sample();
        let Some(sample) = troubles.outlive("reading the counters", sample, &lines.printer)? else {
            continue;
        };
        told.publish(&mut seconds, &sample, guard, troubles.leased_until);
        let hooks = lines::hooks_of(guard);
        guard.follow(&sample).iter().for_each(|note| lines.printer.complain(note));
        if lines::hooks_of(guard) != hooks {
            lines.attached(guard, &sample);
        }
        let left = sample.path.unleased - unleased;
        unleased = sample.path.unleased;
        if left > 0 {
            lines.printer.complain(format_args!(
                "warning: {left} segments were left to the kernel, because this process did not run for a second"
            ));
        }
        let now = start.elapsed();
        live.tell(guard, (last_at, &last), (now, &sample));
        // A turn may come a little early, after one that was late.
        if now - last_at + TURN / 2 > lines.interval(args.interval) {
            lines.sample(now, &sample, &last, now - last_at);
            (last, last_at) = (sample, now);
        }
    }
    lines.last(start.elapsed(), &guard.sample().unwrap_or(last));
    Ok(())
}

/// Calls of the kernel that fail for a moment, as descriptors or memory are short: each is said
/// once and tried again. The programs leave all to the kernel if the lease cannot be renewed.
#[derive(Debug)]
struct Troubles {
    /// What fails: since when, and how often it has.
    failures: BTreeMap<&'static str, (Instant, u64)>,
    /// When it was found out last who waits.
    paced: Instant,
    /// How long the programs decide if this process stops now.
    leased_until: Instant,
}

impl Troubles {
    fn new() -> Self {
        let now = Instant::now();
        Self { failures: BTreeMap::new(), paced: now, leased_until: now + LEASE }
    }

    /// `None` if it failed.
    ///
    /// # Errors
    ///
    /// Those that no later try will mend.
    fn outlive<T>(&mut self, what: &'static str, result: Result<T>, printer: &Printer) -> Result<Option<T>> {
        match result {
            Ok(value) => {
                // What fails now and then is said once in a while.
                if self.failures.get(what).is_some_and(|(since, _)| since.elapsed() >= LEASE) {
                    let (_, count) = self.failures.remove(what).expect("it is there");
                    printer.complain(format_args!("{what} works again, after {count} failures"));
                }
                Ok(Some(value))
            }
            Err(error) if error.is::<NothingLeft>() => Err(error),
            Err(error) => {
                let (since, count) = self.failures.entry(what).or_insert((Instant::now(), 0));
                (*since, *count) = (Instant::now(), *count + 1);
                if *count == 1 {
                    printer.complain(format_args!("warning: {what} failed, and is tried again: {error:#}"));
                }
                Ok(None)
            }
        }
    }
}

/// Whether another guard has taken over for good. One that has not renewed its lease a while later
/// has ended, and we go on.
fn is_replaced(
    guard: &Guard,
    taken_over: &mut Option<Instant>,
    troubles: &mut Troubles,
    printer: &Printer,
) -> Result<bool> {
    if !guard.is_taken_over() {
        *taken_over = None;
        return Ok(false);
    }
    if taken_over.get_or_insert_with(Instant::now).elapsed() < 2 * LEASE {
        return Ok(false);
    }
    let succession = guard.succession();
    let succession =
        troubles.outlive("finding out what has become of this guard's place", succession, printer)?;
    match succession.unwrap_or(Succession::Unknown) {
        Succession::Unknown => return Ok(false),
        Succession::Back => {
            *taken_over = None;
            printer.complain("another guard has taken over, and has not run for a second; this one has taken its place back");
            return Ok(false);
        }
        Succession::TakenBack => bail!(
            "the guard whose place this one took has it back, as this one did not run for a second; it guards, and this one ends"
        ),
        Succession::Gone => {}
    }
    printer.complain("another guard has taken over");
    Ok(true)
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
fn sleep_until(
    wake: Instant,
    signals: &Signals,
    guard: &mut Guard,
    troubles: &mut Troubles,
    printer: &Printer,
) -> Result<bool> {
    while !signals.stop.load(Ordering::Relaxed) {
        if troubles.outlive("finding out who waits", guard.pace(), printer)?.is_some() {
            troubles.paced = Instant::now();
        }
        // Limits of long ago are worse than none.
        let now = Instant::now();
        if troubles.paced + LEASE > now
            && troubles.outlive("renewing the lease", guard.renew(), printer)?.is_some()
        {
            troubles.leased_until = now + LEASE;
        }
        if signals.reload.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let left = wake.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        std::thread::sleep(left.min(guard::LOOK_EVERY));
    }
    Ok(false)
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = spelling::time(text).map_err(|error| error.to_string())?;
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
