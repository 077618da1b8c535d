//! Whether what a kernel's tests said is what that kernel should say.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use crate::features::Feature;
use crate::log::Log;
use crate::machine::Outcome;
use script::Series;

/// So many failures are shown; a program that does not load makes hundreds of tests fail.
const SHOWN_FAILURES: usize = 20;

/// What is to be said of a kernel.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Its release.
    pub kernel: String,
    /// Tests that ran and passed, all parts of them.
    pub passed: usize,
    /// Tests that were skipped in whole or in part, by reason.
    pub skips: BTreeMap<String, usize>,
    /// What is wrong, one thing each.
    pub failures: Vec<String>,
    /// What is worth knowing.
    pub notes: Vec<String>,
    took: Duration,
}

/// Holds what came back against what this kernel should have.
pub fn judge(outcome: &Outcome, features: &[Feature]) -> Verdict {
    let mut verdict = Verdict { kernel: outcome.kernel.clone(), took: outcome.took, ..Verdict::default() };
    let Some(series) = Series::parse(&outcome.kernel) else {
        verdict.failures.push(format!("{:?} is no kernel release", outcome.kernel));
        return verdict;
    };
    for (name, status, text) in &outcome.tests {
        verdict.add(name, *status, &Log::parse(text), text);
    }
    if verdict.passed == 0 {
        verdict.failures.push("no test ran to its end".to_owned());
    }
    verdict.failures.extend(unexpected_skips(outcome, &verdict.skips, features, series));
    if outcome.is_booted {
        verdict.failures.extend(wrong_answers(outcome, features, series));
    }
    verdict
}

impl Verdict {
    fn add(&mut self, name: &str, status: Option<i32>, log: &Log, text: &str) {
        for (test, said) in &log.failed {
            self.failures.push(format!("{name} {test}:\n{}", said.trim_end()));
        }
        if status != Some(0) && log.failed.is_empty() {
            let status =
                status.map_or("without a status".to_owned(), |status| format!("with status {status}"));
            self.failures.push(format!("{name} ended {status}:\n{}", text.trim_end()));
        }
        let skipped: BTreeSet<&String> = log.skips.values().flatten().collect();
        self.passed += log.passed.iter().filter(|test| !skipped.contains(test)).count();
        for (reason, tests) in &log.skips {
            *self.skips.entry(reason.clone()).or_default() += tests.len();
        }
    }
}

fn unexpected_skips(
    outcome: &Outcome,
    skips: &BTreeMap<String, usize>,
    features: &[Feature],
    series: Series,
) -> Vec<String> {
    // What a kernel of Debian may lack depends on its age; what another may lack, doctor has found
    // out.
    let may_lack = |feature: &Feature| match &feature.probe {
        None => true,
        Some((_, since)) if outcome.is_booted => series < *since,
        Some((probe, _)) => answer_of(outcome, probe) == "no",
    };
    let is_meant = |feature: &Feature, reason: &str| {
        feature.skip.as_deref().is_some_and(|skip| reason.starts_with(skip)) && may_lack(feature)
    };
    let is_expected = |reason: &str| features.iter().any(|feature| is_meant(feature, reason));
    let unexpected = skips.iter().filter(|(reason, _)| !is_expected(reason));
    unexpected
        .map(|(reason, count)| format!("{count} tests were skipped that should run on {series}: {reason}"))
        .collect()
}

fn wrong_answers(outcome: &Outcome, features: &[Feature], series: Series) -> Vec<String> {
    let probes: BTreeSet<&(String, Series)> =
        features.iter().filter_map(|feature| feature.probe.as_ref()).collect();
    probes
        .into_iter()
        .filter_map(|(probe, since)| {
            let (answer, expected) = (answer_of(outcome, probe), if series < *since { "no" } else { "yes" });
            (answer != expected)
                .then(|| format!("doctor says {answer} to {probe}, and {series} should say {expected}"))
        })
        .collect()
}

fn answer_of<'outcome>(outcome: &'outcome Outcome, probe: &str) -> &'outcome str {
    let found = outcome.probes.iter().find(|(name, _)| name == probe);
    found.map_or("nothing", |(_, answer)| answer.as_str())
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, passed, failures, skips, .. } = self;
        let skipped: usize = skips.values().sum();
        write!(
            formatter,
            "{kernel}: {passed} passed, {} failed, {skipped} skipped, {} s",
            failures.len(),
            self.took.as_secs()
        )?;
        for (reason, count) in skips {
            write!(formatter, "; {count} skipped: {reason}")?;
        }
        for note in &self.notes {
            write!(formatter, "\n  note: {note}")?;
        }
        for failure in failures.iter().take(SHOWN_FAILURES) {
            write!(formatter, "\n  failed: {}", failure.replace('\n', "\n    "))?;
        }
        match failures.len().checked_sub(SHOWN_FAILURES) {
            None | Some(0) => Ok(()),
            Some(more) => write!(formatter, "\n  and {more} more failed; see target/kernels/out"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKIPPED: &str = "test root_a ... ok\n---- root_a stdout ----\nskipped: no tcx\n";

    fn features() -> Vec<Feature> {
        vec![Feature { probe: Some(("tcx".to_owned(), Series(6, 6))), skip: Some("no tcx".to_owned()) }]
    }

    fn outcome(kernel: &str, text: &str, tcx: &str) -> Outcome {
        Outcome {
            kernel: kernel.to_owned(),
            is_booted: true,
            tests: vec![("guard-x".to_owned(), Some(0), format!("test root_b ... ok\n{text}"))],
            probes: vec![("tcx".to_owned(), tcx.to_owned())],
            ..Outcome::default()
        }
    }

    #[test]
    fn skip_is_expected_before_the_feature_and_a_failure_after() {
        let old = judge(&outcome("6.1.0-50", SKIPPED, "no"), &features());
        assert_eq!((old.passed, old.skips["no tcx"], old.failures.len()), (1, 1, 0));
        let new = judge(&outcome("6.12.1", SKIPPED, "yes"), &features());
        assert!(new.failures[0].contains("no tcx"), "{new}");
        let unknown = judge(&outcome("6.1.0-50", &SKIPPED.replace("no tcx", "tired"), "no"), &features());
        assert!(unknown.failures[0].contains("tired"), "{unknown}");
    }

    #[test]
    fn running_kernel_may_lack_what_doctor_does_not_find() {
        let run = |answer| Outcome { is_booted: false, ..outcome("6.18.1", SKIPPED, answer) };
        assert_eq!(judge(&run("no"), &features()).failures.len(), 0);
        assert_eq!(judge(&run("yes"), &features()).failures.len(), 1);
    }

    #[test]
    fn doctor_that_is_wrong_is_a_failure() {
        for (kernel, answer) in [("6.1.0", "yes"), ("6.1.0", "unknown"), ("6.12.1", "no")] {
            let verdict = judge(&outcome(kernel, "", answer), &features());
            assert_eq!(verdict.failures.len(), 1, "{kernel} {answer}: {verdict}");
        }
    }

    #[test]
    fn test_program_that_does_not_end_well_is_a_failure() {
        for status in [None, Some(124), Some(101)] {
            let mut outcome = outcome("6.12.1", "", "yes");
            outcome.tests[0].1 = status;
            assert_eq!(judge(&outcome, &features()).failures.len(), 1, "{status:?}");
        }
    }

    #[test]
    fn run_without_a_test_is_a_failure() {
        let mut outcome = outcome("6.12.1", "", "yes");
        outcome.tests.clear();
        assert_eq!(judge(&outcome, &features()).failures, ["no test ran to its end"]);
    }
}
