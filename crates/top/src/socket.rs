//! A guard's socket: whoever may connect gets its lines.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, connect, listen, socket};
use nix::sys::stat::{Mode, fchmod};

use crate::line::Hello;

/// Who reads at the same time, at most.
const READERS: usize = 4;
/// Turns in which a reader took nothing, after which it is let go.
const PATIENCE: u32 = 10;

/// Gives a guard's lines to whoever connects and may: its owner and root. It waits for nobody: a
/// slow reader loses lines, and then its place.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
    hello: String,
    readers: Vec<Reader>,
}

#[derive(Debug)]
struct Reader {
    stream: UnixStream,
    /// The rest of a line that has begun.
    rest: Vec<u8>,
    stuck: u32,
}

impl Socket {
    /// Listens in a folder, which is made; sockets that guards left there when they were killed go.
    ///
    /// # Errors
    ///
    /// When that cannot be, or another guard with this process id has its socket there: one of
    /// another pid namespace.
    pub fn open(folder: &Path, hello: &Hello) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        for (_, path) in sockets(folder)? {
            remove_if_dead(&path);
        }
        let path = path(folder, hello.pid);
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        // Before it has a name: Linux makes the file with the mode of the socket (unix_bind_bsd).
        fchmod(&socket, Mode::S_IRUSR | Mode::S_IWUSR)?;
        bind(socket.as_raw_fd(), &UnixAddr::new(&path)?)?;
        listen(&socket, Backlog::new(READERS as i32)?)?;
        Ok(Self { listener: socket.into(), path, hello: hello.line(), readers: Vec::new() })
    }

    /// Lets in who waits, and tells all readers: newcomers `before` first, then everybody `now`;
    /// both are whole lines. Neither is made if nobody reads.
    pub fn tell(&mut self, before: impl FnOnce() -> String, now: impl FnOnce() -> String) {
        let mut newcomers = Vec::new();
        while let Ok((stream, _)) = self.listener.accept() {
            if self.readers.len() + newcomers.len() < READERS && stream.set_nonblocking(true).is_ok() {
                newcomers.push(Reader { stream, rest: Vec::new(), stuck: 0 });
            }
        }
        if !newcomers.is_empty() {
            let before = format!("{}\n{}", self.hello, before());
            newcomers.retain_mut(|reader| reader.tell(before.as_bytes()));
            self.readers.append(&mut newcomers);
        }
        if !self.readers.is_empty() {
            let now = now();
            self.readers.retain_mut(|reader| reader.tell(now.as_bytes()));
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may be gone with its folder.
        fs::remove_file(&self.path).ok();
    }
}

impl Reader {
    /// Whether it stays.
    fn tell(&mut self, lines: &[u8]) -> bool {
        // What is not read yet goes first, and instead.
        if self.rest.is_empty() {
            self.rest = lines.to_vec();
        }
        match self.write() {
            Ok(0) => self.stuck += 1,
            Ok(_) => self.stuck = 0,
            Err(_) => return false,
        }
        self.stuck < PATIENCE
    }

    /// Bytes that it took.
    fn write(&mut self) -> io::Result<usize> {
        let mut taken = 0;
        while taken < self.rest.len() {
            match self.stream.write(&self.rest[taken..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => taken += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.rest.drain(..taken);
        Ok(taken)
    }
}

/// Sockets of guards in a folder, with their process ids.
pub(crate) fn sockets(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix("guard-")?.strip_suffix(".sock")?.parse().ok());
        found.extend(pid.map(|pid| (pid, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// Connects, or says why that cannot be at once: a guard that is stopped must stop nobody else.
pub(crate) fn connect_at_once(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(socket.into())
}

/// Removes a socket that nobody listens at.
pub(crate) fn remove_if_dead(path: &Path) {
    if connect_at_once(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
        fs::remove_file(path).ok();
    }
}

fn path(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("guard-{pid}.sock"))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn hello(pid: u32) -> Hello {
        Hello { version: "1.0".into(), pid, netns: 7, netns_name: None }
    }

    fn tell(socket: &mut Socket, now: &str) {
        socket.tell(|| "before\n".to_owned(), || format!("{now}\n"));
    }

    #[test]
    fn reader_gets_hello_then_what_was_then_what_is_and_nothing_stays() {
        let folder = tempfile::tempdir().expect("folder");
        let mut socket = Socket::open(&folder.path().join("new"), &hello(5)).expect("open");
        let path = folder.path().join("new/guard-5.sock");
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        socket.tell(|| panic!("nobody reads"), || panic!("nobody reads"));
        let reader = BufReader::new(UnixStream::connect(&path).expect("connect"));
        tell(&mut socket, "one");
        tell(&mut socket, "two");
        drop(socket);
        let lines: Vec<String> = reader.lines().map(|line| line.expect("a line")).collect();
        assert_eq!(
            lines,
            [
                r#"{"event":"hello","netns":7,"netns_name":null,"pid":5,"version":"1.0"}"#,
                "before",
                "one",
                "two"
            ]
        );
        assert!(!path.exists());
    }

    #[test]
    fn slow_reader_loses_whole_lines_and_then_its_place() {
        let folder = tempfile::tempdir().expect("folder");
        let mut socket = Socket::open(folder.path(), &hello(5)).expect("open");
        let slow = UnixStream::connect(folder.path().join("guard-5.sock")).expect("connect");
        let line = "x".repeat(100_000);
        for _ in 0..5 {
            tell(&mut socket, &line);
        }
        assert_eq!(socket.readers.len(), 1);
        // It reads on: what comes after are whole lines again.
        slow.set_nonblocking(true).expect("set");
        let mut slow = BufReader::new(slow);
        let (mut bytes, mut told) = (Vec::new(), 0);
        while told < 3 {
            if slow.read_until(b'\n', &mut bytes).is_err() || bytes.is_empty() {
                tell(&mut socket, "new");
                continue;
            }
            let text = String::from_utf8(std::mem::take(&mut bytes)).expect("text");
            let text = text.trim_end();
            assert!(text == line || text == "new" || text == "before" || text.contains("hello"), "{text}");
            told += u32::from(text == "new");
        }
        for _ in 0..=PATIENCE + 5 {
            tell(&mut socket, &line);
        }
        assert!(socket.readers.is_empty());
    }

    #[test]
    fn fifth_reader_is_turned_away_and_a_place_is_free_once_one_goes() {
        let folder = tempfile::tempdir().expect("folder");
        let mut socket = Socket::open(folder.path(), &hello(5)).expect("open");
        let connect = || UnixStream::connect(folder.path().join("guard-5.sock")).expect("connect");
        let mut readers: Vec<UnixStream> = (0..READERS + 1).map(|_| connect()).collect();
        tell(&mut socket, "one");
        let first = |stream: UnixStream| BufReader::new(stream).lines().next().transpose().expect("read");
        assert_eq!(first(readers.pop().expect("the fifth")), None);
        readers.pop();
        tell(&mut socket, "two");
        let late = connect();
        tell(&mut socket, "three");
        assert!(first(late).expect("a line").contains("hello"));
    }

    #[test]
    fn guard_that_lets_nobody_in_stops_nobody_else() {
        let folder = tempfile::tempdir().expect("folder");
        let _stopped = Socket::open(folder.path(), &hello(5)).expect("open");
        let path = folder.path().join("guard-5.sock");
        let waiting: Vec<UnixStream> = std::iter::from_fn(|| connect_at_once(&path).ok()).collect();
        assert!(waiting.len() >= READERS);
        let next = Socket::open(folder.path(), &hello(6)).expect("it does not wait");
        drop(next);
        assert!(path.exists(), "it is not dead");
    }

    #[test]
    fn socket_of_a_killed_guard_goes_and_that_of_a_live_one_stays() {
        let folder = tempfile::tempdir().expect("folder");
        let live = Socket::open(folder.path(), &hello(5)).expect("open");
        let dead = UnixListener::bind(folder.path().join("guard-6.sock")).expect("bind");
        drop(dead);
        fs::write(folder.path().join("guard-x.sock"), "").expect("write");
        let next = Socket::open(folder.path(), &hello(7)).expect("open");
        let pids =
            |folder: &Path| -> Vec<u32> { sockets(folder).expect("list").iter().map(|of| of.0).collect() };
        assert_eq!(pids(folder.path()), [5, 7]);
        assert!(Socket::open(folder.path(), &hello(5)).is_err(), "another guard has it");
        drop((live, next));
        assert_eq!(pids(folder.path()), [0; 0]);
        assert!(folder.path().join("guard-x.sock").exists());
    }
}
