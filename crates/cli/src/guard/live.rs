//! What a guard tells whoever looks: `tidegate top`, by the guard's socket.

use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use guard::{Guard, Sample};
use top::{Hello, Socket};

use super::event::GuardEvent;
use super::lines;
use crate::output::Timed;

/// The socket, where there is one.
#[derive(Debug, Default)]
pub struct Live(Option<Socket>);

impl Live {
    /// In the folder of what is learnt; without a folder nobody can look.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made.
    pub fn open(folder: Option<&Path>, hello: &Hello) -> Result<Self> {
        let open = |folder: &Path| {
            let socket = Socket::open(folder, hello);
            socket.with_context(|| format!("make a socket in {}", folder.display()))
        };
        Ok(Self(folder.map(open).transpose()?))
    }

    /// Tells what is so now, and newcomers also what was so before: each is a time since the start,
    /// and what was seen then. Does nothing if nobody looks.
    pub fn tell(&mut self, guard: &Guard, before: (Duration, &Sample), now: (Duration, &Sample)) {
        if let Some(socket) = &mut self.0 {
            socket.tell(
                || text(&lines::samples(before.0, before.1)),
                || text(&lines::attached(guard, now.1)) + &text(&lines::samples(now.0, now.1)),
            );
        }
    }
}

/// Who we are, in the calling thread's network namespace and as `--netns` names that.
pub fn hello(netns: Option<&str>) -> Result<Hello> {
    let metadata = fs::metadata("/proc/thread-self/ns/net").context("look at our network namespace")?;
    let netns_name = netns.map(str::to_owned).or_else(|| name_of(metadata.ino()));
    let version = experiment::version().to_owned();
    Ok(Hello { version, pid: std::process::id(), netns: metadata.ino(), netns_name })
}

/// The name that `ip netns` has for a network namespace, if there is one.
fn name_of(netns: u64) -> Option<String> {
    let mut named = fs::read_dir("/run/netns").ok()?.flatten();
    let is_it = |entry: &fs::DirEntry| fs::metadata(entry.path()).is_ok_and(|it| it.ino() == netns);
    named.find(is_it).map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn text(events: &[GuardEvent]) -> String {
    events.iter().fold(String::new(), |mut text, event| {
        writeln!(text, "{}", Timed::json(event)).expect("a String takes all");
        text
    })
}
