//! A client's TCP without I/O: told the time, handed segments.
//!
//! [`Connection`] opens a connection, sends one stream of bytes that the caller keeps, hands over what arrives in
//! order, and closes by FIN or RST. The caller owns the clock, the addresses and the frames: it passes `now`, a
//! segment, and a closure that sends.
//!
//! What it is not, and why that is allowed:
//! - No server side, no simultaneous open: it is the crowd.
//! - No TIME-WAIT: every attempt uses a fresh four-tuple, so no old segment can meet a new connection.
//! - No congestion control beyond the initial window: a crowd's requests are small.
//! - A receive buffer that does not grow, and no use of the peer's selective acknowledgements: ours are sent.
//!
//! Sources: RFC 9293 (states, acceptability), RFC 6298 (retransmission timeout), RFC 5961 (resets), and Linux 6.18
//! where it chooses: `net/ipv4/tcp_timer.c`, `Documentation/networking/ip-sysctl.rst`; RFC 7323 (window scale, timestamps), RFC 2018 (selective
//! acknowledgements); of other systems what [`STACKS`] names.

mod connection;
mod early;
mod receive;
mod stack;
mod timer;

pub use connection::{Close, Connection, State};
pub use receive::{Change, Heard, reset_for};
pub use stack::{LINUX, Rto, STACKS, Stack};
