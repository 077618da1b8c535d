//! Telemetry of listeners: who listens in each network namespace of the host, how full the queues
//! are, and, with the programs of `kernel/watch.bpf.c`, why clients of a listener wait: the causes
//! of `[Shu05]` section 2.1.1, and the time in its accept queue.
//!
//! It reads and never decides; nothing runs for data segments; it keeps no thread and pins nothing.
//! What came before it was started it does not know. A hook that a kernel lacks makes its counters
//! `None`, never 0.
//!
//! ```no_run
//! use watch::{Counter, Hook, Watch};
//!
//! let watch = Watch::start(&Hook::ALL)?;
//! for watched in watch.counters()? {
//!     println!("{}: {:?}", watched.listener.address, watched.counters.get(Counter::ListenQOverflow));
//! }
//! # Ok::<(), watch::Error>(())
//! ```

mod cgroup;
mod counters;
mod error;
mod hook;
mod host;
mod inventory;
mod owner;
mod procfs;
mod program;

pub use cgroup::Cgroups;
pub use counters::{Counter, Counters};
pub use error::{Error, Result};
pub use hook::{Hook, Missing};
pub use host::{Host, Listener, Queues, Survey};
pub use inventory::{Entry, Inventory};
pub use owner::{Owners, Process};
pub use procfs::own_listeners;
pub use program::{Watch, Watched};
pub use verdict::Histogram;
