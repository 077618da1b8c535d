//! The packet scripts of `tests/conformance/`, which the running kernel passes, played to the
//! simulated one.

use libtest_mimic::{Failed, Trial};
use script::{Family, Script};

/// One test for each script and address family.
///
/// # Errors
///
/// A script that cannot be read, in one line.
pub fn trials() -> Result<Vec<Trial>, String> {
    let scripts = corpus::scripts().map_err(|error| error.to_string())?;
    Ok(scripts.iter().flat_map(of_script).collect())
}

fn of_script(script: &Script) -> Vec<Trial> {
    let trial = |family: Family| {
        let (name, script) = (format!("simulated::{}/{family}", corpus::plain_name(script)), script.clone());
        Trial::test(name, move || match corpus::simulate(&script, family) {
            Ok(_) => Ok(()),
            Err(error) => Err(Failed::from(format!("{error:#}"))),
        })
    };
    script.setup.families.iter().copied().map(trial).collect()
}
