//! A client's TCP without I/O: told the time, handed segments.
//!
//! [`Connection`] opens a connection, sends one stream of bytes that the caller keeps, hands over what arrives in
//! order, and closes by FIN or RST. The caller owns the clock, the addresses and the frames: it passes `now`, a
//! segment, and a closure that sends.
//!
//! What it is not, and why that is allowed:
//! - No server side, no simultaneous open: it is the crowd.
//! - No TIME-WAIT: every attempt uses a fresh four-tuple, so no old segment can meet a new connection.
//! - No reassembly: what arrives out of order is dropped and asked for again by a duplicate ACK. Between a lab's two
//!   namespaces nothing is reordered; a loss costs the sender a retransmission of what followed it.
//! - No congestion control beyond an initial window of ten segments: a crowd's requests are small.
//! - No window scale, SACK or timestamps: the only option is the maximum segment size.
//!
//! Sources: RFC 9293 (states, acceptability), RFC 6298 (retransmission timeout), RFC 5961 (resets), and Linux 6.18
//! where it chooses: `net/ipv4/tcp_timer.c`, `Documentation/networking/ip-sysctl.rst`.

mod connection;
mod receive;
mod stack;
mod timer;

pub use connection::{Close, Connection, State};
pub use receive::{Change, Heard, reset_for};
pub use stack::{LINUX, Stack};
