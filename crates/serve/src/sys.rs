//! System calls that neither the standard library nor nix gives in the form needed here.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// listen(2). nix refuses a backlog above its compiled-in `SOMAXCONN`; the kernel's own limit is a
/// sysctl.
pub(crate) fn listen(socket: &OwnedFd, backlog: u32) -> nix::Result<()> {
    let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
    // SAFETY: the descriptor is open, as we borrow its owner; listen takes no pointers.
    Errno::result(unsafe { libc::listen(socket.as_raw_fd(), backlog) }).map(drop)
}

/// The backlog in force, connections. For a listener, `tcpi_sacked` of TCP_INFO is
/// `sk_max_ack_backlog`.
pub(crate) fn backlog(listener: &OwnedFd) -> nix::Result<u32> {
    // SAFETY: tcp_info is plain numbers, for which zeros are a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = libc::socklen_t::try_from(size_of_val(&info)).expect("some 200 bytes");
    // SAFETY: the kernel writes at most `len` bytes to `info`, which has that size.
    let result = unsafe {
        libc::getsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    Errno::result(result).map(|_| info.tcpi_sacked)
}

/// accept4(2), non-blocking and close-on-exec in the same call, without asking for the peer's
/// address.
pub(crate) fn accept(listener: &OwnedFd) -> nix::Result<OwnedFd> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: null pointers are how accept4 is told that the address is not wanted.
    let socket = Errno::result(unsafe {
        libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)
    })?;
    // SAFETY: accept4 has just made this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// recv(2); 0 is the end of the stream.
pub(crate) fn receive(socket: BorrowedFd, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are those of a live, exclusively borrowed slice.
    let received = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// send(2) without SIGPIPE: a client that has gone is an error to count, not a reason to die.
pub(crate) fn send(socket: BorrowedFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: pointer and length are those of a live slice.
    let sent =
        unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Raises the soft limit of open descriptors of this process to the hard one, and returns that.
///
/// A server holds one descriptor for each connection; the usual soft limit is 1024.
pub fn raise_descriptor_limit() -> nix::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}
