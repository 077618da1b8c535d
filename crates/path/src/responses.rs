//! How much of a response is left, as a router can know it: from the packets of both directions.
//!
//! [`Responses`] is told of each segment before it is enqueued. Where a plain HTTP/1 response
//! begins it reads the length that the head says (Content-Length, RFC 9112), and counts from there
//! by sequence numbers, in 64 bits. Of all else it knows what was sent since the last new data in
//! the opposite direction.
//!
//! - A response begins where the one before it ends, or with the first data after new data in the
//!   opposite direction. A request that comes while a response of known length is under way is
//!   pipelined, and changes nothing about that.
//! - Content-Length is read by `kernel/http.h`, as at an uplink: up to 18 digits, and not known of
//!   a second one. What of a head is not in the segment where the response begins, or behind its
//!   first 1024 bytes, is not read. An answer to HEAD, and one of status 1xx, 204 or 304, ends with
//!   its head.
//! - A length that lies: more bytes than it said, without a request for them, count as sent by that
//!   response, of which no more is known. Another head that comes after another request, before all
//!   bytes have come, begins a response of its own.
//! - A segment that is sent again has left what is still to come, and itself.
//!
//! What this is not: no reassembly, no chunked coding, no TLS, no HTTP/2 or QUIC, where only what
//! was sent is known, and each frame of the client (an HTTP/2 WINDOW_UPDATE, an acknowledgement in
//! QUIC) begins that anew. A sender can lie about its own flow's place, and no one else's.
//!
//! The table is bounded: when it is full, the connection that was heard of the longest ago is
//! forgotten, and its response goes on as one of unknown length.

mod entry;
mod http;
mod table;
#[cfg(test)]
mod tests;

use entry::Half;
use table::Table;

/// Connections that are followed unless told: some 14 MB when all of them are there.
pub const DEFAULT_CONNECTIONS: usize = 65_536;

/// What is known of a packet's response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Service {
    /// Bytes that are still to come, the packet's among them; see [`aqm::Packet::left`].
    pub left: Option<u64>,
    /// Bytes that came before the packet; see [`aqm::Packet::attained`].
    pub attained: u64,
}

/// A TCP segment that comes by.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// Of its first byte, or of its SYN.
    pub seq: u32,
    /// It has a SYN.
    pub is_syn: bool,
    /// Bytes of its payload.
    pub payload_bytes: u32,
    /// What that says.
    pub content: Content<'a>,
}

/// What a payload says of a response that begins with it.
#[derive(Debug, Clone, Copy)]
pub enum Content<'a> {
    /// The payload, or its beginning.
    Bytes(&'a [u8]),
    /// There are no bytes, as in a simulation; a response that begins here has so many. The head,
    /// if it is thought to have one, is among them.
    Length(u64),
}

/// One of the two directions of a connection. Which is which does not matter, but it must stay so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// One.
    First = 0,
    /// The opposite one.
    Second = 1,
}

/// What is known of the responses on many connections.
#[derive(Debug)]
pub struct Responses {
    table: Table,
}

impl Responses {
    /// Nothing is known. As many connections are followed at most, at least one.
    pub fn new(connections: usize) -> Self {
        Self { table: Table::new(connections.max(1)) }
    }

    /// A segment comes by. `connection` is the same in both directions, and no two connections
    /// should have the same; a keyed hash of 64 bits will do.
    pub fn segment(&mut self, connection: u64, side: Side, seen: &Seen<'_>) -> Service {
        if seen.payload_bytes == 0 && !seen.is_syn {
            return Service { left: Some(0), attained: 0 };
        }
        let [own, opposite] = self.table.both(connection, side);
        if seen.is_syn {
            // What a SYN carries (TCP Fast Open) is not looked at.
            own.open(seen.seq.wrapping_add(1));
            return Service { left: Some(0), attained: 0 };
        }
        if let Some(new) = own.new_bytes(seen) {
            opposite.asked(match seen.content {
                Content::Bytes(bytes) => bytes.get(new..).unwrap_or_default(),
                Content::Length(_) => &[],
            });
        }
        own.responded(seen)
    }

    /// A packet without sequence numbers comes by: of UDP, or a fragment.
    pub fn datagram(&mut self, connection: u64, side: Side, bytes: u32) -> Service {
        let [own, opposite]: [&mut Half; 2] = self.table.both(connection, side);
        opposite.asked(&[]);
        own.counted(bytes)
    }

    /// Connections that are followed.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether no connection is followed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
