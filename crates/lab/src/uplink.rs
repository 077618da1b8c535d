//! A server's uplink on this kernel: `tidegate uplink`, or a queue discipline of the kernel below a
//! TBF of the same rate.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aqm::{Amount, Config, DropTailConfig};
use experiment::Uplink;
use ipnet::Ipv4Net;
use kernel::SizeSource;
use netns::Namespace;
use tcp::Algorithm;

use crate::child::Running;
use crate::testbed::{SERVER_INTERFACE, Testbed};

/// How long `tidegate uplink` may take to be at work.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of the interface.
const MTU: u32 = 1500;

/// What orders the packets of an uplink.
#[derive(Debug, Clone, PartialEq)]
enum Order {
    /// `tidegate uplink` with these options.
    Ours(Vec<String>),
    /// A discipline of the kernel, as tc names it, with its options.
    Stock(Vec<String>),
}

/// Why this machine cannot have such an uplink; `None` if it can.
pub(crate) fn missing(uplink: &Uplink) -> Result<Option<String>> {
    let discipline = match order(uplink) {
        Ok(Order::Ours(_)) => return Ok(None),
        Ok(Order::Stock(discipline)) => discipline,
        Err(why) => return Ok(Some(why)),
    };
    let namespace = Namespace::create("try")?;
    let words: Vec<&str> = discipline.iter().map(String::as_str).collect();
    let tried = namespace.tc(&[&["qdisc", "replace", "dev", "lo", "root"], &words[..]].concat());
    Ok(tried.is_err().then(|| format!("this kernel, or its tc, has no {}", words[0])))
}

/// Puts an uplink before a server's clients. What this gives orders its packets until it is
/// dropped, where a program does.
pub(crate) fn start(
    uplink: &Uplink,
    testbed: &Testbed,
    program: &Path,
    clients: Ipv4Net,
) -> Result<Option<Running>> {
    let server = &testbed.server;
    let control = match uplink.sending.control.algorithm {
        Algorithm::Cubic => "cubic",
        Algorithm::NewReno | Algorithm::Classic => "reno",
    };
    testbed.set_congestion_control(clients, control)?;
    let rate = format!("{}bit", uplink.link.rate.bits_per_s());
    // What the testbed has put there.
    server.tc(&["qdisc", "delete", "dev", SERVER_INTERFACE, "root"])?;
    match order(uplink).map_err(anyhow::Error::msg)? {
        Order::Stock(discipline) => {
            // As above the bands of `tidegate uplink`.
            let burst = ::uplink::burst_bytes(uplink.link.rate.bits_per_s(), MTU).to_string();
            let limit = ::uplink::TBF_LIMIT.to_string();
            let shaper = ["root", "handle", "1:", "tbf", "rate", &rate, "burst", &burst, "limit", &limit];
            server.tc(&[&["qdisc", "add", "dev", SERVER_INTERFACE], &shaper[..]].concat())?;
            let words = discipline.iter().map(String::as_str);
            let below: Vec<&str> = ["parent", "1:1"].into_iter().chain(words).collect();
            server.tc(&[&["qdisc", "add", "dev", SERVER_INTERFACE], &below[..]].concat())?;
            Ok(None)
        }
        Order::Ours(options) => {
            let mut command = server.command(program)?;
            command.args(["uplink", SERVER_INTERFACE, "--json", "--rate", &rate]).args(options);
            let mut running = Running::start("tidegate uplink", &mut command)?;
            running.wait_for("started", PATIENCE).context("order the server's uplink")?;
            Ok(Some(running))
        }
    }
}

/// Ends what orders an uplink, and makes sure that it did to the end.
pub(crate) fn finish(mut running: Running) -> Result<()> {
    ensure!(!running.has_ended(), "tidegate uplink ended before its time; its own message is above");
    running.terminate();
    running.wait_for("final", PATIENCE).map(drop)
}

/// What an experiment's uplink is here; an error is why the lab has none like it.
fn order(uplink: &Uplink) -> Result<Order, String> {
    let Uplink { link, sending } = uplink;
    if sending.cutoffs.count > 0 {
        let floor = match link.device {
            sim::Device::Prio { floor, .. } => floor,
            sim::Device::One(_) => return Err("queue_of = \"all-bands\" is simulated only".to_owned()),
        };
        let mut options = vec!["--cutoffs".to_owned(), cutoffs(uplink)];
        options.extend(["--floor".to_owned(), format!("{}%", floor * 100.0)]);
        let (order, source) = match sending.source {
            SizeSource::Attained => ("las", None),
            SizeSource::Length => ("srpt", Some("content-length")),
            SizeSource::Buffered => ("srpt", Some("buffered")),
            // The servers here say nothing: the best there is for each response.
            _ => ("srpt", None),
        };
        options.extend(["--order".to_owned(), order.to_owned()]);
        options.extend(source.into_iter().flat_map(|source| ["--source".to_owned(), source.to_owned()]));
        return Ok(Order::Ours(options));
    }
    let sim::Device::One(discipline) = &link.device else {
        unreachable!("bands have cutoffs");
    };
    let words = match discipline {
        Config::DropTail(DropTailConfig { limit: Amount::Packets(packets) }) => {
            vec!["pfifo".to_owned(), "limit".to_owned(), packets.to_string()]
        }
        Config::FqCodel(_) => vec!["fq_codel".to_owned()],
        Config::Fq(_) => vec!["fq".to_owned()],
        Config::Sfq(_) => vec!["sfq".to_owned()],
        Config::Cake(_) => vec!["cake".to_owned()],
        other => return Err(format!("{} is simulated only", other.kind())),
    };
    let is_usual = discipline.kind().parse().is_ok_and(|usual: Config| usual == *discipline);
    if is_usual || matches!(discipline, Config::DropTail(_)) {
        return Ok(Order::Stock(words));
    }
    Err(format!("{} with other parameters than the kernel's is simulated only", discipline.kind()))
}

fn cutoffs(uplink: &Uplink) -> String {
    let cutoffs = &uplink.sending.cutoffs;
    let bytes = &cutoffs.bytes[..cutoffs.count as usize];
    bytes.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::experiment;

    fn uplink(table: &str) -> Uplink {
        let experiment = experiment(table, "");
        experiment.uplink_of(&experiment.policies[0]).expect("a table that was checked").expect("an uplink")
    }

    fn words(order: &Order) -> String {
        match order {
            Order::Ours(options) => format!("tidegate uplink {}", options.join(" ")),
            Order::Stock(discipline) => discipline.join(" "),
        }
    }

    #[test]
    fn uplink_of_a_file_is_a_program_or_a_discipline_here() {
        for (table, expected) in [
            ("queue = 1000", "pfifo limit 1000"),
            ("aqm = \"fq-codel\"", "fq_codel"),
            ("aqm = \"cake\"", "cake"),
            ("order = \"srpt\"", "tidegate uplink --cutoffs 1000,2000,5000,50000 --floor 0% --order srpt"),
            (
                "order = \"srpt\"\ncutoffs = [9]\nsource = \"length\"",
                "tidegate uplink --cutoffs 9 --floor 0% --order srpt --source content-length",
            ),
            (
                "order = \"las\"\ncutoffs = [9]\nfloor = 0.05",
                "tidegate uplink --cutoffs 9 --floor 5% --order las",
            ),
        ] {
            let order = order(&uplink(table)).expect(table);
            assert_eq!(words(&order), expected);
        }
    }

    #[test]
    fn what_only_virtual_time_has_is_said() {
        for table in ["aqm = \"srpt\"", "aqm = \"red\"", "aqm = \"fq-codel:limit=7\""] {
            let why = order(&uplink(table)).expect_err(table);
            assert!(why.ends_with("simulated only"), "{why}");
        }
    }
}
