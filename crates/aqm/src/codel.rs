//! Controlled Delay.

use units::Nanos;

use crate::config::{CodelConfig, ConfigError};
use crate::fifo::Fifo;
use crate::{Amount, Aqm, DropReason, Packet};

/// After a pause shorter than so many intervals dropping goes on about as fast as before it (RFC
/// 8289 section 5.5).
const RECENT_INTERVALS: u64 = 16;

/// Controlled Delay: packets are dropped from the head once all of them have waited longer than a
/// target for an interval, and then the faster the longer that lasts.
///
/// Source: RFC 8289. The packets that wait are bounded, too: what finds it full is dropped as
/// [`DropReason::Tail`].
#[derive(Debug, Clone)]
pub struct Codel<P> {
    limit: Amount,
    params: Params,
    fifo: Fifo<Queued<P>>,
    control: Control,
}

impl<P: Packet> Codel<P> {
    /// An empty queue.
    pub fn new(config: &CodelConfig) -> Result<Self, ConfigError> {
        config.check("codel")?;
        Ok(Self {
            limit: config.limit,
            params: Params::new(config),
            fifo: Fifo::default(),
            control: Control::NEW,
        })
    }
}

impl<P: Packet> Aqm for Codel<P> {
    type Packet = P;

    fn enqueue(&mut self, now: Nanos, packet: P, dropped: &mut impl FnMut(P, DropReason)) {
        if self.limit.has_room(self.fifo.qlen_pkts(), self.fifo.qlen_bytes(), packet.bytes()) {
            self.fifo.push(Queued { packet, since: now });
        } else {
            dropped(packet, DropReason::Tail);
        }
    }

    fn dequeue(&mut self, now: Nanos, dropped: &mut impl FnMut(P, DropReason)) -> Option<P> {
        self.control.dequeue(&self.params, now, &mut self.fifo, dropped)
    }

    fn qlen_pkts(&self) -> u32 {
        self.fifo.qlen_pkts()
    }

    fn qlen_bytes(&self) -> u64 {
        self.fifo.qlen_bytes()
    }
}

/// A packet that waits.
#[derive(Debug, Clone)]
pub(crate) struct Queued<P> {
    pub(crate) packet: P,
    /// When it came.
    pub(crate) since: Nanos,
}

impl<P: Packet> Packet for Queued<P> {
    fn bytes(&self) -> u32 {
        self.packet.bytes()
    }

    fn flow(&self) -> u32 {
        self.packet.flow()
    }
}

/// What CoDel takes packets from.
pub(crate) trait Source<P> {
    fn pop(&mut self) -> Option<Queued<P>>;
    fn qlen_bytes(&self) -> u64;
}

impl<P: Packet> Source<P> for Fifo<Queued<P>> {
    fn pop(&mut self) -> Option<Queued<P>> {
        Fifo::pop(self)
    }

    fn qlen_bytes(&self) -> u64 {
        Fifo::qlen_bytes(self)
    }
}

/// Fixed for a queue.
#[derive(Debug, Clone)]
pub(crate) struct Params {
    target: Nanos,
    interval: Nanos,
    /// What is left when there is no queue to speak of (`MAXPACKET`), bytes.
    mtu: u64,
}

impl Params {
    pub(crate) fn new(config: &CodelConfig) -> Self {
        Self { target: config.target, interval: config.interval, mtu: config.mtu_bytes.into() }
    }

    /// When to drop the next packet after one that was dropped at `at`, the `count`th.
    fn next_drop(&self, at: Nanos, count: u32) -> Nanos {
        at + Nanos((self.interval.0 as f64 / f64::from(count).sqrt()) as u64)
    }
}

/// The state of CoDel. Names are those of RFC 8289 section 5.
#[derive(Debug, Clone)]
pub(crate) struct Control {
    /// When all will have waited too long for an interval, if that goes on.
    first_above_time: Option<Nanos>,
    drop_next: Nanos,
    /// Drops since dropping began.
    pub(crate) count: u32,
    last_count: u32,
    is_dropping: bool,
}

impl Control {
    /// Of a queue that nothing was in.
    pub(crate) const NEW: Self =
        Self { first_above_time: None, drop_next: Nanos::ZERO, count: 0, last_count: 0, is_dropping: false };

    /// `dodequeue()`: a packet, and whether it may be dropped.
    fn pop<P: Packet>(
        &mut self,
        params: &Params,
        now: Nanos,
        source: &mut impl Source<P>,
    ) -> Option<(P, bool)> {
        let Some(Queued { packet, since }) = source.pop() else {
            self.first_above_time = None;
            return None;
        };
        if now.since(since) < params.target || source.qlen_bytes() <= params.mtu {
            self.first_above_time = None;
            return Some((packet, false));
        }
        let above_time = *self.first_above_time.get_or_insert(now + params.interval);
        Some((packet, now >= above_time))
    }

    /// `dequeue()`.
    pub(crate) fn dequeue<P: Packet>(
        &mut self,
        params: &Params,
        now: Nanos,
        source: &mut impl Source<P>,
        dropped: &mut impl FnMut(P, DropReason),
    ) -> Option<P> {
        let mut next = self.pop(params, now, source);
        let may_drop = |next: &Option<(P, bool)>| matches!(next, Some((_, true)));
        if self.is_dropping {
            self.is_dropping = may_drop(&next);
            while self.is_dropping && now >= self.drop_next {
                let (packet, _) = next?;
                dropped(packet, DropReason::Codel);
                self.count = self.count.saturating_add(1);
                next = self.pop(params, now, source);
                self.is_dropping = may_drop(&next);
                if self.is_dropping {
                    self.drop_next = params.next_drop(self.drop_next, self.count);
                }
            }
        } else if may_drop(&next) {
            let (packet, _) = next?;
            dropped(packet, DropReason::Codel);
            next = self.pop(params, now, source);
            self.begin_dropping(params, now);
        }
        next.map(|(packet, _)| packet)
    }

    /// With the rate of before, if that was not long ago.
    fn begin_dropping(&mut self, params: &Params, now: Nanos) {
        self.is_dropping = true;
        let since_then = self.count.saturating_sub(self.last_count);
        let is_recent = now.since(self.drop_next).0 < params.interval.0.saturating_mul(RECENT_INTERVALS);
        self.count = if since_then > 1 && is_recent { since_then } else { 1 };
        self.drop_next = params.next_drop(now, self.count);
        self.last_count = self.count;
    }
}
