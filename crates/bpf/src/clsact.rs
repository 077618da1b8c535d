//! Programs as filters of clsact, where there is no tcx (before Linux 6.6).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys::done;
use crate::{AttachError, Hook};

/// Of our filters: a new one takes the place of one that a killed process has left.
const HANDLE: u32 = 0x7467;
const PRIORITY: u32 = 0x7467;

/// Programs at ingress and egress of an interface, until this is dropped. They outlive a process
/// that is killed, and need a lease for that.
#[derive(Debug)]
pub struct Clsact {
    ifindex: u32,
    attached: Vec<Hook>,
    is_ours: bool,
}

impl Clsact {
    /// Attaches at [`Hook::TcxIngress`] and [`Hook::TcxEgress`], in this order.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_NET_ADMIN, ENOENT where the kernel has no `sch_ingress` or `cls_bpf`.
    pub fn attach(ifindex: u32, programs: [(BorrowedFd<'_>, Hook); 2]) -> Result<Self, AttachError> {
        let failed = |hook| move |error| AttachError { hook, ifindex, error };
        let mut both = hook(ifindex, libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS);
        // SAFETY: the hook says its own size and outlives the call.
        let is_ours = match done(unsafe { libbpf_sys::bpf_tc_hook_create(&raw mut both) }) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
            made => made.map(|()| true).map_err(failed(programs[0].1))?,
        };
        let mut clsact = Self { ifindex, attached: Vec::new(), is_ours };
        for (program, at) in programs {
            let mut options = options();
            options.prog_fd = program.as_raw_fd();
            options.flags = libbpf_sys::BPF_TC_F_REPLACE;
            let hook = hook(ifindex, point(at));
            // SAFETY: both say their own size and outlive the call.
            done(unsafe { libbpf_sys::bpf_tc_attach(&raw const hook, &raw mut options) })
                .map_err(failed(at))?;
            clsact.attached.push(at);
        }
        Ok(clsact)
    }
}

impl Drop for Clsact {
    fn drop(&mut self) {
        // Where the interface is gone the programs are off it as well.
        for at in &self.attached {
            let (hook, options) = (hook(self.ifindex, point(*at)), options());
            // SAFETY: both say their own size and outlive the call.
            let _ = done(unsafe { libbpf_sys::bpf_tc_detach(&raw const hook, &raw const options) });
        }
        if self.is_ours {
            let mut both = hook(self.ifindex, libbpf_sys::BPF_TC_INGRESS | libbpf_sys::BPF_TC_EGRESS);
            // SAFETY: the hook says its own size and outlives the call.
            let _ = done(unsafe { libbpf_sys::bpf_tc_hook_destroy(&raw mut both) });
        }
    }
}

fn point(hook: Hook) -> libbpf_sys::bpf_tc_attach_point {
    if hook == Hook::TcxEgress { libbpf_sys::BPF_TC_EGRESS } else { libbpf_sys::BPF_TC_INGRESS }
}

fn hook(ifindex: u32, attach_point: libbpf_sys::bpf_tc_attach_point) -> libbpf_sys::bpf_tc_hook {
    libbpf_sys::bpf_tc_hook {
        sz: size_of::<libbpf_sys::bpf_tc_hook>() as libbpf_sys::size_t,
        ifindex: ifindex.cast_signed(),
        attach_point,
        ..Default::default()
    }
}

fn options() -> libbpf_sys::bpf_tc_opts {
    libbpf_sys::bpf_tc_opts {
        sz: size_of::<libbpf_sys::bpf_tc_opts>() as libbpf_sys::size_t,
        handle: HANDLE,
        priority: PRIORITY,
        ..Default::default()
    }
}
