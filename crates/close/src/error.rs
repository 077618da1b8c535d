//! Errors of this crate.

/// Why the programs do not start or go on, in one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The setup makes no sense. The text says what would.
    #[error("{0}")]
    Mistaken(String),
    /// The host lacks something. The text says what to do.
    #[error("{0}")]
    Refused(String),
    /// An act failed.
    #[error("{act}: {error:#}")]
    Failed {
        /// The act and its object.
        act: String,
        /// The cause, from the system or libbpf.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) fn refused(why: impl Into<String>) -> Error {
    Error::Refused(why.into())
}

/// Adds the failed act to an error.
pub(crate) trait Act<T> {
    fn act(self, act: impl Into<String>) -> Result<T>;
    fn act_with(self, act: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Act<T> for Result<T, E> {
    fn act(self, act: impl Into<String>) -> Result<T> {
        self.act_with(|| act.into())
    }

    fn act_with(self, act: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Failed { act: act(), error: error.into() })
    }
}
