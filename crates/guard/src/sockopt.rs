//! The socket option by which a server asks for rst-fin itself.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::program::Programs;

/// Lets every process of this host ask, until the descriptors are dropped.
///
/// # Errors
///
/// No control groups of version 2 are mounted, or not all of it is permitted.
pub fn attach(programs: &Programs) -> Result<Vec<OwnedFd>> {
    let path = cgroup_root()?;
    let root = File::open(&path).with_context(|| format!("open {} for the socket option", path.display()))?;
    let attach = |(program, hook)| bpf::attach_cgroup(program, root.as_fd(), hook);
    let links: std::io::Result<Vec<OwnedFd>> = programs.for_sockopt().into_iter().map(attach).collect();
    links.with_context(|| format!("attach the socket option to {}", path.display()))
}

/// Of the whole hierarchy of version 2.
///
/// # Errors
///
/// None is mounted, with what to do.
pub fn cgroup_root() -> Result<PathBuf> {
    let root = watch::cgroup2_mounts()?.into_iter().find(|mount| mount.root == "/");
    let path = root.map(|mount| mount.mount_point);
    path.context(
        "allow the socket option: no cgroup2 is mounted; mount -t cgroup2 none /sys/fs/cgroup (or --netns in place of ip netns exec, \
         which hides the mount)",
    )
}
