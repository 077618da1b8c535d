//! Reads and writes the files that a user names: read within bounds, written whole or not at all.
//!
//! It tries the place of a file before there is anything to write. It says in one line what is
//! wrong in a TOML file.
//!
//! What it is not: a reader of logs, which may be of any length (`crates/load`), or of what the
//! kernel shows below `/proc`.

mod read;
mod toml_error;
mod write;

pub use read::{Lines, MOST_BYTES, MOST_OF_LINE, ReadError, is_mistake, lines, read_regular_text, read_text};
pub use toml_error::say_toml_error;
pub use write::{try_folder, try_place, write_whole};
