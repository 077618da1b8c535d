//! What libbpf's calls give, as Rust has it.

use std::ffi::{CStr, c_char};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Of a call that gives nothing, or a descriptor: libbpf gives an error as a negative number.
pub fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}

/// Of a call that gives a descriptor.
pub fn owned(fd: i32) -> io::Result<OwnedFd> {
    done(fd)?;
    // SAFETY: libbpf gave a descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The program with this number.
pub fn program(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: takes a number.
    owned(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })
}

/// A name as the kernel gives it.
pub fn until_nul(name: &[c_char]) -> String {
    let name: Vec<u8> = name.iter().map(|&byte| byte.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned()
}

/// What the kernel says of a program.
pub fn program_info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes into `info`; all its pointers are null, so it
    // follows none.
    done(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info)
}
