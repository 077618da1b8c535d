//! Says what this kernel can do for Tidegate, by trying it, never by its version.
//!
//! It tries hooks on a veth pair in a namespace of its own. It only asks about the host's
//! interfaces, and lets go of each program that it has loaded. What it may not try it reports as
//! not known, with the reason. What it is not: a setup tool, because nothing that it changes lasts.
//!
//! ```no_run
//! let diagnosis = doctor::examine();
//! println!("{}", doctor::text(&diagnosis));
//! ```

mod hook;
mod privilege;
mod probe;
mod program;
mod sysctl;
mod text;
mod tiny;
mod verdict;

use serde::Serialize;

pub use privilege::Privilege;
pub use probe::{Answer, Probe};
pub use program::{Program, Verification};
pub use sysctl::Sysctl;
pub use text::text;
pub use verdict::{orders, verdict};

/// What was found out about the kernel, from the caller's network namespace and with its
/// privileges.
#[derive(Debug, Clone, Serialize)]
pub struct Diagnosis {
    /// As `uname -r` has it.
    pub kernel: String,
    /// What the caller may do.
    pub privileges: Vec<Privilege>,
    /// What the kernel can do.
    pub probes: Vec<Probe>,
    /// Settings of the host that change what a guard does.
    pub sysctls: Vec<Sysctl>,
    /// Every program of ours, loaded.
    pub programs: Vec<Program>,
}

/// Tries everything; takes a second or two.
pub fn examine() -> Diagnosis {
    // libbpf writes pages to stderr when something is refused, and that is an answer here.
    libbpf_rs::set_print(None);
    Diagnosis {
        kernel: nix::sys::utsname::uname()
            .map_or_else(|error| error.to_string(), |name| name.release().to_string_lossy().into_owned()),
        privileges: privilege::all(),
        probes: probe::all(),
        sysctls: sysctl::all(),
        programs: program::all(),
    }
}
