//! `tidegate qdisc`: REDFavor, SRPT or LAS as the queue discipline of an interface.

use ::qdisc::{Order, Own, Setup, Status};
use anyhow::Result;
use aqm::Config;
use clap::builder::NonEmptyStringValueParser;

use crate::mistake::Mistake;
use crate::output::say;

/// Make REDFavor, SRPT or LAS the queue discipline of an interface
///
/// redfavor: packets that open connections go first, and push out others. srpt: the response with
/// the fewest bytes left goes first. las: the one that has sent the fewest. Under both the largest
/// is pushed out.
///
/// It is the root qdisc, in the kernel (BPF, Linux 6.16 and newer), and stays until it is removed
/// or the interface goes. Needs root.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Add(AddArgs),
    Show(ShowArgs),
    Del(DelArgs),
}

/// Put it on an interface
#[derive(Debug, clap::Args)]
struct AddArgs {
    /// Interface
    #[arg(value_name = "IF")]
    interface: String,

    /// Discipline: redfavor, srpt or las
    #[arg(value_name = "DISCIPLINE")]
    kind: String,

    /// Its parameters, as in: limit 100 min 5 max 15 rate 10Mbit (docs/aqm.md has all)
    #[arg(value_name = "KEY VALUE")]
    words: Vec<String>,

    /// Send no faster than that, so that the queue is here and not in what comes after
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,

    /// Replace a queue discipline that somebody made
    #[arg(long)]
    replace: bool,

    #[command(flatten)]
    place: Place,
}

/// Print what it did since it was made
#[derive(Debug, clap::Args)]
struct ShowArgs {
    /// Interface, or all
    #[arg(value_name = "IF", default_value = ALL)]
    interface: String,

    /// Print a JSON object for each interface
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: Place,
}

/// Remove it; the kernel puts its default in its place
#[derive(Debug, clap::Args)]
struct DelArgs {
    /// Interface
    #[arg(value_name = "IF")]
    interface: String,

    #[command(flatten)]
    place: Place,
}

/// Where the interface is.
#[derive(Debug, clap::Args)]
struct Place {
    /// Network namespace: a name of `ip netns`, host, a process id or a path
    #[arg(long, value_name = "NETNS", value_parser = NonEmptyStringValueParser::new())]
    netns: Option<String>,
}

/// Every interface.
const ALL: &str = "all";

/// Makes, shows or removes.
pub fn run(args: Args) -> Result<()> {
    match args.command {
        Command::Add(args) => add(&args),
        Command::Show(args) => show(&args),
        Command::Del(args) => del(&args),
    }
}

impl Place {
    fn enter<T: Send>(&self, act: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        match &self.netns {
            None => act(),
            Some(name) => netns::enter(&netns::open(name)?, act)?,
        }
    }
}

fn add(args: &AddArgs) -> Result<()> {
    if !::qdisc::names().contains(&args.kind.as_str()) {
        let (kind, ours) = (&args.kind, ::qdisc::names());
        let then = spelling::did_you_mean(kind, ours.iter().copied(), &format!("it has {}", ours.join(", ")));
        let why = format!("{kind} is no queue discipline that tidegate has for the kernel{then}");
        return Err(Mistake(why).into());
    }
    let config: Config = written(&args.kind, &args.words).parse()?;
    let rate = args.rate.as_deref().map(crate::uplink::rate).transpose()?;
    let setup = Setup { config, rate, is_replacing: args.replace, replay: None };
    let status = args.place.enter(|| Ok(::qdisc::add(&args.interface, &setup)?))?;
    say(format_args!("{}: {}{}", status.interface, status.config, pace(&status)))?;
    if let Own::Ranked(own) = &status.own {
        say(format_args!("  {}", known_by(own)))?;
    }
    match &status.replaced {
        Some(replaced) => say(format_args!("  replaces what del will not make again: {replaced}")),
        None => Ok(()),
    }
}

/// As the library reads it: `limit 100 gentle` is `limit=100,gentle`.
fn written(kind: &str, words: &[String]) -> String {
    /// A key alone is true.
    const FLAGS: [&str; 3] = ["gentle", "wait", "spare_one"];
    const VALUES: [&str; 2] = ["true", "false"];
    let mut written = Vec::new();
    let mut rest = words.iter().map(String::as_str).peekable();
    while let Some(key) = rest.next() {
        let has_value = !FLAGS.contains(&key) || rest.peek().is_some_and(|next| VALUES.contains(next));
        if key.contains('=') || !has_value {
            written.push(key.to_owned());
        } else {
            // A value that is missing is refused as an empty one, with what is wanted.
            written.push(format!("{key}={}", rest.next().unwrap_or_default()));
        }
    }
    if written.is_empty() { kind.to_owned() } else { format!("{kind}:{}", written.join(",")) }
}

fn show(args: &ShowArgs) -> Result<()> {
    let all = args.place.enter(|| match args.interface.as_str() {
        ALL => Ok(::qdisc::all()?),
        interface => Ok(vec![::qdisc::show(interface)?]),
    })?;
    if all.is_empty() && !args.json {
        say("no interface has a queue discipline of ours")?;
    }
    all.iter().try_for_each(
        |status| if args.json { say(serde_json::to_string(status)?) } else { say(text(status)) },
    )
}

fn del(args: &DelArgs) -> Result<()> {
    let status = args.place.enter(|| Ok(::qdisc::del(&args.interface)?))?;
    say(text(&status))?;
    match &status.replaced {
        Some(replaced) => say(format_args!("{} had before, and has no more: {replaced}", status.interface)),
        None => Ok(()),
    }
}

fn pace(status: &Status) -> String {
    let is_shaped = status.bits_per_s.map(|bits_per_s| format!(" at {bits_per_s} bit/s"));
    is_shaped.unwrap_or_default()
}

fn known_by(own: &Order) -> String {
    let missing = match own.missing.as_slice() {
        [] => String::new(),
        missing => format!("; not to be had here: {}", missing.join(", ")),
    };
    format!("sizes may be known by {}{missing}", own.sources.join(", "))
}

/// One interface, for people.
fn text(status: &Status) -> String {
    let dropped: Vec<String> = status
        .dropped
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{reason} {count}"))
        .chain((status.unallocated > 0).then(|| format!("no memory {}", status.unallocated)))
        .chain((status.thrown_away > 0).then(|| format!("interface down {}", status.thrown_away)))
        .collect();
    let dropped = if dropped.is_empty() { "nothing".to_owned() } else { dropped.join(", ") };
    let traffic = |traffic: &::qdisc::Traffic| format!("{} packets, {} bytes", traffic.pkts, traffic.bytes);
    let mut lines = [
        format!("waiting  {} packets, {} bytes", status.qlen_pkts, status.qlen_bytes),
        format!("arrived  {}", traffic(&status.arrived)),
        format!("sent     {}", traffic(&status.sent)),
        format!("dropped  {dropped}"),
        String::new(),
    ];
    match &status.own {
        Own::RedFavor(own) => {
            lines[0] += &format!("; {} protected; average {:.3}", own.protected_qlen_pkts, own.average);
            lines[1] += &format!("; {} protected", own.arrived_protected);
            lines[2] += &format!("; {} protected", own.sent_protected);
            lines[3] += &format!("; {} protected", own.dropped_protected);
        }
        Own::Ranked(own) => {
            lines[0] += &format!("; of {} flows", own.flows);
            let placed = own.placed_by.iter().filter(|(_, count)| *count > 0);
            let placed: Vec<String> = placed.map(|(name, count)| format!("{name} {count}")).collect();
            let placed = if placed.is_empty() { "nothing".to_owned() } else { placed.join(", ") };
            lines[4] = format!("placed   {placed}; {}", known_by(own));
        }
    }
    let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    format!("{}: {}{}\n  {}", status.interface, status.config, pace(status), lines.join("\n  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(kind: &str, words: &str) -> Result<String, String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let config: Result<Config, aqm::ConfigError> = written(kind, &words).parse();
        config.map(|config| config.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn words_are_those_of_a_configuration() {
        let full = |text: &str| {
            text.parse::<Config>().map(|config| config.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(parsed("redfavor", ""), full("redfavor"));
        assert_eq!(
            parsed("redfavor", "limit 100 min 5 max 15 gentle wait false spare_one guard off"),
            full("redfavor:limit=100,min=5,max=15,gentle,wait=false,spare_one,guard=off")
        );
        assert_eq!(parsed("redfavor", "wait rate 5Mbit limit=90"), full("redfavor:wait,rate=5Mbit,limit=90"));
    }

    #[test]
    fn words_that_cannot_be_worked_with_are_refused_in_one_line() {
        for (words, what) in [
            ("limit 0", "limit=0: nothing could wait"),
            ("min 20 max 10", "min=20 is not below max=10"),
            ("min", "min=: packets as in 180"),
            ("rate 10", "rate=10: a number with its unit"),
            ("limit 3 limit 4", "limit is given twice"),
            ("eth1", "\"eth1\" is no key of it"),
        ] {
            let error = parsed("redfavor", words).expect_err(words);
            assert!(error.contains(what) && !error.contains('\n'), "{words}: {error}");
        }
        assert!(parsed("eth1", "").expect_err("no kind").contains("no queue discipline"));
    }
}
