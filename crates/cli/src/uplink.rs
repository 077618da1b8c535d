//! `tidegate uplink`: sends the shortest response first until it is told to stop.

mod counts;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use ::uplink::{Endpoint, LEASE, Order, Setup, Sizes, Source, Uplink};
use anyhow::{Context, Result, bail};
use clap::builder::{NonEmptyStringValueParser, PossibleValuesParser};

use crate::answerer;
use crate::exporter::Exporter;
use crate::mistake::Mistake;
use crate::printer::Printer;
use crate::signals;
use counts::Counts;
pub use counts::UplinkEvent;

/// Between two renewals of the lease.
const TURN: Duration = Duration::from_millis(200);
/// [`::uplink::FLOOR`], as a user writes it.
const FLOOR: &str = "1%";
/// Between two looks at which cutoffs the sizes ask for.
const CUTOFF_TURN: Duration = Duration::from_secs(10);

/// Send the shortest response first on a narrow uplink: small ones no longer wait behind large ones
///
/// Packets wait here and not in the modem or switch behind, so name a rate a little below that of
/// the narrowest link. Runs until Ctrl-C or SIGTERM, and leaves the interface as it was. Needs
/// root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Interface by which responses leave
    #[arg(value_name = "IF")]
    interface: String,

    /// Rate of the uplink, in bits per second, as 10mbit
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,

    /// Which response goes first: srpt, the one with the fewest bytes left; las, the one that has
    /// got the fewest; fair, none
    #[arg(long, value_name = "ORDER", default_value = "srpt", value_parser = PossibleValuesParser::new(Order::NAMED.map(|(name, _)| name)))]
    order: String,

    /// Know sizes by this source alone (default: the best there is for each response). What it does
    /// not know goes by what was sent
    ///
    /// told: the program says them, by a socket option (docs/sockopt.md). content-length: of HTTP/1
    /// in clear. sendfile: the kernel. buffered: by the send buffer. attained: by what was sent
    #[arg(long, value_name = "SOURCE", value_parser = PossibleValuesParser::new(Source::BEST_FIRST.map(Source::name)))]
    source: Option<String>,

    /// Only responses that leave from this local address and port; repeatable. `0.0.0.0` and `[::]`
    /// stand for every address. Other packets go first
    #[arg(long = "listen", value_name = "ADDR:PORT")]
    endpoints: Vec<SocketAddr>,

    /// Bytes left at which a response changes its band, as 1000,2000,5000,50000 (default: under
    /// srpt they follow the sizes seen)
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    cutoffs: Option<Vec<u64>>,

    /// Share of the rate that the lowest band is sure of, so that no response starves; 0% to 50%
    #[arg(long, value_name = "SHARE", default_value = FLOOR, value_parser = share, allow_hyphen_values = true)]
    floor: f64,

    /// Go below this class of your own queue discipline, as 1:10, instead of being the root
    #[arg(long, value_name = "CLASS")]
    parent: Option<String>,

    /// Interface of another network namespace: a name of `ip netns`, host, a process id or a
    /// path
    #[arg(long, value_name = "NETNS", value_parser = NonEmptyStringValueParser::new())]
    netns: Option<String>,

    /// Count what leaves, and leave every packet alone
    #[arg(long)]
    dry_run: bool,

    /// Between two lines
    #[arg(long, value_name = "D", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Print JSON lines: "started", then "sample"s, at last "final"
    #[arg(long)]
    json: bool,

    /// Show the counts to Prometheus at http://ADDR:PORT/metrics
    #[arg(long, value_name = "ADDR:PORT", value_parser = answerer::parse_address)]
    prometheus: Option<SocketAddr>,

    /// Stop after this time, as in 10s
    #[arg(long, value_name = "D", value_parser = spelling::time)]
    duration: Option<Duration>,
}

/// Runs until a signal or the end of `--duration`.
pub fn run(args: &Args) -> Result<()> {
    let exporter = args.prometheus.map(|address| Exporter::bind(address, false)).transpose()?;
    match &args.netns {
        Some(name) => netns::enter(&netns::open(name)?, || run_here(args, exporter.as_ref()))
            .with_context(|| format!("network namespace {name}"))?,
        None => run_here(args, exporter.as_ref()),
    }
}

fn run_here(args: &Args, exporter: Option<&Exporter>) -> Result<()> {
    let setup = setup(args)?;
    // Before anything is attached: a signal from now on ends the run in order.
    let stop = signals::stop_flag_in_order()?;
    let mut uplink = Uplink::start(&setup)?;
    let printer = Printer::start();
    let mut counts = Counts::new(&setup, uplink.missing());
    printer.say(counts.started(args.json, &uplink));
    let ended = watch(&mut uplink, &setup, args, &stop, exporter, &printer, &mut counts);
    printer.say(counts.last(args.json));
    ended
}

fn watch(
    uplink: &mut Uplink,
    setup: &Setup,
    args: &Args,
    stop: &Arc<AtomicBool>,
    exporter: Option<&Exporter>,
    printer: &Printer,
    counts: &mut Counts,
) -> Result<()> {
    let start = Instant::now();
    let end = args.duration.and_then(|duration| start.checked_add(duration));
    let mut sizes = Sizes::default();
    let (mut line_due, mut cutoffs_due) = (start + args.interval, start + CUTOFF_TURN);
    loop {
        let now = Instant::now();
        for sent in uplink.take_sent()? {
            sizes.add(sent.bytes);
            counts.add(&sent);
        }
        if stop.load(Ordering::Relaxed) || printer.is_closed() || end.is_some_and(|end| now >= end) {
            counts.look(start.elapsed(), uplink)?;
            return Ok(());
        }
        uplink.renew()?;
        if let Err(error) = counts.look(start.elapsed(), uplink) {
            // Of an interface that is gone it says more.
            return uplink.follow().map_err(Into::into).and(Err(error));
        }
        if now >= cutoffs_due {
            cutoffs_due = now + CUTOFF_TURN;
            let wanted = sizes.cutoffs().filter(|_| setup.cutoffs.is_none() && setup.order == Order::Srpt);
            if let Some(cutoffs) = wanted {
                if cutoffs != uplink.cutoffs() {
                    uplink.set_cutoffs(&cutoffs)?;
                    if !args.json {
                        printer.say(format_args!(
                            "{:4.0} s: {}",
                            start.elapsed().as_secs_f64(),
                            counts::cutoffs(uplink)
                        ));
                    }
                }
                sizes.age();
            }
        }
        if now >= line_due {
            line_due = now + args.interval;
            if let Some(netns) = &args.netns
                && netns::is_elsewhere(netns)
            {
                bail!("network namespace {netns} is gone, and its interfaces with it");
            }
            uplink.follow()?;
            printer.say(counts.line(args.json));
            if let Some(exporter) = exporter {
                exporter.publish(counts.metrics());
            }
        }
        let next = end.map_or(line_due, |end| end.min(line_due));
        sleep(next.saturating_duration_since(Instant::now()).min(TURN));
    }
}

fn setup(args: &Args) -> Result<Setup> {
    let rate_bps = args.rate.as_deref().map(rate).transpose()?.map(aqm::Rate::bits_per_s);
    if rate_bps.is_none() && args.parent.is_none() && !args.dry_run {
        return Err(Mistake(without_rate(&args.interface, args.netns.is_some())).into());
    }
    let named = |name: &str| Order::NAMED.into_iter().find(|(known, _)| *known == name);
    Ok(Setup {
        interface: args.interface.clone(),
        rate_bps,
        parent: args.parent.clone(),
        order: named(&args.order).expect("clap checked the name").1,
        insisted: args
            .source
            .as_ref()
            .and_then(|name| Source::BEST_FIRST.into_iter().find(|one| one.name() == name)),
        cutoffs: args.cutoffs.clone(),
        floor: args.floor,
        endpoints: args.endpoints.iter().map(endpoint).collect(),
        lease: LEASE,
        is_dry_run: args.dry_run,
    })
}

fn endpoint(address: &SocketAddr) -> Endpoint {
    let ip = match address.ip() {
        IpAddr::V6(ip) => ip.to_canonical(),
        ip => ip,
    };
    Endpoint { address: ip, port: address.port() }
}

/// Bits and bytes cannot be mixed up: `10mbps` is bits to some and bytes to tc.
pub(crate) fn rate(text: &str) -> Result<aqm::Rate> {
    aqm::Rate::parse(text).ok_or_else(|| {
        let why = format!("--rate {text}: a number with its unit, bit, kbit, mbit or gbit (per second), from 1kbit on, as in 10mbit");
        Mistake(why).into()
    })
}

/// What can be done without a rate depends on the link.
fn without_rate(interface: &str, is_elsewhere: bool) -> String {
    // Of another namespace's interface /sys does not tell.
    let path = Some(format!("/sys/class/net/{interface}/speed")).filter(|_| !is_elsewhere);
    let speed = path.and_then(|path| std::fs::read_to_string(path).ok());
    let speed = speed.and_then(|text| text.trim().parse::<u64>().ok()).filter(|mbit| *mbit < 1_000_000);
    let link = match speed {
        Some(mbit) => {
            format!(
                "the link of {interface} has {mbit}mbit; if that is the narrowest one, say --rate {}mbit",
                mbit * 95 / 100
            )
        }
        None => format!(
            "{interface} does not say how fast it is; say the rate of the narrowest link, as --rate 9500kbit"
        ),
    };
    format!(
        "--rate is missing: packets can only be put in order where they wait; {link}; or name a class of your own shaper with --parent"
    )
}

pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    const BOUNDS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);
    let interval = spelling::time(text).ok().filter(|interval| BOUNDS.contains(interval));
    interval.ok_or_else(|| "a time from 100ms to 1min, as in 10s".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let share = number.filter(|number| (0.0..=50.0).contains(number)).map(|number| number / 100.0);
    share.ok_or_else(|| "a share with its sign, from 0% to 50%, as in 1%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_says_bits_or_is_refused() {
        assert_eq!(rate("10mbit").expect("a rate").bits_per_s(), 10_000_000);
        assert_eq!(rate("2.5Gbit").expect("a rate").bits_per_s(), 2_500_000_000);
        for wrong in ["0mbit", "10", "10mb", "10MB", "10mbps", "10mbyte", "-1mbit", "", "10mbit delay 3ms"] {
            let error = rate(wrong).expect_err(wrong);
            assert!(
                crate::mistake::is_mistake(&error) && !error.to_string().contains('\n'),
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn share_has_its_sign() {
        assert_eq!(share("2%"), Ok(0.02));
        assert_eq!(share(FLOOR), Ok(::uplink::FLOOR));
        for wrong in ["2", "51%", "-1%", "%", "NaN%"] {
            share(wrong).expect_err(wrong);
        }
    }
}
