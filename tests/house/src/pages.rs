//! Pages and comments: their width, their links, and where README's numbers come from.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::files::files_below;

/// Columns of a comment, with tabs of eight.
const COMMENT_COLUMNS: usize = 100;
/// Columns of a page's line, unless it is of a table or of code.
const PAGE_COLUMNS: usize = 120;
/// What a measured number is followed by.
const UNITS: [&str; 7] = ["/s", "%", "ms", "us", "ns", "s", "times"];

/// A page, by its path in the workspace.
struct Page {
    path: PathBuf,
    text: String,
}

/// README and its like, docs/, and the RESULTS.md of the experiments.
///
/// # Panics
///
/// When a page cannot be read.
fn pages(root: &Path) -> Vec<Page> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name));
    let folders =
        ["docs", "experiments", "tests", "deploy", "crates"].map(|folder| files_below(&root.join(folder)));
    let all =
        top.into_iter().chain(folders.into_iter().flatten()).filter(is_page).filter(|path| path.exists());
    all.map(|path| Page { text: read(&path), path: path.strip_prefix(root).expect("below").to_owned() })
        .collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("read {}: {error}", path.display()))
}

/// Findings: lines of comments and of pages that are too wide.
///
/// # Panics
///
/// When a file cannot be read.
pub fn too_wide(root: &Path) -> Vec<String> {
    let code = ["kernel", "crates"].into_iter().flat_map(|folder| files_below(&root.join(folder)));
    let is_code =
        |path: &PathBuf| path.extension().is_some_and(|of| ["rs", "c", "h"].iter().any(|one| of == *one));
    let comments = code.filter(is_code).flat_map(|path| {
        let text = read(&path);
        let path = path.strip_prefix(root).expect("below").to_owned();
        wide_lines(&path, &text, COMMENT_COLUMNS, is_comment)
    });
    let pages = pages(root).into_iter().flat_map(|page| {
        let code = code_lines(&page.text);
        let is_prose = |number: usize, line: &str| {
            !line.trim_start().starts_with('|') && !code.iter().any(|lines| lines.contains(&number))
        };
        wide_lines(&page.path, &page.text, PAGE_COLUMNS, is_prose)
    });
    comments.chain(pages).collect()
}

fn is_comment(_number: usize, line: &str) -> bool {
    ["//", "/*", "* "].iter().any(|begins| line.trim_start().starts_with(begins))
}

fn wide_lines(path: &Path, text: &str, columns: usize, counts: impl Fn(usize, &str) -> bool) -> Vec<String> {
    let lines = (1..).zip(text.lines()).filter(|(number, line)| counts(*number, line));
    let widths = lines.map(|(number, line)| (number, width(line)));
    widths
        .filter(|(_, width)| *width > columns)
        .map(|(number, width)| {
            format!("{}:{number}: {width} columns; break the line at {columns}", path.display())
        })
        .collect()
}

fn width(line: &str) -> usize {
    line.chars().fold(0, |width, c| if c == '\t' { (width / 8 + 1) * 8 } else { width + 1 })
}

/// Line numbers of code blocks.
fn code_lines(text: &str) -> Vec<Range<usize>> {
    let blocks = events(text).filter(|(event, _)| matches!(event, Event::Start(Tag::CodeBlock(_))));
    blocks.map(|(_, at)| line_at(text, at.start)..line_at(text, at.end) + 1).collect()
}

fn events(text: &str) -> impl Iterator<Item = (Event<'_>, Range<usize>)> {
    Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter()
}

fn line_at(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

/// Findings: links to a file, or to a heading of a page, that is not there; pages of docs/ that code
/// names and that are gone.
///
/// # Panics
///
/// When a page cannot be read.
pub fn broken_links(root: &Path) -> Vec<String> {
    let pages = pages(root);
    let headings: BTreeMap<&Path, Vec<String>> =
        pages.iter().map(|page| (page.path.as_path(), headings(&page.text))).collect();
    let mut findings = Vec::new();
    for Page { path, text } in &pages {
        for (target, at) in links(text) {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let place = || format!("{}:{}", path.display(), line_at(text, at));
            let to = match file {
                "" => path.clone(),
                _ => normal(&path.parent().expect("a folder").join(file)),
            };
            if !root.join(&to).exists() {
                findings.push(format!("{}: no {}; mend or remove the link", place(), to.display()));
            } else if !heading.is_empty()
                && headings.get(to.as_path()).is_none_or(|known| !known.iter().any(|one| one == heading))
            {
                findings.push(format!("{}: {} has no heading #{heading}", place(), to.display()));
            }
        }
    }
    findings.extend(code_files(root).iter().flat_map(|path| gone_pages(root, path)));
    findings
}

fn gone_pages(root: &Path, path: &Path) -> Vec<String> {
    let text = read(path);
    let named = text.match_indices("docs/").filter_map(|(at, _)| {
        let end = at + text[at..].find(|c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c)))?;
        let page = &text[at..end];
        Some((&page[..page.find(".md")? + 3], line_at(&text, at)))
    });
    let gone = named.filter(|(page, _)| !root.join(page).exists());
    let path = path.strip_prefix(root).expect("below").display();
    gone.map(|(page, line)| format!("{path}:{line}: no {page}; name the page that has it now")).collect()
}

/// Rust and C of the workspace, but for this file's folder, whose tests make pages up.
fn code_files(root: &Path) -> Vec<PathBuf> {
    let all = ["kernel", "crates", "examples", "deploy"]
        .into_iter()
        .flat_map(|folder| files_below(&root.join(folder)));
    all.filter(|path| {
        path.extension()
            .is_some_and(|of| ["rs", "c", "h", "py", "toml", "service"].iter().any(|one| of == *one))
    })
    .collect()
}

fn links(text: &str) -> Vec<(String, usize)> {
    let link = |(event, at): (Event<'_>, Range<usize>)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some((dest_url.into_string(), at.start))
        }
        _ => None,
    };
    events(text).filter_map(link).collect()
}

/// Without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(normal.pop()),
            std::path::Component::CurDir => {}
            part => normal.push(part),
        }
    }
    normal
}

/// Headings as the names by which links lead to them.
fn headings(text: &str) -> Vec<String> {
    let (mut headings, mut heading) = (Vec::new(), None::<String>);
    for (event, _) in events(text) {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::End(TagEnd::Heading(_)), Some(text)) => {
                headings.push(slug(text));
                heading = None;
            }
            (Event::Text(part) | Event::Code(part), Some(text)) => text.push_str(&part),
            _ => {}
        }
    }
    headings
}

fn slug(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Findings: numbers with a unit in README's text and tables that no RESULTS.md has.
///
/// # Panics
///
/// When a page cannot be read.
pub fn unsourced_numbers(root: &Path) -> Vec<String> {
    let results = files_below(&root.join("experiments"));
    let results: String =
        results.iter().filter(|path| path.ends_with("RESULTS.md")).map(|path| read(path) + "\n").collect();
    let known = measured(&results);
    let readme = read(&root.join("README.md"));
    let is_known = |wanted: &Measured| {
        // A table of rates says their unit above it.
        known
            .iter()
            .any(|one| one.number == wanted.number && (one.unit == wanted.unit || wanted.unit == "/s"))
    };
    let unknown = measured(&readme).into_iter().filter(|one| !one.unit.is_empty() && !is_known(one));
    unknown
        .map(|Measured { number, unit, at }| {
            let line = line_at(&readme, at);
            format!(
                "README.md:{line}: {number} {unit} stands in no experiments/*/RESULTS.md; say there what was run"
            )
        })
        .collect()
}

/// A number of a page.
struct Measured {
    /// As it is written.
    number: String,
    /// One of [`UNITS`], or nothing.
    unit: &'static str,
    /// Where, bytes from the page's start.
    at: usize,
}

/// The numbers of a page, but for those of code.
fn measured(page: &str) -> Vec<Measured> {
    let mut all = Vec::new();
    let mut is_code = false;
    for (event, at) in events(page) {
        match event {
            Event::Start(Tag::CodeBlock(_)) => is_code = true,
            Event::End(TagEnd::CodeBlock) => is_code = false,
            Event::Text(text) if !is_code => {
                all.extend(numbers(&text).map(|number| Measured { at: at.start + number.at, ..number }));
            }
            _ => {}
        }
    }
    all
}

/// `17,800/s`, `0.3 ms`, `48%`.
fn numbers(text: &str) -> impl Iterator<Item = Measured> {
    let is_digit = |c: char| c.is_ascii_digit() || ".,".contains(c);
    let starts = text.match_indices(|c: char| c.is_ascii_digit()).map(|(at, _)| at);
    let starts =
        starts.filter(move |at| !text[..*at].ends_with(|c: char| is_digit(c) || c.is_alphanumeric()));
    starts.map(move |at| {
        let rest = &text[at..];
        let end = rest.find(|c| !is_digit(c)).unwrap_or(rest.len());
        let after = rest[end..].strip_prefix(' ').unwrap_or(&rest[end..]);
        let is_unit = |one: &&&str| {
            after.strip_prefix(**one).is_some_and(|next| !next.starts_with(|c: char| c.is_alphanumeric()))
        };
        let unit = UNITS.iter().find(is_unit).copied().unwrap_or_default();
        Measured { number: rest[..end].trim_end_matches(['.', ',']).to_owned(), unit, at }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Workspace(PathBuf);

    impl Workspace {
        fn with(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("tidegate-pages-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("a folder")).expect("make a folder");
                fs::write(path, text).expect("write");
            }
            Self(root)
        }
    }

    impl Drop for Workspace {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).expect("remove");
        }
    }

    #[test]
    fn wide_line_is_named_unless_it_is_a_table_or_code() {
        let wide = "word ".repeat(25);
        let page = format!("fine\n{wide}\n\n```sh\n{wide}\n```\n\n| a |\n|---|\n| {wide} |\n");
        let code = format!("\t\t// {}\nlet a = \"{wide}\";\n", "word ".repeat(17));
        let files = [("docs/a.md", page.as_str()), ("crates/a/src/lib.rs", code.as_str())];
        let workspace = Workspace::with("wide", &files);
        let mut findings = too_wide(&workspace.0);
        findings.sort();
        assert_eq!(
            findings,
            [
                "crates/a/src/lib.rs:1: 104 columns; break the line at 100",
                "docs/a.md:2: 125 columns; break the line at 120"
            ]
        );
    }

    #[test]
    fn link_to_a_page_or_heading_that_is_gone_is_named() {
        let page = "# A page\n[b](b.md) [c](c.md)\n[x](#a-page) [y](../README.md#run-it-now)\n[z](../README.md#no)\n\
                    `[code](none.md)` [far](https://example.com/none)\n";
        let files = [("docs/a.md", page), ("docs/b.md", ""), ("README.md", "## Run it, `now`!\n[d](docs)\n")];
        let workspace = Workspace::with("links", &files);
        assert_eq!(
            broken_links(&workspace.0),
            [
                "docs/a.md:2: no docs/c.md; mend or remove the link",
                "docs/a.md:4: README.md has no heading #no"
            ]
        );
    }

    #[test]
    fn number_of_readme_that_no_result_has_is_named() {
        let readme = "At 17,800/s it takes 0.3 ms on Linux 6.1.\n\n| a |\n|---|\n| 49% |\n\n`5 ms` is code, 7 doors are not.\n";
        let files =
            [("README.md", readme), ("experiments/a/RESULTS.md", "| 17,800, 0.3 ms |\n149%, 49 ms\n")];
        let workspace = Workspace::with("numbers", &files);
        assert_eq!(
            unsourced_numbers(&workspace.0),
            ["README.md:5: 49 % stands in no experiments/*/RESULTS.md; say there what was run"]
        );
    }
}
