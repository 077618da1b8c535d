//! What can go wrong with a namespace.

use std::io;
use std::process::Command;

use nix::errno::Errno;

/// Something about a namespace cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program of iproute2 cannot be started.
    #[error("start {command}; is iproute2 installed?: {error}")]
    Start {
        /// With its arguments.
        command: String,
        /// What the system said.
        error: io::Error,
    },
    /// A program of iproute2 refused.
    #[error("{command}: {said}")]
    Refused {
        /// With its arguments.
        command: String,
        /// What it wrote on standard error.
        said: String,
    },
    /// A namespace cannot be entered.
    #[error("enter the namespace: {}", match .0 {
        Errno::EPERM => "not permitted; this needs CAP_SYS_ADMIN".to_owned(),
        Errno::EINVAL => "the file is none of a network namespace".to_owned(),
        other => other.desc().to_lowercase(),
    })]
    Enter(Errno),
    /// The system refused something.
    #[error("{act}: {error}")]
    Failed {
        /// What was tried, and on what.
        act: String,
        /// What the system said: an [`io::Error`] or an [`Errno`].
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file of the kernel does not say what it should.
    #[error("{0}")]
    Missing(String),
}

/// What this crate's functions give.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn start(command: &Command, error: io::Error) -> Self {
        Self::Start { command: format!("{command:?}"), error }
    }

    pub(crate) fn refused(command: &Command, stderr: &[u8]) -> Self {
        let said = String::from_utf8_lossy(stderr).trim().replace('\n', "; ");
        Self::Refused { command: format!("{command:?}"), said }
    }
}

/// Says what was tried.
pub(crate) trait Act<T> {
    fn act(self, act: impl Into<String>) -> Result<T>;
    fn act_with<S: Into<String>>(self, act: impl FnOnce() -> S) -> Result<T>;
}

impl<T, E: Into<Box<dyn std::error::Error + Send + Sync>>> Act<T> for Result<T, E> {
    fn act(self, act: impl Into<String>) -> Result<T> {
        self.act_with(|| act)
    }

    fn act_with<S: Into<String>>(self, act: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| Error::Failed { act: act().into(), error: error.into() })
    }
}
