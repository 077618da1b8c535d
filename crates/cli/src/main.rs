//! `tidegate`: guard a port, send a crowd, run an experiment, and show the result. One file per subcommand, no logic.
//!
//! Exit status: 0 done, 1 the world said no, 2 the command line was wrong.

mod bench;
mod guard;
mod lab;
mod load;
mod output;
mod serve;
mod signals;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Keeps Linux TCP servers answering when a crowd arrives
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Guard(guard::Args),
    Load(load::Args),
    Serve(serve::Args),
    Lab(lab::Args),
    Bench(bench::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Guard(args) => guard::run(args),
        Command::Load(args) => load::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Bench(args) => bench::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: {error:#}");
            ExitCode::FAILURE
        }
    }
}
