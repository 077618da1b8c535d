//! The packet scripts of `tests/conformance/`, which the running kernel passes, played to the simulated one: `cargo test -p conformance --test simulated syn/`.

use std::process::ExitCode;

use conformance::Case;
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    match conformance::scripts() {
        Ok(scripts) => {
            let cases = scripts.iter().flat_map(Case::all_simulated);
            libtest_mimic::run(&arguments, cases.map(trial).collect()).exit_code()
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn trial(case: Case) -> Trial {
    let name = format!("{}/{}", conformance::plain_name(&case.script), case.family);
    Trial::test(name, move || match case.simulate() {
        Ok(_) => Ok(()),
        Err(error) => Err(Failed::from(format!("{error:#}"))),
    })
}
