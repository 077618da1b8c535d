//! A TCP without I/O: told the time, handed segments. A client's whole; of a server's what follows
//! its listener's decisions.
//!
//! [`Connection`] opens a connection, sends one stream of bytes that the caller keeps, hands over
//! what arrives in order, and closes by FIN or RST. The caller owns the clock, the addresses and
//! the frames: it passes `now`, a segment, and a closure that sends.
//!
//! What it is not, and why that is allowed:
//! - No listener: whose SYN is answered is decided elsewhere ([`Handshake`] is what follows), and
//!   no simultaneous open.
//! - TIME-WAIT only on request ([`Connection::keep_time_wait`]): who uses a fresh four-tuple for
//!   each attempt needs none.
//! - No congestion control beyond the initial window, and no use of the peer's selective
//!   acknowledgements, unless [`Connection::control`] gives a sender of large streams both: a
//!   crowd's requests are small, and a million of them have no room for more.
//! - A receive buffer that does not grow.
//!
//! Sources: RFC 9293 (states, acceptability), RFC 6298 (retransmission timeout), RFC 5961 (resets),
//! and Linux 6.18 where it chooses: `net/ipv4/tcp_timer.c`,
//! `Documentation/networking/ip-sysctl.rst`; RFC 7323 (window scale, timestamps), RFC 2018
//! (selective acknowledgements); for congestion control RFC 5681, RFC 6675 and RFC 9438; of other
//! systems what [`STACKS`] names.

mod accept;
mod congestion;
mod connection;
mod control;
mod cubic;
mod early;
mod estimate;
mod flight;
mod receive;
mod recovery;
mod stack;
mod stream;
mod timer;

pub use accept::Handshake;
pub use congestion::Algorithm;
pub use connection::{Close, Connection, State};
pub use control::{Control, PathState};
pub use receive::{Change, Heard, reset_for};
pub use recovery::Counts;
pub use stack::{Estimator, LINUX, Rto, STACKS, Stack};
pub use stream::{Stream, Zeros};
