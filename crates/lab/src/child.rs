//! A program that the lab started: its JSON lines are read, and it never outlives its owner.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid};
use serde_json::Value;

/// How long a program may take to end after SIGTERM before it is killed.
const PATIENCE: Duration = Duration::from_secs(3);

/// A running program. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Running {
    name: &'static str,
    child: Child,
    lines: Receiver<(Instant, String)>,
}

impl Running {
    /// Starts a program whose standard output is JSON lines.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}: {}", command.get_program().to_string_lossy()))?;
        let stdout = child.stdout.take().expect("standard output is a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send((Instant::now(), line)).is_err() {
                    break;
                }
            }
        });
        Ok(Self { name, child, lines })
    }

    /// Its number.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line with this `event`, within `timeout`; others are passed over.
    ///
    /// # Errors
    ///
    /// When the program ends or says nothing of the kind in time.
    pub(crate) fn wait_for(&mut self, event: &str, timeout: Duration) -> Result<Value> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((_, line)) => {
                    let value: Value = serde_json::from_str(&line)
                        .with_context(|| format!("{} printed a line that is not JSON: {line}", self.name))?;
                    if value["event"] == event {
                        return Ok(value);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} did not say {event:?} within {timeout:?}", self.name)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().with_context(|| format!("wait for {}", self.name))?;
                    bail!("{} ended ({status}) before it said {event:?}; its own message is above", self.name)
                }
            }
        }
    }

    /// Waits for a line of a program that prints sentences.
    ///
    /// # Errors
    ///
    /// When the program ends or does not print it in time.
    pub(crate) fn wait_for_line(&mut self, line: &str, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((_, said)) if said == line => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{} did not say {line:?} within {timeout:?}", self.name)
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait().with_context(|| format!("wait for {}", self.name))?;
                    bail!("{} ended ({status}) before it said {line:?}; its own message is above", self.name)
                }
            }
        }
    }

    /// Whether it has ended, by itself or by a signal.
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until it has ended by itself.
    ///
    /// # Errors
    ///
    /// When it does not end in time, or failed.
    pub(crate) fn wait_for_end(&mut self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        while !self.has_ended() {
            if Instant::now() > deadline {
                bail!("{} did not end within {timeout:?}", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let status = self.child.wait().with_context(|| format!("wait for {}", self.name))?;
        if !status.success() {
            bail!("{} failed ({status}); its own message is above", self.name);
        }
        Ok(())
    }

    /// The lines of such an event that were printed by now and not read yet, and when each was; the
    /// others are forgotten.
    pub(crate) fn said(&self, event: &str) -> Vec<(Instant, Value)> {
        let lines = self.lines.try_iter();
        let values = lines.filter_map(|(at, line)| Some((at, serde_json::from_str::<Value>(&line).ok()?)));
        values.filter(|(_, value)| value["event"] == event).collect()
    }

    /// Has the program do nothing more until it is to end (SIGSTOP).
    pub(crate) fn stop(&self) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGSTOP);
    }

    /// Asks the program to end (SIGTERM), which one that was stopped hears when it goes on.
    pub(crate) fn terminate(&self) {
        // It may have ended by itself; it is reaped only when dropped, so the id is still its own.
        for signal in [Signal::SIGTERM, Signal::SIGCONT] {
            let _ = kill(Pid::from_raw(self.child.id().cast_signed()), signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.terminate();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let pid = Pid::from_raw(self.child.id().cast_signed());
        // One that leads a group of its own would leave its children behind.
        if getpgid(Some(pid)) == Ok(pid) {
            let _ = killpg(pid, Signal::SIGKILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
