//! The crowd: users, their clients' TCP, and what became of each attempt. Told the time and handed
//! segments, without I/O: `tidegate load` runs it over an interface, and the simulator in virtual
//! time.
//!
//! [`Crowd`] starts attempts when they are meant to start, whatever the server does, and follows
//! each to its one [`Cause`].
//!
//! What it is not: no TLS, no HTTP/2, no pipelining, one server.

mod asks;
mod attempt;
mod clients;
mod crowd;
mod pages;
mod ports;
mod reply;
mod stacks;
mod table;
mod tally;
mod wheel;

pub use asks::Asks;
pub use attempt::{Abort, Cause, Ended};
pub use clients::{Clients, Endpoint};
pub use crowd::{Crowd, Manners, Shard};
pub use pages::Pages;
pub use ports::{Loop, Ports};
pub use stacks::{Stacks, StacksError};
pub use tally::{MAX_COALESCE, Tally, Totals, Window};
pub use wheel::{TICK, Wheel};
