//! `tidegate`: guard a port, send a crowd, run an experiment, and show the result. One file per subcommand, no logic.
//!
//! Exit status: 0 done, 1 the world said no, 2 the command line or the experiment file was wrong.

mod bar;
mod bench;
mod compare;
mod doctor;
mod exporter;
mod guard;
mod lab;
mod link;
mod listeners;
mod load;
mod merge;
mod output;
mod printer;
mod qdisc;
mod schema;
mod serve;
mod signals;
mod sim;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

/// Keeps Linux TCP servers answering when a crowd arrives
#[derive(Debug, Parser)]
#[command(name = "tidegate", version = ::lab::version(), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Guard(Box<guard::Args>),
    Listeners(listeners::Args),
    Load(Box<load::Args>),
    Link(Box<link::Args>),
    Merge(merge::Args),
    Serve(serve::Args),
    Lab(lab::Args),
    Sim(sim::Args),
    Compare(compare::Args),
    Qdisc(qdisc::Args),
    Bench(bench::Args),
    Doctor(doctor::Args),
    Schema(schema::Args),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let result = match cli.command {
        Command::Guard(args) => guard::run(*args),
        Command::Listeners(args) => listeners::run(args),
        Command::Load(args) => load::run(*args),
        Command::Link(args) => link::run(*args),
        Command::Merge(args) => merge::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Qdisc(args) => qdisc::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Schema(args) => schema::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our lines has gone; that is a way to stop, too.
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            printer::complain(format_args!("{error:#}"));
            let is_usage = error.is::<::guard::ConfigError>()
                || error.is::<path::ConfigError>()
                || error.is::<aqm::ConfigError>()
                || error.downcast_ref::<::lab::ExperimentError>().is_some_and(|error| error.is_usage());
            if is_usage { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Help and version go to standard output as clap has them; what is wrong with the command line is one line.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.print().ok();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
    }
    printer::complain(one_line(&error.to_string()));
    ExitCode::from(2)
}

/// clap spreads the error, its hints and the usage over paragraphs.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("Usage:"));
    let joined = lines.collect::<Vec<_>>().join("; ");
    joined.trim_start_matches("error: ").replace(":;", ":").replace("; For more information, try", "; see")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(args: &[&str]) -> String {
        one_line(&Cli::try_parse_from(args).expect_err("should be refused").to_string())
    }

    #[test]
    fn usage_errors_are_one_line_that_says_what_would_do() {
        let unknown = message(&["tidegate", "guard", "--listen", "1.2.3.4:80", "--policy", "nope"]);
        assert!(unknown.contains("'nope'") && unknown.contains("rst-syn"), "{unknown}");
        let missing = message(&["tidegate", "load", "http://1.2.3.4/"]);
        assert!(missing.contains("--rate <R>") && missing.ends_with("see '--help'."), "{missing}");
        let typo = message(&["tidegate", "guard", "--lissten", "1.2.3.4:80"]);
        assert!(typo.contains("'--lissten'") && typo.contains("'--listen'"), "{typo}");
        for text in [unknown, missing, typo] {
            assert!(!text.contains('\n'), "{text}");
        }
    }
}
