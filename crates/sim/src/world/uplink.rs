//! The server's uplink: the device's queue discipline, the card's short queue, and a link of some
//! rate.
//!
//! ```text
//!   kernel -- discipline, or a band each --> card --> link --> wire
//! ```
//!
//! What the discipline drops is lost to TCP, as a segment that the network lost (so in Linux 2.2).
//! Differs: today's kernel tells TCP, which shrinks its window and sends the segment later. A
//! segment comes to the queue when the CPU takes up the work that sends it, some microseconds
//! early.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use aqm::{Aqm, PacketKind, Queue, Rate};
use units::Nanos;

use super::packets::Packet;

/// An uplink.
#[derive(Debug, Clone, PartialEq)]
pub struct UplinkConfig {
    /// Of the link.
    pub rate: Rate,
    /// Bytes that the link sends besides each frame without FCS: 24 for the FCS, the preamble and
    /// the gap of Ethernet.
    pub overhead_bytes: u32,
    /// What waits for the card.
    pub device: Device,
    /// Frames that the card takes beside the one that it sends.
    ///
    /// 0 behind a shaper: `tbf_dequeue()` lets a packet go when there are tokens for it.
    pub card: u32,
}

/// The queue of a device.
#[derive(Debug, Clone, PartialEq)]
pub enum Device {
    /// One discipline.
    One(aqm::Config),
    /// As `tc-prio`: so many bands, each with a discipline like this of its own. A band is served
    /// while those before it are empty, but for a floor.
    Prio {
        /// How many.
        bands: u8,
        /// Of each.
        of_each: aqm::Config,
        /// Of the rate, what the last band is sure of; and so are all but the first together, as
        /// below `tidegate uplink`. None where it is 0.
        floor: f64,
    },
}

/// What went through since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UplinkCounts {
    /// Frames that TCP sent down.
    pub frames: u64,
    /// Frames that the link has sent, and their bytes without the link's overhead.
    pub sent: u64,
    /// See `sent`.
    pub sent_bytes: u64,
    /// Bytes of payload in them, what was sent again included.
    pub sent_payload: u64,
    /// Frames that the device's queue dropped.
    pub dropped: u64,
    /// Of these, SYN/ACKs.
    pub dropped_opening: u64,
    /// Of these, frames with payload.
    pub dropped_data: u64,
    /// How long the link was sending.
    pub busy: Nanos,
}

/// A frame that waits.
#[derive(Debug)]
pub(super) struct Frame {
    packet: Box<Packet>,
    bytes: u32,
    flow: u32,
    kind: PacketKind,
}

impl aqm::Packet for Frame {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow(&self) -> u32 {
        self.flow
    }

    fn kind(&self) -> PacketKind {
        self.kind
    }

    fn band(&self) -> u8 {
        self.packet.mark.band
    }

    fn left(&self) -> Option<u64> {
        self.packet.mark.left
    }

    fn attained(&self) -> u64 {
        self.packet.mark.attained
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Uplink {
    config: UplinkConfig,
    /// One, or one for each band.
    queues: Vec<Queue<Frame>>,
    /// Of the last band, and of all but the first.
    floor: Option<[Bucket; 2]>,
    card: VecDeque<Frame>,
    /// Is being sent, until then.
    sending: Option<(Nanos, Frame)>,
    /// Of the last transmission, what is less than a nanosecond: bits over the rate.
    remainder: u128,
    counts: UplinkCounts,
    /// Until they are taken.
    dropped: Vec<Frame>,
}

const NANOS_PER_SECOND: u128 = 1_000_000_000;

impl Uplink {
    pub(super) fn new(config: UplinkConfig, seed: u64) -> Result<Self, aqm::ConfigError> {
        let queues = match &config.device {
            Device::One(discipline) => vec![Queue::new(discipline, seed)?],
            Device::Prio { bands, of_each, .. } => (0..*bands)
                .map(|band| Queue::new(of_each, seed.wrapping_add(band.into())))
                .collect::<Result<_, _>>()?,
        };
        let floor = match config.device {
            Device::Prio { floor, .. } if floor > 0.0 => {
                Some([Bucket::new(config.rate, floor), Bucket::new(config.rate, floor)])
            }
            _ => None,
        };
        let card = VecDeque::new();
        Ok(Self {
            config,
            queues,
            floor,
            card,
            sending: None,
            remainder: 0,
            counts: UplinkCounts::default(),
            dropped: Vec::new(),
        })
    }

    /// The kernel sends a packet of so many bytes. Gives when the link is done with one, if it has
    /// begun one with this.
    pub(super) fn put(
        &mut self,
        packet: Box<Packet>,
        (bytes, flow): (u32, u32),
        now: Nanos,
    ) -> Option<Nanos> {
        let kind = PacketKind::of_tcp(packet.segment().flags.0);
        let last = self.queues.len() - 1;
        let band = usize::from(packet.mark.band).min(last);
        let Self { queues, counts, dropped, .. } = self;
        counts.frames += 1;
        queues[band].enqueue(now, Frame { packet, bytes, flow, kind }, &mut |frame, _| {
            counts.drop(&frame);
            dropped.push(frame);
        });
        self.fill_card(now);
        if self.sending.is_some() { None } else { self.begin(now) }
    }

    /// What the link is done with now, and when it is with the next.
    pub(super) fn done(&mut self, now: Nanos) -> (Box<Packet>, Option<Nanos>) {
        let (_, frame) = self.sending.take().expect("the link was sending");
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(frame.bytes);
        self.counts.sent_payload += frame.packet.payload_bytes();
        self.fill_card(now);
        let next = self.begin(now);
        self.fill_card(now);
        (frame.packet, next)
    }

    /// The next packet that the device's queue has dropped.
    pub(super) fn take_dropped(&mut self) -> Option<Box<Packet>> {
        self.dropped.pop().map(|frame| frame.packet)
    }

    /// What was counted.
    pub(super) fn counts(&self) -> UplinkCounts {
        self.counts
    }

    /// Frames that wait in the device's queue.
    pub(super) fn qlen_pkts(&self) -> u32 {
        self.queues.iter().map(Aqm::qlen_pkts).sum()
    }

    /// Frames that wait anywhere, and the one that is being sent; in debug builds, what came was
    /// sent, dropped or is among them.
    pub(super) fn len(&self) -> usize {
        debug_assert!(self.dropped.is_empty(), "the kernel is told of drops at once");
        let len = self.qlen_pkts() as usize + self.card.len() + usize::from(self.sending.is_some());
        let UplinkCounts { frames, sent, dropped, .. } = self.counts;
        debug_assert_eq!(frames, sent + dropped + len as u64, "of the uplink");
        len
    }

    /// A class of HTB that has tokens of its own goes before all that borrow, the last band before
    /// the others.
    fn next(&mut self, now: Nanos) -> Option<Frame> {
        let last = self.queues.len() - 1;
        let (of_last, of_lower) = match &self.floor {
            Some([last, lower]) => (last.has_tokens(now), lower.has_tokens(now)),
            None => (false, false),
        };
        if of_last && let Some(frame) = self.first_of(last..=last, now) {
            for bucket in self.floor.iter_mut().flatten() {
                bucket.take(frame.bytes, now);
            }
            return Some(frame);
        }
        if of_lower && let Some(frame) = self.first_of(1..=last, now) {
            if let Some([_, lower]) = &mut self.floor {
                lower.take(frame.bytes, now);
            }
            return Some(frame);
        }
        self.first_of(0..=last, now)
    }

    fn first_of(&mut self, bands: RangeInclusive<usize>, now: Nanos) -> Option<Frame> {
        let Self { queues, counts, dropped, .. } = self;
        queues[bands].iter_mut().find_map(|queue| {
            queue.dequeue(now, &mut |frame, _| {
                counts.drop(&frame);
                dropped.push(frame);
            })
        })
    }

    fn fill_card(&mut self, now: Nanos) {
        while self.card.len() < self.config.card as usize {
            let Some(frame) = self.next(now) else { return };
            self.card.push_back(frame);
        }
    }

    fn begin(&mut self, now: Nanos) -> Option<Nanos> {
        // A card that takes none ahead asks the device for each.
        let frame = self.card.pop_front().or_else(|| self.next(now))?;
        let bits = 8 * u128::from(frame.bytes + self.config.overhead_bytes);
        let rate = u128::from(self.config.rate.bits_per_s());
        let numerator = bits * NANOS_PER_SECOND + self.remainder;
        self.remainder = numerator % rate;
        let takes = Nanos((numerator / rate) as u64);
        self.counts.busy += takes;
        self.sending = Some((now + takes, frame));
        Some(now + takes)
    }
}

/// Tokens for a share of a link (`htb_accnt_tokens()`, Linux 6.18 `net/sched/sch_htb.c`).
#[derive(Debug)]
struct Bucket {
    bits_per_s: f64,
    /// It has some from then on.
    at: Nanos,
}

impl Bucket {
    /// What it holds at most, bytes: tc's for a low rate.
    const BURST: u64 = 1600;

    fn new(rate: Rate, share: f64) -> Self {
        Self { bits_per_s: rate.bits_per_s() as f64 * share, at: Nanos::ZERO }
    }

    fn has_tokens(&self, now: Nanos) -> bool {
        self.at <= now
    }

    fn take(&mut self, bytes: u32, now: Nanos) {
        let time = |bytes: u64| Nanos((bytes as f64 * 8e9 / self.bits_per_s) as u64);
        let full = Nanos(now.0.saturating_sub(time(Self::BURST).0));
        self.at = self.at.max(full) + time(bytes.into());
    }
}

impl UplinkCounts {
    fn drop(&mut self, frame: &Frame) {
        self.dropped += 1;
        self.dropped_opening += u64::from(frame.kind != PacketKind::Other);
        self.dropped_data += u64::from(frame.packet.payload_bytes() > 0);
    }
}
