//! Calls of the kernel that fail for a moment: the guard lives, says so once, and works again.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::*;
use nix::sys::signal::Signal;

/// Where the child has the descriptor of its filter: beyond those that it opens.
const LISTENER_AT: i32 = 900;
/// Six looks of the guard.
const WINDOW: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(20);
/// Calls with which the agent asks the kernel; memory that its own allocator asks for is not among
/// them.
const CALLS: [(&str, i64); 14] = [
    ("bpf", libc::SYS_bpf),
    ("openat", libc::SYS_openat),
    ("socket", libc::SYS_socket),
    ("sendto", libc::SYS_sendto),
    ("sendmsg", libc::SYS_sendmsg),
    ("recvfrom", libc::SYS_recvfrom),
    ("recvmsg", libc::SYS_recvmsg),
    ("ioctl", libc::SYS_ioctl),
    ("getsockopt", libc::SYS_getsockopt),
    ("getdents64", libc::SYS_getdents64),
    ("statx", libc::SYS_statx),
    ("readlink", libc::SYS_readlink),
    ("rename", libc::SYS_rename),
    ("clone3", libc::SYS_clone3),
];
const ERRORS: [i32; 4] = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];

/// A filter that asks its listener about these calls, and lets all others be.
fn filter() -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for (number, (_, call)) in CALLS.iter().enumerate() {
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let to_ask = (CALLS.len() - number) as u8;
        program.push(libc::sock_filter { code, jt: to_ask, jf: 0, k: *call as u32 });
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Installs it in this process, with its listener at [`LISTENER_AT`].
fn install(program: &[libc::sock_filter]) -> std::io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program outlives the call, which copies it; the descriptor is ours.
    unsafe {
        let listener = libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        );
        if listener < 0 || libc::fcntl(listener as i32, libc::F_DUPFD, LISTENER_AT) != LISTENER_AT {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Answers for the kernel while a fault is set.
struct Faults {
    /// A call and an error, as one number; 0 is none.
    fault: AtomicI64,
    seen: Mutex<BTreeSet<i64>>,
}

impl Faults {
    fn set(&self, call: i64, error: i32) {
        self.fault.store(call << 16 | i64::from(error), Ordering::Relaxed);
    }

    fn clear(&self) {
        self.fault.store(0, Ordering::Relaxed);
    }

    /// For as long as the child lives.
    fn answer(&self, listener: &OwnedFd) {
        let receive = nix::request_code_readwrite!(b'!', 0, size_of::<libc::seccomp_notif>());
        let send = nix::request_code_readwrite!(b'!', 1, size_of::<libc::seccomp_notif_resp>());
        loop {
            // SAFETY: both are plain numbers, as large as the kernel says, and outlive the calls.
            unsafe {
                let mut asked: libc::seccomp_notif = std::mem::zeroed();
                if libc::ioctl(listener.as_raw_fd(), receive, &raw mut asked) < 0 {
                    match nix::errno::Errno::last() {
                        nix::errno::Errno::EINTR => continue,
                        nix::errno::Errno::ENOENT => {
                            // A caller is gone, perhaps with its process.
                            let mut poll =
                                libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                            if libc::poll(&raw mut poll, 1, 1_000) >= 0 && poll.revents & libc::POLLHUP != 0 {
                                return;
                            }
                            continue;
                        }
                        _ => return,
                    }
                }
                let mut answer: libc::seccomp_notif_resp = std::mem::zeroed();
                answer.id = asked.id;
                let (call, fault) = (i64::from(asked.data.nr), self.fault.load(Ordering::Relaxed));
                if fault != 0 && call == fault >> 16 {
                    answer.error = -((fault & 0xffff) as i32);
                    self.seen.lock().expect("whole").insert(fault);
                } else {
                    answer.flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
                }
                // The caller may be gone.
                libc::ioctl(listener.as_raw_fd(), send, &raw mut answer);
            }
        }
    }
}

/// The child's descriptor.
fn take_listener(child: &Child) -> std::io::Result<OwnedFd> {
    // SAFETY: system calls without memory; what they give is ours.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, child.id(), 0);
        if process < 0 {
            return Err(std::io::Error::last_os_error());
        }
        let process = OwnedFd::from_raw_fd(process as i32);
        let listener = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), LISTENER_AT, 0);
        if listener < 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(listener as i32))
    }
}

#[test]
fn root_guard_lives_while_calls_of_the_kernel_fail_for_a_moment() {
    let Some(world) = World::create() else { return };
    let state = tempfile::tempdir().expect("folder");
    let complaints = tempfile::NamedTempFile::new().expect("file");
    let mut command = world.server.command(TIDEGATE).expect("command");
    command.args(["guard", "--listen", ADDRESS, "--json", "--state"]).arg(state.path());
    command.stdout(Stdio::piped()).stderr(File::create(complaints.path()).expect("open"));
    let program = filter();
    // SAFETY: only system calls between fork and exec, and memory of before.
    unsafe { command.pre_exec(move || install(&program)) };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return eprintln!("skipped: no seccomp listener here: {error}"),
    };
    let listener = take_listener(&child).expect("its listener");
    let faults = Arc::new(Faults { fault: AtomicI64::new(0), seen: Mutex::default() });
    let answering = std::thread::spawn({
        let faults = Arc::clone(&faults);
        move || faults.answer(&listener)
    });
    let mut lines = BufReader::new(child.stdout.take().expect("piped"));
    assert_eq!(next_event(&mut lines)["event"], "attached");
    for (name, call) in CALLS {
        for error in ERRORS {
            faults.set(call, error);
            std::thread::sleep(WINDOW);
            assert_eq!(child.try_wait().expect("wait"), None, "{name} failed with {error}");
        }
        faults.clear();
        std::thread::sleep(WINDOW);
    }
    // It works again: what comes is counted.
    drop(world.connect(PATIENCE).expect("there is room"));
    let start = Instant::now();
    while next_event(&mut lines)["syns"]["seen"] == 0 {
        assert!(start.elapsed() < PATIENCE, "nothing is counted any more");
    }
    signal(&child, Signal::SIGTERM);
    lines.lines().count();
    assert!(child.wait().expect("wait").success());
    answering.join().expect("no panic");
    let said = std::fs::read_to_string(complaints.path()).expect("read");
    let hit: BTreeSet<i64> = faults.seen.lock().expect("whole").iter().map(|fault| fault >> 16).collect();
    for call in [libc::SYS_bpf, libc::SYS_socket] {
        assert!(hit.contains(&call), "call {call} was not tried; {said}");
    }
    for line in
        ["renewing the lease failed", "renewing the lease works again", "finding out who waits failed"]
    {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("guarded no more"), "{said}");
}
