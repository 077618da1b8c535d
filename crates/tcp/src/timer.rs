//! When to send again: RFC 6298, and the delayed ACK.

use units::Nanos;
use wire::{Flags, Segment, SeqNumber};

use crate::estimate::Estimate;
use crate::recovery::{LEAST_WAIT, Sender};
use crate::stack::Rto;
use crate::stream::Stream;
use crate::{Change, Connection, Stack, State};

/// How long an orphaned connection waits for the peer's FIN (`net.ipv4.tcp_fin_timeout`).
pub(crate) const FIN_TIMEOUT: Nanos = Nanos::from_secs(60);
/// RFC 6298 section 5.7.
const FALLBACK_RTO: Nanos = Nanos::from_secs(3);

/// Smoothed round-trip time and its variation (RFC 6298 section 2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoundTrip {
    /// When the segment that is being timed was sent; [`Nanos::MAX`] when none is.
    timed_at: Nanos,
    /// SRTT, microseconds; 0 before the first sample.
    smoothed_us: u32,
    /// RTTVAR, microseconds.
    variation_us: u32,
}

impl RoundTrip {
    pub(crate) fn begin(now: Nanos) -> Self {
        Self { timed_at: now, smoothed_us: 0, variation_us: 0 }
    }

    /// Starts timing, unless a segment is being timed already.
    pub(crate) fn start(&mut self, now: Nanos) {
        self.timed_at = self.timed_at.min(now);
    }

    /// Karn's rule: what was sent twice is not timed.
    pub(crate) fn abandon(&mut self) {
        self.timed_at = Nanos::MAX;
    }

    /// Whether a segment is being timed.
    pub(crate) fn is_timing(&self) -> bool {
        self.timed_at != Nanos::MAX
    }

    /// Smoothed round-trip time; zero before the first sample.
    pub(crate) fn smoothed(&self) -> Nanos {
        Nanos::from_micros(u64::from(self.smoothed_us))
    }

    /// Four times the variation.
    pub(crate) fn margin(&self) -> Nanos {
        Nanos::from_micros(4 * u64::from(self.variation_us))
    }

    /// Ends the timing. Gives whether something was timed.
    pub(crate) fn sample(&mut self, now: Nanos) -> bool {
        if self.timed_at == Nanos::MAX {
            return false;
        }
        let took = now.since(self.timed_at);
        self.timed_at = Nanos::MAX;
        self.take(took);
        true
    }

    /// Takes in a round trip.
    pub(crate) fn take(&mut self, took: Nanos) {
        let sample = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
        if self.smoothed_us == 0 {
            (self.smoothed_us, self.variation_us) = (sample, sample / 2);
        } else {
            self.variation_us =
                self.variation_us - self.variation_us / 4 + self.smoothed_us.abs_diff(sample) / 4;
            self.smoothed_us = self.smoothed_us - self.smoothed_us / 8 + sample / 8;
        }
    }

    /// What another estimator made of the samples.
    pub(crate) fn set(&mut self, estimate: &Estimate) {
        let quarter = |time: Nanos| time.as_micros().div_ceil(4) as u32;
        self.smoothed_us = estimate.smoothed().as_micros().max(1) as u32;
        self.variation_us = quarter(estimate.margin());
    }

    /// The timeout before back-off. After a SYN that was sent twice and of which nobody knows when
    /// it was answered it is the old 3 s (RFC 6298 section 5.7).
    pub(crate) fn timeout(&self, stack: &Stack, syns_sent: u8) -> Nanos {
        let Rto { least_variation, slop, least, most, .. } = stack.rto;
        if self.smoothed_us == 0 {
            return if syns_sent > 1 { stack.initial_rto.max(FALLBACK_RTO) } else { stack.initial_rto };
        }
        (self.smoothed() + self.margin().max(least_variation) + slop).max(least).min(most)
    }
}

impl Connection {
    /// Does what is due at `now`: a delayed ACK, a retransmission, a probe of a closed window, or
    /// the end.
    ///
    /// Call it when [`Connection::deadline`] has passed; calling it early does nothing.
    pub fn on_deadline(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Change {
        if self.ack_at <= now {
            // An answer that did not come in time: the next segment is not waited with
            // (tcp_delack_timer_handler()).
            self.is_interactive = false;
            self.send_ack(stack, now, send);
        }
        if self.take_overtaken(now) {
            self.transmit_controlled(stack, stream, now, send);
        }
        if self.retransmit_at > now {
            return Change::None;
        }
        match self.state {
            State::SynSent => self.syn_timed_out(stack, now, send),
            State::FinWait2 => self.give_up(),
            State::TimeWait => {
                self.end();
                Change::None
            }
            _ if self.is_idle() => self.window_timed_out(stack, now, send),
            _ => self.data_timed_out(stack, stream, now, send),
        }
    }

    fn syn_timed_out(&mut self, stack: &Stack, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) -> Change {
        if self.retries_after_reset {
            self.retries_after_reset = false;
        } else {
            self.timeouts += 1;
        }
        if stack.syn_timeout(self.timeouts).is_none() {
            return self.give_up();
        }
        self.round_trip.abandon();
        self.send_syn(stack, now, send);
        Change::None
    }

    /// The next SYN leaves then: not because the last was not answered, but because it was refused.
    pub(crate) fn retry_syn_at(&mut self, moment: Nanos) {
        self.retries_after_reset = true;
        self.retransmit_at = moment;
    }

    /// Goes back to the first unacknowledged byte and sends one segment from there, or the FIN. A
    /// controlled sender keeps its place, and knows what to send after that.
    fn data_timed_out(
        &mut self,
        stack: &Stack,
        stream: &(impl Stream + ?Sized),
        now: Nanos,
        send: &mut impl FnMut(&Segment<'_>),
    ) -> Change {
        if self.timeouts >= stack.data_retries {
            return self.give_up();
        }
        if self.may_probe(stack) {
            self.has_probed = true;
            if !self.is_single() {
                self.probe(stack, stream, now, send);
                self.arm(stack, now);
                return Change::None;
            }
        } else {
            self.lose_all(now);
            self.timeouts += 1;
        }
        self.round_trip.abandon();
        if self.sender.is_some() {
            self.send_first_again(stack, stream, now, send);
            self.arm(stack, now);
            return Change::None;
        }
        let offset = self.offset(self.snd_una);
        let rest = stream.length().saturating_sub(offset);
        let len = rest.min(u64::from(self.data_mss())) as usize;
        let payload = if len == 0 { &[] } else { stream.bytes(offset, len) };
        self.snd_nxt = self.snd_una;
        let flags = match (len as u64 == rest, self.is_closing(), len == 0) {
            (true, true, _) => Flags::ACK | Flags::FIN,
            (true, false, false) => Flags::ACK | Flags::PSH,
            _ => Flags::ACK,
        };
        self.send(stack, flags, payload, now, send);
        self.arm_retransmission(stack, now);
        Change::None
    }

    /// Whether a timeout may be a probe for a lost tail first: nothing is known to be missing, and
    /// none was sent for this tail (RFC 8985 section 7.2).
    fn may_probe(&self, stack: &Stack) -> bool {
        let is_well = self.sender.as_deref().map_or(self.is_single(), Sender::is_well);
        stack.tail_loss_probe && self.has_sack && self.timeouts == 0 && !self.has_probed && is_well
    }

    /// Something was sent, or acknowledged: where more than a segment is out its tail is probed for
    /// after two round trips, or when the timer would go off if that is sooner
    /// (`tcp_schedule_loss_probe()`, Linux 6.18 `net/ipv4/tcp_output.c`). Of one segment the peer
    /// may delay the acknowledgment: its probe is the first timeout.
    pub(crate) fn arm_probe(&mut self, stack: &Stack, rto_since: Nanos, now: Nanos) {
        let smoothed = self.round_trip.smoothed();
        if self.sender.is_none() || smoothed == Nanos::ZERO || self.is_single() || !self.may_probe(stack) {
            return;
        }
        let timeout = self.round_trip.timeout(stack, self.syns_sent);
        self.retransmit_at = (now + Nanos(2 * smoothed.0) + LEAST_WAIT).min((rto_since + timeout).max(now));
    }

    /// Our FIN is out, or acknowledged.
    pub(crate) fn is_closing(&self) -> bool {
        matches!(self.state, State::FinWait1 | State::Closing | State::LastAck | State::LastAckSwap)
    }

    /// Data waits, nothing is out, and the peer takes nothing: asks again after a while (RFC 9293
    /// section 3.8.6.1). A SYN proxy has no other way to learn that it should try its server once
    /// more.
    pub(crate) fn wait_for_window(&mut self, stack: &Stack, now: Nanos) {
        if self.peer_window == 0 && self.is_idle() && self.retransmit_at == Nanos::MAX {
            self.arm(stack, now);
        }
    }

    /// As Linux asks: with an old sequence number and without data (`tcp_xmit_probe_skb`, v6.18).
    fn window_timed_out(&mut self, stack: &Stack, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) -> Change {
        if self.timeouts >= stack.data_retries {
            return self.give_up();
        }
        self.timeouts += 1;
        let old = SeqNumber(self.snd_una.0.wrapping_sub(1));
        send(&Segment { seq: old, ..self.segment(stack, Flags::ACK, &[], now) });
        self.arm(stack, now);
        Change::None
    }

    pub(crate) fn end_probing(&mut self) {
        if self.peer_window > 0 && self.is_idle() {
            self.timeouts = 0;
            self.retransmit_at = Nanos::MAX;
        }
    }

    /// Open for our data, and none is out.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait) && self.snd_una == self.snd_max
    }

    fn give_up(&mut self) -> Change {
        self.end();
        Change::GaveUp
    }

    /// Something was sent that wants to be acknowledged.
    pub(crate) fn arm_retransmission(&mut self, stack: &Stack, now: Nanos) {
        if self.sender.is_some() {
            return self.start_timer(stack, now);
        }
        if self.timeouts == 0 && !self.has_probed {
            self.round_trip.start(now);
        }
        self.arm(stack, now);
    }

    pub(crate) fn arm(&mut self, stack: &Stack, now: Nanos) {
        let doublings = self.timeouts.max(self.backoff());
        let timeout = self.round_trip.timeout(stack, self.syns_sent).0 << u32::from(doublings).min(9);
        self.retransmit_at = now + Nanos(timeout).min(stack.rto.most);
    }
}
