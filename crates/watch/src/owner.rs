//! Who holds a listener.

use std::collections::{BTreeMap, BTreeSet};

use procfs::process::FDTarget;

use crate::Result;
use crate::error::reading;

/// A process that holds a socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Process {
    /// Its number in our pid namespace.
    pub pid: i32,
    /// Its name, up to 15 characters (`comm`).
    pub command: String,
    /// Path in the version 2 hierarchy, as we see it.
    pub cgroup: Option<String>,
}

/// Processes by the sockets that they hold.
#[derive(Debug, Default)]
pub struct Owners(BTreeMap<u64, Vec<Process>>);

impl Owners {
    /// Finds the processes that hold a socket with one of these inode numbers. Descriptors of other
    /// users' processes need CAP_SYS_PTRACE.
    pub fn find(socket_inodes: impl IntoIterator<Item = u64>) -> Result<Self> {
        let wanted: BTreeSet<u64> = socket_inodes.into_iter().filter(|&inode| inode != 0).collect();
        let mut owners = BTreeMap::<u64, Vec<Process>>::new();
        let processes =
            procfs::process::all_processes().map_err(reading("read /proc to find who listens"))?;
        for process in processes.flatten() {
            let held: BTreeSet<u64> = process
                .fd()
                .into_iter()
                .flatten()
                .flatten()
                .filter_map(|fd| match fd.target {
                    FDTarget::Socket(inode) => wanted.contains(&inode).then_some(inode),
                    _ => None,
                })
                .collect();
            if held.is_empty() {
                continue;
            }
            // It may have ended meanwhile.
            let Ok(stat) = process.stat() else { continue };
            let owner = Process { pid: stat.pid, command: stat.comm, cgroup: cgroup(&process) };
            for inode in held {
                owners.entry(inode).or_default().push(owner.clone());
            }
        }
        owners.values_mut().for_each(|processes| processes.sort());
        Ok(Self(owners))
    }

    /// Lowest process number first; empty when nobody holds it, or nobody whom we may see.
    pub fn of(&self, socket_inode: u64) -> &[Process] {
        self.0.get(&socket_inode).map_or(&[], Vec::as_slice)
    }
}

fn cgroup(process: &procfs::process::Process) -> Option<String> {
    // Hierarchy 0 is version 2 (cgroups(7)).
    let groups = process.cgroups().ok()?;
    groups.into_iter().find(|group| group.hierarchy == 0).map(|group| group.pathname)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn socket_of_this_process_is_ours() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = socket.local_addr().expect("address");
        let all = crate::procfs::listeners(None, 0).expect("read /proc");
        let inode = all.iter().find(|listener| listener.address == address).expect("it listens").socket_inode;
        let owners = Owners::find([inode]).expect("read /proc");
        let pids: Vec<i32> = owners.of(inode).iter().map(|process| process.pid).collect();
        assert!(pids.contains(&std::process::id().cast_signed()), "{pids:?}");
        assert!(owners.of(0).is_empty());
    }
}
