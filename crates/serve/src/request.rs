//! Bytes to requests. Pure: no socket, no clock.

use crate::reply::Kind;

/// Longest request head, bytes. As nginx's and Apache's defaults for one line.
pub(crate) const MAX_HEAD: usize = 8192;
/// Most header fields in a request; browsers send about 20.
const MAX_FIELDS: usize = 100;

/// What the first bytes of a connection's input are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parsed {
    /// The head goes on beyond these bytes.
    Partial,
    /// A whole head.
    Complete(Request),
    /// No request that we serve; this is the answer, and the connection ends with it.
    Refused(Kind),
}

/// What the server needs to know of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Length of the head with its empty line, bytes.
    pub(crate) head_len: usize,
    /// Length of the body that follows it, bytes.
    pub(crate) body_len: u64,
    /// Whether the client wants to send another request on this connection.
    pub(crate) keep_alive: bool,
    /// A HEAD request: answer without the body.
    pub(crate) head_only: bool,
    /// CLIENT_CLOSE of `[FTY97]`: it has no reply, and the client closes now.
    pub(crate) is_client_close: bool,
    /// Length of the reply's body, where the path names one ([`traffic::Object::path`]).
    pub(crate) reply_bytes: Option<u64>,
}

/// Reads the request at the start of `bytes`.
///
/// HTTP/1.1 keeps the connection unless `Connection: close` is among the fields; HTTP/1.0 always
/// closes, which differs from servers that honour `Connection: keep-alive` there.
pub(crate) fn parse(bytes: &[u8]) -> Parsed {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let head_len = match request.parse(bytes) {
        Ok(httparse::Status::Complete(len)) if len <= MAX_HEAD => len,
        Ok(httparse::Status::Partial) if bytes.len() < MAX_HEAD => return Parsed::Partial,
        Ok(_) | Err(httparse::Error::TooManyHeaders) => return Parsed::Refused(Kind::TooLarge),
        Err(_) => return Parsed::Refused(Kind::BadRequest),
    };
    let mut keep_alive = request.version == Some(1);
    let mut body_len = None;
    for field in request.headers.iter() {
        if field.name.eq_ignore_ascii_case("connection") {
            keep_alive &= !has_token(field.value, "close");
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Parsed::Refused(Kind::NotImplemented);
        } else if field.name.eq_ignore_ascii_case("content-length") {
            match (decimal(field.value), body_len) {
                (Some(len), None) => body_len = Some(len),
                (Some(len), Some(before)) if len == before => {}
                _ => return Parsed::Refused(Kind::BadRequest),
            }
        }
    }
    Parsed::Complete(Request {
        head_len,
        body_len: body_len.unwrap_or(0),
        keep_alive,
        head_only: request.method == Some("HEAD"),
        is_client_close: request.method == Some("CLIENT_CLOSE"),
        reply_bytes: request.path.and_then(traffic::Object::bytes_of_path),
    })
}

fn has_token(value: &[u8], token: &str) -> bool {
    value.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

/// Digits only: `+5` and `5, 5` are how requests are smuggled past a proxy.
fn decimal(value: &[u8]) -> Option<u64> {
    let digits = value.trim_ascii();
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Parsed::Complete(request) => request,
            other => panic!("{text:?} is {other:?}"),
        }
    }

    #[test]
    fn every_strict_prefix_of_a_request_is_partial() {
        let whole = "GET /a HTTP/1.1\r\nHost: tide\r\nAccept: */*\r\n\r\n";
        for len in 0..whole.len() {
            assert_eq!(parse(&whole.as_bytes()[..len]), Parsed::Partial, "{len} bytes");
        }
        assert_eq!(complete(whole).head_len, whole.len());
    }

    #[test]
    fn connection_stays_open_in_http_1_1_unless_told_and_never_in_1_0() {
        assert!(complete("GET / HTTP/1.1\r\n\r\n").keep_alive);
        assert!(!complete("GET / HTTP/1.1\r\nconnection: Close\r\n\r\n").keep_alive);
        assert!(!complete("GET / HTTP/1.1\r\nConnection: te , close\r\n\r\n").keep_alive);
        assert!(complete("GET / HTTP/1.1\r\nConnection: closed\r\n\r\n").keep_alive);
        assert!(!complete("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").keep_alive);
    }

    #[test]
    fn client_close_is_a_request_of_its_own() {
        assert!(complete("CLIENT_CLOSE * HTTP/1.1\r\nHost: tide\r\n\r\n").is_client_close);
        assert!(!complete("GET /CLIENT_CLOSE HTTP/1.1\r\n\r\n").is_client_close);
    }

    #[test]
    fn head_of_8_kib_passes_and_one_byte_more_is_refused() {
        let frame = "GET / HTTP/1.1\r\nX: \r\n\r\n".len();
        let padded = |len: usize| format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "a".repeat(len - frame));
        assert_eq!(complete(&padded(MAX_HEAD)).head_len, MAX_HEAD);
        assert_eq!(parse(padded(MAX_HEAD + 1).as_bytes()), Parsed::Refused(Kind::TooLarge));
        assert_eq!(
            parse(&padded(MAX_HEAD + 1).as_bytes()[..MAX_HEAD]),
            Parsed::Refused(Kind::TooLarge),
            "a head that fills the limit and has not ended will exceed it"
        );
    }

    #[test]
    fn body_length_must_be_one_plain_number() {
        let with = |fields: &str| parse(format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes());
        for (fields, len) in [("Content-Length: 12", 12), ("Content-Length: 7\r\ncontent-length: 7", 7)] {
            match with(fields) {
                Parsed::Complete(request) => assert_eq!(request.body_len, len, "{fields}"),
                other => panic!("{fields} is {other:?}"),
            }
        }
        for fields in [
            "Content-Length: +5",
            "Content-Length: 5, 5",
            "Content-Length:",
            "Content-Length: 99999999999999999999999",
            "Content-Length: 5\r\nContent-Length: 6",
        ] {
            assert_eq!(with(fields), Parsed::Refused(Kind::BadRequest), "{fields}");
        }
        assert_eq!(with("Transfer-Encoding: chunked"), Parsed::Refused(Kind::NotImplemented));
    }

    #[test]
    fn garbage_is_refused_as_malformed() {
        for bytes in [&b"\x16\x03\x01\x02\x00\x01"[..], b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"] {
            assert_eq!(parse(bytes), Parsed::Refused(Kind::BadRequest), "{bytes:?}");
        }
    }
}
