//! Lines on standard output, at once: scripts wait for them, and a reader that went away is no panic.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::{Context, Result};

/// Whether nobody reads standard output any more.
pub fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints one line.
///
/// # Errors
///
/// When nobody reads any more.
pub fn say(line: impl Display) -> Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).context("write to standard output")
}
