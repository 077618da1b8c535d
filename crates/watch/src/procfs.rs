//! Listeners as `/proc` has them: for those who may not load programs.

use std::path::Path;

use procfs::net::{TcpNetEntries, TcpNetEntry, TcpState};
use procfs::{FromReadSI, current_system_info};

use crate::error::reading;
use crate::{Listener, Queues, Result};

/// Listeners of the namespace with this inode number: that of a process, or our own.
pub fn listeners(pid: Option<i32>, netns_inode: u64) -> Result<Vec<Listener>> {
    // Not /proc/net, which is the process's first thread's namespace.
    let folder = pid.map_or("/proc/thread-self/net".to_owned(), |pid| format!("/proc/{pid}/net"));
    let mut listeners = Vec::new();
    for name in ["tcp", "tcp6"] {
        let path = format!("{folder}/{name}");
        if name == "tcp6" && !Path::new(&path).exists() {
            continue; // a kernel without IPv6
        }
        let table = TcpNetEntries::from_file(&path, current_system_info())
            .map_err(reading(format!("read {path} to find the listeners")))?;
        let listening = table.0.iter().filter(|entry| entry.state == TcpState::Listen);
        listeners.extend(listening.map(|entry| listener(entry, netns_inode)));
    }
    Ok(listeners)
}

/// Of a listener, `rx_queue` is `sk_ack_backlog` (`get_tcp4_sock`, v6.18).
fn listener(entry: &TcpNetEntry, netns_inode: u64) -> Listener {
    let queues = Queues { accept_qlen: entry.rx_queue, accept_limit: None, syn_qlen: None };
    Listener {
        address: entry.local_address,
        is_v6only: false,
        netns_inode,
        socket_inode: entry.inode,
        cookie: None,
        cgroup_id: None,
        queues: Some(queues),
        drops: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn listener_is_there_with_its_queue_and_without_what_proc_has_not() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = socket.local_addr().expect("address");
        let _client = TcpStream::connect(address).expect("connect");
        let all = listeners(None, 7).expect("read /proc");
        let found = all.iter().find(|listener| listener.address == address).expect("it listens");
        assert_eq!(found.netns_inode, 7);
        assert_eq!(found.queues, Some(Queues { accept_qlen: 1, accept_limit: None, syn_qlen: None }));
    }
}
