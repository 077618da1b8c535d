//! The guards of this host, by their sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::unistd::{Uid, User};

use crate::model::Model;
use crate::socket::{connect_at_once, remove_if_dead, sockets};

/// Within which a guard says who it is; it speaks each second.
const PATIENCE: Duration = Duration::from_secs(5);
/// Of a line, bytes. A guard's have two thousand or so.
const MAX_LINE: usize = 1 << 20;

/// Reads the lines of all guards whose sockets are in a folder.
#[derive(Debug)]
pub struct Guards {
    folder: PathBuf,
    by_pid: BTreeMap<u32, Speaker>,
    /// That were said to be out of reach, or to speak another language; said once.
    left_out: BTreeSet<u32>,
    /// Whether the folder was said to be.
    is_hidden: bool,
}

#[derive(Debug)]
struct Speaker {
    stream: UnixStream,
    since: Instant,
    has_spoken: bool,
    /// Of a line whose end is not there yet.
    begun: Vec<u8>,
}

/// A guard that cannot be read; each is a line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// It is another user's.
    #[error(
        "guard {pid} belongs to {owner}, and its socket {path} is for that user and root; run this as {owner}, or with sudo"
    )]
    Forbidden {
        /// Its process.
        pid: u32,
        /// A name, or a number.
        owner: String,
        /// In the file system.
        path: String,
    },
    /// It is not known which there are.
    #[error("look for guards in {folder}: {error}; run this as their user, or with sudo")]
    Hidden {
        /// In the file system.
        folder: String,
        /// What the system said.
        error: io::Error,
    },
    /// It cannot be connected to.
    #[error("guard {pid}: connect to {path}: {error}")]
    OutOfReach {
        /// Its process.
        pid: u32,
        /// In the file system.
        path: String,
        /// What the system said.
        error: io::Error,
    },
    /// What it says is none of our lines.
    #[error("guard {0} speaks another language than this version of tidegate; run /proc/{0}/exe top")]
    OtherLanguage(u32),
    /// It hung up.
    #[error("guard {0} hung up: others read it already, or it is ending; try again")]
    Crowded(u32),
    /// It is there, and says nothing.
    #[error("guard {0} has not spoken for {secs} seconds: is it stopped? see `ps -o stat= -p {0}`", secs = PATIENCE.as_secs())]
    Silent(u32),
}

impl Guards {
    /// Of this folder; none is read yet.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            by_pid: BTreeMap::new(),
            left_out: BTreeSet::new(),
            is_hidden: false,
        }
    }

    /// Whether one of them can be read.
    pub fn is_empty(&self) -> bool {
        self.by_pid.is_empty()
    }

    /// Connects to guards that are new. Gives those that cannot be read, each once.
    pub fn find(&mut self) -> Vec<GuardError> {
        let mut errors = Vec::new();
        let found = sockets(&self.folder).unwrap_or_else(|error| {
            // Without the folder there is no guard.
            if error.kind() != ErrorKind::NotFound && !std::mem::replace(&mut self.is_hidden, true) {
                errors.push(GuardError::Hidden { folder: self.folder.display().to_string(), error });
            }
            Vec::new()
        });
        self.left_out.retain(|pid| found.iter().any(|(known, _)| known == pid));
        for (pid, path) in found {
            if self.by_pid.contains_key(&pid) || self.left_out.contains(&pid) {
                continue;
            }
            match connect_at_once(&path) {
                Ok(stream) => {
                    let (since, begun) = (Instant::now(), Vec::new());
                    self.by_pid.insert(pid, Speaker { stream, since, has_spoken: false, begun });
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => remove_if_dead(&path),
                // It is ending, or others connect just now: the next look tells.
                Err(error) if [ErrorKind::NotFound, ErrorKind::WouldBlock].contains(&error.kind()) => {}
                Err(error) => {
                    self.left_out.insert(pid);
                    errors.push(refusal(pid, &path, error));
                }
            }
        }
        errors
    }

    /// Takes what they have said since; whether that was anything, and which cannot be read any
    /// more.
    pub fn hear(&mut self, model: &mut Model) -> (bool, Vec<GuardError>) {
        let (mut is_news, mut errors) = (false, Vec::new());
        let left_out = &mut self.left_out;
        self.by_pid.retain(|&pid, speaker| {
            let heard = speaker.hear(pid, model);
            is_news |= !matches!(heard, Ok(Heard::Nothing));
            match heard {
                Ok(Heard::Lines | Heard::Nothing) => return true,
                Ok(Heard::End) => {}
                Err(error) => {
                    left_out.insert(pid);
                    errors.push(error);
                }
            }
            model.forget(pid);
            false
        });
        (is_news, errors)
    }
}

enum Heard {
    Lines,
    Nothing,
    End,
}

impl Speaker {
    fn hear(&mut self, pid: u32, model: &mut Model) -> Result<Heard, GuardError> {
        let mut heard = Heard::Nothing;
        let mut bytes = [0; 1 << 16];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) if self.has_spoken => return Ok(Heard::End),
                Ok(0) => return Err(GuardError::Crowded(pid)),
                Ok(length) => self.begun.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Ok(Heard::End),
            }
            let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else {
                if self.begun.len() > MAX_LINE {
                    return Err(GuardError::OtherLanguage(pid));
                }
                continue;
            };
            let rest = self.begun.split_off(end + 1);
            let lines = std::mem::replace(&mut self.begun, rest);
            for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                let line = str::from_utf8(line).map_err(|_| GuardError::OtherLanguage(pid))?;
                model.line(pid, line).map_err(|_| GuardError::OtherLanguage(pid))?;
            }
            self.has_spoken = true;
            heard = Heard::Lines;
        }
        if !self.has_spoken && self.since.elapsed() > PATIENCE {
            return Err(GuardError::Silent(pid));
        }
        Ok(heard)
    }
}

fn refusal(pid: u32, path: &Path, error: io::Error) -> GuardError {
    let path_text = path.display().to_string();
    if error.kind() != ErrorKind::PermissionDenied {
        return GuardError::OutOfReach { pid, path: path_text, error };
    }
    let owner = fs::symlink_metadata(path).map_or(0, |metadata| metadata.uid());
    let name = User::from_uid(Uid::from_raw(owner)).ok().flatten().map(|user| user.name);
    let owner = name.unwrap_or_else(|| format!("user {owner}"));
    GuardError::Forbidden { pid, owner, path: path_text }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::line::Hello;
    use crate::model::Source;
    use crate::reading::tests::line;
    use crate::socket::Socket;

    fn model() -> Model {
        Model::new("1.0", 7, Source::Loading("the guards"))
    }

    #[test]
    fn lines_of_two_guards_are_heard_and_one_that_ends_is_forgotten() {
        let folder = tempfile::tempdir().expect("folder");
        let open = |pid| {
            let hello = Hello { version: "1.0".into(), pid, netns: 7, netns_name: None };
            Socket::open(folder.path(), &hello).expect("open")
        };
        let (mut one, mut two) = (open(5), open(6));
        let (mut guards, mut model) = (Guards::new(folder.path()), model());
        assert!(guards.find().is_empty() && !guards.is_empty());
        for socket in [&mut one, &mut two] {
            socket.tell(|| format!("{}\n", line(1.0, |_| {})), || format!("{}\n", line(2.0, |_| {})));
        }
        let (is_news, errors) = guards.hear(&mut model);
        assert!(is_news && errors.is_empty(), "{errors:?}");
        assert_eq!(model.rows.len(), 2);
        assert!(model.rows.iter().all(|row| row.second.is_some()), "two lines give a rate");
        drop(one);
        assert!(guards.hear(&mut model).1.is_empty());
        assert_eq!(model.rows.iter().map(|row| row.id.guard).collect::<Vec<_>>(), [Some(6)]);
        assert!(!guards.hear(&mut model).0);
    }

    #[test]
    fn what_is_no_guard_is_one_line_and_is_said_once() {
        let folder = tempfile::tempdir().expect("folder");
        let listener = UnixListener::bind(folder.path().join("guard-8.sock")).expect("bind");
        let (mut guards, mut model) = (Guards::new(folder.path()), model());
        assert!(guards.find().is_empty());
        let (mut stream, _) = listener.accept().expect("accept");
        stream.write_all(b"SSH-2.0\r\n").expect("write");
        let (_, errors) = guards.hear(&mut model);
        let said = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(said.contains("guard 8 speaks another language") && said.lines().count() == 1, "{said}");
        assert!(guards.find().is_empty() && guards.is_empty(), "it is left out");
    }

    #[test]
    fn folder_that_cannot_be_read_is_said_once_and_one_that_is_not_there_is_none() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let mut guards = Guards::new(file.path());
        let said = guards.find().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(said.starts_with("look for guards in ") && said.lines().count() == 1, "{said}");
        assert!(guards.find().is_empty());
        assert!(Guards::new(Path::new("/nowhere")).find().is_empty());
    }

    #[test]
    fn guard_that_has_no_place_for_a_reader_says_so() {
        let folder = tempfile::tempdir().expect("folder");
        let listener = UnixListener::bind(folder.path().join("guard-8.sock")).expect("bind");
        let (mut guards, mut model) = (Guards::new(folder.path()), model());
        assert!(guards.find().is_empty());
        drop(listener.accept().expect("accept"));
        let (_, errors) = guards.hear(&mut model);
        assert!(matches!(errors[..], [GuardError::Crowded(8)]), "{errors:?}");
    }
}
