//! The crowd: every attempt from its start to its cause. Told the time and handed segments, without I/O.

use tcp::{Change, Close, Connection, LINUX, State, reset_for};
use traffic::Schedule;
use units::Nanos;
use wire::{Segment, SeqNumber};

use crate::attempt::{Attempt, Cause};
use crate::clients::{Clients, Endpoint};
use crate::reply::{Progress, Reply};
use crate::table::Table;
use crate::tally::{Tally, Window};
use crate::wheel::Wheel;

/// What every attempt does.
#[derive(Debug, Clone)]
pub struct Manners {
    /// The request, whole.
    pub request: Vec<u8>,
    /// How long a user waits for the complete reply, from the intended start.
    pub timeout: Nanos,
    /// How the connection is closed once the reply is complete, or the user has lost patience.
    pub close: Close,
    /// Attempts start from time zero to the end of this window; its start ends the warm-up.
    pub window: Window,
    /// Seed of the initial sequence numbers.
    pub seed: u64,
    /// Number of the first endpoint: runs that follow each other should not begin at the same.
    pub first_endpoint: u64,
}

/// The crowd.
#[derive(Debug)]
pub struct Crowd {
    manners: Manners,
    clients: Clients,
    schedule: Schedule,
    /// Attempts whose turn has come, sent or not.
    started: u64,
    table: Table,
    wheel: Wheel,
    tally: Tally,
    /// Attempts without a cause yet.
    open: usize,
    peak: usize,
}

impl Crowd {
    /// Memory for one live connection, bytes: its slot, its index entry, its timer.
    pub const BYTES_PER_CONNECTION: usize = Table::BYTES_PER_ATTEMPT + Wheel::BYTES_PER_ID;

    /// A crowd that has not started. `capacity` live connections fit without growing.
    pub fn new(manners: Manners, clients: Clients, schedule: Schedule, capacity: usize) -> Self {
        Self {
            tally: Tally::new(manners.window),
            manners,
            clients,
            schedule,
            started: 0,
            table: Table::with_capacity(capacity),
            wheel: Wheel::with_capacity(capacity),
            open: 0,
            peak: 0,
        }
    }

    /// When the next attempt should start; `None` when there are no more.
    pub fn next_start(&self) -> Option<Nanos> {
        let next = self.schedule.intended_start();
        (next < self.manners.window.end).then_some(next)
    }

    /// Starts the next attempt when its time has come. Gives whether it did.
    pub fn start_next(&mut self, now: Nanos, send: &mut impl FnMut(Endpoint, &Segment<'_>)) -> bool {
        let Some(intended_start) = self.next_start().filter(|&start| start <= now) else {
            return false;
        };
        self.schedule.advance();
        let endpoint = self.clients.endpoint(self.manners.first_endpoint.wrapping_add(self.started));
        let iss = initial_sequence(self.manners.seed, self.started);
        self.started += 1;
        if self.table.find(endpoint).is_some() {
            self.tally.ended(Cause::NotSent, intended_start, 0, now);
            return true;
        }
        self.tally.started(intended_start, now);
        self.tally.syn(true, now);
        let connection = Connection::connect(&LINUX, iss, now, &mut |segment| send(endpoint, segment));
        let attempt = Attempt { intended_start, endpoint, ended: false, connection, reply: Reply::default() };
        let id = self.table.insert(attempt);
        self.open += 1;
        self.peak = self.peak.max(self.table.len());
        self.set_deadline(id);
        true
    }

    /// Takes in a segment for one of our endpoints.
    pub fn on_segment(
        &mut self,
        endpoint: Endpoint,
        segment: &Segment<'_>,
        now: Nanos,
        send: &mut impl FnMut(Endpoint, &Segment<'_>),
    ) {
        let send = &mut |segment: &Segment<'_>| send(endpoint, segment);
        let Some(id) = self.table.find(endpoint) else {
            // A port that is closed by now: the client's kernel would answer so.
            if let Some(reset) = reset_for(segment) {
                send(&reset);
            }
            return;
        };
        let attempt = self.table.get_mut(id);
        let heard = attempt.connection.on_segment(&LINUX, segment, now, send);
        let mut cause = None;
        if !heard.data.is_empty() {
            cause = cause_of(attempt.reply.feed(heard.data));
        }
        cause = cause.or_else(|| match heard.change {
            Change::Refused => Some(Cause::Refused),
            Change::Reset => Some(Cause::Reset),
            Change::PeerClosed => cause_of(attempt.reply.end()),
            _ => None,
        });
        if let Some(cause) = cause {
            self.end(id, cause, now, send);
        } else {
            attempt.connection.transmit(&LINUX, &self.manners.request, now, send);
        }
        self.settle(id);
    }

    /// Does what one passed deadline asks for. Gives false when none has passed.
    pub fn on_deadline(&mut self, now: Nanos, send: &mut impl FnMut(Endpoint, &Segment<'_>)) -> bool {
        let Some(id) = self.wheel.pop(now) else {
            return false;
        };
        let attempt = self.table.get_mut(id);
        let endpoint = attempt.endpoint;
        let send = &mut |segment: &Segment<'_>| send(endpoint, segment);
        if !attempt.ended && attempt.intended_start + self.manners.timeout <= now {
            let cause = timed_out(attempt);
            self.end(id, cause, now, send);
        } else {
            let syns = attempt.connection.syns_sent();
            let change = attempt.connection.on_deadline(&LINUX, &self.manners.request, now, send);
            if attempt.connection.syns_sent() > syns {
                self.tally.syn(false, now);
            }
            if change == Change::GaveUp && !attempt.ended {
                let cause = timed_out(attempt);
                self.end(id, cause, now, send);
            }
        }
        self.settle(id);
        true
    }

    /// Live connections.
    pub fn live(&self) -> usize {
        self.table.len()
    }

    /// Most connections that were alive at once.
    pub fn peak(&self) -> usize {
        self.peak
    }

    /// What was counted so far.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether every attempt has its cause and no more will start.
    pub fn is_over(&self) -> bool {
        self.next_start().is_none() && self.open == 0
    }

    /// Stops: what is open is unfinished; what should have started `grace` ago and has not was not sent.
    pub fn stop(&mut self, now: Nanos, grace: Nanos) {
        for attempt in self.table.iter().filter(|attempt| !attempt.ended) {
            self.tally.ended(Cause::Unfinished, attempt.intended_start, attempt.connection.syns_sent(), now);
        }
        while let Some(start) = self.next_start().filter(|&start| start + grace <= now) {
            self.schedule.advance();
            self.tally.ended(Cause::NotSent, start, 0, now);
        }
    }

    /// Settles the cause of an attempt, once, and closes its connection.
    fn end(&mut self, id: u32, cause: Cause, now: Nanos, send: &mut impl FnMut(&Segment<'_>)) {
        let attempt = self.table.get_mut(id);
        if attempt.ended {
            return;
        }
        attempt.ended = true;
        self.open -= 1;
        self.tally.ended(cause, attempt.intended_start, attempt.connection.syns_sent(), now);
        attempt.connection.close(&LINUX, self.manners.close, now, send);
    }

    /// Forgets an attempt whose connection is over; else sees to its next deadline.
    fn settle(&mut self, id: u32) {
        if self.table.get_mut(id).connection.state() == State::Closed {
            self.wheel.remove(id);
            self.table.remove(id);
        } else {
            self.set_deadline(id);
        }
    }

    fn set_deadline(&mut self, id: u32) {
        let attempt = self.table.get_mut(id);
        let mut deadline = attempt.connection.deadline();
        if !attempt.ended {
            deadline = deadline.min(attempt.intended_start + self.manners.timeout);
        }
        self.wheel.set(id, deadline);
    }
}

fn timed_out(attempt: &Attempt) -> Cause {
    if attempt.connection.has_connected() { Cause::TimedOutResponse } else { Cause::TimedOutConnect }
}

fn cause_of(progress: Progress) -> Option<Cause> {
    match progress {
        Progress::Partial => None,
        Progress::Complete => Some(Cause::Ok),
        Progress::Malformed => Some(Cause::Malformed),
    }
}

/// Spread over the whole space, so that a forged segment cannot guess one (splitmix64's finalizer).
fn initial_sequence(seed: u64, n: u64) -> SeqNumber {
    let mut mixed = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    SeqNumber((mixed >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use traffic::Arrivals;
    use wire::{Flags, Options};

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

    /// One attempt at time zero, then one every 100 ms; patience of 10 s.
    fn crowd(close: Close) -> Crowd {
        let manners = Manners {
            request: REQUEST.to_vec(),
            timeout: Nanos::from_secs(10),
            close,
            window: Window { start: Nanos::ZERO, end: Nanos::from_millis(100) },
            seed: 1,
            first_endpoint: 0,
        };
        let clients = Clients::new("10.1.0.0/24".parse().expect("a network"));
        Crowd::new(manners, clients, Schedule::new(Arrivals::Fixed, 10.0, 1), 16)
    }

    /// What the crowd sends, with its data made owned.
    #[derive(Default)]
    struct Sent(Vec<(Endpoint, Flags, SeqNumber, SeqNumber, Vec<u8>)>);

    impl Sent {
        fn by(&mut self, act: impl FnOnce(&mut dyn FnMut(Endpoint, &Segment<'_>))) -> Vec<(Flags, Vec<u8>)> {
            let before = self.0.len();
            act(&mut |endpoint, segment| {
                self.0.push((endpoint, segment.flags, segment.seq, segment.ack, segment.payload.to_vec()));
            });
            self.0[before..].iter().map(|(_, flags, _, _, payload)| (*flags, payload.clone())).collect()
        }

        fn syn(&self) -> (Endpoint, SeqNumber) {
            (self.0[0].0, self.0[0].2)
        }
    }

    fn from_server(seq: u32, ack: SeqNumber, flags: Flags, payload: &[u8]) -> Segment<'_> {
        Segment { seq: SeqNumber(seq), ack, flags, window: 65_535, options: Options::default(), payload }
    }

    fn started(crowd: &mut Crowd) -> Sent {
        let mut sent = Sent::default();
        let syn = sent.by(|mut send| assert!(crowd.start_next(Nanos::ZERO, &mut send)));
        assert_eq!(syn, [(Flags::SYN, vec![])]);
        sent
    }

    fn summary(crowd: &Crowd) -> results::CrowdSummary {
        crowd.tally().summary(Nanos::from_millis(100), results::GeneratorHealth::default())
    }

    #[test]
    fn attempt_sends_its_request_reads_the_reply_and_resets() {
        let mut crowd = crowd(Close::Reset);
        let mut sent = started(&mut crowd);
        let (endpoint, iss) = sent.syn();
        let syn_ack = from_server(500, iss + 1, Flags::SYN | Flags::ACK, b"");
        let now = Nanos::from_millis(1);
        let out = sent.by(|mut send| crowd.on_segment(endpoint, &syn_ack, now, &mut send));
        assert_eq!(out, [(Flags::ACK, vec![]), (Flags::ACK | Flags::PSH, REQUEST.to_vec())]);
        let reply = from_server(501, iss + 1 + REQUEST.len() as u32, Flags::ACK | Flags::PSH, REPLY);
        let out = sent.by(|mut send| crowd.on_segment(endpoint, &reply, now, &mut send));
        assert_eq!(out, [(Flags::RST | Flags::ACK, vec![])]);
        assert_eq!((crowd.live(), summary(&crowd).ok), (0, 1));
        assert!(crowd.is_over());
    }

    #[test]
    fn attempt_that_closes_by_fin_lives_until_the_server_closed_too() {
        let mut crowd = crowd(Close::Fin);
        let mut sent = started(&mut crowd);
        let (endpoint, iss) = sent.syn();
        let acked = iss + 1 + REQUEST.len() as u32;
        let mut hear = |crowd: &mut Crowd, segment| {
            sent.by(|mut send| crowd.on_segment(endpoint, &segment, Nanos::from_millis(1), &mut send))
        };
        hear(&mut crowd, from_server(500, iss + 1, Flags::SYN | Flags::ACK, b""));
        let out = hear(&mut crowd, from_server(501, acked, Flags::ACK, REPLY));
        assert_eq!(out, [(Flags::FIN | Flags::ACK, vec![])]);
        assert_eq!((crowd.live(), summary(&crowd).ok), (1, 1));
        let end = 501 + REPLY.len() as u32;
        let out = hear(&mut crowd, from_server(end, acked + 1, Flags::FIN | Flags::ACK, b""));
        assert_eq!(out, [(Flags::ACK, vec![])]);
        assert_eq!(crowd.live(), 0);
    }

    #[test]
    fn refused_attempt_ends_at_once_and_sends_no_more() {
        let mut crowd = crowd(Close::Reset);
        let mut sent = started(&mut crowd);
        let (endpoint, iss) = sent.syn();
        let reset = from_server(0, iss + 1, Flags::RST | Flags::ACK, b"");
        let out = sent.by(|mut send| crowd.on_segment(endpoint, &reset, Nanos::from_millis(1), &mut send));
        assert_eq!(out, []);
        assert_eq!((crowd.live(), summary(&crowd).refused), (0, 1));
    }

    #[test]
    fn unanswered_attempt_resends_its_syn_until_the_user_loses_patience() {
        let mut crowd = crowd(Close::Reset);
        let mut sent = started(&mut crowd);
        let mut syns_at_ms = vec![0];
        for millis in 0..=10_001 {
            let now = Nanos::from_millis(millis);
            let out = sent.by(|mut send| while crowd.on_deadline(now, &mut send) {});
            syns_at_ms.extend(out.iter().map(|_| millis));
        }
        assert_eq!(syns_at_ms, [0, 1000, 2000, 3000, 4000, 5000, 7000]);
        assert_eq!((crowd.live(), summary(&crowd).timed_out_connect), (0, 1));
    }

    #[test]
    fn established_attempt_that_hears_nothing_times_out_in_its_response() {
        let mut crowd = crowd(Close::Reset);
        let mut sent = started(&mut crowd);
        let (endpoint, iss) = sent.syn();
        let syn_ack = from_server(500, iss + 1, Flags::SYN | Flags::ACK, b"");
        sent.by(|mut send| crowd.on_segment(endpoint, &syn_ack, Nanos::from_millis(1), &mut send));
        for millis in 0..=10_001 {
            sent.by(|mut send| while crowd.on_deadline(Nanos::from_millis(millis), &mut send) {});
        }
        assert_eq!(summary(&crowd).timed_out_response, 1);
        let requests = sent.0.iter().filter(|(.., payload)| payload == REQUEST).count();
        assert_eq!(requests, 6, "at 0, 0.2, 0.6, 1.4, 3.0, 6.2 s after the handshake");
    }

    /// `[Shu05]` figure 4.11: the server knows only that nothing more will come, and serves the request in vain.
    #[test]
    fn timed_out_attempt_half_closes_and_resets_the_late_reply() {
        let mut crowd = crowd(Close::Fin);
        let mut sent = started(&mut crowd);
        let (endpoint, iss) = sent.syn();
        let acked = iss + 1 + REQUEST.len() as u32;
        let mut hear = |crowd: &mut Crowd, segment, millis| {
            sent.by(|mut send| crowd.on_segment(endpoint, &segment, Nanos::from_millis(millis), &mut send))
        };
        hear(&mut crowd, from_server(500, iss + 1, Flags::SYN | Flags::ACK, b""), 1);
        hear(&mut crowd, from_server(501, acked, Flags::ACK, b""), 2);
        let mut out = Vec::new();
        for millis in 0..=10_001 {
            let now = Nanos::from_millis(millis);
            out.extend(sent.by(|mut send| while crowd.on_deadline(now, &mut send) {}));
        }
        assert_eq!(out, [(Flags::FIN | Flags::ACK, vec![])]);
        assert_eq!((crowd.live(), summary(&crowd).timed_out_response), (1, 1));
        let late =
            [(501, REPLY, Flags::ACK | Flags::PSH), (501 + REPLY.len() as u32, b"", Flags::FIN | Flags::ACK)];
        for (seq, payload, flags) in late {
            let segment = from_server(seq, acked + 1, flags, payload);
            let out =
                sent.by(|mut send| crowd.on_segment(endpoint, &segment, Nanos::from_secs(25), &mut send));
            assert_eq!(out, [(Flags::RST, vec![])]);
        }
        assert_eq!(crowd.live(), 0);
    }

    #[test]
    fn segment_for_nobody_is_reset() {
        let mut crowd = crowd(Close::Reset);
        let nobody = Endpoint { client: 9, port: 40_000 };
        let mut sent = Sent::default();
        let syn_ack = from_server(500, SeqNumber(77), Flags::SYN | Flags::ACK, b"");
        let out = sent.by(|mut send| crowd.on_segment(nobody, &syn_ack, Nanos::ZERO, &mut send));
        assert_eq!(out, [(Flags::RST, vec![])]);
        assert_eq!(sent.0[0].2, SeqNumber(77), "the reset takes its sequence number from the ACK");
    }

    #[test]
    fn stopped_run_gives_every_open_attempt_a_cause() {
        let mut crowd = crowd(Close::Reset);
        started(&mut crowd);
        crowd.stop(Nanos::from_millis(50), Nanos::ZERO);
        let summary = summary(&crowd);
        assert_eq!((summary.offered, summary.unfinished), (1, 1));
    }

    #[test]
    fn live_connection_fits_256_bytes() {
        const { assert!(Crowd::BYTES_PER_CONNECTION <= 256) };
    }
}
