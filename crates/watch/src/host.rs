//! Every listener of the host, in each of its network namespaces.

use std::collections::{BTreeMap, btree_map};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use netlink::ListenQueue;

use crate::error::reading;
use crate::{Error, Result, Watch};

/// Where `ip netns` keeps its names.
const NAMED: &str = "/run/netns";

/// A TCP socket in LISTEN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// That it is bound to.
    pub address: SocketAddr,
    /// An IPv6 wildcard serves IPv4, too, unless this is set; not known from procfs.
    pub is_v6only: bool,
    /// Inode number of its network namespace.
    pub netns_inode: u64,
    /// Inode number of the socket, as in `/proc/PID/fd`; 0 for the kernel's own.
    pub socket_inode: u64,
    /// The kernel's number for the socket, never used again; not known from procfs.
    pub cookie: Option<u64>,
    /// Of the version 2 hierarchy, where the socket was made; not known from procfs.
    pub cgroup_id: Option<u64>,
    /// As they are now.
    pub queues: Option<Queues>,
    /// SYNs and ends of handshakes that the kernel dropped since it listens, for whatever cause; it
    /// counts modulo 2^32. Not known from procfs.
    pub drops: Option<u32>,
}

/// Queues of a listener, in connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queues {
    /// Established, waiting for accept(2).
    pub accept_qlen: u32,
    /// `min(listen backlog, somaxconn)`; the accept queue holds one more, the SYN queue as many.
    /// Not known from procfs.
    pub accept_limit: Option<u32>,
    /// Request sockets. Not known from procfs.
    pub syn_qlen: Option<u32>,
}

impl Queues {
    /// How much of the accept queue is taken, 0 to 1.
    pub fn accept_share(&self) -> Option<f64> {
        Some(f64::from(self.accept_qlen) / (f64::from(self.accept_limit?) + 1.0))
    }
}

/// A network namespace in which a process lives, or that has a name.
#[derive(Debug)]
struct Namespace {
    /// For `ip netns`, or [`netns::HOST`], if it has one.
    name: Option<String>,
    file: File,
    /// A process in it.
    pid: Option<i32>,
}

/// The host's network namespaces, by inode number.
#[derive(Debug)]
pub struct Host {
    namespaces: BTreeMap<u64, Namespace>,
    /// The calling thread's.
    own: u64,
    /// Processes whose namespace we may not know.
    hidden: usize,
}

/// What listens, and what could not be seen.
#[derive(Debug, Default)]
pub struct Survey {
    /// In no order.
    pub listeners: Vec<Listener>,
    /// One line each.
    pub gaps: Vec<String>,
}

impl Host {
    /// Finds the namespaces of all processes, and those with a name. One that only a descriptor or
    /// another mount holds is not found.
    pub fn look() -> Result<Self> {
        let mut host = Self { namespaces: BTreeMap::new(), own: 0, hidden: 0 };
        // It can always be read.
        host.own = host
            .add(Path::new("/proc/thread-self/ns/net"), None)
            .map_err(reading("open our network namespace"))?;
        for process in
            fs::read_dir("/proc").map_err(reading("read /proc to find the network namespaces"))?.flatten()
        {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid else { continue };
            match host.add(&process.path().join("ns/net"), Some(pid)) {
                Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => host.hidden += 1,
                // It has ended.
                _ => {}
            }
        }
        for entry in fs::read_dir(NAMED).into_iter().flatten().flatten() {
            // A name may be left over from a namespace that never came to be.
            let Ok(inode) = host.add(&entry.path(), None) else { continue };
            let namespace = host.namespaces.get_mut(&inode).expect("just added");
            namespace.name.get_or_insert_with(|| entry.file_name().to_string_lossy().into_owned());
        }
        // Without CAP_SYS_PTRACE it is not known which that is.
        if let Ok(inode) = host.add(&netns::path_of(netns::HOST), None) {
            let namespace = host.namespaces.get_mut(&inode).expect("just added");
            namespace.name.get_or_insert_with(|| netns::HOST.to_owned());
        }
        Ok(host)
    }

    /// Name of a namespace, if it has one.
    pub fn name(&self, netns_inode: u64) -> Option<&str> {
        self.namespaces.get(&netns_inode)?.name.as_deref()
    }

    /// What `--netns` and `nsenter` take for it: its name, or else a process in it.
    pub fn handle(&self, netns_inode: u64) -> Option<String> {
        let namespace = self.namespaces.get(&netns_inode)?;
        namespace.name.clone().or_else(|| namespace.pid.map(|pid| pid.to_string()))
    }

    /// Inode number of the calling thread's.
    pub fn own(&self) -> u64 {
        self.own
    }

    /// Lists the listeners of all namespaces: with `watch` by the kernel's own list, without as far
    /// as procfs tells.
    pub fn survey(&self, watch: Option<&Watch>) -> Survey {
        let mut survey = Survey::default();
        for (&inode, namespace) in &self.namespaces {
            let found = match watch {
                Some(watch) => netns::enter(&namespace.file, || watch.list()).map_err(Error::from).flatten(),
                None => self.read_procfs(inode, namespace),
            };
            match found {
                Ok(listeners) => survey.listeners.extend(listeners),
                Err(error) => survey.gaps.push(format!("network namespace {inode}: {error}")),
            }
        }
        if self.hidden > 0 {
            survey.gaps.push(format!(
                "the network namespaces of {} processes cannot be read; listeners in them, if they are in no other, are missing here",
                self.hidden
            ));
        }
        if watch.is_none() {
            survey.gaps.push(
                "limits, SYN queues and rates are not in /proc; run as root or with CAP_BPF and CAP_PERFMON"
                    .to_owned(),
            );
        }
        survey
    }

    /// Queues of the listeners of all namespaces by sock_diag(7); `None` where it cannot be asked.
    pub(crate) fn listen_queues(&self) -> Option<Vec<ListenQueue>> {
        let mut queues = Vec::new();
        for namespace in self.namespaces.values() {
            queues.extend(netns::enter(&namespace.file, netlink::listen_queues).ok()?.ok()?);
        }
        Some(queues)
    }

    fn read_procfs(&self, inode: u64, namespace: &Namespace) -> Result<Vec<Listener>> {
        if namespace.pid.is_some() || inode == self.own {
            return crate::procfs::listeners(namespace.pid, inode);
        }
        netns::enter(&namespace.file, || crate::procfs::listeners(None, inode))?
    }

    /// Inode number of the namespace that `path` leads to, which is known from now on.
    fn add(&mut self, path: &Path, pid: Option<i32>) -> std::io::Result<u64> {
        let inode = fs::metadata(path)?.ino();
        if let btree_map::Entry::Vacant(place) = self.namespaces.entry(inode) {
            place.insert(Namespace { name: None, file: File::open(path)?, pid });
        }
        Ok(inode)
    }
}
