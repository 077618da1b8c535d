//! Why a qdisc is not made, shown or removed.

/// Why a qdisc is not made, shown or removed: one line.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Things are not as they must be; it says what to do.
    #[error("{0}")]
    Refused(String),
    /// Something that was tried failed.
    #[error("{act}: {error:#}")]
    Failed {
        /// What was tried, and on what.
        act: String,
        /// What the system, libbpf or tc said.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What this crate's functions give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Says what was tried.
pub(crate) trait Act<T> {
    fn act(self, act: impl Into<String>) -> Result<T>;
    fn act_with(self, act: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Act<T> for Result<T, E> {
    fn act(self, act: impl Into<String>) -> Result<T> {
        self.map_err(|error| Error::Failed { act: act.into(), error: error.into() })
    }

    fn act_with(self, act: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::Failed { act: act(), error: error.into() })
    }
}

/// What must be there.
pub(crate) trait Wanted<T> {
    fn or_refuse(self, why: &str) -> Result<T>;
}

impl<T> Wanted<T> for Option<T> {
    fn or_refuse(self, why: &str) -> Result<T> {
        self.ok_or_else(|| Error::Refused(why.to_owned()))
    }
}
