//! `tidegate completions`: what a shell needs to complete our command lines.

use std::io::Write;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

/// Print what a shell needs to complete command lines, as for
/// /usr/share/bash-completion/completions/tidegate
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whose
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints it.
pub fn run(args: Args, mut command: Command) -> Result<()> {
    let (mut script, name) = (Vec::new(), command.get_name().to_owned());
    clap_complete::generate(args.shell, &mut command, name, &mut script);
    std::io::stdout().write_all(&script).context("write to standard output")
}
