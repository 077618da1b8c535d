//! A server, its clients and the network between them in virtual time.
//!
//! [`EventQueue`] orders what is to happen, and [`Kernel`] is the server's: the decisions of
//! `kernel/verdict.h` and the rules of Linux. The packet scripts that the running kernel passes are
//! played to it (`crates/corpus`). A [`World`] is a crowd before such a server, on a wire without a
//! rate, or far away; [`dumbbell`] has a bottleneck between many hosts, and no server's kernel.

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
