//! A server without state, for tests of a whole crowd.

use std::net::{IpAddr, Ipv4Addr};

use traffic::Workload;
use wire::{Ethernet, Flags, FourTuple, Options};

use super::*;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 80);

/// What the server is asked.
pub struct Question {
    pub endpoint: Endpoint,
    seq: SeqNumber,
    ack: SeqNumber,
    pub flags: Flags,
    len: u32,
}

impl Question {
    /// As kernel/echo.bpf.c has it: without a connection.
    pub fn answer(&self) -> Option<Segment<'static>> {
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

    /// As a closed port has it.
    pub fn refusal(&self) -> Option<Segment<'static>> {
        let asked = Segment {
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: 0,
            options: Options::default(),
            payload: &[],
        };
        reset_for(&asked)
    }
}

/// Puts a segment into a frame, and what the server reads there among the questions.
pub fn ask(questions: &mut Vec<Question>, endpoint: Endpoint, segment: &Segment<'_>) {
    let mut frame = [0; 2048];
    let tuple = FourTuple { src: SocketAddr::new([10, 1, 0, 1].into(), endpoint.port), dst: SERVER };
    let len = wire::emit(&mut frame, &Ethernet { src: [2; 6], dst: [4; 6] }, &tuple, segment);
    let (_, heard) = wire::parse(&frame[..len]).expect("a frame of ours");
    let Segment { seq, ack, flags, .. } = heard;
    questions.push(Question { endpoint, seq, ack, flags, len: heard.len() });
}

/// By its name, or by the keys of its table.
pub fn workload(text: &str) -> Workload {
    let named = Workload::NAMES.into_iter().find(|(name, _)| *name == text);
    let table = toml::from_str(named.map_or(text, |(_, table)| table)).expect("a table");
    Workload::new(&table).expect("a workload")
}
