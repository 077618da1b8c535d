//! Programs for every process of the host, by the root of the control groups.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result};
use bpf::CgroupHook;

/// Attaches programs to the whole hierarchy of version 2, until the descriptors are dropped; `what` is what they are for.
///
/// # Errors
///
/// No control groups of version 2 are mounted, or not all of it is permitted.
pub fn attach<'a>(
    what: &str,
    programs: impl IntoIterator<Item = (BorrowedFd<'a>, CgroupHook)>,
) -> Result<Vec<OwnedFd>> {
    let path = root(what)?;
    let root = File::open(&path).with_context(|| format!("open {} for {what}", path.display()))?;
    let attach = |(program, hook)| bpf::attach_cgroup(program, root.as_fd(), hook);
    let links: std::io::Result<Vec<OwnedFd>> = programs.into_iter().map(attach).collect();
    links.with_context(|| format!("attach {what} to {}", path.display()))
}

/// Where the whole hierarchy of version 2 is mounted.
///
/// # Errors
///
/// It is not, with what to do.
pub fn root(what: &str) -> Result<PathBuf> {
    let root = watch::cgroup2_mounts()?.into_iter().find(|mount| mount.root == "/");
    root.map(|mount| mount.mount_point).with_context(|| {
        format!(
            "{what}: no cgroup2 is mounted here; under ip netns exec, which hides it, use --netns NAME instead, outside; else mount -t \
             cgroup2 none /sys/fs/cgroup"
        )
    })
}
