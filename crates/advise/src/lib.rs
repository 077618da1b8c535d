//! Would a guard help this server? [`Advice`] says yes, no or not yet, and why.
//!
//! A dry run of the guard counts ([`Look`]), several times a second. But it turns nobody away: the
//! server stays full, clients repeat their SYNs, and so its counts of refusals say little. So the
//! clients come once more, in virtual time (`replay.rs`):
//!
//! - Who comes: the first SYN of each connection, when it came.
//! - Who decides: the guard's own decision (`kernel/unserved.h`) and agent (`crates/pacer`).
//! - The server: as many answers in a second as the real one gave while a queue stood, and as many
//!   at a time as it works on by Little's law (`server.rs`).
//!
//! A guard helps if more clients have an answer within a second ([`SOON`]): refused ones have none.
//!
//! # What it cannot know
//!
//! - A user who gives up and loads the page again is a new client here. With a guard that user may
//!   have been answered the first time.
//! - A client that comes again after a refusal, as Windows does three times, half a second apart.
//! - What the server could do, if it was full all the time, and full costs it answers.
//!
//! What it is not: it has no clock and reads no map. `tests/` holds it against the simulator, and
//! `experiments/advise/RESULTS.md` says how right it is.

mod judge;
mod record;
mod replay;
mod server;
mod words;

pub use judge::{Advice, Answer, Capacity, Outlook, Seen, Waiting};
pub use record::{Look, Record};

use units::Nanos;

/// An answer by then is soon, from a client's first SYN: 2^20 us, where a bucket of the response
/// times ends.
pub const SOON: Nanos = Nanos::from_micros(1 << 20);
