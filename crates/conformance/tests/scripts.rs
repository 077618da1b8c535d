//! Every packet script as tests of its own: `cargo test -p conformance syn/` runs those of the SYN stage.

use std::process::ExitCode;

use conformance::{Case, Outcome};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match conformance::cases() {
        Ok(cases) => libtest_mimic::run(&arguments, cases.into_iter().map(trial).collect()).exit_code(),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn trial(case: Case) -> Trial {
    Trial::ignorable_test(case.name(), move || match case.play() {
        Ok(Outcome::Passed(_)) => Ok(Completion::Completed),
        Ok(Outcome::Skipped(reason)) => {
            // As other tests say it, for who collects reasons.
            eprintln!("{reason}");
            Ok(Completion::ignored_with(reason))
        }
        Err(error) => Err(Failed::from(format!("{error:#}"))),
    })
}
