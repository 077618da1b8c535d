//! A script, an address family and a hook.

use anyhow::{Context, Result};
use guard::Verdict;
use netns::Lan;
use script::{Family, Hook, ParseError, Script, Series};

use crate::kernel::Kernel;

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

/// Every script with each of its families and hooks.
///
/// # Errors
///
/// The first file that is no script.
pub fn cases() -> Result<Vec<Case>, ParseError> {
    Ok(corpus::scripts()?.iter().flat_map(Case::all).collect())
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

    /// As in `root_syn/rst-syn-full/ipv4/tcx`.
    pub fn name(&self) -> String {
        format!("root_{}/{}/{}", corpus::plain_name(&self.script), self.family, self.hook)
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
        if let Some(linux) = self.script.setup.linux.filter(|linux| *linux > running_linux()) {
            return Ok(Outcome::Skipped(format!("skipped: this script is of Linux {linux} and newer")));
        }
        let lan = Lan::create()?;
        let has_tcx = lan.server.enter(|| bpf::count_tcx_ingress(lan.s0.ifindex).is_ok())?;
        if self.needs_tcx() && !has_tcx {
            let reason = "skipped: no tcx in this kernel (Linux 6.6 and newer)";
            return Ok(Outcome::Skipped(reason.to_owned()));
        }
        if self.script.setup.policy.may_answer(Verdict::Cookie) && !guard::takes_own_cookies() {
            let reason = "skipped: this kernel takes no cookies but its own (Linux 6.9 and newer do)";
            return Ok(Outcome::Skipped(reason.to_owned()));
        }
        // The guard would find this itself, and have programs for every hook verified first.
        let usual = if has_tcx { Hook::Tcx } else { Hook::XdpGeneric };
        let hook = if self.hook == Hook::Auto { usual } else { self.hook };
        let mut kernel = Kernel::start(lan, &self.script.setup, self.family, hook)
            .with_context(|| format!("{}: set the kernel up", self.script.file))?;
        Ok(Outcome::Passed(script::run(&self.script, &mut kernel)?))
    }

    /// What only a socket buffer allows is at tcx, wherever the other stages are.
    fn needs_tcx(&self) -> bool {
        self.hook == Hook::Tcx || self.script.setup.policy.needs_socket_buffers()
    }
}

/// One that cannot be read is skipped for nothing.
fn running_linux() -> Series {
    let name = nix::sys::utsname::uname().ok();
    name.and_then(|name| Series::parse(&name.release().to_string_lossy())).unwrap_or(Series(u32::MAX, 0))
}
