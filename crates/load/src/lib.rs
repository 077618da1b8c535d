//! `tidegate load`: an open-loop crowd over AF_XDP or a packet socket, with its own TCP and
//! thousands of source addresses.
//!
//! [`run`] sends attempts when they are meant to start, whatever the server does, follows each to
//! its one cause, and says of itself when it could not keep up. What the crowd does is in the crate
//! `crowd`, without I/O; `worker.rs` is the thread that has the clock and the rings. There may be
//! several: each has a part of the users and of the client endpoints, and a queue of the interface,
//! and frames that come to another's queue go there by `handover.rs`; `workers.rs` adds up what
//! they saw.
//!
//! What it is not: no TLS, no HTTP/2, no pipelining, one server. It has no socket of the kernel's
//! TCP and needs no address of its own on the interface beyond what finds the server's Ethernet
//! address.

mod engine;
mod flood;
mod handover;
mod next_hop;
mod replay;
mod worker;
mod workers;

pub use ::port::Mode;
pub use crowd::{
    Abort, Cause, Crowd, Ended, Loop, MAX_COALESCE, Ports, Shard, Stacks, StacksError, Totals, Wheel,
};
pub use engine::{Config, DEFAULT_RX_FRAMES, MAX_WORKERS, Observer, Progress, run};
pub use flood::Config as Flood;
pub use replay::{Log, read_log};
pub use tcp::Close;
pub use traffic::{
    Arrivals, Bursts, MAX_RATE, Replay, Sessions, Shape, Workload, parse_sessions, parse_shape,
};
