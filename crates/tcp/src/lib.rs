//! A TCP without I/O, told the time and handed segments: all of a client's, and of a server's what
//! follows its listener's decisions.
//!
//! [`Connection`] opens a connection, sends one stream of bytes that the caller keeps, hands over
//! what arrives in order, and closes by FIN or RST. The caller owns the clock, the addresses and
//! the frames: it passes `now`, a segment, and a closure that sends. `stack.rs` has the constants
//! of several systems.
//!
//! What it is not, and why that is allowed:
//! - No listener: another crate decides whose SYN is answered ([`Handshake`] is what follows). No
//!   simultaneous open.
//! - TIME-WAIT only on request ([`Connection::keep_time_wait`]): a fresh four-tuple for each
//!   attempt needs none.
//! - No congestion control beyond the initial window, and no use of the peer's selective
//!   acknowledgements, unless [`Connection::control`] gives a sender of large streams both. A
//!   crowd's requests are small, and a million of them have no room for more. With it a sender has
//!   NewReno or CUBIC (`control.rs`, `recovery.rs`, `congestion.rs`), held against the running
//!   kernel segment by segment.
//! - A receive buffer that does not grow.
//!
//! Sources: RFC 9293 (states, acceptability), RFC 6298 (retransmission timeout), RFC 5961 (resets),
//! RFC 7323 (window scale, timestamps), RFC 2018 (selective acknowledgements); for congestion
//! control RFC 5681, RFC 6675 and RFC 9438. Where Linux 6.18 chooses: `net/ipv4/tcp_timer.c` and
//! `Documentation/networking/ip-sysctl.rst`. For other systems: what [`STACKS`] names.

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
