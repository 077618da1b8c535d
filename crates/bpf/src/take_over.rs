//! Replacing the programs of links that another process holds, so that no frame passes by without
//! one.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use crate::sys::{done, owned, program, program_info, until_nul};
use crate::{Hook, Link};

/// Programs at one hook of an interface, and maps of a program, that are looked at.
const MOST: usize = 64;

/// A link to an interface that another process holds.
#[derive(Debug)]
pub struct HeldLink {
    fd: OwnedFd,
    id: u32,
    is_xdp: bool,
    /// 0 if the interface is gone.
    ifindex: u32,
    program_id: u32,
}

/// What a link led to before it was taken over.
#[derive(Debug)]
pub struct Before {
    link: OwnedFd,
    link_id: u32,
    program: OwnedFd,
}

/// Ids of all links that a process holds.
///
/// # Errors
///
/// NotFound if there is no such process, PermissionDenied for another user's without
/// CAP_SYS_PTRACE.
pub fn link_ids_of_process(pid: u32) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // It may have been closed meanwhile.
        let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
        let lines = text.lines().filter_map(|line| line.strip_prefix("link_id:"));
        ids.extend(lines.filter_map(|id| id.trim().parse::<u32>().ok()));
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The links to interfaces that a process holds; its others are not looked at.
///
/// # Errors
///
/// As [`link_ids_of_process`]; EPERM without CAP_SYS_ADMIN, which opening another process's links
/// takes.
pub fn links_of_process(pid: u32) -> io::Result<Vec<HeldLink>> {
    let links: io::Result<Vec<Option<HeldLink>>> = link_ids_of_process(pid)?.into_iter().map(open).collect();
    Ok(links?.into_iter().flatten().collect())
}

/// `None` for a link that is gone, or to something else.
fn open(id: u32) -> io::Result<Option<HeldLink>> {
    // SAFETY: takes a number.
    let fd = match owned(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) }) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        fd => fd?,
    };
    let info = link_info(&fd)?;
    Ok(interface_of(&info).map(|(is_xdp, ifindex)| HeldLink {
        fd,
        id,
        is_xdp,
        ifindex,
        program_id: info.prog_id,
    }))
}

/// Whether a link is to XDP, and the index of its interface, 0 if that is gone; `None` for links to
/// something else.
fn interface_of(info: &libbpf_sys::bpf_link_info) -> Option<(bool, u32)> {
    // SAFETY: the type says which member of the union the kernel has written.
    unsafe {
        match info.type_ {
            libbpf_sys::BPF_LINK_TYPE_XDP => Some((true, info.__bindgen_anon_1.xdp.ifindex)),
            libbpf_sys::BPF_LINK_TYPE_TCX => Some((false, info.__bindgen_anon_1.tcx.ifindex)),
            _ => None,
        }
    }
}

impl HeldLink {
    /// Its number, as long as it lives.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Number of the program that it led to when it was found.
    pub fn program_id(&self) -> u32 {
        self.program_id
    }

    /// Whether it takes XDP programs; otherwise those of tc.
    pub fn is_xdp(&self) -> bool {
        self.is_xdp
    }

    /// Name of the program that it leads to; see [`crate::program_name`].
    ///
    /// # Errors
    ///
    /// EPERM without CAP_SYS_ADMIN.
    pub fn program_name(&self) -> io::Result<String> {
        crate::program_name(self.program_id)
    }

    /// Maps of the program that it leads to, by their names, which the kernel cuts at 15
    /// characters.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_SYS_ADMIN.
    pub fn maps(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        map_ids_of(self.program_id)?.into_iter().map(open_map).collect()
    }

    /// Whether its interface is in the caller's network namespace.
    pub fn is_here(&self) -> bool {
        let hooks = [Hook::XdpNative, Hook::XdpGeneric, Hook::TcxIngress];
        hooks.into_iter().any(|hook| self.is_at(self.ifindex, hook).unwrap_or(false))
    }

    fn is_at(&self, ifindex: u32, hook: Hook) -> io::Result<bool> {
        let is_of_hook = self.is_xdp == (hook != Hook::TcxIngress);
        // By the program, too: the same number may be an interface of another namespace.
        Ok(is_of_hook && self.ifindex == ifindex && programs_at(ifindex, hook)?.contains(&self.program_id))
    }

    /// Has it lead to `program`.
    ///
    /// # Errors
    ///
    /// EINVAL for a program of another kind, ENOLINK when the interface is gone.
    pub fn update(&self, program: BorrowedFd<'_>) -> io::Result<Before> {
        let before =
            Before { link: self.fd.try_clone()?, link_id: self.id, program: self::program(self.program_id)? };
        update(&self.fd, program)?;
        Ok(before)
    }
}

fn is_no_interface(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::ENODEV | Errno::ENXIO))
}

fn map_ids_of(program_id: u32) -> io::Result<Vec<u32>> {
    let program = program(program_id)?;
    let mut ids = [0_u32; MOST];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: MOST as u32,
        map_ids: ids.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes into `info`, and as many ids as the array has
    // room for.
    done(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) })?;
    let count = (info.nr_map_ids as usize).min(MOST);
    Ok(ids[..count].to_vec())
}

impl Before {
    /// Number of the link.
    pub fn link_id(&self) -> u32 {
        self.link_id
    }

    /// Has the link lead to what it did.
    ///
    /// # Errors
    ///
    /// ENOLINK when the interface is gone.
    pub fn restore(&self) -> io::Result<()> {
        update(&self.link, self.program.as_fd())
    }
}

impl Link {
    /// Puts `program` in the place of the one that one of `links` leads to at this hook of the
    /// interface with index `ifindex` of the caller's network namespace, and holds that link from
    /// now on, as well as whoever held it before. `None` if no such link is there.
    ///
    /// # Errors
    ///
    /// What the kernel says; ENODEV when the interface is gone.
    pub fn take_over(
        program: BorrowedFd<'_>,
        ifindex: u32,
        hook: Hook,
        links: &[HeldLink],
    ) -> io::Result<Option<(Self, Before)>> {
        for held in links {
            if held.is_at(ifindex, hook)? {
                let before = held.update(program)?;
                return Ok(Some((Self { fd: held.fd.try_clone()?, hook }, before)));
            }
        }
        Ok(None)
    }

    /// Has it lead to `program`, whatever it leads to now.
    ///
    /// # Errors
    ///
    /// EINVAL for a program of another kind, ENOLINK when the interface is gone.
    pub fn update(&self, program: BorrowedFd<'_>) -> io::Result<()> {
        update(&self.fd, program)
    }

    /// Ids of the maps of the program that it leads to now, by their names, which the kernel cuts
    /// at 15 characters.
    ///
    /// # Errors
    ///
    /// EPERM without CAP_SYS_ADMIN.
    pub fn map_ids(&self) -> io::Result<Vec<(String, u32)>> {
        let maps = map_ids_of(link_info(&self.fd)?.prog_id)?;
        maps.into_iter().map(|id| Ok((open_map(id)?.0, id))).collect()
    }

    /// Whether its interface is in the caller's network namespace, with this index: links go along
    /// with an interface that moves.
    ///
    /// # Errors
    ///
    /// What the kernel says, as when no file descriptor is left: then it is not known.
    pub fn is_at(&self, ifindex: u32) -> io::Result<bool> {
        let info = link_info(&self.fd)?;
        if interface_of(&info).is_none_or(|(_, index)| index != ifindex) {
            return Ok(false);
        }
        if self.hook == Hook::TcxIngress {
            let is_there = match programs_at(ifindex, self.hook) {
                Err(error) if is_no_interface(&error) => false,
                programs => programs?.contains(&info.prog_id),
            };
            // Another guard may have put its program there between the two looks.
            return match is_there || link_info(&self.fd)?.prog_id == info.prog_id {
                true => Ok(is_there),
                false => self.is_at(ifindex),
            };
        }
        // The kernel tells of XDP only by a list of all interfaces, too long to be asked for each
        // of many. So another interface that has come here with the same number between two looks
        // is taken for the one that went.
        has_name(ifindex)
    }

    /// Numbers of the programs at tcx that see each frame before its own, in their order. None for
    /// a link in XDP.
    ///
    /// # Errors
    ///
    /// ENODEV when the interface is gone.
    pub fn programs_before(&self) -> io::Result<Vec<u32>> {
        let info = link_info(&self.fd)?;
        let Some((false, ifindex)) = interface_of(&info) else { return Ok(Vec::new()) };
        let all = at_tcx(ifindex)?;
        // An interface of another namespace may have the same number.
        let place = all.iter().position(|at| at.link_id == info.id).unwrap_or_default();
        Ok(all[..place].iter().map(|at| at.program_id).collect())
    }

    /// Takes its program off the interface, wherever that is now; the link leads nowhere from then
    /// on.
    ///
    /// # Errors
    ///
    /// ENOLINK if it leads nowhere already.
    pub fn detach(&self) -> io::Result<()> {
        // SAFETY: the descriptor is open.
        done(unsafe { libbpf_sys::bpf_link_detach(self.fd.as_raw_fd()) })
    }

    /// Its number, as long as it lives.
    ///
    /// # Errors
    ///
    /// What the kernel says; none is expected.
    pub fn id(&self) -> io::Result<u32> {
        Ok(link_info(&self.fd)?.id)
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

/// Whether an interface of the caller's network namespace has this index. Not by nix 0.31's
/// `if_indextoname()`, which takes the null that says no for a name; that can be used again once it
/// is mended.
fn has_name(ifindex: u32) -> io::Result<bool> {
    let mut name = [0; nix::libc::IF_NAMESIZE];
    // SAFETY: at most so many bytes are written.
    if !unsafe { nix::libc::if_indextoname(ifindex, name.as_mut_ptr()) }.is_null() {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if is_no_interface(&error) { Ok(false) } else { Err(error) }
}

fn update(link: &OwnedFd, program: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open, and no options are given.
    done(unsafe { libbpf_sys::bpf_link_update(link.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) })
}

fn open_map(id: u32) -> io::Result<(String, OwnedFd)> {
    // SAFETY: takes a number.
    let fd = owned(unsafe { libbpf_sys::bpf_map_get_fd_by_id(id) })?;
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes into `info`.
    done(unsafe { libbpf_sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok((until_nul(&info.name), fd))
}

/// Ids of the programs at a hook.
fn programs_at(ifindex: u32, hook: Hook) -> io::Result<Vec<u32>> {
    let id = match hook {
        Hook::TcxIngress => {
            return Ok(at_tcx(ifindex)?.into_iter().map(|at| at.program_id).collect());
        }
        // Nothing that is taken over hangs there.
        Hook::TcxEgress => return Ok(Vec::new()),
        Hook::XdpNative => xdp_programs(ifindex)?.drv_prog_id,
        Hook::XdpGeneric => xdp_programs(ifindex)?.skb_prog_id,
    };
    Ok(if id == 0 { Vec::new() } else { vec![id] })
}

/// A program at tcx ingress, and the link that holds it there, 0 where none does.
#[derive(Debug, Clone, Copy)]
pub struct AtTcx {
    pub program_id: u32,
    pub link_id: u32,
}

/// In their order.
pub fn at_tcx(ifindex: u32) -> io::Result<Vec<AtTcx>> {
    let (mut programs, mut links) = ([0_u32; MOST], [0_u32; MOST]);
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        prog_ids: programs.as_mut_ptr(),
        link_ids: links.as_mut_ptr(),
        ..Default::default()
    };
    options.__bindgen_anon_1.prog_cnt = MOST as u32;
    // SAFETY: the options say their own size, and that both arrays have room for as many as they
    // have.
    done(unsafe {
        libbpf_sys::bpf_prog_query_opts(ifindex.cast_signed(), libbpf_sys::BPF_TCX_INGRESS, &raw mut options)
    })?;
    // SAFETY: both members of the union are the count, as a 32-bit number (`LIBBPF_OPTS`, libbpf
    // 1.7 `bpf.h`).
    let count = unsafe { options.__bindgen_anon_1.prog_cnt } as usize;
    let both = programs.into_iter().zip(links).take(count);
    Ok(both.map(|(program_id, link_id)| AtTcx { program_id, link_id }).collect())
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

fn link_info(link: &OwnedFd) -> io::Result<libbpf_sys::bpf_link_info> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes into `info`.
    done(unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut size) })?;
    Ok(info)
}
