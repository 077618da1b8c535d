//! One user's attempt to get one reply.

use tcp::Connection;
use units::Nanos;

use crate::clients::Endpoint;
use crate::reply::Reply;

/// An attempt and its connection.
#[derive(Debug)]
pub struct Attempt {
    /// When it should have started. Response time counts from here.
    pub intended_start: Nanos,
    /// Whose it is.
    pub endpoint: Endpoint,
    /// Its cause is settled; only the connection's end is awaited.
    pub ended: bool,
    /// The connection.
    pub connection: Connection,
    /// The reply so far.
    pub reply: Reply,
}

/// How an attempt ended. Each ends in exactly one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A complete reply.
    Ok,
    /// A RST answered the SYN.
    Refused,
    /// A RST came later.
    Reset,
    /// The application's timeout, or the stack's, before the handshake was complete.
    TimedOutConnect,
    /// The application's timeout, or the stack's, after it.
    TimedOutResponse,
    /// The reply was not what HTTP allows, or ended early.
    Malformed,
    /// Never started: the run was stopped, or its four-tuple was still in use.
    NotSent,
    /// Still open when the run stopped.
    Unfinished,
}
