//! The server under test, in its namespace, on its CPU.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use experiment::{Layout, ServerKind, ServerSpec};
use netns::Namespace;

use crate::child::Running;
use crate::testbed::Testbed;
use crate::{apache, nginx};

/// How long a server may take until it listens.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a server is to have beside its own settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Given<'a> {
    /// A folder for its configuration and logs.
    pub scratch: &'a Path,
    /// The folder of the files that it is asked for, where it is not its own page.
    pub pages: Option<&'a Path>,
    /// How many descriptors, when it must hold connections beside a crowd's.
    pub room: Option<u64>,
}

/// Starts the server; it listens when this returns.
pub(crate) fn start(
    server: &ServerSpec,
    testbed: &Testbed,
    program: &Path,
    cpu: usize,
    given: Given<'_>,
) -> Result<Running> {
    match server.kind {
        ServerKind::BuiltIn | ServerKind::InKernel => {
            let (backlog, time) = (server.backlog.to_string(), format!("{}us", server.cpu_time.as_micros()));
            let mut options = vec!["--backlog", &backlog, "--cpu-time", &time];
            if server.kind == ServerKind::InKernel {
                options.extend(["--accept", "one"]);
            }
            let running = serve(testbed, program, cpu, &options)?;
            if server.is_stopped {
                running.stop();
            }
            Ok(running)
        }
        ServerKind::Nginx => {
            let mut command = testbed.server.command(nginx::PROGRAM)?;
            nginx::configure(&mut command, server.backlog, given)?;
            let running = Running::start("nginx", on_cpu(&mut command, cpu))?;
            wait_until_listening("nginx", &testbed.server)?;
            Ok(running)
        }
        ServerKind::Apache => {
            let mut command = testbed.server.command(apache::PROGRAM)?;
            apache::configure(&mut command, server, given)?;
            let running = Running::start("apache2", on_cpu(&mut command, cpu))?;
            wait_until_listening("apache2", &testbed.server)?;
            Ok(running)
        }
    }
}

impl Testbed {
    /// Starts `tidegate serve` on a CPU, until what this gives is dropped; it listens when this
    /// returns.
    ///
    /// # Errors
    ///
    /// When it ends, or does not listen within seconds.
    pub fn serve(&self, program: &Path, cpu: usize, options: &[&str]) -> Result<impl Drop + use<>> {
        serve(self, program, cpu, options)
    }
}

fn serve(testbed: &Testbed, program: &Path, cpu: usize, options: &[&str]) -> Result<Running> {
    let mut command = testbed.server.command(program)?;
    command.args(["serve", "--json", "--listen", &testbed.server_address().to_string()]).args(options);
    let mut running = Running::start("tidegate serve", on_cpu(&mut command, cpu))?;
    running.wait_for("listening", PATIENCE)?;
    Ok(running)
}

/// Whether this machine has such a server; if not, why not.
pub(crate) fn missing(kind: ServerKind) -> Option<String> {
    match kind {
        ServerKind::BuiltIn | ServerKind::InKernel => None,
        ServerKind::Nginx => nginx::missing(),
        ServerKind::Apache => apache::missing(),
    }
}

/// Name and version of a program that is not ours.
pub(crate) fn version(kind: ServerKind) -> Option<(String, String)> {
    let (name, version) = match kind {
        ServerKind::BuiltIn | ServerKind::InKernel => return None,
        ServerKind::Nginx => ("nginx", nginx::version()?),
        ServerKind::Apache => ("apache2", apache::version()?),
    };
    Some((name.to_owned(), version))
}

/// Makes the command run on one CPU.
fn on_cpu(command: &mut Command, cpu: usize) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: sched_setaffinity is an async-signal-safe system call, and the set is on the stack.
    unsafe {
        command.pre_exec(move || {
            let mut set = nix::sched::CpuSet::new();
            set.set(cpu)?;
            nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set)?;
            Ok(())
        })
    }
}

fn wait_until_listening(name: &str, namespace: &Namespace) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if netns::accept_queue(namespace, Layout::SERVER.port()).context("look for the listener")?.is_some() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    bail!(
        "{name} does not listen on port {} after {PATIENCE:?}; its own message is above",
        Layout::SERVER.port()
    )
}
