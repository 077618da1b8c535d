//! `tidegate help`: what `--help` of a command prints.

/// Print the help of a command, or the list of commands
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Command, as guard or lab run
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

impl Args {
    /// What to write in its place. clap's own subcommand for this has a copy of every other below
    /// it, and all would have a manual page.
    pub fn words(self) -> impl Iterator<Item = String> {
        self.command.into_iter().chain(["--help".to_owned()])
    }
}
