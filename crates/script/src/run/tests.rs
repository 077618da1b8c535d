use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};

use verdict::ListenerLoad;
use wire::Ethernet;

use super::*;
use crate::{Arrival, parse};

/// What answers a segment: after so many ms, another.
type Answer = fn(&Pattern) -> Vec<(u64, &'static str)>;

/// A server in virtual time that answers as it is told.
struct Played {
    now: Nanos,
    answer: Answer,
    coming: Vec<Arrival>,
    reset: u64,
}

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 80);
const SERVER_ISN: u32 = 0xffff_fff0;

impl System for Played {
    type Error = Infallible;

    fn ends(&self) -> Ends {
        let ethernet = Ethernet { src: [2; 6], dst: [4; 6] };
        Ends { ethernet, client: [10, 0, 0, 1].into(), server: SERVER }
    }

    fn now(&self) -> Nanos {
        self.now
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Infallible> {
        let (tuple, segment) = wire::parse(frame).expect("a segment");
        let got = Pattern::describe(&segment, CLIENT_ISN, SERVER_ISN);
        for (after_ms, text) in (self.answer)(&got) {
            let answer = Pattern::parse(text).expect("a segment");
            let is_reset = answer.flags.has(Flags::RST);
            self.reset += u64::from(is_reset);
            let payload = stream(answer.seq, answer.len);
            let segment = Segment {
                seq: SeqNumber(if is_reset { 0 } else { SERVER_ISN }) + answer.seq,
                ack: SeqNumber(CLIENT_ISN) + answer.ack.unwrap_or(0),
                flags: answer.flags,
                window: answer.window.unwrap_or(1000),
                options: Options::default(),
                payload: &payload,
            };
            let back = FourTuple { src: tuple.dst, dst: tuple.src };
            let mut frame = vec![0; wire::frame_len(&back, &segment)];
            wire::emit(&mut frame, &self.ends().ethernet, &back, &segment);
            self.coming.push(Arrival { at: self.now + Nanos::from_millis(after_ms), frame });
        }
        self.coming.sort_by_key(|arrival| arrival.at);
        Ok(())
    }

    fn receive(&mut self, until: Nanos) -> Result<Option<Arrival>, Infallible> {
        if self.coming.first().is_some_and(|arrival| arrival.at <= until) {
            let arrival = self.coming.remove(0);
            self.now = self.now.max(arrival.at);
            return Ok(Some(arrival));
        }
        self.now = self.now.max(until);
        Ok(None)
    }

    fn settle(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn accept(&mut self) -> Result<Option<SocketAddr>, Infallible> {
        Ok(None)
    }

    fn read(&mut self, _: SocketAddr, _: usize) -> Result<Read, Infallible> {
        Ok(Read::Eof)
    }

    fn write(&mut self, _: SocketAddr, _: &[u8]) -> Result<(), Infallible> {
        Ok(())
    }

    fn shutdown(&mut self, _: SocketAddr) -> Result<(), Infallible> {
        Ok(())
    }

    fn close(&mut self, _: SocketAddr) -> Result<(), Infallible> {
        Ok(())
    }

    fn state(&mut self, _: SocketAddr) -> Result<State, Infallible> {
        Ok(State::SynRecv)
    }

    fn load(&mut self) -> Result<ListenerLoad, Infallible> {
        Ok(ListenerLoad {
            accept_qlen: 2,
            accept_limit: 1,
            syn_qlen: 1,
            syn_limit: 1,
            ..ListenerLoad::default()
        })
    }

    fn counters(&mut self) -> Result<BTreeMap<String, u64>, Infallible> {
        Ok(BTreeMap::from([("reset".to_owned(), self.reset), ("Tcp.OutRsts".to_owned(), 7)]))
    }
}

fn play(answer: Answer, steps: &str) -> Result<Vec<String>, Failure> {
    let script = parse("x.pkt", &format!("policy default\n{steps}")).expect("a script");
    run(&script, &mut Played { now: Nanos::ZERO, answer, coming: Vec::new(), reset: 0 })
}

fn fails(answer: Answer, steps: &str) -> String {
    play(answer, steps).expect_err("the script is wrong").to_string()
}

/// SYN/ACK, and again a second later; a byte of data is answered by one, and other segments by
/// nothing.
fn server(got: &Pattern) -> Vec<(u64, &'static str)> {
    match (got.flags, got.len) {
        (Flags::SYN, _) => vec![(1, "S. 0:0(0) ack 1"), (1001, "S. 0:0(0) ack 1")],
        (_, 1) => vec![(1, "P. 1:2(1) ack 2")],
        _ => Vec::new(),
    }
}

fn refusing(_: &Pattern) -> Vec<(u64, &'static str)> {
    vec![(0, "R. 0:0(0) ack 1")]
}

const SYN: &str = "a: > S 0:0(0)\n";

#[test]
fn script_that_says_what_happens_passes() {
    let steps = "a: > S 0:0(0)\na: < S. 0:0(0) ack 1 win 1000\n+1 a: < S. 0:0(0) ack 1\n\
                 a: > P. 1:2(1) ack 1\na: < P. 1:2(1) ack 2\na: silence 5\nstate a SYN_RECV\nqueues accept 2 syn 1\n\
                 server read a EOF\ncount reset 0\n";
    play(server, steps).expect("it is so");
    play(refusing, "b: > S 0:0(0)\nb: < R. 0:0(0) ack 1\ncount reset 1 Tcp.OutRsts 0\ncount reset 0\n")
        .expect("it is so");
}

#[test]
fn missing_segment_fails_with_its_line() {
    let error = fails(|_| Vec::new(), "a: > S 0:0(0)\na: < S. 0:0(0) ack 1\n");
    assert!(
        error.starts_with("x.pkt:3: a: expected S. 0:0(0) ack 1, and nothing came within 10 s"),
        "{error}"
    );
}

#[test]
fn wrong_flags_sequence_length_ack_and_window_fail_and_the_report_has_both() {
    for (wrong, why) in [
        ("S 0:0(0)", "flags S. and not S"),
        ("R. 0:0(0) ack 1", "flags S. and not R."),
        ("S. 1:1(0) ack 1", "sequence number 0 and not 1"),
        ("S. 0:9(9) ack 1", "bytes of data 0 and not 9"),
        ("S. 0:0(0) ack 2", "ack 1 and not 2"),
        ("S. 0:0(0) ack 1 win 5", "win 1000 and not 5"),
        ("S. 0:0(0) ack 1 <mss 1460>", "options <> and not <mss 1460>"),
    ] {
        let error = fails(server, &format!("{SYN}a: < {wrong}\n"));
        let expected =
            format!("x.pkt:3: a: expected {wrong}, got S. 0:0(0) ack 1 win 1000 <>: {why}\n  so far:\n");
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.ends_with("0.001 a: < S. 0:0(0) ack 1 win 1000 <>"), "{error}");
    }
}

#[test]
fn segment_that_no_line_expects_fails_at_the_end() {
    let error = fails(refusing, SYN);
    assert!(error.starts_with("x.pkt:2: a: expected the end of the script, got R. 0:0(0) ack 1"), "{error}");
    let twice: Answer = |_| vec![(0, "R. 0:0(0) ack 1"), (200, "R. 0:0(0) ack 1")];
    let error = fails(twice, &format!("{SYN}a: < R. 0:0(0) ack 1\n+1 state a SYN_RECV\n"));
    assert!(error.contains("expected the end of the script, got R."), "no timer sends a RST again: {error}");
}

#[test]
fn segment_that_comes_too_early_fails() {
    let steps = format!("{SYN}a: < S. 0:0(0) ack 1\n+2 a: < S. 0:0(0) ack 1\n");
    let error = fails(server, &steps);
    assert!(error.contains("1.000 s after the last and not 2"), "{error}");
}

#[test]
fn what_timers_send_again_needs_no_line_but_breaks_a_silence_that_has_a_time() {
    let begin = format!("{SYN}a: < S. 0:0(0) ack 1\n");
    play(server, &format!("{begin}+3 a: silence\n")).expect("no line is needed");
    play(server, &format!("{begin}+3 a: > P. 1:2(1) ack 1\na: < P. 1:2(1) ack 2\n"))
        .expect("it is passed over");
    let error = fails(server, &format!("{begin}a: silence 3\n"));
    assert!(error.starts_with("x.pkt:4: a: expected silence for 3 s, got S. 0:0(0) ack 1"), "{error}");
    let twice: Answer = |_| vec![(0, "S. 0:0(0) ack 1"), (0, "S. 0:0(0) ack 1")];
    let error = fails(twice, &format!("{begin}a: silence\n"));
    assert!(error.contains("expected silence for 0 s, got S."), "two at once are no timer's: {error}");
}

#[test]
fn wrong_counter_state_queue_read_and_connection_fail() {
    for (wrong, wanted) in [
        ("count reset 1", "expected count reset 1, got 0"),
        ("count rest 1", "there is no counter rest; the guard's are reset, the kernel's have a dot"),
        ("state a ESTABLISHED", "expected state ESTABLISHED for a, got SYN_RECV"),
        ("queues accept 2 syn 0", "expected queues accept 2 syn 0, got accept 2 syn 1"),
        ("server read a 3", "expected 3 bytes of a, got 0 and then Eof"),
        ("server read a RESET", "expected Reset from a, got Eof"),
        ("server accept a", "expected a connection of a, and none waits"),
        ("state b gone", "client b has sent nothing yet"),
        ("b: > . 1:1(0) ack 1", "client b cannot acknowledge: it has got no SYN"),
    ] {
        let error = fails(server, &format!("{SYN}a: < S. 0:0(0) ack 1\n{wrong}\n"));
        assert!(error.starts_with(&format!("x.pkt:4: {wanted}")), "{error}");
    }
}

#[test]
fn bytes_of_another_place_in_the_stream_fail() {
    let answer: Answer = |_| vec![(0, "S. 0:0(0) ack 1"), (0, "P. 1:5(4) ack 1")];
    play(answer, &format!("{SYN}a: < S. 0:0(0) ack 1\na: < P. 1:5(4) ack 1\n")).expect("the bytes are right");
    assert_ne!(stream(1, 4), stream(2, 4));
}
