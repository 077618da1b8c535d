//! Priority bands.

use std::collections::HashMap;

use kernel::{Cutoffs, Response};
use units::Nanos;

use crate::config::{BandsConfig, ConfigError};
use crate::fifo::Fifo;
use crate::{Amount, Aqm, DropReason, Packet};

/// Priority bands: band 0 is served until it is empty, then band 1, and so on; within a band first
/// in, first out.
///
/// Packets of a band that there is not go to the last one. All bands share one limit. When that is
/// reached, a packet pushes out the last one of the last band, if that is behind its own
/// ([`BandsConfig::push_out`]), and is dropped itself otherwise.
///
/// For SRPT a band is a range of bytes that a response still has to send (`[SH06]` section 3.1).
/// With [`BandsConfig::cutoffs`] a packet's band is that of its [`Packet::left`], or of
/// [`Packet::attained`] where that is not known, by `kernel/bands.h`, as at an uplink: while
/// packets of its flow wait in a later band, it goes there, too.
#[derive(Debug, Clone)]
pub struct Bands<P> {
    limit: Amount,
    push_out: bool,
    bands: Vec<Fifo<P>>,
    cutoffs: Option<Cutoffs>,
    /// With cutoffs: flows whose packets wait, by the hash that these say.
    flows: HashMap<u32, Flow>,
    qlen_pkts: u32,
    qlen_bytes: u64,
}

/// A flow with packets that wait.
#[derive(Debug, Clone)]
struct Flow {
    /// Of the last packet that came.
    band: u8,
    qlen_pkts: u32,
}

impl<P: Packet> Bands<P> {
    /// Empty bands.
    pub fn new(config: &BandsConfig) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            limit: config.limit,
            push_out: config.push_out,
            bands: (0..config.bands).map(|_| Fifo::default()).collect(),
            cutoffs: config.cutoffs,
            flows: HashMap::new(),
            qlen_pkts: 0,
            qlen_bytes: 0,
        })
    }

    fn band(&self, packet: &P) -> usize {
        let band = match &self.cutoffs {
            None => u32::from(packet.band()),
            Some(cutoffs) => {
                let left = packet.left().unwrap_or_else(|| packet.attained());
                let last = self.flows.get(&packet.flow());
                let mut of_flow = Response { band: last.map_or(0, |flow| flow.band), ..Response::default() };
                of_flow.next_band(cutoffs, last.is_some(), left)
            }
        };
        (band as usize).min(self.bands.len() - 1)
    }

    /// The last packet behind that band, if all behind it are enough to make room.
    fn push_out(&mut self, band: usize, bytes: u32) -> Option<P> {
        let before = &self.bands[..=band];
        let pkts = before.iter().map(Fifo::qlen_pkts).sum();
        if !self.push_out || !self.limit.has_room(pkts, before.iter().map(Fifo::qlen_bytes).sum(), bytes) {
            return None;
        }
        let packet = self.bands[band + 1..].iter_mut().rev().find_map(Fifo::pop_last)?;
        self.forget(&packet);
        Some(packet)
    }

    fn forget(&mut self, packet: &P) {
        self.qlen_pkts -= 1;
        self.qlen_bytes -= u64::from(packet.bytes());
        if self.cutoffs.is_some()
            && let Some(flow) = self.flows.get_mut(&packet.flow())
        {
            flow.qlen_pkts -= 1;
            if flow.qlen_pkts == 0 {
                self.flows.remove(&packet.flow());
            }
        }
    }
}

impl<P: Packet> Aqm for Bands<P> {
    type Packet = P;

    fn enqueue(&mut self, _now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        let (band, bytes) = (self.band(&packet), packet.bytes());
        while !self.limit.has_room(self.qlen_pkts, self.qlen_bytes, bytes) {
            match self.push_out(band, bytes) {
                Some(last) => dropped(last, DropReason::PushedOut),
                None => return dropped(packet, DropReason::Tail),
            }
        }
        self.qlen_pkts += 1;
        self.qlen_bytes += u64::from(bytes);
        if self.cutoffs.is_some() {
            let flow = self.flows.entry(packet.flow()).or_insert(Flow { band: 0, qlen_pkts: 0 });
            flow.band = band as u8;
            flow.qlen_pkts += 1;
        }
        self.bands[band].push(packet);
    }

    fn dequeue(&mut self, _now: Nanos, _dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        let packet = self.bands.iter_mut().find_map(Fifo::pop)?;
        self.forget(&packet);
        Some(packet)
    }

    fn qlen_pkts(&self) -> u32 {
        self.qlen_pkts
    }

    fn qlen_bytes(&self) -> u64 {
        self.qlen_bytes
    }
}
