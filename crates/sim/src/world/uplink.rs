//! The server's uplink: the device's queue discipline, the card's short queue, and a link of some rate.
//!
//! ```text
//!   kernel -- discipline, or a band each --> card --> link --> wire
//! ```
//!
//! What the discipline drops is lost to TCP, as a segment that the network lost (so in Linux 2.2). Differs: today's kernel tells TCP, which
//! shrinks its window and sends the segment later. A segment comes to the queue when the CPU takes up the work that sends it, some microseconds early.

use std::collections::VecDeque;

use aqm::{Aqm, PacketKind, Queue, Rate};
use units::Nanos;

use super::packets::Packet;

/// An uplink.
#[derive(Debug, Clone, PartialEq)]
pub struct UplinkConfig {
    /// Of the link.
    pub rate: Rate,
    /// Bytes that the link sends besides each frame without FCS: 24 for the FCS, the preamble and the gap of Ethernet.
    pub overhead_bytes: u32,
    /// What waits for the card.
    pub device: Device,
    /// Frames that the card takes beside the one that it sends; at least 1.
    pub card: u32,
}

/// The queue of a device.
#[derive(Debug, Clone, PartialEq)]
pub enum Device {
    /// One discipline.
    One(aqm::Config),
    /// As `tc-prio`: so many bands, each with a discipline like this of its own. A band is served while those before it are empty.
    Prio {
        /// How many.
        bands: u8,
        /// Of each.
        of_each: aqm::Config,
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
            Device::Prio { bands, of_each } => (0..*bands)
                .map(|band| Queue::new(of_each, seed.wrapping_add(band.into())))
                .collect::<Result<_, _>>()?,
        };
        let card = VecDeque::new();
        Ok(Self {
            config,
            queues,
            card,
            sending: None,
            remainder: 0,
            counts: UplinkCounts::default(),
            dropped: Vec::new(),
        })
    }

    /// The kernel sends a packet of so many bytes. Gives when the link is done with one, if it has begun one with this.
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

    /// Frames that wait anywhere, and the one that is being sent; in debug builds, what came was sent, dropped or is among them.
    pub(super) fn len(&self) -> usize {
        debug_assert!(self.dropped.is_empty(), "the kernel is told of drops at once");
        let len = self.qlen_pkts() as usize + self.card.len() + usize::from(self.sending.is_some());
        let UplinkCounts { frames, sent, dropped, .. } = self.counts;
        debug_assert_eq!(frames, sent + dropped + len as u64, "of the uplink");
        len
    }

    fn next(&mut self, now: Nanos) -> Option<Frame> {
        let Self { queues, counts, dropped, .. } = self;
        queues.iter_mut().find_map(|queue| {
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
        let frame = self.card.pop_front()?;
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

impl UplinkCounts {
    fn drop(&mut self, frame: &Frame) {
        self.dropped += 1;
        self.dropped_opening += u64::from(frame.kind != PacketKind::Other);
        self.dropped_data += u64::from(frame.packet.payload_bytes() > 0);
    }
}
