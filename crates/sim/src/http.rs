//! What a server needs of HTTP: where a request ends and what it names, and a reply of some length.

use std::io::Write;

use traffic::Object;

/// Longest reply, bytes.
pub(crate) const LONGEST: u64 = 64 << 20;

/// What the server needs to know of a request.
pub(crate) struct Request {
    /// Of its head, bytes.
    pub(crate) len: usize,
    /// Length of the body that it names, if it does.
    pub(crate) bytes: Option<u64>,
    /// The connection ends with the reply.
    pub(crate) closes: bool,
    /// CLIENT_CLOSE of `[FTY97]`: there is no reply, and the client closes now.
    pub(crate) is_client_close: bool,
}

impl Request {
    /// The one at the start of some bytes, if its head is whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let len = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let head = &bytes[..len];
        let path = head.split(|byte| *byte == b' ').nth(1).and_then(|path| str::from_utf8(path).ok());
        let closes = head.windows(19).any(|field| field.eq_ignore_ascii_case(b"\r\nConnection: close"));
        let is_client_close = head.starts_with(b"CLIENT_CLOSE ");
        Some(Self { len, bytes: path.and_then(Object::bytes_of_path), closes, is_client_close })
    }
}

/// What servers of files say besides, so that a head has the 240 bytes of nginx' and Apache's.
const OF_FILES: &str = "Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nServer: Simulated/1.0.0 (Virtual time)\r\n\
                        Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT\r\nETag: \"64-000000000000000\"\r\nAccept-Ranges: bytes\r\n";

/// Puts a reply with so many bytes of body in place of what `to` has. `is_file`: with the head of a
/// server of files.
pub(crate) fn write_reply(to: &mut Vec<u8>, bytes: u64, is_file: bool) {
    let fields = if is_file { OF_FILES } else { "" };
    to.clear();
    write!(to, "HTTP/1.1 200 OK\r\n{fields}Content-Type: text/plain\r\nContent-Length: {bytes}\r\n\r\n")
        .expect("a Vec takes all");
    let len = to.len() + bytes as usize;
    to.resize(len, b'.');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_a_file_is_as_long_as_those_of_nginx_and_apache() {
        let mut reply = Vec::new();
        write_reply(&mut reply, 5000, true);
        assert_eq!(reply.len(), 240 + 5000);
        write_reply(&mut reply, 5000, false);
        assert!(reply.starts_with(b"HTTP/1.1 200 OK\r\nContent-Type: "));
    }
}
