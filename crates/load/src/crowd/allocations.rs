//! A crowd allocates when it is made, and no more: not for a packet, not for a connection, not for a request.

use traffic::{Arrivals, Workload};
use wire::{Ethernet, Flags, FourTuple, Options};

use super::*;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const RATE: f64 = 5000.0;
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)), 80);

/// What the server is asked.
struct Question {
    endpoint: Endpoint,
    seq: SeqNumber,
    ack: SeqNumber,
    flags: Flags,
    len: u32,
}

impl Question {
    /// As kernel/echo.bpf.c has it: without a connection.
    fn answer(&self) -> Option<Segment<'static>> {
        let answer = |seq, flags, payload| {
            let options = Options::default();
            Segment { seq, ack: self.seq + self.len, flags, window: 65_535, options, payload }
        };
        match self.flags {
            flags if flags.has(Flags::RST) => None,
            flags if flags.has(Flags::SYN) => Some(answer(SeqNumber(500), Flags::SYN | Flags::ACK, &[][..])),
            flags if flags.has(Flags::FIN) => Some(answer(self.ack, Flags::FIN | Flags::ACK, &[])),
            _ if self.len > 0 => Some(answer(self.ack, Flags::ACK | Flags::PSH, REPLY)),
            _ => None,
        }
    }
}

fn crowd(workload: Workload, close: Close) -> Crowd {
    let manners = Manners {
        timeout: Nanos::from_secs(10),
        abort: None,
        sessions: None,
        shard: Shard::WHOLE,
        close,
        window: Window { start: Nanos::ZERO, end: Nanos::from_secs(10) },
        stacks: "linux:0.5,windows-10:0.3,macos:0.2".parse().expect("stacks"),
        clock: 0,
        seed: 1,
        first_endpoint: 0,
    };
    let clients = Clients::new("10.1.0.0/16".parse().expect("a network"));
    let asks = Asks::new(workload, 1, "test", "/");
    Crowd::new(manners, asks, clients, Schedule::new(Arrivals::Poisson, RATE, 1), 10_000)
}

/// Puts a segment into a frame, and what the server reads there among the questions.
fn ask(questions: &mut Vec<Question>, endpoint: Endpoint, segment: &Segment<'_>) {
    let mut frame = [0; 2048];
    let tuple = FourTuple { src: SocketAddr::new([10, 1, 0, 1].into(), endpoint.port), dst: SERVER };
    let len = wire::emit(&mut frame, &Ethernet { src: [2; 6], dst: [4; 6] }, &tuple, segment);
    let (_, heard) = wire::parse(&frame[..len]).expect("a frame of ours");
    let Segment { seq, ack, flags, .. } = heard;
    questions.push(Question { endpoint, seq, ack, flags, len: heard.len() });
}

/// A second of a crowd before a server that answers at once.
fn one_second(crowd: &mut Crowd, questions: &mut Vec<Question>, second: u64) {
    for step in 0..10_000 {
        let now = Nanos::from_secs(second) + Nanos::from_micros(100 * step);
        let mut send = |endpoint: Endpoint, segment: &Segment<'_>| ask(questions, endpoint, segment);
        while crowd.on_deadline(now, &mut send) {}
        while crowd.start_next(now, &mut send) {}
        while let Some(question) = questions.pop() {
            let Some(answer) = question.answer() else { continue };
            crowd.on_segment(question.endpoint, &answer, now, &mut |endpoint, segment| {
                ask(questions, endpoint, segment);
            });
        }
    }
}

#[test]
fn nothing_is_allocated_for_a_packet_a_connection_or_a_request() {
    for (workload, close) in
        [("one-packet", Close::Reset), ("one-packet", Close::Fin), ("specweb99-7.2", Close::Fin)]
    {
        let mut crowd = crowd(crate::parse_workload(workload).expect("a workload"), close);
        let mut questions = Vec::with_capacity(1000);
        one_second(&mut crowd, &mut questions, 0);
        let before = crowd.tally().totals.replies;
        let allocated = allocation_counter::measure(|| one_second(&mut crowd, &mut questions, 1));
        let replies = crowd.tally().totals.replies - before;
        assert!(replies as f64 > 0.9 * RATE, "{workload}: {replies} replies");
        assert_eq!(allocated.count_total, 0, "{workload}: {replies} replies");
    }
}
