//! Shortest response first: `kernel/bands.h` and `kernel/http.h`, in the order in which
//! `kernel/uplink.bpf.c` and `srpt.bpf.c` call them.

use crate::raw::{HTTP_HEADER_BYTES, HTTP_STATUS_BYTES, MAX_CUTOFFS};
use crate::{Cutoffs, HttpHeader, Outgoing, Response, SizeSource, functions};

impl Cutoffs {
    /// Most that there can be, one less than bands.
    pub const MOST: usize = MAX_CUTOFFS as usize;

    /// These, in bytes; `None` unless they ascend and are [`Self::MOST`] at most.
    pub fn new(bytes: &[u64]) -> Option<Self> {
        let ascend = bytes.windows(2).all(|pair| pair[0] < pair[1]);
        let mut cutoffs = Self { count: bytes.len() as u32, ..Self::default() };
        let places = cutoffs.bytes.get_mut(..bytes.len()).filter(|_| ascend)?;
        places.copy_from_slice(bytes);
        Some(cutoffs)
    }

    /// The band of a response with so many bytes left, 0 for the fewest.
    pub fn band(&self, bytes: u64) -> u32 {
        functions::band_of(self, bytes)
    }
}

impl SizeSource {
    /// All, the best first.
    pub const BEST_FIRST: [Self; 5] =
        [Self::Told, Self::Length, Self::Sendfile, Self::Buffered, Self::Attained];

    /// As a user writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Told => "told",
            Self::Length => "content-length",
            Self::Sendfile => "sendfile",
            Self::Buffered => "buffered",
            Self::Attained => "attained",
        }
    }
}

impl Response {
    /// A source says that so many bytes are left from `seq` on.
    pub fn tell(&mut self, source: SizeSource, seq: u32, bytes: u64) {
        functions::tell_size(self, source, seq, bytes);
    }

    /// The band of a segment, and how many bytes were left before it was sent. `payload`: its first
    /// bytes, if its connection speaks plain HTTP/1. `by_buffer`: where no source knows, by the
    /// send buffer, and not by what was sent already.
    pub fn place(
        &mut self,
        cutoffs: &Cutoffs,
        segment: &Outgoing,
        payload: Option<&[u8]>,
        by_buffer: bool,
    ) -> (u32, u64) {
        if functions::begins_response(self, segment) {
            functions::begin_response(self, segment);
        }
        if functions::may_begin_header(self, segment)
            && let Some(bytes) = payload.and_then(http_response_bytes)
        {
            self.tell(SizeSource::Length, segment.seq, bytes);
        }
        let left = functions::bytes_left(self, segment, by_buffer);
        let band = functions::next_band(cutoffs, self, segment, left);
        functions::note_sent(self, segment);
        (band, left)
    }
}

impl Response {
    /// The band of a segment with so many bytes left, as somebody else knows. `has_waiting`:
    /// earlier segments of its connection still wait.
    pub fn next_band(&mut self, cutoffs: &Cutoffs, has_waiting: bool, left: u64) -> u32 {
        let segment = Outgoing { has_waiting: has_waiting.into(), ..Outgoing::default() };
        functions::next_band(cutoffs, self, &segment, left)
    }
}

/// Bytes of a response in HTTP/1, header and body, by its first bytes; `None` if they do not say.
pub fn http_response_bytes(payload: &[u8]) -> Option<u64> {
    let status: &[u8; HTTP_STATUS_BYTES as usize] = payload.first_chunk()?;
    if !functions::http_has_length(status) {
        return None;
    }
    let mut header = HttpHeader::default();
    let mut read = 0;
    for &byte in payload.iter().take(HTTP_HEADER_BYTES as usize) {
        let is_over = functions::http_read(&mut header, byte, read);
        read += 1;
        if is_over {
            break;
        }
    }
    Some(functions::http_response_bytes(&header, read)).filter(|bytes| *bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's, `[SH06]` 3.2.
    fn cutoffs() -> Cutoffs {
        Cutoffs::new(&[1_000, 2_000, 5_000, 50_000]).expect("ascend")
    }

    /// A connection that sends.
    struct Sender {
        response: Response,
        next: u32,
        written: u32,
        received: u32,
        is_blocked: bool,
        has_waiting: bool,
    }

    impl Sender {
        fn at(seq: u32) -> Self {
            let response = Response::default();
            Self { response, next: seq, written: seq, received: 1, is_blocked: false, has_waiting: false }
        }

        /// The client asks, and the program writes.
        fn asked(&mut self, bytes: u32) {
            self.received += 100;
            self.written = self.written.wrapping_add(bytes);
        }

        fn segment(&self, seq: u32, bytes: u32) -> Outgoing {
            Outgoing {
                seq,
                end: seq.wrapping_add(bytes),
                rcv_nxt: self.received,
                write_seq: self.written,
                is_blocked: self.is_blocked.into(),
                has_waiting: self.has_waiting.into(),
            }
        }

        fn send_with(&mut self, bytes: u32, payload: Option<&[u8]>, by_buffer: bool) -> (u32, u64) {
            let segment = self.segment(self.next, bytes);
            self.next = segment.end;
            self.response.place(&cutoffs(), &segment, payload, by_buffer)
        }

        fn send(&mut self, bytes: u32) -> (u32, u64) {
            self.send_with(bytes, None, false)
        }
    }

    #[test]
    fn band_is_the_first_whose_cutoff_is_not_passed() {
        let bands =
            [0, 1, 1_000, 1_001, 2_000, 5_000, 50_000, 50_001, u64::MAX].map(|bytes| cutoffs().band(bytes));
        assert_eq!(bands, [0, 0, 0, 1, 1, 2, 3, 4, 4]);
        assert_eq!(Cutoffs::default().band(u64::MAX), 0, "one band");
        let all = Cutoffs::new(&[1, 2, 3, 4, 5, 6, 7]).expect("as many as there can be");
        assert_eq!(all.band(8), 7);
        assert_eq!(Cutoffs::new(&[1, 1]), None);
        assert_eq!(Cutoffs::new(&[1; 8]), None);
    }

    #[test]
    fn response_whose_size_was_told_climbs_as_it_is_sent() {
        // Sequence numbers wrap within it.
        let mut sender = Sender::at(u32::MAX - 20_000);
        sender.asked(100_000);
        sender.response.tell(SizeSource::Told, sender.next, 100_000);
        let bands: Vec<_> = (0..10).map(|_| sender.send(10_000)).collect();
        assert_eq!(bands[0], (4, 100_000));
        assert_eq!(bands[5], (3, 50_000));
        assert_eq!(bands[9], (3, 10_000));
        assert_eq!(sender.response.told, 0);
    }

    #[test]
    fn response_beyond_4_gib_is_counted_to_its_end() {
        let mut sender = Sender::at(7);
        let total = 10_u64 << 30;
        sender.asked(1 << 20);
        sender.response.tell(SizeSource::Told, 7, total);
        for chunk in 0..10_240_u64 {
            assert_eq!(sender.send(1 << 20).1, total - (chunk << 20));
            sender.written = sender.written.wrapping_add(1 << 20);
        }
        assert_eq!(sender.response.told, 0);
    }

    #[test]
    fn segment_that_is_sent_again_has_what_was_left_then() {
        let mut sender = Sender::at(1_000);
        sender.asked(8_000);
        sender.response.tell(SizeSource::Told, 1_000, 8_000);
        for _ in 0..4 {
            sender.send(1_000);
        }
        let again = sender.segment(2_000, 1_000);
        assert_eq!(sender.response.place(&cutoffs(), &again, None, false), (3, 7_000));
        assert_eq!(sender.send(1_000), (2, 4_000), "and the rest goes on");
    }

    #[test]
    fn source_that_said_too_little_is_dropped_and_attained_service_goes_on() {
        let mut sender = Sender::at(0);
        sender.asked(20_000);
        sender.response.tell(SizeSource::Length, 0, 1_500);
        assert_eq!(sender.send(1_500), (1, 1_500));
        assert_eq!(sender.send(1_500), (1, 1_500), "sent already");
        assert_eq!(sender.send(1_500), (2, 3_000));
        assert_eq!(sender.response.source, SizeSource::Attained as u8);
    }

    #[test]
    fn source_that_said_too_much_is_forgotten_with_the_next_request() {
        let mut sender = Sender::at(0);
        sender.asked(300);
        // As after HEAD.
        sender.response.tell(SizeSource::Length, 0, 1 << 40);
        assert_eq!(sender.send(300).0, 4);
        sender.asked(300);
        assert_eq!(sender.send(300), (0, 0));
    }

    /// Sequence numbers begin anywhere: half of them are before 0.
    #[test]
    fn response_of_unknown_size_begins_at_nothing_attained_wherever_its_numbers_are() {
        for start in [0, 1 << 30, 1 << 31, u32::MAX - 100] {
            let mut sender = Sender::at(start);
            sender.asked(9_000);
            let attained: Vec<u64> = (0..3).map(|_| sender.send(3_000).1).collect();
            assert_eq!(attained, [0, 3_000, 6_000], "from {start}");
        }
    }

    #[test]
    fn what_the_program_tells_ahead_is_of_the_next_response() {
        let mut sender = Sender::at(0);
        sender.asked(500);
        sender.send(500);
        sender.response.tell(SizeSource::Told, sender.written, 70_000);
        sender.asked(70_000);
        assert_eq!(sender.send(1_000), (4, 70_000));
        assert_eq!(sender.send(1_000), (4, 69_000));
    }

    #[test]
    fn better_source_stays_until_its_bytes_are_sent() {
        let mut sender = Sender::at(0);
        sender.asked(3_000);
        sender.response.tell(SizeSource::Told, 0, 3_000);
        sender.response.tell(SizeSource::Length, 0, 9_000);
        assert_eq!(sender.send(3_000), (2, 3_000));
        sender.response.tell(SizeSource::Length, 3_000, 9_000);
        assert_eq!(sender.send(1_000), (3, 9_000));
    }

    #[test]
    fn window_update_begins_no_response() {
        let mut sender = Sender::at(0);
        sender.asked(60_000);
        sender.send(10_000);
        // The program writes on, the client only opens its window.
        sender.received += 13;
        assert_eq!(sender.send(10_000), (3, 10_000));
        sender.send(40_000);
        sender.asked(100);
        assert_eq!(sender.send(100), (0, 0), "a request after the last byte does");
    }

    #[test]
    fn buffer_stands_for_the_size_until_it_is_full() {
        let mut sender = Sender::at(0);
        sender.asked(40_000);
        assert_eq!(sender.send_with(30_000, None, true), (3, 40_000));
        assert_eq!(sender.send_with(9_000, None, true), (3, 10_000));
        assert_eq!(sender.response.source, SizeSource::Buffered as u8);
        sender.written += 40_000;
        sender.is_blocked = true;
        sender.send_with(20_000, None, true);
        assert_eq!(sender.send_with(1_000, None, true), (4, 59_000), "more was sent than waits");
    }

    #[test]
    fn connection_is_not_moved_up_while_its_segments_wait() {
        let mut sender = Sender::at(0);
        sender.asked(51_000);
        sender.response.tell(SizeSource::Told, 0, 51_000);
        assert_eq!(sender.send(1_000).0, 4);
        sender.has_waiting = true;
        assert_eq!(sender.send(1_000), (4, 50_000));
        sender.has_waiting = false;
        assert_eq!(sender.send(1_000), (3, 49_000));
        sender.has_waiting = true;
        sender.response.band = 9;
        assert_eq!(sender.send(1_000).0, 3, "a band of earlier cutoffs is none to keep");
        sender.send(47_000);
        sender.asked(500);
        assert_eq!(sender.send(500).0, 0, "and the next response has not waited there");
    }

    const RESPONSE: &[u8] =
        b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 1234\r\nX-Content-Length: 9\r\n\r\nbody";

    #[test]
    fn length_is_read_from_a_header_of_http_1() {
        assert_eq!(http_response_bytes(RESPONSE), Some(RESPONSE.len() as u64 - 4 + 1234));
        let lower = b"HTTP/1.0 404 No\ncontent-LENGTH:\t7 \n\n";
        assert_eq!(http_response_bytes(lower), Some(lower.len() as u64 + 7));
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX";
        assert_eq!(
            http_response_bytes(cut),
            Some(cut.len() as u64 + 1234),
            "the header goes on in another segment"
        );
    }

    #[test]
    fn length_that_is_missing_wrong_or_told_twice_is_none() {
        for text in [
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\r\n Content-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\n\r\nContent-Length: 5\r\n\r\n",
            "HTTP/2 200\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 12",
            "PRI * HTTP/2.0\r\n",
            "",
        ] {
            assert_eq!(http_response_bytes(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn header_is_looked_for_where_a_response_may_begin() {
        let mut sender = Sender::at(0);
        let total = RESPONSE.len() as u64 - 4 + 1234;
        sender.asked(2 * total as u32);
        let all = |sender: &mut Sender| sender.send_with(total as u32, Some(RESPONSE), true);
        assert_eq!(all(&mut sender), (1, total));
        assert_eq!(all(&mut sender), (1, total), "pipelined: one behind the other");
        let mut sender = Sender::at(0);
        sender.asked(100_000);
        sender.send_with(10_000, Some(b"not http"), false);
        assert_eq!(
            sender.send_with(10_000, Some(RESPONSE), false).1,
            10_000,
            "in the midst of a body it is data"
        );
    }
}
