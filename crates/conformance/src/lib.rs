//! Packet scripts played to the running kernel: a [`Case`] is a script with an address family and a
//! hook, in network namespaces of its own.
//!
//! What it is not: no judge, which [`script::run`] is for every system alike; and it has no
//! scripts, which are those of crates/corpus.

mod case;
mod kernel;
mod proc_net;

pub use case::{Case, Outcome, cases};
