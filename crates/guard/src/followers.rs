//! Where the program that follows sockets hangs: at the root of the control groups, or at those of
//! the servers.
//!
//! A group has room for 64 programs (`BPF_CGROUP_MAX_PROGS`, Linux 6.18), and each runs for every
//! connection below it. So guards of containers, of which there may be many, take the group in
//! which their server has made its socket. A container that restarts has another group, which is
//! found within a second. Until then its connections count as served.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use bpf::cgroup;
use watch::Cgroups;

use crate::program::Programs;
use crate::slots::may_serve;
use crate::{FOLLOW, Listener, follows_sockets, listener};

/// Stands for a group that is not known: the root has it.
const UNKNOWN: u64 = 0;

/// Links, by the folders of their groups. None is below another: the program would run twice.
#[derive(Debug, Default)]
pub struct Followers {
    links: BTreeMap<PathBuf, Link>,
    /// Groups of sockets that are followed.
    known: BTreeSet<u64>,
}

#[derive(Debug)]
struct Link {
    /// The folder's inode number then. A service that restarts has a new group in the same folder.
    inode: u64,
    _held: OwnedFd,
}

impl Followers {
    /// Follows the sockets of these listeners, if a policy asks: all sockets of the host, or with
    /// `at_servers` those of the servers' groups.
    pub fn attach(
        &mut self,
        programs: &Programs,
        slots: &[Option<Listener>],
        at_servers: bool,
    ) -> Result<()> {
        let mut followed = slots.iter().flatten().filter(|listener| follows_sockets(listener)).peekable();
        if followed.peek().is_none() {
            return Ok(());
        }
        let root = cgroup::root(FOLLOW)?;
        if !at_servers {
            return self.add(programs, root);
        }
        let count = self.links.len();
        self.links.retain(|folder, link| inode(folder) == Some(link.inode));
        if self.links.len() < count {
            self.known.clear();
        }
        let listens: Vec<SocketAddr> = followed.map(|listener| listener.listen).collect();
        let now = groups(&listens)?;
        if now.is_subset(&self.known) {
            return Ok(());
        }
        let paths = Cgroups::read()?;
        for &group in &now {
            self.add(programs, folder_of(group, &root, &paths))?;
        }
        self.known = now;
        Ok(())
    }

    fn add(&mut self, programs: &Programs, folder: PathBuf) -> Result<()> {
        if self.links.keys().any(|known| folder.starts_with(known)) {
            return Ok(());
        }
        self.links.retain(|known, _| !known.starts_with(&folder));
        // Before: if the folder becomes another group's meanwhile, the next look finds it.
        let inode = inode(&folder).unwrap_or_default();
        let held = cgroup::attach_at(FOLLOW, &folder, programs.for_sockets()?)?;
        self.links.insert(folder, Link { inode, _held: held });
        Ok(())
    }
}

/// Programs that see the same sockets' life, by number: they may take the events away from ours.
pub fn others(programs: &Programs, listen: SocketAddr) -> Result<Vec<u32>> {
    let root = cgroup::root(FOLLOW)?;
    let paths = Cgroups::read()?;
    let mut others = BTreeSet::new();
    for group in groups(&[listen])? {
        others.extend(cgroup::others_at(&folder_of(group, &root, &paths), programs.for_sockets()?)?);
    }
    Ok(others.into_iter().collect())
}

/// Of the sockets that listen there.
fn groups(listens: &[SocketAddr]) -> Result<BTreeSet<u64>> {
    let is_theirs = |bound: SocketAddr| {
        listens.iter().any(|&listen| may_serve(bound, listen) || may_serve(listen, bound))
    };
    let theirs = listener::all()?.into_iter().filter(|socket| is_theirs(socket.local));
    Ok(theirs.map(|socket| socket.cgroup.unwrap_or(UNKNOWN)).collect())
}

fn folder_of(group: u64, root: &Path, paths: &Cgroups) -> PathBuf {
    paths.path(group).map_or_else(|| root.to_owned(), |path| root.join(path.trim_start_matches('/')))
}

/// `None` if it is gone.
fn inode(folder: &Path) -> Option<u64> {
    Some(folder.metadata().ok()?.ino())
}
