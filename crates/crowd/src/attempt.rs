//! One user's attempt to get one reply.

use std::net::SocketAddr;

use tcp::{Connection, Stack};
use units::Nanos;

use crate::asks::Asks;
use crate::clients::Endpoint;
use crate::crowd::Manners;
use crate::reply::Reply;

/// An attempt and its connection.
#[derive(Debug)]
pub struct Attempt {
    /// When it should have started.
    pub intended_start: Nanos,
    /// When the request that is under way should have been sent: of the first, with the attempt.
    /// Response time counts from here.
    pub asked_at: Nanos,
    /// When its user began, before reloads.
    pub user_start: Nanos,
    /// Number of its user, from 0: says what is asked for.
    pub user: u64,
    /// The session that it belongs to, or [`NO_SESSION`].
    pub session: u32,
    /// Which object of that session, from 0.
    pub object: u32,
    /// Reloads before it.
    pub reloads: u8,
    /// Requests of its connection, and which of them is under way, from 0.
    pub requests: u8,
    pub request: u8,
    /// The last reply is complete, and the next request waits until the last is acknowledged.
    pub is_between: bool,
    /// The server has acknowledged all of the request under way, which need not be written again.
    pub is_asked: bool,
    /// Status code of the last reply that was complete, 0 before one.
    pub status: u16,
    /// The connection waits for another user's request.
    pub is_idle: bool,
    /// Users that its connection has served, this one included.
    pub served: u8,
    /// A byte of the reply to the request under way has come.
    pub has_begun: bool,
    /// The client's system.
    pub stack: &'static Stack,
    /// Whose it is.
    pub endpoint: Endpoint,
    /// Its cause is settled; only the connection's end is awaited.
    pub ended: bool,
    /// The reply is there, and the server is to close first.
    pub awaits_end: bool,
    /// The client has said that it closes.
    pub says_close: bool,
    /// The connection.
    pub connection: Connection,
    /// The reply so far.
    pub reply: Reply,
}

/// Of an attempt whose user asks for nothing else.
pub const NO_SESSION: u32 = u32::MAX;

/// A number for each object of each user.
pub fn asker(user: u64, object: u32) -> u64 {
    user.wrapping_add(u64::from(object) << 40)
}

impl Attempt {
    /// Whose questions it asks: a number for each object of each user.
    pub fn asker(&self) -> u64 {
        asker(self.user, self.object)
    }

    /// SYNs that it sent: none on a connection that was there.
    pub fn syns(&self) -> u32 {
        if self.served > 1 { 0 } else { self.connection.syns_sent() }
    }

    /// How many bytes the request under way asks for; of a page that only the server knows, those
    /// that came.
    pub fn asked_bytes(&self, asks: &Asks) -> u64 {
        asks.bytes(self.asker(), self.request).unwrap_or(self.reply.body())
    }

    /// When its user, or the application, has waited long enough for the reply.
    pub fn patience_ends(&self, manners: &Manners) -> Nanos {
        let patience = manners.abort.map_or(manners.timeout, |abort| abort.after.min(manners.timeout));
        self.asked_at + patience
    }
}

/// An attempt that has ended, for a record of each.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Number of its user, from 0.
    pub user: u64,
    /// Reloads before it.
    pub reloads: u8,
    /// The client's system.
    pub stack: &'static Stack,
    /// The client's address and port.
    pub client: SocketAddr,
    /// When it should have started, since the start of the run.
    pub intended_start: Nanos,
    /// When it ended.
    pub ended: Nanos,
    /// How.
    pub cause: Cause,
    /// SYNs that it sent.
    pub syns: u32,
    /// Requests that were answered, and that there were.
    pub replies: u8,
    /// See `replies`.
    pub requests: u8,
    /// Which object of its user's session, from 0; 0 without sessions.
    pub object: u32,
    /// Status code of the last of its complete replies; 0 when there was none.
    pub status: u16,
}

/// A user who does not wait any longer stops the page and loads it again (`[SH06]` section 5.1, H).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abort {
    /// How long a reply may take, from the request.
    pub after: Nanos,
    /// So often the user tries again, at once.
    pub reloads: u8,
}

/// How an attempt ended. Each ends in exactly one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A complete reply, to each of its requests, whatever the status: [`results::Statuses`] tells
    /// those apart.
    Ok,
    /// A RST answered the SYN.
    Refused,
    /// A RST came later.
    Reset,
    /// The application's timeout, or the stack's, before the handshake was complete.
    TimedOutConnect,
    /// The application's timeout, or the stack's, after it.
    TimedOutResponse,
    /// The user lost patience, and reloaded or gave up.
    Aborted,
    /// The reply was not what HTTP allows, or ended early.
    Malformed,
    /// Its address had no port left.
    NoPort,
    /// Never started: the run was stopped, or its four-tuple was still in use.
    NotSent,
    /// Still open when the run stopped.
    Unfinished,
}

impl Cause {
    /// How many there are.
    pub const COUNT: usize = Self::Unfinished as usize + 1;

    /// As it is called in records and in the summary's fields.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::TimedOutConnect => "timed_out_connect",
            Self::TimedOutResponse => "timed_out_response",
            Self::Aborted => "aborted",
            Self::Malformed => "malformed",
            Self::NoPort => "no_port",
            Self::NotSent => "not_sent",
            Self::Unfinished => "unfinished",
        }
    }
}
