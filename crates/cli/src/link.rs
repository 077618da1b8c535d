//! `tidegate link`: a bottleneck between two interfaces.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use link::{Access, Config, DEFAULT_BUFFERS, Direction, Failures, Link, MAX_BUFFERS, Progress};
use path::Counters;
use results::{LinkDirection, LinkSummary};
use units::Nanos;

use crate::load::XdpArg;
use crate::output::{Timed, say};
use crate::printer::Printer;
use crate::signals;

/// Emulate a bottleneck: every frame that comes in at one interface leaves at the other, through a
/// queue, at a rate, after a delay
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The two interfaces, without addresses of their own; forward is from the first to the second
    #[arg(required = true, num_args = 2, value_names = ["IF1", "IF2"])]
    interfaces: Vec<String>,

    /// Rate of each direction, as 10mbit; without one frames leave at once
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,

    /// Bytes that the transmitter sends besides each frame: 24 for Ethernet's preamble, FCS and
    /// gap, -14 where the rate is that of IP packets
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    overhead: Option<String>,

    /// Delay of each direction, as 20ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    delay: Option<String>,

    /// The delay is uniform within so much more or less; frames may overtake each other then
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    jitter: Option<String>,

    /// Frames do not overtake each other by jitter
    #[arg(long)]
    in_order: bool,

    /// Share of the frames that is lost behind the queue, as 1%; or in bursts, as
    /// gilbert-elliott:p=1%,r=25%
    #[arg(long, value_name = "LOSS", allow_hyphen_values = true)]
    loss: Option<String>,

    /// Share of the frames that arrive without delay, ahead of those before them
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    reorder: Option<String>,

    /// Length of a drop-tail queue, as 100 (frames) or 150kB; 1000, unless told
    #[arg(long, value_name = "N", conflicts_with = "aqm", allow_hyphen_values = true)]
    limit: Option<String>,

    /// Queue discipline, as redfavor:limit=180,min=30,max=90; docs/aqm.md has all of them
    #[arg(long, value_name = "AQM")]
    aqm: Option<String>,

    /// What is different from IF1 to IF2, as 'rate 2mbit loss 1%', in the words of the options
    /// above
    #[arg(long, value_name = "WORDS")]
    forward: Option<String>,

    /// What is different from IF2 to IF1
    #[arg(long, value_name = "WORDS")]
    backward: Option<String>,

    /// A host's own link, before the bottleneck for what it sends and behind it for what it gets:
    /// its address, and a path, as '10.0.0.7 rate 100mbit delay 24ms'; may be given for many hosts
    #[arg(long, value_name = "HOST WORDS")]
    access: Vec<String>,

    /// What happens before is not counted
    #[arg(long, value_name = "D", default_value = "0s", value_parser = spelling::time)]
    warmup: Duration,

    /// End after so long, the warm-up not counted; else at Ctrl-C or SIGTERM
    #[arg(long, value_name = "D", value_parser = spelling::time)]
    duration: Option<Duration>,

    /// Write what was seen to this file at the end, as JSON; `tidegate schema link` says what it
    /// means
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Where frames are taken from the kernel
    #[arg(long, value_enum, default_value_t = XdpArg::Auto)]
    xdp: XdpArg,

    /// CPU of the thread that moves frames
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,

    /// Never sleep: more precise, for all of a CPU
    #[arg(long)]
    busy_poll: bool,

    /// Frames that can be inside, over both directions
    #[arg(long, value_name = "N", default_value_t = DEFAULT_BUFFERS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_BUFFERS)))]
    buffers: u32,

    /// Of all that happens by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Runs the link until its time is over or a signal comes, and prints what it saw.
pub fn run(args: Args) -> Result<()> {
    let config = args.config()?;
    let stop = signals::stop_flag()?;
    let mut link = Link::open(&config)?;
    // Before it runs: what it saw must not be lost for a folder that is not there; nor an older
    // file for a link that never was.
    let json = args.json.as_ref().map(|path| Ok::<_, anyhow::Error>((path, create(path)?))).transpose()?;
    for (which, (mode, instead)) in link.receive_modes().into_iter().enumerate() {
        let [from, to] = [&config.interfaces[which], &config.interfaces[1 - which]];
        let instead = instead.map(|why| format!(", as {why}")).unwrap_or_default();
        say(format_args!("{from} > {to}: {}; received by {mode}{instead}", config.paths[which]))?;
    }
    say("running")?;
    // A terminal that is held must not hold the frames.
    let printer = Printer::start();
    let mut seconds = [Second::default(), Second::default()];
    let names = config.interfaces.clone();
    let ended = link.run(&stop, |progress: &Progress<'_>| {
        for (which, (second, direction)) in seconds.iter_mut().zip(progress.directions).enumerate() {
            let title = format!("{} > {}", names[which], names[1 - which]);
            printer.say(second.line(&title, progress.elapsed, direction));
        }
        if printer.is_closed() {
            stop.store(true, Ordering::Relaxed);
        }
    });
    drop(printer);
    // Also of a link that ended by an error: it is in the summary, and what was counted is not
    // lost.
    let said = link.summary().and_then(|summary| tell(&summary, json));
    // Why it ended goes before that it could not be told.
    ended.and(said)
}

fn tell(summary: &LinkSummary, json: Option<(&PathBuf, File)>) -> Result<()> {
    let said = say(summary_text(summary));
    if let Some((path, mut file)) = json {
        let text =
            serde_json::to_string_pretty(&Timed::now(summary)).expect("numbers and their names are JSON");
        writeln!(file, "{text}").with_context(|| format!("write {}", path.display()))?;
    }
    said
}

fn create(path: &PathBuf) -> Result<File> {
    File::create(path).with_context(|| format!("create {}", path.display()))
}

impl Args {
    fn config(&self) -> Result<Config> {
        let both = path::Config::default().with(&self.words())?;
        let of = |words: &Option<String>, name: &str| {
            let config = both.clone().with(words.as_deref().unwrap_or_default());
            config.with_context(|| name.to_owned())
        };
        let [first, second] = self.interfaces.as_slice() else { unreachable!("clap wants two") };
        Ok(Config {
            interfaces: [first.clone(), second.clone()],
            paths: [of(&self.forward, "--forward")?, of(&self.backward, "--backward")?],
            access: self.access.iter().map(|text| access(text)).collect::<Result<_>>()?,
            mode: self.xdp.mode(),
            cpu: self.cpu,
            busy_poll: self.busy_poll,
            buffers: self.buffers,
            seed: self.seed,
            warmup: self.warmup,
            duration: self.duration,
        })
    }

    /// The options that are of a path, in its words.
    fn words(&self) -> String {
        let values = [
            ("rate", &self.rate),
            ("overhead", &self.overhead),
            ("delay", &self.delay),
            ("jitter", &self.jitter),
            ("loss", &self.loss),
            ("reorder", &self.reorder),
            ("limit", &self.limit),
            ("aqm", &self.aqm),
        ];
        // A value with blanks in it would be several words.
        let value = |(key, value): (&str, &Option<String>)| {
            value.as_ref().map(|value| format!("{key} {} ", value.replace(char::is_whitespace, "")))
        };
        let order = if self.in_order { "in-order" } else { "" };
        values.into_iter().filter_map(value).chain([order.to_owned()]).collect()
    }
}

/// `10.0.0.7 rate 100mbit delay 24ms`.
fn access(text: &str) -> Result<Access> {
    let text = text.trim();
    let (host, words) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let context = || format!("--access {text:?}");
    let host = host.parse().map_err(|_| {
        let wanted = "it begins with the address of a host, as in '10.0.0.7 rate 100mbit delay 24ms'";
        anyhow::Error::new(path::ConfigError::Contradiction(wanted.to_owned()))
    });
    let path = words.parse::<path::Config>();
    Ok(Access { host: host.with_context(context)?, path: path.with_context(context)? })
}

/// What was known of a direction a second ago.
#[derive(Default)]
struct Second {
    elapsed: Nanos,
    counters: Counters,
    failures: Failures,
    sojourns_us: Option<Histogram<u64>>,
}

impl Second {
    /// What happened since, for a person.
    fn line(&mut self, title: &str, elapsed: Nanos, direction: &Direction) -> String {
        let span = elapsed.since(self.elapsed).as_secs_f64();
        let (now, before) = (*direction.counters(), self.counters);
        let per_s = |now: u64, before: u64| (now - before) as f64 / span;
        let mut line = format!(
            "{:>4.0} s  {title}  {:>7.0} packets/s  {:>8.3} Mb/s  queue {:>4}",
            elapsed.as_secs_f64(),
            per_s(now.delivered.packets, before.delivered.packets),
            8e-6 * per_s(now.delivered.bytes, before.delivered.bytes),
            direction.qlen_pkts()
        );
        let mut sojourns = direction.sojourns_us().clone();
        if let Some(before) = self.sojourns_us.replace(direction.sojourns_us().clone()) {
            sojourns.subtract(&before).expect("it counted these, too");
        }
        if !sojourns.is_empty() {
            let ms = |share| sojourns.value_at_quantile(share) as f64 / 1e3;
            line += &format!("  sojourn p50 {:.3}  p99 {:.3} ms", ms(0.5), ms(0.99));
        }
        let before_drops: Vec<u64> = before.drops().map(|(_, count)| count).collect();
        for ((cause, now), before) in now.drops().zip(before_drops).filter(|((_, now), before)| now > before)
        {
            line += &format!("  {cause} {:.0}/s", per_s(now, before));
        }
        let failures = direction.failures();
        for (what, now, before) in [
            ("too long", failures.too_long, self.failures.too_long),
            ("no buffer", failures.no_buffer, self.failures.no_buffer),
            ("unsent", failures.unsent, self.failures.unsent),
        ] {
            if now > before {
                line += &format!("  {what} {:.0}/s", per_s(now, before));
            }
        }
        (self.elapsed, self.counters, self.failures) = (elapsed, now, failures);
        line
    }
}

/// The whole run for a person, with what to do about the link's own failures.
fn summary_text(summary: &LinkSummary) -> String {
    let directions = summary.directions.iter().map(|direction| direction_text(summary, direction));
    let mut text: Vec<String> = directions.collect();
    text.push(format!("{:.1} s, {:.0}% of a CPU", summary.elapsed_s, 100.0 * summary.cpu_share));
    text.join("\n")
}

fn direction_text(summary: &LinkSummary, direction: &LinkDirection) -> String {
    let LinkDirection { from, to, arrived, delivered, drops, sojourn, late, .. } = direction;
    let mut text = format!(
        "{from} > {to}: {} of {} packets delivered, {:.3} Mb/s; sojourn mean {:.3} p99 {:.3} ms; left late by p50 {:.3} p99 {:.3} ms",
        delivered.packets,
        arrived.packets,
        8e-6 * delivered.bytes as f64 / summary.elapsed_s,
        sojourn.mean_ms,
        sojourn.p99_ms,
        late.p50_ms,
        late.p99_ms,
    );
    for (cause, count) in drops {
        text += &format!("; {cause} {count}");
    }
    let failures = [
        (
            direction.lost,
            "were lost before they were received: the link had too little CPU, or AF_XDP got frames longer than its buffers",
        ),
        (
            direction.too_long,
            "were longer than the other side's MTU and not taken; the sender leaves it to its device to split them: ethtool -K IF tso off gso off there, and \
             gro off here",
        ),
        (direction.no_buffer, "found no buffer; raise --buffers, or lower delay or rate"),
        (direction.unsent, "were not taken by the kernel when they were to leave"),
    ];
    for (count, what) in failures.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!("\n  {count} frames {what}");
    }
    text
}
