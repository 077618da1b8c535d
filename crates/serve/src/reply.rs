//! The replies, made once at start: serving one is a single send of prepared bytes.

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
pub(crate) struct Replies([Reply; 5]);

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
    pub(crate) fn new(body_len: usize) -> Self {
        let body = body(body_len);
        Self([
            Reply::new("200 OK", "", &body),
            Reply::new("200 OK", "Connection: close\r\n", &body),
            Reply::refusal("400 Bad Request", "no HTTP/1 request\n"),
            Reply::refusal("431 Request Header Fields Too Large", "request head above 8 KiB\n"),
            Reply::refusal("501 Not Implemented", "send Content-Length instead\n"),
        ])
    }

    /// The reply of a kind.
    pub(crate) fn get(&self, kind: Kind) -> &Reply {
        match kind {
            Kind::Ok => &self.0[0],
            Kind::OkClose => &self.0[1],
            Kind::BadRequest => &self.0[2],
            Kind::TooLarge => &self.0[3],
            Kind::NotImplemented => &self.0[4],
        }
    }
}

impl Reply {
    fn new(status: &str, fields: &str, body: &[u8]) -> Self {
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{fields}\r\n",
            body.len()
        );
        Self { head_len: head.len(), bytes: [head.as_bytes(), body].concat().into() }
    }

    fn refusal(status: &str, body: &str) -> Self {
        Self::new(status, "Connection: close\r\n", body.as_bytes())
    }
}

/// Lines that a person can recognise in a packet dump.
fn body(len: usize) -> Vec<u8> {
    b"tidegate serve\n".iter().copied().cycle().take(len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_and_body_have_the_lengths_that_they_name() {
        for len in [0, 1, 512, 100_000] {
            let replies = Replies::new(len);
            let reply = replies.get(Kind::Ok);
            assert_eq!(reply.bytes.len() - reply.head_len, len);
            assert!(reply.bytes[..reply.head_len].ends_with(b"\r\n\r\n"));
        }
    }

    #[test]
    fn default_reply_fits_the_smallest_mss_of_ethernet() {
        // 1500 less 40 (IPv6), 20 (TCP), 12 (timestamps).
        let replies = Replies::new(crate::Config::default().reply_bytes);
        assert!(replies.get(Kind::OkClose).bytes.len() <= 1428);
    }
}
