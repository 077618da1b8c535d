//! Clients with few ports, which come back: what `[FTY97]` is about.

use units::Nanos;

use crate::clients::PORTS;

/// The ports of each client's address, and how long one is kept from use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// How many, from the first of Linux's range on.
    pub count: u16,
    /// TIME-WAIT of connections that are closed here first, and of those by [`tcp::Close::Swap`],
    /// seconds; 0 is none.
    pub time_wait_s: u8,
    /// A port in TIME-WAIT is used again after so long, if the connection had timestamps
    /// (`tcp_tw_reuse`, `tcp_twsk_unique()`, Linux 6.18 `net/ipv4/tcp_ipv4.c`).
    pub reuse_after: Option<Nanos>,
    /// Each address is that of many hosts behind a NAT, which gives a port to another as soon as it
    /// is free. Sequence numbers and timestamps of the next connection have nothing to do with
    /// those of the last.
    pub is_nat: bool,
}

impl Ports {
    /// Linux's range.
    pub const MOST: u16 = PORTS as u16;
}

/// A closed loop, as WebSTONE's of `[FTY97]`: each user asks again `think` after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    /// How many.
    pub users: u32,
    /// From an answer to the next request.
    pub think: Nanos,
}

impl Loop {
    /// They come one after the other within this, so that they do not go in step.
    pub(crate) const COME_WITHIN: Nanos = Nanos::from_secs(1);
    /// A user who fails waits so long at least.
    pub(crate) const AFTER_FAILURE: Nanos = Nanos::from_millis(100);
}
