//! The server's uplink: what an experiment file says of the link that its responses leave by, and
//! of the order on it.
//!
//! `[uplink]` is for all policies; a policy changes single keys, as `uplink = { order = "srpt" }`.

use aqm::Rate;
use kernel::{Cutoffs, SizeSource};
use serde::Deserialize;
use sim::{Device, Sending, UplinkConfig};
use tcp::{Algorithm, Control};

/// Of the rate, for the last band.
const FLOOR: std::ops::RangeInclusive<f64> = 0.0..=0.5;
/// Packets that a device queues before each band, or in all.
const QUEUE: std::ops::RangeInclusive<u32> = 1..=1_000_000;
/// Frames that a card's ring has room for.
const CARD: std::ops::RangeInclusive<u32> = 0..=65_536;
/// Bytes of a send buffer, about what Linux 2.2 had.
const SEND_BUFFER: u32 = 65_536;
/// Bytes of a write(2) of Apache 1.3.
const WRITE: u32 = 32_768;
/// Cutoffs of `[SH06]` section 3.2, bytes.
const CUTOFFS: [u64; 4] = [1000, 2000, 5000, 50_000];

/// The table, or what of it a policy changes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UplinkText {
    /// Of the link, as `10mbit`.
    rate: Option<String>,
    /// In which order responses are sent: `fair`, `srpt` or `las`.
    order: Option<Order>,
    /// In place of an order, a discipline of crates/aqm for the device's queue, as `fq-codel`.
    aqm: Option<String>,
    /// Bytes left at most in each band but the last; `srpt` and `las`.
    cutoffs: Option<Vec<u64>>,
    /// Share of the rate that the last band is sure of, so that nobody starves.
    floor: Option<f64>,
    /// Packets that the device's queue holds.
    queue: Option<u32>,
    /// Of what: each band, as `tc-prio` with a queue for each, or all together.
    queue_of: Option<QueueOf>,
    /// Frames that the card holds beside the one that it sends.
    card: Option<u32>,
    /// Whether the kernel bounds what a connection has below TCP, as Linux since 3.6.
    tsq: Option<bool>,
    /// Congestion control.
    congestion: Option<Congestion>,
    /// How `srpt` knows what is left.
    source: Option<Source>,
    /// What of a response is left: what TCP has not sent, or what the program has not written.
    /// The program says it before each write of 32 kB.
    remaining: Option<Remaining>,
    /// A connection may overtake itself when it goes to a higher band.
    overtakes: Option<bool>,
    /// Where SYN/ACKs and segments without data wait.
    control: Option<Place>,
}

/// In which order responses are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// First in, first out: all connections in turn.
    Fair,
    /// Fewest bytes left first, by bands.
    Srpt,
    /// Fewest bytes sent first, by bands.
    Las,
}

/// What a limit is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum QueueOf {
    EachBand,
    AllBands,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Congestion {
    Reno,
    Cubic,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Source {
    /// The program says.
    Told,
    /// Content-Length.
    Length,
    /// The send buffer, or what was sent while that is full.
    Buffered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Remaining {
    Unsent,
    Unwritten,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Place {
    First,
    Last,
}

/// An uplink, and how the server's connections send into it.
#[derive(Debug, Clone, PartialEq)]
pub struct Uplink {
    /// The device, its card and the link.
    pub link: UplinkConfig,
    /// What the server's kernel does.
    pub sending: Sending,
}

impl UplinkText {
    /// The same, but for what `other` says.
    #[must_use]
    pub(crate) fn changed(&self, other: &Self) -> Self {
        let Self {
            rate,
            order,
            aqm,
            cutoffs,
            floor,
            queue,
            queue_of,
            card,
            tsq,
            congestion,
            source,
            remaining,
            overtakes,
            control,
        } = other.clone();
        let has_queue = order.is_some() || aqm.is_some();
        Self {
            rate: rate.or_else(|| self.rate.clone()),
            // An order takes the place of a discipline, and the other way round.
            order: if has_queue { order } else { self.order },
            aqm: if has_queue { aqm } else { self.aqm.clone() },
            cutoffs: cutoffs.or_else(|| self.cutoffs.clone()),
            floor: floor.or(self.floor),
            queue: queue.or(self.queue),
            queue_of: queue_of.or(self.queue_of),
            card: card.or(self.card),
            tsq: tsq.or(self.tsq),
            congestion: congestion.or(self.congestion),
            source: source.or(self.source),
            remaining: remaining.or(self.remaining),
            overtakes: overtakes.or(self.overtakes),
            control: control.or(self.control),
        }
    }

    /// Keys that it has and that the lab cannot set on a kernel.
    pub(crate) fn only_simulated(&self) -> Vec<&'static str> {
        let keys = [
            ("card", self.card.is_some()),
            ("tsq", self.tsq.is_some()),
            ("remaining", self.remaining.is_some()),
            ("overtakes", self.overtakes.is_some()),
            ("control", self.control.is_some()),
        ];
        keys.into_iter().filter_map(|(key, is_there)| is_there.then_some(key)).collect()
    }

    /// Whether it names a rate.
    pub(crate) fn says_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// The rate of the link, if it is said and is one.
    pub(crate) fn rate(&self) -> Option<Rate> {
        Rate::parse(self.rate.as_deref()?)
    }

    /// What it comes to.
    ///
    /// # Errors
    ///
    /// One line: what cannot be, and what would do.
    pub(crate) fn uplink(&self) -> Result<Uplink, String> {
        let rate = self.check_rate()?;
        let (order, device) = self.device()?;
        let link = UplinkConfig {
            rate,
            overhead_bytes: 0,
            device,
            card: within("card", self.card.unwrap_or(16), CARD, "16 is usual")?,
        };
        let source = match (order, self.source.unwrap_or(Source::Told)) {
            (Order::Las, _) => SizeSource::Attained,
            (_, Source::Told) => SizeSource::Told,
            (_, Source::Length) => SizeSource::Length,
            (_, Source::Buffered) => SizeSource::Buffered,
        };
        if self.remaining == Some(Remaining::Unwritten) && source != SizeSource::Told {
            return Err("uplink.remaining = \"unwritten\" is what a program tells; order = \"srpt\" and source = \"told\" go with it".to_owned());
        }
        let algorithm = match self.congestion.unwrap_or(Congestion::Reno) {
            Congestion::Reno => Algorithm::NewReno,
            Congestion::Cubic => Algorithm::Cubic,
        };
        let cutoffs = if order == Order::Fair { Cutoffs::default() } else { self.cutoffs()? };
        let sending = Sending {
            control: Control { algorithm, waits_for_more: true },
            send_buffer: SEND_BUFFER,
            has_small_queue: self.tsq.unwrap_or(true),
            cutoffs,
            source,
            writes: (self.remaining == Some(Remaining::Unwritten)).then_some(WRITE),
            overtakes: self.overtakes.unwrap_or(false),
            control_last: self.control == Some(Place::Last),
        };
        Ok(Uplink { link, sending })
    }

    fn check_rate(&self) -> Result<Rate, String> {
        let text = self.rate.as_deref().ok_or("uplink.rate is missing; \"10mbit\" would do")?;
        Rate::parse(text).ok_or_else(|| {
            format!(
                "uplink.rate = {text:?} is no rate: bits with their unit, from 1kbit to 10Tbit, as \"10mbit\""
            )
        })
    }

    fn cutoffs(&self) -> Result<Cutoffs, String> {
        let bytes = self.cutoffs.as_deref().unwrap_or(&CUTOFFS);
        Cutoffs::new(bytes).filter(|_| !bytes.is_empty()).ok_or_else(|| {
            format!(
                "uplink.cutoffs = {bytes:?}: 1 to {} sizes in bytes, each larger than the one before, as [1000, 2000, 5000, 50000]",
                Cutoffs::MOST
            )
        })
    }

    /// The device's queue, and the order that it makes.
    fn device(&self) -> Result<(Order, Device), String> {
        let limit = within("queue", self.queue.unwrap_or(100), QUEUE, "100 is the paper's")?;
        let droptail = || aqm::Config::DropTail(aqm::DropTailConfig { limit: aqm::Amount::Packets(limit) });
        if let Some(text) = &self.aqm {
            let stray = [
                ("order", self.order.is_some()),
                ("cutoffs", self.cutoffs.is_some()),
                ("floor", self.floor.is_some()),
                ("queue_of", self.queue_of.is_some()),
            ];
            if let Some((key, _)) = stray.into_iter().find(|(_, is_there)| *is_there) {
                return Err(format!("uplink.aqm = {text:?} and {key} are two orders; leave one out"));
            }
            let discipline = text.parse().map_err(|why| format!("uplink.aqm = {text:?}: {why}"))?;
            return Ok((Order::Fair, Device::One(discipline)));
        }
        let order = self.order.unwrap_or(Order::Fair);
        if order == Order::Fair {
            return Ok((order, Device::One(droptail())));
        }
        let bands = self.cutoffs()?.count as u8 + 1;
        let floor = self.floor.unwrap_or(0.0);
        if !FLOOR.contains(&floor) {
            return Err(format!("uplink.floor = {floor}: a share of the rate, from 0 to 0.5; 0.01 is usual"));
        }
        let device = match self.queue_of.unwrap_or(QueueOf::EachBand) {
            QueueOf::EachBand => Device::Prio { bands, of_each: droptail(), floor },
            QueueOf::AllBands if floor > 0.0 => {
                return Err("uplink.floor is of queue_of = \"each-band\" only".to_owned());
            }
            QueueOf::AllBands => Device::One(aqm::Config::Bands(aqm::BandsConfig {
                bands,
                limit: aqm::Amount::Packets(limit),
                ..aqm::BandsConfig::default()
            })),
        };
        Ok((order, device))
    }
}

fn within(key: &str, value: u32, range: std::ops::RangeInclusive<u32>, usual: &str) -> Result<u32, String> {
    match range.contains(&value) {
        true => Ok(value),
        false => Err(format!("uplink.{key} = {value}: from {} to {}; {usual}", range.start(), range.end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> UplinkText {
        toml::from_str(text).expect("a table")
    }

    #[test]
    fn usual_uplink_is_one_queue_of_100_packets_of_todays_linux() {
        let Uplink { link, sending } = read("rate = \"10mbit\"").uplink().expect("an uplink");
        assert_eq!((link.rate.bits_per_s(), link.card, link.overhead_bytes), (10_000_000, 16, 0));
        assert_eq!(link.device, Device::One("droptail:limit=100".parse().expect("a queue")));
        assert_eq!((sending.has_small_queue, sending.cutoffs.count), (true, 0));
    }

    #[test]
    fn policy_changes_single_keys() {
        let file = read("rate = \"10mbit\"\ncard = 8\naqm = \"fq-codel\"\nqueue = 50");
        let srpt = file.changed(&read("order = \"srpt\"\ntsq = false"));
        let Uplink { link, sending } = srpt.uplink().expect("an uplink");
        let each = "droptail:limit=50".parse().expect("a queue");
        assert_eq!((link.card, link.device), (8, Device::Prio { bands: 5, of_each: each, floor: 0.0 }));
        assert_eq!(
            (sending.has_small_queue, sending.source, sending.cutoffs.count),
            (false, SizeSource::Told, 4)
        );
        let shared = srpt.changed(&read("queue_of = \"all-bands\"\ncutoffs = [1000]")).uplink();
        let bands = "bands:bands=2,limit=50".parse().expect("a queue");
        assert_eq!(shared.expect("an uplink").link.device, Device::One(bands));
        let las = file.changed(&read("order = \"las\"\ncontrol = \"last\"")).uplink().expect("an uplink");
        assert_eq!((las.sending.source, las.sending.control_last), (SizeSource::Attained, true));
        let exact = srpt.changed(&read("aqm = \"srpt:limit=500\"")).uplink().expect("an uplink");
        assert_eq!(exact.link.device, Device::One("srpt:limit=500".parse().expect("a queue")));
        assert_eq!(exact.sending.cutoffs.count, 0);
    }

    #[test]
    fn what_is_no_uplink_is_said_in_one_line() {
        for (text, expected) in [
            ("", "uplink.rate is missing; \"10mbit\" would do"),
            ("rate = \"0mbit\"", "uplink.rate = \"0mbit\" is no rate"),
            ("rate = \"10Mbps\"", "is no rate: bits with their unit"),
            ("rate = \"10\"", "is no rate"),
            ("rate = \"10mbit\"\nqueue = 0", "uplink.queue = 0: from 1 to"),
            ("rate = \"10mbit\"\norder = \"las\"\nfloor = 0.6", "uplink.floor = 0.6: a share of the rate"),
            (
                "rate = \"10mbit\"\norder = \"las\"\nfloor = 0.1\nqueue_of = \"all-bands\"",
                "uplink.floor is of queue_of",
            ),
            ("rate = \"10mbit\"\ncard = 65537", "uplink.card = 65537: from 0 to"),
            ("rate = \"10mbit\"\norder = \"las\"\nremaining = \"unwritten\"", "is what a program tells"),
            (
                "rate = \"10mbit\"\norder = \"srpt\"\ncutoffs = [2000, 1000]",
                "each larger than the one before",
            ),
            ("rate = \"10mbit\"\norder = \"srpt\"\ncutoffs = []", "uplink.cutoffs = []: 1 to 7 sizes"),
            ("rate = \"10mbit\"\norder = \"las\"\ncutoffs = [1, 2, 3, 4, 5, 6, 7, 8]", "1 to 7 sizes"),
            ("rate = \"10mbit\"\naqm = \"lottery\"", "uplink.aqm = \"lottery\": "),
            ("rate = \"10mbit\"\naqm = \"srpt\"\norder = \"srpt\"", "and order are two orders"),
            ("rate = \"10mbit\"\naqm = \"fq\"\ncutoffs = [1]", "and cutoffs are two orders"),
        ] {
            let why = read(text).uplink().expect_err(text);
            assert!(why.contains(expected) && !why.contains('\n'), "{text}: {why}");
        }
        for text in ["order = \"lifo\"", "source = \"guess\"", "control = 1", "cutoffs = [-1]", "speed = 1"] {
            toml::from_str::<UplinkText>(text).expect_err(text);
        }
    }
}
