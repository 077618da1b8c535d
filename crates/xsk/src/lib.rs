//! AF_XDP rings behind a safe API: whole Ethernet frames in and out of the queues of an interface,
//! without the kernel's stack.
//!
//! It also has the program that decides which received frames those are. An [`Interface`] has the
//! program and gives a socket for each queue. [`Socket::open`] is both where there is one queue.
//!
//! What it is not: a general AF_XDP library. It has one socket for each queue, each with its own
//! memory, and frames of at most one buffer ([`FRAME_SIZE`]; to receive, [`MAX_RECEIVED`]). Sockets
//! share no memory, and there are no metadata and no multi-buffer frames. It parses no frame and
//! computes no checksum.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use xsk::{Config, Mode, Socket, Steer};
//!
//! let mut socket = Socket::open(&Config {
//!     ifindex: 3,
//!     interface: "eth0".to_owned(),
//!     mode: Mode::Auto,
//!     rx_frames: 65_536,
//!     tx_frames: 4_096,
//!     steer: Steer { server: "10.0.0.1:80".parse()?, clients: ("10.1.0.0".parse()?, 16) },
//! })?;
//! let Socket { rx, tx, .. } = &mut socket;
//! rx.wait(Duration::from_millis(10))?;
//! rx.receive(64, |frame| {
//!     tx.transmit(|buffer| {
//!         buffer[..frame.len()].copy_from_slice(frame);
//!         frame.len()
//!     });
//! });
//! tx.flush()?;
//! # Ok(())
//! # }
//! ```
//!
//! `unsafe` is in `ring.rs`, the memory shared with the kernel, and `sys.rs`, the system calls.
//! `rx.rs` and `tx.rs` say whose a frame is when they touch it.

mod error;
mod interface;
mod program;
mod ring;
mod rx;
mod socket;
mod statistics;
mod steer;
mod sys;
mod tx;

pub use error::Error;
pub use interface::{Config, Interface, MAX_QUEUES, MAX_RECEIVED, Mode, Queues};
pub use ring::FRAME_SIZE;
pub use rx::{Rx, wait_for_any};
pub use socket::Socket;
pub use statistics::Statistics;
pub use steer::Steer;
pub use sys::{MAX_POLLED, wait_readable};
pub use tx::Tx;
