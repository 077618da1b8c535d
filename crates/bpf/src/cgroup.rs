//! Programs for all processes of the host, or of a part of it: they hang at a control group
//! (version 2).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::process::{MountInfo, Process};
use procfs::{ProcError, ProcResult};

use crate::{create_link, sys};

/// Which calls of the processes of a control group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hook {
    /// setsockopt(2), before the kernel's own.
    SetSockopt,
    /// getsockopt(2), after the kernel's own.
    GetSockopt,
    /// What happens to a TCP socket, whoever made it happen: the end of a handshake, segments that
    /// leave, changes of state.
    SocketOps,
}

/// The kernel's number for the root of version 2. A control group namespace shows its own root as
/// `/`, and the whole hierarchy as `/..`; the number tells them apart.
const ROOT_INODE: u64 = 1;

/// Programs cannot be attached to the root of the control groups; `what` is what they are for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody knows where the hierarchy is.
    #[error("read our mounts: {0}")]
    Mounts(ProcError),
    /// The whole hierarchy is not to be seen here.
    #[error(
        "{what}: no cgroup2 is mounted here; under ip netns exec, which hides it, use --netns NAME instead, outside; else mount -t \
         cgroup2 none /sys/fs/cgroup"
    )]
    Unmounted {
        /// As in [`root`].
        what: String,
    },
    /// Its root cannot be opened.
    #[error("open {} for {what}: {error}", path.display())]
    Open {
        /// As in [`root`].
        what: String,
        /// The root.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// A program was refused.
    #[error("attach {what} to {}: {error}", path.display())]
    Attach {
        /// As in [`root`].
        what: String,
        /// The root.
        path: PathBuf,
        /// EINVAL for a folder of version 1, EPERM without CAP_BPF and CAP_NET_ADMIN.
        error: io::Error,
    },
}

/// Attaches programs to the whole hierarchy of version 2, until the descriptors are dropped; `what`
/// is what they are for.
///
/// # Errors
///
/// No control groups of version 2 are mounted, or not all of it is permitted.
pub fn attach<'a>(
    what: &str,
    programs: impl IntoIterator<Item = (BorrowedFd<'a>, Hook)>,
) -> Result<Vec<OwnedFd>, Error> {
    let path = root(what)?;
    programs.into_iter().map(|program| attach_at(what, &path, program)).collect()
}

/// Attaches a program to the group with this folder and all below it, until the descriptor is
/// dropped.
///
/// # Errors
///
/// It cannot be opened, or is full: there is room for 64 programs.
pub fn attach_at(what: &str, path: &Path, (program, hook): (BorrowedFd<'_>, Hook)) -> Result<OwnedFd, Error> {
    let (what, path) = (what.to_owned(), path.to_owned());
    let folder = match File::open(&path) {
        Ok(folder) => folder,
        Err(error) => return Err(Error::Open { what, path, error }),
    };
    create_link(program, folder.as_raw_fd(), hook.attach_type(), 0).map_err(|error| Error::Attach {
        what,
        path,
        error,
    })
}

/// Numbers of the other programs that run for the processes of the group with this folder.
///
/// # Errors
///
/// As the kernel says.
pub fn others_at(path: &Path, (program, hook): (BorrowedFd<'_>, Hook)) -> io::Result<Vec<u32>> {
    let own = sys::program_info(program)?.id;
    let all = query(path, hook, libbpf_sys::BPF_F_QUERY_EFFECTIVE)?;
    Ok(all.into_iter().filter(|&id| id != own).collect())
}

/// Numbers of the programs that hang at the group with this folder, and not above it.
///
/// # Errors
///
/// As the kernel says.
pub fn attached_at(path: &Path, hook: Hook) -> io::Result<Vec<u32>> {
    query(path, hook, 0)
}

fn query(path: &Path, hook: Hook, flags: u32) -> io::Result<Vec<u32>> {
    let folder = File::open(path)?;
    // More than there is room for in a group and all above it, by far.
    let mut ids = [0_u32; 1024];
    let (mut attached, mut count) = (0_u32, ids.len() as u32);
    // SAFETY: the kernel writes at most `count` numbers into `ids`, and to the two others.
    sys::done(unsafe {
        libbpf_sys::bpf_prog_query(
            folder.as_raw_fd(),
            hook.attach_type(),
            flags,
            &raw mut attached,
            ids.as_mut_ptr(),
            &raw mut count,
        )
    })?;
    Ok(ids[..count as usize].to_vec())
}

/// Where the whole hierarchy of version 2 is mounted.
///
/// # Errors
///
/// It is not, with what to do.
pub fn root(what: &str) -> Result<PathBuf, Error> {
    let is_whole = |mount: &MountInfo| {
        std::fs::metadata(&mount.mount_point).is_ok_and(|folder| folder.ino() == ROOT_INODE)
    };
    let whole = mounts().map_err(Error::Mounts)?.into_iter().find(is_whole);
    whole.map(|mount| mount.mount_point).ok_or_else(|| Error::Unmounted { what: what.to_owned() })
}

/// Where the hierarchy of version 2 is mounted, or a part of it.
///
/// # Errors
///
/// When our mounts cannot be read.
pub fn mounts() -> ProcResult<Vec<MountInfo>> {
    let mounts = Process::myself()?.mountinfo()?;
    Ok(mounts.into_iter().filter(|mount| mount.fs_type == "cgroup2").collect())
}

impl Hook {
    fn attach_type(self) -> libbpf_sys::bpf_attach_type {
        match self {
            Self::SetSockopt => libbpf_sys::BPF_CGROUP_SETSOCKOPT,
            Self::GetSockopt => libbpf_sys::BPF_CGROUP_GETSOCKOPT,
            Self::SocketOps => libbpf_sys::BPF_CGROUP_SOCK_OPS,
        }
    }
}
