//! A script, an address family and a hook.

use anyhow::{Context, Result};
use guard::Verdict;
use include_dir::{Dir, DirEntry, include_dir};
use netns::Lan;
use script::{Family, Hook, ParseError, Script};

use crate::{Kernel, Simulated};

static FILES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../tests/conformance");
const SUFFIX: &str = ".pkt";

/// One run of a script.
#[derive(Debug, Clone)]
pub struct Case {
    /// What to play.
    pub script: Script,
    /// With addresses of which family.
    pub family: Family,
    /// Where the guard's programs are.
    pub hook: Hook,
}

/// How a run ended that did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every line holds; the segments as [`script::run`] gives them.
    Passed(Vec<String>),
    /// It cannot run here: `skipped: REASON`.
    Skipped(String),
}

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

/// Every script with each of its families and hooks.
///
/// # Errors
///
/// As [`scripts`].
pub fn cases() -> Result<Vec<Case>, ParseError> {
    Ok(scripts()?.iter().flat_map(Case::all).collect())
}

impl Case {
    /// The runs that a script asks for.
    pub fn all(script: &Script) -> Vec<Self> {
        let families = script.setup.families.iter();
        families
            .flat_map(|family| script.setup.hooks.iter().map(move |hook| (*family, *hook)))
            .map(|(family, hook)| Self { script: script.clone(), family, hook })
            .collect()
    }

    /// The same for the simulated kernel, where the guard's programs are nowhere in particular.
    pub fn all_simulated(script: &Script) -> Vec<Self> {
        let families = script.setup.families.iter();
        families.map(|family| Self { script: script.clone(), family: *family, hook: Hook::Auto }).collect()
    }

    /// As in `root_syn/rst-syn-full/ipv4/tcx`.
    pub fn name(&self) -> String {
        format!("root_{}/{}/{}", plain_name(&self.script), self.family, self.hook)
    }

    /// Plays it to this kernel, in namespaces of its own.
    ///
    /// # Errors
    ///
    /// The first line that does not hold, with what came until then; or what this machine refuses.
    pub fn play(&self) -> Result<Outcome> {
        if let Err(reason) = netns::root_or_reason() {
            return Ok(Outcome::Skipped(reason));
        }
        let lan = Lan::create()?;
        if self.needs_tcx() && !has_tcx(&lan)? {
            let reason = "skipped: no tcx in this kernel (Linux 6.6 and newer)";
            return Ok(Outcome::Skipped(reason.to_owned()));
        }
        if self.script.setup.policy.may_answer(Verdict::Cookie) && !guard::takes_own_cookies() {
            let reason = "skipped: this kernel takes no cookies but its own (Linux 6.9 and newer do)";
            return Ok(Outcome::Skipped(reason.to_owned()));
        }
        let mut kernel = Kernel::start(lan, &self.script.setup, self.family, self.hook)
            .with_context(|| format!("{}: set the kernel up", self.script.file))?;
        Ok(Outcome::Passed(script::run(&self.script, &mut kernel)?))
    }

    /// Plays it to the simulated kernel, in virtual time, and gives the segments as [`script::run`] does.
    ///
    /// # Errors
    ///
    /// The first line that does not hold, with what came until then; or a setting that the simulated kernel has not.
    pub fn simulate(&self) -> Result<Vec<String>> {
        let mut kernel = Simulated::start(&self.script.setup, self.family)
            .with_context(|| format!("{}: set the simulated kernel up", self.script.file))?;
        Ok(script::run(&self.script, &mut kernel)?)
    }

    /// What only a socket buffer allows is at tcx, wherever the other stages are.
    fn needs_tcx(&self) -> bool {
        self.hook == Hook::Tcx || self.script.setup.policy.needs_socket_buffers()
    }
}

/// A script's path without its suffix, as in `traces/fig-4.2`.
pub fn plain_name(script: &Script) -> &str {
    script.file.trim_end_matches(SUFFIX)
}

fn has_tcx(lan: &Lan) -> Result<bool> {
    lan.server.enter(|| bpf::count_tcx_ingress(lan.s0.ifindex).is_ok())
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
