//! Replacing the program of a link that another process holds, so that no frame passes by without one.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{Hook, Link};

/// Programs at one hook of an interface that are looked at.
const MAX_PROGRAMS: usize = 64;

/// Ids of the links that a process holds.
///
/// # Errors
///
/// NotFound if there is no such process, PermissionDenied for another user's without CAP_SYS_PTRACE.
pub fn links_of_process(pid: u32) -> io::Result<Vec<u32>> {
    let mut links = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // It may have been closed meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let ids = text.lines().filter_map(|line| line.strip_prefix("link_id:"));
        links.extend(ids.filter_map(|id| id.trim().parse::<u32>().ok()));
    }
    Ok(links)
}

impl Link {
    /// Puts `program` in the place of the one that one of `links` leads to at this hook of the interface with index `ifindex` of the
    /// caller's network namespace, and holds that link from now on, as well as whoever held it before. `None` if no such link
    /// is there.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_SYS_ADMIN, which opening another process's links takes.
    pub fn take_over(
        program: BorrowedFd<'_>,
        ifindex: u32,
        hook: Hook,
        links: &[u32],
    ) -> io::Result<Option<Self>> {
        let programs = programs_at(ifindex, hook)?;
        for &id in links {
            // SAFETY: takes a number.
            let fd = owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) })?;
            if programs.contains(&link_info(&fd)?.prog_id) {
                // SAFETY: both descriptors are open, and no options are given.
                done(unsafe {
                    libbpf_sys::bpf_link_update(fd.as_raw_fd(), program.as_raw_fd(), std::ptr::null())
                })?;
                return Ok(Some(Self { fd, hook }));
            }
        }
        Ok(None)
    }

    /// Whether the link still leads to this program, and not to one that has taken over.
    ///
    /// # Errors
    ///
    /// What the kernel says; none is expected.
    pub fn leads_to(&self, program: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(link_info(&self.fd)?.prog_id == program_info(program)?.id)
    }
}

/// Ids of the programs at a hook.
fn programs_at(ifindex: u32, hook: Hook) -> io::Result<Vec<u32>> {
    let id = match hook {
        Hook::TcxIngress => return programs_at_tcx(ifindex),
        Hook::XdpNative => xdp_programs(ifindex)?.drv_prog_id,
        Hook::XdpGeneric => xdp_programs(ifindex)?.skb_prog_id,
    };
    Ok(if id == 0 { Vec::new() } else { vec![id] })
}

fn programs_at_tcx(ifindex: u32) -> io::Result<Vec<u32>> {
    let mut ids = [0_u32; MAX_PROGRAMS];
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: ids.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.prog_cnt = MAX_PROGRAMS as u32;
    // SAFETY: the options say their own size, and that the array has room for as many as it has.
    done(unsafe {
        libbpf_sys::bpf_prog_query_opts(ifindex.cast_signed(), libbpf_sys::BPF_TCX_INGRESS, &raw mut options)
    })?;
    // SAFETY: both members of the union are the count, as a 32-bit number (`LIBBPF_OPTS`, libbpf 1.7 `bpf.h`).
    let count = unsafe { options.__bindgen_anon_1.prog_cnt } as usize;
    Ok(ids[..count.min(MAX_PROGRAMS)].to_vec())
}

fn xdp_programs(ifindex: u32) -> io::Result<libbpf_sys::bpf_xdp_query_opts> {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options outlive the call and say their own size.
    done(unsafe { libbpf_sys::bpf_xdp_query(ifindex.cast_signed(), 0, &raw mut options) })?;
    Ok(options)
}

fn program_info(program: BorrowedFd<'_>) -> io::Result<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes into `info`.
    done(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info)
}

fn link_info(link: &OwnedFd) -> io::Result<libbpf_sys::bpf_link_info> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes into `info`.
    done(unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info)
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    done(fd)?;
    // SAFETY: libbpf gave a descriptor that nothing else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf gives the error as a negative number.
fn done(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
}
