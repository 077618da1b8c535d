//! `tidegate load`: an open-loop crowd over AF_XDP, with its own TCP and thousands of source addresses.
//!
//! [`run`] sends attempts when they are meant to start, whatever the server does, follows each to its one cause, and
//! says of itself when it could not keep up. What the crowd does is in `crowd.rs`, without I/O; `engine.rs` owns the
//! clock and the rings.
//!
//! What it is not: no TLS, no HTTP/2, one request per connection, one server, one thread. It touches no kernel socket
//! and needs no address of its own on the interface beyond what finds the server's Ethernet address.

mod attempt;
mod clients;
mod clock;
mod crowd;
mod engine;
mod flood;
mod next_hop;
mod reply;
mod table;
mod tally;
mod wheel;

pub use crowd::Crowd;
pub use engine::{Config, DEFAULT_RX_FRAMES, MAX_COALESCE, MAX_RATE, Progress, run};
pub use flood::Config as Flood;
pub use tcp::Close;
pub use traffic::{Arrivals, Bursts};
pub use xsk::Mode;
