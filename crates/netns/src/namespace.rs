//! A named network namespace.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use nix::sched::{CloneFlags, CpuSet, sched_setaffinity, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::Act;
use crate::{Error, Result};

const RUN_DIR: &str = "/run/netns";

/// A network namespace that is deleted on drop.
///
/// The name is `tg-<role>-<pid>-<n>`: the process id says whose it is, so that [`sweep`] never
/// takes a live run's.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes a namespace with its loopback up.
    ///
    /// # Errors
    ///
    /// Without `ip` (iproute2) or without CAP_SYS_ADMIN.
    pub fn create(role: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tg-{role}-{}-{number}", std::process::id());
        ip(&["netns", "add", &name])?;
        let namespace = Self { name };
        namespace.ip(&["link", "set", "lo", "up"])?;
        Ok(namespace)
    }

    /// Name, as `ip netns list` shows it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// File to open for setns(2).
    pub fn path(&self) -> PathBuf {
        PathBuf::from(RUN_DIR).join(&self.name)
    }

    /// Runs `ip ARGS` in the namespace.
    pub fn ip(&self, args: &[&str]) -> Result<()> {
        ip(&[&["-n", self.name.as_str()], args].concat())
    }

    /// Runs `ip LINE` in the namespace for each line, in one process, up to the first that fails.
    pub(crate) fn ip_all(&self, lines: &[String]) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "-batch", "-"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| Error::start(&command, error))?;
        // When it ends before it has read all, it says why.
        let _unread = child.stdin.take().expect("piped").write_all(lines.join("\n").as_bytes());
        let output = child.wait_with_output().map_err(|error| Error::start(&command, error))?;
        if output.status.success() { Ok(()) } else { Err(Error::refused(&command, &output.stderr)) }
    }

    /// Runs `tc ARGS` in the namespace.
    pub fn tc(&self, args: &[&str]) -> Result<()> {
        run(Command::new("tc").args(["-n", &self.name]).args(args))
    }

    /// Runs `act` on a thread of its own inside the namespace and gives what it gives.
    ///
    /// The thread ends with the call, so that no namespace leaks into the caller's. Sockets and
    /// files opened by `act` keep belonging to the namespace. `/proc/thread-self/net`, not
    /// `/proc/net`, is the namespace's there; sysfs is not (it belongs to the mount), see
    /// [`Namespace::write_sysfs`].
    ///
    /// # Panics
    ///
    /// When `act` does, with its panic.
    pub fn enter<T: Send>(&self, act: impl FnOnce() -> T + Send) -> Result<T> {
        enter(&self.open()?, act)
    }

    /// A command that will run in the namespace, and that the kernel asks to end (SIGTERM) when the
    /// caller's thread does: SIGKILL would leave the children of such as nginx behind.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let file = self.open()?;
        let mut command = Command::new(program);
        // SAFETY: setns and prctl are async-signal-safe system calls; nothing allocates between
        // fork and exec.
        unsafe {
            command.pre_exec(move || {
                setns(&file, CloneFlags::CLONE_NEWNET)?;
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        Ok(command)
    }

    /// Reads a `net.*` sysctl, by its dotted name.
    pub fn sysctl(&self, name: &str) -> Result<String> {
        let path = sysctl_path(name);
        let text = self.enter(|| fs::read_to_string(&path))?.act_with(|| format!("read sysctl {name}"))?;
        Ok(text.trim().to_owned())
    }

    /// Sets a `net.*` sysctl, by its dotted name, in this namespace only.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = sysctl_path(name);
        self.enter(|| fs::write(&path, value))?.act_with(|| format!("set sysctl {name} to {value}"))
    }

    /// Writes a file of the namespace's own sysfs, such as `class/net/eth0/queues/rx-0/rps_cpus`.
    pub fn write_sysfs(&self, path: &str, value: &str) -> Result<()> {
        // `ip netns exec` mounts the namespace's sysfs in a mount namespace of its own, which ends
        // with the command.
        run(Command::new("ip")
            .args(["netns", "exec", &self.name, "sh", "-c", "printf %s \"$1\" > \"/sys/$2\"", "sh"])
            .args([value, path]))
    }

    fn open(&self) -> Result<File> {
        let path = self.path();
        File::open(&path).act_with(|| format!("open namespace {}", path.display()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(error) = ip(&["netns", "del", &self.name]) {
            eprintln!("tidegate: {error}; remove it with: ip netns del {}", self.name);
        }
    }
}

/// Name of the host's own network namespace, that of process 1, where `ip netns` has no other of
/// this name. In a container without the host's process ids it is the container's.
pub const HOST: &str = "host";

/// Names that [`open`] takes now: those of `ip netns`, and [`HOST`].
pub fn names() -> Vec<String> {
    let named = fs::read_dir(RUN_DIR).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        named.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.push(HOST.to_owned());
    names.sort();
    names.dedup();
    names
}

/// Opens a network namespace: by its name for `ip netns`, as [`HOST`], by a path, or by the id of a
/// process in it.
///
/// # Errors
///
/// One line: there is none, or it may not be opened.
pub fn open(name: &str) -> Result<File> {
    let path = path_of(name);
    // A FIFO must not hold us up.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
    let is_forbidden = file.as_ref().is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
    file.act_with(|| {
        let known = names();
        let known = known.iter().map(String::as_str);
        let would_do = "give a name of `ip netns`, host, a process id or a path";
        let then = match is_forbidden {
            true => "; this needs CAP_SYS_PTRACE, or as many capabilities as the process has".to_owned(),
            false => spelling::did_you_mean(name, known, would_do),
        };
        format!("network namespace {name}: open {}{then}", path.display())
    })
}

/// Where the file is of what [`open`] takes.
pub fn path_of(name: &str) -> PathBuf {
    path_below(Path::new(RUN_DIR), name)
}

fn path_below(run_dir: &Path, name: &str) -> PathBuf {
    let named = run_dir.join(name);
    let is_pid = name.bytes().all(|byte| byte.is_ascii_digit());
    match name {
        _ if name.contains('/') => PathBuf::from(name),
        _ if is_pid => PathBuf::from(format!("/proc/{name}/ns/net")),
        HOST if !named.exists() => PathBuf::from("/proc/1/ns/net"),
        _ => named,
    }
}

/// Waits until no other run has its turn, and holds them off until the file is dropped: for what a
/// run can tell to be its own only by when it appears.
///
/// # Errors
///
/// While no network namespace has a name: there is nothing to lock.
pub fn turn() -> Result<File> {
    // A folder that is there anyway, so that nothing is left behind.
    let folder = File::open(RUN_DIR).act_with(|| format!("open {RUN_DIR}"))?;
    folder.lock().act_with(|| format!("lock {RUN_DIR}"))?;
    Ok(folder)
}

/// Whether what [`open`] takes leads to another network namespace than the calling thread's, or
/// nowhere any more.
pub fn is_elsewhere(name: &str) -> bool {
    let inode = |path: &Path| fs::metadata(path).map(|file| (file.dev(), file.ino()));
    match (inode(&path_of(name)), inode(Path::new("/proc/thread-self/ns/net"))) {
        (Ok(named), Ok(own)) => named != own,
        (Err(error), _) => error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
        // What cannot be known is no reason.
        _ => false,
    }
}

/// What [`Namespace::enter`] does, for any network namespace: `file` is its file under
/// `/proc/PID/ns` or `/run/netns`.
///
/// # Panics
///
/// When `act` does, with its panic.
pub fn enter<T: Send>(file: &File, act: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || -> Result<T> {
            setns(file, CloneFlags::CLONE_NEWNET).map_err(Error::Enter)?;
            Ok(act())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Removes the namespaces of runs whose process is gone, with the processes in them, and gives
/// their names.
pub fn sweep() -> Result<Vec<String>> {
    let Ok(entries) = fs::read_dir(RUN_DIR) else {
        return Ok(Vec::new());
    };
    let mut removed = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(owner) = owner(&name) else { continue };
        if !PathBuf::from(format!("/proc/{owner}")).exists() {
            end_processes(&name);
            // Another run may sweep at the same moment.
            match ip(&["netns", "del", &name]) {
                Err(error) if entry.path().exists() => return Err(error),
                _ => removed.push(name),
            }
        }
    }
    Ok(removed)
}

/// Ends what the dead run still has in a namespace of its own.
fn end_processes(name: &str) {
    let Ok(output) = Command::new("ip").args(["netns", "pids", name]).output() else { return };
    let pids = String::from_utf8_lossy(&output.stdout).into_owned();
    for pid in pids.split_whitespace().filter_map(|pid| pid.parse().ok()) {
        // It may end by itself meanwhile.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Moves the calling thread, and what it starts from now on, to one CPU.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu).act_with(|| format!("CPU {cpu} is beyond what this system can number"))?;
    sched_setaffinity(Pid::from_raw(0), &set).act_with(|| format!("pin to CPU {cpu}; is it online?"))
}

fn owner(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix("tg-")?.rsplit('-');
    let _number: u32 = parts.next()?.parse().ok()?;
    parts.next()?.parse().ok()
}

fn sysctl_path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}

pub(crate) fn ip(args: &[&str]) -> Result<()> {
    run(Command::new("ip").args(args))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().map_err(|error| Error::start(command, error))?;
    if output.status.success() { Ok(()) } else { Err(Error::refused(command, &output.stderr)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_read_from_our_names_only() {
        assert_eq!(owner("tg-server-1234-0"), Some(1234));
        assert_eq!(owner("tg-two-words-77-3"), Some(77));
        assert_eq!(owner("docker-1-0"), None);
        assert_eq!(owner("tg-by-hand"), None);
    }

    #[test]
    fn host_is_the_namespace_of_process_1_unless_ip_netns_has_the_name() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(path_below(folder.path(), "host"), Path::new("/proc/1/ns/net"));
        assert_eq!(path_below(folder.path(), "4242"), Path::new("/proc/4242/ns/net"));
        assert_eq!(path_below(folder.path(), "./host"), Path::new("./host"));
        fs::write(folder.path().join("host"), "").expect("write");
        assert_eq!(path_below(folder.path(), "host"), folder.path().join("host"));
        assert!(names().contains(&"host".to_owned()));
    }

    #[test]
    fn root_name_that_is_nearly_right_is_told_which_was_meant() {
        if let Err(reason) = crate::root_or_reason() {
            return eprintln!("{reason}");
        }
        let namespace = Namespace::create("meant").expect("create");
        let error = open(&namespace.name().replace("meant", "maent")).expect_err("none").to_string();
        assert!(error.contains(&format!("; did you mean {}? give a name", namespace.name())), "{error}");
        let error = open("hots").expect_err("none").to_string();
        assert!(
            error.contains("did you mean host? give a name of `ip netns`, host, a process id"),
            "{error}"
        );
    }

    #[test]
    fn root_namespace_is_entered_and_deleted_on_drop() {
        if let Err(reason) = crate::root_or_reason() {
            return eprintln!("{reason}");
        }
        let namespace = Namespace::create("test").expect("create");
        let path = namespace.path();
        let inside = namespace
            .enter(|| fs::read_to_string("/proc/thread-self/net/dev"))
            .expect("enter")
            .expect("read");
        assert_eq!(inside.lines().count(), 3, "two header lines and lo: {inside}");
        namespace.set_sysctl("net.ipv4.tcp_syncookies", "0").expect("set");
        assert_eq!(namespace.sysctl("net.ipv4.tcp_syncookies").expect("get"), "0");
        drop(namespace);
        assert!(!path.exists(), "{} is left behind", path.display());
    }

    #[test]
    fn root_sweep_takes_the_dead_and_leaves_the_living() {
        if let Err(reason) = crate::root_or_reason() {
            return eprintln!("{reason}");
        }
        let living = Namespace::create("living").expect("create");
        let mut child = Command::new("true").spawn().expect("spawn");
        let dead = format!("tg-dead-{}-0", child.id());
        child.wait().expect("wait");
        ip(&["netns", "add", &dead]).expect("add");
        let removed = sweep().expect("sweep");
        assert!(removed.contains(&dead), "{removed:?}");
        assert!(living.path().exists());
    }
}
