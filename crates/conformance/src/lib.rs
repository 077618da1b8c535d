//! Packet scripts played to the running kernel: the files of `tests/conformance/`, which are part of this library, so that a
//! test binary needs nothing beside it.
//!
//! It does not judge: [`script::run`] does, for every system alike. [`Kernel`] is one of them.

mod case;
mod kernel;
mod proc_net;

pub use case::{Case, Outcome, cases, plain_name, scripts};
pub use kernel::Kernel;
