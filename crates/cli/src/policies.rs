//! `tidegate policies`: what a policy is made of, and what one does.

use anyhow::Result;
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};
use guard::Policy;
use verdict::{Full, Mechanism, Question, Verdict};

use crate::mistake::Mistake;
use crate::output::say;

/// Columns of a terminal.
const WIDTH: u16 = 80;
/// Columns of clap's long help, which begins ten further right.
const HELP_WIDTH: u16 = 68;
/// Columns of the words.
const WORD: u16 = 20;
/// Columns of whole policies.
const POLICY: u16 = 34;

/// List the words of a policy and what they do, or explain one policy
///
/// docs/policies.md says when to choose which.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to explain: a word, or words joined by +, as in abort+rst-syn
    #[arg(value_name = "POLICY")]
    policy: Option<String>,
}

/// Prints it.
pub fn run(args: &Args) -> Result<()> {
    match &args.policy {
        None => say(everything().trim_end()),
        Some(text) => say(explanation(text)?.trim_end()),
    }
}

/// For `--policy`: all words.
pub fn help() -> String {
    format!(
        "Words joined by +: when the listener is full, and what happens then\n\n\
         The default is {}. docs/policies.md says when to\n\
         choose another, and `tidegate policies POLICY` explains one.\n\n{}",
        Policy::UNSERVED,
        words(HELP_WIDTH)
    )
}

fn everything() -> String {
    let chosen: Vec<_> = Policy::CHOSEN.iter().map(|(policy, what)| row(policy, what)).collect();
    format!(
        "A policy is made of these words, joined by +.\nThe default is {}.\n\n{}\n\
         Policies that people choose\n{}\n\
         `tidegate policies POLICY` explains one of them, or another.\n\
         docs/policies.md says when to choose which.",
        Policy::UNSERVED,
        words(WIDTH),
        table(&chosen, POLICY, WIDTH)
    )
}

fn words(width: u16) -> String {
    let rows = |question| {
        let own = Mechanism::ALL.iter().filter(move |own| own.question == question);
        own.map(|own| row(own.form, &(since(own) + own.does))).collect::<Vec<_>>()
    };
    let tables = Question::ALL.map(|of| format!("{}\n{}", of.text(), table(&rows(of), WORD, width)));
    tables.join("\n")
}

/// What the kernel must be, where not every one will do.
fn since(mechanism: &Mechanism) -> String {
    let (major, minor) = mechanism.linux;
    if mechanism.linux > Mechanism::OLDEST { format!("(Linux {major}.{minor}) ") } else { String::new() }
}

/// What a policy does, question by question; of a word that is no policy alone, what it needs.
fn explanation(text: &str) -> Result<String> {
    let words: Vec<(&str, &Mechanism)> = text
        .split('+')
        .map(|word| Ok((word, Mechanism::of(word)?)))
        .collect::<Result<_, verdict::PolicyError>>()
        .map_err(|error| Mistake(error.to_string()))?;
    let policy = text.parse::<Policy>();
    if let (Err(error), true) = (&policy, words.len() > 1) {
        return Err(Mistake(error.to_string()).into());
    }
    let chosen = Policy::CHOSEN.iter().find(|(name, _)| name.parse() == policy);
    let mut explained = chosen.map(|(_, what)| format!("{text}\n  {what}\n\n")).unwrap_or_default();
    for question in Question::ALL {
        let own = words.iter().filter(|(_, own)| own.question == question);
        let mut rows: Vec<_> = own.map(|(word, own)| row(word, &own.says(word))).collect();
        if let (true, Ok(policy)) = (rows.is_empty(), &policy) {
            rows.extend(unsaid(question, policy).map(|does| row("(no word)", does)));
        }
        if !rows.is_empty() {
            explained += &format!("{}\n{}\n", question.text(), table(&rows, WORD, WIDTH));
        }
    }
    let (major, minor) = words.iter().map(|(_, own)| own.linux).max().expect("split gives one at least");
    explained += &match policy {
        Ok(_) => format!("It needs Linux {major}.{minor}. docs/policies.md says when to choose another."),
        Err(error) => format!("Alone it is no policy: {error}."),
    };
    Ok(explained)
}

/// The answer of a policy that has no word for a question, and which it asks.
fn unsaid(question: Question, policy: &Policy) -> Option<&'static str> {
    let is_alone = [Policy::DEFAULT, Policy::OBSERVE].contains(policy);
    let has_own = matches!(policy.full, Full::Rate { .. } | Full::Class { .. });
    match question {
        _ if is_alone => None,
        Question::Full if !has_own => Some("While the accept queue is full."),
        Question::Syn if policy.syn_when_full == Verdict::Admit => {
            Some("The kernel drops it in silence. The client tries again after a second.")
        }
        Question::HandshakeEnd if policy.ack_when_full == Verdict::Admit => {
            Some("The kernel drops it in silence, and the client waits.")
        }
        _ => None,
    }
}

fn row(word: &str, does: &str) -> [String; 2] {
    [word.to_owned(), does.to_owned()]
}

/// Two columns, two spaces from the left; a line each, or several, with a line feed behind it.
fn table(rows: &[[String; 2]], first: u16, width: u16) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.add_rows(rows);
    let column = table.column_mut(0).expect("there are two");
    column.set_padding((2, 0)).set_constraint(ColumnConstraint::Absolute(Width::Fixed(first + 2)));
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn lines(text: &str) -> Vec<&str> {
        text.lines().map(str::trim).collect()
    }

    #[test]
    fn everything_fits_80_columns_and_names_each_word_with_its_kernel() {
        let all = everything();
        assert!(all.lines().all(|line| line.chars().count() <= 80), "{all}");
        assert!(help().lines().all(|line| line.chars().count() <= 70), "{}", help());
        for mechanism in Mechanism::ALL {
            let is_row = |line: &&str| line.split_whitespace().next() == Some(mechanism.form);
            assert!(lines(&all).iter().any(is_row), "{}\n{all}", mechanism.form);
        }
        for (policy, _) in Policy::CHOSEN {
            assert!(all.contains(policy), "{policy}");
            let explained = explanation(policy).expect(policy);
            assert!(explained.lines().all(|line| line.chars().count() <= 80), "{explained}");
        }
        assert_eq!(all.matches("(Linux 6.9)").count(), 2, "{all}");
    }

    #[test]
    fn policy_is_explained_question_by_question_also_where_it_has_no_word() {
        let explained = explanation("abort+rst-syn").expect("a policy");
        assert_eq!(
            lines(&explained),
            [
                "abort+rst-syn",
                "by the accept queue alone, as a thesis does",
                "",
                "When is the listener full?",
                "(no word)            While the accept queue is full.",
                "",
                "What happens to a SYN then?",
                "rst-syn              The guard answers it with RST. The client sees",
                "\"connection refused\" at once.",
                "",
                "What happens to the end of a handshake then?",
                "abort                It is answered with RST, where the kernel would be",
                "silent.",
                "",
                "It needs Linux 6.1. docs/policies.md says when to choose another.",
            ]
        );
        let explained = explanation("rst-syn+unserved:64+rst-fin").expect("a policy");
        for said in ["while 64 connections wait", "and the client waits.", "It needs Linux 6.6."] {
            assert!(explained.contains(said), "{said}: {explained}");
        }
        assert!(!explanation("observe").expect("a policy").contains("(no word)"));
        assert!(!explanation("no-syn-drop").expect("a policy").contains("the client waits"));
    }

    #[test]
    fn chart_takes_the_words_that_there_are() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/helm/values.schema.json");
        let schema = std::fs::read_to_string(file).expect("the chart's schema");
        let word = format!("({})(:", Mechanism::names().collect::<Vec<_>>().join("|"));
        assert_eq!(schema.matches(&word).count(), 2, "the first word, and those behind a +: {word}");
    }

    #[test]
    fn word_that_is_no_policy_alone_says_what_it_needs_and_other_mistakes_are_refused() {
        let explained = explanation("unserved").expect("a word");
        assert!(explained.contains("In a crowd,"), "{explained}");
        assert!(
            explained.contains("Alone it is no policy:") && explained.contains("add rst-syn"),
            "{explained}"
        );
        for (wrong, why) in [
            ("abrot", "\"abrot\" is no mechanism; did you mean abort? tidegate policies lists them"),
            ("abort+reserv", "abort and reserv are two answers to one question"),
            ("", "\"\" is no mechanism; tidegate policies lists them"),
        ] {
            let error = explanation(wrong).expect_err(wrong);
            assert!(error.is::<Mistake>() && error.to_string().starts_with(why), "{error}");
        }
    }

    #[test]
    fn policies_that_people_choose_are_those_of_the_page() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let section = page.split("\n## ").find(|section| section.starts_with("When to choose another"));
        let rows = section.expect("it is there").lines().filter(|line| line.starts_with('|'));
        let codes =
            rows.flat_map(|row| row.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>());
        let of_page: BTreeSet<String> = codes.filter(|code| !code.starts_with('+')).collect();
        let mut ours: BTreeSet<String> = Policy::CHOSEN.map(|(policy, _)| policy.to_owned()).into();
        assert!(ours.remove(&Policy::UNSERVED.to_string()), "the default has a section of its own");
        assert_eq!(ours, of_page);
    }
}
