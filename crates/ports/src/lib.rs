//! Which local ports are taken towards whom, how many are left, and when they run out.
//!
//! A connection is known by four numbers: both addresses and both ports. Towards one address and
//! port a host can have as many connections as it has ports, for each of its own addresses. Whoever
//! closes first keeps the four numbers in TIME_WAIT for 60 s (RFC 9293 3.6.1), and that may be most
//! of them. [`Survey::take`] counts, [`advise`] says what would help.

mod advice;
mod error;
mod settings;
mod survey;

pub use advice::{Advice, advise};
pub use error::{Error, Result};
pub use settings::{Reuse, Settings};
pub use survey::{Pair, Served, Survey};
