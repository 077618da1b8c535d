//! Counts the connections that wait for a server, and finds how many may.
//!
//! [`Service`] counts them and says whether one more may wait: `kernel/service.h` and what is built
//! on it, the same code that the BPF programs run. [`Pacer`] is the agent's part. Every
//! [`LOOK_EVERY`] it looks at the counts and says by what the kernel goes until the next look.
//! Between the two is a map in the kernel's case, and nothing in the simulator's. `limit.rs` has
//! the law; `README.md` says why it is so.
//!
//! What it is not: it has no clock, and reads no map. It is told the time and what was counted.

mod demand;
mod fade;
mod handshakes;
mod histogram;
pub mod limit;
mod pacer;
mod service;
#[cfg(test)]
mod virtual_time;
mod weight;

pub use demand::Demand;
pub use kernel::{Pace, Service, Wait};
pub use pacer::{FIRST_PACE, LOOK_EVERY, Learnt, Look, Pacer, Waiting};
pub use service::{SILENT, WAITING, limit_of};
pub use weight::{Second, Weight};
