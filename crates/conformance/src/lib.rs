//! Packet scripts played to the running kernel, and to the simulated one: the files of `tests/conformance/`, which are part of this library, so that a
//! test binary needs nothing beside it.
//!
//! It does not judge: [`script::run`] does, for every system alike. [`Kernel`] and [`Simulated`] are two of them.

mod case;
mod kernel;
mod proc_net;
mod simulated;

pub use case::{Case, Outcome, cases, plain_name, scripts};
pub use kernel::Kernel;
pub use simulated::Simulated;
