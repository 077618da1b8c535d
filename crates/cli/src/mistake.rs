//! Mistakes of whoever wrote a command line, or a file that it names: exit status 2.

use std::fmt::{self, Display};
use std::io;

use anyhow::{Error, Result};

/// Something is wrong with an argument, or with a file that it names.
#[derive(Debug)]
pub struct Mistake(pub String);

impl Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mistake {}

/// Whether an error is one, which its type says: each crate has one for what a user wrote. All
/// others happened while something ran.
pub fn is_mistake(error: &Error) -> bool {
    error.is::<Mistake>()
        || error.is::<guard::ConfigError>()
        || error.is::<path::ConfigError>()
        || error.is::<aqm::ConfigError>()
        || error.is::<link::ConfigError>()
        || matches!(error.downcast_ref(), Some(uplink::Error::Mistaken(_)))
        || matches!(error.downcast_ref(), Some(close::Error::Mistaken(_)))
        || error.is::<report::ReadError>()
        || error.is::<virtual_lab::RatesError>()
        || error.downcast_ref::<files::ReadError>().is_some_and(files::ReadError::is_mistake)
        || error
            .downcast_ref::<experiment::ExperimentError>()
            .is_some_and(experiment::ExperimentError::is_mistake)
}

/// What a file says is wrong: whoever named it is mistaken, in it or in what it says.
pub fn in_file<T>(result: Result<T, impl Display>, file: impl Display) -> Result<T> {
    result.map_err(|error| Mistake(format!("{file}: {error}")).into())
}

/// The same of an error that may be the system's, too.
pub fn unless_out_of_reach<T>(result: Result<T>) -> Result<T> {
    let is_out_of_reach = |error: &Error| {
        let system = error.chain().find_map(|cause| cause.downcast_ref::<io::Error>());
        system.is_some_and(|system| !files::is_mistake(system.kind()))
    };
    result.map_err(|error| if is_out_of_reach(&error) { error } else { Mistake(format!("{error:#}")).into() })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn mistake_is_one_by_its_type_whatever_is_said_around_it() {
        let wrong = in_file(Err::<(), _>("line 1"), "a.toml").context("read it").expect_err("wrong");
        assert!(is_mistake(&wrong));
        assert_eq!(format!("{wrong:#}"), "read it: a.toml: line 1");
        let missing = files::read_text("/nosuch".as_ref()).context("read it").expect_err("not there");
        assert!(is_mistake(&missing));
        assert!(!is_mistake(&anyhow::anyhow!("the disk is full")));
    }

    #[test]
    fn file_that_is_out_of_reach_is_no_mistake() {
        let read = |kind: io::ErrorKind| {
            let error = Err::<(), _>(io::Error::from(kind)).context("read the log");
            is_mistake(&unless_out_of_reach(error).expect_err("an error"))
        };
        assert!(read(io::ErrorKind::NotFound) && read(io::ErrorKind::UnexpectedEof));
        assert!(!read(io::ErrorKind::PermissionDenied));
    }
}
