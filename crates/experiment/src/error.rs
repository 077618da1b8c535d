//! Why an experiment file cannot be run.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

/// The experiment file cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// It cannot be read.
    #[error("read experiment {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: files::ReadError,
    },
    /// It is not TOML, or has an unknown key or a wrong type.
    #[error("experiment {}: {}", path.display(), files::say_toml_error(error))]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and what.
        error: Box<toml::de::Error>,
    },
    /// It asks for something that cannot be.
    #[error("experiment {}: {what}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// What, why, and what would do.
        what: String,
    },
}

impl ExperimentError {
    /// Whether there is no such file, or it is none or says something wrong, rather than being out
    /// of reach.
    pub fn is_mistake(&self) -> bool {
        match self {
            Self::Read { source, .. } => source.is_mistake(),
            Self::Parse { .. } | Self::Invalid { .. } => true,
        }
    }
}

/// What the text of a file says, unchecked.
pub(crate) fn from_toml<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T, ExperimentError> {
    toml::from_str(text).map_err(|error| ExperimentError::Parse { path: path.into(), error: Box::new(error) })
}
