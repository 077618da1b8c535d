//! Why closing is not watched or go on.

/// Why closing is not watched or go on: one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was asked for makes no sense; it says what would.
    #[error("{0}")]
    Mistaken(String),
    /// Things are not as they must be; it says what to do.
    #[error("{0}")]
    Refused(String),
    /// Something that was tried failed.
    #[error("{act}: {error:#}")]
    Failed {
        /// What was tried, and on what.
        act: String,
        /// What the system or libbpf said.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What this crate's functions give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) fn refused(why: impl Into<String>) -> Error {
    Error::Refused(why.into())
}

/// Says what was tried.
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
