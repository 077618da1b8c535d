//! An HTTP/1 reply, read to its end as it comes in.

/// Response header fields that are looked at; more than any real server sends, and a bound for
/// httparse.
const MAX_HEADERS: usize = 64;
/// A reply whose head, or the line before a chunk, does not end within this many bytes is
/// malformed.
const MAX_HEAD: usize = 64 * 1024;

/// How far a reply has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More must follow.
    Partial,
    /// The last byte was read.
    Complete,
    /// Not a reply that HTTP allows.
    Malformed,
}

/// A reply that is being read.
#[derive(Debug, Default)]
pub struct Reply {
    expected: Expected,
    /// Bytes of the body so far.
    body: u64,
    /// What arrived but could not be understood yet: a head or chunk line that is cut. Mostly
    /// empty.
    pending: Box<[u8]>,
    status: u16,
    interim: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Expected {
    #[default]
    Head,
    /// Body bytes still to come.
    Length(u64),
    /// A chunk's size line.
    ChunkSize,
    /// Bytes of a chunk.
    Chunk(u64),
    /// The line end behind it.
    ChunkEnd,
    /// The fields after the last chunk.
    Trailer,
    /// Whatever comes until the server closes.
    UntilClose,
    Nothing,
}

impl Reply {
    /// Takes in the next bytes.
    pub fn feed(&mut self, data: &[u8]) -> Progress {
        if self.pending.is_empty() {
            let (consumed, progress) = self.read(data);
            if progress == Progress::Partial {
                self.pending = data[consumed..].into();
            }
            return progress;
        }
        let mut pending = std::mem::take(&mut self.pending).into_vec();
        pending.extend_from_slice(data);
        let (consumed, progress) = self.read(&pending);
        self.pending = pending[consumed..].into();
        progress
    }

    /// The status code of its head, 0 to 999; 0 before the head is complete.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Interim replies (1xx) that came before it, 255 at most.
    pub fn interim(&self) -> u8 {
        self.interim
    }

    /// Bytes of the body so far.
    pub fn body(&self) -> u64 {
        self.body
    }

    /// The server has closed: whether that is where the reply ends.
    pub fn end(&self) -> Progress {
        match self.expected {
            Expected::UntilClose | Expected::Nothing => Progress::Complete,
            _ => Progress::Malformed,
        }
    }

    /// Reads on as far as it can; gives how many bytes it took.
    fn read(&mut self, data: &[u8]) -> (usize, Progress) {
        let mut at = 0;
        loop {
            let rest = &data[at..];
            let step = match self.expected {
                Expected::Nothing => return (at, Progress::Complete),
                Expected::Head => self.read_head(rest),
                Expected::ChunkSize => read_chunk_size(rest),
                Expected::Trailer => read_trailer(rest),
                Expected::UntilClose => {
                    self.body += rest.len() as u64;
                    return (data.len(), Progress::Partial);
                }
                Expected::Length(left) => skip(rest, left, Expected::Length, Expected::Nothing),
                Expected::Chunk(left) => skip(rest, left, Expected::Chunk, Expected::ChunkEnd),
                Expected::ChunkEnd => read_line_end(rest),
            };
            let is_body = matches!(self.expected, Expected::Length(_) | Expected::Chunk(_));
            match step {
                Step::Next(consumed, expected) => {
                    self.body += if is_body { consumed as u64 } else { 0 };
                    (at, self.expected) = (at + consumed, expected);
                }
                Step::Cut if rest.len() < MAX_HEAD => return (at, Progress::Partial),
                Step::Cut | Step::Malformed => return (at, Progress::Malformed),
            }
        }
    }

    fn read_head(&mut self, data: &[u8]) -> Step {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let len = match response.parse(data) {
            Ok(httparse::Status::Partial) => return Step::Cut,
            Ok(httparse::Status::Complete(len)) => len,
            Err(_) => return Step::Malformed,
        };
        let (Some(status), Some(next)) = (response.code, body(&response)) else {
            return Step::Malformed;
        };
        match next {
            Expected::Head => self.interim = self.interim.saturating_add(1),
            _ => self.status = status,
        }
        Step::Next(len, next)
    }
}

enum Step {
    /// So many bytes were read; this comes next.
    Next(usize, Expected),
    /// What is being read goes on beyond the data.
    Cut,
    Malformed,
}

fn skip(data: &[u8], left: u64, same: impl Fn(u64) -> Expected, after: Expected) -> Step {
    let available = data.len() as u64;
    if left <= available {
        return Step::Next(left as usize, after);
    }
    if data.is_empty() {
        return Step::Cut;
    }
    Step::Next(data.len(), same(left - available))
}

/// How long the body is (RFC 9112 section 6.3), for a request that was not HEAD.
fn body(response: &httparse::Response<'_, '_>) -> Option<Expected> {
    match response.code? {
        100..=199 => return Some(Expected::Head), // an interim reply; the real one follows
        204 | 304 => return Some(Expected::Nothing),
        _ => {}
    }
    let field = |name: &str| response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    if let Some(coding) = field("transfer-encoding") {
        let text = std::str::from_utf8(coding.value).ok()?;
        let is_chunked = text.rsplit(',').next()?.trim().eq_ignore_ascii_case("chunked");
        return Some(if is_chunked { Expected::ChunkSize } else { Expected::UntilClose });
    }
    let mut lengths =
        response.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("content-length"));
    let Some(length) = lengths.next() else {
        return Some(Expected::UntilClose);
    };
    // Two that differ are none, nor is a number with a sign (RFC 9112 section 6.3).
    let is_one = lengths.all(|other| other.value == length.value);
    let digits = std::str::from_utf8(length.value).ok()?.trim();
    let is_number = is_one && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok().map(Expected::Length)).flatten()
}

fn read_chunk_size(data: &[u8]) -> Step {
    match httparse::parse_chunk_size(data) {
        Ok(httparse::Status::Complete((len, 0))) => Step::Next(len, Expected::Trailer),
        Ok(httparse::Status::Complete((len, size))) => Step::Next(len, Expected::Chunk(size)),
        Ok(httparse::Status::Partial) => Step::Cut,
        Err(_) => Step::Malformed,
    }
}

fn read_line_end(data: &[u8]) -> Step {
    match data.get(..2) {
        None => Step::Cut,
        Some(b"\r\n") => Step::Next(2, Expected::ChunkSize),
        Some(_) => Step::Malformed,
    }
}

fn read_trailer(data: &[u8]) -> Step {
    let Some(end) = data.windows(2).position(|pair| pair == b"\r\n") else {
        return Step::Cut;
    };
    Step::Next(end + 2, if end == 0 { Expected::Nothing } else { Expected::Trailer })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n";

    #[test]
    fn reply_is_complete_at_its_last_byte_however_it_is_cut() {
        for reply in [LENGTH, CHUNKED] {
            for piece in 1..=reply.len() {
                let mut state = Reply::default();
                let pieces: Vec<&[u8]> = reply.chunks(piece).collect();
                let (last, before) = pieces.split_last().expect("not empty");
                for piece in before {
                    assert_eq!(state.feed(piece), Progress::Partial);
                }
                assert_eq!(state.feed(last), Progress::Complete, "in pieces of {piece}");
                assert_eq!(state.body(), if reply == LENGTH { 5 } else { 8 }, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn reply_without_a_length_ends_when_the_server_closes() {
        let mut reply = Reply::default();
        assert_eq!(reply.feed(b"HTTP/1.0 200 OK\r\n\r\nsome text"), Progress::Partial);
        assert_eq!(reply.body(), 9);
        assert_eq!(reply.end(), Progress::Complete);
    }

    #[test]
    fn reply_that_stops_short_of_its_length_is_malformed() {
        let mut reply = Reply::default();
        assert_eq!(reply.feed(&LENGTH[..LENGTH.len() - 1]), Progress::Partial);
        assert_eq!(reply.end(), Progress::Malformed);
        assert_eq!(Reply::default().end(), Progress::Malformed, "nothing at all is no reply");
    }

    #[test]
    fn reply_without_a_body_is_complete_after_its_head() {
        assert_eq!(Reply::default().feed(b"HTTP/1.1 304 Not Modified\r\n\r\n"), Progress::Complete);
        let interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(Reply::default().feed(interim), Progress::Complete);
    }

    #[test]
    fn status_is_that_of_the_final_head_and_interim_ones_are_counted() {
        let text = b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
        let mut reply = Reply::default();
        for (at, byte) in text.iter().enumerate() {
            assert_eq!(reply.status(), if at > text.len() - 3 { 404 } else { 0 }, "after {at} bytes");
            reply.feed(&[*byte]);
        }
        assert_eq!((reply.status(), reply.interim()), (404, 1));
        let mut malformed = Reply::default();
        malformed.feed(b"HTTP/1.1 500 No\r\nContent-Length: x\r\n\r\n");
        assert_eq!(malformed.status(), 0, "what is no reply has no status");
    }

    #[test]
    fn garbage_is_malformed_and_never_grows_without_bound() {
        assert_eq!(Reply::default().feed(b"SSH-2.0-OpenSSH\r\n"), Progress::Malformed);
        let mut reply = Reply::default();
        let mut progress = reply.feed(b"HTTP/1.1 200 OK\r\nX: ");
        for _ in 0..100 {
            if progress == Progress::Partial {
                progress = reply.feed(&[b'a'; 1000]);
            }
        }
        assert_eq!(progress, Progress::Malformed);
        for bad in [
            &b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello",
            b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        ] {
            assert_eq!(Reply::default().feed(bad), Progress::Malformed, "{}", String::from_utf8_lossy(bad));
        }
    }
}
