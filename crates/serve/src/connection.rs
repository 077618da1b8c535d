//! One connection: what has been read, what is still to be sent, what it waits for.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::sys::socket::{Shutdown, shutdown};

use crate::cpu;
use crate::reply::{Kind, OfLength, Replies};
use crate::request::{self, MAX_HEAD, Parsed, Request};
use crate::server::Totals;
use crate::sys;

/// Most bytes that we read and throw away after a refusal, so that the client can still read why.
const MAX_LINGER: usize = 64 * 1024;

/// An accepted connection.
///
/// Replies are sent as they are made, so at most one is unfinished; while it is, nothing is read,
/// and a client that sends requests without reading replies is stopped by TCP's own window.
pub(crate) struct Connection {
    socket: OwnedFd,
    /// Read, not yet served: the start of a request, or requests behind an unfinished reply. At
    /// most a head that is not complete and one [`Scratch`]. Empty, without memory, whenever the
    /// client waits or thinks.
    input: Vec<u8>,
    /// Bytes of a request body that are still to be thrown away.
    body_left: u64,
    unfinished: Option<Unfinished>,
    phase: Phase,
}

/// What the connections of a server share.
pub(crate) struct Desk {
    pub(crate) replies: Replies,
    pub(crate) cpu_time: Duration,
    /// From when on it is another.
    pub(crate) later: Option<(Instant, Duration)>,
    pub(crate) totals: Totals,
}

impl Desk {
    /// What a request burns now.
    fn cpu_time(&self) -> Duration {
        self.later.filter(|(from, _)| *from <= Instant::now()).map_or(self.cpu_time, |(_, later)| later)
    }
}

/// Where a read lands; shared by all connections, so that an idle one owns no buffer.
pub(crate) type Scratch = [u8; MAX_HEAD];

/// What must happen before the connection can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// More input.
    Read,
    /// Room in the send buffer.
    Write,
    /// Nothing: drop it.
    Close,
}

/// The part of a reply that the send buffer did not take.
#[derive(Clone, Copy)]
struct Unfinished {
    answer: Answer,
    /// Bytes, head and body.
    sent: u64,
    end: u64,
}

/// What a reply is made of.
#[derive(Clone, Copy)]
enum Answer {
    Prepared(Kind),
    OfLength(OfLength),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Requests are served.
    Open,
    /// The client asked for the end: close once the reply is sent.
    LastReply,
    /// A request was refused: send why, then linger.
    Refusing,
    /// Our side is shut; input is thrown away until the client closes. Closing at once would send a
    /// RST for the bytes that we did not read, and a RST makes the client's stack discard our
    /// reply.
    Lingering { left: usize },
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, input: Vec::new(), body_left: 0, unfinished: None, phase: Phase::Open }
    }

    /// Does what can be done without waiting: sends, reads at most once, serves.
    ///
    /// One read for each call keeps a client that pipelines without end from holding the thread.
    /// What is left in the socket makes it ready again, because it is watched level-triggered.
    pub(crate) fn advance(&mut self, desk: &mut Desk, scratch: &mut Scratch) -> Next {
        match self.try_advance(desk, scratch) {
            Ok(next) => next,
            Err(_) => {
                // A reset by a client that has its reply is how crowds close; only an unserved
                // request is a loss.
                desk.totals.lost += u64::from(self.is_busy());
                Next::Close
            }
        }
    }

    fn try_advance(&mut self, desk: &mut Desk, scratch: &mut Scratch) -> io::Result<Next> {
        if let Some(unfinished) = self.unfinished.take() {
            if !self.send(&desk.replies, unfinished)? {
                return Ok(Next::Write);
            }
            if self.phase != Phase::Open {
                return self.finish();
            }
            // Requests that came behind the reply. If they leave nothing unfinished, reading waits
            // for the next call.
            let input = std::mem::take(&mut self.input);
            return self.serve(&input, desk);
        }
        let received = match sys::receive(self.socket.as_fd(), scratch) {
            Ok(received) => received,
            Err(error) if is_transient(&error) => return Ok(Next::Read),
            Err(error) => return Err(error),
        };
        if received == 0 {
            desk.totals.lost += u64::from(self.is_busy());
            return Ok(Next::Close);
        }
        if let Phase::Lingering { left } = &mut self.phase {
            *left = left.saturating_sub(received);
            return Ok(if *left == 0 { Next::Close } else { Next::Read });
        }
        if self.input.is_empty() {
            // The usual case: one whole request, served from the scratch without a copy.
            return self.serve(&scratch[..received], desk);
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(&scratch[..received]);
        self.serve(&input, desk)
    }

    /// Serves the requests in `bytes` and keeps what is left of them.
    fn serve(&mut self, mut bytes: &[u8], desk: &mut Desk) -> io::Result<Next> {
        loop {
            bytes = self.skip_body(bytes);
            if bytes.is_empty() {
                return Ok(Next::Read);
            }
            let sent = match request::parse(bytes) {
                Parsed::Partial => {
                    self.input = bytes.to_vec();
                    return Ok(Next::Read);
                }
                Parsed::Complete(request) => {
                    self.body_left = request.body_len;
                    bytes = self.skip_body(&bytes[request.head_len..]);
                    request.is_client_close || self.answer(&request, desk)?
                }
                Parsed::Refused(kind) => {
                    desk.totals.refused += 1;
                    self.phase = Phase::Refusing;
                    bytes = &[];
                    self.send(&desk.replies, Unfinished::prepared(kind, &desk.replies))?
                }
            };
            if !sent {
                self.input = bytes.to_vec();
                return Ok(Next::Write);
            }
            if self.phase != Phase::Open {
                return self.finish();
            }
        }
    }

    fn skip_body<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let len = usize::try_from(self.body_left).map_or(bytes.len(), |left| left.min(bytes.len()));
        self.body_left -= len as u64;
        &bytes[len..]
    }

    fn answer(&mut self, request: &Request, desk: &mut Desk) -> io::Result<bool> {
        cpu::burn(desk.cpu_time());
        desk.totals.requests += 1;
        let closes = !request.keep_alive;
        if closes {
            self.phase = Phase::LastReply;
        }
        let unfinished = match request.reply_bytes {
            Some(bytes) => Unfinished::of_length(OfLength { bytes, closes }, request.head_only),
            None => {
                let kind = if closes { Kind::OkClose } else { Kind::Ok };
                let mut unfinished = Unfinished::prepared(kind, &desk.replies);
                if request.head_only {
                    unfinished.end = desk.replies.get(kind).head_len as u64;
                }
                unfinished
            }
        };
        self.send(&desk.replies, unfinished)
    }

    /// Sends what is left of a reply; `false` if the send buffer is full before its end.
    fn send(&mut self, replies: &Replies, mut unfinished: Unfinished) -> io::Result<bool> {
        while unfinished.sent < unfinished.end {
            match sys::send(self.socket.as_fd(), &unfinished.piece(replies)) {
                Ok(sent) => unfinished.sent += sent as u64,
                Err(error) if is_transient(&error) => {
                    self.unfinished = Some(unfinished);
                    return Ok(false);
                }
                Err(error) => {
                    self.unfinished = Some(unfinished);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// After the last reply.
    fn finish(&mut self) -> io::Result<Next> {
        if self.phase == Phase::LastReply && self.body_left == 0 {
            return Ok(Next::Close);
        }
        shutdown(self.socket.as_raw_fd(), Shutdown::Write)?;
        self.input = Vec::new();
        self.phase = Phase::Lingering { left: MAX_LINGER };
        Ok(Next::Read)
    }

    /// Whether a request is arriving or a reply is leaving.
    fn is_busy(&self) -> bool {
        let arriving = !self.input.is_empty() || self.body_left > 0;
        self.unfinished.is_some() || (self.phase == Phase::Open && arriving)
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Unfinished {
    fn prepared(kind: Kind, replies: &Replies) -> Self {
        Self { answer: Answer::Prepared(kind), sent: 0, end: replies.get(kind).bytes.len() as u64 }
    }

    fn of_length(reply: OfLength, head_only: bool) -> Self {
        let body = if head_only { 0 } else { reply.bytes };
        Self {
            answer: Answer::OfLength(reply),
            sent: 0,
            end: (reply.head().len() as u64).saturating_add(body),
        }
    }

    /// What to send next.
    fn piece<'a>(&self, replies: &'a Replies) -> Cow<'a, [u8]> {
        let (from, end) = (self.sent as usize, self.end as usize);
        match self.answer {
            Answer::Prepared(kind) => replies.get(kind).bytes[from..end].into(),
            Answer::OfLength(reply) => match replies.piece(reply, self.sent) {
                Cow::Borrowed(piece) => piece[..piece.len().min(end - from)].into(),
                Cow::Owned(mut piece) => {
                    piece.truncate(end - from);
                    piece.into()
                }
            },
        }
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connection_costs_under_a_hundred_bytes() {
        assert!(size_of::<Connection>() < 100, "{} bytes", size_of::<Connection>());
    }
}
