use proptest::prelude::*;

use super::{Content, Responses, Seen, Service, Side};

const CONNECTION: u64 = 7;

/// A connection of a client and a server, as a router between them sees it.
struct Wire {
    responses: Responses,
    /// Sequence numbers that come next, of client and server.
    next: [u32; 2],
}

impl Wire {
    /// After the handshake.
    fn open() -> Self {
        Self::open_at([1000, u32::MAX - 99])
    }

    fn open_at(next: [u32; 2]) -> Self {
        let mut wire = Self { responses: Responses::new(10), next };
        for (side, seq) in [(Side::First, next[0]), (Side::Second, next[1])] {
            let seen = Seen {
                seq: seq.wrapping_sub(1),
                is_syn: true,
                payload_bytes: 0,
                content: Content::Bytes(&[]),
            };
            let service = wire.responses.segment(CONNECTION, side, &seen);
            assert_eq!(service, Service { left: Some(0), attained: 0 });
        }
        wire
    }

    fn see(&mut self, side: Side, seq: u32, payload: &[u8]) -> Service {
        let payload_bytes = payload.len() as u32;
        let seen = Seen { seq, is_syn: false, payload_bytes, content: Content::Bytes(payload) };
        self.responses.segment(CONNECTION, side, &seen)
    }

    /// The client sends what it has not sent before.
    fn ask(&mut self, payload: &str) -> Service {
        let seq = self.next[0];
        self.next[0] = seq.wrapping_add(payload.len() as u32);
        self.see(Side::First, seq, payload.as_bytes())
    }

    /// The server sends what it has not sent before.
    fn answer(&mut self, payload: &[u8]) -> Service {
        let seq = self.next[1];
        self.next[1] = seq.wrapping_add(payload.len() as u32);
        self.see(Side::Second, seq, payload)
    }

    /// The server sends something that is that far behind what it has sent, or ahead.
    fn answer_at(&mut self, ahead: i32, payload: &[u8]) -> Service {
        self.see(Side::Second, self.next[1].wrapping_add_signed(ahead), payload)
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
static BODY: [u8; 100_000] = [b'x'; 100_000];

/// Head and the beginning of the body, 1000 bytes, of a response of so many.
fn first(total: usize) -> Vec<u8> {
    let fields = "Server: test\r\nContent-Type: text/plain\r\n";
    let without_length = "HTTP/1.1 200 OK\r\n".len() + fields.len() + "Content-Length: 000000\r\n\r\n".len();
    let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {:06}\r\n\r\n", total - without_length);
    assert_eq!(head.len(), without_length);
    [head.as_bytes(), &BODY[..(total - head.len()).min(1000 - head.len())]].concat()
}

fn known(left: u64, attained: u64) -> Service {
    Service { left: Some(left), attained }
}

fn unknown(attained: u64) -> Service {
    Service { left: None, attained }
}

#[test]
fn length_is_read_where_the_response_begins() {
    let mut wire = Wire::open();
    assert_eq!(wire.ask(GET), unknown(0), "a request is no response, but has sent nothing");
    assert_eq!(wire.answer(&first(5000)), known(5000, 0));
    assert_eq!(wire.answer(&BODY[..1500]), known(4000, 1000));
    assert_eq!(wire.answer(&BODY[..1500]), known(2500, 2500));
    assert_eq!(wire.answer(&BODY[..1000]), known(1000, 4000));
    assert_eq!(wire.answer(&[]), known(0, 0), "without payload");
}

#[test]
fn each_response_of_a_connection_begins_anew() {
    let mut wire = Wire::open();
    for total in [5000, 2000, 3000] {
        wire.ask(GET);
        assert_eq!(wire.answer(&first(total)), known(total as u64, 0));
        assert_eq!(wire.answer(&BODY[..total - 1000]), known(total as u64 - 1000, 1000));
    }
    // And one that cannot be read, with another behind it.
    wire.ask(GET);
    assert_eq!(wire.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), unknown(0));
    assert_eq!(wire.answer(&BODY[..1500]), unknown(47));
    wire.ask(GET);
    assert_eq!(wire.answer(&first(2000)), known(2000, 0));
}

#[test]
fn acknowledgements_change_nothing() {
    let mut wire = Wire::open();
    wire.ask(GET);
    wire.answer(&first(5000));
    assert_eq!(wire.ask(""), known(0, 0));
    assert_eq!(wire.answer(&BODY[..1500]), known(4000, 1000));
    assert_eq!(wire.see(Side::First, 1000, GET.as_bytes()), known(27, 0), "the request again");
    assert_eq!(wire.answer(&BODY[..1500]), known(2500, 2500));
}

#[test]
fn segment_that_is_sent_again_has_itself_left_and_what_is_to_come() {
    let mut wire = Wire::open();
    wire.ask(GET);
    wire.answer(&first(5000));
    wire.answer(&BODY[..1500]);
    assert_eq!(wire.answer_at(-1500, &BODY[..1500]), known(2500 + 1500, 1000));
    wire.answer(&BODY[..1500]);
    wire.answer(&BODY[..1000]);
    assert_eq!(wire.answer_at(-2500, &BODY[..1500]), known(1500, 0), "all else has come");
    wire.ask(GET);
    wire.answer(&first(2000));
    assert_eq!(wire.answer_at(-2000, &BODY[..1000]), known(1000, 0), "of the response before");
    assert_eq!(wire.answer(&BODY[..1000]), known(1000, 1000));
}

#[test]
fn segments_may_come_out_of_order() {
    let mut wire = Wire::open();
    wire.ask(GET);
    // The second before the first: its length cannot be known yet.
    assert_eq!(wire.answer_at(1000, &BODY[..1500]), unknown(1000));
    assert_eq!(wire.answer(&first(5000)), known(5000 - 2500 + 1000, 0));
    wire.next[1] = wire.next[1].wrapping_add(1500);
    // A gap, and what belongs there.
    assert_eq!(wire.answer_at(1500, &BODY[..1000]), known(1000, 4000));
    assert_eq!(wire.answer(&BODY[..1500]), known(1500, 0), "the last that is missing");
}

#[test]
fn pipelined_requests_do_not_end_a_response() {
    let mut wire = Wire::open();
    wire.ask(&GET.repeat(2));
    wire.answer(&first(3000));
    wire.ask(GET);
    assert_eq!(wire.answer(&BODY[..1000]), known(2000, 1000));
    // The end of the first response, and the beginning of the second.
    let joined = [&BODY[..1000], &first(4000)].concat();
    assert_eq!(wire.answer(&joined), known(1000, 2000));
    assert_eq!(wire.answer(&BODY[..1500]), known(3000, 1000));
    assert_eq!(wire.answer(&BODY[..1500]), known(1500, 2500));
    assert_eq!(wire.answer(&first(1500)), known(1500, 0));
}

#[test]
fn short_responses_may_share_a_segment() {
    let mut wire = Wire::open();
    wire.ask(&GET.repeat(3));
    let short = first(200);
    assert_eq!(short.len(), 200);
    let joined = [&short[..], &short, &first(3000)].concat();
    assert_eq!(wire.answer(&joined), known(200, 0));
    assert_eq!(wire.answer(&BODY[..1500]), known(2000, 1000));
}

#[test]
fn answer_to_head_ends_with_its_head() {
    let mut wire = Wire::open();
    wire.ask(&[GET, HEAD, GET].concat());
    let short = first(200);
    let whole = first(90_000);
    let head_bytes = whole.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
    let head = &whole[..head_bytes];
    wire.answer(&short);
    assert_eq!(wire.answer(head), known(head_bytes as u64, 0), "it has a length, and no body");
    assert_eq!(wire.answer(&first(2000)), known(2000, 0));
}

#[test]
fn interim_response_is_no_answer() {
    let mut wire = Wire::open();
    wire.ask("POST / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(wire.answer(b"HTTP/1.1 100 Continue\r\n\r\n"), known(25, 0));
    assert_eq!(wire.ask("what is posted"), unknown(0));
    assert_eq!(wire.answer(&first(2000)), known(2000, 0));
}

#[test]
fn length_that_is_too_small_is_found_out() {
    let mut wire = Wire::open();
    wire.ask(GET);
    assert_eq!(wire.answer(&first(1000)), known(1000, 0));
    assert_eq!(wire.answer(&BODY[..1500]), unknown(1000), "more comes, for which nobody asked");
    assert_eq!(wire.answer(&BODY[..1500]), unknown(2500));
    wire.ask(GET);
    assert_eq!(wire.answer(&first(1200)), known(1200, 0), "the next one is believed again");
    assert_eq!(wire.answer(&BODY[..1500]), known(200, 1000), "as long as it can be true");
    assert_eq!(wire.answer(&BODY[..1500]), unknown(2500), "longer than it said within a segment");
}

#[test]
fn length_that_is_too_large_ends_with_the_next_response() {
    let mut wire = Wire::open();
    wire.ask(GET);
    assert_eq!(wire.answer(&first(90_000)), known(90_000, 0));
    wire.ask(GET);
    assert_eq!(wire.answer(&first(2000)), known(2000, 0));
    assert_eq!(wire.answer(&BODY[..1000]), known(1000, 1000));
}

#[test]
fn length_that_overflows_is_none() {
    for length in ["18446744073709551615", "18446744073709551616", "1000000000000000000", "-5", "5x"] {
        let mut wire = Wire::open();
        wire.ask(GET);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        assert_eq!(wire.answer(head.as_bytes()), unknown(0), "{length}");
        assert_eq!(wire.answer(&BODY[..1500]), unknown(head.len() as u64), "{length}");
    }
    let mut wire = Wire::open();
    wire.ask(GET);
    let huge = "HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\n";
    let total = 999_999_999_999_999_999 + huge.len() as u64;
    assert_eq!(wire.answer(huge.as_bytes()), known(total, 0), "it may be true");
}

#[test]
fn rest_is_counted_beyond_the_sequence_numbers() {
    const GIB: u64 = 1 << 30;
    let mut wire = Wire::open();
    wire.ask(GET);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 9 * GIB);
    let total = 9 * GIB + head.len() as u64;
    assert_eq!(wire.answer(head.as_bytes()), known(total, 0));
    let mut sent = head.len() as u64;
    let mut ahead = |wire: &mut Wire, bytes: u64| {
        let seen = Seen {
            seq: wire.next[1],
            is_syn: false,
            payload_bytes: bytes as u32,
            content: Content::Bytes(&[]),
        };
        wire.next[1] = wire.next[1].wrapping_add(bytes as u32);
        let service = wire.responses.segment(CONNECTION, Side::Second, &seen);
        assert_eq!(service, known(total - sent, sent));
        sent += bytes;
    };
    for _ in 0..9 {
        ahead(&mut wire, GIB);
    }
    wire.ask(GET);
    assert_eq!(wire.answer(&first(2000)), known(2000, 0));
}

#[test]
fn of_other_protocols_it_is_known_what_was_sent() {
    let mut wire = Wire::open();
    let hello = "\x16\x03\x01";
    assert_eq!(wire.ask(hello), unknown(0));
    assert_eq!(wire.answer(&BODY[..1500]), unknown(0));
    assert_eq!(wire.answer(&BODY[..1500]), unknown(1500));
    assert_eq!(wire.answer_at(-1500, &BODY[..1500]), unknown(1500), "again");
    assert_eq!(wire.ask(hello), unknown(0));
    assert_eq!(wire.ask(hello), unknown(3), "an upload");
    assert_eq!(wire.answer(&BODY[..1500]), unknown(0), "begun anew");
}

#[test]
fn datagrams_are_counted_since_the_last_of_the_other_side() {
    let mut responses = Responses::new(1);
    let mut see = |side, bytes| responses.datagram(9, side, bytes);
    assert_eq!(see(Side::Second, 1000), unknown(0));
    assert_eq!(see(Side::Second, 500), unknown(1000));
    assert_eq!(see(Side::First, 80), unknown(0));
    assert_eq!(see(Side::Second, 500), unknown(0));
    assert_eq!(see(Side::Second, 500), unknown(500));
}

#[test]
fn connection_that_was_begun_before_is_followed_from_the_next_request_on() {
    let mut wire = Wire { responses: Responses::new(10), next: [5, 6] };
    assert_eq!(wire.answer(&BODY[..1500]), unknown(0));
    assert_eq!(wire.answer(&BODY[..1500]), unknown(1500));
    wire.ask(GET);
    assert_eq!(wire.answer(&first(2000)), known(2000, 0));
}

#[test]
fn addresses_and_ports_may_be_used_again() {
    let mut wire = Wire::open();
    wire.ask(&[GET, HEAD].concat());
    wire.answer(&first(90_000));
    let responses = std::mem::replace(&mut wire.responses, Responses::new(1));
    let mut wire = Wire { responses, ..Wire::open_at([70_000, 80_000]) };
    for (side, seq) in [(Side::First, 69_999), (Side::Second, 79_999), (Side::Second, 79_999)] {
        let seen = Seen { seq, is_syn: true, payload_bytes: 0, content: Content::Bytes(&[]) };
        wire.responses.segment(CONNECTION, side, &seen);
    }
    wire.ask(GET);
    assert_eq!(wire.answer(&first(2000)), known(2000, 0));
    assert_eq!(wire.answer(&BODY[..1000]), known(1000, 1000), "it does not answer the HEAD of before");
}

#[test]
fn one_direction_alone_tells_where_responses_end() {
    let mut wire = Wire::open();
    for total in [2000, 3000] {
        assert_eq!(wire.answer(&first(total)), known(total as u64, 0));
        assert_eq!(wire.answer(&BODY[..total - 1000]), known(total as u64 - 1000, 1000));
    }
}

#[test]
fn simulated_response_says_its_length() {
    let mut responses = Responses::new(10);
    let mut see = |side, seq, payload_bytes, bytes| {
        let content = if bytes == 0 { Content::Bytes(&[]) } else { Content::Length(bytes) };
        responses.segment(1, side, &Seen { seq, is_syn: false, payload_bytes, content })
    };
    assert_eq!(see(Side::First, 1, 300, 0), unknown(0));
    assert_eq!(see(Side::Second, 1, 1460, 4000), known(4000, 0));
    assert_eq!(see(Side::Second, 1461, 1460, 4000), known(2540, 1460));
    assert_eq!(see(Side::Second, 1, 1460, 4000), known(1080 + 1460, 0), "sent again");
    assert_eq!(see(Side::Second, 2921, 1080, 4000), known(1080, 2920));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Whatever comes, nothing overflows or goes on for ever, and the table keeps its bound.
    #[test]
    fn anything_may_come(
        steps in prop::collection::vec(
            (0..5_u64, any::<bool>(), any::<u32>(), prop::bool::weighted(0.1), 0..9_usize, 0..3_u8), 0..200),
    ) {
        let contents: [&[u8]; 9] = [
            b"", GET.as_bytes(), HEAD.as_bytes(), b"x",
            b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999999\r\n\r\n",
            b"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 204 No\r\n\r\nHTTP/1.1 100 No\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n1234567HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
            &[0xff; 100],
        ];
        let mut responses = Responses::new(3);
        for (connection, is_first, seq, is_syn, which, near) in steps {
            let side = if is_first { Side::First } else { Side::Second };
            // Mostly close together, as sequence numbers are.
            let seq = if near == 0 { seq } else { seq % 200 };
            let bytes = contents[which];
            let (payload_bytes, content) = (bytes.len() as u32, Content::Bytes(bytes));
            if near == 2 && which == 0 {
                responses.datagram(connection, side, seq);
            } else {
                responses.segment(connection, side, &Seen { seq, is_syn, payload_bytes, content });
            }
            prop_assert!(responses.len() <= 3);
        }
    }

    /// However a response is cut and lost and sent again, each segment knows what is left, once the
    /// head was seen.
    #[test]
    fn rest_is_never_less_than_the_segment_nor_more_than_what_is_to_come(
        total in 1100..60_000_usize,
        cuts in prop::collection::vec((1..3000_usize, 0..4_u8), 1..100),
    ) {
        let mut wire = Wire::open();
        wire.ask(GET);
        let head = first(total);
        wire.answer(&head);
        let mut sent = head.len();
        for (bytes, fate) in cuts {
            let bytes = bytes.min(total - sent);
            let service = if fate == 0 {
                let back = bytes.min(sent);
                let service = wire.answer_at(-(back as i32), &BODY[..back]);
                if back > 0 {
                    prop_assert_eq!(service, known((total - sent + back) as u64, (sent - back) as u64));
                }
                service
            } else {
                let service = wire.answer(&BODY[..bytes]);
                if bytes > 0 {
                    prop_assert_eq!(service, known((total - sent) as u64, sent as u64));
                }
                sent += bytes;
                service
            };
            prop_assert!(service.left.is_some_and(|left| left <= total as u64));
            if sent == total {
                break;
            }
        }
    }
}
