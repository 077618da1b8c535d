//! BPF links to interfaces and control groups that the process holds, and test runs of programs.
//!
//! When the process ends, however it ends, the kernel detaches its programs. Only what a qdisc
//! needs is pinned, because a qdisc outlives its process. Test runs ask a program something, or
//! measure it.
//!
//! What it is not: a loader. A program is loaded by the crate that has its skeleton. This is a
//! crate of its own because guard, xsk, lab and tests share links. It calls `bpf_link_create` for
//! XDP and tcx alike, because libbpf-rs' own XDP link cannot demand native mode.

mod capability;
pub mod cgroup;
mod clsact;
mod run_time;
mod sys;
mod take_over;

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

pub use capability::{Capabilities, Capability};
pub use clsact::Clsact;
pub use run_time::{RunCounting, run_time, run_time_of};
use sys::{done, owned, program_info, until_nul};
use take_over::at_tcx;
pub use take_over::{Before, HeldLink, link_ids_of_process, links_of_process};

/// `include/uapi/linux/if_link.h`; neither libc nor libbpf-sys has them.
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// Where a program is attached to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// The driver's own XDP hook; fails where the driver has none.
    XdpNative,
    /// XDP after the kernel has made a socket buffer: works on every driver, and costs more.
    XdpGeneric,
    /// tcx ingress, Linux 6.6 and newer.
    TcxIngress,
    /// tcx egress, as new.
    TcxEgress,
}

impl Hook {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::XdpNative => "xdp",
            Self::XdpGeneric => "xdp-generic",
            Self::TcxIngress => "tcx",
            Self::TcxEgress => "tcx-egress",
        }
    }
}

/// A program could not be attached.
#[derive(Debug, thiserror::Error)]
#[error("attach at {} to interface {ifindex}: {error}", hook.name())]
pub struct AttachError {
    /// Where it was to go.
    pub hook: Hook,
    /// Interface index in the caller's namespace.
    pub ifindex: u32,
    /// What the kernel said.
    pub error: io::Error,
}

/// A program attached to an interface until this is dropped.
#[derive(Debug)]
pub struct Link {
    fd: OwnedFd,
    hook: Hook,
}

impl Link {
    /// Attaches `program` to the interface with index `ifindex` of the caller's network namespace.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP or EINVAL where the kernel or driver lacks the hook, EBUSY where another program
    /// has it, ERANGE where the MTU is too large for native XDP, EPERM without CAP_NET_ADMIN and
    /// CAP_BPF, ENODEV when the interface is gone.
    pub fn attach(program: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> Result<Self, AttachError> {
        Self::attach_with(program, ifindex, hook, 0)
    }

    /// As [`Link::attach`]; at tcx before every program that is there now, which has no say in it.
    ///
    /// # Errors
    ///
    /// As [`Link::attach`].
    pub fn attach_first(program: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> Result<Self, AttachError> {
        Self::attach_with(program, ifindex, hook, libbpf_sys::BPF_F_BEFORE)
    }

    /// `tcx_flags`: where among the programs at tcx.
    fn attach_with(
        program: BorrowedFd<'_>,
        ifindex: u32,
        hook: Hook,
        tcx_flags: u32,
    ) -> Result<Self, AttachError> {
        let (attach_type, flags) = match hook {
            Hook::XdpNative => (libbpf_sys::BPF_XDP, XDP_FLAGS_DRV_MODE),
            Hook::XdpGeneric => (libbpf_sys::BPF_XDP, XDP_FLAGS_SKB_MODE),
            Hook::TcxIngress => (libbpf_sys::BPF_TCX_INGRESS, tcx_flags),
            Hook::TcxEgress => (libbpf_sys::BPF_TCX_EGRESS, tcx_flags),
        };
        let link = create_link(program, ifindex.cast_signed(), attach_type, flags);
        link.map(|fd| Self { fd, hook }).map_err(|error| AttachError { hook, ifindex, error })
    }

    /// Attaches a native XDP program that passes every frame: what XDP_TX at one end of a veth
    /// needs at the other.
    pub fn pass(ifindex: u32) -> Result<Self, AttachError> {
        const XDP_PASS: i32 = 2;
        let hook = Hook::XdpNative;
        let program =
            constant_program(hook, XDP_PASS).map_err(|error| AttachError { hook, ifindex, error })?;
        Self::attach(program.as_fd(), ifindex, hook)
    }

    /// Where the program is attached.
    pub fn hook(&self) -> Hook {
        self.hook
    }
}

/// A link that nobody takes over: its program is off the interface when this is dropped. A [`Link`]
/// lives on while somebody else has it open: a guard that has taken it over, or only a child that
/// another thread has forked and that has not executed anything yet.
#[derive(Debug)]
pub struct SoleLink(Link);

impl SoleLink {
    /// As [`Link::attach`].
    ///
    /// # Errors
    ///
    /// As [`Link::attach`].
    pub fn attach(program: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> Result<Self, AttachError> {
        Link::attach(program, ifindex, hook).map(Self)
    }

    /// Where the program is attached.
    pub fn hook(&self) -> Hook {
        self.0.hook()
    }
}

impl From<Link> for OwnedFd {
    fn from(link: Link) -> Self {
        link.fd
    }
}

impl Drop for SoleLink {
    fn drop(&mut self) {
        // Where the interface is gone the program is off it as well.
        let _ = self.0.detach();
    }
}

/// Attaches an LSM program to the hook that it was loaded for, of the whole host, until the
/// descriptor is dropped.
///
/// # Errors
///
/// EPERM without CAP_BPF and CAP_MAC_ADMIN or CAP_SYS_ADMIN.
pub fn attach_lsm(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    create_link(program, 0, libbpf_sys::BPF_LSM_MAC, 0)
}

/// Whether LSM programs are ever called here: they load and attach without that, too. An error says
/// why not, or that it cannot be known.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] if `bpf` is not among the active modules; otherwise what reading
/// their list gave.
pub fn lsm_is_active() -> io::Result<()> {
    const ACTIVE: &str = "/sys/kernel/security/lsm";
    let active = std::fs::read_to_string(ACTIVE)
        .map_err(|error| io::Error::new(error.kind(), format!("read {ACTIVE}: {error}")))?;
    if active.trim().split(',').any(|module| module == "bpf") {
        return Ok(());
    }
    let why = format!("bpf is not among the active modules ({}); add it to lsm= at boot", active.trim());
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

fn create_link(
    program: BorrowedFd<'_>,
    target: i32,
    attach_type: libbpf_sys::bpf_attach_type,
    flags: u32,
) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the options outlive the call and say their own size; the kernel only reads them.
    owned(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, attach_type, &raw const options)
    })
}

/// Pins a link in the BPF file system: it stays until that name is removed, whoever ends.
///
/// # Errors
///
/// EEXIST where the name is taken, EPERM without CAP_BPF, EINVAL where no BPF file system is.
pub fn pin(link: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the descriptor is open, and the path a C string that outlives the call.
    done(unsafe { libbpf_sys::bpf_obj_pin(link.as_raw_fd(), path.as_ptr()) })
}

/// Opens a reading of an iterator's link, in the network namespace of the calling thread.
///
/// # Errors
///
/// EPERM without CAP_BPF and CAP_PERFMON.
pub fn open_iterator(link: BorrowedFd<'_>) -> io::Result<File> {
    // SAFETY: only numbers are passed.
    Ok(owned(unsafe { libbpf_sys::bpf_iter_create(link.as_raw_fd()) })?.into())
}

/// Whether the link with this number is there, whoever holds it; needs CAP_SYS_ADMIN.
pub fn link_exists(id: u32) -> bool {
    // SAFETY: only a number is passed.
    owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) }).is_ok()
}

/// How many programs are attached at tcx ingress of the interface with index `ifindex` of the
/// caller's namespace.
///
/// # Errors
///
/// EINVAL where the kernel has no tcx, ENODEV when the interface is gone.
pub fn count_tcx_ingress(ifindex: u32) -> io::Result<u32> {
    Ok(at_tcx(ifindex)?.len() as u32)
}

/// Names of the programs at tcx ingress of the interface with index `ifindex` of the caller's
/// namespace, in their order; see [`program_name`].
///
/// # Errors
///
/// As [`count_tcx_ingress`] and [`program_name`].
pub fn names_at_tcx_ingress(ifindex: u32) -> io::Result<Vec<String>> {
    at_tcx(ifindex)?.into_iter().map(|at| program_name(at.program_id)).collect()
}

/// Number of a program, as long as it lives.
///
/// # Errors
///
/// What the kernel says; none is expected.
pub fn program_id(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(program_info(program)?.id)
}

/// Name of the program with this number, which the kernel cuts at 15 characters.
///
/// # Errors
///
/// EPERM without CAP_SYS_ADMIN, ENOENT if it is gone.
pub fn program_name(id: u32) -> io::Result<String> {
    Ok(until_nul(&program_info(sys::program(id)?.as_fd())?.name))
}

/// Loads a program that only returns `value`: what a hook costs by itself, or a drop without a
/// thought.
///
/// # Errors
///
/// EPERM without CAP_BPF and CAP_NET_ADMIN.
pub fn constant_program(hook: Hook, value: i32) -> io::Result<OwnedFd> {
    let instructions = [
        u64::from(value.cast_unsigned()) << 32 | 0xb7, // r0 = value
        0x95,                                          // exit
    ];
    program(hook, c"constant", &instructions)
}

/// Loads a program of these instructions, as `struct bpf_insn` of `include/uapi/linux/bpf.h` has
/// them.
///
/// # Errors
///
/// EPERM without CAP_BPF and CAP_NET_ADMIN, EINVAL or EACCES for what the verifier refuses.
pub fn program(hook: Hook, name: &CStr, instructions: &[u64]) -> io::Result<OwnedFd> {
    let kind = match hook {
        Hook::XdpNative | Hook::XdpGeneric => libbpf_sys::BPF_PROG_TYPE_XDP,
        Hook::TcxIngress | Hook::TcxEgress => libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
    };
    // SAFETY: name and license are C strings, the instructions are as many as said, and no options
    // are given.
    owned(unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            name.as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as u64,
            std::ptr::null_mut(),
        )
    })
}

/// How many instructions the verifier went through to accept a loaded program, all paths together
/// (Linux 5.16; 0 before).
///
/// # Errors
///
/// EPERM without CAP_SYS_ADMIN or CAP_BPF.
pub fn verified_instructions(program: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(program_info(program)?.verified_insns)
}

/// The calling thread's network namespace as programs know it that see a socket (`SO_NETNS_COOKIE`,
/// Linux 5.14).
///
/// # Errors
///
/// ENOPROTOOPT before Linux 5.14, EMFILE without a descriptor left.
pub fn netns_cookie() -> io::Result<u64> {
    /// `include/uapi/asm-generic/socket.h`.
    const SO_NETNS_COOKIE: i32 = 71;
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    let (mut cookie, mut size) = (0_u64, size_of::<u64>() as libc::socklen_t);
    // SAFETY: the kernel writes at most `size` bytes into the number.
    let result = unsafe {
        let value = (&raw mut cookie).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, SO_NETNS_COOKIE, value, &raw mut size)
    };
    if result == 0 { Ok(cookie) } else { Err(io::Error::last_os_error()) }
}

/// Runs a tc or XDP program `repeat` times on a frame, in the calling thread's network namespace
/// and as if it came in by its loopback, and gives the mean time of a run. From the second run on
/// the program gets what it made of the frame.
///
/// # Errors
///
/// EINVAL for a frame shorter than an Ethernet header; EPERM without CAP_BPF and CAP_NET_ADMIN.
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> io::Result<Duration> {
    run(program, frame, repeat, None)
}

/// Runs a tc program once on a frame as if it came in by an interface of the calling thread's
/// network namespace.
///
/// # Errors
///
/// As [`test_run`], and ENODEV or EINVAL where there is no such interface.
pub fn run_at(program: BorrowedFd<'_>, frame: &[u8], ifindex: u32) -> io::Result<()> {
    let mut context = Context::default();
    context[IFINDEX] = ifindex;
    run(program, frame, 1, Some(&context)).map(drop)
}

/// The first fields of `struct __sk_buff` (`include/uapi/linux/bpf.h`), up to the interface.
type Context = [u32; IFINDEX + 1];
const IFINDEX: usize = 10;

fn run(
    program: BorrowedFd<'_>,
    frame: &[u8],
    repeat: u32,
    context: Option<&Context>,
) -> io::Result<Duration> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: repeat.cast_signed(),
        ctx_in: context.map_or(std::ptr::null(), |context| context.as_ptr().cast()),
        ctx_size_in: context.map_or(0, |context| size_of_val(context) as u32),
        ..Default::default()
    };
    // SAFETY: the options say their own size, and they, the frame and the context outlive the call;
    // nothing is written back but to the options.
    done(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok(Duration::from_nanos(options.duration.into()))
}
