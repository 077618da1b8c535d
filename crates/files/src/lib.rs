//! Files that a user names: read within bounds, written whole or not at all, and their places tried before there is anything to write.
//!
//! What it is not: no reader of logs, which may be as long as they like (`crates/load`), and none of what the kernel shows below `/proc`.

mod in_toml;
mod read;
mod write;

pub use in_toml::one_line;
pub use read::{Lines, MOST_BYTES, MOST_OF_LINE, ReadError, is_mistake, lines, read_regular_text, read_text};
pub use write::{try_folder, try_place, write_whole};
