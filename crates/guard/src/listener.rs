//! Who listens, from procfs. The decision itself never reads this: it asks the kernel for each SYN.

use std::net::SocketAddr;

use anyhow::{Context, Error, Result, anyhow};
use procfs::net::{TcpNetEntries, TcpNetEntry, TcpState};
use procfs::process::FDTarget;
use procfs::{FromReadSI, current_system_info};

/// Names in the error message; more would not fit on a line.
const MAX_NAMED: usize = 8;

/// Fails when nothing listens that could serve `listen`.
pub fn require(listen: SocketAddr) -> Result<()> {
    if listening()?.iter().any(|entry| crate::slots::may_serve(entry.local_address, listen)) {
        return Ok(());
    }
    Err(missing(listen))
}

/// Says what does listen, and what to do.
pub fn missing(listen: SocketAddr) -> Error {
    let mut entries = listening().unwrap_or_default();
    // The same port first, then what is near by number.
    entries.sort_by_key(|entry| (entry.local_address.port().abs_diff(listen.port()), entry.local_address));
    entries.dedup_by_key(|entry| entry.local_address);
    let names: Vec<String> = entries.iter().take(MAX_NAMED).map(describe).collect();
    if let Some(netns) = elsewhere(listen) {
        return anyhow!(
            "guard {listen}: nothing listens there in this network namespace, but in {netns}; add --netns {netns}"
        );
    }
    let listening = if names.is_empty() {
        "nothing else does either".to_owned()
    } else {
        format!("listening: {}", names.join(", "))
    };
    anyhow!(
        "guard {listen}: nothing listens there; {listening}; start the server first or correct the address"
    )
}

/// Says why a listener that is there cannot be looked at.
pub fn unseen(listen: SocketAddr) -> Error {
    let is_there = listening().is_ok_and(|entries| entries.iter().any(|entry| entry.local_address == listen));
    if !is_there {
        return missing(listen);
    }
    anyhow!(
        "guard {listen}: the socket there is bound to one device, or to an address of one, and cannot be looked at without a client's \
         SYN; name it in a --config file, which needs no look"
    )
}

/// Another network namespace in which a socket listens there; the first, if there are several.
fn elsewhere(listen: SocketAddr) -> Option<String> {
    let host = watch::Host::look().ok()?;
    let listeners = host.survey(None).listeners;
    let mut others = listeners.iter().filter(|listener| {
        listener.netns_inode != host.own() && crate::slots::may_serve(listener.address, listen)
    });
    others.find_map(|listener| host.handle(listener.netns_inode))
}

fn listening() -> Result<Vec<TcpNetEntry>> {
    let mut entries = Vec::new();
    for name in ["tcp", "tcp6"] {
        // Not /proc/net, which is the process's first thread's namespace.
        let path = format!("/proc/thread-self/net/{name}");
        if name == "tcp6" && !std::path::Path::new(&path).exists() {
            continue; // a kernel without IPv6
        }
        let table = TcpNetEntries::from_file(&path, current_system_info())
            .with_context(|| format!("read {path} to find the listener"))?;
        entries.extend(table.0.into_iter().filter(|entry| entry.state == TcpState::Listen));
    }
    Ok(entries)
}

fn describe(entry: &TcpNetEntry) -> String {
    match owner(entry.inode) {
        Some(name) => format!("{} ({name})", entry.local_address),
        None => entry.local_address.to_string(),
    }
}

/// Name of a process that holds the socket; other users' processes need CAP_SYS_PTRACE.
fn owner(inode: u64) -> Option<String> {
    let holds = |process: &procfs::process::Process| {
        process.fd().is_ok_and(|mut fds| {
            fds.any(|fd| fd.is_ok_and(|fd| matches!(fd.target, FDTarget::Socket(socket) if socket == inode)))
        })
    };
    let process = procfs::process::all_processes().ok()?.flatten().find(holds)?;
    Some(process.stat().ok()?.comm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listener_is_found_by_its_address() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        require(socket.local_addr().expect("address")).expect("it listens");
    }

    #[test]
    fn missing_listener_is_an_error_that_names_the_one_next_to_it() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut wrong = socket.local_addr().expect("address");
        wrong.set_ip([127, 0, 0, 77].into());
        let error = require(wrong).expect_err("nothing listens there").to_string();
        assert!(error.starts_with(&format!("guard {wrong}: nothing listens there; listening: 127.0.0.1:")));
        assert!(error.contains(&format!("{} (", socket.local_addr().expect("address"))), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
