//! What a claim can be about: one number of one cell.

use std::fmt;

use results::{BottleneckSummary, Cell, CrowdSummary, Unit, UplinkSummary};
use serde::Deserialize;
use telemetry::counter;

use crate::{ENDS, KERNEL_DROPPED, TIME_WAITS};

/// One measured quantity of a cell, by its name in the experiment file. Defined in
/// `docs/measurement.md` and `docs/experiments.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    /// Complete replies per second, see [`Cell::goodput_at_search_speed`].
    Goodput,
    /// Mean response time, ms.
    Mean,
    /// Its median, ms.
    P50,
    /// Its 99th percentile, ms.
    P99,
    /// Mean response time from a user's first try, those that were aborted included, ms.
    UserMean,
    /// Squared coefficient of variation of those times.
    UserC2,
    /// Mean time from a request to the first byte of its reply, ms.
    FirstByteMean,
    /// Mean of the largest 1% of the replies, from the first try, ms.
    #[serde(rename = "largest_1pct_mean")]
    LargestMean,
    /// Mean of the largest replies of all, from the first try, ms.
    #[serde(rename = "largest_mean")]
    VeryLargestMean,
    /// Mean of replies of up to 1,000 B, from the first try, ms; likewise below, by the classes of
    /// `[SH06]` section 3.2.
    #[serde(rename = "mean_to_1kb")]
    MeanTo1,
    /// Above that, up to 2,000 B.
    #[serde(rename = "mean_to_2kb")]
    MeanTo2,
    /// Above that, up to 5,000 B.
    #[serde(rename = "mean_to_5kb")]
    MeanTo5,
    /// Above that, up to 50,000 B.
    #[serde(rename = "mean_to_50kb")]
    MeanTo50,
    /// Above that.
    #[serde(rename = "mean_above_50kb")]
    MeanAbove50,
    /// The largest of the means over those who asked in the same second, ms.
    SecondMeanMax,
    /// Such a mean, below which 95% of the seconds are, ms.
    #[serde(rename = "second_mean_p95")]
    SecondMeanP95,
    /// Share of the requests that ended without a reply and were not tried again.
    IncompleteShare,
    /// The same of the largest 1% of the requests.
    #[serde(rename = "incomplete_largest_1pct")]
    IncompleteLargest,
    /// Bytes of replies that came to the clients, bytes/s.
    ByteThroughput,
    /// Share of what was offered that got no reply: `[Shu05]` section 3.3, where replies and errors
    /// sum to the requests.
    ErrorShare,
    /// Share of the complete replies, to attempts of the window, whose status is 2xx.
    #[serde(rename = "status_2xx_share")]
    Status2xxShare,
    /// The same of 3xx.
    #[serde(rename = "status_3xx_share")]
    Status3xxShare,
    /// The same of 4xx.
    #[serde(rename = "status_4xx_share")]
    Status4xxShare,
    /// The same of 5xx.
    #[serde(rename = "status_5xx_share")]
    Status5xxShare,
    /// The same of all but 2xx.
    #[serde(rename = "non_2xx_share")]
    Non2xxShare,
    /// SYNs sent per attempt started.
    SynsPerAttempt,
    /// Complete replies per SYN sent.
    RepliesPerSyn,
    /// Share of the attempts that ended after one SYN.
    #[serde(rename = "syns_1_share")]
    OneSynShare,
    /// Share of the attempts that ended after three or more.
    #[serde(rename = "syns_3_or_more_share")]
    ThreeSynsShare,
    /// SYNs that the guard refused, or left to a kernel that dropped them, per attempt.
    SynDropsPerAttempt,
    /// ACKs that would have ended a handshake and found the accept queue full, per attempt.
    AckDropsPerAttempt,
    /// Those, as a share of both.
    AckShareOfDrops,
    /// Those, and data and FINs that met the same, over those: `[Shu05]` table 4.1.
    AckDropInflation,
    /// The kernel's own ListenOverflows, per attempt.
    OverflowsPerAttempt,
    /// Most connections in TIME_WAIT at the server.
    TimeWaitPeak,
    /// Most ends of connections that took memory there: handshakes, connections and TIME_WAITs;
    /// simulated only.
    EndsPeak,
    /// Attempts that found no port left, per attempt.
    NoPortShare,
    /// Segments that the server's kernel sent again (`Tcp.RetransSegs`); of the lab only.
    Retransmissions,
    /// Softirq's share of the server's CPU.
    SoftirqShare,
    /// The server program's share of its CPU, its system calls included.
    ProgramShare,
    /// Most connections of an uplink's server in any second of the window, without those in the
    /// accept queue.
    ConnectionsPeak,
    /// The same at 50 s after the crowd's start.
    #[serde(rename = "connections_50s")]
    Connections50s,
    /// The same at 200 s.
    #[serde(rename = "connections_200s")]
    Connections200s,
    /// Seconds from the crowd's start until its kernel dropped the first SYN; of the whole run if
    /// it dropped none.
    SynDropFreeS,
    /// Share of the SYNs sent that its kernel dropped.
    SynDropShare,
    /// Frames that its device's queue dropped.
    DeviceDrops,
    /// Bytes that its link sent, with headers and what was sent again, bytes/s.
    LinkThroughput,
    /// Packets that the bottleneck's queue dropped.
    Drops,
    /// Those, as a share of the packets that came to it.
    DropShare,
    /// SYNs and SYN/ACKs that it dropped.
    SynDrops,
    /// Share of the bottleneck's time that something was sent.
    Utilisation,
    /// Mean length of its queue, packets.
    QueuePackets,
    /// Share of the objects that took the initial retransmission timeout, or up to a sixth of it
    /// more, less the share that took up to a sixth less: the step that a lost SYN makes in the
    /// distribution.
    RtoStep,
    /// Mean time of objects of fewer than 10 packets, ms.
    ShortMean,
    /// Mean time of objects of 100 packets and more, ms.
    LongMean,
    /// Drops of objects' data packets 1 to 9.
    DropsBelow10,
    /// Drops of objects' data packets from the 10th on.
    DropsFrom10,
    /// What all bulk flows' receivers got, bytes/s.
    BulkRate,
}

impl Measure {
    /// The value; `None` where there was nothing to measure.
    pub(crate) fn of(self, cell: &Cell) -> Option<f64> {
        let crowd = &cell.crowd;
        let times = Some(crowd.response_ms).filter(|times| times.count > 0);
        let users = Some(crowd.user_ms).filter(|times| times.count > 0);
        match self {
            Self::Goodput => Some(cell.goodput_at_search_speed()),
            Self::Mean => times.map(|times| times.mean),
            Self::P50 => times.map(|times| times.p50),
            Self::P99 => times.map(|times| times.p99),
            Self::UserMean => users.map(|times| times.mean),
            Self::UserC2 => users.map(|times| times.c2),
            Self::FirstByteMean => {
                Some(crowd.first_byte_ms).filter(|times| times.count > 0).map(|times| times.mean)
            }
            Self::LargestMean => crowd.sizes.mean_of_largest_ms(LARGEST),
            Self::VeryLargestMean => crowd.sizes.mean_of_very_largest_ms(),
            Self::MeanTo1 => mean_of_class(cell, 0),
            Self::MeanTo2 => mean_of_class(cell, 1),
            Self::MeanTo5 => mean_of_class(cell, 2),
            Self::MeanTo50 => mean_of_class(cell, 3),
            Self::MeanAbove50 => mean_of_class(cell, 4),
            Self::SecondMeanMax => crowd.seconds.largest_mean_ms(),
            Self::SecondMeanP95 => crowd.seconds.mean_at_ms(0.95),
            Self::IncompleteShare => crowd.sizes.incomplete_share(),
            Self::IncompleteLargest => crowd.sizes.incomplete_share_of_largest(LARGEST),
            Self::ByteThroughput => Some(crowd.bytes_per_s),
            Self::ErrorShare => Some((1.0 - per_attempt(cell, crowd.goodput_per_s)?).max(0.0)),
            Self::Status2xxShare => share_of_replies(crowd, Some(crowd.statuses.successful)),
            Self::Status3xxShare => share_of_replies(crowd, Some(crowd.statuses.redirection)),
            Self::Status4xxShare => share_of_replies(crowd, Some(crowd.statuses.client_error)),
            Self::Status5xxShare => share_of_replies(crowd, Some(crowd.statuses.server_error)),
            Self::Non2xxShare => share_of_replies(crowd, crowd.statuses.non_2xx()),
            Self::SynsPerAttempt => Some(crowd.syns_per_attempt),
            Self::RepliesPerSyn => (crowd.syns_per_s > 0.0).then(|| crowd.goodput_per_s / crowd.syns_per_s),
            Self::SoftirqShare => Some(cell.server_cpu.softirq),
            Self::ProgramShare => Some(cell.server_cpu.user + cell.server_cpu.system),
            Self::OneSynShare => share_by_syns(&crowd.ended_by_syns, 0..1),
            Self::ThreeSynsShare => share_by_syns(&crowd.ended_by_syns, 2..usize::MAX),
            Self::SynDropsPerAttempt => per_attempt(cell, syn_drops_per_s(cell)?),
            Self::AckDropsPerAttempt => per_attempt(cell, ack_drops_per_s(cell)?),
            Self::AckShareOfDrops => {
                let acks = ack_drops_per_s(cell)?;
                Some(acks / (acks + syn_drops_per_s(cell)?))
            }
            Self::AckDropInflation => Some(guard_per_s(cell, counter::acks_full)? / ack_drops_per_s(cell)?),
            Self::TimeWaitPeak => cell.kernel.get(TIME_WAITS).map(|time_waits| *time_waits as f64),
            Self::EndsPeak => cell.kernel.get(ENDS).map(|ends| *ends as f64),
            Self::NoPortShare => (crowd.offered > 0).then(|| crowd.no_port as f64 / crowd.offered as f64),
            Self::Retransmissions => cell.kernel.get("Tcp.RetransSegs").map(|segments| *segments as f64),
            Self::OverflowsPerAttempt => {
                let overflows = cell.kernel.get("TcpExt.ListenOverflows").copied().unwrap_or(0);
                per_attempt(cell, overflows as f64 / crowd.window_s)
            }
            _ => match cell.uplink.as_deref() {
                Some(uplink) => self.of_uplink(uplink, crowd),
                None => self.of_link(cell.link.as_deref()?),
            },
        }
    }

    fn of_uplink(self, uplink: &UplinkSummary, crowd: &CrowdSummary) -> Option<f64> {
        let series = &uplink.series;
        match self {
            Self::ConnectionsPeak => series.most_connections().map(f64::from),
            Self::Connections50s => series.connections_at(50).map(f64::from),
            Self::Connections200s => series.connections_at(200).map(f64::from),
            Self::SynDropFreeS => {
                let whole = series.syns_dropped.len() as u32;
                Some(series.first_syn_drop().unwrap_or(whole).into())
            }
            Self::SynDropShare => {
                let of_window = series.syns_dropped.iter().skip(series.warmup_s as usize);
                let sent = crowd.syns_per_s * crowd.window_s;
                (sent > 0.0).then(|| of_window.copied().map(f64::from).sum::<f64>() / sent)
            }
            Self::DeviceDrops => Some(uplink.dropped as f64),
            Self::LinkThroughput => (crowd.window_s > 0.0).then(|| uplink.sent_bytes as f64 / crowd.window_s),
            Self::Utilisation => Some(uplink.utilisation),
            _ => None,
        }
    }

    fn of_link(self, link: &BottleneckSummary) -> Option<f64> {
        let rto_ms = link.initial_rto_ms;
        match self {
            Self::Drops => Some(link.drops as f64),
            Self::DropShare => link.drop_share(),
            Self::SynDrops => Some(link.opening_drops as f64),
            Self::Utilisation => Some(link.utilisation),
            Self::QueuePackets => Some(link.queue_pkts),
            Self::RtoStep => {
                let after = link.share_between(rto_ms, rto_ms * 7.0 / 6.0)?;
                Some(after - link.share_between(rto_ms * 5.0 / 6.0, rto_ms)?)
            }
            Self::ShortMean => link.mean_between(1, 10),
            Self::LongMean => link.mean_between(100, u32::MAX),
            Self::DropsBelow10 => link.drops_between(1, 10).map(|drops| drops as f64),
            Self::DropsFrom10 => link.drops_between(10, u32::MAX).map(|drops| drops as f64),
            Self::BulkRate => Some(link.bulk_bytes_per_s.iter().sum()),
            _ => None,
        }
    }

    /// Whether it is of a server's uplink alone.
    pub(crate) fn is_of_uplink(self) -> bool {
        matches!(
            self,
            Self::ConnectionsPeak
                | Self::Connections50s
                | Self::Connections200s
                | Self::SynDropFreeS
                | Self::SynDropShare
                | Self::DeviceDrops
                | Self::LinkThroughput
        )
    }

    /// Whether it is of a bottleneck, and of no server.
    pub(crate) fn is_of_link(self) -> bool {
        matches!(
            self,
            Self::Drops
                | Self::DropShare
                | Self::SynDrops
                | Self::Utilisation
                | Self::QueuePackets
                | Self::RtoStep
                | Self::ShortMean
                | Self::LongMean
                | Self::DropsBelow10
                | Self::DropsFrom10
                | Self::BulkRate
        )
    }

    /// Of the value.
    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::Goodput | Self::BulkRate | Self::ByteThroughput | Self::LinkThroughput => Unit::PerSecond,
            Self::Mean | Self::P50 | Self::P99 | Self::ShortMean | Self::LongMean => Unit::Milliseconds,
            Self::UserMean
            | Self::FirstByteMean
            | Self::LargestMean
            | Self::VeryLargestMean
            | Self::MeanTo1
            | Self::MeanTo2
            | Self::MeanTo5
            | Self::MeanTo50
            | Self::MeanAbove50
            | Self::SecondMeanMax
            | Self::SecondMeanP95 => Unit::Milliseconds,
            Self::IncompleteShare | Self::IncompleteLargest => Unit::Share,
            Self::Drops | Self::SynDrops | Self::QueuePackets | Self::DropsBelow10 | Self::DropsFrom10 => {
                Unit::Count
            }
            Self::ConnectionsPeak
            | Self::Connections50s
            | Self::Connections200s
            | Self::SynDropFreeS
            | Self::Retransmissions
            | Self::TimeWaitPeak
            | Self::EndsPeak
            | Self::DeviceDrops => Unit::Count,
            Self::NoPortShare => Unit::Share,
            Self::SynDropShare => Unit::Share,
            Self::DropShare | Self::Utilisation | Self::RtoStep => Unit::Share,
            Self::ErrorShare
            | Self::Status2xxShare
            | Self::Status3xxShare
            | Self::Status4xxShare
            | Self::Status5xxShare
            | Self::Non2xxShare
            | Self::OneSynShare
            | Self::ThreeSynsShare
            | Self::AckShareOfDrops
            | Self::SoftirqShare
            | Self::ProgramShare => Unit::Share,
            Self::AckDropInflation | Self::RepliesPerSyn | Self::UserC2 => Unit::Ratio,
            Self::SynsPerAttempt
            | Self::SynDropsPerAttempt
            | Self::AckDropsPerAttempt
            | Self::OverflowsPerAttempt => Unit::PerAttempt,
        }
    }

    /// Whether it comes from a guard's counters.
    pub(crate) fn needs_guard(self) -> bool {
        matches!(
            self,
            Self::SynDropsPerAttempt
                | Self::AckDropsPerAttempt
                | Self::AckShareOfDrops
                | Self::AckDropInflation
        )
    }
}

/// In words.
impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Goodput => "goodput",
            Self::Mean => "mean response time",
            Self::P50 => "median response time",
            Self::P99 => "99th percentile of response time",
            Self::UserMean => "mean response time from the first try",
            Self::UserC2 => "squared coefficient of variation of response times",
            Self::FirstByteMean => "mean time to the first byte",
            Self::LargestMean => "mean response time of the largest 1%",
            Self::VeryLargestMean => "mean response time of the largest",
            Self::MeanTo1 => "mean response time up to 1 KB",
            Self::MeanTo2 => "mean response time from 1 to 2 KB",
            Self::MeanTo5 => "mean response time from 2 to 5 KB",
            Self::MeanTo50 => "mean response time from 5 to 50 KB",
            Self::MeanAbove50 => "mean response time above 50 KB",
            Self::SecondMeanMax => "largest one-second mean",
            Self::SecondMeanP95 => "95th percentile of one-second means",
            Self::IncompleteShare => "share of requests never completed",
            Self::IncompleteLargest => "share of the largest 1% never completed",
            Self::ByteThroughput => "bytes of replies",
            Self::ErrorShare => "share without a reply",
            Self::Status2xxShare => "share of replies with status 2xx",
            Self::Status3xxShare => "share of replies with status 3xx",
            Self::Status4xxShare => "share of replies with status 4xx",
            Self::Status5xxShare => "share of replies with status 5xx",
            Self::Non2xxShare => "share of replies with a status other than 2xx",
            Self::SynsPerAttempt => "SYNs per attempt",
            Self::RepliesPerSyn => "replies per SYN",
            Self::OneSynShare => "share that ended after one SYN",
            Self::ThreeSynsShare => "share that ended after three SYNs or more",
            Self::SynDropsPerAttempt => "SYNs dropped per attempt",
            Self::AckDropsPerAttempt => "ACKs dropped per attempt",
            Self::AckShareOfDrops => "share of the ACK stage in what is dropped",
            Self::AckDropInflation => "drops at the ACK stage over ACKs among them",
            Self::OverflowsPerAttempt => "ListenOverflows per attempt",
            Self::TimeWaitPeak => "most connections in TIME_WAIT at the server",
            Self::EndsPeak => "most ends of connections at the server",
            Self::NoPortShare => "share without a port",
            Self::Retransmissions => "segments sent again",
            Self::SoftirqShare => "softirq's share of the CPU",
            Self::ProgramShare => "the server program's share of the CPU",
            Self::ConnectionsPeak => "most connections",
            Self::Connections50s => "connections after 50 s",
            Self::Connections200s => "connections after 200 s",
            Self::SynDropFreeS => "seconds without a SYN drop",
            Self::SynDropShare => "share of SYNs dropped",
            Self::DeviceDrops => "drops of the device's queue",
            Self::LinkThroughput => "bytes that the link sent",
            Self::Drops => "drops",
            Self::DropShare => "share of packets dropped",
            Self::SynDrops => "SYNs and SYN/ACKs dropped",
            Self::Utilisation => "use of the link",
            Self::QueuePackets => "mean queue",
            Self::RtoStep => "step at the initial timeout",
            Self::ShortMean => "mean time of objects below 10 packets",
            Self::LongMean => "mean time of objects from 100 packets on",
            Self::DropsBelow10 => "drops of data packets 1 to 9",
            Self::DropsFrom10 => "drops of data packets from the 10th on",
            Self::BulkRate => "bytes of bulk flows",
        })
    }
}

/// `None` where no reply is complete, and in results of a version that did not count statuses.
fn share_of_replies(crowd: &CrowdSummary, count: Option<u64>) -> Option<f64> {
    let replies = crowd.statuses.replies().filter(|replies| *replies > 0)?;
    Some(count? as f64 / replies as f64)
}

/// Of the replies, by size, those that `[SH06]` calls the largest.
const LARGEST: f64 = 0.01;

/// By the place of the class among those of [`results::BySize`].
fn mean_of_class(cell: &Cell, class: usize) -> Option<f64> {
    cell.crowd.sizes.classes.get(class)?.mean_ms()
}

fn per_attempt(cell: &Cell, per_s: f64) -> Option<f64> {
    let offered = cell.crowd.offered_per_s;
    (offered > 0.0).then(|| per_s / offered)
}

fn guard_per_s(cell: &Cell, name: &str) -> Option<f64> {
    cell.guard_per_s.get(name).copied()
}

/// What the guard refuses, and what the kernel drops of that which reserv lets pass. A guard that
/// refuses nothing leaves each SYN that finds the queue full to the kernel, which drops it. A
/// simulated kernel says how many it dropped: that of 2.4 drops for other reasons, too. A guard
/// that refuses some and lets others pass to a full queue (police) is not for this measure.
fn syn_drops_per_s(cell: &Cell) -> Option<f64> {
    let late = guard_per_s(cell, counter::late).unwrap_or(0.0);
    let refused = guard_per_s(cell, counter::dropped)? + guard_per_s(cell, counter::reset)? + late;
    if refused > 0.0 {
        return Some(refused);
    }
    guard_per_s(cell, KERNEL_DROPPED).or_else(|| guard_per_s(cell, counter::accept_full))
}

/// A client whose ACK is dropped goes on with data, which finds the queue full as well: that is no
/// other handshake.
fn ack_drops_per_s(cell: &Cell) -> Option<f64> {
    Some(guard_per_s(cell, counter::acks_full)? - guard_per_s(cell, counter::acks_implied)?)
}

/// `places` count from 0, which is one SYN.
fn share_by_syns(counts: &[u64], places: std::ops::Range<usize>) -> Option<f64> {
    let all: u64 = counts.iter().sum();
    let within =
        counts.iter().enumerate().filter(|(place, _)| places.contains(place)).map(|(_, count)| count);
    (all > 0).then(|| within.sum::<u64>() as f64 / all as f64)
}
