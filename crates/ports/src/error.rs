//! Errors of a survey.

/// Why a survey failed, in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The sockets could not be listed.
    #[error("list the TCP sockets: {0}")]
    Unlisted(#[from] netlink::Error),
    /// A setting could not be read.
    #[error("read /proc/sys/{0}: {1}")]
    Unread(&'static str, std::io::Error),
    /// A setting has a value that Linux does not write.
    #[error("/proc/sys/{0} says {1:?}, which is not what Linux writes there")]
    Strange(&'static str, String),
}

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;
