//! The namespace between two others, with `tidegate link` in it: a bottleneck, or the way to
//! clients that are far away.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use netns::{Namespace, VethEnd, VethPair};
use results::{LinkDirection, LinkSummary};
use tempfile::NamedTempFile;

use crate::child::Running;

/// Its end of the pair to the left.
pub(crate) const LINK_LEFT: &str = "tgl0";
/// And of that to the right.
pub(crate) const LINK_RIGHT: &str = "tgl1";

/// How long `tidegate link` may take to be ready, and to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// What leaves the link so much later than meant in one of a hundred cases is a delay of its own.
const LATE_MS: f64 = 1.0;

/// The namespace, which is gone when this is dropped.
#[derive(Debug)]
pub(crate) struct Middle {
    /// It.
    pub namespace: Namespace,
    /// The other ends of its two pairs, in the namespace on the left and in that on the right.
    pub ends: [VethEnd; 2],
}

impl Middle {
    /// Makes it between two others, with these interfaces in them. Nothing goes through before a
    /// link runs.
    pub(crate) fn join(
        (left, left_name): (&Namespace, &str),
        (right, right_name): (&Namespace, &str),
    ) -> Result<Self> {
        let namespace = Namespace::create("link")?;
        let VethPair { a: of_left, .. } = VethPair::create(left, left_name, &namespace, LINK_LEFT)?;
        let VethPair { b: of_right, .. } = VethPair::create(&namespace, LINK_RIGHT, right, right_name)?;
        Ok(Self { namespace, ends: [of_left, of_right] })
    }

    /// Starts `tidegate link` with these arguments in it; frames go through when this returns.
    pub(crate) fn start(&self, program: &Path, arguments: &[String]) -> Result<RunningLink> {
        let json = NamedTempFile::new().context("make a file for what the link sees")?;
        let mut command = self.namespace.command(program)?;
        command.arg("link").args(arguments).arg("--json").arg(json.path());
        let mut running = Running::start("tidegate link", &mut command)?;
        running.wait_for_line("running", PATIENCE)?;
        Ok(RunningLink { running, json })
    }
}

/// A link that runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct RunningLink {
    /// The program.
    pub running: Running,
    json: NamedTempFile,
}

impl RunningLink {
    /// Waits until it has ended, by its `--duration` or because it was told to, and gives what it
    /// saw: from its first interface to its second, and back.
    ///
    /// # Errors
    ///
    /// When it failed, or does not end.
    pub(crate) fn finish(mut self) -> Result<(LinkSummary, [LinkDirection; 2])> {
        self.running.wait_for_end(PATIENCE)?;
        let text = std::fs::read_to_string(self.json.path()).context("read what the link saw")?;
        let mut said: LinkSummary = serde_json::from_str(&text).context("read what the link saw")?;
        let directions = std::mem::take(&mut said.directions);
        let directions = directions.try_into().ok().context("tidegate link wrote of two directions")?;
        Ok((said, directions))
    }
}

/// What a link did that it was not told to.
pub(crate) fn marks(link: &LinkDirection) -> Vec<String> {
    let of = |what: String| format!("{} > {}: {what}", link.from, link.to);
    let failures = [
        (link.lost, "lost before they were received"),
        (link.too_long, "too long"),
        (link.no_buffer, "without a buffer"),
        (link.unsent, "not taken by the kernel when they were to leave"),
        (link.access_drops, "dropped on hosts' links"),
    ];
    let failures = failures.into_iter().filter(|(count, _)| *count > 0);
    let late = (link.late.p99_ms > LATE_MS).then(|| {
        of(format!(
            "one frame in a hundred left {:.1} ms late or later, {:.1} ms at most",
            link.late.p99_ms, link.late.max_ms
        ))
    });
    failures.map(|(count, what)| of(format!("{count} frames {what}"))).chain(late).collect()
}
