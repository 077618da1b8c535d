//! The results of several runs as one HTML page: a book of figures.

use maud::{DOCTYPE, Markup, html};
use results::{Answer, ClaimAnswer};

use crate::claims::{claims_section, sum};
use crate::finding::finding;
use crate::page::{banner, circumstances, glossary, head, kind, measured, theme_choice};
use crate::policy::Policies;
use crate::run::Run;
use crate::server::folded;
use crate::traces::traces_section;

/// One self-contained HTML page with a chapter for each run, in their order, and a list of
/// contents; as [`crate::page()`] otherwise.
pub fn book(title: &str, runs: &[Run]) -> String {
    let html = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body {
                (theme_choice())
                main {
                    (opening(title, runs))
                    (contents(runs))
                    @for (number, run) in (1..).zip(runs) { (chapter(run, number, first_server(runs, number))) }
                    (glossary(runs.iter().flat_map(|run| &run.cells)))
                }
            }
        }
    };
    html.into_string()
}

fn opening(title: &str, runs: &[Run]) -> Markup {
    let claims: Vec<ClaimAnswer> = runs.iter().flat_map(|run| run.claims.clone()).collect();
    let unexplained = claims.iter().filter(|claim| is_open(claim)).count();
    html! {
        header {
            @if let Some(run) = runs.first() { p.eyebrow { "Tidegate · " (machines(runs)) " · " (run.header.started) } }
            h1 { (title) }
            p.finding {
                @match claims.len() {
                    0 => "No claim was answered.",
                    _ => { "Of " (claims.len()) " claims " (sum(&claims)) "." }
                }
                @if unexplained > 0 { " For " (unexplained) " that do not hold no reason is given." }
            }
        }
    }
}

/// It does not hold, and nobody has said why.
fn is_open(claim: &ClaimAnswer) -> bool {
    matches!(claim.answer, Answer::Fails | Answer::Undecided) && claim.why.is_none()
}

/// Each once.
fn machines(runs: &[Run]) -> String {
    let mut machines: Vec<&str> = Vec::new();
    for run in runs {
        if !machines.contains(&run.header.environment.cpu.as_str()) {
            machines.push(&run.header.environment.cpu);
        }
    }
    machines.join(", ")
}

fn contents(runs: &[Run]) -> Markup {
    html! {
        section {
            h2 { "Contents" }
            div.scroll {
                table {
                    thead { tr { @for heading in ["experiment", "claims", "hold", "fail", "undecided", "not measured"] { th scope="col" { (heading) } } } }
                    tbody {
                        @for (number, run) in (1..).zip(runs) {
                            tr {
                                th scope="row" {
                                    a href={ "#" (anchor(number)) } { (run.header.experiment) }
                                    small { (run.header.title) }
                                }
                                td { (run.claims.len()) }
                                @for answer in [Answer::Holds, Answer::Fails, Answer::Undecided, Answer::NotMeasured] {
                                    td { (run.claims.iter().filter(|claim| claim.answer == answer).count()) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn anchor(number: usize) -> String {
    format!("chapter-{number}")
}

/// Servers are numbered through the book, as their anchors must be.
fn first_server(runs: &[Run], chapter: usize) -> usize {
    1 + runs[..chapter - 1].iter().map(|run| run.servers().len()).sum::<usize>()
}

fn chapter(run: &Run, number: usize, first_server: usize) -> Markup {
    let policies = Policies(run.policies());
    html! {
        article id=(anchor(number)) class=[kind(run)] {
            p.eyebrow { (run.header.experiment) }
            h1 { (run.header.title) }
            (banner(run))
            p.finding { (finding(run)) }
            (claims_section(&run.claims))
            (traces_section(&run.traces))
            (measured(run, &policies, first_server))
            (folded("Circumstances", circumstances(&run.header)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn of_two() -> String {
        book("Figures", &[testing::demo(), testing::repeated()])
    }

    #[test]
    fn every_chapter_is_in_the_contents_and_every_link_leads_somewhere_once() {
        let book = of_two();
        for chapter in ["#chapter-1", "#chapter-2"] {
            assert!(book.contains(&format!("href=\"{chapter}\"")), "{chapter}");
        }
        for (at, start) in book.match_indices("href=\"#") {
            let target = book[at + start.len()..].split('"').next().expect("closed");
            assert_eq!(book.matches(&format!("id=\"{target}\"")).count(), 1, "{target}");
        }
    }

    #[test]
    fn book_loads_nothing_and_escapes_what_tries_to_be_markup() {
        let book = book(testing::HOSTILE, &[testing::hostile(), testing::empty()]);
        for loader in ["src=", "@import", "url(", "<script", "<link", "<iframe", "<img", "<object"] {
            assert!(!book.contains(loader), "{loader}");
        }
        assert!(!book.contains(testing::HOSTILE));
    }

    #[test]
    fn claims_of_all_chapters_are_summed_up_and_those_without_a_reason_counted() {
        let mut runs = [testing::demo(), testing::demo()];
        assert!(
            book("Figures", &runs)
                .contains("Of 8 claims 2 hold, 2 fail, 2 undecided, 2 not measured. For 4 that do not hold no reason is given."),
        );
        for claim in runs.iter_mut().flat_map(|run| &mut run.claims) {
            claim.why = Some("the moon was full".to_owned());
        }
        let book = book("Figures", &runs);
        assert!(!book.contains("no reason is given"));
        assert!(book.contains("Why not: the moon was full"));
    }

    #[test]
    fn book_without_runs_says_so() {
        assert!(book("Figures", &[]).contains("No claim was answered."));
    }
}
