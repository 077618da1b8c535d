//! The packet scripts of `tests/conformance/`, played to the running kernel.

use conformance::{Case, Outcome};
use libtest_mimic::{Completion, Failed, Trial};

/// One test for each script and address family.
///
/// # Errors
///
/// A script that cannot be read, in one line.
pub fn trials() -> Result<Vec<Trial>, String> {
    Ok(conformance::cases().map_err(|error| error.to_string())?.into_iter().map(trial).collect())
}

fn trial(case: Case) -> Trial {
    Trial::ignorable_test(format!("kernel::{}", case.name()), move || match case.play() {
        Ok(Outcome::Passed(_)) => Ok(Completion::Completed),
        Ok(Outcome::Skipped(reason)) => {
            // As other tests say it, for who collects reasons.
            eprintln!("{reason}");
            Ok(Completion::ignored_with(reason))
        }
        Err(error) => Err(Failed::from(format!("{error:#}"))),
    })
}
