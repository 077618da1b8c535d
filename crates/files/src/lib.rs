//! Files that a user names: read within bounds, written whole or not at all, and their places tried
//! before there is anything to write. What is wrong in a TOML file, in one line.
//!
//! What it is not: no reader of logs, which may be as long as they like (`crates/load`), and none
//! of what the kernel shows below `/proc`.

mod read;
mod toml_error;
mod write;

pub use read::{Lines, MOST_BYTES, MOST_OF_LINE, ReadError, is_mistake, lines, read_regular_text, read_text};
pub use toml_error::say_toml_error;
pub use write::{try_folder, try_place, write_whole};
