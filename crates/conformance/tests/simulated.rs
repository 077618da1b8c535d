//! The packet scripts of `tests/conformance/`, which the running kernel passes, played to the simulated one.

use conformance::Case;
use libtest_mimic::{Failed, Trial};

/// One test for each script and address family.
///
/// # Errors
///
/// A script that cannot be read, in one line.
pub fn trials() -> Result<Vec<Trial>, String> {
    let scripts = conformance::scripts().map_err(|error| error.to_string())?;
    Ok(scripts.iter().flat_map(Case::all_simulated).map(trial).collect())
}

fn trial(case: Case) -> Trial {
    let name = format!("simulated::{}/{}", conformance::plain_name(&case.script), case.family);
    Trial::test(name, move || match case.simulate() {
        Ok(_) => Ok(()),
        Err(error) => Err(Failed::from(format!("{error:#}"))),
    })
}
