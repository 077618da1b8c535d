//! The claims of a run: whose, the paper's number, ours, and whether it holds.

use maud::{Markup, html};
use results::{Answer, ClaimAnswer, Estimate, Unit};

use crate::format;
use crate::run::Run;
use crate::terminal::{headed, wrap};

const HEADINGS: [&str; 5] = ["claim", "paper", "holds if", "here", "answer"];

/// The claims as text for the terminal, at most 112 columns wide, those of an experiment together;
/// empty when there are none.
pub fn claims_table(claims: &[ClaimAnswer]) -> String {
    let groups = claims.chunk_by(|a, b| (&a.experiment, &a.server) == (&b.experiment, &b.server));
    let tables: Vec<String> = groups.map(group_table).collect();
    tables.join("\n")
}

fn group_table(claims: &[ClaimAnswer]) -> String {
    let mut grid = headed(HEADINGS, 1..4);
    for (number, claim) in (1..).zip(claims) {
        grid.add_row([
            format!("{number}. {} ({})", claim.text, claim.source),
            paper(claim),
            bounds(claim),
            ours(claim),
            word(claim.answer).to_owned(),
        ]);
    }
    let title = format!("claims of {}, {}: {}", claims[0].experiment, claims[0].server, sum(claims));
    let mut text = wrap(&title, "") + &grid.trim_fmt() + "\n";
    if claims.iter().any(is_too_wide) {
        text += &wrap(&format!("  {WIDE}"), "    ");
    }
    for (mark, numbers) in footnotes(claims) {
        text += &wrap(&format!("  {}: {mark}", numbers.join(", ")), "    ");
    }
    text
}

/// What to do about an answer that is undecided.
const WIDE: &str = "undecided: the 95% interval of the repetitions has the bound in it; more of them make it narrower ([grid] repetitions)";

fn is_too_wide(claim: &ClaimAnswer) -> bool {
    claim.answer == Answer::Undecided && claim.ours.as_ref().is_some_and(|ours| ours.count > 1)
}

/// The claims that two runs both answer, as text for the terminal; empty when there are none.
pub(crate) fn compared_claims([one, other]: [&Run; 2]) -> String {
    let mut grid = headed(["claim", "A", "B"], 1..3);
    let mut text = String::new();
    for claim in &one.claims {
        let Some(same) = other.claims.iter().find(|other| is_same(claim, other)) else { continue };
        let answer = |claim: &ClaimAnswer| format!("{}\n{}", word(claim.answer), ours(claim));
        let of = format!("{}: {} ({})", claim.server, claim.text, claim.source);
        grid.add_row([of, answer(claim), answer(same)]);
    }
    if grid.row_iter().next().is_some() {
        text = grid.trim_fmt() + "\n";
    }
    text
}

/// How many claims of which server only the first run answers, in words: `3 of flooded, 1 of
/// paper`; `None` if the other answers all.
pub(crate) fn claims_of_one(one: &Run, other: &Run) -> Option<String> {
    let alone = one.claims.iter().filter(|claim| !other.claims.iter().any(|other| is_same(claim, other)));
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for claim in alone {
        match counts.iter_mut().find(|(server, _)| *server == claim.server) {
            Some((_, count)) => *count += 1,
            None => counts.push((&claim.server, 1)),
        }
    }
    let words: Vec<String> = counts.iter().map(|(server, count)| format!("{count} of {server}")).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

fn is_same(a: &ClaimAnswer, b: &ClaimAnswer) -> bool {
    (&a.server, &a.source, &a.text, &a.measured) == (&b.server, &b.source, &b.text, &b.measured)
}

/// Each mark, and each reason for what does not hold, once, with the numbers of its claims.
fn footnotes(claims: &[ClaimAnswer]) -> Vec<(&str, Vec<String>)> {
    let mut footnotes: Vec<(&str, Vec<String>)> = Vec::new();
    for (number, claim) in (1..).zip(claims) {
        for mark in claim.marks.iter().chain(&claim.why) {
            let number = format!("{number}");
            match footnotes.iter_mut().find(|(text, _)| text == mark) {
                Some((_, numbers)) => numbers.push(number),
                None => footnotes.push((mark, vec![number])),
            }
        }
    }
    footnotes
}

/// `7 hold, 2 fail, 1 is undecided`.
pub(crate) fn sum(claims: &[ClaimAnswer]) -> String {
    let count = |answer| claims.iter().filter(|claim| claim.answer == answer).count();
    let words = [
        (count(Answer::Holds), "hold"),
        (count(Answer::Fails), "fail"),
        (count(Answer::Undecided), "undecided"),
        (count(Answer::NotMeasured), "not measured"),
    ];
    let words: Vec<String> =
        words.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    words.join(", ")
}

/// The claims as a section of the page; nothing when there are none.
pub(crate) fn claims_section(claims: &[ClaimAnswer]) -> Markup {
    html! {
        @if !claims.is_empty() {
            section {
                h2 { "Claims" }
                p { (sum(claims)) "." @if claims.iter().any(is_too_wide) { " " (WIDE) "." } }
                div.scroll {
                    table.claims {
                        thead { tr { @for heading in HEADINGS { th scope="col" { (heading) } } } }
                        tbody { @for claim in claims { (row(claim)) } }
                    }
                }
            }
        }
    }
}

fn row(claim: &ClaimAnswer) -> Markup {
    html! {
        tr.marked[!claim.marks.is_empty()] {
            th scope="row" {
                (claim.text)
                small { (claim.source) "; " (claim.server) ": " (claim.measured) }
                @for mark in &claim.marks { small { (mark) } }
                @if let Some(why) = &claim.why { small.why { "Why not: " (why) } }
            }
            td { (paper(claim)) }
            td { (bounds(claim)) }
            td {
                @match &claim.ours {
                    Some(ours) => {
                        (show(claim.unit, ours.mean))
                        @if let Some(interval) = interval(claim.unit, ours) { small.range { (interval) } }
                    }
                    None => (format::NOTHING),
                }
            }
            td.answer { strong { (word(claim.answer)) } }
        }
    }
}

fn word(answer: Answer) -> &'static str {
    match answer {
        Answer::Holds => "holds",
        Answer::Fails => "fails",
        Answer::Undecided => "undecided",
        Answer::NotMeasured => "not measured",
    }
}

fn paper(claim: &ClaimAnswer) -> String {
    claim.paper.map_or(format::NOTHING.to_owned(), |value| show(claim.unit, value))
}

fn bounds(claim: &ClaimAnswer) -> String {
    let show = |value| show(claim.unit, value);
    match (claim.at_least, claim.at_most) {
        (Some(least), Some(most)) => format!("{}–{}", show(least), show(most)),
        (Some(least), None) => format!("≥ {}", show(least)),
        (None, Some(most)) => format!("≤ {}", show(most)),
        (None, None) => format::NOTHING.to_owned(),
    }
}

/// The mean, and on a second line its interval.
fn ours(claim: &ClaimAnswer) -> String {
    let Some(ours) = &claim.ours else { return format::NOTHING.to_owned() };
    let mean = show(claim.unit, ours.mean);
    match interval(claim.unit, ours) {
        Some(interval) => format!("{mean}\n{interval}"),
        None => mean,
    }
}

fn interval(unit: Unit, ours: &Estimate) -> Option<String> {
    (ours.count > 1).then(|| format!("{}–{}", show(unit, ours.low), show(unit, ours.high)))
}

fn show(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Ratio => format::number(value) + "×",
        Unit::Share => format::percent(value),
        Unit::PerSecond => format::number(value) + "/s",
        Unit::Milliseconds => format::millis(value),
        Unit::PerAttempt | Unit::Count => format::number(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::WIDTH;
    use crate::testing;

    #[test]
    fn table_fits_the_terminal_and_shows_every_answer() {
        let mut claims = testing::claims();
        claims[0].text = testing::HOSTILE.repeat(9);
        let text = claims_table(&claims);
        for line in text.lines() {
            assert!(line.chars().count() <= usize::from(WIDTH), "too wide: {line}");
        }
        assert!(
            text.starts_with("claims of demo, built-in: 1 hold, 1 fail, 1 undecided, 1 not measured\n"),
            "{text}"
        );
        assert_eq!(text.matches("undecided: the 95%").count(), 1, "{text}");
        for shown in ["≥ 1.27×", "1.30×", "1.21×–1.39×", "≤ 1.10×", "fails", "not measured"] {
            assert!(text.contains(shown), "{shown} is missing: {text}");
        }
    }

    #[test]
    fn mark_of_several_claims_is_said_once() {
        let mut claims = testing::claims();
        claims[0].marks = vec!["stock at 1.5x is marked".to_owned()];
        claims[2].marks = claims[0].marks.clone();
        let text = claims_table(&claims);
        assert!(
            text.ends_with(
                "  1, 3: stock at 1.5x is marked\n  4: rst-fin was not measured at 1.5 times saturation\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn each_experiment_has_a_table_of_its_own() {
        let mut claims = testing::claims();
        claims[3].experiment = "other".to_owned();
        assert_eq!(claims_table(&claims).matches("claims of ").count(), 2);
        assert_eq!(claims_table(&[]), "");
    }

    #[test]
    fn numbers_are_shown_in_their_unit() {
        let shown = [Unit::Ratio, Unit::Share, Unit::PerSecond, Unit::Milliseconds, Unit::PerAttempt]
            .map(|unit| show(unit, 0.48));
        assert_eq!(shown, ["0.480×", "48.0%", "0.480/s", "480 µs", "0.480"]);
    }
}
