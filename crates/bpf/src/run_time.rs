//! How long programs run, as the kernel counts it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use crate::sys::{done, owned, program, program_info, until_nul};

/// While this is held the kernel counts, for all programs of the machine, as it does always with
/// `kernel.bpf_stats_enabled`. The clock is read twice for each run then, and the time between is
/// part of what is counted (`__bpf_prog_run()`, Linux 6.18 include/linux/filter.h).
#[derive(Debug)]
pub struct RunCounting {
    _fd: OwnedFd,
}

impl RunCounting {
    /// From now on.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_SYS_ADMIN, EINVAL before Linux 5.8 (`BPF_ENABLE_STATS`).
    pub fn begin() -> io::Result<Self> {
        // SAFETY: takes a number.
        Ok(Self { _fd: owned(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })? })
    }
}

/// How long all programs of the machine together have run that are loaded now and have one of these
/// names (as the kernel has them, of 15 characters at most), while it counted.
///
/// # Errors
///
/// EPERM without CAP_SYS_ADMIN.
pub fn run_time_of(names: &[&str]) -> io::Result<Duration> {
    let (mut time_ns, mut id) = (0, 0);
    loop {
        // SAFETY: takes a number, and writes the one that follows.
        match done(unsafe { libbpf_sys::bpf_prog_get_next_id(id, &raw mut id) }) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Duration::from_nanos(time_ns));
            }
            result => result?,
        }
        // It may be gone since.
        let info = match program(id).and_then(|program| program_info(program.as_fd())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            info => info?,
        };
        if names.contains(&until_nul(&info.name).as_str()) {
            time_ns += info.run_time_ns;
        }
    }
}

/// How long this program has run, while the kernel counted.
///
/// # Errors
///
/// When the kernel cannot be asked.
pub fn run_time(program: BorrowedFd<'_>) -> io::Result<Duration> {
    Ok(Duration::from_nanos(program_info(program)?.run_time_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hook, constant_program, test_run};

    #[test]
    fn root_kernel_counts_how_long_programs_run_while_it_is_asked_to() {
        if !nix::unistd::geteuid().is_root() {
            return eprintln!("skipped: BPF programs are loaded by root only");
        }
        let program = constant_program(Hook::TcxIngress, 0).expect("load a program");
        let run = || test_run(program.as_fd(), &[0; 64], 10_000).expect("run it");
        let time_of = |names: &[&str]| run_time_of(names).expect("read the programs");
        let before = time_of(&["constant"]);
        let is_always =
            std::fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").expect("read the sysctl");
        if is_always.trim() == "0" {
            run();
            assert_eq!(time_of(&["constant"]), before, "nobody asked");
        }
        {
            let _counting = RunCounting::begin().expect("have the kernel count");
            run();
        }
        let counted = time_of(&["constant"]);
        assert!(counted > before, "{counted:?} after {before:?}");
        assert_eq!(time_of(&["no_such_program"]), Duration::ZERO);
    }
}
