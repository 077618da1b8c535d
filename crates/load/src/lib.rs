//! `tidegate load`: an open-loop crowd over AF_XDP or a packet socket, with its own TCP and thousands of source addresses.
//!
//! [`run`] sends attempts when they are meant to start, whatever the server does, follows each to its one cause, and
//! says of itself when it could not keep up. What the crowd does is in `crowd.rs`, without I/O; `engine.rs` owns the
//! clock and the rings.
//!
//! What it is not: no TLS, no HTTP/2, no pipelining, one server, one thread. It has no socket of the kernel's TCP
//! and needs no address of its own on the interface beyond what finds the server's Ethernet address.

mod asks;
mod attempt;
mod clients;
mod clock;
mod crowd;
mod engine;
mod flood;
mod next_hop;
mod packet;
mod port;
mod replay;
mod reply;
mod stacks;
mod table;
mod tally;
mod wheel;
mod words;

pub use attempt::{Abort, Cause, Ended};
pub use crowd::{Crowd, Shard};
pub use engine::{Config, DEFAULT_RX_FRAMES, MAX_COALESCE, MAX_RATE, Observer, Progress, run};
pub use flood::Config as Flood;
pub use port::Mode;
pub use replay::{Log, read_log};
pub use stacks::{Stacks, StacksError};
pub use tally::Totals;
pub use tcp::Close;
pub use traffic::{Arrivals, Bursts, Replay, Sessions, Shape, Workload};
pub use wheel::Wheel;
pub use words::{parse_sessions, parse_shape, parse_workload};
