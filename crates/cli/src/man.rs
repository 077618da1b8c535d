//! `tidegate man`: our manual pages.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

use crate::mistake;
use crate::output::say;
use crate::run_file::ensure_folder;

/// Write manual pages, one for each command, into a folder as /usr/local/share/man/man1
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder, which must be there
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Writes them, and says how many.
pub fn run(args: Args, mut command: Command) -> Result<()> {
    ensure_folder("man", &args.folder)?;
    command.build();
    let written = write(&command, &args.folder)?;
    say(format_args!("{written} pages in {}", args.folder.display()))
}

/// The page of a command, and of all below it.
fn write(command: &Command, folder: &Path) -> Result<usize> {
    let page = Man::new(command.clone());
    let path = folder.join(page.get_filename());
    let mut text = Vec::new();
    page.render(&mut text).context("write a manual page")?;
    let text = with_tables(&String::from_utf8(text).context("write a manual page")?);
    let result =
        files::write_whole(&path, text.as_bytes()).with_context(|| format!("write {}", path.display()));
    mistake::unless_out_of_reach(result)?;
    let mut below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.try_fold(1, |written, below| Ok(written + write(below, folder)?))
}

/// Keeps lines that begin with two spaces as they are: roff would fill them.
fn with_tables(page: &str) -> String {
    let (mut text, mut is_table) = (String::new(), false);
    for line in page.lines() {
        let is_row = line.starts_with("  ");
        if is_row != is_table {
            text += if is_row { ".nf\n" } else { ".fi\n" };
            is_table = is_row;
        }
        text += line;
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_table_are_not_filled() {
        let page = "Words\n  abort   a\n          b\n.TP\nmore\n";
        assert_eq!(with_tables(page), "Words\n.nf\n  abort   a\n          b\n.fi\n.TP\nmore\n");
    }
}
