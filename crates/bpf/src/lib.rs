//! BPF links to interfaces, held by the process: when it ends, however it ends, the kernel detaches the program.
//! Nothing is pinned.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

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
}

impl Hook {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::XdpNative => "xdp",
            Self::XdpGeneric => "xdp-generic",
            Self::TcxIngress => "tcx",
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
    _fd: OwnedFd,
    hook: Hook,
}

impl Link {
    /// Attaches `program` to the interface with index `ifindex` of the caller's network namespace.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP or EINVAL where the kernel or driver lacks the hook, EBUSY where another program has it, ERANGE where the MTU
    /// is too large for native XDP, EPERM without CAP_NET_ADMIN and CAP_BPF, ENODEV when the interface is gone.
    pub fn attach(program: BorrowedFd<'_>, ifindex: u32, hook: Hook) -> Result<Self, AttachError> {
        let (attach_type, flags) = match hook {
            Hook::XdpNative => (libbpf_sys::BPF_XDP, XDP_FLAGS_DRV_MODE),
            Hook::XdpGeneric => (libbpf_sys::BPF_XDP, XDP_FLAGS_SKB_MODE),
            Hook::TcxIngress => (libbpf_sys::BPF_TCX_INGRESS, 0),
        };
        let options = libbpf_sys::bpf_link_create_opts {
            sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
            flags,
            ..Default::default()
        };
        // SAFETY: the options outlive the call and say their own size; the kernel only reads them.
        let fd = unsafe {
            libbpf_sys::bpf_link_create(
                program.as_raw_fd(),
                ifindex.cast_signed(),
                attach_type,
                &raw const options,
            )
        };
        if fd < 0 {
            return Err(AttachError { hook, ifindex, error: io::Error::from_raw_os_error(-fd) });
        }
        // SAFETY: bpf_link_create gave a descriptor that nothing else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { _fd: fd, hook })
    }

    /// Where the program is attached.
    pub fn hook(&self) -> Hook {
        self.hook
    }
}

/// How many programs are attached at tcx ingress of the interface with index `ifindex` of the caller's namespace.
///
/// # Errors
///
/// EINVAL where the kernel has no tcx, ENODEV when the interface is gone.
pub fn count_tcx_ingress(ifindex: u32) -> io::Result<u32> {
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options outlive the call and say their own size; without an array the kernel only writes the count.
    let result = unsafe {
        libbpf_sys::bpf_prog_query_opts(ifindex.cast_signed(), libbpf_sys::BPF_TCX_INGRESS, &raw mut options)
    };
    if result < 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    // SAFETY: both members of the union are the count, as a 32-bit number (`LIBBPF_OPTS`, libbpf 1.7 `bpf.h`).
    Ok(unsafe { options.__bindgen_anon_1.prog_cnt })
}
