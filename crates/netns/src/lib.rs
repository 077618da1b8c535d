//! Network namespaces named `tg-*` for the lab, the bench and the kernel tests.
//!
//! It runs a closure or a program there, joins two by a veth pair, sends and receives raw frames,
//! sets a sysctl and reads a counter. Everything is removed on drop. [`sweep`] removes what a `kill
//! -9` left.
//!
//! What it is not: a general namespace library. Names, addresses and neighbours are static, and
//! links are only veth. iproute2's `ip` makes the links, because what it did can be read back and
//! repeated by hand.

mod counters;
mod error;
mod ethtool;
mod lan;
mod link;
mod namespace;
mod tap;

pub use counters::{
    CpuTimes, LinkCounters, accept_queue, cpu_times, link_counters, namespace_counters, receive_softirqs,
    sleeps, softnet_dropped, ticks_per_second, time_waits,
};
pub use error::{Error, Result};
pub use ethtool::{Offload, set_offload};
pub use lan::Lan;
pub use link::{VethEnd, VethPair, mac_text};
pub use namespace::{HOST, Namespace, enter, is_elsewhere, names, open, path_of, pin_to_cpu, sweep, turn};
pub use tap::{Frame, Tap};

/// Whether kernel tests can run here: `Err` has the reason for a skip.
///
/// With `TIDEGATE_REQUIRE_ROOT=1` (CI) a missing privilege is a failure, not a skip.
///
/// # Panics
///
/// When CI demands root and there is none.
pub fn root_or_reason() -> std::result::Result<(), String> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    let required = std::env::var("TIDEGATE_REQUIRE_ROOT").is_ok_and(|value| value == "1");
    assert!(!required, "kernel tests must run here (TIDEGATE_REQUIRE_ROOT=1) but this is not root");
    Err("skipped: needs root to make network namespaces".to_owned())
}
