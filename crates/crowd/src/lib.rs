//! Simulates users and their clients' TCP, and says what became of each attempt.
//!
//! [`Crowd`] starts attempts when they are meant to start, whatever the server does. It follows
//! each to its one [`Cause`], and response time counts from the intended start. It is told the time
//! and handed segments: `tidegate load` runs it over an interface, and the simulator in virtual
//! time. Clients have the TCP of several systems, one state machine with other constants
//! (`crates/tcp`). Users may go on to other objects and pages (`crowd/visits.rs`). A segment for no
//! connection is answered by a RST, as the client's kernel would.
//!
//! What it is not: it has no I/O, no TLS, no HTTP/2, no pipelining and no second server. Its
//! clients have no congestion control, because their requests are small.

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
