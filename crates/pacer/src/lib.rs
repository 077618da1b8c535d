//! Who waits for a server, and how many may. Pure: told the time and what was counted.
//!
//! [`Service`] says who waits, and whether one more may: `kernel/service.h` and what is built on
//! it, the very code that the BPF programs run. [`Pacer`] is the agent's part: what it finds out,
//! and has the kernel go by. Between them is a map in the kernel's case, and nothing in the
//! simulator's. `docs/admission.md` says why so.

mod demand;
mod fade;
mod handshakes;
mod histogram;
pub mod limit;
mod pacer;
mod service;
#[cfg(test)]
mod virtual_time;

pub use demand::Demand;
pub use kernel::{Pace, Service, Wait};
pub use pacer::{FIRST_PACE, LOOK_EVERY, Learnt, Look, Pacer};
pub use service::{SILENT, WAITING, limit_of};
