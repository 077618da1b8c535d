//! TIME_WAIT at a server that closed first: its buckets, and segments that still arrive.

use std::collections::VecDeque;

use slotmap::SlotMap;
use tcp::Connection;
use units::Nanos;
use wire::{Flags, Segment, SeqNumber};

use super::{Kernel, Outside, Peer, TimeWaitId, Work, acknowledgment};

/// `TCP_TIMEWAIT_LEN` (Linux 6.18 `include/net/tcp.h`); twice `TCPTV_MSL` of 4.3BSD is as long.
const TIME_WAIT: Nanos = Nanos::from_secs(60);

/// Distance from the old connection's next sequence number to the new connection's first.
const BEYOND: u32 = 65_535 + 2;

/// State of a connection in TIME_WAIT.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimeWait {
    snd_nxt: SeqNumber,
    rcv_nxt: SeqNumber,
    /// The client's last timestamp, if the connection had timestamps.
    timestamp: Option<u32>,
}

impl TimeWait {
    /// State of a connection that both ends have closed.
    pub(super) fn of(connection: &Connection) -> Self {
        let timestamp = connection.peer_timestamp();
        Self { snd_nxt: connection.sends_next(), rcv_nxt: connection.expects(), timestamp }
    }

    /// Timestamp of a segment minus the last, in ticks of the client's clock; negative if older.
    fn newer_by(&self, segment: &Segment<'_>) -> Option<i32> {
        let (last, now) = (self.timestamp?, segment.options.timestamps?.value);
        Some(now.wrapping_sub(last).cast_signed())
    }
}

/// All connections in TIME_WAIT.
#[derive(Debug, Default)]
pub(super) struct TimeWaits {
    all: SlotMap<TimeWaitId, (Peer, Nanos, TimeWait)>,
    /// Ends of TIME_WAIT, soonest first. A restarted one keeps its old entry, which is ignored.
    ends: VecDeque<(Nanos, TimeWaitId)>,
}

impl TimeWaits {
    pub(super) fn begin(&mut self, peer: Peer, waiting: TimeWait, now: Nanos) -> TimeWaitId {
        let until = now + TIME_WAIT;
        let id = self.all.insert((peer, until, waiting));
        self.ends.push_back((until, id));
        id
    }

    fn begin_anew(&mut self, id: TimeWaitId, now: Nanos) {
        let until = now + TIME_WAIT;
        self.all[id].1 = until;
        self.ends.push_back((until, id));
    }

    pub(super) fn is_over(&self, id: TimeWaitId, now: Nanos) -> bool {
        self.all[id].1 <= now
    }

    /// First sequence number of a connection that takes its place (`tcp_timewait_state_process()`).
    pub(super) fn next_number(&self, id: TimeWaitId) -> SeqNumber {
        self.all[id].2.snd_nxt + BEYOND
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Removes a connection whose time is over, and returns its client.
    fn take_over(&mut self, now: Nanos) -> Option<Peer> {
        while let Some((_, id)) = self.ends.front().copied().filter(|(until, _)| *until <= now) {
            self.ends.pop_front();
            if self.all.get(id).is_some_and(|(_, until, _)| *until <= now) {
                return self.all.remove(id).map(|(peer, ..)| peer);
            }
        }
        None
    }
}

impl Kernel {
    /// True if a bucket is free (`tcp_time_wait()`, `inet_twsk_alloc()`, Linux 6.18).
    pub(super) fn has_bucket(&self) -> bool {
        self.time_waits.len() < self.config.max_tw_buckets as usize
    }

    /// Forgets connections whose time in TIME_WAIT is over.
    pub(crate) fn end_time_waits(&mut self, now: Nanos) {
        while let Some(peer) = self.time_waits.take_over(now) {
            self.ends.remove(peer);
        }
    }

    pub(super) fn forget_time_wait(&mut self, peer: Peer) {
        if let Some(super::End::TimeWait(id)) = self.ends.get(peer) {
            self.time_waits.all.remove(id);
            self.ends.remove(peer);
        }
    }

    /// `tcp_timewait_state_process()` (6.18 `net/ipv4/tcp_minisocks.c`). A RST ends TIME_WAIT,
    /// unless `tcp_rfc1337` is set. A SYN with a later number or timestamp begins a new connection.
    /// A segment that is repeated, or has an older timestamp, is acknowledged and restarts
    /// TIME_WAIT.
    ///
    /// Differs: the guard does not see a SYN that begins nothing, and acknowledgments are not
    /// limited to two a second.
    pub(super) fn receive_in_time_wait(
        &mut self,
        from: Peer,
        id: TimeWaitId,
        segment: &Segment<'_>,
        now: Nanos,
        out: &mut impl Outside,
    ) -> Work {
        let waiting = self.time_waits.all[id].2;
        let TimeWait { snd_nxt, rcv_nxt, .. } = waiting;
        let newer_by = waiting.newer_by(segment);
        let is_old = newer_by.is_some_and(|by| by < 0);
        let is_next = segment.seq == rcv_nxt && !is_old;
        let flags = segment.flags;
        if flags.has(Flags::RST) {
            if is_next && !self.config.rfc1337 {
                self.forget_time_wait(from);
            }
            return Work::Reset;
        }
        if is_next && segment.is_empty() {
            self.time_waits.begin_anew(id, now);
            return Work::Ack;
        }
        let is_syn = flags.has(Flags::SYN) && !flags.has(Flags::ACK);
        if is_syn && !is_old && (rcv_nxt < segment.seq || newer_by.is_some_and(|by| by > 0)) {
            return self.receive_syn(from, segment, Some(id), now, out);
        }
        self.counters.paws_rejects += u64::from(is_old);
        if is_old || flags.has(Flags::ACK) {
            self.time_waits.begin_anew(id, now);
        }
        out.send(from, &acknowledgment(snd_nxt, rcv_nxt));
        Work::Ack
    }
}
