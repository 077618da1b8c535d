//! A server, its clients and the network between them in virtual time.
//!
//! A [`World`] is a crowd before a server, near or far away. [`Kernel`] is the server's.
//! [`dumbbell`] has a bottleneck between many hosts. [`EventQueue`] orders what is to happen.
//!
//! What it is not: it asks no kernel for anything. A dumbbell has no server's kernel.
//!
//! # What is real, and what is a model
//!
//! - Real: the crowd (`crates/crowd`), the decisions (`kernel/verdict.h`, `kernel/unserved.h`), the
//!   counts of waiting connections (`kernel/service.h`) and the agent (`crates/pacer`).
//! - A model: Linux's listener (`kernel.rs`, `kernel/request.rs` for the SYN queue). It plays the
//!   packet scripts of `tests/conformance/` (`crates/corpus`) as the running kernel does. The
//!   server's program is event-driven (`server.rs`) or a pool of processes (`pool.rs`).
//! - What work costs the server's CPU is in a profile. `profiles` has machines that come along,
//!   those of the papers with their kernels' rules.
//! - A dumbbell has `crates/tcp` at both ends of every flow, around a bottleneck of `crates/path`
//!   and `crates/aqm`. The lab makes the same of real hosts, with the same users
//!   ([`dumbbell::Population`]).
//! - Frames of the server's link may be kept ([`Capture`]), and `crates/virtual-lab` writes them as
//!   pcap files.

mod capture;
mod cpu;
pub mod dumbbell;
mod http;
mod kernel;
mod pool;
pub mod profile;
mod program;
mod queue;
mod server;
mod woken;
mod world;

pub use capture::Capture;
pub use kernel::{
    Config, Counters, Generation, GuardStats, Kernel, Mark, News, Outside, Peer, Read, RequestId, Sending,
    SocketId, SocketState, Timer, Waiting, Work, WriteError,
};
pub use profile::{Profile, ProfileError};
pub use queue::EventQueue;
pub use server::{Accept, Closes, Serving};
pub use world::{Device, PathCounts, ServerCounts, Setup, UplinkConfig, UplinkCounts, World};
