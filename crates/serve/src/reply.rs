//! The replies, made once at start: serving one is a single send of prepared bytes. But for those
//! whose length the client's path names.

use std::borrow::Cow;

/// The body of a reply of any length is sent in pieces of so many bytes.
const PIECE: usize = 64 * 1024;
/// A line of every body, that a person can recognise in a packet dump.
const LINE: &[u8] = b"tidegate serve\n";

/// Which reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 200, the connection stays open.
    Ok,
    /// 200, the connection closes after it.
    OkClose,
    /// 400: no HTTP.
    BadRequest,
    /// 431: the head is longer than we read.
    TooLarge,
    /// 501: a transfer encoding.
    NotImplemented,
}

/// All replies of a server.
#[derive(Debug)]
pub(crate) struct Replies {
    prepared: [Reply; 5],
    /// Lines, from the beginning of one.
    lines: Box<[u8]>,
}

/// A 200 with a body of so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfLength {
    /// Length of the body.
    pub(crate) bytes: u64,
    /// The connection closes after it.
    pub(crate) closes: bool,
}

impl OfLength {
    /// Status line and fields.
    pub(crate) fn head(&self) -> String {
        let fields = if self.closes { CLOSE } else { "" };
        head("200 OK", self.bytes, fields)
    }
}

/// How long a reply is, head and all, to a request that names a body of so many bytes and closes
/// the connection.
pub fn reply_bytes(body: u64) -> u64 {
    OfLength { bytes: body, closes: true }.head().len() as u64 + body
}

const CLOSE: &str = "Connection: close\r\n";

fn head(status: &str, len: u64, fields: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len}\r\n{fields}\r\n")
}

/// One prepared reply.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Head and body.
    pub(crate) bytes: Box<[u8]>,
    /// Length of the head: what a HEAD request gets.
    pub(crate) head_len: usize,
}

impl Replies {
    /// Replies whose 200 carries a body of `body_len` bytes.
    /// Framed by its length, or as one chunk where the connection goes on.
    pub(crate) fn new(body_len: usize, in_chunks: bool) -> Self {
        let body = body(body_len);
        let prepared = [
            if in_chunks { Reply::chunked(&body) } else { Reply::new("200 OK", "", &body) },
            Reply::new("200 OK", CLOSE, &body),
            Reply::refusal("400 Bad Request", "no HTTP/1 request\n"),
            Reply::refusal("431 Request Header Fields Too Large", "request head above 8 KiB\n"),
            Reply::refusal("501 Not Implemented", "send Content-Length instead\n"),
        ];
        Self { prepared, lines: self::body(PIECE + LINE.len()).into() }
    }

    /// Of a reply of some length, what comes after its first `sent` bytes: some of it, but all if
    /// it is short.
    pub(crate) fn piece(&self, reply: OfLength, sent: u64) -> Cow<'_, [u8]> {
        let head = reply.head();
        let head_len = head.len() as u64;
        let body_sent = sent.saturating_sub(head_len);
        let len = (reply.bytes - body_sent).min(PIECE as u64) as usize;
        let from = (body_sent % LINE.len() as u64) as usize;
        let body = &self.lines[from..from + len];
        match head.as_bytes().get(sent as usize..).filter(|rest| !rest.is_empty()) {
            Some(rest) => [rest, body].concat().into(),
            None => body.into(),
        }
    }

    /// The reply of a kind.
    pub(crate) fn get(&self, kind: Kind) -> &Reply {
        match kind {
            Kind::Ok => &self.prepared[0],
            Kind::OkClose => &self.prepared[1],
            Kind::BadRequest => &self.prepared[2],
            Kind::TooLarge => &self.prepared[3],
            Kind::NotImplemented => &self.prepared[4],
        }
    }
}

impl Reply {
    fn new(status: &str, fields: &str, body: &[u8]) -> Self {
        let head = head(status, body.len() as u64, fields);
        Self { head_len: head.len(), bytes: [head.as_bytes(), body].concat().into() }
    }

    fn chunked(body: &[u8]) -> Self {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
        // A chunk of no bytes would be the end (RFC 9112 section 7.1).
        let chunk = if body.is_empty() { Vec::new() } else { format!("{:x}\r\n", body.len()).into_bytes() };
        let end: &[u8] = if body.is_empty() { b"0\r\n\r\n" } else { b"\r\n0\r\n\r\n" };
        Self { head_len: head.len(), bytes: [head.as_bytes(), &chunk, body, end].concat().into() }
    }

    fn refusal(status: &str, body: &str) -> Self {
        Self::new(status, CLOSE, body.as_bytes())
    }
}

fn body(len: usize) -> Vec<u8> {
    LINE.iter().copied().cycle().take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_body_have_the_lengths_that_they_name() {
        for len in [0, 1, 512, 100_000] {
            let replies = Replies::new(len, false);
            let reply = replies.get(Kind::Ok);
            assert_eq!(reply.bytes.len() - reply.head_len, len);
            assert!(reply.bytes[..reply.head_len].ends_with(b"\r\n\r\n"));
        }
    }

    #[test]
    fn reply_in_chunks_ends_with_the_empty_one() {
        for (len, framed) in [(0, &b"\r\n\r\n0\r\n\r\n"[..]), (3, b"\r\n\r\n3\r\ntid\r\n0\r\n\r\n")] {
            let replies = Replies::new(len, true);
            assert!(replies.get(Kind::Ok).bytes.ends_with(framed), "{len}");
            assert!(replies.get(Kind::OkClose).bytes.starts_with(b"HTTP/1.1 200 OK\r\nContent-Type"));
        }
    }

    #[test]
    fn default_reply_fits_the_smallest_mss_of_ethernet() {
        // 1500 less 40 (IPv6), 20 (TCP), 12 (timestamps).
        let replies = Replies::new(crate::Config::default().reply_bytes, false);
        assert!(replies.get(Kind::OkClose).bytes.len() <= 1428);
    }
}
