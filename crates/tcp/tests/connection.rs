//! Behaviours of a client connection, as scripts: time, segment in, segments out.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tcp::{Change, Close, Connection, LINUX, State};
use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber};

const STREAM: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const LEN: u32 = STREAM.len() as u32;
/// Near the end of the sequence space, so that every script crosses the wrap.
const ISS: SeqNumber = SeqNumber(u32::MAX - 3);
const PEER: u32 = 5000;

const SYN: Flags = Flags::SYN;
const ACK: Flags = Flags::ACK;
const FIN: Flags = Flags::FIN;
const RST: Flags = Flags::RST;
const PSH: Flags = Flags::PSH;

/// A connection with what it sent and what it told.
struct Script {
    connection: Connection,
    now: Nanos,
    out: Vec<String>,
    /// That the peer offers, bytes.
    window: u16,
}

impl Script {
    /// The SYN is out at time zero.
    fn connecting() -> Self {
        let mut out = Vec::new();
        let connection =
            Connection::connect(&LINUX, ISS, Nanos::ZERO, &mut |segment| out.push(show(segment)));
        assert_eq!(out, ["[S] 0:0"]);
        Self { connection, now: Nanos::ZERO, out: Vec::new(), window: 65_535 }
    }

    /// The handshake took 1 ms; nothing was sent yet.
    fn established() -> Self {
        let mut script = Self::connecting();
        script.now = Nanos::from_millis(1);
        assert_eq!(script.hear(SYN | ACK, 0, 1, b""), (Change::Established, 0));
        script.sends(&["[.] 1:1 ack 1"]);
        script
    }

    /// The request is out and acknowledged.
    fn asked() -> Self {
        let mut script = Self::established();
        script.transmit();
        script.hear(ACK, 1, 1 + LEN, b"");
        script.out.clear();
        script
    }

    /// Numbers are relative to the initial sequence numbers. Gives the change and the bytes delivered.
    fn hear(&mut self, flags: Flags, seq: u32, ack: u32, payload: &[u8]) -> (Change, usize) {
        let seq = SeqNumber(PEER) + seq;
        let window = self.window;
        let segment = Segment { seq, ack: ISS + ack, flags, window, options: Options::mss(1460), payload };
        let out = &mut self.out;
        let heard =
            self.connection.on_segment(&LINUX, &segment, self.now, &mut |segment| out.push(show(segment)));
        (heard.change, heard.data.len())
    }

    fn transmit(&mut self) {
        let out = &mut self.out;
        self.connection.transmit(&LINUX, STREAM, self.now, &mut |segment| out.push(show(segment)));
    }

    fn close(&mut self, how: Close) {
        let out = &mut self.out;
        self.connection.close(&LINUX, how, self.now, &mut |segment| out.push(show(segment)));
    }

    /// Runs the clock to `until` and gives when something was sent, in milliseconds.
    fn run(&mut self, until: Nanos) -> Vec<u64> {
        let mut sent_at = Vec::new();
        while self.connection.deadline() <= until {
            self.now = self.connection.deadline();
            let before = self.out.len();
            let out = &mut self.out;
            self.connection.on_deadline(&LINUX, STREAM, self.now, &mut |segment| out.push(show(segment)));
            if self.out.len() > before {
                sent_at.push(self.now.0 / 1_000_000);
            }
        }
        self.now = until;
        sent_at
    }

    /// Everything that was sent since the last look, and nothing more.
    #[track_caller]
    fn sends(&mut self, expected: &[&str]) {
        assert_eq!(std::mem::take(&mut self.out), expected);
    }
}

/// As tcpdump: flags, relative sequence numbers, ack.
fn show(segment: &Segment<'_>) -> String {
    // A reset for a segment without an ACK has sequence number 0, not a relative one.
    let seq = if segment.seq == SeqNumber(0) { 0 } else { segment.seq - ISS };
    let end = seq + segment.payload.len() as u32;
    let ack = if segment.flags.has(ACK) {
        format!(" ack {}", segment.ack - SeqNumber(PEER))
    } else {
        String::new()
    };
    format!("{:?} {seq}:{end}{ack}", segment.flags)
}

#[test]
fn handshake_then_request_in_a_segment_of_its_own() {
    let mut script = Script::established();
    script.transmit();
    script.sends(&[&format!("[P.] 1:{} ack 1", 1 + LEN)]);
    script.transmit();
    script.sends(&[]);
}

#[test]
fn closed_window_is_probed_until_it_opens() {
    let mut script = Script::connecting();
    (script.window, script.now) = (0, Nanos::from_millis(1));
    script.hear(SYN | ACK, 0, 1, b"");
    script.transmit();
    script.sends(&["[.] 1:1 ack 1"]);
    assert_eq!(script.run(Nanos::from_secs(2)), [202, 604, 1408]);
    script.sends(&["[.] 0:0 ack 1"; 3]);
    script.window = 65_535;
    script.hear(ACK, 1, 1, b"");
    script.transmit();
    let request = format!("[P.] 1:{} ack 1", 1 + LEN);
    script.sends(&[&request]);
    assert_eq!(script.run(Nanos::from_millis(2300)), [2201], "as a first retransmission");
    script.sends(&[&request]);
}

#[test]
fn reset_to_the_syn_refuses_and_a_blind_reset_does_not() {
    let mut script = Script::connecting();
    assert_eq!(script.hear(RST | ACK, 0, 77, b""), (Change::None, 0));
    assert_eq!(script.hear(RST, 0, 1, b"").0, Change::None, "a RST without an ACK proves nothing");
    assert_eq!(script.hear(RST | ACK, 0, 1, b""), (Change::Refused, 0));
    assert_eq!(script.connection.state(), State::Closed);
    script.sends(&[]);
}

#[test]
fn challenge_ack_of_an_old_connection_is_reset_and_the_syn_goes_on() {
    let mut script = Script::connecting();
    assert_eq!(script.hear(ACK, 900, 3000, b""), (Change::None, 0));
    script.sends(&["[R] 3000:3000"]);
    assert_eq!(script.connection.state(), State::SynSent);
    assert_eq!(script.run(Nanos::from_millis(1500)), [1000]);
    script.sends(&["[S] 0:0"]);
}

#[test]
fn lost_request_is_resent_with_doubling_timeouts_that_begin_at_the_measured_one() {
    let mut script = Script::established();
    script.transmit();
    // Round trip 1 ms: 201 ms, then doubled; counted from 1 ms.
    assert_eq!(script.run(Nanos::from_secs(4)), [202, 604, 1408, 3016]);
    let request = format!("[P.] 1:{} ack 1", 1 + LEN);
    script.sends(&[request.as_str(); 5]);
}

#[test]
fn repeated_syn_ack_is_acknowledged_again() {
    let mut script = Script::established();
    assert_eq!(script.hear(SYN | ACK, 0, 1, b""), (Change::None, 0));
    script.sends(&["[.] 1:1 ack 1"]);
}

#[test]
fn single_data_segment_is_acknowledged_after_the_delay_and_two_at_once() {
    let mut script = Script::asked();
    assert_eq!(script.hear(ACK, 1, 1 + LEN, b"abc"), (Change::None, 3));
    script.sends(&[]);
    assert_eq!(script.run(Nanos::from_millis(100)), [41]);
    script.sends(&[&format!("[.] {0}:{0} ack 4", 1 + LEN)]);
    script.hear(ACK, 4, 1 + LEN, b"d");
    script.hear(ACK, 5, 1 + LEN, b"e");
    script.sends(&[&format!("[.] {0}:{0} ack 6", 1 + LEN)]);
}

#[test]
fn segment_out_of_order_is_not_delivered_and_asked_for_again() {
    let mut script = Script::asked();
    assert_eq!(script.hear(ACK, 11, 1 + LEN, b"later"), (Change::None, 0));
    script.sends(&[&format!("[.] {0}:{0} ack 1", 1 + LEN)]);
    assert_eq!(script.hear(ACK, 1, 1 + LEN, b"0123456789"), (Change::None, 10));
}

#[test]
fn close_by_fin_ends_when_both_fins_are_acknowledged() {
    let mut script = Script::asked();
    script.hear(ACK, 1, 1 + LEN, b"reply");
    script.close(Close::Fin);
    script.sends(&[&format!("[F.] {0}:{0} ack 6", 1 + LEN)]);
    assert_eq!(script.hear(ACK, 6, 2 + LEN, b""), (Change::None, 0));
    assert_eq!(script.connection.state(), State::FinWait2);
    assert_eq!(script.hear(FIN | ACK, 6, 2 + LEN, b""), (Change::Closed, 0));
    script.sends(&[&format!("[.] {0}:{0} ack 7", 2 + LEN)]);
    assert_eq!(script.connection.deadline(), Nanos::MAX);
}

#[test]
fn peer_that_closes_first_gets_our_fin_with_its_ack() {
    let mut script = Script::asked();
    assert_eq!(script.hear(FIN | PSH | ACK, 1, 1 + LEN, b"reply"), (Change::PeerClosed, 5));
    script.close(Close::Fin);
    script.sends(&[&format!("[F.] {0}:{0} ack 7", 1 + LEN)]);
    assert_eq!(script.hear(ACK, 7, 2 + LEN, b""), (Change::Closed, 0));
}

#[test]
fn fins_that_cross_end_in_closing_and_then_closed() {
    let mut script = Script::asked();
    script.close(Close::Fin);
    assert_eq!(script.hear(FIN | ACK, 1, 1 + LEN, b""), (Change::PeerClosed, 0));
    assert_eq!(script.connection.state(), State::Closing);
    assert_eq!(script.hear(ACK, 2, 2 + LEN, b""), (Change::Closed, 0));
}

#[test]
fn abortive_close_sends_one_reset_and_nothing_after() {
    let mut script = Script::asked();
    script.close(Close::Reset);
    script.sends(&[&format!("[R.] {0}:{0} ack 1", 1 + LEN)]);
    assert_eq!(script.run(Nanos::from_secs(300)), [0; 0]);
}

#[test]
fn data_after_the_application_closed_is_answered_by_a_reset() {
    let mut script = Script::asked();
    script.close(Close::Fin);
    script.out.clear();
    assert_eq!(script.hear(ACK, 1, 2 + LEN, b"too late"), (Change::Closed, 0));
    script.sends(&[&format!("[R] {0}:{0}", 2 + LEN)]);
}

#[test]
fn lost_fin_is_resent() {
    let mut script = Script::asked();
    script.close(Close::Fin);
    script.out.clear();
    assert_eq!(script.run(Nanos::from_millis(700)).len(), 2);
    let fin = format!("[F.] {0}:{0} ack 1", 1 + LEN);
    script.sends(&[fin.as_str(); 2]);
}

#[test]
fn reset_ends_at_the_next_sequence_number_only() {
    let mut script = Script::asked();
    assert_eq!(script.hear(RST, 9, 0, b""), (Change::None, 0));
    script.sends(&[&format!("[.] {0}:{0} ack 1", 1 + LEN)]);
    assert_eq!(script.hear(RST, 1, 0, b""), (Change::Reset, 0));
}

#[test]
fn unanswered_syn_gives_up_after_131_seconds() {
    let mut script = Script::connecting();
    let sent_at = script.run(Nanos::from_secs(200));
    assert_eq!(sent_at.last(), Some(&67_000));
    assert_eq!(script.connection.state(), State::Closed);
    assert!(!script.connection.has_connected());
}

/// Whatever arrives: no panic, a timer while something is unfinished, and nothing after the end.
#[test]
fn arbitrary_segments_never_panic_and_never_leave_a_connection_stuck() {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    for _ in 0..2_000 {
        let mut script = if random.random() { Script::established() } else { Script::connecting() };
        for _ in 0..random.random_range(1..40) {
            script.transmit();
            script.now += Nanos::from_millis(random.random_range(0..300));
            let near = |random: &mut Pcg64Mcg| random.random_range(0..64u32).wrapping_sub(8);
            let (seq, ack) = (near(&mut random), near(&mut random));
            let payload = &[0; 16][..random.random_range(0..16)];
            script.hear(Flags(random.random_range(0..32)), seq, ack, payload);
            if random.random_ratio(1, 10) {
                script.close(if random.random() { Close::Fin } else { Close::Reset });
            }
            script.run(script.now);
            let waits =
                matches!(script.connection.state(), State::Established | State::CloseWait | State::Closed);
            let has_timer = script.connection.deadline() != Nanos::MAX;
            assert!(waits || has_timer, "{} without a timer", script.connection.state());
            assert!(script.connection.state() != State::Closed || !has_timer, "a timer after the end");
        }
        script.close(Close::Fin);
        script.run(Nanos::from_secs(100_000));
        assert_eq!(script.connection.state(), State::Closed, "every close comes to an end");
    }
}
