//! Every command that a page shows is one that this program takes.

use std::fs;
use std::ops::Range;
use std::path::Path;

use clap::error::ErrorKind;
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use crate::parse;

/// Commands of a page, each with its line: those of shell blocks, and code in the text that begins
/// with the program's name.
fn commands(page: &str) -> Vec<(usize, Vec<String>, bool)> {
    let (mut commands, mut is_shell) = (Vec::new(), false);
    let line_at = |at: &Range<usize>| page[..at.start].matches('\n').count() + 1;
    for (event, at) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(kind))) => is_shell = &*kind == "sh",
            Event::End(TagEnd::CodeBlock) => is_shell = false,
            Event::Text(text) if is_shell => {
                let joined = text.replace("\\\n", "  ");
                let lines = (line_at(&at)..).zip(joined.lines());
                commands.extend(lines.flat_map(|(number, line)| {
                    in_line(line).into_iter().map(move |words| (number, words, true))
                }));
            }
            Event::Code(text) if text.starts_with("tidegate ") => {
                let words = in_line(&text).into_iter().next();
                commands.extend(words.map(|words| (line_at(&at), words, false)));
            }
            _ => {}
        }
    }
    commands
}

/// The program's commands of a shell line.
fn in_line(line: &str) -> Vec<Vec<String>> {
    let words = shlex::Shlex::new(line).collect::<Vec<_>>();
    let ends = |word: &String| {
        let redirected = word.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['>', '<']);
        redirected || word.starts_with(['|', '&', ';', ')'])
    };
    let mut commands: Vec<Vec<String>> = Vec::new();
    let mut rest = words.as_slice();
    while let Some(at) = rest.iter().position(|word| word == "tidegate" || word.ends_with("/tidegate")) {
        let length = rest[at + 1..].iter().position(ends).unwrap_or(rest.len() - at - 1);
        let mut command: Vec<String> = rest[at..=at + length].to_vec();
        // `tidegate load ...; next`
        if let Some(end) = command.iter().position(|word| word.ends_with(';')) {
            command.truncate(end + 1);
            command[end].pop();
        }
        rest = &rest[at + command.len()..];
        commands.push(command);
    }
    commands
}

/// What is wrong with a command; text may leave out what a command needs.
fn wrong(words: &[String], is_whole: bool) -> Option<String> {
    // Here the program or its service is the object of install(1) or systemctl(1).
    if words.get(1).is_none_or(|word| word.starts_with('/')) {
        return None;
    }
    let error = parse(words).err().filter(clap::Error::use_stderr)?;
    let is_short = [
        ErrorKind::MissingRequiredArgument,
        ErrorKind::MissingSubcommand,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ]
    .contains(&error.kind());
    (is_whole || !is_short).then(|| error.to_string().lines().next().unwrap_or_default().to_owned())
}

fn findings(path: &str, page: &str) -> Vec<String> {
    let wrong = |(line, words, is_whole): (usize, Vec<String>, bool)| {
        Some(format!("{path}:{line}: {}: {}", words.join(" "), wrong(&words, is_whole)?))
    };
    commands(page).into_iter().filter_map(wrong).collect()
}

#[test]
fn commands_of_the_pages_are_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_dir(root.join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let is_page = |path: &std::path::PathBuf| path.extension().is_some_and(|of| of == "md");
    let pages = docs.filter(is_page).chain([root.join("README.md"), root.join("CONTRIBUTING.md")]);
    let all: Vec<String> = pages
        .flat_map(|path| {
            let page = fs::read_to_string(&path).expect("a page");
            findings(&path.file_name().expect("a name").to_string_lossy(), &page)
        })
        .collect();
    assert!(all.is_empty(), "\n{}", all.join("\n"));
}

#[test]
fn command_that_is_not_understood_is_named_with_its_line() {
    let page = "# A\n\n```sh\n./dev build && PATH=$PWD tidegate doctor   # tries it\n\
                ip netns exec a tidegate serve --listen 1.2.3.4:80 & server=$!; sleep 1\n\
                tidegate load http://1.2.3.4/ --rat 5; wait\ninstall target/release/tidegate /usr/bin/\n```\n\n\
                `tidegate load` and `tidegate lod`, `tidegate sim FILE --quick`\n\n```text\ntidegate nonsense\n```\n";
    let found = findings("a.md", page);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("a.md:6: tidegate load http://1.2.3.4/ --rat 5: "), "{found:?}");
    assert!(found[1].starts_with("a.md:10: tidegate lod: "), "{found:?}");
}
