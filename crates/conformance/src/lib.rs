//! Plays packet scripts to the running kernel, behind the guard: a [`Case`] is a script with an
//! address family and a hook, in network namespaces of its own.
//!
//! What it is not: a judge, because [`script::run`] judges every system alike. Nor has it any
//! scripts: crates/corpus has them.

mod case;
mod kernel;
mod proc_net;

pub use case::{Case, Outcome, cases};
