//! Who waits for a server, and how many may. Pure: told the time and what was counted.
//!
//! [`Service`] is `kernel/unserved.h`, the very code that the BPF programs run: who waits; [`Returns`] is `kernel/returned.h`: who comes back. [`Pacer`] is what the agent finds out several times a second, and
//! has the kernel go by: how many may. Between them is a map in the kernel's case, and nothing in the simulator's. `docs/admission.md` says why so.

mod capacity;
mod curve;
mod demand;
mod fade;
mod filling;
mod handshakes;
mod histogram;
pub mod limit;
mod newcomers;
mod pacer;
mod returns;
mod round_trips;
mod service;
mod service_rate;
#[cfg(test)]
mod virtual_time;

pub use demand::Demand;
pub use kernel::{Back, Outcome, Pace, Service, Wait};
pub use pacer::{FIRST_PACE, LOOK_EVERY, Look, Pacer};
pub use returns::Returns;
pub use service::{BESIDE, SILENT, WAITING, limit_of};
