//! Telemetry of listeners: which there are in each network namespace of the host, how full their
//! queues are, and why their clients wait.
//!
//! The causes are those of `[Shu05]` section 2.1.1. They and the time in the accept queue come from
//! the programs of `kernel/watch.bpf.c`.
//!
//! What it is not: a decision. It only reads, keeps no thread and pins nothing. What came before it
//! was started it does not know.
//!
//! # How it works
//!
//! The programs hang at five places of the kernel's TCP (fentry, fexit):
//! - a SYN,
//! - a segment for a request socket,
//! - the end of a handshake,
//! - the way into the accept queue, and the way out of it.
//!
//! Nothing runs for data. A hook that a kernel lacks makes its counters `None`, never 0.
//!
//! All state is LRU: an entry for each listener, 65,536 waiting connections and 32,768 SYNs. The
//! guard's policy *observe* attaches nothing else.
//!
//! ```no_run
//! use watch::{Counter, Hook, Watch};
//!
//! let watch = Watch::start(&Hook::ALL)?;
//! for watched in watch.counters()? {
//!     let overflows = watched.counters.get(Counter::ListenQOverflow);
//!     println!("{}: {overflows:?}", watched.listener.address);
//! }
//! # Ok::<(), watch::Error>(())
//! ```

mod cgroup;
mod counters;
mod error;
mod holders;
mod hook;
mod host;
mod inventory;
mod lookout;
mod owner;
mod procfs;
mod program;

pub use cgroup::Cgroups;
pub use counters::{Counter, Counters};
pub use error::{Error, Result};
pub use holders::{Holder, holders};
pub use hook::{Hook, Missing};
pub use host::{Host, Listener, Queues, Survey};
pub use inventory::{Entry, Inventory};
pub use lookout::Lookout;
pub use owner::{Owners, Process};
pub use program::{Watch, Watched};
pub use verdict::Histogram;
