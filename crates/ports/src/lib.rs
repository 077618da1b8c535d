//! Counts the local ports that are taken and left towards each destination, and when they run out.
//!
//! A connection is known by its four-tuple: both addresses and both ports. So each local address
//! can have as many connections to one address and port as it has ports. The end that closes first
//! keeps the four-tuple in TIME_WAIT for 60 s (RFC 9293 3.6.1). TIME_WAIT may have most ports.
//!
//! [`Survey::take`] counts, and [`advise`] says what would help. What it is not: a change of
//! anything; it only looks.

mod advice;
mod error;
mod settings;
mod survey;

pub use advice::{Advice, advise};
pub use error::{Error, Result};
pub use settings::{Reuse, Settings};
pub use survey::{Pair, Served, Survey};
