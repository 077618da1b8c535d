//! A sender of a large stream against a peer that says what it is told to: what leaves, and when.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tcp::{Algorithm, Change, Close, Connection, Control, Handshake, LINUX, STACKS, Stack, State, Zeros};
use units::Nanos;
use wire::{Flags, Options, SackBlocks, Segment, SeqNumber, Timestamps};

const MSS: u32 = 1000;
/// So that the second segment crosses the wrap.
const ISS: SeqNumber = SeqNumber(u32::MAX - 1500);
const PEER: SeqNumber = SeqNumber(70_000);
/// Of what has no measured round trip.
const STACK: Stack = Stack {
    mss: 1000,
    initial_window: 4,
    window: 60_000,
    timestamps: false,
    tail_loss_probe: false,
    data_retries: 5,
    ..LINUX
};

/// A server's end, with what it sends.
struct Script {
    stack: Stack,
    connection: Connection,
    now: Nanos,
    stream: Zeros,
    out: Vec<String>,
    /// That the peer offers, bytes.
    window: u16,
}

impl Script {
    fn new(stream: u64) -> Self {
        Self::with(STACK, stream, true)
    }

    /// The handshake took 100 ms: a timeout is 300 ms at first.
    fn with(stack: Stack, stream: u64, waits_for_more: bool) -> Self {
        let options = Options { sack_permitted: true, ..Options::mss(1000) };
        let syn = Segment {
            seq: PEER,
            ack: SeqNumber(0),
            flags: Flags::SYN,
            window: 60_000,
            options,
            payload: &[],
        };
        let handshake = Handshake::begin(&syn, ISS, Nanos::ZERO);
        let now = Nanos::from_millis(100);
        let mut connection = handshake.established(&stack, 0, now);
        connection.control(Control { algorithm: Algorithm::NewReno, waits_for_more });
        let mut script =
            Self { stack, connection, now, stream: Zeros(stream), out: Vec::new(), window: 60_000 };
        script.hear(0, &[]);
        script
    }

    /// An acknowledgment of so many bytes of the stream, and of these pieces of it.
    fn hear(&mut self, acked: u32, pieces: &[(u32, u32)]) {
        let mut options = Options::NONE;
        pieces.iter().for_each(|(from, to)| options.sack.push(ISS + 1 + *from, ISS + 1 + *to));
        let window = self.window;
        let ack =
            Segment { seq: PEER + 1, ack: ISS + 1 + acked, flags: Flags::ACK, window, options, payload: &[] };
        let Self { stack, connection, now, stream, out, .. } = self;
        let send = &mut |segment: &Segment<'_>| out.push(show(segment));
        let heard = connection.on_segment(stack, &ack, *now, send);
        assert_eq!(heard.change, Change::None);
        connection.transmit(stack, stream, *now, send);
    }

    /// The application writes so much more.
    fn write(&mut self, bytes: u64) {
        self.stream.0 += bytes;
        let Self { stack, connection, now, stream, out, .. } = self;
        connection.transmit(stack, stream, *now, &mut |segment| out.push(show(segment)));
    }

    fn half_close(&mut self) {
        let Self { stack, connection, now, stream, out, .. } = self;
        connection.half_close(stack, stream, *now, &mut |segment| out.push(show(segment)));
    }

    fn wait(&mut self, millis: u64) {
        self.now += Nanos::from_millis(millis);
    }

    /// Runs the clock so far and gives when something was sent, in milliseconds since the
    /// handshake.
    fn run(&mut self, millis: u64) -> Vec<u64> {
        let until = self.now + Nanos::from_millis(millis);
        let mut sent_at = Vec::new();
        while self.connection.deadline() <= until {
            self.now = self.connection.deadline();
            let before = self.out.len();
            let Self { stack, connection, now, stream, out, .. } = self;
            connection.on_deadline(stack, stream, *now, &mut |segment| out.push(show(segment)));
            if self.out.len() > before {
                sent_at.push(self.now.0 / 1_000_000 - 100);
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

    fn window(&self) -> u32 {
        self.connection.path_state().expect("a controlled sender").window / MSS
    }
}

/// Where in the stream, and flags other than ACK.
fn show(segment: &Segment<'_>) -> String {
    let from = segment.seq - (ISS + 1);
    let flags = format!("{}", segment.flags).replace('.', "");
    let space = if flags.is_empty() { "" } else { " " };
    format!("{flags}{space}{from}+{}", segment.payload.len())
}

#[test]
fn window_begins_as_the_stack_says_and_doubles_each_round_trip() {
    let mut script = Script::new(1_000_000);
    script.sends(&["0+1000", "1000+1000", "2000+1000", "3000+1000"]);
    script.hear(1000, &[]);
    script.sends(&["4000+1000", "5000+1000"]);
    script.hear(3000, &[]);
    script.sends(&["6000+1000", "7000+1000", "8000+1000", "9000+1000"]);
    assert_eq!(script.window(), 7);
}

/// RFC 3042 and RFC 5681 section 3.2.
#[test]
fn first_two_duplicates_let_new_segments_out_and_the_third_sends_the_lost_one_again() {
    let mut script = Script::new(1_000_000);
    script.out.clear();
    script.wait(100);
    script.hear(0, &[(1000, 2000)]);
    script.sends(&["4000+1000"]);
    script.hear(0, &[(1000, 3000)]);
    script.sends(&["5000+1000"]);
    script.hear(0, &[(1000, 4000)]);
    script.sends(&["0+1000"]);
    // Two are on their way, and the one that was sent again: the window of two is full.
    script.hear(0, &[(1000, 5000)]);
    script.sends(&[]);
    // The window is half of what it was, and grows by a segment for the two that have arrived
    // since.
    script.hear(6000, &[]);
    assert_eq!(script.window(), 3);
    script.sends(&["6000+1000", "7000+1000", "8000+1000"]);
}

/// RFC 6298 section 5: (1), (3), (5), (6).
#[test]
fn sending_does_not_put_the_timer_off_and_an_acknowledgment_does() {
    let mut script = Script::new(4000);
    script.out.clear();
    script.wait(150);
    script.write(1000); // the window is full
    script.hear(1000, &[]);
    script.sends(&["P 4000+1000"]);
    script.wait(100);
    script.write(1000);
    script.sends(&["P 5000+1000"]);
    // The round trip is 106 ms by now (100 and 150), its variation 50: 306 ms after the
    // acknowledgment, and then doubled.
    let sent_at = script.run(2100);
    script.sends(&["1000+1000", "1000+1000", "1000+1000"]);
    assert_eq!(sent_at, [456, 1068, 2293]);
}

#[test]
fn timeout_sends_all_again_in_slow_start_but_what_has_arrived() {
    let mut script = Script::new(6000);
    script.wait(100);
    script.hear(1000, &[]);
    script.out.clear();
    script.hear(1000, &[(3000, 4000)]);
    // A quarter of the round trip after it was overtaken, and when the timer goes off.
    assert_eq!(script.run(400), [127, 427]);
    script.sends(&["1000+1000", "1000+1000"]);
    assert_eq!(script.window(), 1);
    script.hear(2000, &[(3000, 4000)]);
    script.sends(&["2000+1000", "4000+1000"]);
    script.hear(5000, &[]);
    script.sends(&["P 5000+1000"]);
}

/// Karn: the timeout stays doubled until a segment that was sent once has been measured.
#[test]
fn timeout_stays_backed_off_until_a_round_trip_is_measured() {
    let mut script = Script::new(3000);
    let at = script.run(1000);
    assert_eq!(at, [300, 900]);
    script.out.clear();
    script.hear(1000, &[]);
    // Four times 300 ms.
    assert_eq!(script.run(1300), [1000 + 1200]);
}

#[test]
fn sender_gives_up_when_nobody_answers() {
    let mut script = Script::new(3000);
    assert_eq!(script.run(1_000_000).len(), 5);
    assert_eq!(script.connection.state(), State::Closed);
}

/// After a while, losses included: the scoreboard has grown to what it needs.
#[test]
fn nothing_is_allocated_for_a_segment() {
    let mut script = Script::new(u64::MAX);
    let mut acked = 0;
    let mut rounds = |script: &mut Script, count: u32| {
        for round in 0..count {
            let Script { stack, connection, now, stream, .. } = &mut *script;
            *now += Nanos::from_millis(100);
            let mut options = Options::NONE;
            if round % 16 < 4 {
                // One is lost, and what follows has arrived.
                options.sack.push(ISS + 1 + acked + 1000, ISS + 1 + acked + 2000 + 1000 * (round % 16));
            } else {
                acked += 1000;
            }
            let ack = ISS + 1 + acked;
            let segment =
                Segment { seq: PEER + 1, ack, flags: Flags::ACK, window: 60_000, options, payload: &[] };
            connection.on_segment(stack, &segment, *now, &mut |_| ());
            connection.transmit(stack, stream, *now, &mut |_| ());
        }
    };
    rounds(&mut script, 1000);
    let before = script.connection.path_state().expect("a controlled sender").counts;
    let allocated = allocation_counter::measure(|| rounds(&mut script, 10_000));
    let counts = script.connection.path_state().expect("a controlled sender").counts;
    assert!(counts.recoveries > before.recoveries + 100, "{counts:?}");
    assert_eq!(allocated.count_total, 0);
}

/// RFC 8985 section 7, of a tail of one segment: as without control.
#[test]
fn single_segment_is_probed_for_once_without_a_doubling() {
    let stack = Stack { tail_loss_probe: true, ..STACK };
    let mut script = Script::with(stack, 500, true);
    assert_eq!(script.run(2000), [300, 600, 1200]);
    assert_eq!(script.connection.path_state().map(|path| path.counts.timeouts), Some(2));
}

/// RFC 8985 section 7: after two round trips, with the last segment, from which it follows that the
/// one before is lost.
#[test]
fn lost_tail_is_probed_for_after_two_round_trips_and_costs_no_timeout() {
    let mut script = Script::with(Stack { tail_loss_probe: true, ..STACK }, 4000, true);
    script.wait(100);
    script.hear(2000, &[]);
    script.out.clear();
    assert_eq!(script.run(302), [100 + 200 + 2]);
    script.sends(&["P 3000+1000"]);
    script.hear(2000, &[(3000, 4000)]);
    script.sends(&["2000+1000"]);
    let counts = script.connection.path_state().expect("a controlled sender").counts;
    assert_eq!((counts.recoveries, counts.timeouts), (1, 0));
}

/// With something new where there is any; once, and then the timer goes off.
#[test]
fn probe_is_a_new_segment_if_there_is_one() {
    let mut script = Script::with(Stack { tail_loss_probe: true, ..STACK }, 5000, true);
    script.out.clear();
    assert_eq!(script.run(600), [202, 502]);
    script.sends(&["P 4000+1000", "0+1000"]);
}

/// RFC 8985 section 7.4.2: a loss that only the probe has repaired halves the window, unless the
/// peer says that the probe came twice.
#[test]
fn probe_that_repaired_a_loss_costs_what_the_loss_would_have() {
    for (twice, left) in [(&[][..], 4), (&[(3000, 4000)][..], 8)] {
        let mut script = Script::with(Stack { tail_loss_probe: true, ..STACK }, 4000, true);
        assert_eq!(script.run(250), [202]);
        script.hear(4000, twice);
        script.write(1000);
        script.hear(5000, &[]);
        assert_eq!(script.window(), left);
    }
}

/// RFC 896, as Linux has it.
#[test]
fn second_short_segment_waits_for_the_first_unless_the_program_wants_no_delay() {
    for (waits, then) in [(true, &[][..]), (false, &["P 100+100"][..])] {
        let mut script = Script::with(STACK, 0, waits);
        script.write(100);
        script.sends(&["P 0+100"]);
        script.write(100);
        script.sends(then);
        script.write(1500);
        script.sends(if waits { &["100+1000"] } else { &["200+1000", "P 1200+500"] });
        script.hear(100, &[]);
        script.sends(if waits { &["P 1100+600"] } else { &[] });
    }
}

#[test]
fn what_waits_goes_with_the_fin() {
    let mut script = Script::new(100);
    script.write(100);
    script.sends(&["P 0+100"]);
    script.half_close();
    script.sends(&["FP 100+100"]);
    assert_eq!(script.connection.state(), State::FinWait1);
    script.run(300);
    script.sends(&["F 0+200"]);
    script.hear(201, &[]);
    assert_eq!(script.connection.state(), State::FinWait2);
}

#[test]
fn fin_alone_is_sent_again_alone() {
    let mut script = Script::new(2000);
    script.half_close();
    script.sends(&["0+1000", "P 1000+1000", "F 2000+0"]);
    script.hear(2000, &[]);
    script.run(350);
    script.sends(&["F 2000+0"]);
}

/// RFC 2861, `tcp_slow_start_after_idle`.
#[test]
fn window_shrinks_to_the_initial_one_while_nothing_is_sent() {
    let mut script = Script::new(64_000);
    for acked in 1..=64 {
        script.hear(acked * 1000, &[]);
    }
    let before = script.window();
    assert!(before >= 32, "{before}");
    script.out.clear();
    script.wait(100_000);
    script.write(20_000);
    assert_eq!((script.out.len(), script.window()), (4, 4));
}

/// RFC 7661, `tcp_is_cwnd_limited()`.
#[test]
fn window_that_the_program_does_not_fill_does_not_grow() {
    let mut script = Script::new(0);
    for n in 0..50 {
        script.write(1000);
        script.wait(100);
        script.hear((n + 1) * 1000, &[]);
    }
    assert_eq!(script.window(), 4);
}

#[test]
fn closed_window_is_probed_and_silly_ones_are_waited_with() {
    let mut script = Script::new(10_000);
    script.out.clear();
    script.window = 0;
    script.hear(4000, &[]);
    assert_eq!(script.run(1100).len(), 2);
    script.sends(&["3999+0", "3999+0"]);
    script.window = 2300;
    script.hear(4000, &[]);
    script.sends(&["4000+1000", "5000+1000"]);
    script.window = 300;
    script.hear(6000, &[]);
    script.sends(&["6000+300"]);
}

#[test]
fn without_a_window_the_first_segment_alone_is_sent_again() {
    let mut script = Script::new(10_000);
    script.out.clear();
    script.window = 0;
    script.hear(1000, &[]);
    script.run(1100);
    script.sends(&["1000+1000", "1000+1000"]);
    script.hear(2000, &[]);
    script.sends(&["2000+1000"]);
}

/// `tcp_init_transfer()`: `docs/kernel.md` has the test against the kernel.
#[test]
fn handshake_that_was_lost_twice_begins_with_one_segment() {
    let syn = Segment {
        seq: PEER,
        ack: SeqNumber(0),
        flags: Flags::SYN,
        window: 60_000,
        options: Options::mss(1000),
        payload: &[],
    };
    let handshake = Handshake { sent_again: 2, ..Handshake::begin(&syn, ISS, Nanos::ZERO) };
    let mut connection = handshake.established(&STACK, 0, Nanos::ZERO);
    connection.control(Control { algorithm: Algorithm::Cubic, waits_for_more: true });
    let ack = Segment { seq: PEER + 1, ack: ISS + 1, flags: Flags::ACK, ..syn };
    connection.on_segment(&STACK, &ack, Nanos::ZERO, &mut |_| ());
    let mut sent = 0;
    connection.transmit(&STACK, &Zeros(9000), Nanos::ZERO, &mut |_| sent += 1);
    assert_eq!(sent, 1);
}

#[test]
fn next_stream_begins_where_the_last_ended() {
    let mut script = Script::new(1500);
    script.out.clear();
    assert!(!script.connection.next_stream());
    script.hear(1500, &[]);
    assert!(script.connection.next_stream());
    script.stream = Zeros(0);
    script.write(700);
    script.sends(&["P 1500+700"]);
}

/// A million connections that send requests have no room for more (`load.million_connections_mib`).
#[test]
fn uncontrolled_connection_pays_a_pointer() {
    assert!(size_of::<Connection>() <= 104, "{} bytes, and without control 96", size_of::<Connection>());
}

/// How long arbitrary segments are sent, seconds: a moment, unless it says otherwise.
const FUZZ: &str = "TIDEGATE_FUZZ_SECONDS";

/// Whatever is acknowledged, selectively or not: no panic, no more out than the windows let, a
/// timer while anything is out, and an end.
#[test]
fn arbitrary_acknowledgments_never_panic_and_never_leave_a_sender_stuck() {
    let seconds: u64 = std::env::var(FUZZ).map_or(0, |text| text.parse().expect("whole seconds"));
    let (start, mut rounds) = (std::time::Instant::now(), 0_u64);
    let mut random = Pcg64Mcg::seed_from_u64(seconds);
    while rounds < 4_000 || start.elapsed().as_secs() < seconds {
        rounds += 1;
        play(&mut random, rounds);
    }
}

fn play(random: &mut Pcg64Mcg, round: u64) {
    let stack = *STACKS[random.random_range(0..STACKS.len())];
    let algorithm = if random.random() { Algorithm::NewReno } else { Algorithm::Cubic };
    let timestamps = random.random::<bool>().then_some(Timestamps { value: 500, echo: 0 });
    let options = Options {
        mss: random.random::<bool>().then(|| random.random_range(0..2000)),
        window_scale: random.random::<bool>().then(|| random.random_range(0..16)),
        sack_permitted: random.random(),
        timestamps,
        ..Options::NONE
    };
    let syn = Segment {
        seq: PEER,
        ack: SeqNumber(0),
        flags: Flags::SYN,
        window: random.random(),
        options,
        payload: &[],
    };
    let mut now = Nanos::from_millis(5);
    let mut connection = Handshake::begin(&syn, ISS, Nanos::ZERO).established(&stack, 0, now);
    connection.control(Control { algorithm, waits_for_more: random.random() });
    let mut stream = Zeros(random.random_range(0..200_000));
    let mut clock = 500_u32;
    let (mut una, mut peer_next, mut is_closed) = (ISS + 1, PEER + 1, false);
    for _ in 0..random.random_range(1..80) {
        let next = connection.sends_next();
        let out = next - una;
        let near = |random: &mut Pcg64Mcg| match random.random_range(0..4) {
            0 => una + random.random_range(0..=out),
            1 => next,
            2 => una,
            _ => una + random.random_range(0..4000) + 2000_u32.wrapping_neg(),
        };
        let ack = near(random);
        let mut sack = SackBlocks::NONE;
        for _ in 0..random.random_range(0..5) {
            sack.push(near(random), near(random));
        }
        clock += random.random_range(0..3);
        let timestamps = timestamps.map(|_| Timestamps { value: clock, echo: random.random() });
        let options = Options { sack, timestamps, ..Options::NONE };
        let flags = if random.random_ratio(1, 300) { Flags(random.random_range(0..32)) } else { Flags::ACK };
        let payload = &[0; 16][..if random.random_ratio(1, 8) { random.random_range(0..16) } else { 0 }];
        let window = if random.random_ratio(1, 8) { random.random_range(0..3) } else { random.random() };
        let segment = Segment { seq: peer_next, ack, flags, window, options, payload };
        let before = connection.sends_next();
        let (mut sent, mut is_new) = (0, false);
        let mut send = |segment: &Segment<'_>| {
            sent += segment.payload.len();
            is_new |= !segment.payload.is_empty() && before <= segment.seq;
            assert!(segment.payload.len() <= 2000);
        };
        connection.on_segment(&stack, &segment, now, &mut send);
        peer_next = connection.expects();
        if connection.state() != State::Closed && una < ack && ack <= before {
            una = ack;
        }
        match random.random_range(0..40) {
            0 if !is_closed => stream.0 += random.random_range(0..50_000),
            1 => connection.half_close(&stack, &stream, now, &mut send),
            2 => connection.close_after(&stack, &stream, now, &mut send),
            _ => {}
        }
        is_closed |= connection.state() != State::Established && connection.state() != State::CloseWait;
        connection.transmit(&stack, &stream, now, &mut send);
        let path = connection.path_state().expect("a controlled sender");
        assert!(sent == 0 || path.in_flight <= path.window + 1, "round {round}: {path:?}");
        // A FIN goes whatever the peer takes.
        assert!(!is_new || path.unacknowledged <= path.peer_window + 1, "round {round}: {path:?}");
        now += Nanos::from_millis(random.random_range(0..300));
        while connection.deadline() <= now {
            connection.on_deadline(&stack, &stream, now, &mut |_| ());
            assert!(connection.deadline() > now, "round {round}: a timer is still due");
        }
        let state = connection.state();
        let path = connection.path_state().expect("a controlled sender");
        let has_timer = connection.deadline() != Nanos::MAX;
        assert!(
            has_timer || path.unacknowledged == 0 || state == State::Closed,
            "round {round}: {state}, {path:?}"
        );
        assert!(state != State::Closed || !has_timer, "round {round}: a timer after the end");
    }
    connection.close(&stack, Close::Fin, now, &mut |_| ());
    for _ in 0..100 {
        if connection.deadline() == Nanos::MAX {
            break;
        }
        now = connection.deadline();
        connection.on_deadline(&stack, &stream, now, &mut |_| ());
    }
    assert_eq!(connection.state(), State::Closed, "round {round}: every close comes to an end");
}
