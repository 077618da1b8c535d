//! Behaviours of a client connection, as scripts: time, segment in, segments out.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tcp::{Change, Close, Connection, Heard, LINUX, STACKS, Stack, State};
use units::Nanos;
use wire::{Flags, Options, Segment, SeqNumber, Timestamps};

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
    stack: &'static Stack,
    connection: Connection,
    now: Nanos,
    out: Vec<String>,
    /// That the peer offers, bytes.
    window: u16,
    /// What its segments carry.
    options: Options,
}

impl Script {
    /// The SYN is out at time zero.
    fn connecting() -> Self {
        Self::connecting_as("linux")
    }

    fn connecting_as(stack: &str) -> Self {
        let stack = Stack::by_name(stack).expect("a stack");
        let mut out = Vec::new();
        let connection =
            Connection::connect(stack, ISS, 0, Nanos::ZERO, &mut |segment| out.push(show(segment)));
        assert_eq!(out, ["[S] 0:0"]);
        let options = Options::mss(1460);
        Self { stack, connection, now: Nanos::ZERO, out: Vec::new(), window: 65_535, options }
    }

    /// With a peer that offers all that a stack has.
    fn established_with_options() -> Self {
        let mut script = Self::connecting();
        script.now = Nanos::from_millis(1);
        let timestamps = Some(Timestamps { value: 500, echo: 0 });
        script.options =
            Options { window_scale: Some(3), sack_permitted: true, timestamps, ..Options::mss(1460) };
        script.hear(SYN | ACK, 0, 1, b"");
        script.options = Options { timestamps, ..Options::NONE };
        script.out.clear();
        script
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

    /// Numbers are relative to the initial sequence numbers. Gives the change and the bytes
    /// delivered.
    fn hear(&mut self, flags: Flags, seq: u32, ack: u32, payload: &[u8]) -> (Change, usize) {
        let Heard { data, then, change } = self.hear_all(flags, seq, ack, payload);
        (change, data.len() + then.len())
    }

    fn hear_all<'a>(&mut self, flags: Flags, seq: u32, ack: u32, payload: &'a [u8]) -> Heard<'a> {
        let Self { window, options, .. } = *self;
        let segment = Segment { seq: SeqNumber(PEER) + seq, ack: ISS + ack, flags, window, options, payload };
        let out = &mut self.out;
        self.connection.on_segment(self.stack, &segment, self.now, &mut |segment| out.push(show(segment)))
    }

    fn transmit(&mut self) {
        let out = &mut self.out;
        self.connection.transmit(self.stack, STREAM, self.now, &mut |segment| out.push(show(segment)));
    }

    fn close(&mut self, how: Close) {
        let out = &mut self.out;
        self.connection.close(self.stack, how, self.now, &mut |segment| out.push(show(segment)));
    }

    /// Runs the clock to `until` and gives when something was sent, in milliseconds.
    fn run(&mut self, until: Nanos) -> Vec<u64> {
        let mut sent_at = Vec::new();
        while self.connection.deadline() <= until {
            self.now = self.connection.deadline();
            let before = self.out.len();
            let out = &mut self.out;
            self.connection.on_deadline(self.stack, STREAM, self.now, &mut |segment| out.push(show(segment)));
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
    let blocks: String = segment
        .options
        .sack
        .as_slice()
        .iter()
        .map(|(from, to)| format!(" sack {}:{}", *from - SeqNumber(PEER), *to - SeqNumber(PEER)))
        .collect();
    format!("{:?} {seq}:{end}{ack}{blocks}", segment.flags)
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
fn linux_acknowledges_the_first_sixteen_segments_at_once_and_then_every_second() {
    let mut script = Script::asked();
    for n in 0..16 {
        assert_eq!(script.hear(ACK, 1 + n, 1 + LEN, b"x"), (Change::None, 1));
        script.sends(&[&format!("[.] {0}:{0} ack {1}", 1 + LEN, 2 + n)]);
    }
    script.hear(ACK, 17, 1 + LEN, b"d");
    script.sends(&[]);
    assert_eq!(script.run(Nanos::from_millis(100)), [41]);
    script.sends(&[&format!("[.] {0}:{0} ack 18", 1 + LEN)]);
    script.hear(ACK, 18, 1 + LEN, b"e");
    script.hear(ACK, 19, 1 + LEN, b"f");
    script.sends(&[&format!("[.] {0}:{0} ack 20", 1 + LEN)]);
}

#[test]
fn segment_out_of_order_waits_for_its_turn() {
    let mut script = Script::asked();
    assert_eq!(script.hear(ACK, 11, 1 + LEN, b"later"), (Change::None, 0));
    script.sends(&[&format!("[.] {0}:{0} ack 1", 1 + LEN)]);
    let heard = script.hear_all(ACK, 1, 1 + LEN, b"0123456789");
    assert_eq!((heard.data, heard.then.as_slice()), (&b"0123456789"[..], &b"later"[..]));
    script.sends(&[&format!("[.] {0}:{0} ack 16", 1 + LEN)]);
}

#[test]
fn holes_are_said_where_the_peer_asked_for_it() {
    let mut script = Script::established_with_options();
    script.hear(ACK, 11, 1, b"later");
    script.hear(ACK, 21, 1, b"last");
    script.sends(&["[.] 1:1 ack 1 sack 11:16", "[.] 1:1 ack 1 sack 21:25 sack 11:16"]);
    assert_eq!(script.hear(ACK, 1, 1, b"0123456789"), (Change::None, 15));
    script.sends(&["[.] 1:1 ack 16 sack 21:25"]);
    assert_eq!(script.hear(ACK, 1, 1, b"012"), (Change::None, 0), "again");
    script.sends(&["[.] 1:1 ack 16 sack 1:4 sack 21:25"]);
}

#[test]
fn of_a_segment_that_is_partly_old_the_rest_is_delivered() {
    let mut script = Script::asked();
    script.hear(ACK, 1, 1 + LEN, b"0123");
    let heard = script.hear_all(FIN | ACK, 3, 1 + LEN, b"2345");
    assert_eq!((heard.data, heard.change), (&b"45"[..], Change::PeerClosed));
}

#[test]
fn fin_before_its_turn_counts_when_the_data_are_there() {
    let mut script = Script::asked();
    assert_eq!(script.hear(FIN | ACK, 4, 1 + LEN, b"def"), (Change::None, 0));
    assert_eq!(script.hear(ACK, 1, 1 + LEN, b"abc"), (Change::PeerClosed, 6));
    assert_eq!(script.connection.state(), State::CloseWait);
}

#[test]
fn data_beyond_the_window_are_not_kept() {
    let mut script = Script::asked();
    script.hear(ACK, 1 + u32::from(LINUX.window), 1 + LEN, b"beyond");
    script.sends(&[&format!("[.] {0}:{0} ack 1", 1 + LEN)]);
    script.hear(ACK, u32::from(LINUX.window) - 2, 1 + LEN, b"abcdef");
    assert_eq!(script.hear(ACK, 1, 1 + LEN, &vec![0; usize::from(LINUX.window) - 3]).1, 64_240);
}

#[test]
fn half_closed_connection_sends_its_fin_behind_the_stream_and_reads_on() {
    let mut script = Script::established();
    let out = &mut script.out;
    script.connection.half_close(script.stack, STREAM, script.now, &mut |segment| out.push(show(segment)));
    script.sends(&[&format!("[P.] 1:{} ack 1", 1 + LEN), &format!("[F.] {0}:{0} ack 1", 1 + LEN)]);
    script.hear(ACK, 1, 2 + LEN, b"");
    assert_eq!(script.connection.state(), State::FinWait2);
    assert_eq!(script.connection.deadline(), Nanos::MAX, "it may take as long as it likes");
    assert_eq!(script.hear(ACK, 1, 2 + LEN, b"reply"), (Change::None, 5));
    assert_eq!(script.hear(FIN | ACK, 6, 2 + LEN, b""), (Change::Closed, 0));
}

#[test]
fn next_stream_begins_when_the_last_was_acknowledged() {
    let mut script = Script::established();
    script.transmit();
    assert!(!script.connection.next_stream());
    script.hear(ACK, 1, 1 + LEN, b"reply");
    assert!(script.connection.next_stream());
    script.out.clear();
    script.transmit();
    script.sends(&[&format!("[P.] {}:{} ack 6", 1 + LEN, 1 + 2 * LEN)]);
}

#[test]
fn windows_of_a_peer_that_scales_are_scaled_but_in_its_syn() {
    let mut script = Script::connecting();
    script.window = 4;
    script.options = Options { window_scale: Some(3), ..Options::mss(1460) };
    script.hear(SYN | ACK, 0, 1, b"");
    script.out.clear();
    script.transmit();
    script.sends(&["[.] 1:5 ack 1"]);
    script.options = Options::NONE;
    script.hear(ACK, 1, 5, b"");
    script.transmit();
    script.sends(&[&format!("[P.] 5:{} ack 1", 1 + LEN)]);
}

#[test]
fn segment_with_an_old_timestamp_is_answered_and_not_taken() {
    let mut script = Script::established_with_options();
    script.options.timestamps = Some(Timestamps { value: 499, echo: 0 });
    assert_eq!(script.hear(ACK, 1, 1, b"old"), (Change::None, 0));
    script.options.timestamps = Some(Timestamps { value: 501, echo: 0 });
    assert_eq!(script.hear(ACK, 1, 1, b"new"), (Change::None, 3));
}

#[test]
fn echoed_timestamp_times_what_was_sent_twice() {
    let mut script = Script::connecting();
    assert_eq!(script.run(Nanos::from_millis(1500)), [1000]);
    script.out.clear();
    script.options = Options { timestamps: Some(Timestamps { value: 1, echo: 1000 }), ..Options::mss(1460) };
    script.now = Nanos::from_millis(1600);
    script.hear(SYN | ACK, 0, 1, b"");
    script.transmit();
    assert_eq!(script.run(Nanos::from_millis(3500)), [3400], "600 ms and four times half of it");
}

/// RFC 6298 section 5.7.
#[test]
fn without_timestamps_a_second_syn_makes_the_first_timeout_three_seconds() {
    let mut script = Script::connecting();
    script.run(Nanos::from_millis(1500));
    script.out.clear();
    script.hear(SYN | ACK, 0, 1, b"");
    script.transmit();
    assert_eq!(script.run(Nanos::from_secs(5)), [4500]);
}

/// RFC 8985 section 7: the probe is no sign of congestion yet.
#[test]
fn tail_is_probed_once_before_timeouts_double() {
    let mut script = Script::established_with_options();
    script.transmit();
    assert_eq!(script.run(Nanos::from_secs(2)), [202, 403, 805, 1609]);
}

/// `[Shu05]` section 4.1.6.
#[test]
fn client_that_retries_after_a_reset_sends_its_syn_again_at_once_and_then_gives_up() {
    for (stack, retries) in [("win-emu", 3), ("windows-nt", 3), ("windows-xp", 2), ("linux-2.4", 0)] {
        let mut script = Script::connecting_as(stack);
        for _ in 0..retries {
            assert_eq!(script.hear(RST | ACK, 0, 1, b"").0, Change::None, "{stack}");
            script.sends(&["[S] 0:0"]);
        }
        assert_eq!(script.hear(RST | ACK, 0, 1, b"").0, Change::Refused, "{stack}");
        assert_eq!(script.connection.syns_sent(), retries + 1);
    }
}

#[test]
fn client_that_pauses_after_a_reset_sends_its_syn_again_then() {
    let mut script = Script::connecting_as("windows-10");
    assert_eq!(script.hear(RST | ACK, 0, 1, b"").0, Change::None);
    script.sends(&[]);
    assert_eq!(script.run(Nanos::from_millis(1000)), [500]);
    assert_eq!(script.hear(RST | ACK, 0, 1, b"").0, Change::None);
    // Half a second later again; the schedule of what nobody answers goes on from there.
    assert_eq!(script.run(Nanos::from_secs(100)), [1500, 2500, 4500, 8500, 16_500]);
    assert_eq!(script.connection.state(), State::Closed);
}

#[test]
fn every_stack_offers_what_it_has() {
    let syn = |stack: &Stack| {
        let mut options = None;
        Connection::connect(stack, ISS, 9, Nanos::ZERO, &mut |segment| options = Some(segment.options));
        options.expect("a SYN")
    };
    for stack in STACKS {
        let options = syn(stack);
        assert_eq!(options.mss, Some(1460), "{}", stack.name);
        assert_eq!(options.window_scale, stack.window_scale, "{}", stack.name);
        assert_eq!(options.sack_permitted, stack.sack, "{}", stack.name);
        let clock = stack.timestamps.then_some(Timestamps { value: 9, echo: 0 });
        assert_eq!(options.timestamps, clock, "{}", stack.name);
    }
}

#[test]
fn close_by_fin_ends_when_both_fins_are_acknowledged() {
    let mut script = Script::asked();
    script.hear(ACK, 1, 1 + LEN, b"reply");
    script.close(Close::Fin);
    script.sends(&[&format!("[.] {0}:{0} ack 6", 1 + LEN), &format!("[F.] {0}:{0} ack 6", 1 + LEN)]);
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
fn swap_answers_the_last_ack_by_a_reset_and_is_in_time_wait() {
    let mut script = Script::asked();
    script.connection.keep_time_wait(60);
    script.hear(FIN | ACK, 1, 1 + LEN, b"");
    script.close(Close::Swap);
    script.out.clear();
    script.run(Nanos::from_millis(600));
    script.sends(&[&format!("[F.] {0}:{0} ack 2", 1 + LEN)]);
    assert_eq!(script.hear(ACK, 2, 2 + LEN, b""), (Change::Closed, 0));
    script.sends(&[&format!("[R] {0}:{0}", 2 + LEN)]);
    assert_eq!(script.connection.in_time_wait(script.now), Some(Nanos::ZERO));
    script.run(Nanos::from_secs(61));
    assert_eq!(script.connection.state(), State::Closed);
}

#[test]
fn swap_of_who_closes_first_is_a_close_as_ever() {
    let mut script = Script::asked();
    script.close(Close::Swap);
    script.hear(ACK, 1, 2 + LEN, b"");
    script.out.clear();
    assert_eq!(script.hear(FIN | ACK, 1, 2 + LEN, b""), (Change::Closed, 0));
    script.sends(&[&format!("[.] {0}:{0} ack 2", 2 + LEN)]);
}

#[test]
fn time_wait_acknowledges_again_and_ends_by_a_reset_or_in_time() {
    for ends_by_reset in [true, false] {
        let mut script = Script::asked();
        script.connection.keep_time_wait(60);
        script.close(Close::Fin);
        script.hear(ACK, 1, 2 + LEN, b"");
        assert_eq!(script.hear(FIN | ACK, 1, 2 + LEN, b""), (Change::Closed, 0));
        script.out.clear();
        script.run(Nanos::from_secs(10));
        assert_eq!(script.hear(FIN | ACK, 1, 2 + LEN, b""), (Change::None, 0), "its ACK was lost");
        script.sends(&[&format!("[.] {0}:{0} ack 2", 2 + LEN)]);
        script.close(Close::Reset);
        script.hear(RST, 7, 0, b"");
        assert_eq!(script.connection.state(), State::TimeWait);
        if ends_by_reset {
            script.hear(RST, 2, 0, b"");
        } else {
            script.run(Nanos::from_millis(69_999));
            assert_eq!(script.connection.state(), State::TimeWait, "since the FIN that came again");
            script.run(Nanos::from_secs(70));
        }
        assert_eq!((script.connection.state(), script.connection.deadline()), (State::Closed, Nanos::MAX));
        script.sends(&[]);
    }
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

/// How long arbitrary segments are sent, seconds: a moment, unless it says otherwise.
const FUZZ: &str = "TIDEGATE_FUZZ_SECONDS";

/// Whatever arrives: no panic, a timer while something is unfinished, and nothing after the end.
/// With `TIDEGATE_FUZZ_SECONDS` for so long.
#[test]
fn arbitrary_segments_never_panic_and_never_leave_a_connection_stuck() {
    let seconds: u64 = std::env::var(FUZZ).map_or(0, |text| text.parse().expect("whole seconds"));
    let (start, mut rounds) = (std::time::Instant::now(), 0_u64);
    let mut random = Pcg64Mcg::seed_from_u64(seconds);
    while rounds < 4_000 || start.elapsed().as_secs() < seconds {
        rounds += 1;
        let stack = STACKS[random.random_range(0..STACKS.len())].name;
        let mut script = match random.random_range(0..3) {
            0 => Script::connecting_as(stack),
            1 => Script::established(),
            _ => Script::established_with_options(),
        };
        let (mut clock, mut is_closed) = (500u32, false);
        for _ in 0..random.random_range(1..40) {
            script.transmit();
            script.now += Nanos::from_millis(random.random_range(0..300));
            let near = |random: &mut Pcg64Mcg| random.random_range(0..64u32).wrapping_sub(8);
            let (seq, ack) = (near(&mut random), near(&mut random));
            let payload = &[0; 16][..random.random_range(0..16)];
            clock = clock.wrapping_add(random.random_range(0..8)).wrapping_sub(2);
            script.options = Options {
                timestamps: random
                    .random::<bool>()
                    .then_some(Timestamps { value: clock, echo: random.random() }),
                window_scale: random.random::<bool>().then(|| random.random()),
                sack_permitted: random.random(),
                mss: random.random::<bool>().then(|| random.random()),
                ..Options::NONE
            };
            script.hear(Flags(random.random_range(0..32)), seq, ack, payload);
            if random.random_ratio(1, 20) {
                let Script { connection, stack, now, out, .. } = &mut script;
                connection.half_close(stack, STREAM, *now, &mut |segment| out.push(show(segment)));
            }
            if random.random_ratio(1, 10) {
                is_closed = true;
                script.close(if random.random() { Close::Fin } else { Close::Reset });
            }
            script.run(script.now);
            let state = script.connection.state();
            let waits = matches!(state, State::Established | State::CloseWait | State::Closed)
                || (state == State::FinWait2 && !is_closed); // half-closed, and reading
            let has_timer = script.connection.deadline() != Nanos::MAX;
            assert!(waits || has_timer, "{} without a timer", script.connection.state());
            assert!(script.connection.state() != State::Closed || !has_timer, "a timer after the end");
        }
        script.close(Close::Fin);
        script.run(Nanos::from_secs(100_000));
        assert_eq!(script.connection.state(), State::Closed, "every close comes to an end");
    }
}
