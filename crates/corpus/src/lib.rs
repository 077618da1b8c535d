//! The packet scripts of `tests/conformance/`, built in, and the simulated kernel as a system that
//! plays them.
//!
//! They are built in so that no program needs a file beside it. What it is not: a judge, because
//! [`script::run`] judges every system alike. The running kernel is another system
//! (crates/conformance).

mod fields;
mod simulated;

use anyhow::{Context, Result};
use include_dir::{Dir, DirEntry, include_dir};
use script::{Family, ParseError, Script};

pub use fields::fields;
use simulated::Simulated;

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../tests/conformance");
const SUFFIX: &str = ".pkt";

/// Every script, by its path.
///
/// # Errors
///
/// The first file that is no script.
pub fn scripts() -> Result<Vec<Script>, ParseError> {
    let mut files = Vec::new();
    collect(&FILES, &mut files);
    files.sort_unstable();
    files.into_iter().map(|(path, text)| script::parse(path, text)).collect()
}

fn collect(dir: &Dir<'static>, files: &mut Vec<(&'static str, &'static str)>) {
    for entry in dir.entries() {
        match entry {
            DirEntry::Dir(dir) => collect(dir, files),
            DirEntry::File(file) => {
                let path = file.path().to_str().expect("the project's paths are UTF-8");
                if path.ends_with(SUFFIX) {
                    files.push((path, file.contents_utf8().expect("the project's scripts are UTF-8")));
                }
            }
        }
    }
}

/// A script's path without its suffix, as in `traces/fig-4.2`.
pub fn plain_name(script: &Script) -> &str {
    script.file.trim_end_matches(SUFFIX)
}

/// Plays a script to the simulated kernel, in virtual time, and gives the segments as
/// [`script::run`] does.
///
/// # Errors
///
/// The first line that does not hold, with what came until then; or a setting that the simulated
/// kernel has not.
pub fn simulate(script: &Script, family: Family) -> Result<Vec<String>> {
    let mut kernel = Simulated::start(&script.setup, family)
        .with_context(|| format!("{}: set the simulated kernel up", script.file))?;
    Ok(script::run(script, &mut kernel)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_script() {
        let scripts = scripts().unwrap_or_else(|error| panic!("{error}"));
        assert!(scripts.iter().any(|script| script.file.starts_with("syn/")), "{} scripts", scripts.len());
    }
}
