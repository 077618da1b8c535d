//! `tidegate completions`: what a shell needs to complete our command lines, and what it is told.
//!
//! The shell's script asks the program itself, so that namespaces and interfaces are those that are
//! there now.

use std::ffi::OsStr;
use std::io::Write;

use anyhow::{Context, Result};
use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::Shells;
use clap_complete::{CompleteEnv, Shell};
use load::{Stacks, Workload};
use nix::net::if_::if_nameindex;
use verdict::{Mechanism, Question};

use crate::{Cli, PROGRAM};

/// By which a script tells that it asks, and which shell it is of.
const ASKED: &str = "TIDEGATE_COMPLETE";

/// Print what a shell needs to complete command lines, as for
/// /usr/share/bash-completion/completions/tidegate
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Whose
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints it.
pub fn run(args: &Args) -> Result<()> {
    let shells = Shells::builtins();
    let shell = shells.completer(&args.shell.to_string()).expect("clap_complete has the same for both");
    let mut script = Vec::new();
    shell
        .write_registration(ASKED, PROGRAM, PROGRAM, PROGRAM, &mut script)
        .context("write what completes a command line")?;
    std::io::stdout().write_all(&script).context("write to standard output")
}

/// Answers such a script and ends the process, if one asks. The first that main does: it changes
/// the environment.
pub fn answer() {
    CompleteEnv::with_factory(|| with_values(Cli::command())).var(ASKED).complete();
}

/// Completes values by what the help calls them.
fn with_values(command: Command) -> Command {
    let complete = |arg: Arg| {
        let name = arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
        let values: fn(&OsStr) -> Vec<CompletionCandidate> = match name {
            Some("POLICY") => policy,
            Some("NAME[:SHARE],...") => stacks,
            Some("NAME|FILE") => profile,
            Some("WORKLOAD") => workload,
            Some("NETNS") => netns,
            Some("IF" | "IF1") => interface,
            Some("COMMAND") => subcommand,
            _ => return arg,
        };
        arg.add(ArgValueCompleter::new(values))
    };
    command.mut_args(complete).mut_subcommands(with_values)
}

/// Words behind the last `+`, without those before it.
fn policy(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(text) = current.to_str() else { return Vec::new() };
    let (before, begun) = text.rsplit_once('+').map_or(("", text), |(before, begun)| (before, begun));
    let prefix = if before.is_empty() { String::new() } else { format!("{before}+") };
    let name = |word: &str| word.split(':').next().unwrap_or_default().to_owned();
    let is_there = |of: &Mechanism| before.split('+').any(|word| name(word) == of.name());
    let can_follow = |of: &Mechanism| before.is_empty() || of.question != Question::Alone;
    // A value is the user's to write.
    let up_to_value =
        |of: &Mechanism| of.form.split(|c: char| c.is_ascii_uppercase()).next().map(str::to_owned);
    let mut words: Vec<(String, &'static str)> = Vec::new();
    for mechanism in Mechanism::ALL.iter().filter(|of| !is_there(of) && can_follow(of)) {
        let word = up_to_value(mechanism).expect("split gives one at least");
        if word.starts_with(begun) && words.iter().all(|(other, _)| *other != word) {
            words.push((word, mechanism.does));
        }
    }
    let candidate = |(word, does): (String, &'static str)| {
        CompletionCandidate::new(prefix.clone() + &word).help(Some(does.into()))
    };
    words.into_iter().map(candidate).collect()
}

/// Client stacks, behind the last comma.
fn stacks(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_str().unwrap_or_default();
    let at = text.rfind(',').map_or(0, |comma| comma + 1);
    let known = Stacks::names().filter(|name| name.starts_with(&text[at..]));
    known.map(|name| CompletionCandidate::new(format!("{}{name}", &text[..at]))).collect()
}

/// Profiles that come along, and files.
fn profile(current: &OsStr) -> Vec<CompletionCandidate> {
    let names = sim::Profile::shipped_names().map(str::to_owned);
    names_or_files(names, current)
}

/// Workloads by name, and files.
fn workload(current: &OsStr) -> Vec<CompletionCandidate> {
    names_or_files(Workload::NAMES.map(|(name, _)| name.to_owned()), current)
}

/// Network namespaces by name.
fn netns(current: &OsStr) -> Vec<CompletionCandidate> {
    beginning(::netns::names(), current)
}

/// Interfaces of the caller's network namespace.
fn interface(current: &OsStr) -> Vec<CompletionCandidate> {
    let all = if_nameindex().into_iter().flat_map(|all| {
        let name = |one: &nix::net::if_::Interface| one.name().to_string_lossy().into_owned();
        all.iter().map(name).collect::<Vec<_>>()
    });
    beginning(all, current)
}

/// Commands of the program.
fn subcommand(current: &OsStr) -> Vec<CompletionCandidate> {
    let command = Cli::command();
    let names = command.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name);
    beginning(names.map(str::to_owned).collect::<Vec<_>>(), current)
}

fn names_or_files(names: impl IntoIterator<Item = String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let mut all = beginning(names, current);
    all.extend(PathCompleter::file().complete(current));
    all
}

fn beginning(names: impl IntoIterator<Item = String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let begun = current.to_string_lossy();
    let begins = |name: &String| name.starts_with(&*begun);
    names.into_iter().filter(begins).map(CompletionCandidate::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let candidates = policy(OsStr::new(text));
        candidates.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn policy_goes_on_behind_a_plus_with_words_that_it_has_not() {
        assert_eq!(words("ab"), ["abort"]);
        assert_eq!(words("abort+rst-"), ["abort+rst-syn", "abort+rst-fin", "abort+rst-fin:always"]);
        assert_eq!(words("abort+rst-syn+rst-s"), Vec::<String>::new());
        assert_eq!(words("rst-syn+uns"), ["rst-syn+unserved", "rst-syn+unserved:"]);
        assert_eq!(words("unserved:64+uns"), Vec::<String>::new());
        assert_eq!(words("pol"), ["police:"]);
        assert_eq!((words("def"), words("abort+def")), (vec!["default".to_owned()], Vec::new()));
        assert_eq!(words("").len(), 21, "each, and police once");
    }
}
