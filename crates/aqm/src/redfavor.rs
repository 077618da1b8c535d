//! REDFavor: RED that never drops a packet which opens a connection while another can be pushed
//! out.

use kernel::RedfavorAction;
use units::Nanos;

use crate::arithmetic::{self, Favor, RandomNumbers};
use crate::config::{ConfigError, RedFavorConfig};
use crate::fifo::Fifo;
use crate::{Amount, Aqm, DropReason, Packet, ProtectedSet};

/// REDFavor: protected packets go ahead of standard ones, and where RED or a full queue would drop
/// one the last standard packet is pushed out for it.
///
/// Source: `[RF]` Algorithm 1. The guard is not of the paper, which leaves floods of SYNs to
/// others: it bounds what protection may cost standard packets (see [`crate::Guard`]). Without one,
/// this is Algorithm 1.
#[derive(Debug, Clone)]
pub struct RedFavor<P> {
    limit: Amount,
    protect: ProtectedSet,
    protected: Fifo<P>,
    standard: Fifo<P>,
    red: arithmetic::Red,
    favor: Favor,
    random: RandomNumbers,
}

impl<P: Packet> RedFavor<P> {
    /// An empty queue, which has long been idle.
    pub fn new(config: &RedFavorConfig, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        Ok(Self {
            limit: config.red.limit,
            protect: config.protect,
            protected: Fifo::default(),
            standard: Fifo::default(),
            red: arithmetic::Red::new(&config.red),
            favor: Favor::new(config.guard, config.red.mean_packet_bytes),
            random: RandomNumbers::new(seed),
        })
    }

    /// The average length as of the last arrival, in packets, or bytes if the thresholds are.
    pub fn average(&self) -> f64 {
        self.red.average()
    }

    /// Protected packets that wait.
    pub fn protected_qlen_pkts(&self) -> u32 {
        self.protected.qlen_pkts()
    }

    fn has_room(&self, bytes: u32) -> bool {
        self.limit.has_room(self.qlen_pkts(), self.qlen_bytes(), bytes)
    }

    /// RED's answer to an arrival.
    fn early(&mut self, bytes: u32, now: Nanos, random: u32) -> Option<DropReason> {
        let qlen = self.red.qlen(self.qlen_pkts(), self.qlen_bytes());
        self.red.update(qlen, now);
        self.red.decide(qlen, bytes, random)
    }

    fn enqueue_standard(
        &mut self,
        early: Option<DropReason>,
        packet: P,
        dropped: &mut impl FnMut(P, DropReason),
    ) {
        if let Some(reason) = early {
            dropped(packet, reason);
        } else if self.has_room(packet.bytes()) {
            self.standard.push(packet);
        } else {
            dropped(packet, DropReason::Tail);
        }
    }

    fn enqueue_protected(
        &mut self,
        mut early: Option<DropReason>,
        packet: P,
        dropped: &mut impl FnMut(P, DropReason),
    ) {
        let why = early.unwrap_or(DropReason::Tail);
        // Of bytes there may be too few even so; of packets, this is a queue of protected ones
        // only.
        if !self.limit.has_room(self.protected.qlen_pkts(), self.protected.qlen_bytes(), packet.bytes()) {
            return dropped(packet, why);
        }
        loop {
            let needs_room = early.take().is_some() || !self.has_room(packet.bytes());
            let last_standard_bytes = self.standard.last().map_or(0, P::bytes);
            match self.favor.make_room(needs_room, last_standard_bytes) {
                RedfavorAction::Take => return self.protected.push(packet),
                RedfavorAction::PushOut => {
                    let last =
                        self.standard.pop_last().expect("there is a last one, of which the length was told");
                    dropped(last, DropReason::PushedOut);
                }
                RedfavorAction::Drop => return dropped(packet, why),
                RedfavorAction::DropShare => return dropped(packet, DropReason::ProtectedShare),
            }
        }
    }
}

impl<P: Packet> Aqm for RedFavor<P> {
    type Packet = P;

    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        let random = self.random.next_u32();
        if self.protect.contains(packet.kind()) {
            let qlen = self.red.qlen(self.protected.qlen_pkts(), self.protected.qlen_bytes());
            if !self.favor.has_place(qlen, self.red.size(packet.bytes())) {
                return dropped(packet, DropReason::ProtectedShare);
            }
            let early = self.early(packet.bytes(), now, random);
            self.enqueue_protected(early, packet, dropped);
        } else {
            let early = self.early(packet.bytes(), now, random);
            self.enqueue_standard(early, packet, dropped);
        }
    }

    fn dequeue(&mut self, now: Nanos, _dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        if self.is_empty() {
            return None;
        }
        let protected_bytes = self.protected.first().map_or(0, P::bytes);
        let standard_bytes = self.standard.first().map_or(0, P::bytes);
        let packet = if self.favor.sends_protected(protected_bytes, standard_bytes) {
            self.protected.pop()
        } else {
            self.standard.pop()
        };
        if self.is_empty() {
            self.red.left_empty(now);
        }
        packet
    }

    fn qlen_pkts(&self) -> u32 {
        self.protected.qlen_pkts() + self.standard.qlen_pkts()
    }

    fn qlen_bytes(&self) -> u64 {
        self.protected.qlen_bytes() + self.standard.qlen_bytes()
    }
}
