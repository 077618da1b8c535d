//! Programs of two instructions, to see whether the kernel takes their kind.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use libbpf_sys::{bpf_attach_type, bpf_func_id, bpf_prog_load_opts, bpf_prog_type};
use nix::errno::Errno;

use crate::privilege;
use crate::probe::Answer;

pub(crate) const LOOKUP: bpf_func_id = libbpf_sys::BPF_FUNC_skc_lookup_tcp;
pub(crate) const COOKIE: bpf_func_id = libbpf_sys::BPF_FUNC_tcp_gen_syncookie;
pub(crate) const RAW_COOKIE: bpf_func_id = libbpf_sys::BPF_FUNC_tcp_raw_gen_syncookie_ipv4;

/// Programs on packets.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Tc,
    Xdp,
}

/// Whether programs of this kind can call a helper.
pub(crate) fn helper(helper: bpf_func_id, kind: Kind) -> Answer {
    if let Err(why) = privilege::to_load() {
        return Answer::Unknown(why);
    }
    let kind = match kind {
        Kind::Tc => libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
        Kind::Xdp => libbpf_sys::BPF_PROG_TYPE_XDP,
    };
    // SAFETY: no options are given, and null is how to say so.
    match unsafe { libbpf_sys::libbpf_probe_bpf_helper(kind, helper, ptr::null()) } {
        1 => Answer::Yes,
        0 => Answer::No("the verifier does not know the helper there".to_owned()),
        error => Answer::Unknown(reason(io::Error::from_raw_os_error(-error))),
    }
}

/// Whether the kernel takes a program on `inet_conn_request`.
pub(crate) fn lsm() -> Answer {
    answer(load(libbpf_sys::BPF_PROG_TYPE_LSM, libbpf_sys::BPF_LSM_MAC, Some(c"inet_conn_request")))
}

/// Whether the kernel takes a program on setsockopt(2).
pub(crate) fn sockopt() -> Answer {
    answer(load(libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCKOPT, libbpf_sys::BPF_CGROUP_SETSOCKOPT, None))
}

/// Whether the kernel takes a program that it tells of what happens to sockets.
pub(crate) fn sockets() -> Answer {
    answer(load(libbpf_sys::BPF_PROG_TYPE_SOCK_OPS, libbpf_sys::BPF_CGROUP_SOCK_OPS, None))
}

/// Whether the kernel attaches a program to the start of a function. The function is one that the
/// kernel has for such tests, and nobody calls it.
pub(crate) fn fentry() -> Answer {
    let function = Some(c"bpf_fentry_test1");
    answer(load(libbpf_sys::BPF_PROG_TYPE_TRACING, libbpf_sys::BPF_TRACE_FENTRY, function).and_then(attach))
}

fn answer(result: io::Result<OwnedFd>) -> Answer {
    match privilege::to_load() {
        Err(why) => Answer::Unknown(why),
        Ok(()) => Answer::of(result.map(drop).map_err(reason)),
    }
}

/// What the kernel said, for people.
pub(crate) fn reason(error: io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM) => {
            "not permitted, although we have the capabilities: a sandbox or security module forbids it"
                .to_owned()
        }
        Some(errno) => errno.desc().to_lowercase(),
        None => error.to_string(),
    }
}

/// Loads `return 0`, for a kernel function if one is named. 1 where 0 would not do: setsockopt(2)
/// is refused at 0.
fn load(kind: bpf_prog_type, attach: bpf_attach_type, function: Option<&CStr>) -> io::Result<OwnedFd> {
    let value = u64::from(kind == libbpf_sys::BPF_PROG_TYPE_CGROUP_SOCKOPT);
    let instructions = [
        value << 32 | 0xb7, // r0 = value
        0x95,               // exit
    ];
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as libbpf_sys::size_t,
        expected_attach_type: attach,
        ..Default::default()
    };
    if let Some(function) = function {
        // SAFETY: the name is a C string that outlives the call.
        let id = unsafe { libbpf_sys::libbpf_find_vmlinux_btf_id(function.as_ptr(), attach) };
        options.attach_btf_id = result(id)?.cast_unsigned();
    }
    // SAFETY: name and license are C strings, the instructions are as many as said, the options say
    // their own size.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"probe".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast(),
            instructions.len() as u64,
            &raw mut options,
        )
    };
    // SAFETY: bpf_prog_load gave a descriptor that nothing else owns.
    result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a tracing program where it was loaded for.
fn attach(program: OwnedFd) -> io::Result<OwnedFd> {
    // SAFETY: a tracing program needs no name.
    let fd = unsafe { libbpf_sys::bpf_raw_tracepoint_open(ptr::null(), program.as_fd().as_raw_fd()) };
    // SAFETY: the call gave a descriptor that nothing else owns.
    result(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf gives errors as negative numbers.
fn result(value: i32) -> io::Result<i32> {
    if value < 0 { Err(io::Error::from_raw_os_error(-value)) } else { Ok(value) }
}
