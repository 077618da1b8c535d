//! A SYN that the guard let through: the kernel's own answer, and what follows until the handshake
//! has ended.

use tcp::Handshake;
use units::Nanos;
use verdict::Verdict;
use wire::{Flags, Segment, SeqNumber};

use super::cookies::{Whose, answered, mix, stamp};
use super::{End, Generation, Kernel, News, Outside, Peer, RequestId, Timer, Work, acknowledgment};

/// First wait for the end of a handshake: RFC 6298 since 3.1 (`TCP_TIMEOUT_INIT`), RFC 1122 before.
const TIMEOUT: Nanos = Nanos::from_secs(1);
const TIMEOUT_24: Nanos = Nanos::from_secs(3);
/// `TCP_RTO_MAX`.
const LONGEST_TIMEOUT: Nanos = Nanos::from_secs(120);
/// Sent as often whatever the queue looks like (`reqsk_timer_handler()`, `tcp_synack_timer()`).
const FEWEST_RETRIES: u8 = 2;

/// A handshake under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) peer: Peer,
    pub(super) handshake: Handshake,
    /// When its timer comes up.
    due: Nanos,
}

impl Request {
    /// Whether its timer comes up now.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.due <= now
    }
}

impl Kernel {
    /// Where the SYN queue counts as full, connections.
    pub(super) fn syn_limit(&self) -> u32 {
        match self.config.generation {
            // `max_qlen_log`: the next power of two, from 64 on (2.4.20 `tcp_listen_start()`).
            Generation::Linux22 => self.config.max_syn_backlog,
            Generation::Linux24 => self.config.max_syn_backlog.clamp(64, 1 << 31).next_power_of_two(),
            Generation::Linux410 => self.config.backlog,
        }
    }

    pub(super) fn is_accept_queue_full(&self) -> bool {
        self.accept_queue.len() > self.config.backlog as usize
    }

    /// Since 3479c7549fb1 (Linux 6.14) one more fits than the limit. Differs: 4.10 to 6.13 take the
    /// limit itself for full, as 2.4 does.
    fn is_syn_queue_full(&self) -> bool {
        let length = self.requests.len() as u32;
        match self.config.generation {
            Generation::Linux22 | Generation::Linux24 => length >= self.syn_limit(),
            Generation::Linux410 => length > self.syn_limit(),
        }
    }

    /// A SYN that is answered although the accept queue is full: 2.4 does so while at most one
    /// handshake is young, 2.2 always.
    pub(super) fn is_spared(&self) -> bool {
        match self.config.generation {
            Generation::Linux22 => true,
            Generation::Linux24 => self.young <= 1,
            Generation::Linux410 => false,
        }
    }

    /// `tcp_conn_request()`; 2.4 asks after the cookie whether the accept queue is full, and
    /// answers all the same while at most one handshake is young.
    pub(super) fn request(
        &mut self,
        from: Peer,
        syn: &Segment<'_>,
        iss: Option<SeqNumber>,
        now: Nanos,
        out: &mut impl Outside,
    ) -> Work {
        if self.config.most_ends.is_some_and(|most| self.ends.all() >= most as usize) {
            return self.drop_syn();
        }
        // One that takes the place of a TIME_WAIT is kept whatever the SYN queue looks like
        // (`isn`).
        let is_limited = iss.is_none();
        let mut by_cookie = self.config.syncookies == 2 && is_limited;
        if is_limited && !by_cookie && self.is_syn_queue_full() {
            if self.config.syncookies == 0 {
                self.counters.reqq_full_drop += 1;
                return self.drop_syn();
            }
            self.counters.reqq_full_do_cookies += 1;
            by_cookie = true;
        }
        if self.is_accept_queue_full() && !self.is_spared() {
            self.counters.listen_overflows += 1;
            return self.drop_syn();
        }
        let most = self.config.max_syn_backlog;
        // The last quarter is kept for hosts that were heard of before, of which there are none
        // here; not in 2.2.
        if is_limited
            && self.config.syncookies == 0
            && self.config.generation != Generation::Linux22
            && most.saturating_sub(self.requests.len() as u32) < most >> 2
        {
            return self.drop_syn();
        }
        if by_cookie {
            self.counters.syncookies_sent += 1;
            self.send_kernel_cookie(from, syn, now, out);
            return Work::SynAnswered;
        }
        let handshake = Handshake::begin(syn, iss.unwrap_or_else(|| self.next_iss()), now);
        let due = now + self.syn_ack_timeout(&handshake);
        let id = self.requests.insert(Request { peer: from, handshake, due });
        self.ends.insert(from, End::Request(id));
        self.young += 1;
        out.wake(due, Timer::Request(id));
        self.send_syn_ack(from, &handshake, now, out);
        Work::SynAnswered
    }

    fn drop_syn(&mut self) -> Work {
        self.counters.listen_drops += 1;
        self.counters.syns_dropped += 1;
        Work::SynDropped
    }

    fn next_iss(&mut self) -> SeqNumber {
        self.handshakes += 1;
        SeqNumber(mix(self.config.seed, self.handshakes << 8) as u32)
    }

    fn syn_ack_timeout(&self, handshake: &Handshake) -> Nanos {
        let usual = match self.config.generation {
            Generation::Linux22 | Generation::Linux24 => TIMEOUT_24,
            Generation::Linux410 => TIMEOUT,
        };
        let first = self.config.initial_rto.unwrap_or(usual);
        handshake.timeout(first, LONGEST_TIMEOUT)
    }

    /// Its timer comes up so long from now; one that was set before comes to nothing.
    fn set_request_timer(&mut self, id: RequestId, now: Nanos, out: &mut impl Outside) {
        let due = now + self.syn_ack_timeout(&self.requests[id].handshake);
        self.requests[id].due = due;
        out.wake(due, Timer::Request(id));
    }

    pub(super) fn send_syn_ack(
        &mut self,
        to: Peer,
        handshake: &Handshake,
        now: Nanos,
        out: &mut impl Outside,
    ) {
        self.counters.syn_acks += 1;
        let syn_ack = handshake.syn_ack(self.config.stack, 0, now);
        match &self.config.sending {
            None => out.send(to, &syn_ack),
            Some(sending) => out.send_marked(to, &syn_ack, sending.without_data()),
        }
    }

    /// The kernel's own; nothing is kept.
    pub(super) fn send_kernel_cookie(
        &mut self,
        to: Peer,
        syn: &Segment<'_>,
        now: Nanos,
        out: &mut impl Outside,
    ) {
        let iss = self.cookies.make(to, syn, now);
        let offered = answered(syn.options);
        let handshake = Handshake { offered, ..Handshake::begin(syn, iss, now) };
        let mut answer = handshake.syn_ack(self.config.stack, 0, now);
        if let Some(timestamps) = &mut answer.options.timestamps {
            timestamps.value = stamp(timestamps.value, &offered);
        }
        self.counters.syn_acks += 1;
        out.send(to, &answer);
    }

    /// `reqsk_timer_handler()`: SYN/ACK again, unless it was sent often enough. When the queue is
    /// half full, handshakes that were never answered get fewer, the more of them are old.
    pub(super) fn request_timed_out(&mut self, id: RequestId, now: Nanos, out: &mut impl Outside) {
        let most = self.most_retries();
        let Some(request) = self.requests.get_mut(id).filter(|request| request.is_due(now)) else {
            return; // it has ended
        };
        if request.handshake.timeouts >= most {
            self.forget_request(id);
            return;
        }
        self.young -= u32::from(request.handshake.timeouts == 0);
        request.handshake.time_out();
        let (peer, handshake) = (request.peer, request.handshake);
        self.set_request_timer(id, now, out);
        self.send_syn_ack(peer, &handshake, now, out);
    }

    fn most_retries(&self) -> u8 {
        let length = self.requests.len() as u32;
        let mut most = self.config.synack_retries;
        let is_half_full = match self.config.generation {
            Generation::Linux22 | Generation::Linux24 => length >= self.syn_limit() / 2,
            Generation::Linux410 => 2 * length > self.config.backlog.max(8),
        };
        let mut young = 2 * self.young;
        while is_half_full && most > FEWEST_RETRIES && length >= young {
            most -= 1;
            young *= 2;
            if young == 0 {
                most = FEWEST_RETRIES;
            }
        }
        most
    }

    fn forget_request(&mut self, id: RequestId) {
        if let Some(request) = self.requests.remove(id) {
            self.young -= u32::from(request.handshake.timeouts == 0);
            self.ends.remove(request.peer);
        }
    }

    /// `tcp_check_req()`. A SYN that comes again is answered again, which puts the timer off, but
    /// not in 2.4. Differs: it is answered as often as it comes, and not once in half a second at
    /// most (`tcp_oow_rate_limited()`).
    pub(super) fn receive_for_request(
        &mut self,
        id: RequestId,
        segment: &Segment<'_>,
        now: Nanos,
        out: &mut impl Outside,
    ) -> Work {
        let Request { peer, handshake, .. } = self.requests[id];
        let flags = segment.flags;
        if flags == Flags::SYN && segment.seq == handshake.irs {
            self.requests[id].handshake.repeat();
            if self.config.generation == Generation::Linux410 {
                self.set_request_timer(id, now, out);
            }
            self.send_syn_ack(peer, &handshake, now, out);
            return Work::SynAnswered;
        }
        if flags.has(Flags::RST) || flags.has(Flags::SYN) {
            return self.break_off_request(id, segment, out);
        }
        if !flags.has(Flags::ACK) {
            return Work::Stray;
        }
        if !handshake.is_acknowledged_by(segment) {
            self.send_reset(peer, segment, out);
            return Work::Stray;
        }
        let load = self.load();
        let is_kernels = self.followed.as_ref().is_some_and(|followed| followed.leaves_to_kernel(now));
        match self.guard.on_end(segment, &load, is_kernels, now) {
            Verdict::Reset => self.reset_request(id, segment, out),
            Verdict::Drop => Work::EndDropped,
            _ if self.is_accept_queue_full() => {
                // Both before the kernel looks at the setting (`tcp_v4_syn_recv_sock()`).
                self.counters.listen_overflows += 1;
                self.counters.listen_drops += 1;
                if self.config.abort_on_overflow {
                    return self.reset_request(id, segment, out);
                }
                Work::EndDropped
            }
            _ => {
                self.forget_request(id);
                // If the SYN/ACK was sent twice, nobody knows which was answered.
                let took = (handshake.sent_again == 0).then(|| now.since(handshake.sent_at));
                self.establish(peer, &handshake, took, segment, now, out)
            }
        }
    }

    /// A RST, or a SYN of another handshake. A RST ends this one at the number that is expected
    /// (RFC 5961 section 3.2), and a SYN in the window; otherwise the client is told which number
    /// that is, but for a RST beyond the window. Differs: 2.4 lets any RST in the window end it.
    fn break_off_request(&mut self, id: RequestId, segment: &Segment<'_>, out: &mut impl Outside) -> Work {
        let Request { peer, handshake, .. } = self.requests[id];
        let ahead = segment.seq - (handshake.irs + 1);
        let is_in_window = ahead <= u32::from(self.config.stack.window);
        match (segment.flags.has(Flags::RST), is_in_window) {
            (true, _) if ahead == 0 => {
                self.counters.embryonic_rsts += 1;
                self.forget_request(id);
                Work::Reset
            }
            (true, false) => Work::Reset,
            (false, true) => self.reset_request(id, segment, out),
            (true, true) | (false, false) => {
                out.send(peer, &acknowledgment(handshake.iss + 1, handshake.irs + 1));
                Work::Ack
            }
        }
    }

    /// `embryonic_reset`: both ends know.
    fn reset_request(&mut self, id: RequestId, segment: &Segment<'_>, out: &mut impl Outside) -> Work {
        let peer = self.requests[id].peer;
        self.counters.embryonic_rsts += 1;
        self.forget_request(id);
        self.send_reset(peer, segment, out);
        Work::EndReset
    }

    /// A segment with ACK of a client of whom nothing is known: the end of a handshake by cookie
    /// (`cookie_v4_check()`, and `end_by_cookie()` of `kernel/later_stages.bpf.h`), or none.
    pub(super) fn receive_end_by_cookie(
        &mut self,
        from: Peer,
        segment: &Segment<'_>,
        now: Nanos,
        out: &mut impl Outside,
    ) -> Work {
        let cookie = if segment.flags.has(Flags::SYN) { None } else { self.cookies.open(from, segment, now) };
        let Some((whose, offered)) = cookie else {
            self.send_reset(from, segment, out);
            return Work::Stray;
        };
        let load = self.load();
        let is_kernels = self.followed.as_ref().is_some_and(|followed| followed.leaves_to_kernel(now));
        match self.guard.on_end(segment, &load, is_kernels, now) {
            Verdict::Reset => {
                self.send_reset(from, segment, out);
                return Work::Stray;
            }
            Verdict::Drop => return Work::EndDropped,
            _ => {}
        }
        // Whether there is a place for it or not (`cookie_tcp_check()`).
        self.counters.syncookies_recv += u64::from(whose == Whose::Kernels);
        if self.is_accept_queue_full() {
            self.counters.listen_overflows += 1;
            self.counters.listen_drops += 1;
            return Work::EndDropped;
        }
        if whose == Whose::Guards {
            self.guard.took_cookie();
        }
        let irs = SeqNumber(segment.seq.0.wrapping_sub(1));
        let iss = SeqNumber(segment.ack.0.wrapping_sub(1));
        let handshake = Handshake { irs, iss, offered, sent_at: now, sent_again: 1, timeouts: 0 };
        let took = self.cookies.age(iss, now);
        self.establish(from, &handshake, took, segment, now, out)
    }

    /// The connection is there, and waits for accept(2).
    fn establish(
        &mut self,
        peer: Peer,
        handshake: &Handshake,
        took: Option<Nanos>,
        segment: &Segment<'_>,
        now: Nanos,
        out: &mut impl Outside,
    ) -> Work {
        let connection = handshake.established(self.config.stack, 0, now);
        let mut socket = super::Socket::new(peer, connection, self.config.sending.as_ref());
        socket.wait = self.followed.as_mut().and_then(|followed| followed.begin(peer, took, now));
        let id = self.sockets.insert(socket);
        self.ends.insert(peer, End::Socket(id));
        self.accept_queue.push_back(id);
        self.counters.established += 1;
        out.tell(News::Acceptable);
        // What comes with it.
        self.receive_for_socket(id, segment, now, out);
        Work::Established
    }
}
