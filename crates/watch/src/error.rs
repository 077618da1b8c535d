//! What can go wrong with telemetry.

use std::io;

/// Listeners cannot be found, or not be watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// We may not load the programs.
    #[error("load the telemetry: {0}; run as root or with CAP_BPF and CAP_PERFMON")]
    Forbidden(libbpf_rs::Error),
    /// The kernel refuses the programs.
    #[error("load the telemetry: {0}; is this kernel older than 6.1?")]
    Refused(libbpf_rs::Error),
    /// The kernel does not tell its types.
    #[error(
        "load the telemetry: this kernel has no BTF; boot one built with CONFIG_DEBUG_INFO_BTF=y (every current distribution's is)"
    )]
    NoBtf,
    /// The kernel's own list is not to be had.
    #[error("list the listeners: {0}")]
    List(io::Error),
    /// What was counted is not to be had.
    #[error("read the counters: {0:#}")]
    Counters(libbpf_rs::Error),
    /// The kernel's files do not tell.
    #[error("{act}: {error}")]
    Files {
        /// What was read, and what for.
        act: String,
        /// What the system said.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A namespace is out of reach.
    #[error(transparent)]
    Namespace(#[from] netns::Error),
}

/// What this crate's functions give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was read.
pub(crate) fn reading<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    act: impl Into<String>,
) -> impl FnOnce(E) -> Error {
    move |error| Error::Files { act: act.into(), error: error.into() }
}
