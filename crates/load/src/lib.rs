//! `tidegate load`: an open-loop crowd over AF_XDP or a packet socket, with its own TCP and
//! thousands of source addresses.
//!
//! [`run`] sends attempts when they are meant to start, whatever the server does. It follows each
//! to its one cause, and says of itself when it could not keep up. What the crowd does is in the
//! crate `crowd`, without I/O.
//!
//! What it is not: it has no TLS, no HTTP/2, no pipelining and no second server. It uses no socket
//! of the kernel's TCP, and needs no address of its own on the interface, except to find the
//! server's Ethernet address.
//!
//! # How it works
//!
//! A worker is a thread with the clock and the rings (`worker.rs`). In a turn it receives, handles
//! deadlines, starts attempts and sends, 64 of each at most. What it could not keep up with is
//! counted and marks the run.
//!
//! Several workers are one crowd. Each has a part of the users, of the client endpoints (number
//! modulo workers) and of the interface's queues. A frame that comes to another's queue is handed
//! over by a ring of bytes for each ordered pair (`handover.rs`), because the network card spreads
//! replies as it likes. `workers.rs` adds up what they saw, on the thread that called.

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
