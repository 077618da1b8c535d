//! The claims of several runs, counted, as a table in Markdown: a line for each experiment.

use results::Answer;

use crate::run::Run;

const ANSWERS: [Answer; 4] = [Answer::Holds, Answer::Fails, Answer::Undecided, Answer::NotMeasured];

/// A table with a line for each run, in their order, and their sum: how many claims it answers, and
/// how.
pub fn summary(runs: &[Run]) -> String {
    let mut text = "| experiment | question | claims | hold | fail | undecided | not measured |\n\
                    |---|---|---|---|---|---|---|\n"
        .to_owned();
    for run in runs {
        let name = format!("{} | {}", run.header.experiment, run.header.title.replace('|', "\\|"));
        text += &line(&name, counts(run));
    }
    let sum = runs.iter().map(counts).fold([0; 4], |sum, run| std::array::from_fn(|at| sum[at] + run[at]));
    text + &line("all |", sum)
}

fn counts(run: &Run) -> [usize; 4] {
    ANSWERS.map(|answer| run.claims.iter().filter(|claim| claim.answer == answer).count())
}

fn line(name: &str, counts: [usize; 4]) -> String {
    let cells = counts.map(|count| if count == 0 { String::new() } else { count.to_string() });
    format!("| {name} | {} | {} |\n", counts.iter().sum::<usize>(), cells.join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn summary_has_a_line_for_each_run_and_their_sum() {
        let runs = [testing::demo(), testing::repeated()];
        let text = summary(&runs);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2 + runs.len() + 1, "{text}");
        for (line, run) in lines[2..].iter().zip(&runs) {
            let begins =
                format!("| {} | {} | {} |", run.header.experiment, run.header.title, run.claims.len());
            assert!(line.starts_with(&begins), "{line}");
        }
        let all: usize = runs.iter().map(|run| run.claims.len()).sum();
        assert!(lines[4].starts_with(&format!("| all | | {all} |")), "{text}");
        let pipes: Vec<usize> = lines.iter().map(|line| line.matches('|').count()).collect();
        assert!(pipes.iter().all(|count| *count == 8), "{pipes:?}");
    }
}
