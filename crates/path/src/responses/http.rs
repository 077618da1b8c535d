//! Heads of HTTP/1 messages (RFC 9112), as far as they say where a message ends. Content-Length is
//! read by `kernel/http.h`.

/// Requests that may be unanswered on a connection; of more nothing is remembered.
const MOST_REQUESTS: u32 = 64;
const METHODS: [&[u8]; 9] =
    [b"GET ", b"HEAD ", b"POST ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"TRACE ", b"CONNECT "];
const HEAD_END: &[u8] = b"\r\n\r\n";

/// The head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    status: u16,
    /// With its blank line; 0 if that is not there.
    bytes: u64,
    /// Of head and body, by Content-Length, as `kernel/http.h` reads it.
    response_bytes: Option<u64>,
}

/// Where a response ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// So many bytes from its beginning on.
    Bytes(u64),
    /// The same, and the answer is still to come (status 1xx).
    Interim(u64),
    Unknown,
}

impl Head {
    /// `None` where no response of HTTP/1 begins.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let status = status(bytes)?;
        let end = find(bytes, HEAD_END).map_or(0, |at| at + HEAD_END.len());
        Some(Self { status, bytes: end as u64, response_bytes: kernel::http_response_bytes(bytes) })
    }

    /// Of the response, if it answers HEAD or not.
    pub(super) fn length(self, answers_head: bool) -> Length {
        let Self { status, bytes, response_bytes } = self;
        match status {
            // What follows is of another protocol.
            101 => Length::Unknown,
            100..200 if bytes > 0 => Length::Interim(bytes),
            100..200 => Length::Unknown,
            204 | 304 if bytes > 0 => Length::Bytes(bytes),
            204 | 304 => Length::Unknown,
            _ if answers_head && bytes > 0 => Length::Bytes(bytes),
            _ if answers_head => Length::Unknown,
            _ => response_bytes.map_or(Length::Unknown, Length::Bytes),
        }
    }
}

/// `HTTP/1.1 200 `, or what else begins so.
fn status(bytes: &[u8]) -> Option<u16> {
    let rest = bytes.strip_prefix(b"HTTP/1.")?;
    let [version, space, digits @ ..] = rest.first_chunk::<5>()?;
    let is_status = version.is_ascii_digit()
        && *space == b' '
        && digits.iter().all(u8::is_ascii_digit)
        && digits[0] >= b'1';
    is_status.then(|| digits.iter().fold(0, |status, digit| 10 * status + u16::from(digit - b'0')))
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// Requests that have not been answered, the first ones first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Requests {
    count: u32,
    /// Bit n says whether number n of them is HEAD.
    heads: u64,
}

impl Requests {
    /// Requests that begin in a payload: the first at its beginning, each other behind the head
    /// before it.
    pub(super) fn read(&mut self, mut bytes: &[u8]) {
        while METHODS.iter().any(|method| bytes.starts_with(method)) {
            if self.count < MOST_REQUESTS {
                self.heads |= u64::from(bytes.starts_with(b"HEAD ")) << self.count;
                self.count += 1;
            }
            let Some(end) = find(bytes, HEAD_END) else { return };
            bytes = &bytes[end + HEAD_END.len()..];
        }
    }

    pub(super) fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Whether the first one is HEAD.
    pub(super) fn is_head(self) -> bool {
        self.heads & 1 != 0
    }

    /// The first one is answered.
    pub(super) fn answer(&mut self) {
        self.count = self.count.saturating_sub(1);
        self.heads >>= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(head: &str) -> Option<Length> {
        Head::read(head.as_bytes()).map(|head| head.length(false))
    }

    #[test]
    fn length_is_that_of_head_and_body() {
        let head = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-LENGTH:  1000 \r\n\r\n";
        assert_eq!(length(head), Some(Length::Bytes(head.len() as u64 + 1000)));
        assert_eq!(length(&format!("{head}body")), length(head));
        let read = Head::read(head.as_bytes()).expect("a head");
        assert_eq!(read.length(true), Length::Bytes(head.len() as u64), "of HEAD");
        for (status, wanted) in [
            ("204 No", Length::Bytes(42)),
            ("304 No", Length::Bytes(42)),
            ("103 No", Length::Interim(42)),
            ("101 No", Length::Unknown),
            ("404 No", Length::Bytes(51)),
        ] {
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {:05}\r\n\r\n", 9);
            assert_eq!(length(&head), Some(wanted), "{status}");
        }
    }

    #[test]
    fn length_that_cannot_be_believed_is_unknown() {
        for fields in [
            "",
            "Content-Length:\r\n",
            "Content-Length: -1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 5,5\r\n",
            "Content-Length: 0x10\r\n",
            "Content-Length: 18446744073709551616\r\n",
            "Content-Length: 18446744073709551615\r\n",
            "Content-Length: 99999999999999999999999999\r\n",
            "Content-Length: 5\r\nContent-Length: 6\r\n",
            "Transfer-Encoding: chunked\r\n",
            "X-Content-Length: 5\r\n",
        ] {
            let head = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            assert_eq!(length(&head), Some(Length::Unknown), "{fields}");
        }
        let cut = "HTTP/1.1 304 OK\r\nContent-Length: 5\r\n";
        assert_eq!(length(cut), Some(Length::Unknown), "its end is not there");
    }

    #[test]
    fn what_is_no_response_of_http_1_is_none() {
        for text in
            ["", "HTTP/1.1", "HTTP/2 200 ", "HTTP/1.1 20x OK", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01"]
        {
            assert_eq!(length(text), None, "{text}");
        }
    }

    #[test]
    fn requests_are_told_apart() {
        let mut requests = Requests::default();
        requests.read(b"GET / HTTP/1.1\r\n\r\nHEAD / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\n\r\nbody");
        let mut heads = Vec::new();
        while !requests.is_empty() {
            heads.push(requests.is_head());
            requests.answer();
        }
        assert_eq!(heads, [false, true, false]);
        requests.answer();
        requests.read(b"HEAD / HT");
        assert!(requests.is_head());
        requests.read(b"TP/1.1\r\n\r\n");
        requests.answer();
        assert!(requests.is_empty(), "the end of a request is none");
        requests.read(&b"HEAD / HTTP/1.1\r\n\r\n".repeat(100));
        assert_eq!(requests, Requests { count: 64, heads: u64::MAX });
    }
}
