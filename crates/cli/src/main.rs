//!
//! Exit status: 0 done, 1 the world said no, 2 the command line was wrong.

mod load;
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
    Load(load::Args),
    Serve(serve::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Load(args) => load::run(args),
        Command::Serve(args) => serve::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate: {error:#}");
            ExitCode::FAILURE
        }
    }
}
