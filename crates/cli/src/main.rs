//! `tidegate`: the program that guards a port, sends a crowd, runs an experiment, and shows the
//! result.
//!
//! Each subcommand has a file here, which reads the arguments and prints. What it is not: the place
//! of any logic, which is in the other crates.
//!
//! Exit status:
//! - 0: it is done.
//! - 1: something happened while it ran.
//! - 2: the user made a mistake: a wrong argument, or a file that is missing or not what it should
//!   be.

mod advise;
mod answerer;
mod bar;
mod bench;
mod close;
mod compare;
mod completions;
mod doctor;
mod exporter;
mod guard;
mod help;
mod lab;
mod large_pages;
mod link;
mod listeners;
mod load;
mod man;
mod merge;
mod mistake;
mod output;
#[cfg(test)]
mod pages;
mod policies;
mod ports;
mod printer;
mod qdisc;
mod run_file;
mod schema;
mod serve;
mod signals;
mod sim;
mod top;
mod uplink;

use std::any::TypeId;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Arg, CommandFactory, FromArgMatches, Parser, Subcommand};

/// As a user types it.
const PROGRAM: &str = "tidegate";

/// Keeps Linux TCP servers answering when a crowd arrives
#[derive(Debug, Parser)]
#[command(name = PROGRAM, version = experiment::version(), disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Guard(Box<guard::Args>),
    Advise(advise::Args),
    Top(top::Args),
    Policies(policies::Args),
    Listeners(listeners::Args),
    Load(Box<load::Args>),
    Link(Box<link::Args>),
    Merge(merge::Args),
    Serve(serve::Args),
    Lab(lab::Args),
    Sim(sim::Args),
    Compare(compare::Args),
    Uplink(Box<uplink::Args>),
    Qdisc(qdisc::Args),
    Ports(ports::Args),
    Close(Box<close::Args>),
    Bench(bench::Args),
    Doctor(doctor::Args),
    Schema(schema::Args),
    Completions(completions::Args),
    Man(man::Args),
    Help(help::Args),
    /// Print the version
    Version,
}

fn main() -> ExitCode {
    completions::answer();
    let cli = match parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    signals::let_long_files_fail();
    if matches!(cli.command, Command::Sim(_) | Command::Load(_) | Command::Bench(_)) {
        large_pages::ask();
    }
    let result = match cli.command {
        Command::Guard(args) => guard::run(*args),
        Command::Advise(args) => advise::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Policies(args) => policies::run(&args),
        Command::Listeners(args) => listeners::run(args),
        Command::Load(args) => load::run(*args),
        Command::Link(args) => link::run(*args),
        Command::Merge(args) => merge::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Lab(args) => lab::run(args),
        Command::Sim(args) => sim::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Uplink(args) => uplink::run(&args),
        Command::Qdisc(args) => qdisc::run(args),
        Command::Ports(args) => ports::run(&args),
        Command::Close(args) => close::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Schema(args) => schema::run(args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(args, Cli::command()),
        Command::Help(args) => return as_if_asked_by(args.words()),
        Command::Version => return as_if_asked_by(["--version".to_owned()]),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever read our lines has gone; that is a way to stop, too.
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            printer::complain(format_args!("{error:#}"));
            if mistake::is_mistake(&error) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// What an option prints that ends the program, as `--help`; or what is wrong with the words before
/// it.
fn as_if_asked_by(words: impl IntoIterator<Item = String>) -> ExitCode {
    let all = [PROGRAM.to_owned()].into_iter().chain(words);
    match parse(all) {
        Err(asked) => usage(&asked),
        Ok(_) => unreachable!("the option ends the program"),
    }
}

fn parse(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, clap::Error> {
    let mut command = with_negative_values(Cli::command());
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// A value may begin with a dash, as a negative number does, so that it is refused as a value and
/// not as an option that is not known. Where any text is a value an option would be taken for one,
/// as a file's name; there it may not.
fn with_negative_values(command: clap::Command) -> clap::Command {
    let takes_any_text = |arg: &Arg| {
        let parsed = arg.get_value_parser().type_id();
        [TypeId::of::<String>(), TypeId::of::<PathBuf>()].iter().any(|text| parsed == *text)
    };
    let allow = |arg: Arg| {
        let is_value = !arg.is_positional() && arg.get_action().takes_values();
        if is_value && !takes_any_text(&arg) { arg.allow_hyphen_values(true) } else { arg }
    };
    command.mut_args(allow).mut_subcommands(with_negative_values)
}

/// Help and version go to standard output as clap has them; what is wrong with the command line is
/// one line.
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
        one_line(&parse(args).expect_err("should be refused").to_string())
    }

    #[test]
    fn negative_number_is_refused_as_a_value_with_what_would_do() {
        for (args, why) in [
            (&["load", "http://1.2.3.4/", "--rate", "-5"][..], "'-5' for '--rate <R>': a number of attempts"),
            (&["load", "http://1.2.3.4/", "--timeout", "-1s"], "'-1s' for '--timeout <T>'"),
            (&["load", "http://1.2.3.4/", "--seed", "-1"], "'-1' for '--seed <N>'"),
            (&["compare", "a", "b", "--at-most", "-1"], "'-1' for '--at-most <D>': a distance from 0 to 1"),
            (&["lab", "calibrate", "--rate", "-5"], "'-5' for '--rate <R>': a rate per second"),
            (&["sim", "a", "--threads", "-1"], "'-1' for '--threads <N>': -1 is not in 1..=1024"),
            (&["serve", "--cpu-time", "-1us"], "'-1us' for '--cpu-time <D>'"),
            (&["link", "a", "b", "--warmup", "-1s"], "'-1s' for '--warmup <D>'"),
        ] {
            let said = message(&[&["tidegate"], args].concat());
            assert!(said.contains(why), "{said}");
        }
    }

    /// Options that take a time, with the commands before them: `D` or `T` in the help.
    fn times(command: &clap::Command, before: &[String]) -> Vec<Vec<String>> {
        let is_time = |arg: &&Arg| {
            let is_named = |name: &&str| matches!(*name, "D" | "T");
            arg.get_value_names().is_some_and(|names| names.iter().any(|name| is_named(&name.as_str())))
        };
        let own = command.get_arguments().filter(is_time).filter_map(Arg::get_long);
        // A distance between two runs.
        let own = own.filter(|long| *long != "at-most").map(|long| format!("--{long}"));
        let own = own.map(|option| [before, &[option]].concat());
        let below = command
            .get_subcommands()
            .flat_map(|below| times(below, &[before, &[below.get_name().to_owned()]].concat()));
        own.chain(below).collect()
    }

    #[test]
    fn time_without_a_unit_is_refused_with_one_by_every_option() {
        let all = times(&Cli::command(), &["tidegate".to_owned()]);
        assert!(all.len() > 15, "{all:?}");
        for words in all {
            let words: Vec<&str> = words.iter().map(String::as_str).chain(["10"]).collect();
            let said = message(&words);
            assert!(said.contains("'10' for '--"), "{words:?}: {said}");
            let is_time = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) && word.ends_with('s');
            assert!(said.split(|c: char| !c.is_alphanumeric()).any(is_time), "{words:?}: {said}");
        }
        let said = message(&["tidegate", "listeners", "--watch", "10"]);
        assert!(
            said.ends_with("'--watch <D>': the unit is missing; say s, ms or us, as in 10s; see '--help'."),
            "{said}"
        );
    }

    #[test]
    fn option_is_not_taken_for_a_file_and_a_slip_of_the_pen_is_none() {
        let said = message(&["tidegate", "sim", "a.toml", "--book", "--quick"]);
        assert!(said.contains("a value is required for '--book <FILE>'"), "{said}");
        let said = message(&["tidegate", "sim", "--quik", "a.toml"]);
        assert!(said.contains("unexpected argument '--quik'"), "{said}");
    }

    #[test]
    fn usage_errors_are_one_line_that_says_what_would_do() {
        let unknown = message(&["tidegate", "guard", "--listen", "1.2.3.4:80", "--policy", "nope"]);
        assert!(unknown.contains("'nope'") && unknown.contains("tidegate policies lists them"), "{unknown}");
        let missing = message(&["tidegate", "load", "http://1.2.3.4/"]);
        assert!(missing.contains("--rate <R>") && missing.ends_with("see '--help'."), "{missing}");
        let typo = message(&["tidegate", "guard", "--lissten", "1.2.3.4:80"]);
        assert!(typo.contains("'--lissten'") && typo.contains("'--listen'"), "{typo}");
        for text in [unknown, missing, typo] {
            assert!(!text.contains('\n'), "{text}");
        }
    }
}
